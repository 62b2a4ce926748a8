"""`counterpath explain`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpath.cli import options, output
from counterpath.cli.output import say, show
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.explanation import Explanation

STANDARD_OUTPUT = Path("-")
INCOMPLETE = 3  # see `counterpath.cli.EXIT_CODES`
WRITERS = {".csv": "to_csv", ".parquet": "to_parquet", ".json": "to_json", output.SUFFIX: "to_html"}
"""The method of `Explanation` that writes a kind of file."""


@options.expand()
def explain(
    model_folder: options.ModelFolder,
    rows: Annotated[str, typer.Argument(help="A table like the training table; - is CSV on standard input.")],
    given: options.RequestOptions,
    rejected_only: Annotated[
        bool, typer.Option("--rejected-only", help="Leave out rows that already have the decision.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print the steps of each path below its row.")] = False,
    drop: options.Columns = "",
    row_id: Annotated[
        str | None, typer.Option("--id", help="A column that names each row in the answers, for instance a number.")
    ] = None,
    model: options.UserModel = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help=f"A file that ends in one of {' '.join(WRITERS)}, or - for CSV on standard output."),
    ] = None,
    *,
    report: output.ReportOptions,
) -> None:
    """Find what would have to change for another decision. Every row is explained by itself.

    Exit codes: 0 every row has its counterfactual or already had the decision; 3 done, but some rows have none, and
    their status says why (of several plans the first counts); 2 wrong input or model; 1 anything unexpected.
    """
    from counterpath.explainer.explainer import Explainer
    from counterpath.explanation.io import stream_csv
    from counterpath.explanation.tables import END, MILESTONES
    from counterpath.utils.devices import resolve_device

    if steps and out is not None:
        raise InputError("--steps prints, and --out writes: leave out one of them (an .html file has the steps anyway)")
    if steps and (given.paths if given.recorded is None else given.recorded.get("paths")) == END:
        raise InputError(
            f"--steps prints the steps of each path, and --paths {END} keeps none: try --paths {MILESTONES}"
        )
    resolve_device(device)
    is_report = report.is_written(out)
    if out is not None:
        _check_out(out)
    explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
    table = _named(options.table(rows, drop), row_id)
    if given.recorded is None:
        result = explainer.solve(table, given.request(explainer))
    else:
        result = explainer.repeat(given.recorded, table)
    baselines = output.baseline(explainer, result, table) if is_report else {}
    if rejected_only:
        result = result.rejected()
        baselines = {method: found.rejected() for method, found in baselines.items()}
    if out is None:
        show(result.to_text(steps))
    elif is_report:
        report.write(result, out, baselines, model_folder, rows)
    elif out == STANDARD_OUTPUT:
        stream_csv(result.to_frame(), sys.stdout)
    else:
        getattr(result, WRITERS[out.suffix.lower()])(out)
        say(f"wrote {out}")
    _exit_if_incomplete(result)


def _named(table: "pd.DataFrame", column: str | None) -> "pd.DataFrame":
    """The rows under their names in a column, if there is one to name them."""
    if column is None:
        return table
    choose("column --id", column, dict.fromkeys(map(str, table.columns)))
    twice = table[column].isna() | table[column].duplicated()
    if twice.any():
        wrong = int(twice.to_numpy().argmax())
        raise InputError(
            f"--id {column}: row {wrong} has {table[column].iloc[wrong]!r}, which is missing or names a row before it; "
            "expected another name for every row"
        )
    return table.set_index(column)


def _check_out(out: Path) -> None:
    if out == STANDARD_OUTPUT:
        return
    choose(f"kind of file (the end of {out.name!r})", out.suffix.lower(), WRITERS)
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file, for instance {out / f'rows{out.suffix}'}")


def _exit_if_incomplete(result: "Explanation") -> None:
    """Say how many rows have no counterfactual, or people no plan, and end with the exit code for that."""
    first = result.plan(1)
    without = first.status.loc[~first.valid.to_numpy(), "status"]
    if len(without):
        counts = ", ".join(f"{status} {count}" for status, count in without.value_counts().items())
        lacking = "rows have no counterfactual" if result.plans == 1 else "people have no plan"
        say(f"{len(without)} of {len(first)} {lacking} ({counts}); their reason is in the result")
        raise typer.Exit(INCOMPLETE)

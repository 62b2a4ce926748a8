"""`counterpath explain`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpath.cli import options, output
from counterpath.cli.options import Question
from counterpath.cli.output import say, show
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.io import stream_csv
from counterpath.explanation.milestones import ALL, END, KEEPS, MILESTONES
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import InputError, choose

STANDARD_OUTPUT = Path("-")
INCOMPLETE = 3
WRITERS: dict[str, Callable[[Explanation, Path], Any]] = {
    ".csv": Explanation.to_csv,
    ".parquet": Explanation.to_parquet,
    ".json": lambda result, path: result.to_json(path),
    output.SUFFIX: Explanation.to_html,
}


def explain(
    model_folder: options.ModelFolder,
    rows: Annotated[str, typer.Argument(help="A table like the training table; - is CSV on standard input.")],
    target_class: options.MaybeTarget = None,
    confidence: options.MaybeConfidence = None,
    method: Annotated[str | None, typer.Option(help="How to search; by default as fit was told.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="How long to search at most.")] = None,
    lock: options.Lock = None,
    up: options.Up = None,
    down: options.Down = None,
    ranges: options.Ranges = None,
    max_changes: options.MaxChanges = None,
    feature_costs: options.FeatureCosts = None,
    plans: options.Plans = None,
    request: options.Again = None,
    paths: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(KEEPS),
            help="How much of each path a .json or .html file has: all of it, its milestones, or only its end.",
            show_default=ALL,
        ),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Print the steps of each path below its row.")] = False,
    drop: options.Columns = "",
    model: options.Own = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help=f"A file that ends in one of {' '.join(WRITERS)}, or - for CSV on standard output."),
    ] = None,
    by: output.By = "",
    pages: output.Pages = None,
) -> None:
    """Say for every row what would have to change for another decision.

    Exit codes: 0 every row has its counterfactual or already had the decision; 3 done, but some rows have none, and
    their status says why (of several plans the first counts); 2 wrong input or model; 1 anything unexpected.
    """
    options.positive("--time-limit", time_limit)
    given = {
        "--target-class": target_class,
        "--confidence": confidence,
        "--method": method,
        "--time-limit": time_limit,
        "--paths": paths,
    }
    wishes = options.Options(lock, up, down, ranges, max_changes, feature_costs, plans)
    question = Question(given, wishes, request, ALL)
    if steps and out is not None:
        raise InputError("--steps prints, and --out writes: leave out one of them (an .html file has the steps anyway)")
    if steps and question.paths == END:
        raise InputError(
            f"--steps prints the steps of each path, and --paths {END} keeps none: try --paths {MILESTONES}"
        )
    resolve_device(device)
    wish = output.Wish.of(out, by, pages)
    writer = None if out is None else _writer(out)
    explainer = Explainer.load(model_folder, model=options.model(model), device=device)
    asked = question.of(explainer)
    table = options.table(rows, drop)
    result = explainer.explain(table, **asked) if question.again is None else explainer.repeat(asked, table)
    if writer is None:
        show(result.to_text(steps))
    else:
        assert out is not None
        if wish.is_report:
            beside = output.baseline(explainer, result, table)
            wish.write(result, out, beside, output.about(model_folder, rows))
            say(f"wrote {out}")
        else:
            writer(result, out)
    _report(result)


def _writer(out: Path) -> Callable[[Explanation, Path], Any]:
    if out == STANDARD_OUTPUT:
        return lambda result, path: stream_csv(result.to_frame(), sys.stdout)
    writer = choose(f"kind of file (the end of {out.name!r})", out.suffix.lower(), WRITERS)
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file, for instance {out / f'rows{out.suffix}'}")

    def write(result: Explanation, path: Path) -> None:
        writer(result, path)
        say(f"wrote {path}")

    return write


def _report(result: Explanation) -> None:
    """Say how many rows have no counterfactual, or people no plan, and end with the exit code for that."""
    first = result.plan(1)
    without = first.status.loc[~first.valid.to_numpy(), "status"]
    if len(without):
        counts = ", ".join(f"{status} {count}" for status, count in without.value_counts().items())
        lacking = "rows have no counterfactual" if result.plans == 1 else "people have no plan"
        say(f"{len(without)} of {len(first)} {lacking} ({counts}); their reason is in the result")
        raise typer.Exit(INCOMPLETE)

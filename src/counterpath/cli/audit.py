"""`counterpath audit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath.cli import options, output
from counterpath.cli.output import say, show
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:
    from counterpath.explainer.explainer import Explainer
    from counterpath.explanation import Explanation
    from counterpath.explanation.audit import Audit
    from counterpath.explanation.shared import SharedPlans

_FILES = (output.SUFFIX, ".json", ".csv")


@options.expand(omit=("plans",))
def audit(
    model_folder: options.ModelFolder,
    rows: Annotated[
        str,
        typer.Argument(help="A table like the training table, what explain wrote as .json, or the folder of a batch."),
    ],
    given: options.RequestOptions,
    by: Annotated[
        str, typer.Option(metavar="A,B", help="Columns whose groups are compared, each by itself; A+B crosses two.")
    ] = "",
    find: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Features in which groups are looked for by a tree; none for none.",
            show_default="what people cannot change",
        ),
    ] = None,
    shared: Annotated[
        int, typer.Option(help="How many plans that many people share to find as well; not of a batch.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of permutations and resamples.")] = 0,
    drop: options.Columns = "",
    model: options.UserModel = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="A report as .html, all tables as .json, or the differences as .csv.")
    ] = None,
) -> None:
    """Ask whether the way to another decision is equally long for everyone: groups side by side, with tests.

    Exit codes: 0 done, whatever was shown; 2 wrong input or model; 1 anything unexpected.
    """
    from counterpath.explainer.explainer import Explainer
    from counterpath.utils.files import atomic

    if out is not None:
        choose(f"kind of file (the end of {out.name!r})", out.suffix.lower(), dict.fromkeys(_FILES))
    if shared < 0:
        raise InputError(f"--shared is a number of plans from 0; given {shared}")
    explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
    groups = [tuple(name.split("+")) if "+" in name else name for name in options.names(by)]
    looked: Any = True if find is None else ([] if find == "none" else options.names(find))
    plans: SharedPlans | None = None
    if Path(rows).is_dir():
        found = _of_folder(explainer, Path(rows), groups, looked, seed)
        if shared:
            raise InputError("--shared needs the rows themselves, and a batch has only what they became; leave it out")
    else:
        result = _explained(explainer, rows, given, drop)
        found = explainer.set_params(seed=seed).audit(result, groups, find=looked)
        if shared:
            plans = explainer.shared_plans(result, k=shared, by=groups[0] if groups else None)
    show(repr(found))
    if plans is not None:
        show(repr(plans))
    if out is None:
        return
    if out.suffix.lower() == output.SUFFIX:
        found.to_html(out, shared=plans)
    elif out.suffix.lower() == ".json":
        found.to_json(out)
    else:
        with atomic(out) as temporary:
            found.differences.to_csv(temporary, index=False)
    say(f"wrote {out}")


def _explained(explainer: "Explainer", rows: str, given: options.RequestOptions, drop: str) -> "Explanation":
    """The explanation of the rows, or the one that the file holds."""
    from counterpath.explanation import Explanation

    if rows.endswith(".json"):
        return Explanation.from_json(Path(rows))
    table = options.table(rows, drop)
    if given.recorded is not None:
        return explainer.repeat(given.recorded, table)
    return explainer.solve(table, given.request(explainer))


def _of_folder(explainer: "Explainer", folder: Path, groups: list[Any], find: Any, seed: int) -> "Audit":
    from counterpath.batch.audit import audit_folder

    crossed = [name for name in groups if isinstance(name, tuple)]
    if crossed:
        raise InputError(f"a batch is grouped by one column at a time; given {'+'.join(crossed[0])}")
    schema = explainer.schema_
    looked = list(schema.immutable) if find is True else list(find)
    return audit_folder(schema, folder, groups, find=looked, seed=seed)

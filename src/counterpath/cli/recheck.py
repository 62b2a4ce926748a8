"""`counterpath recheck`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpath.cli import options
from counterpath.cli.output import say, show
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:
    import pandas as pd

EXPIRED = 3  # see `counterpath.cli.EXIT_CODES`
_FILES = (".csv", ".parquet")


def recheck(
    model_folder: options.ModelFolder,
    answers: Annotated[
        Path, typer.Argument(help="What explain wrote as .json, or the folder that batch wrote.", exists=False)
    ],
    model: options.UserModel = None,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet file with one line for each answer.")] = None,
) -> None:
    """Say which given answers still hold for the model in MODEL, which do not, and by how much.

    MODEL is the new one: fitted after the next training. A model of yours is given as --model.

    Exit codes: 0 all answers hold; 3 some have expired; 2 wrong input or model; 1 anything unexpected.
    """
    from counterpath.explainer.explainer import Explainer
    from counterpath.explainer.recheck import EXPIRED as GONE
    from counterpath.explainer.recheck import HOLDS
    from counterpath.explanation import Explanation
    from counterpath.utils.files import atomic

    if out is not None:
        choose(f"kind of file (the end of {out.name!r})", out.suffix.lower(), dict.fromkeys(_FILES))
    explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
    if answers.is_dir():
        from counterpath.batch.recheck import recheck_folder

        table = recheck_folder(explainer, answers)
    elif answers.suffix.lower() == ".json":
        table = explainer.recheck(Explanation.from_json(answers))
    else:
        raise InputError(
            f"{answers} is neither a folder of results nor a .json file; expected what explain or batch wrote"
        )
    holding, gone = (table["answer"] == HOLDS).sum(), table["answer"] == GONE
    total = int(holding + gone.sum())
    show(f"{holding} of {total} answers still hold{_missing(table[gone])}")
    if out is not None:
        with atomic(out) as temporary:
            if out.suffix.lower() == ".csv":
                table.to_csv(temporary)
            else:
                table.to_parquet(temporary)
        say(f"wrote {out}")
    if gone.any():
        raise typer.Exit(EXPIRED)


def _missing(expired: "pd.DataFrame") -> str:
    """By how much those that do not hold fail."""
    if expired.empty:
        return ""
    lacks = expired["lacks"]
    return f"; the others lack {lacks.median():.3g} of what was asked for at the median, {lacks.max():.3g} at most"

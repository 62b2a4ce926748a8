"""`counterpath schema`."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath.cli import options
from counterpath.cli.datasets import legal_values
from counterpath.cli.output import say, show, show_table
from counterpath.utils.errors import CounterpathWarning, InputError, choose

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.data.schema import Feature, Schema

_SHORT = 60
"""How many characters of a feature's values fit into a line of a terminal, beside the rest."""
Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, JSON or JSON lines; - is CSV on standard input.")]
Immutable = Annotated[str, typer.Option(help="Columns that must not change, separated by commas.")]


def schema(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column of the label, which is left out.")] = None,
    overrides: options.Overrides = None,
    immutable: Immutable = "",
    drop: options.Columns = "",
    out: Annotated[Path | None, typer.Option(help="Where to write it; else it is printed.")] = None,
) -> None:
    """Infer what the columns of a table are, as JSON. Look at it, edit it, and give it to fit."""
    changes = options.overrides(overrides)
    inferred = infer_schema(options.table(data, drop), target, changes, immutable, ignore_problems=True)
    if out is None:
        show(json.dumps(inferred.to_json(), indent=2, ensure_ascii=False))
    else:
        inferred.save(out)
        show_table("", [_row(feature) for feature in inferred], words=True)
        say(f"wrote {out}; edit it and give it to: counterpath fit … --schema {out}")


def _row(feature: "Feature") -> dict[str, str]:
    """A feature in a line, for somebody who wants to see at once what was read wrongly."""
    values = legal_values(feature)
    return {
        "column": feature.name,
        "kind": feature.kind,
        "values": values if len(values) <= _SHORT else f"{values[: _SHORT - 1]}…",
        "may change": "no" if feature.immutable else "yes" if feature.actionable else "if a request unlocks it",
    }


def infer_schema(
    table: "pd.DataFrame",
    target: str | None,
    overrides: dict[str, dict[str, Any]],
    immutable: str,
    file: Path | None = None,
    *,
    ignore_problems: bool = False,
) -> "Schema":
    """The schema of a table, or else the one in a file, with what the options change.

    Args:
        table: The table.
        target: The column of the label.
        overrides: Attributes of features by column.
        immutable: Columns that must not change, separated by commas.
        file: A schema that is there already.
        ignore_problems: Leave out columns that cannot be features, and say so, instead of an error.
    """
    from counterpath.data.infer import infer
    from counterpath.data.schema import Schema

    if target is not None:
        choose("target", target, dict.fromkeys(map(str, table.columns)))
    if file is None:
        try:
            with warnings.catch_warnings(record=True) as remarks:
                warnings.simplefilter("always", CounterpathWarning)
                inferred = infer(
                    table,
                    target=target,
                    immutable=options.names(immutable),
                    overrides=overrides,
                    ignore_problems=ignore_problems,
                )
        except InputError as error:
            raise InputError(f"{error} (here: --drop COLUMN, --set COLUMN.kind=KIND)") from error
        for remark in remarks:
            say(f"{remark.message} (Here: --drop COLUMN, --set COLUMN.ATTRIBUTE=VALUE.)")
        return inferred
    given = Schema.load(file)
    for name, attributes in overrides.items():
        given = given.replace(name, **attributes)
    return given.with_immutable(*options.names(immutable))

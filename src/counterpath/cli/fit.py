"""`counterpath schema` and `counterpath fit`."""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from counterpath.cli import options
from counterpath.cli.output import say, show
from counterpath.data.schema import Schema
from counterpath.explainer.explainer import Explainer
from counterpath.fitting import persistence
from counterpath.fitting.prepare import MISSING
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import CheckpointError, CounterpathWarning, InputError, choose

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, JSON or JSON lines; - is CSV on standard input.")]
Immutable = Annotated[str, typer.Option(help="Columns that must not change, separated by commas.")]


def schema(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column of the label, which is left out.")] = None,
    changes: options.Edits = None,
    immutable: Immutable = "",
    drop: options.Columns = "",
    out: Annotated[Path | None, typer.Option(help="Where to write it; else it is printed.")] = None,
) -> None:
    """Say what the columns of a table are, as JSON to look at, to edit and to give to fit."""
    edits = options.edits(changes)
    found = described(options.table(data, drop), target, None, edits, immutable)
    if out is None:
        show(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        found.save(out)
        say(f"wrote {out}; edit it and give it to: counterpath fit … --schema {out}")


def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column of the label; optional with --model.")] = None,
    immutable: Immutable = "",
    schema: Annotated[Path | None, typer.Option(help="What the columns are, from counterpath schema.")] = None,
    changes: options.Edits = None,
    drop: options.Columns = "",
    method: Annotated[str, typer.Option(help="How explain searches unless told otherwise.")] = "geodesic",
    class_weight: Annotated[str | None, typer.Option(help="balanced, if one class is rare.")] = None,
    missing: Annotated[str, typer.Option(help="error, or impute to fill missing values in.")] = "error",
    latent_dim: Annotated[
        int | None, typer.Option(help="Width of the latent space; by default it follows the table.")
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths of the generative model's hidden layers.")] = "512,256",
    epochs: Annotated[int | None, typer.Option(help="Passes over the table; by default it follows the table.")] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    device: options.Device = "auto",
    model: options.Own = None,
    out: Annotated[Path, typer.Option(help="The model directory to write.")] = Path("model"),
) -> None:
    """Learn from a table all that explanations need; a fit that was cut off goes on where it was."""
    if target is None and model is None:
        raise InputError("fit needs --target COLUMN, the label to learn, or --model module:attribute, a model of yours")
    if class_weight is not None:
        choose("class weight", class_weight, {"balanced": None})
    choose("way to treat missing values", missing, dict.fromkeys(MISSING))
    widths = options.numbers("the widths of hidden layers", hidden)
    for name, value in (("--latent-dim", latent_dim), ("--epochs", epochs), ("--hidden", min(widths))):
        options.positive(name, value)
    resolve_device(device)
    persistence.insist_replaceable(out)
    explainer = Explainer(
        method=options.method(method),
        latent_dim=latent_dim or "auto",
        hidden=tuple(widths),
        epochs=epochs or "auto",
        class_weight=class_weight,
        missing=missing,
        seed=seed,
        device=device,
    )
    edits, own = options.edits(changes), options.model(model)
    given = None if schema is None else Schema.load(schema)
    table = options.table(data, drop)
    known = described(table, target, given, edits, immutable)
    fit_resumably(explainer, table, target, schema=known, model=own, folder=out.resolve())
    _show_summary(explainer, table, out)


def described(
    table: pd.DataFrame, target: str | None, given: Schema | None, edits: dict[str, dict[str, Any]], immutable: str
) -> Schema:
    """The schema of a table: as given or else as it looks, with the user's changes."""
    if target is not None:
        choose("target", target, dict.fromkeys(map(str, table.columns)))
    frozen = options.names(immutable)
    if given is None:
        try:
            return Schema.infer(table, target=target, immutable=frozen, overrides=edits)
        except InputError as error:
            raise InputError(f"{error} (here: --drop COLUMN, --set COLUMN.kind=KIND)") from error
    for name, attributes in edits.items():
        given = given.replace(name, **attributes)
    return given.with_immutable(*frozen)


def fit_resumably(
    explainer: Explainer, table: pd.DataFrame, target: str | None, *, schema: Schema, model: Any = None, folder: Path
) -> None:
    """Fit and save; checkpoints wait beside the model directory until it is written.

    Args:
        explainer: What to fit.
        table: Training rows.
        target: The column of the label.
        schema: What the columns are.
        model: The user's model, if it is one.
        folder: The model directory.
    """
    training = folder.with_name(f".{folder.name}-training")
    if any(not path.name.startswith(".") for path in _checkpoints(training)):
        say("a fit that was cut off left checkpoints: going on from there")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpathWarning)  # the summary has all findings
        try:
            explainer.fit(table, target, schema=schema, model=model, checkpoint=training)
        except CheckpointError:
            say("they belong to another fit, or are damaged: starting over")
            _clear(training)
            explainer.fit(table, target, schema=schema, model=model, checkpoint=training)
    explainer.save(folder)
    _clear(training)


def _checkpoints(training: Path) -> list[Path]:
    """What is in a folder of checkpoints, half-written ones of a killed process (which are hidden) included."""
    return list(training.glob("*.safetensors"))


def _clear(training: Path) -> None:
    """Remove checkpoints, and nothing else that somebody may keep under that name."""
    for path in _checkpoints(training):
        path.unlink()
    if training.is_dir() and not any(training.iterdir()):
        training.rmdir()


def _show_summary(explainer: Explainer, table: pd.DataFrame, out: Path) -> None:
    diagnostics, frozen = explainer.diagnostics(), explainer.schema_.immutable
    show(f"{len(table):,} rows, {len(explainer.schema_)} features, immutable: {', '.join(frozen) or 'none'}")
    show(f"model: {explainer.models_.explained.name}, classes: {', '.join(map(str, explainer.classes_))}")
    show(f"the models that explanations rest on are {diagnostics.verdict} here")
    for finding in diagnostics.findings:
        show(f"  {finding.level}: {finding.text} Try {finding.advice}")
    show(f"wrote {out}")

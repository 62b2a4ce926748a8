"""`counterpath fit`."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath.cli import options
from counterpath.cli.output import say, show
from counterpath.cli.schema import Data, Immutable, infer_schema
from counterpath.utils.errors import CheckpointError, CounterpathWarning, InputError, choose

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.data.schema import Schema
    from counterpath.explainer.explainer import Explainer


def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column of the label; optional with --model.")] = None,
    immutable: Immutable = "",
    schema: Annotated[Path | None, typer.Option(help="What the columns are, from counterpath schema.")] = None,
    overrides: options.Overrides = None,
    drop: options.Columns = "",
    method: Annotated[str, typer.Option(help="How explain searches unless it has a --method.")] = "geodesic",
    class_weight: Annotated[str | None, typer.Option(help="balanced, if one class is rare.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="P or CLASS=P,…",
            help="From which probability on the model decides for the second of two classes, or for each class.",
            show_default="the most probable class",
        ),
    ] = None,
    missing: Annotated[str, typer.Option(help="Gaps: keep, impute, error; auto keeps them if it can.")] = "auto",
    latent_dim: Annotated[
        int | None, typer.Option(help="Width of the latent space; by default it follows the table.")
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths of the generative model's hidden layers.")] = "512,256",
    task: Annotated[
        str,
        typer.Option(metavar="auto|classification|regression", help="Whether the model predicts classes or numbers."),
    ] = "auto",
    epochs: Annotated[int | None, typer.Option(help="Passes over the table; by default it follows the table.")] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    device: options.Device = "auto",
    model: options.UserModel = None,
    family: Annotated[
        bool, typer.Option("--family", help="Also train the models that explain --robust asks; else when first asked.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The model directory to write.")] = Path("model"),
    force: Annotated[bool, typer.Option("--force", help="Replace the model that is there.")] = False,
) -> None:
    """Fit the models that explanations need to a table. A fit that was cut off goes on where it was."""
    if target is None and model is None:
        raise InputError("fit needs --target COLUMN, the label to learn, or --model module:attribute, a model of yours")
    from counterpath.explainer.explainer import Explainer
    from counterpath.fitting import persistence
    from counterpath.fitting.train import MISSING, MOST_ROWS
    from counterpath.search.methods import resolve_method
    from counterpath.utils.devices import resolve_device

    if class_weight is not None:
        choose("class weight", class_weight, {"balanced": None})
    choose("way to treat missing values", missing, dict.fromkeys(MISSING))
    widths = options.numbers("the widths of hidden layers", hidden)
    options.check_positive(latent_dim=latent_dim, epochs=epochs, hidden=min(widths))
    resolve_device(device)
    persistence.insist_replaceable(out)
    if not force and out.is_dir() and any(out.iterdir()):
        raise InputError(
            f"--out {out} holds a model already, which would be lost; add --force to replace it, or give another --out"
        )
    resolve_method(method)
    explainer = Explainer(
        method=method,
        latent_dim=latent_dim or "auto",
        hidden=tuple(widths),
        epochs=epochs or "auto",
        class_weight=class_weight,
        threshold=options.threshold(threshold),
        missing=missing,
        task=task,
        seed=seed,
        device=device,
    )
    changes, user_model = options.overrides(overrides), options.user_model(model)
    table = options.table(data, drop, most=MOST_ROWS, seed=seed)
    if len(table) >= MOST_ROWS:
        say(f"a table of {MOST_ROWS:,} rows or more: the models are fitted to so many of them, drawn at random")
    known, count, tables = infer_schema(table, target, changes, immutable, schema), len(table), [table]
    del table
    if family and user_model is not None:
        raise InputError(
            "--family trains models like our own classifier, and --model is one of yours: say in Python how that is "
            "trained, explainer.fit_family(retrain=…)"
        )
    more = {"family": True} if family else {}
    fit_resumably(explainer, tables, target, schema=known, model=user_model, folder=out.resolve(), **more)
    _show_summary(explainer, count, out)


def fit_resumably(
    explainer: "Explainer",
    tables: list["pd.DataFrame"],
    target: str | None,
    *,
    schema: "Schema",
    model: Any = None,
    folder: Path,
    family: bool = False,
) -> None:
    """Fit and save; checkpoints are kept beside the model directory until it is written.

    Args:
        explainer: What to fit.
        tables: The training rows, alone in a list from which they are taken, so that nobody holds them in training.
        target: The column of the label.
        schema: What the columns are.
        model: The user's model, if it is one.
        folder: The model directory.
        family: Whether to train the models that may follow, too.
    """
    training = folder.with_name(f".{folder.name}-training")
    left = any(not path.name.startswith(".") for path in _checkpoints(training))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpathWarning)  # the summary has all findings
        if left:
            say("a fit that was cut off left checkpoints: going on from there")
            try:
                explainer.fit(tables[0], target, schema=schema, model=model, checkpoint=training, family=family)
            except CheckpointError:
                say("they belong to another fit, or are damaged: starting over")
                _clear(training)
                left = False
        if not left:
            explainer.fit(tables.pop(), target, schema=schema, model=model, checkpoint=training, family=family)
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


def _show_summary(explainer: "Explainer", count: int, out: Path) -> None:
    diagnostics, immutable = explainer.diagnostics(), explainer.schema_.immutable
    show(f"{count:,} rows, {len(explainer.schema_)} features, immutable: {', '.join(immutable) or 'none'}")
    classes = (
        f", classes: {', '.join(map(str, explainer.classes_))}" if explainer.classes_ else ", which predicts numbers"
    )
    show(f"model: {explainer.models_.explained.name}{classes}")
    show(f"the models that explanations rest on are {diagnostics.verdict} here")
    for finding in diagnostics.findings:
        advice = finding.advice.replace("latent_dim=", "--latent-dim").replace("epochs=", "--epochs")
        show(f"  {finding.level}: {finding.text} Try {advice}")
    show(f"wrote {out}")

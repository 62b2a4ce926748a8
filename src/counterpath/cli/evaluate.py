"""`counterpath evaluate`."""

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn.metrics import balanced_accuracy_score

from counterpath.cli import options, output
from counterpath.cli.output import readable, say, show, show_table
from counterpath.explainer.compare import COMPARED, Comparison, check_methods, compare
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation.io import FORMAT
from counterpath.explanation.summary import both_tables
from counterpath.explanation.tables import FILE
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import InputError, choose
from counterpath.utils.files import write_json

_SHORT = {"flip ratio": "flip", "violation": "viol.", "confidence": "conf.", "seconds": "sec."}  # for 80 columns

_LEGEND = (
    "n: rows. flip: share of the rows for which there is a counterfactual. local: the same, without those that were\n"
    "led to a landmark because the search had got stuck. gaps: share of the rows whose counterfactual is reached\n"
    "only across a gap in the data. The rest are means over n rows: l0 (features changed), l1, l2_sq, ld_sq (squared\n"
    "distance to the nearest training row), copy (equal to a training row), ynn (share of the nearest training rows\n"
    "with the same decision), conf. (probability of the wanted class), steps, viol. (how many immutable features\n"
    "changed; immutable here: {}). sec.: for all rows."
)


def evaluate(
    model_folder: options.ModelFolder,
    file: Annotated[str, typer.Argument(help="A table with labels; - is CSV on standard input.")],
    target_class: options.Target = OTHER,
    confidence: options.Confidence = 0.5,
    rows: Annotated[int, typer.Option(help="The most rows to explain, chosen at random.")] = 500,
    methods: Annotated[str, typer.Option(help="What to compare, separated by commas.")] = ",".join(COMPARED),
    drop: options.Columns = "",
    model: options.Own = None,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Where to write the numbers as .json, or a report as .html.")] = None,
    by: output.By = "",
    pages: output.Pages = None,
) -> None:
    """Measure the model on labelled rows, and compare methods on those that it rejects, and rightly so."""
    options.confidence(confidence)
    options.positive("--rows", rows)
    chosen = check_methods(options.names(methods))
    resolve_device(device)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file, for instance {out / 'results.json'}")
    wish = output.Wish.of(out, by, pages)
    explainer = Explainer.load(model_folder, model=options.model(model), device=device)
    wanted = options.target_class(target_class, explainer.classes_, OTHER)
    given = options.table(file, drop)
    refuse_explanations(given, file, explainer.target_)
    table = legible(explainer, given)
    labels, predicted = labels_of(explainer, table), explainer.predict(table)
    accuracy = float((labels == predicted.to_numpy()).mean())
    balanced = float(balanced_accuracy_score(labels.astype(str), predicted.astype(str)))
    show(f"{len(table):,} rows: accuracy {accuracy:.3f}, balanced accuracy {balanced:.3f}")
    show(str(explainer.diagnostics()))
    rejected = table[rejections(labels, predicted.to_numpy(), wanted)]
    people = rejected.sample(min(rows, len(rejected)), random_state=explainer.seed).sort_index()
    if people.empty:
        raise InputError(
            "the model is right about none of the rows that could be explained: there is nothing to compare"
        )
    comparison = compare(explainer, people, wanted, methods=chosen, confidence=confidence)
    kind = "rightly classified" if wanted == OTHER else f"rightly not classified as {wanted}"
    show(f"\nCompared on {len(people):,} of {len(rejected):,} rows that are {kind}, at confidence {confidence:g}:\n")
    show_comparison(comparison)
    if out is not None and wish.is_report:
        # The method of the model is what it was fitted for; where it was not compared, the first one that was.
        name = explainer.method if explainer.method in comparison.results else chosen[0]
        wish.write(comparison.results[name], out, comparison.results, output.about(model_folder, file))
        say(f"wrote {out}")
    elif out is not None:
        summary = {
            "rows": len(table),
            "accuracy": accuracy,
            "balanced_accuracy": balanced,
            "target_class": wanted,
            "confidence": confidence,
            "explained": len(people),
            "explainable": len(rejected),
            "diagnostics": explainer.diagnostics().to_json() | {"verdict": explainer.diagnostics().verdict},
            "own": _plain(comparison.table()),
            "common": _plain(comparison.table(common=True)),
        }
        write_json(out, summary)
        say(f"wrote {out}")


def refuse_explanations(table: pd.DataFrame, file: str, target: str | None) -> None:
    """Raise an error if this is what `explain` wrote, with one plan a row or several: it has no labels to go by."""
    told = set(FILE) <= set(table.columns) or FORMAT in table.get("format", pd.Series()).tolist()
    if told and target not in table.columns:
        raise InputError(
            f"{file} is what explain wrote, and has no labels; expected rows with their labels, like the training "
            "table. An explanation sums itself up in Python: Explanation.from_json(FILE).summary()"
        )


def show_comparison(comparison: Comparison) -> None:
    """Print both tables of a comparison, and what their columns are."""
    for title, table in comparison_tables(comparison).items():
        show_table(title, table.rename(columns=_SHORT).to_dict("records"))
    frozen = next(iter(comparison.results.values())).schema.immutable
    show(_LEGEND.format(", ".join(frozen) or "none"))


def comparison_tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """The tables of a comparison as people read them, by their titles."""
    return {title: readable(table) for title, table in both_tables(comparison.results, comparison.seconds).items()}


def legible(explainer: Explainer, table: pd.DataFrame) -> pd.DataFrame:
    """The rows without a category that was never seen in training; says how many there are."""
    features = table.drop(columns=explainer.target_) if explainer.target_ in table.columns else table
    filled = features if explainer.imputer_ is None else explainer.imputer_.fill(features)[0]
    known = explainer.models_.encoder.known(filled).to_numpy()
    if not known.all():
        say(f"{int((~known).sum())} of {len(known)} rows are left out: they have a category never seen in training")
    return table[known]


def labels_of(explainer: Explainer, table: pd.DataFrame) -> np.ndarray:
    """The label of every row, as the class that it is to the model."""
    if explainer.target_ is None:
        raise InputError("the model does not know which column is the label: fit it with --target COLUMN")
    column = choose("label column", explainer.target_, {str(name): table[name] for name in table.columns})
    classes = {str(label): label for label in explainer.classes_}
    given = column.tolist()
    strange = [value for value in given if value not in explainer.classes_ and str(value) not in classes]
    if strange:
        raise InputError(
            f"column {explainer.target_!r} has the label {strange[0]!r}; the model's classes are: {', '.join(classes)}"
        )
    by_value = {label: label for label in explainer.classes_}
    labels = np.empty(len(given), dtype=object)
    labels[:] = [by_value[value] if value in by_value else classes[str(value)] for value in given]
    return labels


def rejections(labels: np.ndarray, predicted: np.ndarray, wanted: Any) -> np.ndarray:
    """Which rows the model rightly denies the wanted class; for any other class, those about which it is right."""
    if isinstance(wanted, str) and wanted == OTHER:
        return np.asarray(labels == predicted, dtype=bool)
    return np.asarray((labels != wanted) & (predicted != wanted), dtype=bool)


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON has it, which knows no NaN."""
    records = table.reset_index().to_dict("records")
    return [
        {
            str(key): None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        for row in records
    ]

"""`counterpath evaluate`."""

import math
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from counterpath.cli import options, output
from counterpath.cli.output import format_table, say, show, show_table
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from counterpath.explainer.compare import Comparison
    from counterpath.explainer.explainer import Explainer

_SHORT = {"flip ratio": "flip", "violation": "viol.", "confidence": "conf.", "seconds": "sec."}  # for 80 columns

_LEGEND = (
    "n: rows. flip: share of the rows for which there is a counterfactual. local: the same, without those that the\n"
    "fallback found because the search had got stuck. gaps: share of the rows whose counterfactual is reached only\n"
    "across a gap in the data. The rest are means over n rows: l0 (features changed), l1, l2_sq, ld_sq (squared\n"
    "distance to the nearest training row), copy (equal to a training row), ynn (share of the nearest training rows\n"
    "with the same decision), conf. (probability of the target class), steps, viol. (how many immutable features\n"
    "changed; immutable here: {}). sec.: for all rows. l1, l2 and ld are between encoded rows: 1 is the whole range\n"
    "of a feature, or another category{}."
)


@options.expand()
def evaluate(
    model_folder: options.ModelFolder,
    file: Annotated[str, typer.Argument(help="A table with labels; - is CSV on standard input.")],
    target_class: options.TargetClass = None,
    confidence: Annotated[
        float | None, typer.Option(help=options.CONFIDENCE, show_default=options.OWN_DECISION)
    ] = None,
    rows: Annotated[int, typer.Option(help="The most rows to explain, chosen at random.")] = 500,
    methods: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "sgd,rsgd,rsgd-c,geodesic,face,nearest",
    drop: options.Columns = "",
    model: options.UserModel = None,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Where to write the numbers as .json, or a report as .html.")] = None,
    *,
    report: output.ReportOptions,
) -> None:
    """Measure the model on labelled rows, and compare methods. They explain rows that it rejects, and rightly so."""
    from sklearn.metrics import balanced_accuracy_score

    from counterpath.explainer.compare import check_methods, compare
    from counterpath.explainer.explainer import Explainer
    from counterpath.explainer.request import OTHER, Request
    from counterpath.utils.devices import resolve_device
    from counterpath.utils.files import write_json

    Request(confidence=confidence)  # raises an error if there is no such confidence
    options.check_positive(rows=rows)
    compared = check_methods(options.names(methods))
    resolve_device(device)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file, for instance {out / 'results.json'}")
    is_report = report.is_written(out)
    explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
    target = options.class_named(target_class, explainer.classes_)
    table = options.table(file, drop)
    check_labelled(table, file, explainer.target_)
    table = without_unknown_categories(explainer, table)
    labels, predicted = labels_of(explainer, table), explainer.predict(table)
    accuracy = float((labels == predicted.to_numpy()).mean())
    balanced = float(balanced_accuracy_score(labels.astype(str), predicted.astype(str)))
    show(f"{len(table):,} rows: accuracy {accuracy:.3f}, balanced accuracy {balanced:.3f}")
    show(str(explainer.diagnostics()))
    rejected = table[rejected_rows(labels, predicted.to_numpy(), target)]
    explained = rejected.sample(min(rows, len(rejected)), random_state=explainer.seed).sort_index()
    if explained.empty:
        raise InputError(
            "the model is right about none of the rows that could be explained: there is nothing to compare"
        )
    comparison = compare(explainer, explained, target, methods=compared, confidence=confidence)
    kind = "rightly classified" if target == OTHER else f"rightly not classified as {target}"
    level = "as the model decides" if confidence is None else f"at confidence {confidence:g}"
    show(f"\nCompared on {len(explained):,} of {len(rejected):,} rows that are {kind}, {level}:\n")
    show_comparison(comparison)
    if out is not None and is_report:
        # The method of the model is what it was fitted for; where it was not compared, the first one that was.
        name = explainer.method if explainer.method in comparison.results else compared[0]
        report.write(comparison.results[name], out, comparison.results, model_folder, file)
    elif out is not None:
        summary = {
            "rows": len(table),
            "accuracy": accuracy,
            "balanced_accuracy": balanced,
            "target_class": target,
            "confidence": confidence,
            "explained": len(explained),
            "explainable": len(rejected),
            "diagnostics": explainer.diagnostics().to_json() | {"verdict": explainer.diagnostics().verdict},
            "own": _records(comparison.table()),
            "common": _records(comparison.table(common=True)),
        }
        write_json(out, summary)
        say(f"wrote {out}")


def check_labelled(table: "pd.DataFrame", file: str, target: str | None) -> None:
    """Raise an error if this is what `explain` wrote, with one plan a row or several: it has no labels."""
    from counterpath.explanation.io import FORMAT
    from counterpath.explanation.tables import FILE

    is_explanation = set(FILE) <= set(table.columns) or ("format" in table and FORMAT in table["format"].tolist())
    if is_explanation and target not in table.columns:
        raise InputError(
            f"{file} is what explain wrote, and has no labels; expected rows with their labels, like the training "
            "table. An explanation sums itself up in Python: Explanation.from_json(FILE).summary()"
        )


def show_comparison(comparison: "Comparison") -> None:
    """Print both tables of a comparison, and what their columns are."""
    from counterpath.explanation import wording
    from counterpath.explanation.summary import both_tables

    for title, table in both_tables(comparison.results, comparison.seconds).items():
        show_table(title, format_table(table).rename(columns=_SHORT).to_dict("records"))
    schema = next(iter(comparison.results.values())).schema
    immutable = ", ".join(schema[name].title for name in schema.immutable) or "none"
    scaled = wording.scales(schema)
    show(_LEGEND.format(immutable, f"; {scaled}" if scaled else ""))


def without_unknown_categories(explainer: "Explainer", table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows whose categories were all seen in training; says how many are left out."""
    features = table.drop(columns=explainer.target_) if explainer.target_ in table.columns else table
    filled = features if explainer.imputer_ is None else explainer.imputer_.fill(features)[0]
    known = explainer.models_.encoder.known(filled).to_numpy()
    if not known.all():
        say(f"{int((~known).sum())} of {len(known)} rows are left out: they have a category never seen in training")
    return table[known]


def labels_of(explainer: "Explainer", table: "pd.DataFrame") -> "np.ndarray":
    """The label of every row, as the class that it is to the model."""
    import numpy as np

    if explainer.target_ is None:
        raise InputError("the model does not know which column is the label: fit it with --target COLUMN")
    column = choose("label column", explainer.target_, {str(name): table[name] for name in table.columns})
    classes, by_text = explainer.classes_, {str(label): label for label in explainer.classes_}
    values = column.tolist()
    unknown = [value for value in values if value not in classes and str(value) not in by_text]
    if unknown:
        raise InputError(
            f"column {explainer.target_!r} has the label {unknown[0]!r}; the model's classes are: {', '.join(by_text)}"
        )
    labels = np.empty(len(values), dtype=object)
    labels[:] = [classes[classes.index(value)] if value in classes else by_text[str(value)] for value in values]
    return labels


def rejected_rows(labels: "np.ndarray", predicted: "np.ndarray", target: Any) -> "np.ndarray":
    """Which rows the model rightly denies the target class; for any other class, those about which it is right."""
    from counterpath.explainer.request import OTHER

    is_other = isinstance(target, str) and target == OTHER
    rejected = labels == predicted if is_other else (labels != target) & (predicted != target)
    return cast("np.ndarray", rejected.astype(bool))


def _records(table: "pd.DataFrame") -> list[dict[Hashable, Any]]:
    """The rows of a table for JSON, which has neither NaN nor infinity."""
    values = table.reset_index().replace([math.inf, -math.inf], math.nan).astype(object)
    return values.where(values.notna(), None).to_dict("records")

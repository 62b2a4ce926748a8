"""Is the generative model good enough here? Measured on held-out rows, with a verdict in words and what to try."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from counterpath.data.schema import KINDS
from counterpath.data.tables import to_numbers
from counterpath.fitting.fitted import FittedModels
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.latent import context_for
from counterpath.models.surrogate import Agreement
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import GeometryError

GOOD, FAIR, BAD = "good", "fair", "bad"


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: how bad, what it is, and what to try."""

    level: str
    text: str
    advice: str


@dataclass(frozen=True)
class Diagnostics:
    """How good the models are that explanations rest on.

    Attributes:
        reconstruction: One row a feature: how much of it the generative model keeps (for numbers the share of their
            variance, for categories the share of rows that keep theirs), the same for always guessing the mean or the
            most frequent category, and the mean absolute error in the feature's units.
        calibration: The uncertainty on the data and off them; None where it cannot be measured.
        agreement: Of the surrogate with the model under explanation; None where there is no surrogate.
        coverage: The share of training rows that the model puts into each class.
        rows: How many held-out rows were measured.
        held_out: Whether they were held out; small tables are measured on their training rows.
        accuracy: Balanced accuracy of the model under explanation on them; None where no labels were given.
    """

    reconstruction: pd.DataFrame
    calibration: Calibration | None
    agreement: Agreement | None
    coverage: pd.DataFrame
    rows: int
    held_out: bool
    accuracy: float | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is not as it should be, worst first."""
        parts = (self._accuracy, self._reconstruction, self._calibration, self._agreement, self._coverage)
        found = [finding for part in parts for finding in part()]
        return tuple(sorted(found, key=lambda finding: finding.level != BAD))

    @property
    def verdict(self) -> str:
        """The level of the worst finding: good, fair or bad."""
        levels = {finding.level for finding in self.findings}
        return BAD if BAD in levels else FAIR if FAIR in levels else GOOD

    @property
    def alarm(self) -> str:
        """The worst finding and what to try, in words; empty if nothing is bad."""
        worst = self.findings[0] if self.verdict == BAD else None
        return "" if worst is None else f"{worst.text} Try {worst.advice}"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        where = "held-out rows" if self.held_out else "training rows, because the table is small"
        yield f"The models that explanations rest on are {self.verdict} here (measured on {self.rows} {where})."
        for finding in self.findings:
            yield f"  {finding.level}: {finding.text} Try: {finding.advice}"
        if self.calibration is not None:
            c = self.calibration
            yield (
                f"Uncertainty: {c.sigma_on:.3g} on the data, {c.sigma_off:.3g} off them (AUC {c.auc:.3f}); "
                f"{100 * c.sigma_share:.0f} % of the metric."
            )
        if self.agreement is not None:
            a = self.agreement
            yield (
                f"Surrogate: predicts as the model does on {100 * a.held_out:.1f} % of the rows, "
                f"{100 * a.drawn:.1f} % of drawn rows and {100 * a.visited:.1f} % of the rows that searches visit."
            )
        if self.accuracy is not None:
            yield f"Model: balanced accuracy {self.accuracy:.3f} on the labels of these rows."
        classes = ", ".join(f"{row['class']}: {100 * row['share']:.1f} %" for _, row in self.coverage.iterrows())
        yield f"Decisions of the model on the training rows: {classes}."
        yield "Reconstruction:"
        yield self.reconstruction.to_string(index=False, float_format=lambda value: f"{value:.3g}")

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back."""
        return {
            "reconstruction": self.reconstruction.to_dict("list"),
            "calibration": self.calibration and asdict(self.calibration),
            "agreement": self.agreement and asdict(self.agreement),
            "coverage": self.coverage.to_dict("list"),
            "rows": self.rows,
            "held_out": self.held_out,
            "accuracy": self.accuracy,
        }

    def summary(self) -> dict[str, Any]:
        """The same with what is not as it should be, and the verdict: what an explanation keeps of it."""
        findings = [asdict(finding) for finding in self.findings]
        return self.to_json() | {"verdict": self.verdict, "findings": findings}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Diagnostics":
        """Build diagnostics from the value of `to_json`."""
        return cls(
            pd.DataFrame(value["reconstruction"]),
            value["calibration"] and Calibration(**value["calibration"]),
            value["agreement"] and Agreement(**value["agreement"]),
            pd.DataFrame(value["coverage"]),
            value["rows"],
            value["held_out"],
            value["accuracy"],
        )

    def _accuracy(self) -> Iterator[Finding]:
        chance = 1 / len(self.coverage)
        if self.accuracy is not None and self.accuracy < chance + 0.2 * (1 - chance):
            text = f"The model under explanation hardly knows the labels (balanced accuracy {self.accuracy:.2f})."
            yield Finding(FAIR, text, "class_weight='balanced', more rows, or a model of your own: model=….")

    def _reconstruction(self) -> Iterator[Finding]:
        room = (1 - self.reconstruction["guessing"]).clip(lower=1e-9)
        gained = (self.reconstruction["kept"] - self.reconstruction["guessing"]) / room
        varies = self.reconstruction["guessing"] < 1 - 1e-9
        lost = self.reconstruction.loc[varies & (gained < 0.5), "feature"].tolist()
        if lost:
            share = len(lost) / max(1, int(varies.sum()))
            yield Finding(
                BAD if share > 1 / 3 else FAIR,
                f"The generative model keeps less than half of: {', '.join(lost)}.",
                "a larger latent_dim=, more epochs=, or leave these features out if they are noise.",
            )

    def _calibration(self) -> Iterator[Finding]:
        advice = "more rows, more n_centers=, or another latent_dim=."
        if self.calibration is None:
            yield Finding(
                FAIR, "The calibration of the uncertainty cannot be measured: the codes fill their box.", advice
            )
            return
        if self.calibration.auc < 0.9:
            text = f"The uncertainty hardly tells data from empty space (AUC {self.calibration.auc:.2f})."
            yield Finding(BAD if self.calibration.auc < 0.75 else FAIR, text, advice)
        if not 0.02 <= self.calibration.sigma_share <= 0.9:
            share = f"{100 * self.calibration.sigma_share:.0f} %"
            text = f"The uncertainty makes up {share} of the metric: it hardly counts, or hardly anything else does."
            yield Finding(FAIR, text, "more epochs=, more rows, or another n_centers=.")

    def _agreement(self) -> Iterator[Finding]:
        if self.agreement is None:
            return
        for name, share in (("rows", self.agreement.held_out), ("rows that searches visit", self.agreement.visited)):
            if share < 0.9:
                text = f"The surrogate disagrees with the model on {100 * (1 - share):.0f} % of the {name}."
                advice = "more training rows, or a smoother model; counterfactuals are checked on the model itself."
                yield Finding(BAD if share < 0.75 else FAIR, text, advice)

    def _coverage(self) -> Iterator[Finding]:
        for _, row in self.coverage.iterrows():
            if row["share"] == 0:
                text = f"The model puts no training row into class {row['class']!r}."
                yield Finding(BAD, text, "class_weight='balanced', or another threshold: nobody shows what it takes.")
            elif row["share"] < 0.01:
                text = (
                    f"The model puts only {100 * row['share']:.2f} % of the training rows into class {row['class']!r}."
                )
                yield Finding(FAIR, text, "class_weight='balanced', or more rows of that class.")


def diagnose(models: FittedModels, *, labels: Tensor | None = None, seed: int = 0) -> Diagnostics:
    """Measure the models on held-out rows; on all rows where none were held out.

    Args:
        models: The models.
        labels: The class of every training row, by its place, if it is known.
        seed: Of the points off the data.
    """
    held_out = bool(models.held_out.any())
    test = models.rows[models.held_out] if held_out else models.rows
    train = models.rows[~models.held_out]
    space = models.latent
    with torch.no_grad():
        decoded = map_blocks(space.decode, map_blocks(space.encode, test), context_for(space, test))
        again = models.encoder.round(decoded)
    try:
        calibration = calibrate(space, train, test, seed=seed)
    except GeometryError:  # reported as a finding
        calibration = None
    decided = torch.bincount(models.probabilities.argmax(-1), minlength=len(models.explained.classes))
    coverage = pd.DataFrame(
        {
            "class": [str(label) for label in models.explained.classes],
            "share": (decided.double() / len(models.probabilities)).tolist(),
        }
    )
    return Diagnostics(
        _reconstruction(models, test, again),
        calibration,
        models.explained.agreement,
        coverage,
        len(test),
        held_out,
        None if labels is None else _balanced_accuracy(models, labels),
    )


def _balanced_accuracy(models: FittedModels, labels: Tensor) -> float:
    """The mean over the classes of the share of held-out rows that is predicted right."""
    measured = models.held_out if bool(models.held_out.any()) else ~models.held_out
    right = (models.probabilities.argmax(-1) == labels)[measured].double()
    labels = labels[measured]
    return float(torch.stack([right[labels == place].mean() for place in labels.unique()]).mean())


def _reconstruction(models: FittedModels, before: Tensor, after: Tensor) -> pd.DataFrame:
    first, second = (models.encoder.decode(rows) for rows in (before, after))
    lines = []
    for feature, columns in zip(models.encoder.schema, models.encoder.layout, strict=True):
        old, new = first[feature.name], second[feature.name]
        if KINDS[feature.kind].categories is None:
            value = feature.is_measured(old) & feature.is_measured(new)  # what are codes or gaps is not judged
            there = torch.from_numpy(value).to(before.device)
            old, new = old[value], new[value]
            x, y = before[there, columns.start].double(), after[there, columns.start].double()
            total = float((x - x.mean(0)).square().sum())
            kept = 1 - float((x - y).square().sum()) / total if total else 1.0
            off = pd.Series(to_numbers(old, feature) - to_numbers(new, feature)).abs().mean()
            guessing, error = (0.0 if total else 1.0), f"{off:.4g}"
        else:
            kept, guessing = float((old == new).mean()), float(old.value_counts(normalize=True).iloc[0])
            error = "–"
        lines.append(
            {"feature": feature.name, "kind": feature.kind, "kept": kept, "guessing": guessing, "mean error": error}
        )
    return pd.DataFrame(lines)

"""Are the models good enough here? Measured on held-out rows, with a verdict in words and what to try."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.data.schema import KINDS
from counterpath.data.tables import to_numbers
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.train import some
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.classifier import Thresholds, decide
from counterpath.models.latent import context_for
from counterpath.models.surrogate import Agreement
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import GeometryError

GOOD, FAIR, BAD = "good", "fair", "bad"
_FEW = 50  # rows: with fewer, a share of one half is known to no better than 14 %
_LEVEL = 0.975  # the upper end of a 95 % interval
_GRID = 2001  # candidates for an AUC: the ends of its interval are found to 0.0005


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: how bad, what it is, and what to try."""

    level: str
    text: str
    advice: str


@dataclass(frozen=True)
class Quality:
    """How well a model predicts the labels of rows, with 95 % intervals, beside guessing.

    Attributes:
        rows: How many rows.
        unseen: Whether nobody had seen them: they were held out from our own classifier. A user's model may have been
            trained on them, which we cannot know.
        accuracy: The share that is decided right, by the threshold of the model if it has one.
        majority: The same for always guessing the most frequent class of the training rows.
        auc: The probability that a row of a class has a higher probability of it than another row; over the classes
            the mean.
        auc_interval: From, to (Newcombe, "Confidence intervals for an effect size measure based on the Mann–Whitney
            statistic", Statistics in Medicine 2006, method 5); over the classes the mean, which is cautious.
        log_loss: −log of the probability of the label, on average.
        guessing: The same for always giving the shares of the classes among the training rows.
        gain_interval: By how much the log loss is below guessing, from, to (Student's t, row by row).
    """

    rows: int
    unseen: bool
    accuracy: float
    majority: float
    auc: float
    auc_interval: tuple[float, float]
    log_loss: float
    guessing: float
    gain_interval: tuple[float, float]

    @classmethod
    def of(
        cls,
        probabilities: Tensor,
        labels: Tensor,
        shares: Tensor,
        *,
        unseen: bool,
        thresholds: Thresholds | None = None,
    ) -> "Quality":
        """Measure probabilities of rows against their labels, where the classes had such shares in training."""
        from scipy.stats import t

        proba, y = probabilities.double().cpu().numpy(), labels.cpu().numpy()
        rows, guess = np.arange(len(y)), shares.double().cpu().numpy().clip(_SMALLEST)
        loss, guessing = -np.log(proba[rows, y].clip(_SMALLEST)), -np.log(guess[y])
        gain = guessing - loss
        spread = t.ppf(_LEVEL, len(y) - 1) * gain.std(ddof=1) / np.sqrt(len(y))
        present = [1] if proba.shape[1] == 2 else [index for index in range(proba.shape[1]) if (y == index).any()]
        aucs = np.array([_auc(proba[:, index], y == index) for index in present])
        auc, low, high = aucs.mean(0).tolist()
        return cls(
            len(y),
            unseen,
            float((decide(probabilities, thresholds).cpu().numpy() == y).mean()),
            float((y == guess.argmax()).mean()),
            auc,
            (low, high),
            float(loss.mean()),
            float(guessing.mean()),
            (float(gain.mean() - spread), float(gain.mean() + spread)),
        )

    @property
    def beats_guessing(self) -> bool:
        """Whether the rows show that it tells the classes apart, and nothing that its probabilities are worse."""
        return self.auc_interval[0] > 0.5 and self.gain_interval[1] > 0

    def __str__(self) -> str:
        low, high = self.auc_interval
        return (
            f"{100 * self.accuracy:.1f} % of the labels of {self.rows} rows (always guessing the most frequent class: "
            f"{100 * self.majority:.1f} %), AUC {self.auc:.2f} (95 % interval {low:.2f} to {high:.2f}), log loss "
            f"{self.log_loss:.3f} (guessing: {self.guessing:.3f})"
        )


_SMALLEST = 1e-12  # of a probability before its logarithm: a model that is wrong and sure of it loses 28, not all


def _auc(score: np.ndarray, positive: np.ndarray) -> tuple[float, float, float]:
    """The area under the ROC curve with its interval; from 0 to 1 where one of both classes is not there."""
    from scipy.stats import norm, rankdata

    m, n = int(positive.sum()), int((~positive).sum())
    if m == 0 or n == 0:
        return 0.5, 0.0, 1.0
    area = (rankdata(score)[positive].sum() - m * (m + 1) / 2) / (m * n)
    a = np.linspace(0, 1, _GRID)
    mean = (m + n) / 2 - 1
    variance = a * (1 - a) * (1 + mean * (1 - a) / (2 - a) + mean * a / (1 + a)) / (m * n)
    within = a[np.abs(a - area) <= norm.ppf(_LEVEL) * np.sqrt(variance) + 1 / _GRID]
    return float(area), float(within.min()), float(within.max())


@dataclass(frozen=True)
class Fit:
    """How well a regressor predicts the numbers of rows.

    Attributes:
        rows: How many rows.
        unseen: Whether nobody had seen them, as of `Quality`.
        r2: R², the share of the variance that it explains; 0 for always guessing the mean.
        error: The mean absolute error.
        guessing: The same for always guessing the mean of the training rows.
    """

    rows: int
    unseen: bool
    r2: float
    error: float
    guessing: float

    def __str__(self) -> str:
        return (
            f"R² {self.r2:.3f} on {self.rows} rows, mean absolute error {self.error:.4g} (always guessing the mean: "
            f"{self.guessing:.4g})"
        )


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
        accuracy: Balanced accuracy of the model under explanation on them; None where no labels were given, or where it
            is our own and none were held out.
        quality: How well it predicts them, under the same conditions.
        fit: The same of a regressor, which has neither of these.
    """

    reconstruction: pd.DataFrame
    calibration: Calibration | None
    agreement: Agreement | None
    coverage: pd.DataFrame
    rows: int
    held_out: bool
    accuracy: float | None = None
    quality: Quality | None = None
    fit: Fit | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is not as it should be, worst first."""
        parts = (
            self._held_out,
            self._accuracy,
            self._reconstruction,
            self._calibration,
            self._agreement,
            self._coverage,
        )
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
            known = self.quality is not None and not self.quality.unseen
            seen = " The model may have been trained on these rows." if known else ""
            told = "" if self.quality is None else f" It predicts {self.quality}."
            yield f"Model: balanced accuracy {self.accuracy:.3f} on the labels of these rows.{told}{seen}"
        if self.fit is not None:
            seen = "" if self.fit.unseen else " The model may have been trained on these rows."
            yield f"Model: {self.fit}.{seen}"
        classes = ", ".join(f"{row['class']}: {100 * row['share']:.1f} %" for _, row in self.coverage.iterrows())
        if classes:
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
            "quality": self.quality and asdict(self.quality),
            "fit": self.fit and asdict(self.fit),
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
            _quality(value.get("quality")),
            value.get("fit") and Fit(**value["fit"]),
        )

    def _held_out(self) -> Iterator[Finding]:
        advice = "more rows: what is measured here says little about others."
        if not self.held_out:
            text = "The table is too small to keep rows aside: there are none that no model saw to judge the models by."
            yield Finding(FAIR, text, advice)
        elif self.rows < _FEW:
            yield Finding(FAIR, f"Only {self.rows} rows were kept aside to judge the models by.", advice)

    def _accuracy(self) -> Iterator[Finding]:
        if self.fit is not None and self.fit.r2 <= 0:
            text = f"Nothing shows that the model under explanation predicts better than the mean: {self.fit}."
            yield Finding(BAD if self.fit.unseen else FAIR, text, "more rows, or a model of your own: model=….")
        chance, quality = 1 / max(len(self.coverage), 1), self.quality
        advice = "class_weight='balanced', more rows, or a model of your own: model=…."
        if quality is not None and not quality.beats_guessing:
            worse = quality.rows >= _FEW or quality.gain_interval[1] <= 0 or quality.auc_interval[1] <= 0.5
            text = f"Nothing shows that the model under explanation predicts better than guessing: {quality}."
            if not quality.unseen:  # ours is to be trusted or not, theirs is what they want explained
                worse, advice = False, "to see whether the model has the classes in the order of the labels."
            yield Finding(BAD if worse else FAIR, text, advice)
        elif self.accuracy is not None and self.accuracy < chance + 0.2 * (1 - chance):
            text = f"The model under explanation hardly knows the labels (balanced accuracy {self.accuracy:.2f})."
            yield Finding(FAIR, text, advice)

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
        share = self.calibration.sigma_share
        if not 0.02 <= share <= 0.9:
            counts = "it hardly counts" if share < 0.5 else "hardly anything else counts"
            text = f"The uncertainty makes up {100 * share:.0f} % of the metric: {counts}."
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


def diagnose(
    models: FittedModels, *, labels: Tensor | None = None, thresholds: Thresholds | None = None, seed: int = 0
) -> Diagnostics:
    """Measure the models on held-out rows; on all rows where none were held out.

    Args:
        models: The models.
        labels: The class of every training row, by its place, if it is known.
        thresholds: How the explained model decides.
        seed: Of the points off the data.
    """
    held_out = bool(models.held_out.any())
    test = models.rows[models.held_out] if held_out else models.rows
    train = models.rows[some((~models.held_out).nonzero()[:, 0])]
    space = models.latent
    with torch.no_grad():
        decoded = map_blocks(space.decode, map_blocks(space.encode, test), context_for(space, test))
        again = models.encoder.round(decoded)
    try:
        calibration = calibrate(space, train, test, seed=seed)
    except GeometryError:  # reported as a finding
        calibration = None
    count = len(models.explained.classes)
    decided = torch.bincount(decide(models.probabilities, thresholds), minlength=count)[:count]
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
        *((None, None) if models.explained.numbers else _predicted(models, labels, thresholds)),
        _fit(models, labels) if models.explained.numbers else None,
    )


def _fit(models: FittedModels, labels: Tensor | None) -> Fit | None:
    """As `_predicted`, of a regressor."""
    own, held_out = models.explained.kind == "own", bool(models.held_out.any())
    if labels is None or (own and not held_out):
        return None
    measured = models.held_out if held_out else ~models.held_out
    truth, trained = labels[measured].double(), labels[~models.held_out].double()
    off, apart = models.probabilities[measured, 0].double() - truth, truth - truth.mean()
    r2 = 1 - float(off.square().sum() / apart.square().sum().clamp_min(torch.finfo(torch.float64).tiny))
    guessing = float((truth - trained.mean()).abs().mean())
    return Fit(len(truth), own, r2, float(off.abs().mean()), guessing)


def _predicted(
    models: FittedModels, labels: Tensor | None, thresholds: Thresholds | None
) -> tuple[float | None, Quality | None]:
    """Balanced accuracy and quality on rows that were held out; on all rows for a user's model if none were.

    Nothing where there are no labels, or where our own classifier was trained on all of them.
    """
    own, held_out = models.explained.kind == "own", bool(models.held_out.any())
    if labels is None or (own and not held_out):
        return None, None
    measured = models.held_out if held_out else ~models.held_out
    counts = torch.bincount(labels[~models.held_out], minlength=len(models.explained.classes))
    probabilities, truth = models.probabilities[measured], labels[measured]
    quality = Quality.of(probabilities, truth, counts / counts.sum(), unseen=own, thresholds=thresholds)
    return _balanced_accuracy(decide(probabilities, thresholds), truth), quality


def _quality(value: Mapping[str, Any] | None) -> Quality | None:
    if value is None:
        return None
    intervals = {name: tuple(value[name]) for name in ("auc_interval", "gain_interval")}
    return Quality(**{**value, **intervals})


def _balanced_accuracy(decided: Tensor, labels: Tensor) -> float:
    """The mean over the classes of the share of rows that is decided right."""
    right = (decided == labels).double()
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
            same = (old == new).fillna(False).astype(bool) | (old.isna() & new.isna())  # a gap is a value
            kept, guessing = float(same.mean()), float(old.value_counts(normalize=True, dropna=False).iloc[0])
            error = "–"
        lines.append(
            {"feature": feature.name, "kind": feature.kind, "kept": kept, "guessing": guessing, "mean error": error}
        )
    return pd.DataFrame(lines)

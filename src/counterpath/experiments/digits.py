"""Higher dimensions: scikit-learn's digits, 64 pixels and ten classes, from one digit to another.

Question: do paths through the latent space still end at what they claim to, when there are 64 features, and how does
that depend on the width of the latent space and on how the decoder's uncertainty is estimated? The explained model is
our classifier; whether an answer *is* the wanted digit is judged by a forest that had no part in finding it.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.schema import Feature, Schema
from counterpath.experiments.figures_digits import SIDE, draw_digits
from counterpath.experiments.stability import coefficient_of_variation, geodesic_distances
from counterpath.explainer.explainer import Explainer
from counterpath.geometry.graph import Neighbours
from counterpath.models.layers import fold
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_vae
from counterpath.utils.errors import choose
from counterpath.utils.files import write_json, write_text

LARGEST = 16
"""The brightest pixel of these images, which are counts of ink in squares of 4 × 4 dots."""
CONFIDENCE = 0.9
"""What the classifier has to say about an answer: at less, half-finished digits would do."""
PLAUSIBILITY = 0.25
"""As near to the training images as this share of held-out ones. Answers lie at the bound, so that they are then about
as far away as test images are in the mean; chosen on seeds 100 and 101, from 0.25, 0.5 and 0.95."""
PAIRS = ((3, 8), (8, 3), (4, 9), (9, 4), (1, 7), (7, 1), (5, 6), (6, 5), (0, 6), (2, 3))
"""From one digit to another: pairs that differ by a stroke, either way, and two that differ by more."""
METHODS = ("sgd", "rsgd", "rsgd-c", "geodesic", "nearest")
_OUTLIER_NEIGHBOURS = 20  # of the local outlier factor: scikit-learn's
_TREES = 300  # of the forest that judges: its error on test rows is then as low as it gets


@dataclass(frozen=True)
class Preset:
    """How large the experiment is.

    Attributes:
        latent_dims: Widths of the latent space.
        uncertainties: How σ is estimated, at the width `compared`.
        compared: The width at which estimates are compared.
        pairs: How many of `PAIRS`.
        rows: Images of each pair.
        retrainings: How often the VAE is trained anew for the stability of distances.
        epochs: Of these VAEs.
    """

    latent_dims: tuple[int, ...]
    uncertainties: tuple[str, ...]
    compared: int
    pairs: int
    rows: int
    retrainings: int
    epochs: int


PRESETS = {
    "quick": Preset((2, 8), ("rbf",), 8, 3, 6, 3, 30),
    "paper": Preset((2, 4, 8, 16), ("rbf", "ensemble", "laplace"), 8, len(PAIRS), 15, 10, 100),
}
"""`quick` takes minutes on two cores."""


@dataclass(frozen=True)
class Digits:
    """Images as tables, split in two: three of four to fit to, the rest to explain.

    Attributes:
        train: Images with their digit, one column a pixel.
        test: The others.
    """

    train: pd.DataFrame
    test: pd.DataFrame

    @classmethod
    def load(cls, seed: int) -> "Digits":
        """Read the images, and split them by the seed."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images = load_digits()
        frame = pd.DataFrame(images.data, columns=list(pixels())).assign(digit=images.target)
        train, test = train_test_split(frame, test_size=0.25, random_state=seed, stratify=frame["digit"])
        return cls(train.reset_index(drop=True), test.reset_index(drop=True))


def pixels() -> tuple[str, ...]:
    """The names of the pixels, row by row."""
    return tuple(f"r{row}c{column}" for row in range(SIDE) for column in range(SIDE))


def schema() -> Schema:
    """Every pixel is a number between 0 and 16."""
    return Schema(tuple(Feature(name, "continuous", lower=0, upper=LARGEST) for name in pixels()))


def scaled(frame: pd.DataFrame) -> Float[Tensor, "n D"]:
    """Images with pixels in [0, 1]."""
    return torch.from_numpy(frame[list(pixels())].to_numpy(np.float32) / LARGEST)


@dataclass(frozen=True)
class Judges:
    """Who has no part in the search: a forest, the local outlier factor, and the distance to training images."""

    forest: Any
    outliers: Any
    neighbours: Neighbours

    @classmethod
    def fit(cls, train: pd.DataFrame, seed: int) -> "Judges":
        """Fit all to the training images."""
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.neighbors import LocalOutlierFactor

        x = scaled(train)
        forest = RandomForestClassifier(_TREES, random_state=seed).fit(x.numpy(), train["digit"])
        outliers = LocalOutlierFactor(_OUTLIER_NEIGHBOURS, novelty=True).fit(x.numpy())
        return cls(forest, outliers, Neighbours(x))

    def measure(self, images: pd.DataFrame, digits: Sequence[int]) -> dict[str, float]:
        """How often the forest sees the digits, distance to the nearest training image, and the outlier factor."""
        x = scaled(images)
        distance = self.neighbours.nearest(x)[0]
        return {
            "judged": float(np.mean(self.forest.predict(x.numpy()) == np.asarray(digits))),
            "ld": float(distance.mean()),
            "ld_sq": float(distance.square().mean()),
            "lof": float(-self.outliers.score_samples(x.numpy()).mean()),
        }


def reproduce(
    *,
    preset: str = "quick",
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    out: Path,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run the experiment for every seed and write results, a table and the figures to `out`."""
    size = choose("preset", preset, PRESETS)
    table: list[dict[str, Any]] = []
    fits: list[dict[str, Any]] = []
    references = []
    for seed in seeds:
        digits = Digits.load(seed)
        judges = Judges.fit(digits.train, seed)
        references.append(judges.measure(digits.test, digits.test["digit"].tolist()))
        for width, kind in _settings(size):
            explainer, seconds = _fit(digits, width, kind, seed, device, progress)
            calibration = explainer.diagnostics_.calibration
            share = {} if calibration is None else {"auc": calibration.auc, "sigma_share": calibration.sigma_share}
            fits.append({"seed": seed, "latent_dim": width, "uncertainty": kind, "seconds_fit": seconds, **share})
            rows, paths = explain(explainer, digits, judges, size)
            table += [{"seed": seed, "latent_dim": width, "uncertainty": kind, **row} for row in rows]
            if seed == seeds[0] and (width, kind) == (size.compared, size.uncertainties[0]):
                shown = paths
    results = {
        "dataset": "digits",
        "preset": preset,
        "seeds": list(seeds),
        "confidence": CONFIDENCE,
        "pairs": [list(pair) for pair in PAIRS[: size.pairs]],
        "test_rows": {key: statistics.fmean(each[key] for each in references) for key in references[0]},
        "fits": fits,
        "table": table,
        "stability": stability(size, seeds[0]),
    }
    write_json(out / "results.json", results)
    write_text(out / "table.md", markdown(results))
    draw_digits(results, shown, out / "figures")
    return results


def _settings(size: Preset) -> list[tuple[int, str]]:
    """Every width with the first estimate of uncertainty, and the others at one width."""
    others = [(size.compared, kind) for kind in size.uncertainties[1:]]
    return [*((width, size.uncertainties[0]) for width in size.latent_dims), *others]


def explainer_of_images(width: int, **options: Any) -> Explainer:
    """An explainer of images: answers are what the decoder makes, whole, since a digit is more than its pixels.

    So single pixels are not put back, and what the decoder does not reproduce of the first image is not added. Ends are
    polished within `PLAUSIBILITY`: moved as close to the first image as the classifier lets them, they would be that
    digit with noise.
    """
    return Explainer(
        latent_dim=width,
        sparsify=False,
        keep_residual=False,
        staged=False,
        avoid_unseen=False,
        fallback=False,
        **options,
    )


def _fit(
    digits: Digits, width: int, kind: str, seed: int, device: str, progress: bool | None
) -> tuple[Explainer, float]:
    explainer = explainer_of_images(width, uncertainty=kind, seed=seed, device=device, progress=progress)
    started = time.perf_counter()
    explainer.fit(digits.train, target="digit", schema=schema())
    return explainer, time.perf_counter() - started


def explain(
    explainer: Explainer, digits: Digits, judges: Judges, size: Preset, methods: Sequence[str] = METHODS
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """What every method finds for images of each pair, and the path of the first image of the first pair.

    Returns:
        One row a method: its flip ratio at the asked confidence, and over its valid answers what the judges say; and by
        method the images along one path.
    """
    said = explainer.predict(digits.test).to_numpy()
    rows, paths = [], {}
    for method in methods:
        found, wanted, valid, seconds = [], [], [], 0.0
        for before, after in PAIRS[: size.pairs]:
            images = digits.test[(digits.test["digit"] == before) & (said == before)].head(size.rows)
            started = time.perf_counter()
            result = explainer.explain(
                images, target_class=after, confidence=CONFIDENCE, plausibility=PLAUSIBILITY, method=method
            )
            seconds += time.perf_counter() - started
            found.append(result.counterfactuals)
            wanted += [after] * len(images)
            reached = explainer.predict_proba(result.counterfactuals)[after].to_numpy() >= CONFIDENCE
            valid += reached.tolist()
            if method not in paths:
                paths[method] = scaled(result.path(images.index[0]))
        chosen = np.asarray(valid)
        answers = pd.concat(found)[chosen]
        row = {"method": method, "n": len(chosen), "flip_ratio": float(chosen.mean())}
        row |= judges.measure(answers, np.asarray(wanted)[chosen].tolist()) if len(answers) else {}
        rows.append(row | {"milliseconds_per_row": 1000 * seconds / len(chosen)})
    return rows, paths


def stability(size: Preset, first_seed: int) -> dict[str, dict[str, float]]:
    """How far distances between the same images differ when the VAE is trained anew, by estimate of uncertainty.

    The coefficient of variation over retrainings of the length of shortest paths, median over pairs of images.
    """
    images = scaled(Digits.load(first_seed).train)
    training = VAETraining(mean_epochs=size.epochs, std_epochs=3, batch_size=128, learning_rate=2e-3, anneal=True)
    found = {}
    for kind in ("rbf", "ensemble"):
        lengths = []
        for seed in range(first_seed, first_seed + size.retrainings):
            vae = fit_vae(
                images,
                size.compared,
                hidden=(128, 64),
                uncertainty=kind,
                centers=60,
                training=training,
                run=Run(seed=seed, progress=False),
            )
            lengths.append(geodesic_distances(fold(vae), images, seed=first_seed))
        found[kind] = coefficient_of_variation(torch.stack(lengths))
    return found


HEADINGS = {
    "latent_dim": "latent size", "uncertainty": "uncertainty", "method": "method", "n": "n",
    "flip_ratio": "flip ratio", "judged": "forest agrees", "ld": "LD", "lof": "LOF",
    "milliseconds_per_row": "ms a row",
}  # fmt: skip


def frame(results: Mapping[str, Any]) -> pd.DataFrame:
    """The table for people, in medians over seeds."""
    table = pd.DataFrame(results["table"]).drop(columns="seed")
    keys = ["latent_dim", "uncertainty", "method"]
    medians = table.groupby(keys, sort=False, as_index=False).median()
    return medians[[name for name in HEADINGS if name in medians]].rename(columns=HEADINGS)


def caption(results: Mapping[str, Any]) -> str:
    """What was run, in a few sentences."""
    test, cv = results["test_rows"], results["stability"]
    return (
        f"Preset {results['preset']}, seeds {', '.join(map(str, results['seeds']))}; confidence "
        f"{results['confidence']:g}. Test images: the forest is right about {test['judged']:.2f}, LD {test['ld']:.2f}, "
        f"LOF {test['lof']:.2f}. LD, LOF and the forest's say are over valid answers. Distances over retrainings: "
        f"coefficient of variation {cv['rbf']['median']:.3f} (rbf), {cv['ensemble']['median']:.3f} (ensemble)."
    )


def markdown(results: Mapping[str, Any]) -> str:
    """Caption and table."""
    content = frame(results)
    cells = [
        [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row] for row in content.to_numpy()
    ]
    lines = [f"| {' | '.join(row)} |" for row in ([*content.columns], ["---"] * len(content.columns), *cells)]
    return "\n".join(["# Digits", "", caption(results), "", *lines, ""])

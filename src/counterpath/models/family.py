"""A family of models: what the explained model might be after the next training, and what it takes to survive that.

A counterfactual that barely crosses the boundary of today's model is void after the next training. Which models that
may give is a distribution, and a family is a sample of it: k models that are asked, and others, held out, by which an
answer is judged afterwards.

Of k models r refuse a row, that was chosen without asking them. With a uniform prior the share of all models that
accept it is then Beta(k − r + 1, r + 1), as in BetaRCE. But a search does choose by them: it moves d features until one
model more would refuse, and so finds the corner where they are most lenient. That is a scenario program with d free
variables, and at its optimum the share is Beta(k − r − d + 1, r + d): as if d − 1 more had refused. So with d features
changed the next n models accept a row

    X ~ BetaBinomial(n, k − r − d + 1, r + d)

times, and it is robust with share δ if P(X ≥ δn) ≥ `CERTAINTY`, n = `HORIZON`. It assumes that the next models are
drawn from the same distribution as the family, independently of it; and, for d > 1, what is exact for convex problems.
`benchmarks/robustness.py` measures on held-out models whether it holds.

References:
    Stępka, Lango and Stefanowski, "Counterfactual explanations with probabilistic guarantees on their robustness to
    model change" (BetaRCE), KDD 2025. Campi and Garatti, "The exact feasibility of randomized solutions of uncertain
    convex programs", SIAM J. Optim. 2008, and "A sampling-and-discarding approach", JOTA 2011 (d and r).
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.classifier import PredictProba, blockwise_proba
from counterpath.models.ensemble import MOST_ROWS, Ensemble
from counterpath.models.explained import (
    ExplainedModel,
    TorchClassifier,
    ask_table,
    black_box_proba,
    class_labels,
    is_torch,
    qualified_name,
)
from counterpath.models.trees import Forest, forest_of
from counterpath.utils.errors import InputError
from counterpath.utils.progress import track

CERTAINTY = 0.95
"""How sure it must be that enough of the next models accept: as BetaRCE, and as usual."""
HORIZON = 50
"""n, the next models that are counted: a year of weekly trainings; and as many as answers are measured by."""
SIZE = 640
"""Our own models that are asked: with so many a share of 0.95 can be had with nine features changed."""
ENOUGH = 40
"""Refusals and changes together that a share should leave room for: no more models are asked than it takes for that.
With 12 answers on validation rows of German cost 19 % more at 0.8: the bound on few models is far from their share."""
RETRAINED = 128
"""Models of a user's own that are trained, one after the other, and asked: enough for 0.9 with five changes."""
HELD_OUT = 50
"""Models by which answers are judged: a share of 0.9 is known to within 0.04, one standard error."""
_KEPT_OUT = 4  # of given alternatives every fourth is held out: most are needed for the bound
_MOST_NEEDED = 100_000  # models beyond which nobody goes
_ROUNDING = 1e-9  # 0.9 times 50 is 45, and not a little more


def certainty_of(refusals: int, count: int, share: float, changes: int = 1) -> float:
    """P(X ≥ δn) for a row with so many features changed that so many of `count` models refuse; 0 for too many."""
    from scipy.stats import betabinom  # it takes longer to load than all else here

    worst, least = refusals + max(changes, 1), math.ceil(HORIZON * share - _ROUNDING)
    return float(betabinom.sf(least - 1, HORIZON, count - worst + 1, worst)) if worst <= count else 0.0


@cache
def models_needed(share: float, changes: int = 1) -> int | None:
    """How many models a family needs at least for a share, if none of them refuses; None if no number is enough.

    Example:
        >>> models_needed(0.8), models_needed(0.9), models_needed(0.9, changes=5)
        (15, 31, 111)
    """
    low, high = 0, 1
    while certainty_of(0, high, share, changes) < CERTAINTY:
        low, high = high, 2 * high
        if high > _MOST_NEEDED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certainty_of(0, middle, share, changes) >= CERTAINTY else (middle, high)
    return high


@cache
def refusals_allowed(count: int, share: float, features: int) -> tuple[int, ...]:
    """How many of `count` models may refuse a row of which 0, 1, … `features` features change; −1 where none may.

    Raises:
        InputError: Not even one change is possible; the message says how many models are needed.

    Example:
        >>> refusals_allowed(128, 0.9, 6)
        (4, 4, 3, 2, 1, 0, -1)
    """
    most = -1
    while most + 1 < count and certainty_of(most + 1, count, share) >= CERTAINTY:
        most += 1
    if most < 0:
        needed, more = models_needed(share), models_needed(share, _SOME_CHANGES)
        enough = (
            "no family is large enough for that"
            if needed is None
            else f"at least {needed} models are needed, and {more} for answers that change {_SOME_CHANGES} features"
        )
        raise InputError(
            f"robust={share:g} asks too much of a family of {count} models (beside those that are held out): {enough}; "
            "give more, fit_family(size=…), or ask for a smaller share"
        )
    return tuple(max(-1, most + 1 - max(changes, 1)) for changes in range(features + 1))


@cache
def models_asked(count: int, share: float) -> int:
    """How many of `count` models are asked about a share: as many as leave room for `ENOUGH`, or all.

    Example:
        >>> models_asked(640, 0.8), models_asked(640, 0.9), models_asked(640, 0.95)
        (324, 640, 640)
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        room = certainty_of(ENOUGH - 1, middle, share) >= CERTAINTY
        low, high = (low, middle) if room else (middle, high)
    return high


_SOME_CHANGES = 3  # of an answer as they mostly are, in a message


class Members(ABC):
    """Models that can be asked together."""

    together: int = 1
    """How many are asked at once."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def take(self, some: Int[Tensor, "m"]) -> "Members":
        """Some of them, by their indices, in that order."""

    @abstractmethod
    def predict_proba(self, x: Float[Tensor, "n D"], some: slice = slice(None)) -> Float[Tensor, "m n K"]:
        """What some of them say about legal encoded rows."""


@dataclass(frozen=True)
class OwnMembers(Members):
    """Classifiers that were trained together."""

    ensemble: Ensemble
    together = 128  # a product of fewer takes as long; the strictest come first, and few rows are left for the others

    def __len__(self) -> int:
        return len(self.ensemble)

    def take(self, some: Int[Tensor, "m"]) -> "OwnMembers":
        """Some of them, by their indices."""
        return OwnMembers(self.ensemble.at(some))

    def predict_proba(self, x: Float[Tensor, "n D"], some: slice = slice(None)) -> Float[Tensor, "m n K"]:
        """One batched product a layer."""
        return self.ensemble.predict_proba(x, some)


@dataclass(frozen=True)
class GivenMembers(Members):
    """Models of the user's."""

    models: tuple[PredictProba, ...]
    together = 1

    def __len__(self) -> int:
        return len(self.models)

    def take(self, some: Int[Tensor, "m"]) -> "GivenMembers":
        """Some of them, by their indices."""
        return GivenMembers(tuple(self.models[index] for index in some.tolist()))

    def predict_proba(self, x: Float[Tensor, "n D"], some: slice = slice(None)) -> Float[Tensor, "m n K"]:
        """One call a model."""
        chosen = self.models[some]
        if not chosen:
            return x.new_zeros(0, len(x), 2)
        return torch.stack([model(x) for model in chosen])


@dataclass(frozen=True)
class TreeMembers(Members):
    """Ensembles of trees of the user's, all trees of which are walked down at once; see `models.trees`."""

    forest: Forest
    together = 128  # rows are decoded once for so many

    def __len__(self) -> int:
        return len(self.forest)

    def take(self, some: Int[Tensor, "m"]) -> "TreeMembers":
        """Some of them, by their indices."""
        return TreeMembers(self.forest.take(some.tolist()))

    def predict_proba(self, x: Float[Tensor, "n D"], some: slice = slice(None)) -> Float[Tensor, "m n K"]:
        """All trees at once."""
        return self.forest.predict_proba(x, some)


def given_members(
    models: Sequence[Any], asked: Sequence[PredictProba], encoder: Encoder, rows: Float[Tensor, "n D"]
) -> Members:
    """Models of a user's: asked together, if they are trees, and else one by one."""
    forest = None if not models else forest_of(models, asked, encoder, rows)
    return GivenMembers(tuple(asked)) if forest is None else TreeMembers(forest)


@dataclass(frozen=True)
class Family:
    """A sample of the models that the next training may give.

    Attributes:
        members: Those that a search asks.
        held_out: Those that it never asks, for the measure `valid_after`.
        note: From which distribution they are, in words.
    """

    members: Members
    held_out: Members
    note: str

    def __len__(self) -> int:
        return len(self.members)

    @property
    def own(self) -> bool:
        """Whether they are ours, and so are stored with an explainer."""
        return isinstance(self.members, OwnMembers)

    @classmethod
    def of_ensemble(cls, ensemble: Ensemble, held_out: int) -> "Family":
        """Of classifiers that were trained together, of which the last ones are held out."""
        kept = len(ensemble) - held_out
        note = (
            f"{kept} of our classifiers ({held_out} more are held out), each fitted to a bootstrap of the training "
            f"rows (at most {MOST_ROWS:,} of them), from another seed, with a ridge penalty up to twice or half as "
            "large, a learning rate up to 1.4 times or 0.7 times as large, and stopped by the rows that it left out"
        )
        return cls(OwnMembers(ensemble.at(slice(kept))), OwnMembers(ensemble.at(slice(kept, None))), note)

    @classmethod
    def of_models(
        cls, models: Sequence[Any], explained: ExplainedModel, encoder: Encoder, rows: Float[Tensor, "n D"]
    ) -> "Family":
        """Of fitted models that a user gives: every fourth is held out.

        Args:
            models: The models.
            explained: The model under explanation.
            encoder: Tables to tensors and back.
            rows: The training rows, encoded.

        Raises:
            InputError: One of them cannot be asked, or has other classes; the message says which.
        """
        if isinstance(models, str) or not isinstance(models, Sequence) or not models:
            raise InputError(f"alternatives is {models!r}; expected a list of fitted models")
        asked = [
            predictor(each, explained, encoder, f"alternative {number + 1} of {len(models)}")
            for number, each in enumerate(models)
        ]
        out = [number % _KEPT_OUT == _KEPT_OUT - 1 for number in range(len(models))]
        members, held_out = (
            given_members(
                [model for model, each in zip(models, out, strict=True) if each is held],
                [said for said, each in zip(asked, out, strict=True) if each is held],
                encoder,
                rows,
            )
            for held in (False, True)
        )
        note = f"{len(members)} models that were given as alternatives ({len(held_out)} more are held out)"
        return cls(members, held_out, note)

    @classmethod
    def of_retraining(
        cls,
        retrain: Any,
        explained: ExplainedModel,
        encoder: Encoder,
        rows: Float[Tensor, "n D"],
        labels: pd.Series,
        *,
        size: int,
        held_out: int,
        seed: int,
        progress: bool | None = None,
    ) -> "Family":
        """Of models that are trained anew, each on a bootstrap of the rows and from another seed.

        Args:
            retrain: A function from rows and labels (and `seed`, if it takes one) to a model; or an estimator of
                scikit-learn, which is cloned.
            explained: The model under explanation.
            encoder: Tables to tensors and back.
            rows: The training rows, encoded.
            labels: Their labels.
            size: How many models are asked.
            held_out: How many more are held out.
            seed: Of what is drawn.
            progress: Show a bar.

        Raises:
            InputError: The training fails, or gives a model with other classes.
        """
        train = _trainer(retrain)
        frame, generator = encoder.decode(rows), np.random.default_rng(seed)
        count, models, found = size + held_out, [], []
        with track("retraining", count, shown=progress) as advance:
            for number in range(count):
                drawn = generator.integers(len(frame), size=len(frame))
                which = f"retraining {number + 1} of {count}"
                try:
                    some = frame.iloc[drawn].reset_index(drop=True), labels.iloc[drawn].reset_index(drop=True)
                    model = train(*some, seed + 1 + number)
                except Exception as error:
                    raise InputError(
                        f"{which} failed ({type(error).__name__}: {error}); expected of retrain is a function from a "
                        "table and its labels to a fitted model, or an estimator of scikit-learn: try it on "
                        "table.sample(frac=1, replace=True)"
                    ) from error
                found.append(predictor(model, explained, encoder, which))
                models.append(model)
                advance()
        note = (
            f"{size} models that were trained anew ({held_out} more are held out), each on a bootstrap of the training "
            "rows and from another seed"
        )
        parts = slice(size), slice(size, None)
        asked, held = (given_members(models[some], found[some], encoder, rows) for some in parts)
        return cls(asked, held, note)


def predictor(model: Any, explained: ExplainedModel, encoder: Encoder, which: str) -> PredictProba:
    """A model as it is asked about encoded rows, in the order of the explained model's classes.

    Raises:
        InputError: It cannot be asked, or has other classes; the message says which model that is.
    """
    try:
        said, found = _asked(model, explained, encoder)
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{which} cannot be asked: {reason}") from error
    if explained.numbers:
        return said
    if set(found) != set(explained.classes):
        raise InputError(
            f"{which}, {qualified_name(model)}, has the classes {', '.join(map(repr, found))}, and {explained.name} "
            f"has {', '.join(map(repr, explained.classes))}; expected the same: a training set without rows of a "
            "class gives a model without it"
        )
    if found == explained.classes:
        return said
    order = [found.index(label) for label in explained.classes]
    return lambda x: said(x)[:, order]


def _asked(model: Any, explained: ExplainedModel, encoder: Encoder) -> tuple[PredictProba, tuple[Any, ...]]:
    """A model as it is asked about encoded rows, and its classes in its own order."""
    probe, known = encoder.round(torch.zeros(2, encoder.width)), explained.classes
    if is_torch(model):
        classifier = TorchClassifier(model, probe, numbers=explained.numbers)
        found = known if classifier.classes == len(known) else tuple(range(classifier.classes))
        return blockwise_proba(classifier, numbers=explained.numbers), found
    said = black_box_proba(model, encoder, numbers=explained.numbers)
    if explained.numbers:
        ask_table(model, encoder.decode(probe), numbers=True)
        return said, known
    outputs = said(probe).shape[-1]
    return said, class_labels(model, outputs, known if outputs == len(known) else None)


def _trainer(retrain: Any) -> Callable[[pd.DataFrame, pd.Series, int], Any]:
    """What trains a model from rows, labels and a seed."""
    if hasattr(retrain, "fit") and hasattr(retrain, "get_params"):
        from sklearn.base import clone

        def cloned(table: pd.DataFrame, labels: pd.Series, seed: int) -> Any:
            model = clone(retrain)
            seeds = {name: seed for name in model.get_params() if name.split("__")[-1] == "random_state"}
            return model.set_params(**seeds).fit(table, labels)

        return cloned
    if not callable(retrain):
        raise InputError(
            f"retrain is {retrain!r}; expected a function from a table and its labels to a fitted model, or an "
            "estimator of scikit-learn"
        )
    if "seed" in inspect.signature(retrain).parameters:
        return lambda table, labels, seed: retrain(table, labels, seed=seed)
    return lambda table, labels, seed: retrain(table, labels)

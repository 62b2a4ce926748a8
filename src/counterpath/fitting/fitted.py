"""What an Explainer has fitted, and what follows from it."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.causes import Causes
from counterpath.data.encoding import Encoder
from counterpath.data.returned import decoded_rows
from counterpath.geometry.graph import Neighbours
from counterpath.models.classifier import Thresholds, decide
from counterpath.models.effects import Effects
from counterpath.models.explained import ExplainedModel
from counterpath.models.family import Family, models_asked, refusals_allowed
from counterpath.models.flow import FlowModel
from counterpath.models.generator import Generator
from counterpath.models.latent import LatentModel
from counterpath.models.vae import VAE
from counterpath.search.combinations import Combinations
from counterpath.search.feasible import FeasibleSet
from counterpath.search.measures import spreads
from counterpath.search.method import AnyModels, Method, Problem, SearchModels, SearchOptions, SearchSetup
from counterpath.search.objective import Target
from counterpath.search.roadmap import Landmarks
from counterpath.search.stability import Stability
from counterpath.search.validity import LIMIT_SHARE, Plausibility
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import NotFittedError

_LIMIT_ROWS = 1000  # held-out rows that tell how far real rows are: a 95 % quantile of so many is known to within 1.4 %
_MOST_NEIGHBOURS = 100_000  # rows that plausibility looks among: it bounds the time of every look-up


@dataclass(frozen=True)
class LatentMap:
    """A flat map of codes: themselves if they are flat, otherwise their two principal components.

    Attributes:
        center: The mean code.
        axes: The two directions that are shown.
        points: The training codes on the map.
        note: What the map shows, in words.
    """

    center: Float[Tensor, "d"]
    axes: Float[Tensor, "d 2"]
    points: Float[Tensor, "n 2"]
    note: str

    @classmethod
    def of(cls, codes: Float[Tensor, "n d"]) -> "LatentMap":
        """The map that shows most of the codes' variance.

        scikit-learn's PCA would do, but for the signs of the axes: they are made definite here in one line, in float64.
        """
        z = codes.detach().double().cpu()
        width = z.shape[1]
        if width <= 2:
            center, axes = torch.zeros(width, dtype=z.dtype), torch.eye(width, 2, dtype=z.dtype)
            return cls(center, axes, z @ axes, "the latent space itself")
        center = z.mean(0)
        _, spread, directions = torch.linalg.svd(z - center, full_matrices=False)
        share = float(spread[:2].square().sum() / spread.square().sum())
        axes = directions[:2].T
        axes = axes * torch.where(axes.sum(0) < 0, -1.0, 1.0)  # a direction's sign is arbitrary: make it definite
        note = f"2 of {width} latent dimensions: the principal components, {100 * share:.0f} % of the variance"
        return cls(center, axes, (z - center) @ axes, note)

    def project(self, codes: Float[Tensor, "m d"]) -> Float[Tensor, "m 2"]:
        """Where codes lie on the map."""
        return (codes.detach().double().cpu() - self.center) @ self.axes


@dataclass(frozen=True)
class FittedModels:
    """What was fitted.

    Attributes:
        encoder: Tables to tensors and back.
        explained: The explained model.
        generator: The space to search in: our VAE, or a user's generator with our uncertainty.
        flow: A normalizing flow, where the method needs one.
        rows: The training rows, encoded.
        held_out: Which of them the models were not trained on.
        probabilities: What the explained model says about them.
        landmarks: Training rows as they are decoded, where local searches that get stuck fall back to.
        seed: Of all randomness.
        labels: The class of every training row, by its index, or its number; None where they are not known.
        family: What the explained model might be after the next training; None where nobody asked.
        states: By the names of methods the method and what it has fitted. That of the explainer's own method is there
            from the start, others follow when they are first used.
    """

    encoder: Encoder
    explained: ExplainedModel
    generator: VAE | Generator
    flow: FlowModel | None
    rows: Float[Tensor, "n D"]
    held_out: Tensor
    probabilities: Float[Tensor, "n K"]
    landmarks: Landmarks | None = None
    seed: int = 0
    labels: Tensor | None = None
    family: Family | None = None
    states: dict[str, tuple[Method, Any]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def search_models(self) -> AnyModels:
        """The models as they are searched."""
        return SearchModels[Any, Any](self.explained.classifier, self.generator, self.flow).folded()

    @property
    def latent(self) -> LatentModel:
        """The generative model as it is searched."""
        latent = self.search_models.vae
        assert isinstance(latent, LatentModel)
        return latent

    @cached_property
    def neighbours(self) -> Neighbours:
        """The training rows, to look for neighbours in."""
        return Neighbours(self.rows, self.encoder.weights.to(self.rows))

    @cached_property
    def plausibility(self) -> Plausibility:
        """The training rows, and how far from them at most 1,000 held-out rows are.

        Of more than 100,000 rows so many are taken at random: whether a row is plausible does not depend on the rest.
        """
        weights, large = self.encoder.weights.to(self.rows), len(self.rows) > _MOST_NEIGHBOURS
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:_MOST_NEIGHBOURS]
        chosen = order.to(self.rows.device) if large else torch.arange(len(self.rows), device=self.rows.device)
        held_out = self.rows[self.held_out][:_LIMIT_ROWS]
        if len(held_out):
            trained = Neighbours(self.rows[chosen[~self.held_out[chosen]]], weights)
            apart = trained.nearest(held_out)[0][:, 0]
        else:
            apart = self.neighbours.nearest(self.rows[:_LIMIT_ROWS], 2)[0][:, -1]
        limits = float(apart.quantile(LIMIT_SHARE)), float(apart.square().mean().sqrt())
        if not large:
            return Plausibility(self.neighbours, *limits, distances=apart)
        return Plausibility(Neighbours(self.rows[chosen], weights), *limits, self.neighbours, apart)

    @cached_property
    def spreads(self) -> Float[Tensor, "f"]:
        """How far apart training rows are in each feature, in original units."""
        return spreads(self.encoder, self.rows)

    @cached_property
    def combinations(self) -> Combinations:
        """Which combinations of values the training rows have."""
        return Combinations.fit(self.encoder, self.rows)

    def effects(self, causes: Causes, always: frozenset[str]) -> Effects:
        """What follows from changes by a graph of causes, fitted to the training rows when it is first asked for."""
        key = (causes.texts, always)
        if key not in self._effects:
            self._effects[key] = Effects.fit(self.encoder, self.rows, causes, always)
        return self._effects[key]

    @cached_property
    def _effects(self) -> dict[tuple[tuple[str, ...], frozenset[str]], Effects]:
        return {}

    @cached_property
    def setup(self) -> SearchSetup:
        """What all searches share."""
        return SearchSetup(
            self.encoder,
            self.search_models,
            self.explained.predict_proba,
            self.explained.kind != "black-box",
            self.rows,
            self.probabilities,
            self.landmarks,
            self.plausibility,
            self.seed,
            self.combinations,
        )

    def stability(self, robust: float | None, noise: float | None) -> Stability | None:
        """What an answer must survive: a share of the family's models, or of small deviations; None for neither.

        Raises:
            InputError: The family is too small; the message says how many models are needed.
            NotFittedError: There is no family.
        """
        if robust is None:
            return None if noise is None else Stability(self.encoder, noise=noise)
        if self.family is None:
            own = "train it by explainer.fit_family() before it is saved, or by `counterpath fit --family`"
            given = (
                "give them by explainer.fit_family(alternatives=[…]), or say how it is trained: fit_family(retrain=…)"
            )
            raise NotFittedError(
                f"robust={robust:g} needs a family of models that may follow {self.explained.name}: "
                f"{own if self.explained.kind == 'own' else given}"
            )
        if (robust, noise) not in self._stabilities:
            count = models_asked(len(self.family), robust)
            allowed = refusals_allowed(count, robust, len(self.encoder.layout))
            members = self.family.members.take(torch.arange(count, device=self.rows.device))
            self._stabilities[robust, noise] = Stability(self.encoder, members, allowed, noise)
        return self._stabilities[robust, noise]

    @cached_property
    def _stabilities(self) -> dict[tuple[float, float | None], Stability]:
        return {}

    def check_needs(self, method: Method) -> None:
        """Check that the models are there that a method needs.

        Raises:
            NotFittedError: One of them is trained by `Explainer.fit` alone, and was not.
        """
        missing = sorted(need for need in method.needs if getattr(self, need, None) is None)
        if missing:
            raise NotFittedError(
                f"method {method.name!r} needs a {missing[0]}, and none was fitted: fit one first, with "
                f"Explainer(method={method.name!r}).fit(…)"
            )

    def state(self, method: Method, options: SearchOptions) -> Any:
        """What a method has fitted; it is fitted now if it has not been."""
        self.check_needs(method)
        fitted, state = self.states.get(method.name, (None, None))
        if fitted is not method:  # not fitted yet, or another method of the same name
            state = method.fit(self.setup, options)
            self.states[method.name] = method, state
        return state

    def problem(
        self,
        method: Method,
        feasible: FeasibleSet,
        target: Target,
        options: SearchOptions,
        max_changes: int | None = None,
    ) -> Problem:
        """A problem for a method to solve with these models."""
        return Problem(self.setup, feasible, target, options, self.state(method, options), max_changes)

    def predict_proba(self, x: Float[Tensor, "m D"]) -> Float[Tensor, "m K"]:
        """What the explained model says about rows; about the training rows it is asked only once."""
        return self.probabilities if x is self.rows else self.explained.predict_proba(x)

    def asked_exactly(self, given: pd.DataFrame, x: Float[Tensor, "D"]) -> "FittedModels":
        """The same models, of which the explained one is asked about a person's rows exactly as they are returned.

        Elsewhere it is asked about decoded rows, which may differ from them in the eighth digit of what is as it was.

        Args:
            given: The person, a table of one row.
            x: The same, encoded.
        """
        explained, encoder = self.explained, self.encoder

        def predict(rows: Float[Tensor, "m D"]) -> Float[Tensor, "m K"]:
            table = decoded_rows(encoder, rows, x.expand_as(rows), given.iloc[np.zeros(len(rows), dtype=np.int64)])
            return explained.predict_proba_table(table, rows)

        others = replace(self, explained=replace(explained, predict_proba=predict))
        known = {name for name, value in vars(type(self)).items() if isinstance(value, cached_property)} - {"setup"}
        vars(others).update({name: value for name, value in vars(self).items() if name in known})
        return others

    @cached_property
    def latent_map(self) -> LatentMap:
        """How codes are shown on a flat map."""
        with torch.no_grad():
            return LatentMap.of(map_blocks(self.latent.encode, self.rows))

    def landscape(self, count: int, thresholds: Thresholds | None = None) -> pd.DataFrame:
        """Where training rows lie on the map, at most `count` of them, and what the model decides about them.

        Of what a regressor predicts it is the quarter.
        """
        rows = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:count]
        where = self.latent_map.points[rows]
        said = self.probabilities[rows.to(self.probabilities.device)]
        return pd.DataFrame(
            {
                "map_x": where[:, 0].numpy(),
                "map_y": where[:, 1].numpy(),
                "predicted": quarters(said[:, 0])
                if self.explained.numbers
                else [self.explained.classes[index] for index in decide(said, thresholds).tolist()],
            }
        )

    @cached_property
    def spread(self) -> float:
        """How far apart the numbers are that a regressor predicts for the training rows: their standard deviation."""
        return float(self.probabilities.double().std()) or 1.0


def quarters(numbers: Float[Tensor, "n"]) -> list[str]:
    """In which quarter of all each number is, in words: "up to 20", "20 to 35" and so on."""
    ends = numbers.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64, device=numbers.device))
    texts = [f"{end:.3g}" for end in ends.tolist()]
    words = [f"up to {texts[0]}", f"{texts[0]} to {texts[1]}", f"{texts[1]} to {texts[2]}", f"from {texts[2]}"]
    return [words[index] for index in torch.bucketize(numbers.double().contiguous(), ends).tolist()]

"""What an Explainer has learned, and what follows from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.geometry.graph import Graph
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.explained import ExplainedModel
from counterpath.models.flow import FlowModel
from counterpath.models.generator import Generator
from counterpath.models.latent import LatentModel, context_for
from counterpath.models.vae import VAE
from counterpath.search.face import FaceGraph
from counterpath.search.method import AMBIENTS, AnyModels, SearchModels
from counterpath.search.problem import Problem, SearchOptions
from counterpath.search.residual import Data
from counterpath.search.roadmap import CostField, Landmarks, Roadmap, representatives
from counterpath.utils.blocks import map_blocks

_REACHING = 1000
_MOST_DATA = 100_000


@dataclass(frozen=True)
class LatentMap:
    """A flat picture of codes: themselves if they are flat, otherwise their two principal components.

    Attributes:
        center: The mean code.
        axes: The two directions that are shown.
        points: The training codes, seen this way.
        note: What is shown, in words.
    """

    center: Float[Tensor, "d"]
    axes: Float[Tensor, "d 2"]
    points: Float[Tensor, "n 2"]
    note: str

    @classmethod
    def of(cls, codes: Float[Tensor, "n d"]) -> "LatentMap":
        """The view that shows most of the codes' variance."""
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

    def show(self, codes: Float[Tensor, "m d"]) -> Float[Tensor, "m 2"]:
        """Where codes lie on the map."""
        return (codes.detach().double().cpu() - self.center) @ self.axes


@dataclass(frozen=True)
class FittedModels:
    """What was learned.

    Attributes:
        encoder: Tables to tensors and back.
        explained: The model under explanation.
        generator: The space to search in: our VAE, or a user's generator with our uncertainty.
        flow: A normalizing flow, where the method needs one.
        rows: The training rows, encoded.
        held_out: Which of them the models were not trained on.
        probabilities: What the model under explanation gives them, by class.
        landmarks: Where searches that get stuck are led to, and what the graph is on.
        graph: Of the landmarks, for people who keep nothing; None where the space is always told something.
        ambient: What steps over the graph are measured by, a key of `AMBIENTS`.
        priced: Whether they are priced by the uncertainty, too.
    """

    encoder: Encoder
    explained: ExplainedModel
    generator: VAE | Generator
    flow: FlowModel | None
    rows: Float[Tensor, "n D"]
    held_out: Tensor
    probabilities: Float[Tensor, "n K"]
    landmarks: Landmarks | None = None
    graph: Graph | None = None
    ambient: str = "data"
    priced: bool = True

    @cached_property
    def parts(self) -> AnyModels:
        """The models as they are searched."""
        return SearchModels[Any, Any](self.explained.classifier, self.generator, self.flow).folded()

    @property
    def space(self) -> LatentModel:
        """The generative model as it is searched."""
        space = self.parts.vae
        assert isinstance(space, LatentModel)
        return space

    @cached_property
    def neighbours(self) -> Neighbours:
        """The training rows, to look for neighbours in."""
        return Neighbours(self.rows, self.encoder.weights.to(self.rows))

    @cached_property
    def data(self) -> Data:
        """The training rows, and how far from them at most 1,000 held-out rows are.

        Of more than 100,000 rows so many are taken at random: whether a row is plausible does not hang on the rest.
        """
        held_out = self.rows[self.held_out][:_REACHING]
        if len(held_out):
            trained = Neighbours(self.rows[~self.held_out], self.encoder.weights.to(self.rows))
            apart = trained.nearest(held_out)[0][:, 0]
        else:
            apart = self.neighbours.nearest(self.rows[:_REACHING], 2)[0][:, -1]
        limits = float(apart.quantile(0.95)), float(apart.square().mean().sqrt())
        if len(self.rows) <= _MOST_DATA:
            return Data(self.neighbours, *limits)
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:_MOST_DATA]
        sample = Neighbours(self.rows[order.to(self.rows.device)], self.encoder.weights.to(self.rows))
        return Data(sample, *limits, every=self.neighbours)

    @cached_property
    def terrain(self) -> CostField:
        """What moving through the latent space costs."""
        assert self.landmarks is not None
        metric, told = AMBIENTS[self.ambient](self.parts), context_for(self.space, self.landmarks.x)
        return CostField.of(self.space, metric, self.landmarks.z, told, plain=not self.priced)

    @cached_property
    def network(self) -> Roadmap | None:
        """Roads through the latent space."""
        return None if self.landmarks is None else Roadmap(self.terrain, self.landmarks, self.graph)

    @cached_property
    def chains(self) -> FaceGraph:
        """Roads from training row to training row."""
        rows = representatives(self.rows, self.probabilities, 0)
        return FaceGraph.of(self.rows[rows], self.probabilities[rows], self.encoder.weights.to(self.rows))

    def predict_proba(self, x: Float[Tensor, "m D"]) -> Float[Tensor, "m K"]:
        """The probabilities of the model under explanation; those of the training rows are computed only once."""
        return self.probabilities if x is self.rows else self.explained.predict_proba(x)

    @cached_property
    def view(self) -> "LatentMap":
        """How codes are shown on a flat map."""
        with torch.no_grad():
            return LatentMap.of(map_blocks(self.space.encode, self.rows))

    def landscape(self, count: int) -> pd.DataFrame:
        """Where training rows lie on the map, at most `count` of them, and what the model decides for them."""
        rows = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:count]
        where = self.view.points[rows]
        decided = self.probabilities[rows.to(self.probabilities.device)].argmax(-1).tolist()
        return pd.DataFrame(
            {
                "map_x": where[:, 0].numpy(),
                "map_y": where[:, 1].numpy(),
                "predicted": [self.explained.classes[place] for place in decided],
            }
        )

    def quest(self, walk: SearchOptions) -> Problem:
        """A search with these models."""
        exact = self.explained.kind != "black-box"
        classifier, predict_proba = self.parts.classifier, self.explained.predict_proba
        return Problem(classifier, predict_proba, exact, self.space, self.network, walk, self.data, lambda: self.chains)

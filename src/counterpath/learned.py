"""What an Explainer has learned, and what follows from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.data.encoding import Encoder
from counterpath.geometry.neighbours import Neighbours
from counterpath.journey import Data
from counterpath.methods import AnyParts, Parts
from counterpath.models.flow import FlowModel
from counterpath.models.generator import Generator
from counterpath.models.latent import LatentModel
from counterpath.models.vae import VAE
from counterpath.pursuit import Landmarks, Quest, Walk
from counterpath.subject import Subject

_REACHING = 1000


@dataclass(frozen=True)
class View:
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
    def of(cls, codes: Float[Tensor, "n d"]) -> "View":
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
class Learned:
    """What was learned.

    Attributes:
        encoder: Tables to tensors and back.
        subject: The model under explanation.
        generator: The space to search in: our VAE, or a user's generator with our uncertainty.
        flow: A normalizing flow, where the method needs one.
        rows: The training rows, encoded.
        held_out: Which of them the models were not trained on.
        answers: What the model under explanation says about them.
        landmarks: Where searches that get stuck are led to.
    """

    encoder: Encoder
    subject: Subject
    generator: VAE | Generator
    flow: FlowModel | None
    rows: Float[Tensor, "n D"]
    held_out: Tensor
    answers: Float[Tensor, "n K"]
    landmarks: Landmarks | None = None

    @cached_property
    def parts(self) -> AnyParts:
        """The models as they are searched."""
        return Parts[Any, Any](self.subject.classifier, self.generator, self.flow).folded()

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
    def reach(self) -> float:
        """The distance to the nearest training row that 95 % of at most 1,000 held-out rows do not exceed."""
        held_out = self.rows[self.held_out][:_REACHING]
        if len(held_out) == 0:
            held_out = self.rows[:_REACHING]
            return float(self.neighbours.nearest(held_out, 2)[0][:, -1].quantile(0.95))
        trained = Neighbours(self.rows[~self.held_out], self.encoder.weights.to(self.rows))
        return float(trained.nearest(held_out)[0][:, 0].quantile(0.95))

    def ask(self, x: Float[Tensor, "m D"]) -> Float[Tensor, "m K"]:
        """What the model under explanation says about rows; about the training rows it is asked only once."""
        return self.answers if x is self.rows else self.subject.answers(x)

    @cached_property
    def view(self) -> "View":
        """How codes are shown on a flat map."""
        with torch.no_grad():
            return View.of(map_blocks(self.space.encode, self.rows))

    def landscape(self, count: int) -> pd.DataFrame:
        """Where training rows lie on the map, at most `count` of them, and what the model decides for them."""
        rows = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:count]
        where = self.view.points[rows]
        decided = self.answers[rows.to(self.answers.device)].argmax(-1).tolist()
        return pd.DataFrame(
            {
                "map_x": where[:, 0].numpy(),
                "map_y": where[:, 1].numpy(),
                "predicted": [self.subject.classes[place] for place in decided],
            }
        )

    def quest(self, walk: Walk) -> Quest:
        """A search with these models."""
        exact = self.subject.kind != "asked"
        classifier, answers = self.parts.classifier, self.subject.answers
        data = Data(self.neighbours, self.reach)
        return Quest(classifier, answers, exact, self.space, self.landmarks, walk, data)

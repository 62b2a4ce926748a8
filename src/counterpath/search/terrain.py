"""What moving through a latent space costs, where to stop calling it data, and the shortest curves there."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.geometry.curve import relax
from counterpath.geometry.linearize import Decoded, secant
from counterpath.geometry.metric import Metric, damped, priced
from counterpath.models.latent import LatentModel

_CURVES = 128
_ON_DATA = 0.99


@dataclass(frozen=True)
class Terrain:
    """A latent space with the metric of the graph and of geodesics.

    Attributes:
        model: The space.
        metric: What moving costs.
        edge: The uncertainty beyond which a place is off the data.
    """

    model: LatentModel
    metric: Metric
    edge: float

    @classmethod
    def of(
        cls, model: LatentModel, metric: Metric, z: Tensor, told: Tensor | None, *, plain: bool = False
    ) -> "Terrain":
        """The terrain around codes of training rows.

        Args:
            model: The space.
            metric: Its geometry.
            z: Codes of rows.
            told: What the model is told about them.
            plain: Price steps by their length alone, not by the uncertainty where they are made.
        """
        spread = _decoded(model, z, told).spread
        level = float(spread.mean())
        metric = metric if plain or level == 0 else priced(metric, level)
        return cls(model, metric, float(spread.double().quantile(_ON_DATA)))

    def decoded(self, z: Float[Tensor, "n d"], told: Tensor | None) -> Decoded:
        """What codes stand for."""
        return _decoded(self.model, z, told)

    def price(
        self,
        start: Float[Tensor, "n d"],
        end: Float[Tensor, "n d"],
        told: Tensor | None,
        pieces: int,
        ends: tuple[Decoded, Decoded] | None = None,
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """The lengths of straight lines, as sums over pieces, and the highest uncertainty on the way.

        Args:
            start: Where they begin.
            end: Where they end.
            told: What the model is told on the way.
            pieces: Into how many pieces a line is cut.
            ends: What start and end stand for, if it is known.
        """
        before, last = (self.decoded(start, told), self.decoded(end, told)) if ends is None else ends
        total = torch.zeros(len(start), dtype=torch.float64, device=start.device)
        highest = torch.maximum(before.spread, last.spread)
        for piece in range(1, pieces + 1):
            after = last if piece == pieces else self.decoded(torch.lerp(start, end, piece / pieces), told)
            squared = self.metric(secant(before, after, self.category))
            total += squared[:, 0, 0].clamp_min(0).sqrt()
            highest, before = torch.maximum(highest, after.spread), after
        return total, highest

    def relaxed(
        self, curves: Float[Tensor, "n t d"], told: Tensor | None, *, steps: int, damping: float = 5e-3
    ) -> Float[Tensor, "n t d"]:
        """Curves between the same ends with less energy, on the way to geodesics.

        Steps are scaled by the largest trace of the metric along the curve. The metric of one place is no scale for a
        whole curve: a direction that is cheap there may be steep elsewhere, and no step would lower the energy.
        Segments are measured by their ends alone, so a curve may be drawn over a hill between two of its points. So
        curves are measured once more in finer pieces, and one that became longer stays as it was.

        Args:
            curves: To begin with.
            told: What the model is told along each.
            steps: The most iterations.
            damping: Added to the scale.
        """
        if len(curves) == 0:
            return curves

        def shorter(points: Tensor, told: Tensor | None) -> Tensor:
            count, size = points.shape[1], points.shape[-1]
            context = None if told is None else told.repeat_interleave(count, 0)

            def squares(trial: Tensor) -> Tensor:
                z = trial.reshape(-1, size)
                all_points = Decoded(self.model.decode(z, context), self.model.uncertainty(z, context))
                place = torch.arange(len(z), device=z.device).view(-1, count)
                segment = secant(all_points[place[:, :-1].flatten()], all_points[place[:, 1:].flatten()], self.category)
                return self.metric(segment)[:, 0, 0].view(len(trial), -1)

            along = self.metric(self.model.linearize(points.reshape(-1, size), context))
            steepest = along.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, count).amax(1)
            scale = torch.diag_embed(steepest[:, None].expand(-1, size))
            return relax(points, squares, damped(scale, damping), steps=steps)

        found = map_blocks(shorter, curves, told, block_size=_CURVES)
        kept = self.length(found, told) < self.length(curves, told)
        return torch.where(kept[:, None, None], found, curves)

    def length(self, curves: Float[Tensor, "n t d"], told: Tensor | None) -> Float[Tensor, "n"]:
        """What whole curves cost, each segment in two pieces."""
        count, points = curves.shape[1], curves.flatten(0, 1)
        whole = self.decoded(points, None if told is None else told.repeat_interleave(count, 0))
        place = torch.arange(len(points), device=points.device).view(-1, count)
        first, last = place[:, :-1].flatten(), place[:, 1:].flatten()
        context = None if told is None else told.repeat_interleave(count - 1, 0)
        ends = (whole[first], whole[last])
        return self.price(points[first], points[last], context, 2, ends)[0].view(-1, count - 1).sum(1)

    @property
    def category(self) -> Tensor | None:
        """Which columns are probabilities of categories."""
        return getattr(self.model, "category", None)


def _decoded(model: LatentModel, z: Tensor, told: Tensor | None) -> Decoded:
    def spread(z: Tensor, told: Tensor | None) -> Tensor:
        std = model.uncertainty(z, told)
        return z[:, :0] if std is None else std

    with torch.no_grad():
        std = map_blocks(spread, z, told)
        return Decoded(map_blocks(model.decode, z, told), std if std.shape[1] else None)

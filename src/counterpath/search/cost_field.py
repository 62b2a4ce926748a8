"""The cost field of a latent space: what moving costs, where the data end, and shorter curves between two points."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.geometry.curve import relax
from counterpath.geometry.linearize import Decoded, secant
from counterpath.geometry.metric import Metric, damped, scaled_by_uncertainty
from counterpath.models.latent import LatentModel
from counterpath.utils.blocks import map_blocks

_CURVES_PER_BLOCK = 128  # with 9 points each about as many rows as a block of the search has
_ON_DATA = (
    0.99  # quantile: one training row in a hundred may count as off the data, so that outliers do not set the limit
)


@dataclass(frozen=True)
class CostField:
    """A latent space with the metric of the roadmap and of geodesics.

    Attributes:
        model: The space.
        metric: What moving costs.
        data_limit: The uncertainty beyond which a point is off the data.
    """

    model: LatentModel
    metric: Metric
    data_limit: float

    @classmethod
    def of(
        cls, model: LatentModel, metric: Metric, z: Tensor, context: Tensor | None, *, uncertainty_cost: bool = True
    ) -> "CostField":
        """The cost field around codes of training rows.

        Args:
            model: The space.
            metric: Its geometry.
            z: Codes of rows.
            context: What the model is conditioned on for them.
            uncertainty_cost: Let steps cost more where the model is uncertain; else their length alone counts.
        """
        spread = _decode(model, z, context).spread
        level = float(spread.mean())
        metric = scaled_by_uncertainty(metric, level) if uncertainty_cost and level != 0 else metric
        return cls(model, metric, float(spread.double().quantile(_ON_DATA)))

    def decode(self, z: Float[Tensor, "n d"], context: Tensor | None) -> Decoded:
        """What codes stand for."""
        return _decode(self.model, z, context)

    def segment_cost(
        self,
        start: Float[Tensor, "n d"],
        end: Float[Tensor, "n d"],
        context: Tensor | None,
        pieces: int,
        ends: tuple[Decoded, Decoded] | None = None,
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """The lengths of straight lines, as sums over pieces, and the highest uncertainty along each.

        Args:
            start: Where they begin.
            end: Where they end.
            context: What the model is conditioned on along them.
            pieces: Into how many pieces a line is cut.
            ends: What start and end stand for, if it is known.
        """
        before, last = (self.decode(start, context), self.decode(end, context)) if ends is None else ends
        total = torch.zeros(len(start), dtype=torch.float64, device=start.device)
        highest = torch.maximum(before.spread, last.spread)
        for piece in range(1, pieces + 1):
            after = last if piece == pieces else self.decode(torch.lerp(start, end, piece / pieces), context)
            squared = self.metric(secant(before, after, self._categories))
            total += squared[:, 0, 0].clamp_min(0).sqrt()
            highest, before = torch.maximum(highest, after.spread), after
        return total, highest

    def relax(
        self, curves: Float[Tensor, "n t d"], context: Tensor | None, *, steps: int, damping: float = 5e-3
    ) -> Float[Tensor, "n t d"]:
        """Curves between the same ends with less energy, on the way to geodesics.

        Steps are scaled by the largest trace of the metric along the curve. The metric at one point is no scale for a
        whole curve: a direction that is cheap there may be steep elsewhere, and no step would lower the energy.
        Segments are measured by their ends alone, so a curve may be drawn over a hill between two of its points. So
        curves are measured once more in finer pieces, and one that became longer stays as it was.

        Args:
            curves: To begin with.
            context: What the model is conditioned on along each.
            steps: The most iterations.
            damping: Added to the scale.
        """
        if len(curves) == 0:
            return curves

        def shorten(points: Tensor, context: Tensor | None) -> Tensor:
            count, size = points.shape[1], points.shape[-1]
            point_context = None if context is None else context.repeat_interleave(count, 0)

            def squared_lengths(trial: Tensor) -> Tensor:
                z = trial.reshape(-1, size)
                decoded = Decoded(self.model.decode(z, point_context), self.model.uncertainty(z, point_context))
                index = torch.arange(len(z), device=z.device).view(-1, count)
                segment = secant(decoded[index[:, :-1].flatten()], decoded[index[:, 1:].flatten()], self._categories)
                return self.metric(segment)[:, 0, 0].view(len(trial), -1)

            along = self.metric(self.model.linearize(points.reshape(-1, size), point_context))
            steepest = along.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, count).amax(1)
            scale = torch.diag_embed(steepest[:, None].expand(-1, size))
            return relax(points, squared_lengths, damped(scale, damping), steps=steps)

        found = map_blocks(shorten, curves, context, block_size=_CURVES_PER_BLOCK)
        shorter = self.length(found, context) < self.length(curves, context)
        return torch.where(shorter[:, None, None], found, curves)

    def length(self, curves: Float[Tensor, "n t d"], context: Tensor | None) -> Float[Tensor, "n"]:
        """What whole curves cost, each segment in two pieces."""
        count, points = curves.shape[1], curves.flatten(0, 1)
        decoded = self.decode(points, None if context is None else context.repeat_interleave(count, 0))
        index = torch.arange(len(points), device=points.device).view(-1, count)
        first, last = index[:, :-1].flatten(), index[:, 1:].flatten()
        segment_context = None if context is None else context.repeat_interleave(count - 1, 0)
        ends = (decoded[first], decoded[last])
        return self.segment_cost(points[first], points[last], segment_context, 2, ends)[0].view(-1, count - 1).sum(1)

    @property
    def _categories(self) -> Tensor | None:
        """Which columns are probabilities of categories."""
        return getattr(self.model, "category", None)


def _decode(model: LatentModel, z: Tensor, context: Tensor | None) -> Decoded:
    def uncertainty(z: Tensor, context: Tensor | None) -> Tensor:
        std = model.uncertainty(z, context)
        return z[:, :0] if std is None else std

    with torch.no_grad():
        std = map_blocks(uncertainty, z, context)
        return Decoded(map_blocks(model.decode, z, context), std if std.shape[1] else None)

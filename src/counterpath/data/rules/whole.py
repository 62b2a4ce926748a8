"""Relations of whole numbers, which most rules are: mended in a few operations, whatever the number of rows.

A search mends few rows at a time, hundreds of times, so that what counts is how many operations it takes. All features
of a relation are tried side by side here; of numbers that need not be whole, `RuleSet` tries one after the other.
"""

from collections.abc import Container
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.axes import NumberAxis, on_grid, value_axis
from counterpath.data.encoding import Encoder
from counterpath.data.rules.expressions import DIGITS
from counterpath.data.rules.kinds import Relation
from counterpath.data.rules.values import TIE, FeatureReader

UNTOUCHED = 1.0
"""Of a range: what still is as it was is moved only where nothing else helps at less than this."""


@dataclass(frozen=True)
class WholeRelation:
    """left − right ≤ 0, or < 0, of features all whole numbers of which are legal.

    Attributes:
        reader: Of its features.
        factors: Of left − right; those of ≥ and > are turned round.
        constant: Likewise.
        strict: Whether it is < or >.
        free: Which of the features may be moved: those that are not derived.
        lower: The smallest legal number of each.
        upper: The largest one.
    """

    reader: FeatureReader
    factors: Float[Tensor, "k"]
    constant: float
    strict: bool
    free: Bool[Tensor, "k"]
    lower: Float[Tensor, "k"]
    upper: Float[Tensor, "k"]

    @classmethod
    def of(
        cls, encoder: Encoder, rule: Relation, derived: Container[str], device: torch.device
    ) -> "WholeRelation | None":
        """Of a bound relation; None if it is an equation, or about anything else."""
        by, constant = rule.coefficients
        axes = {name: value_axis(encoder.axes[encoder.position[name]]) for name in by}
        if rule.sign in ("==", "!=") or not all(map(_is_plain, axes.values())) or not all(by.values()):
            return None
        reader = FeatureReader.of(encoder, by, device)
        turned = -1.0 if rule.sign in (">", ">=") else 1.0
        ends = [(axes[name].lower, axes[name].upper) for name in reader.names]  # type: ignore[union-attr]
        lower, upper = torch.tensor(ends, dtype=torch.float64, device=device).T
        factors = torch.tensor([turned * by[name] for name in reader.names], dtype=torch.float64, device=device)
        free = torch.tensor([name not in derived for name in reader.names], device=device)
        return cls(reader, factors, turned * constant, rule.sign in ("<", ">"), free, lower, upper)

    def mended(
        self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"], lower: Tensor, upper: Tensor
    ) -> Float[Tensor, "n D"]:
        """Rows that break it with one feature moved; arguments as of `RuleSet.repair`.

        Of the features that can mend it alone the one that moves least, what has changed already before what has not;
        if none can, the one that leaves least to be mended.
        """
        columns, numbers = self.reader.columns, self.reader.numbers(x)
        terms = numbers * self.factors
        gap = terms.sum(1, keepdim=True) + self.constant
        tiny = DIGITS * (terms.abs().sum(1, keepdim=True) + abs(self.constant))
        aim = gap + TIE * (1 + gap.abs()) if self.strict else gap
        number = numbers - aim / self.factors
        tie = TIE * (1 + number.abs())
        number = torch.where(self.factors < 0, (number - tie).ceil(), (number + tie).floor())
        points = on_grid(self.reader.points(number.clamp(self.lower, self.upper)), x.dtype)
        points = points.clamp(lower[:, columns], upper[:, columns]).to(x.dtype)
        now = x[:, columns]
        left = gap + self.factors * (self.reader.numbers_at(points) - numbers)
        good = (left < -tiny if self.strict else left <= tiny) & self.free
        moved = (points - now).abs().double() + UNTOUCHED * ~self.reader.changed(x, origin)
        some = good.any(1, keepdim=True)
        price = torch.where(some, moved.masked_fill(~good, torch.inf), left.abs().masked_fill(~self.free, torch.inf))
        best = price.argmin(1, keepdim=True)
        chosen = torch.where(self.free[best], points.gather(1, best), now.gather(1, best))
        return x.scatter(1, columns[best], chosen)


def _is_plain(axis: object) -> bool:
    """Whether all whole numbers between its ends are legal."""
    return isinstance(axis, NumberAxis) and axis.whole and axis.grid.plain

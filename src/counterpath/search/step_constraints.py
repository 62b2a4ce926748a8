"""What every step of a search has to respect: where it starts, what may not be passed, and what costs to change.

All of it is part of the step. To a decoded row the residual of the factual row's reconstruction is added, in logits, so
that a search starts at the factual row and its rows stay legal. With g = ∇f and A the Jacobian of the columns that are
at a bound, the step is the solution of

    min over s of  gᵀs + ½ sᵀMs + Σⱼ κⱼ|aⱼᵀs|   explained to  Aₗs ≥ 0 (lower bounds), Aᵤs ≤ 0 (upper bounds),

where κⱼ is the cost of changing a column that still is as it was. In the dual there is one multiplier a column, within
an interval: [0, ∞) at a lower bound, (−∞, 0] at an upper one, all numbers for a column that may not move, and [−κ, κ]
for one that costs more. The metric M stays as it is: a column that cannot move is not free of cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.geometry.metric import cholesky

_AT_BOUND = 1e-4  # a column that is this close to its bound is at it: below what rounding to legal values can tell
_GUESSES = 8  # active sets that are tried: they settle after a few, and a bound keeps the cost of a step fixed
_NO_GAIN = 1e-6  # a step that gains less of the objective than this share of the free step leads nowhere
_SURER = 0.1  # in logits, so that the factual category wins by more than rounding, yet can still be overtaken
_EDGE = 1e-3  # numbers are kept this far from 0 and 1, where logits are infinite: at most 7 in absolute value
_RIDGE = 1e-9  # keeps the system of linearly dependent bounds solvable, far below the precision of the multipliers
_TOLERANCE = 1e-7  # multipliers that are right up to this are right: float32 Jacobians know no better


@dataclass(frozen=True)
class StepConstraints:
    """What the steps of n rows have to respect.

    Attributes:
        factual: Where the rows start.
        lower: The least that each column may be.
        upper: The most.
        residual: What the factual row has beyond its reconstruction, as of `residual`.
        blocks: The columns of each category, as (first, last + 1).
        squashed: Numbers are between 0 and 1, and residuals are added to their logits; else to themselves.
        bounded: Columns that a step must not take past a bound; the others are clipped.
        change_costs: κ of every column.
    """

    factual: Float[Tensor, "n D"]
    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    residual: Float[Tensor, "n D"]
    blocks: Sequence[tuple[int, int]] = ()
    squashed: bool = True
    bounded: Int[Tensor, "c"] | None = None
    change_costs: Float[Tensor, "D"] | None = None

    def at(self, rows: Int[Tensor, "m"]) -> "StepConstraints":
        """The constraints of some of the rows."""
        selected = {name: getattr(self, name)[rows] for name in ("factual", "lower", "upper", "residual")}
        return replace(self, **selected)

    def add_residual(self, decoded: Float[Tensor, "n D"], weight: Tensor | float = 1.0) -> Float[Tensor, "n D"]:
        """Decoded rows with the residual r, weighted: logit x = logit μ + r, and p ∝ p·exp(r) for categories."""
        residual = weight * self.residual
        if self.squashed:
            beyond = weight * (self.factual - self.factual.clamp(0, 1))
            moved = _stretch(torch.sigmoid(_logit(decoded) + residual)) + beyond
            whole = torch.where(self.residual == 0, decoded, moved)
        else:
            whole = decoded + residual
        for first, end in self.blocks:
            raised = decoded[:, first:end] * residual[:, first:end].exp()
            total = raised.sum(-1, keepdim=True).clamp_min(torch.finfo(raised.dtype).tiny)
            whole = torch.cat([whole[:, :first], raised / total, whole[:, end:]], dim=-1)
        return whole

    def clip(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """Rows within their bounds."""
        return x.clamp(self.lower, self.upper)

    def residual_jacobian(
        self, decoded: Float[Tensor, "n D"], added: Float[Tensor, "n D"], jac: Float[Tensor, "n D d"]
    ) -> Float[Tensor, "n D d"]:
        """The Jacobian by z of `added`, the decoded rows with their residual, before they are clipped."""
        plain = jac
        if self.squashed:
            before, after = _shrink(decoded), _shrink(added)
            steeper = after * (1 - after) / (before * (1 - before))
            jac = torch.where((self.residual == 0)[..., None], jac, steeper[..., None] * jac)
        for first, end in self.blocks:
            part, p = slice(first, end), added[:, first:end, None]
            relative = plain[:, part] / decoded[:, part, None].clamp_min(torch.finfo(decoded.dtype).tiny)
            mixed = p * (relative - (p * relative).sum(1, keepdim=True))
            jac = torch.cat([jac[:, :first], mixed, jac[:, end:]], dim=1)
        return jac

    def add_change_cost(self, x: Float[Tensor, "n D"], gradient: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """∂f/∂x with the cost of what has already been changed: κ·sign(x − x₀)."""
        if self.change_costs is None:
            return gradient
        away = x - self.factual
        return gradient + torch.where(away.abs() > _AT_BOUND, self.change_costs * away.sign(), 0)

    def project(
        self,
        direction: Float[Tensor, "n d"],
        metric: Float[Tensor, "n d d"],
        floor: float,
        gradient: Float[Tensor, "n d"],
        x: Float[Tensor, "n D"],
        jac: Float[Tensor, "n D d"],
    ) -> Float[Tensor, "n d"]:
        """The direction along the bounds, r = M⁻¹(g − Aᵀν), with the multipliers ν of the columns that are at them.

        It is 0 where no feasible direction leads down.
        """
        if self.bounded is None or len(self.bounded) == 0:
            return direction
        rows = jac[:, self.bounded].to(metric.dtype)
        toward = torch.cholesky_solve(rows.mT, cholesky(metric, floor)[0])  # M⁻¹Aᵀ
        push = (rows @ direction[..., None])[..., 0]  # A M⁻¹ g
        nu = _complementary(rows @ toward, push, *self._multipliers(x[:, self.bounded], self.bounded))
        projected = direction - (toward @ nu[..., None])[..., 0]
        before = (gradient.to(projected.dtype) * direction).sum(-1)
        gain = (gradient.to(projected.dtype) * projected).sum(-1)
        return torch.where((gain > _NO_GAIN * before)[:, None], projected, 0)

    def _multipliers(self, x: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The interval of each multiplier.

        g is positive where the column falls, so the multiplier of a lower bound is positive: it takes g away.
        """
        at_lower = x <= self.lower[:, columns] + _AT_BOUND
        at_upper = x >= self.upper[:, columns] - _AT_BOUND
        least, most = torch.zeros_like(x), torch.zeros_like(x)
        if self.change_costs is not None:
            still = (x - self.factual[:, columns]).abs() <= _AT_BOUND
            price = torch.where(still, self.change_costs[columns], 0)
            least, most = -price, price
        least = torch.where(at_upper, -torch.inf, least)
        return least.double(), torch.where(at_lower, torch.inf, most).double()


def _complementary(
    gram: Float[Tensor, "n c c"], push: Float[Tensor, "n c"], least: Float[Tensor, "n c"], most: Float[Tensor, "n c"]
) -> Float[Tensor, "n c"]:
    """ν within [least, most] with Kν = b, but for those at an end of their interval, where Kν − b points inward.

    A primal–dual active set: guess which are at an end, solve for the others, and guess again. Of all guesses the one
    is taken that is violated least; where more columns are at a bound than there are dimensions, that may be none.

    References:
        Hintermüller, Ito and Kunisch, "The primal-dual active set strategy as a semismooth Newton method", 2002.
    """
    size = gram.diagonal(dim1=-2, dim2=-1)
    moves = size > torch.finfo(torch.float32).tiny
    scale = torch.where(moves, size, 1)
    least, most = torch.where(moves, least, 0), torch.where(moves, most, 0)
    nu = torch.zeros_like(push).clamp(least, most)
    best, wrong = nu, torch.full_like(push[:, 0], torch.inf)
    for _ in range(_GUESSES):
        pushed = nu - ((gram @ nu[..., None])[..., 0] - push) / scale
        end = torch.where(pushed <= least, least, torch.where(pushed >= most, most, torch.nan))
        inner, end = end.isnan(), end.nan_to_num(0.0)
        both = (inner[:, :, None] & inner[:, None, :]).to(gram.dtype)
        ridge = torch.diag_embed(torch.where(inner, _RIDGE * scale, 1))
        right = torch.where(inner, push - (gram @ end[..., None])[..., 0], 0)
        nu = torch.where(inner, torch.linalg.solve_ex(gram * both + ridge, right[..., None])[0][..., 0], end)
        within = nu.clamp(least, most)
        slack = within - ((gram @ within[..., None])[..., 0] - push) / scale
        off = (within - slack.clamp(least, most)).abs().amax(-1)
        best, wrong = torch.where((off < wrong)[:, None], within, best), torch.minimum(off, wrong)
        if not bool((wrong > _TOLERANCE).any()):
            break
    return best


def residual(
    factual: Float[Tensor, "n D"],
    decoded: Float[Tensor, "n D"],
    blocks: Sequence[tuple[int, int]] = (),
    *,
    squashed: bool = True,
) -> Float[Tensor, "n D"]:
    """r, such that decoded rows with it are the factual rows.

    Of a category only so much that it is the most probable one: what is beyond that would keep it from ever changing.
    """
    found = _logit(factual) - _logit(decoded) if squashed else factual - decoded
    for first, end in blocks:
        found[:, first:end] = _category_residual(factual[:, first:end], decoded[:, first:end])
    return found


def _category_residual(factual: Tensor, decoded: Tensor) -> Tensor:
    """Added to log probabilities: as much as it takes for the factual category to be the most probable."""
    smallest = torch.finfo(decoded.dtype).tiny
    own = (factual * decoded).sum(-1, keepdim=True).clamp_min(smallest)
    missing = (decoded.amax(-1, keepdim=True).clamp_min(smallest) / own).log()
    return torch.where(missing > 0, factual * (missing + _SURER), 0)


def _logit(x: Tensor) -> Tensor:
    inside = _shrink(x)
    return (inside / (1 - inside)).log()


def _shrink(x: Tensor) -> Tensor:
    """[0, 1] to an interval whose ends have finite logits."""
    return _EDGE + (1 - 2 * _EDGE) * x.clamp(0, 1)


def _stretch(x: Tensor) -> Tensor:
    return (x - _EDGE) / (1 - 2 * _EDGE)

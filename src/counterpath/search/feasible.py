"""The feasible set: what each row may become, within which bounds and with which columns fixed.

Every step of a search respects it: where it starts, what may not be passed, and what costs to change. All of it is part
of the step. To a decoded row the residual of the factual row's reconstruction is added, in logits, so that a search
starts at the factual row and its rows stay legal. With g = ∇f and A the Jacobian of the columns that are at a bound,
the step is the solution of

    min over s of  gᵀs + ½ sᵀMs + Σⱼ κⱼ|aⱼᵀs|   subject to  Aₗs ≥ 0 (lower bounds), Aᵤs ≤ 0 (upper bounds),

where κⱼ is the cost of changing a column that still is as it was. In the dual there is one multiplier a column, within
an interval: [0, ∞) at a lower bound, (−∞, 0] at an upper one, all numbers for a column that may not move, and [−κ, κ]
for one that costs more. The metric M stays as it is: a column that cannot move is not free of cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.constraints import Bounds
from counterpath.data.encoding import Encoder
from counterpath.data.rules.ruleset import RuleSet
from counterpath.geometry.metric import cholesky
from counterpath.models.effects import Effects
from counterpath.models.latent import membership

_AT_BOUND = 1e-4  # a column that is this close to its bound is at it: below what rounding to legal values can tell
_GUESSES = 8  # active sets that are tried: they settle after a few, and a bound keeps the cost of a step fixed
_NO_GAIN = 1e-6  # a step that gains less of the objective than this share of the free step leads nowhere
_SURER = 0.1  # in logits, so that the factual category wins by more than rounding, yet can still be overtaken
_EDGE = 1e-3  # numbers are kept this far from 0 and 1, where logits are infinite: at most 7 in absolute value
_COUPLED = 2  # rounds in which what a rule couples with a change moves along: at once, and what goes with that
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
        origin: The rows as they are, as of `FeasibleSet`; by default where they start.
        rules: What rows keep to, as of `FeasibleSet`.
    """

    factual: Float[Tensor, "n D"]
    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    residual: Float[Tensor, "n D"]
    blocks: Sequence[tuple[int, int]] = ()
    squashed: bool = True
    bounded: Int[Tensor, "c"] | None = None
    change_costs: Float[Tensor, "D"] | None = None
    origin: Float[Tensor, "n D"] | None = None
    rules: RuleSet | None = None

    def at(self, rows: Int[Tensor, "m"]) -> "StepConstraints":
        """The constraints of some of the rows."""
        selected = {name: getattr(self, name)[rows] for name in ("factual", "lower", "upper", "residual")}
        return replace(self, **selected, origin=None if self.origin is None else self.origin[rows])

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


_FAR = 1e9  # beyond every encoded value, yet finite in float32: rounding it gives the ends of the legal range
_NATS_PER_COST = 1.0
"""What changing a feature over its whole range must gain, in nats, for every unit of cost beyond 1: one nat is a
factor of e in the odds, so that a feature of cost 2 changes only where it pays in the classifier's own currency."""


@dataclass(frozen=True)
class FeasibleSet:
    """The rows that each of n factual rows may become.

    A row that is outside its bounds, because it has to enter a range, starts at the nearest row inside: searches know
    no other, and never leave the bounds again. `Validator.from_origin` puts the row as it is before its path.

    Attributes:
        encoder: Knows what a legal row is.
        factual: The rows where searches start, encoded: the rows as they are, or where they enter their bounds.
        lower: The least that each column may be.
        upper: The most.
        fixed: Columns that stay as they are; the generative model is conditioned on them.
        bounded: Columns with a bound that was asked for.
        feature_costs: What changing each column costs, from 1.
        origin: The rows as they are.
        rules: What every row keeps to. A row that breaks a rule as it is starts at a near one that does not, as one
            that has to enter a range; where there is none, `lawful` says so.
        effects: What follows from changes.
        confidences: What the probability of the target must reach for each row, where rows ask for their own; NaN for
            the model's own decision.
        plan_counts: How many plans each row asks for, where rows differ in that.
        ways: Which rows ask for the way to their end, where rows differ in that.
    """

    encoder: Encoder
    factual: Float[Tensor, "n D"]
    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    fixed: Bool[Tensor, "n D"]
    bounded: Bool[Tensor, "D"]
    feature_costs: Float[Tensor, "D"]
    origin: Float[Tensor, "n D"]
    rules: RuleSet | None = None
    effects: Effects | None = None
    confidences: Float[Tensor, "n"] | None = None
    plan_counts: Int[Tensor, "n"] | None = None
    ways: Bool[Tensor, "n"] | None = None

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        factual: Float[Tensor, "n D"],
        bounds: Bounds | None = None,
        feature_costs: Float[Tensor, "D"] | None = None,
        *,
        immutable: bool = True,
        like: Float[Tensor, "n D"] | None = None,
        rules: RuleSet | None = None,
        effects: Effects | None = None,
    ) -> "FeasibleSet":
        """Legal rows with the immutable features fixed, if they are to be, within bounds if there are any.

        A factual value that no legal row has, because the training rows do not go so far, may stay.

        Args:
            encoder: Knows what a legal row is.
            factual: The rows as they are.
            bounds: Between what they must end.
            feature_costs: What changing each column costs.
            immutable: Whether the schema's immutable features are fixed.
            like: Rows with probabilities of categories, the highest of which a row enters whose own is not allowed; by
                default the first that is allowed.
            rules: What every row keeps to.
            effects: What follows from changes.
        """
        low, high = _legal_range(encoder, factual)
        lower, upper = factual.minimum(low), factual.maximum(high)
        if bounds is not None:
            lower, upper = lower.maximum(bounds.lower), upper.minimum(bounds.upper)
        for first, stop in encoder.blocks:  # where one category is a must, the others are out of the question
            must = (lower[:, first:stop] > 0).any(-1, keepdim=True)
            upper[:, first:stop] = torch.where(must, lower[:, first:stop], upper[:, first:stop])
        gaps = list(encoder.gaps.values())
        upper[:, gaps] = factual[:, gaps]  # nobody is advised to leave something out
        fixed = torch.zeros_like(factual[0], dtype=torch.bool)
        fixed[encoder.columns(*encoder.schema.immutable) if immutable else []] = True
        feasible = cls(
            encoder,
            factual if bounds is None else _entered(encoder, factual, lower, upper, like),
            lower,
            upper,
            torch.zeros_like(factual, dtype=torch.bool),
            torch.zeros_like(fixed) if bounds is None else _bounded(bounds),
            torch.ones_like(factual[0]) if feature_costs is None else feature_costs.to(factual),
            factual,
            rules,
            effects,
        )
        fixed = fixed & ~feasible.following
        feasible = feasible.fix(fixed.expand_as(factual) if bounds is None else bounds.locked | fixed)
        return feasible if rules is None else replace(feasible, factual=feasible.legal(feasible.factual, own=True))

    def __len__(self) -> int:
        return len(self.factual)

    def at(self, rows: Tensor) -> "FeasibleSet":
        """The feasible set of some rows, by indices or a mask."""
        by_row = ("factual", "lower", "upper", "fixed", "origin")
        names = (*by_row, "confidences", "plan_counts", "ways")
        there: dict[str, Any] = {name: getattr(self, name) for name in names}
        some: dict[str, Any] = {name: None if each is None else each[rows] for name, each in there.items()}
        return replace(self, **some)

    def repeat(self, count: int) -> "FeasibleSet":
        """Every row `count` times, one after another."""
        return self.at(torch.arange(len(self), device=self.factual.device).repeat_interleave(count))

    def groups(self) -> list[Int[Tensor, "m"]]:
        """Indices of rows that may become the same rows, group by group."""
        member = torch.cat([self.lower, self.upper], 1).unique(dim=0, return_inverse=True)[1]
        return [(member == number).nonzero()[:, 0] for number in range(int(member.max()) + 1)] if len(self) else []

    @property
    def following(self) -> Bool[Tensor, "D"]:
        """The columns of features that follow from others: nobody changes them, and they cannot be fixed."""
        return self.columns(self.followers[None])[0]

    @property
    def followers(self) -> Bool[Tensor, "f"]:
        """The features that always follow from others: derived ones, and effects that people cannot change."""
        found = torch.zeros(len(self.encoder.layout), dtype=torch.bool)
        for each in (self.rules, self.effects):
            found = found if each is None else found | each.followers
        return found.to(self.factual.device)

    @property
    def ruled(self) -> bool:
        """Whether there are rules or effects."""
        return self.rules is not None or self.effects is not None

    @property
    def lawful(self) -> Bool[Tensor, "n"]:
        """Which rows keep to all rules where searches start."""
        if self.rules is None:
            return torch.ones_like(self.factual[:, 0], dtype=torch.bool)
        return self.rules.hold(self.factual, self.origin)

    def actions(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Bool[Tensor, "p f"]:
        """The features that change to become these rows, without those that follow; `row` as in `legal`."""
        origin = self.origin if row is None else self.origin[row]
        changed = self.encoder.changed(origin, x)
        if self.effects is not None:
            changed &= ~self.effects.follows(x, origin)
        return changed & ~self.followers if self.ruled else changed

    def fix(self, columns: Bool[Tensor, "n D"]) -> "FeasibleSet":
        """The same with further columns fixed."""
        columns = columns & ~self.following if self.ruled else columns
        lower, upper = (torch.where(columns, self.factual, bound) for bound in (self.lower, self.upper))
        return replace(self, lower=lower, upper=upper, fixed=self.fixed | columns)

    def keep_gaps(self) -> "FeasibleSet":
        """The same with every feature fixed that is missing: the generative model is conditioned on that."""
        missing = torch.zeros(len(self), len(self.encoder.schema), dtype=torch.bool, device=self.factual.device)
        for feature, column in self.encoder.gaps.items():
            missing[:, feature] = self.factual[:, column] > 0
        return self.fix(self.columns(missing)) if bool(missing.any()) else self

    @property
    def way(self) -> "FeasibleSet":
        """What the rows may be on the way from where they are: the bounds, and all between them and the rows."""
        lower, upper = self.lower.minimum(self.origin), self.upper.maximum(self.origin)
        return replace(self, factual=self.origin, lower=lower, upper=upper)

    @property
    def entering(self) -> Bool[Tensor, "n D"]:
        """The columns of features that rows change to enter their bounds."""
        return self.columns(self.features(self.origin != self.factual))

    def contains(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"]) -> Bool[Tensor, "p"]:
        """Which points are within the bounds of their rows."""
        return ((x >= self.lower[row]) & (x <= self.upper[row])).all(-1)

    @cached_property
    def unconstrained(self) -> bool:
        """Whether there is nothing to respect but what is legal."""
        return not self.ruled and not (bool(self.fixed.any()) or bool(self.bounded.any()))

    @cached_property
    def anchor(self) -> Float[Tensor, "n D"]:
        """What changes are counted from: where searches start; of rows that start mended, the values they had before.

        Which of several mends a row starts with is arbitrary: with what else changes, another one may cost less.
        """
        if self.rules is None:
            return self.factual
        within = (self.origin >= self.lower) & (self.origin <= self.upper)
        return torch.where(self.columns(~self.features(~within)), self.origin, self.factual)

    @cached_property
    def _member(self) -> Float[Tensor, "f D"]:
        """Row f is 1 in the columns of feature f."""
        return membership(self.encoder.layout, self.encoder.width).to(self.factual)

    def columns(self, features: Bool[Tensor, "n f"]) -> Bool[Tensor, "n D"]:
        """The columns of features."""
        return features.to(self._member.dtype) @ self._member > 0

    def features(self, columns: Bool[Tensor, "n D"]) -> Bool[Tensor, "n f"]:
        """The features that have any of these columns."""
        return columns.to(self._member.dtype) @ self._member.T > 0

    @property
    def costs_of_features(self) -> Float[Tensor, "f"]:
        """What changing each feature costs."""
        return self.feature_costs[[columns.start for columns in self.encoder.layout]]

    def amounts(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"]) -> Float[Tensor, "p f"]:
        """What the change of each feature costs: `cost`, feature by feature."""
        amounts = (self.weights.square() * (x - self.anchor[row]).abs()) @ self._member.T
        if self.effects is not None:
            return amounts * self.actions(x, row)
        derived = self.rules is not None and self.rules.derived
        return amounts.masked_fill(self.followers, 0) if derived else amounts  # as `cost` has it

    def legal(
        self,
        x: Float[Tensor, "p D"],
        row: Int[Tensor, "p"] | None = None,
        *,
        own: bool = False,
        repair: bool = True,
    ) -> Float[Tensor, "p D"]:
        """The nearest feasible rows.

        Args:
            x: Any rows.
            row: To which row each belongs; by default one each.
            own: They are the rows themselves, or legal already: values that no legal row has may stay.
            repair: Move rows that break a rule to near ones that do not; else only what follows is recomputed.
        """
        if own and not repair and self.effects is None and (self.rules is None or not self.rules.derived):
            return x
        lower, upper, origin = ((each if row is None else each[row]) for each in (self.lower, self.upper, self.origin))
        found = x if own else legal(self.encoder, x, lower, upper, origin)
        if self.effects is not None:
            found = self.effects.propagate(found, origin, lower, upper)
        if self.rules is None:
            return found
        if repair:
            return self.rules.repair(found, origin, lower, upper)
        return self.rules.derive(found, lower, upper)

    def rounded(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"]) -> Float[Tensor, "p D"]:
        """The nearest legal rows within bounds, whatever follows and whatever the rules are."""
        return legal(self.encoder, x, self.lower[row], self.upper[row], self.origin[row])

    def settle(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"]) -> Float[Tensor, "p D"]:
        """Legal rows with what follows from them, moved to near ones that break no rule; `row` as in `legal`."""
        return self.legal(x, row, own=True) if self.ruled else x

    def settle_keeping(
        self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"], columns: Bool[Tensor, "p D"]
    ) -> Float[Tensor, "p D"]:
        """The same with some columns kept, so that what a rule couples with them moves along; where that can be."""
        if self.rules is None:
            return self.settle(x, row)
        origin, lower, upper = self.origin[row], self.lower[row], self.upper[row]
        if self.effects is not None:
            x = self.effects.propagate(x, origin, lower, upper)
        ends = torch.where(columns, x, lower), torch.where(columns, x, upper)
        found, bad = self.rules.try_repair(x, origin, *ends, rounds=_COUPLED)
        return found if len(bad) == 0 else found.index_copy(0, bad, self.settle(x[bad], row[bad]))

    def acted(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"]) -> Float[Tensor, "p D"]:
        """Rows as people act to become them: what follows is as it was, so that `settle` brings it anew.

        Else it would stay as it followed from something that is then changed, and be an action itself.
        """
        if self.effects is None:
            return x
        origin = self.origin[row]
        return torch.where(self.columns(self.effects.follows(x, origin)), origin, x)

    def step_constraints(
        self, decoded: Float[Tensor, "n D"], *, keep_residual: bool, squashed: bool, generative: bool, conditional: bool
    ) -> StepConstraints:
        """What every step has to respect, given the reconstructions of the rows.

        Args:
            decoded: The reconstructions.
            keep_residual: Start at the rows, not at their reconstructions.
            squashed: The model decodes numbers between 0 and 1.
            generative: It decodes categories as probabilities.
            conditional: It can be conditioned on fixed columns; else the step has to hold them.
        """
        hard, blocks = self.feature_costs > 1, self.encoder.blocks if generative else ()
        bounded = self.bounded & ~self.encoder.categorical.to(self.bounded.device) if blocks else self.bounded
        columns = bounded | hard | (False if conditional else self.fixed.any(0))
        missing = torch.zeros_like(decoded)
        if keep_residual:
            missing = residual(self.factual, decoded, blocks, squashed=squashed)
        missing = torch.where(self.fixed, 0, missing)
        for first, end in blocks:  # what is not allowed has no probability
            closed = self.upper[:, first:end] <= 0
            missing[:, first:end] = missing[:, first:end].masked_fill(closed & ~self.fixed[:, first:end], -_FAR)
        return StepConstraints(
            self.factual,
            self.lower,
            self.upper,
            missing,
            blocks,
            squashed,
            columns.nonzero()[:, 0] if bool(columns.any()) else None,
            _NATS_PER_COST * (self.feature_costs - 1) * self._plain_weights.square() if bool(hard.any()) else None,
            self.origin,
            self.rules,
        )

    def cost(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Float[Tensor, "p"]:
        """What becoming these rows costs: Σ ωⱼwⱼ²·|x'ⱼ − xⱼ|, with the feature costs ω; `row` as in `legal`."""
        weights = self.weights.square()
        if self.effects is not None:
            weights = weights * self.columns(self.actions(x, row))
        elif self.rules is not None and self.rules.derived:  # what follows costs nothing
            weights = torch.where(self.following, 0, weights)
        return (weights * (x - (self.anchor if row is None else self.anchor[row])).abs()).sum(-1)

    @property
    def weights(self) -> Float[Tensor, "D"]:
        """Of the columns in distances: what costs more to change is farther away."""
        return self._plain_weights * self.feature_costs.sqrt()

    @property
    def _plain_weights(self) -> Tensor:
        return self.encoder.weights.to(self.factual)


def legal(encoder: Encoder, x: Tensor, lower: Tensor, upper: Tensor, factual: Tensor) -> Tensor:
    """The nearest legal rows within bounds, which are legal values or the factual ones."""
    if encoder.blocks:
        closed = encoder.rounding(x.device).categorical & (upper <= 0)
        x = torch.where(closed, -1, x)
    found = encoder.round(x).clamp(lower, upper)
    for column, axis in encoder.personal:
        ends = (factual[:, column], lower[:, column], upper[:, column])
        found[:, column] = axis.legal(x[:, column], *ends)
    return encoder.rounding(x.device).settle(found)


def _entered(encoder: Encoder, factual: Tensor, lower: Tensor, upper: Tensor, like: Tensor | None) -> Tensor:
    """The nearest rows within bounds; a feature that is within them stays as it is, legal or not."""
    outside = (factual < lower) | (factual > upper)
    if not bool(outside.any()):
        return factual
    for columns in encoder.layout:
        outside[:, columns] = outside[:, columns].any(-1, keepdim=True)
    category = encoder.categorical.to(factual.device)
    nearest = factual if like is None else torch.where(outside & category, like, factual)
    return torch.where(outside, legal(encoder, nearest, lower, upper, factual), factual)


def _legal_range(encoder: Encoder, like: Tensor) -> tuple[Tensor, Tensor]:
    category, rounding = encoder.categorical.to(like.device), encoder.rounding(like.device)
    ends = torch.stack([torch.full_like(like[0], -_FAR), torch.full_like(like[0], _FAR)])
    ends[:, rounding.mixed + 1] = 2 * _FAR  # the ends of what may be a code are those of its values
    ends = encoder.round(ends)
    return torch.where(category, 0, ends[0]), torch.where(category, 1, ends[1])


def _bounded(bounds: Bounds) -> Tensor:
    """The columns with a bound that was asked for of any row."""
    asked = (bounds.lower > -torch.inf) | (bounds.upper < torch.inf)
    return (asked & ~bounds.locked).any(0)

"""Validity: what the explained model says about rows and along paths, and what may be returned.

A row is valid if the explained model itself predicts the target for it with the asked confidence, and it may be
returned: a row with a combination of values that nobody has may not, nor, without `allow_copies`, one that is equal to
a training row.

A valid row is plausible if it is no farther from the training rows than real rows are from each other.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.data.rules.ruleset import RuleSet
from counterpath.geometry.graph import Neighbours
from counterpath.models.effects import Effects
from counterpath.models.latent import LatentModel, context_for
from counterpath.search.combinations import Combinations
from counterpath.search.feasible import FeasibleSet, legal
from counterpath.search.measures import EQUAL
from counterpath.search.objective import Target, by_row
from counterpath.search.paths import Paths, is_first, merge, prepend
from counterpath.search.stability import Stability
from counterpath.search.step import Slope
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import MethodError

LIMIT_SHARE = 0.95
"""Of real rows that are plausible: one in twenty counts as far away, so that outliers do not set the limit."""
_ENTRY_STEPS = 5  # of the line by which a row enters its ranges, where that is all: as many as people would look at

IsValid = Callable[[Tensor, Tensor], Tensor]
"""Which rows are valid, given them and the factual row of each."""
IsPlausible = Callable[[Tensor, Tensor], Tensor]
"""Which rows are plausible enough, given them and the index of the counterfactual that each would replace."""


@dataclass(frozen=True)
class Plausibility:
    """The training rows, and how far from them held-out rows are.

    Attributes:
        neighbours: The training rows, or a sample of them.
        limit: The distance to the nearest of them that 95 % of held-out rows do not exceed.
        typical: The root mean square of that distance.
        all_rows: All training rows, where `neighbours` is a sample of them.
        distances: That distance of every held-out row, for other shares than 95 %.
    """

    neighbours: Neighbours
    limit: float
    typical: float
    all_rows: Neighbours | None = None
    distances: Float[Tensor, "h"] | None = None

    def at(self, share: float) -> float:
        """The distance that this share of the held-out rows do not exceed."""
        if share == LIMIT_SHARE or self.distances is None:
            return self.limit
        return float(self.distances.quantile(share))

    def distance(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """How far rows are from the nearest training row."""
        return self.neighbours.nearest(x)[0][:, 0]

    def within(
        self, x: Float[Tensor, "n D"], reach: Float[Tensor, "n"]
    ) -> tuple[Bool[Tensor, "n"], Float[Tensor, "n D"]]:
        """Which rows have a training row within reach, and one that is."""
        good, index = self.neighbours.within(x, reach)
        return good, self.neighbours.reference[index]

    def nearest(self, x: Float[Tensor, "n D"]) -> tuple[Float[Tensor, "n"], Float[Tensor, "n D"]]:
        """How far rows are from the nearest training row, and that row."""
        distance, index = self.neighbours.nearest(x)
        return distance[:, 0], self.neighbours.reference[index[:, 0]]

    def is_copy(self, x: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows are equal to a training row."""
        return (self.all_rows or self.neighbours).nearest(x)[0][:, 0] < EQUAL

    def no_farther_than(self, counterfactual: Float[Tensor, "n D"], distance: float) -> IsPlausible:
        """Rows that are no farther from the training rows than the counterfactuals are, or than some distance."""
        allowed = self.distance(counterfactual).clamp_min(distance)
        return lambda tried, index: self.distance(tried) <= allowed[index]


@dataclass(frozen=True)
class Validator:
    """Asks the explained model about rows and paths.

    Attributes:
        predict_proba: The explained model: legal encoded rows to the probability of every class.
        latent: The generative model, for codes and uncertainty of any row.
        target: What is to be predicted.
        plausibility: The training rows.
        allow_copies: Whether rows that are equal to a training row are valid.
        combinations: Which combinations of values there are; None for all.
        rules: What rows keep to.
        effects: What always follows from changes.
        stability: What an answer must survive.
    """

    predict_proba: Callable[[Tensor], Tensor]
    latent: LatentModel
    target: Target
    plausibility: Plausibility | None
    allow_copies: bool = True
    combinations: Combinations | None = None
    rules: RuleSet | None = None
    effects: Effects | None = None
    stability: Stability | None = None

    @property
    def needs_model_only(self) -> bool:
        """Whether validity depends on the model alone, and nothing else need be looked at."""
        return (self.allow_copies or self.plausibility is None) and self.stability is None

    def probability(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """How close rows are to the target: its probability, or what stands for it; see `Target.score`."""
        return self.target.score(self.predict_proba(x))

    def is_valid(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows are valid as counterfactuals of these."""
        return self._may_return(x, factual, self.target.is_reached(self.predict_proba(x)))

    def is_decided(self, x: Float[Tensor, "n D"], confidences: Float[Tensor, "n"] | None = None) -> Bool[Tensor, "n"]:
        """For which rows the model decides as asked, if they may be returned whatever their combination of values.

        Whether they last is asked afterwards; see `lasts`.

        Args:
            x: The rows.
            confidences: What is asked of each, as of `FeasibleSet`.
        """
        return self._no_copies(x, by_row(self.target, confidences).is_reached(self.predict_proba(x)))

    def lasts(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows, that the model accepts, survive what they have to."""
        if self.stability is None:
            return torch.ones(len(x), dtype=torch.bool, device=x.device)
        return self.stability.holds(x, factual, self.target, self.predict_proba)

    def is_possible(
        self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"], before: Int[Tensor, "n f"] | None = None
    ) -> Bool[Tensor, "n"]:
        """Which rows break no rule, and have no combination of values that nobody has but their factual row.

        Args:
            x: The rows.
            factual: Their factual rows.
            before: `Combinations.parts` of these, where they are known.
        """
        possible = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if self.combinations is not None:
            possible = self.combinations.allowed_among_many(x, factual, before)
        return possible & self.is_lawful(x, factual)

    def is_lawful(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows break no rule, and have all effects that always follow."""
        lawful = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for each in (self.rules, self.effects):
            lawful = lawful if each is None else lawful & each.hold(x, factual)
        return lawful

    def encode(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n d"]:
        """The codes of rows."""
        with torch.no_grad():
            return map_blocks(self.latent.encode, x)

    def paths(
        self,
        feasible: FeasibleSet,
        row: Int[Tensor, "p"],
        x: Float[Tensor, "p D"],
        reason: Int[Tensor, "n"],
        z: Float[Tensor, "p d"] | None = None,
    ) -> Paths:
        """Paths with what the model says along them.

        Args:
            feasible: What each row may become.
            row: To which row each point belongs.
            x: The points.
            reason: Why the search for each row stopped.
            z: The codes of the points; by default they are encoded.
        """
        codes = self.encode(x) if z is None else z
        with torch.no_grad():
            context = context_for(self.latent, x, feasible.fixed[row])
            sigma = map_blocks(lambda *where: _mean_std(self.latent, *where), codes, context)
        probabilities = self.predict_proba(x)
        target = by_row(self.target, None if feasible.confidences is None else feasible.confidences[row])
        valid, no = (
            self._may_return(x, feasible.origin[row], target.is_reached(probabilities)),
            torch.zeros_like(reason, dtype=torch.bool),
        )
        score = self.target.score(probabilities).to(x.dtype)
        return Paths(row, x, codes, sigma, score, valid, reason, no, no, no)

    def with_columns_fixed(self, feasible: FeasibleSet, paths: Paths, columns: Bool[Tensor, "n D"]) -> Paths:
        """The paths with some columns of each row as they were."""
        x = torch.where(columns[paths.row], feasible.factual[paths.row], paths.x)
        if feasible.ruled:
            x = torch.where(is_first(paths.row)[:, None], x, feasible.legal(x, paths.row, own=True))
        same = (x == paths.x).all(-1, keepdim=True)
        codes = torch.where(same, paths.z, self.encode(x))
        return self.paths(feasible, paths.row, x, paths.reason, codes).truncate().described_as(paths)

    def from_origin(self, feasible: FeasibleSet, paths: Paths) -> Paths:
        """The paths from the rows as they are, where these had to enter their bounds.

        The row as it is takes the place of the first point; where that is the counterfactual, a line leads to it.
        """
        rows = (feasible.origin != feasible.factual).any(-1)
        if not bool(rows.any()):
            return paths
        index, within, part = torch.arange(len(rows), device=rows.device), feasible.at(rows), paths.filter(rows)
        at_once = (torch.bincount(part.row, minlength=len(within)) == 1) & part.found
        rest = part.points(~is_first(part.row) | at_once[part.row])
        straight = at_once.nonzero()[:, 0].repeat_interleave(_ENTRY_STEPS - 1)
        share = torch.arange(1, _ENTRY_STEPS, device=rows.device).repeat(int(at_once.sum()))[:, None] / _ENTRY_STEPS
        between = torch.lerp(within.origin[straight], within.factual[straight], share)
        between = within.way.legal(between, straight, repair=False)
        row, x, z = (
            torch.cat(pair) for pair in ((straight, rest.row), (between, rest.x), (self.encode(between), rest.z))
        )
        order = row.argsort(stable=True)
        points = prepend(within.origin, self.encode(within.origin), row[order], x[order], z[order])
        whole = self.paths(within, points[0], points[1], part.reason, points[2]).described_as(part)
        return merge([(index[~rows], paths.filter(~rows)), (index[rows], whole)])

    def _may_return(self, x: Tensor, factual: Tensor, reached: Tensor) -> Tensor:
        if self.combinations is not None:
            reached = reached & self.combinations.allowed(x, factual)
        if self.rules is not None or self.effects is not None:
            reached = reached & self.is_lawful(x, factual)
        reached = self._no_copies(x, reached)
        if self.stability is None:
            return reached
        rows = reached.nonzero()[:, 0]
        return reached.index_copy(0, rows, self.lasts(x[rows], factual[rows]))

    def _no_copies(self, x: Tensor, reached: Tensor) -> Tensor:
        if self.allow_copies or self.plausibility is None:
            return reached
        return reached & ~self.plausibility.is_copy(x)


@dataclass(frozen=True)
class AtLegalRow:
    """Stop rule: the nearest legal row within the bounds is valid.

    Attributes:
        encoder: Knows what a legal row is.
        is_valid: Which legal rows are valid.
        never_waits: Whether `is_valid` never waits for the device, so that the search may be captured in a CUDA graph.
    """

    encoder: Encoder
    is_valid: IsValid
    never_waits: bool = False

    def __call__(self, here: Slope) -> Bool[Tensor, "n"]:
        """Which rows are done."""
        constraints = here.step_constraints
        assert constraints is not None
        origin = constraints.factual if constraints.origin is None else constraints.origin
        x = legal(self.encoder, here.x, constraints.lower, constraints.upper, origin)
        if constraints.rules is not None:
            x = constraints.rules.repair(x, origin, constraints.lower, constraints.upper)
        return self.is_valid(x, origin)


def without_broken(validator: Validator, feasible: FeasibleSet, paths: Paths) -> Paths:
    """The paths without points that break a rule, or lack an effect; their first points are what rows are, and stay.

    Where the end of a path that leads to no counterfactual breaks one, it ends before.
    """
    broken = torch.zeros_like(is_first(paths.row))
    for each in (validator.rules, validator.effects):
        if each is not None:
            broken |= ~each.hold(paths.x, feasible.origin[paths.row])
    broken &= ~is_first(paths.row)
    return paths.points(~broken) if bool(broken.any()) else paths


def check_paths(method: str, validator: Validator, feasible: FeasibleSet, paths: Paths) -> None:
    """Check what a method returned: one path a row that begins at it, stays feasible and ends where it says.

    Raises:
        MethodError: A path is not what it should be; the message names the method, the row and what is wrong.
    """
    count, first = len(feasible), is_first(paths.row)
    if len(paths.reason) != count or not torch.equal(paths.row[first], torch.arange(count, device=paths.row.device)):
        raise MethodError(
            f"method {method!r} returned paths of {len(paths.reason)} rows; expected one for each of {count}"
        )
    lower, upper = feasible.lower[paths.row], feasible.upper[paths.row]
    changed = paths.x != feasible.factual[paths.row]
    problems = {
        "starts elsewhere than at the row": first & changed.any(-1),
        "has numbers that are not finite": ~paths.x.isfinite().all(-1),
        "leaves the feasible set: a fixed feature, a bound or a direction": ((paths.x < lower) | (paths.x > upper)).any(
            -1
        ),
        "has a value that is neither legal nor the row's own": _is_nobody(
            validator, paths.x, (changed & (feasible.legal(paths.x, paths.row) != paths.x)).any(-1)
        ),
    }
    ends = paths.last[paths.found]
    invalid = torch.zeros_like(first)
    invalid[ends] = ~validator.is_valid(paths.x[ends], feasible.origin[paths.row[ends]])
    problems["ends at a row that is not valid, and calls it found"] = invalid
    for problem, where in problems.items():
        if bool(where.any()):
            row = int(paths.row[where][0])
            raise MethodError(f"method {method!r} returned a path that {problem} (row {row} of {count})")


def _is_nobody(validator: Validator, x: Float[Tensor, "p D"], illegal: Bool[Tensor, "p"]) -> Bool[Tensor, "p"]:
    """Which illegal rows are no training rows: the values of those may be finer than what is legal."""
    looked = (illegal & x.isfinite().all(-1)).nonzero()[:, 0]  # there is no row next to one that is not finite
    if validator.plausibility is None or len(looked) == 0:
        return illegal
    return illegal.index_copy(0, looked, ~validator.plausibility.is_copy(x[looked]))


def _mean_std(latent: LatentModel, z: Tensor, context: Tensor | None) -> Tensor:
    std = latent.uncertainty(z, context)
    return torch.zeros_like(z[:, 0]) if std is None else std.mean(-1)

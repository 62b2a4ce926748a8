"""Where a counterfactual may end: rows that are tried for everybody at once, and which of them are admissible.

Nobody is searched for alone. Candidates come from the training rows that the model accepts, each with the columns put
in that a person cannot change, and from other values of one or two features; the explained model is asked about all of
them in batches. What makes one admissible is the same for everybody: it is feasible, valid, possible and plausible.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.axes import MixedAxes
from counterpath.data.encoding import Encoder
from counterpath.search.feasible import FeasibleSet
from counterpath.search.measures import EQUAL
from counterpath.search.method import Problem
from counterpath.search.objective import by_confidence, by_row
from counterpath.search.validity import Validator
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import choose

NEAREST_ACCEPTED = 48
"""Accepted training rows that are looked at for each row, the nearest: with fewer, some have none that is plausible."""
SEEDS = 24
"""Admissible ones of these that are kept, the cheapest: on validation rows more hardly lower the cost."""
NEARLY_ACCEPTED = 2_000
"""Training rows that are not accepted which are looked at where all else is in vain, those that lack least: what a
person cannot change moves the probability a little, and to ask about all of a large table takes too long."""
MOST_VALUES = 50
"""Values of a feature on the grid over which searches are complete: all that were observed, or so many quantiles."""
COARSE_VALUES = 16
"""Values of a number that are tried for everybody: on validation rows 24 lower the cost by less than 0.5 %."""
POOL_ROWS = 50_000
"""Accepted training rows that candidates are taken from; of more, a sample: it bounds time and memory."""
TRIALS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 22}
"""Rows that are asked about at once: they and what is computed from them fit the memory of a small machine."""


@dataclass(frozen=True)
class Candidates:
    """Rows that may be the ends of n rows, several for each.

    Attributes:
        row: To which row each belongs, in ascending order.
        x: The candidates.
        near: A training row that is close to each: as long as a candidate stays within reach of it, it is plausible.
    """

    row: Int[Tensor, "q"]
    x: Float[Tensor, "q D"]
    near: Float[Tensor, "q D"]

    def __len__(self) -> int:
        return len(self.row)

    def at(self, which: Tensor) -> "Candidates":
        """Some of them, by indices or a mask."""
        return Candidates(self.row[which], self.x[which], self.near[which])

    def join(self, other: "Candidates") -> "Candidates":
        """These and others, row after row."""
        row = torch.cat([self.row, other.row])
        order = row.argsort(stable=True)
        x, near = torch.cat([self.x, other.x]), torch.cat([self.near, other.near])
        return Candidates(row[order], x[order], near[order])

    def cheapest(self, cost: Float[Tensor, "q"], count: int = 1) -> "Candidates":
        """Of each row the `count` that cost least, cheapest first; of equal ones the first."""
        order, rank = _ranked(self.row, cost)
        return self.at(order[rank < count])


def _ranked(row: Int[Tensor, "q"], cost: Float[Tensor, "q"]) -> tuple[Int[Tensor, "q"], Int[Tensor, "q"]]:
    """Indices in order of row and cost, and which in its row each of them then is, from 0."""
    order = cost.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row[order])
    starts = counts.cumsum(0) - counts
    return order, torch.arange(len(row), device=row.device) - starts[row[order]]


def l1_cost(feasible: FeasibleSet, x: Tensor, row: Tensor) -> Float[Tensor, "q"]:
    """Σ ωⱼwⱼ²·|x'ⱼ − xⱼ|, with the feature costs ω."""
    return feasible.cost(x, row)


def l2_cost(feasible: FeasibleSet, x: Tensor, row: Tensor) -> Float[Tensor, "q"]:
    """Σ ωⱼwⱼ²·(x'ⱼ − xⱼ)²."""
    return (feasible.weights * (x - feasible.anchor[row])).square().sum(-1)


def l0_cost(feasible: FeasibleSet, x: Tensor, row: Tensor) -> Float[Tensor, "q"]:
    """Σ ωₖ over the features that change; between as many changes the smaller ones, by L1, decide."""
    changed = feasible.features(x != feasible.anchor[row]).to(x.dtype)
    return changed @ feasible.costs_of_features + _TIE * feasible.cost(x, row)


_TIE = 1e-3  # of L1 beside L0: even the largest L1, one for each of a thousand features, counts less than one feature

COSTS: dict[str, Callable[[FeasibleSet, Tensor, Tensor], Tensor]] = {"l1": l1_cost, "l2": l2_cost, "l0": l0_cost}
"""What makes a counterfactual close, by name: the cost of becoming it."""


@dataclass(frozen=True)
class Admissible:
    """Says which candidates may be counterfactuals, and what they cost.

    Attributes:
        feasible: What each row may become.
        validator: Asks the model.
        reach: How far from the training rows each row may end; infinite where nothing is known of them.
        near: A training row that is close to each row: the nearest one.
        max_changes: How many features may change.
        closeness: A key of `COSTS`.
        seen_valid: For which rows anything valid was asked about so far, however far from the data. It is kept as
            candidates are asked about: where all of a source was in vain, nobody need look through it again.
        parts: `Combinations.parts` of each row, which all its candidates are compared with.
    """

    feasible: FeasibleSet
    validator: Validator
    reach: Float[Tensor, "n"]
    near: Float[Tensor, "n D"]
    max_changes: int | None
    closeness: str
    seen_valid: Bool[Tensor, "n"]
    parts: Int[Tensor, "n f"] | None = None

    @classmethod
    def of(cls, problem: Problem) -> "Admissible":
        """What the rows of a problem may become: as plausible as real rows, or as they themselves are."""
        options, plausibility, feasible = problem.options, problem.setup.plausibility, problem.feasible
        choose("closeness", options.closeness, COSTS)
        reach, near = torch.full_like(feasible.factual[:, 0], torch.inf), feasible.origin
        if plausibility is not None:
            distance, near = plausibility.nearest(feasible.origin)
            reach = distance.clamp_min(plausibility.at(options.plausibility))
        nobody, validator = torch.zeros_like(reach, dtype=torch.bool), problem.validator
        parts = None if validator.combinations is None else validator.combinations.parts(feasible.origin)
        if validator.stability is not None and validator.stability.members is not None:
            validator = replace(validator, stability=validator.stability.on_the_way())
        return cls(feasible, validator, reach, near, problem.max_changes, options.closeness, nobody, parts=parts)

    def anywhere(self) -> "Admissible":
        """The same, plausible or not."""
        return replace(self, reach=torch.full_like(self.reach, torch.inf))

    def advantage(self, x: Float[Tensor, "q D"]) -> Float[Tensor, "q"]:
        """The log odds of the target, or what stands for them; or those of lasting, where they are asked and lower."""
        target, stability = self.validator.target, self.validator.stability
        odds = target.advantage(self.validator.predict_proba(x))
        if stability is not None and stability.members is not None:
            odds = odds.minimum(stability.advantage(x, target) + target.enough(odds))
        return odds.to(x.dtype)

    def cost(self, x: Float[Tensor, "q D"], row: Int[Tensor, "q"]) -> Float[Tensor, "q"]:
        """What becoming candidates costs."""
        return COSTS[self.closeness](self.feasible, x, row)

    def __call__(
        self, x: Float[Tensor, "q D"], row: Int[Tensor, "q"], near: Float[Tensor, "q D"] | None = None
    ) -> tuple[Bool[Tensor, "q"], Float[Tensor, "q D"]]:
        """Which legal candidates are admissible, and for each of these a training row that is close to it.

        What takes little time is asked first. The training rows are looked through only where `near`, one of them, is
        not close enough itself; by default the one next to the factual row.
        """
        validator, near = self.validator, self.near[row] if near is None else near
        good = _narrow(self.is_open(x, row), lambda some: validator.is_decided(x[some], self._asked(row[some])))
        self.seen_valid[row[good]] = True
        good, near = self.among_data(good, x, row, near)
        return self.lasts(good, x, row), near

    def among_data(
        self, good: Bool[Tensor, "q"], x: Float[Tensor, "q D"], row: Int[Tensor, "q"], near: Float[Tensor, "q D"]
    ) -> tuple[Bool[Tensor, "q"], Float[Tensor, "q D"]]:
        """Which of the candidates that are good so far are plausible, too, and a training row that is close to each."""
        plausibility, reach = self.validator.plausibility, self.reach[row]
        if plausibility is None:
            return good, near
        looked = (good & ~self.is_near(x, row, near) & reach.isfinite()).nonzero()[:, 0]
        if len(looked):
            within, there = plausibility.within(x[looked], reach[looked])
            good = good.index_copy(0, looked, within)
            near = near.index_copy(0, looked, there)
        return good, near

    def lasts(self, good: Bool[Tensor, "q"], x: Float[Tensor, "q D"], row: Int[Tensor, "q"]) -> Bool[Tensor, "q"]:
        """Those that last, too: asked last, because it takes most time."""
        validator, origin = self.validator, self.feasible.origin
        if validator.stability is None:
            return good
        return _narrow(good, lambda some: validator.lasts(x[some], origin[row[some]]))

    def is_open(self, x: Float[Tensor, "q D"], row: Int[Tensor, "q"]) -> Bool[Tensor, "q"]:
        """Which legal candidates rows may become, whatever the model says and however far from the data."""
        feasible, validator = self.feasible, self.validator
        good = ((x >= feasible.lower[row]) & (x <= feasible.upper[row])).all(-1)
        if self.max_changes is not None:
            changed = feasible.features(x != feasible.origin[row])
            changed = changed & feasible.actions(x, row) if feasible.ruled else changed
            good &= changed.sum(-1) <= self.max_changes
        return _narrow(
            good, lambda some: validator.is_possible(x[some], feasible.origin[row[some]], self._before(row[some]))
        )

    def _asked(self, row: Int[Tensor, "q"]) -> Float[Tensor, "q"] | None:
        """The confidences that candidates of rows must reach, where rows ask for their own."""
        return None if self.feasible.confidences is None else self.feasible.confidences[row]

    def enough(self, like: Float[Tensor, "q"], row: Int[Tensor, "q"]) -> Tensor:
        """The advantage from which on the target of rows is reached, as such a tensor."""
        return by_row(self.validator.target, self._asked(row)).enough(like)

    def _before(self, row: Int[Tensor, "q"]) -> Int[Tensor, "q f"] | None:
        """Which parts of the features the rows of candidates have."""
        return None if self.parts is None else self.parts[row]

    def is_near(self, x: Float[Tensor, "q D"], row: Int[Tensor, "q"], near: Float[Tensor, "q D"]) -> Bool[Tensor, "q"]:
        """Which candidates have a given training row within reach."""
        weights = self.feasible.encoder.weights.to(x)
        apart = (x * weights).double() - (near * weights).double()  # to the bit as it is looked up
        distance: Tensor = apart.norm(dim=-1)
        return distance.to(x.dtype) <= self.reach[row]

    def at_once(self) -> "Admissible":
        """The same, whether rows last or not: for sources with so many candidates that only the cheapest are asked."""
        return replace(self, validator=replace(self.validator, stability=None))

    def lasting(self, found: Candidates, count: int) -> Candidates:
        """Of candidates that are admissible but for that, the `count` cheapest that last.

        The cheapest are asked first, and more of them only for rows that have none yet.
        """
        if self.validator.stability is None:
            return found.cheapest(self.cost(found.x, found.row), count)
        order, rank = _ranked(found.row, self.cost(found.x, found.row))
        found, first, best = found.at(order), 0, no_candidates(self.feasible)
        for last in _ASKED_AT_ONCE:
            some = (rank >= first) & (rank < last) & ~torch.isin(found.row, best.row)
            tried = found.at(some)
            lasts = self.lasts(torch.ones_like(tried.row, dtype=torch.bool), tried.x, tried.row)
            best, first = best.join(tried.at(lasts)), last
        return best.cheapest(self.cost(best.x, best.row), count)

    def admit(
        self, x: Float[Tensor, "q D"], row: Int[Tensor, "q"], near: Float[Tensor, "q D"] | None = None
    ) -> Candidates:
        """Those of some legal candidates that are admissible."""
        good, near = self(x, row, near)
        return Candidates(row[good], x[good], near[good])


def _narrow(good: Bool[Tensor, "q"], test: Callable[[Tensor], Tensor]) -> Bool[Tensor, "q"]:
    """Those that are good so far and pass a test, which is asked about them alone, by their indices."""
    index = good.nonzero()[:, 0]
    return good if len(index) == 0 else good.index_copy(0, index, test(index))


@dataclass(frozen=True)
class ValueTable:
    """The values of all features, one after another, as rows to put them in from.

    Attributes:
        rows: Each value in the columns of its feature.
        feature: Of which feature each is.
        columns: The columns of that feature.
        first: Where the values of each feature begin, and after the last one where they end.
    """

    rows: Float[Tensor, "v D"]
    feature: Int[Tensor, "v"]
    columns: Bool[Tensor, "v D"]
    first: tuple[int, ...]

    @classmethod
    def of(cls, encoder: Encoder, values: tuple[Float[Tensor, "_ _"], ...]) -> "ValueTable":
        """Of the values of each feature, as of `feature_values`."""
        sizes = [len(each) for each in values]
        rows = torch.zeros(sum(sizes), encoder.width).to(values[0])
        mask, first = torch.zeros_like(rows, dtype=torch.bool), [0]
        for columns, each in zip(encoder.layout, values, strict=True):
            rows[first[-1] : first[-1] + len(each), columns] = each
            mask[first[-1] : first[-1] + len(each), columns] = True
            first.append(first[-1] + len(each))
        feature = torch.arange(len(values)).repeat_interleave(torch.tensor(sizes)).to(rows.device)
        return cls(rows, feature, mask, tuple(first))


@dataclass(frozen=True)
class Sources:
    """What candidates are made from, once for all requests.

    Attributes:
        rows: Training rows, or a sample of them.
        probabilities: What the explained model says about these.
        coarse: Some values of every feature.
        fine: All that a complete search tries.
    """

    rows: Float[Tensor, "m D"]
    probabilities: Float[Tensor, "m K"]
    coarse: ValueTable
    fine: ValueTable

    @classmethod
    def of(cls, encoder: Encoder, rows: Float[Tensor, "n D"], probabilities: Float[Tensor, "n K"]) -> "Sources":
        """From training rows, in the order of a fixed draw."""
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
        chosen = order[:POOL_ROWS]
        if len(rows) > POOL_ROWS:  # a high confidence needs rows of which the model is sure
            both = torch.cat([probabilities, -probabilities], 1) if probabilities.shape[1] == 1 else probabilities
            chosen = torch.cat([chosen, both.topk(_SUREST, dim=0).indices.flatten().to(chosen)]).unique()
        rows, probabilities = rows[chosen], probabilities[chosen]
        coarse = feature_values(encoder, rows, COARSE_VALUES, spread=True)
        fine = feature_values(encoder, rows, MOST_VALUES)
        return cls(rows, probabilities, ValueTable.of(encoder, coarse), ValueTable.of(encoder, fine))


_ASKED_AT_ONCE = 8, 64, 512
"""How many candidates of a row are asked at a time whether they last, the cheapest first; beyond that none does."""
_BEYOND = 1e6  # more than any squared distance: rows out of reach come after all that are within it
_SUREST = 500  # rows of every class that are candidates anyway: as many as a percent of the others


def feature_values(
    encoder: Encoder, rows: Float[Tensor, "n D"], most: int, *, spread: bool = False
) -> tuple[Float[Tensor, "_ _"], ...]:
    """For every feature its values as encoded columns: all categories and codes; of numbers all, or `most` quantiles.

    Args:
        encoder: Knows the features.
        rows: Training rows.
        most: How many different values a number may have before quantiles are taken.
        spread: Take rare values, too, instead of half of the quantiles.
    """
    legal, found, thin = encoder.round(rows), [], _spread if spread else _quantiles
    for axis, columns in zip(encoder.axes, encoder.layout, strict=True):
        values = legal[:, columns]
        if axis.width == 1:
            found.append(thin(values[:, 0], most)[:, None])
        elif isinstance(axis, MixedAxes):
            states, is_value = values.unique(dim=0), values[:, 1] > 0
            numbers = thin(values[is_value, 0], most) if bool(is_value.any()) else values[:0, 0]
            mixed = torch.zeros(len(numbers), axis.width).to(values)
            mixed[:, 0], mixed[:, 1] = numbers, 1
            found.append(torch.cat([mixed, states[states[:, 1] == 0]]))
        else:
            found.append(values.unique(dim=0))
    return tuple(found)


def _quantiles(values: Float[Tensor, "n"], most: int) -> Float[Tensor, "v"]:
    """So many quantiles of numbers, without repetition; all numbers if they are no more."""
    different: Tensor = values.unique()
    return different if len(different) <= most else _at_even_ranks(values.sort().values, most).unique()


def _spread(values: Float[Tensor, "n"], most: int) -> Float[Tensor, "v"]:
    """Half of them quantiles of all numbers, the others at even ranks of the different ones.

    Quantiles alone leave out what is rare: where nine of ten people have no capital gain, they are 0 and the greatest.
    """
    different: Tensor = values.unique()
    if len(different) <= most:
        return different
    usual = _at_even_ranks(values.sort().values, most // 2).unique()
    chosen: Tensor = torch.cat([usual, _at_even_ranks(different, most - len(usual))]).unique()
    return chosen


def _at_even_ranks(ordered: Float[Tensor, "n"], count: int) -> Float[Tensor, "v"]:
    return ordered[torch.linspace(0, len(ordered) - 1, count, device=ordered.device).round().long()]


def nearest_accepted(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """For some rows a few accepted training rows that are near to it, as it may become them: those that are admissible.

    What a person cannot change is put in. Rows come first that are within reach in that: they are plausible with it put
    in. Among them the nearest come first, by ‖w ⊙ (x − t)‖ over what may change. Both are products of two matrices, so
    that they take no time to speak of, in blocks of one size, so that nobody's neighbours depend on others.
    """
    feasible = problem.feasible
    weights = feasible.weights.square()
    rows_of, near_of = [rows[:0]], [feasible.factual[:0]]
    for accepted, some in _accepted(problem, sources, rows):
        if len(accepted):
            rows_of.append(some.repeat_interleave(min(NEAREST_ACCEPTED, len(accepted))))
            near_of.append(_nearest_of(admissible, accepted, weights, some))
    row = torch.cat(rows_of)
    order = row.argsort(stable=True)
    row, near = row[order], torch.cat(near_of)[order]
    x = feasible.legal(near, row)
    cost = admissible.cost(x, row)
    order, rank = _ranked(row, cost)
    # Two training rows may become the same row: then they have the same cost, and stand one after the other.
    same = (rank > 0) & (x[order] == x[order].roll(1, 0)).all(-1)
    order = order[~same]
    row, x, near = row[order], x[order], near[order]
    # Those that are plausible by the training row that they are made from are asked about first: mostly they do.
    close = admissible.is_near(x, row, near)
    found = admissible.admit(x[close], row[close], near[close])
    lacking = ~close & ~torch.isin(row, found.row)
    found = found.join(admissible.admit(x[lacking], row[lacking], near[lacking]))
    return found.cheapest(admissible.cost(found.x, found.row), SEEDS)


def _nearest_of(
    admissible: Admissible, accepted: Float[Tensor, "m D"], weights: Float[Tensor, "D"], rows: Int[Tensor, "r"]
) -> Float[Tensor, "q D"]:
    """Of accepted training rows those that are nearest to each of some rows, row after row; see `nearest_accepted`."""
    feasible, count = admissible.feasible, min(NEAREST_ACCEPTED, len(accepted))
    both = torch.cat([accepted.square().T, -2 * accepted.T])

    def nearest(factual: Tensor, fixed: Tensor, reach: Tensor) -> Tensor:
        free, held = (
            torch.cat([some, some * factual], 1) @ both + (some * factual.square()).sum(-1)[:, None]
            for some in (torch.where(fixed, 0, weights), torch.where(fixed, weights, 0))
        )
        out_of_reach = held > reach[:, None].square() + EQUAL
        return (free + out_of_reach * _BEYOND).topk(count, largest=False).indices

    index = map_blocks(nearest, feasible.factual[rows], feasible.fixed[rows], admissible.reach[rows])
    return accepted[index.flatten()]


def all_accepted(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """For some rows the cheapest admissible one of all accepted training rows, as they may become them."""
    best = no_candidates(problem.feasible)
    for accepted, some in _accepted(problem, sources, rows):
        best = best.join(_cheapest_as(accepted, problem, admissible, some))
    return best


def nearly_accepted(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """The same of training rows that are not accepted as they are, and may be with the columns of others put in.

    Those come first that lack least, so that what serves a row at a confidence is looked at for every lower one.
    """
    best = no_candidates(problem.feasible)
    for one, some in _by_target(problem, rows):
        others = ~one.accepted(sources.rows, sources.probabilities)
        near, advantage = sources.rows[others], one.target.advantage(sources.probabilities[others])
        first = advantage.argsort(descending=True, stable=True)[:NEARLY_ACCEPTED]
        best = best.join(_cheapest_as(near[first], problem, admissible, some))
    return best


def _cheapest_as(
    training: Float[Tensor, "m D"], problem: Problem, admissible: Admissible, rows: Int[Tensor, "r"]
) -> Candidates:
    """For some rows the cheapest admissible one of training rows, as they may become them."""
    best, any_, feasible = no_candidates(problem.feasible), admissible.at_once(), problem.feasible
    for part in training.split(max(1, TRIALS_AT_ONCE[training.device.type] // max(1, len(rows)))):
        row, near = rows.repeat_interleave(len(part)), part.repeat(len(rows), 1)
        best = best.join(admissible.lasting(any_.admit(feasible.legal(near, row), row, near), 1))
        best = best.cheapest(admissible.cost(best.x, best.row))
    return best


def _accepted(
    problem: Problem, sources: Sources, rows: Int[Tensor, "m"]
) -> Iterator[tuple[Float[Tensor, "_ D"], Int[Tensor, "_"]]]:
    """The training rows that reach the target, and for which rows: those of each confidence that is asked for."""
    for one, some in _by_target(problem, rows):
        yield sources.rows[one.accepted(sources.rows, sources.probabilities)], some


def _by_target(problem: Problem, rows: Int[Tensor, "m"]) -> Iterator[tuple[Problem, Int[Tensor, "_"]]]:
    """The problem with one target, and whose it is: rows may ask for confidences of their own."""
    confidences = problem.feasible.confidences
    if confidences is None:
        yield problem, rows
        return
    for target, some in by_confidence(problem.target, confidences[rows]):
        yield replace(problem, target=target), rows[some]


def no_candidates(feasible: FeasibleSet) -> Candidates:
    """None, for any row."""
    nothing = feasible.factual[:0]
    return Candidates(torch.zeros(0, dtype=torch.long, device=nothing.device), nothing, nothing)

"""Actions that many rows share: which rows each of them serves, at what cost, and the few that serve most.

An action is a set of changes, one a feature: to a value, by an amount, up to at least a value, or down to at most one.
A row takes only as much of it as it needs: the amounts of an action are scaled together by a share t of (0, 1], and t
is the smallest that is admissible, among the levels of a grid and then by bisection. What is asked of a counterfactual
is asked of every row after its action, by the same `Admissible`: feasible, legal, lawful, decided as asked, plausible.
All rows and actions are asked about together, in blocks of pairs.

The few are chosen one after the other. With c(i, a) the cost of action a for row i, infinite where it does not serve,
and a cost B of not being served at all, a set S of actions is worth

    F(S) = Σᵢ max(0, B − min over a in S of c(i, a)),

which is monotone and submodular, so that the greedy choice of k is worth at least 1 − 1/e = 63 % of the best k of the
same candidates (Nemhauser, Wolsey and Fisher, 1978); and F of the best k is at most F(S) plus the k largest gains that
are left at any S, which says how good this choice is for certain. Where all costs are 0, F is B times the coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.axes import MixedAxes, NumberAxis, OneHotAxes
from counterpath.data.encoding import Encoder
from counterpath.search.candidates import TRIALS_AT_ONCE, Admissible
from counterpath.search.feasible import FeasibleSet

NOT, TO, BY, AT_LEAST, AT_MOST = range(5)
"""What an action does to a feature: nothing, or one of the four kinds of changes."""
LEVELS = 8
"""Shares of an action that are tried for everybody, evenly spaced: bisection then starts at an eighth of it."""
HALVINGS = 4
"""After these a share is known to 1/128 of the action: less than a step of nearly every number."""
_QUANTILES = (0.5, 0.9)
"""Of the amounts and ends of people who change the same features: the typical one, and one that serves nearly all."""
_REACH = (0.1, 0.5, 0.9)
"""Quantiles of the values of accepted training rows to which single features are moved."""


@dataclass(frozen=True)
class Actions:
    """Some actions.

    Attributes:
        kind: For each action and feature what is done to it: `NOT`, `TO`, `BY`, `AT_LEAST` or `AT_MOST`.
        value: In the columns of each feature the value, encoded, or the amount of `BY`, in encoded units.
    """

    kind: Int[Tensor, "c f"]
    value: Float[Tensor, "c D"]

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, which: Tensor) -> "Actions":
        """Some of them, by indices or a mask."""
        return Actions(self.kind[which], self.value[which])

    def join(self, *others: "Actions") -> "Actions":
        """These and others, each once."""
        kind = torch.cat([self.kind, *(other.kind for other in others)])
        value = torch.cat([self.value, *(other.value for other in others)])
        both = torch.cat([kind.to(value.dtype), value], 1)
        _, member = both.unique(dim=0, return_inverse=True)
        first = _first_of(member)
        return Actions(kind[first], value[first])

    @property
    def changes(self) -> Int[Tensor, "c"]:
        """How many features each changes."""
        return (self.kind != NOT).sum(1)

    @property
    def scaled(self) -> Bool[Tensor, "c"]:
        """Which of them have an amount, of which a row may need less."""
        return (self.kind > TO).any(1)


def _first_of(member: Int[Tensor, "c"]) -> Int[Tensor, "u"]:
    """The first position of each member, in the order of positions."""
    position = torch.arange(len(member), device=member.device)
    count = int(member.max()) + 1 if len(member) else 0
    first = torch.full((count,), len(member), device=member.device).scatter_reduce(0, member, position, "amin")
    return first.sort().values


def no_actions(encoder: Encoder, like: Tensor) -> Actions:
    """None at all."""
    kind = torch.zeros(0, len(encoder.layout), dtype=torch.long, device=like.device)
    return Actions(kind, torch.zeros(0, encoder.width, dtype=like.dtype, device=like.device))


@dataclass(frozen=True)
class Layout:
    """Where the features of encoded rows lie, for what is done to them by kind.

    Attributes:
        feature: Of which feature each column is.
        head: The columns that hold a value with an order, which can be moved by degrees.
        state: For each column the one that says whether its feature is a value, and not a code or a gap; itself where
            there is none.
        ordered: Which features have such a value.
        plain: Which of these are encoded on their own scale, so that an amount is the same everywhere.
    """

    feature: Int[Tensor, "D"]
    head: Bool[Tensor, "D"]
    state: Int[Tensor, "D"]
    ordered: Bool[Tensor, "f"]
    plain: Bool[Tensor, "f"]

    @classmethod
    def of(cls, encoder: Encoder, device: torch.device) -> "Layout":
        """That of an encoder; what has two categories only is moved at once, as what has no order."""
        feature = torch.zeros(encoder.width, dtype=torch.long)
        head, state = torch.zeros(encoder.width, dtype=torch.bool), torch.arange(encoder.width)
        ordered, plain = torch.zeros(2, len(encoder.layout), dtype=torch.bool)
        for index, (axis, columns) in enumerate(zip(encoder.axes, encoder.layout, strict=True)):
            feature[columns] = index
            inner = axis.value if isinstance(axis, MixedAxes) else axis
            if isinstance(inner, OneHotAxes) or len(encoder.schema.features[index].categories) == 2:
                continue
            head[columns.start], ordered[index] = True, True
            plain[index] = isinstance(inner, NumberAxis) and encoder.schema.features[index].transform == "identity"
            if isinstance(axis, MixedAxes):
                state[columns.start] = columns.start + 1
        return cls(*(each.to(device) for each in (feature, head, state, ordered, plain)))

    def measured(self, x: Float[Tensor, "q D"]) -> Bool[Tensor, "q D"]:
        """In which columns rows have a value that can be moved."""
        own = self.state == torch.arange(len(self.state), device=x.device)
        return self.head & (own | (x[:, self.state] > 0.5))  # one-hot columns are 0 or 1


def act(
    actions: Actions,
    layout: Layout,
    feasible: FeasibleSet,
    row: Int[Tensor, "q"],
    action: Int[Tensor, "q"],
    share: Float[Tensor, "q"],
) -> tuple[Float[Tensor, "q D"], Bool[Tensor, "q"]]:
    """What rows become by a share of an action, and for which of them that is the action and nothing else.

    A bound of the row's own may keep it from all of an amount. A category that it may not have, and a rule that is kept
    only by changing something else, make the action not applicable.
    """
    before, kind, value = feasible.factual[row], actions.kind[action][:, layout.feature], actions.value[action]
    there = torch.where(kind == BY, before + value, before)
    there = torch.where(kind == AT_LEAST, before.maximum(value), there)
    there = torch.where(kind == AT_MOST, before.minimum(value), there)
    part = torch.lerp(before, there, share[:, None].to(before.dtype))
    part = torch.where(layout.measured(before), part, before)
    x = feasible.legal(torch.where(kind == TO, value, part), row)
    changed = feasible.features(x != before)
    if feasible.ruled:
        changed &= feasible.actions(x, row)
    meant = actions.kind[action] != NOT
    applies = (changed & ~meant).sum(1) == 0
    applies &= ((x == value) | (kind != TO)).all(1)
    return x, applies


@dataclass(frozen=True)
class Served:
    """What pairs of a row and an action come to.

    Attributes:
        cost: What the action costs the row; infinite where it does not serve it.
        share: How much of the action the row needs.
    """

    cost: Float[Tensor, "q"]
    share: Float[Tensor, "q"]


def serve(
    admissible: Admissible,
    actions: Actions,
    row: Int[Tensor, "q"],
    action: Int[Tensor, "q"],
    *,
    levels: int = LEVELS,
    halvings: int = HALVINGS,
) -> Served:
    """For pairs of a row and an action the smallest share of the action that serves the row, and what that costs.

    Args:
        admissible: Says what rows may become.
        actions: The actions.
        row: The rows of the pairs.
        action: Their actions.
        levels: Shares that are tried, from the smallest on.
        halvings: How often the interval between the first that serves and the one before is halved.
    """
    layout = Layout.of(admissible.feasible.encoder, row.device)
    parts = [
        _serve(admissible, layout, actions, row[some], action[some], levels, halvings)
        for some in torch.arange(len(row), device=row.device).split(TRIALS_AT_ONCE[row.device.type])
    ]
    if not parts:
        nothing = admissible.feasible.factual.new_zeros(0)
        return Served(nothing, nothing)
    return Served(torch.cat([part.cost for part in parts]), torch.cat([part.share for part in parts]))


def _serve(
    admissible: Admissible, layout: Layout, actions: Actions, row: Tensor, action: Tensor, levels: int, halvings: int
) -> Served:
    """The same for as many pairs as fit at once."""
    like = admissible.feasible.factual
    cost = torch.full((len(row),), torch.inf, dtype=like.dtype, device=row.device)
    share, close = torch.ones_like(cost), admissible.near[row]
    scaled = actions.scaled[action]

    def attempt(some: Tensor, tried: Tensor) -> None:
        """Take a share of the action where it serves."""
        if len(some) == 0:
            return
        x, applies = act(actions, layout, admissible.feasible, row[some], action[some], tried)
        index = applies.nonzero()[:, 0]
        good, near = admissible(x[index], row[some[index]], close[some[index]])
        index = index[good]
        close[some[index]] = near[good]  # by which a smaller share is soon known to be plausible, too
        cost[some[index]] = admissible.cost(x[index], row[some[index]])
        share[some[index]] = tried[index]

    for level in range(1, levels + 1):
        waiting = cost.isinf() if level == levels else cost.isinf() & scaled
        some = waiting.nonzero()[:, 0]
        attempt(some, torch.full((len(some),), level / levels, dtype=like.dtype, device=row.device))
    low = share - 1 / levels
    for _ in range(halvings):
        some = (cost.isfinite() & scaled).nonzero()[:, 0]
        middle = (low[some] + share[some]) / 2
        attempt(some, middle)
        low[some] = torch.where(share[some] > middle, middle, low[some])
    return Served(cost, share)


def served_matrix(
    admissible: Admissible, actions: Actions, rows: Int[Tensor, "m"], **how: int
) -> tuple[Float[Tensor, "m c"], Float[Tensor, "m c"]]:
    """What every action costs each of some rows, and how much of it they need."""
    action = torch.arange(len(actions), device=rows.device)
    served = serve(admissible, actions, rows.repeat_interleave(len(actions)), action.repeat(len(rows)), **how)
    shape = len(rows), len(actions)
    return served.cost.view(shape), served.share.view(shape)


@dataclass(frozen=True)
class Chosen:
    """The actions that were chosen, one after the other.

    Attributes:
        order: Their indices.
        worth: F of the first one, of the first two, and so on.
        bound: What F of the best choice of as many of these candidates is at most.
    """

    order: tuple[int, ...]
    worth: tuple[float, ...]
    bound: tuple[float, ...]


def choose_actions(cost: Float[Tensor, "n c"], k: int, unserved: float) -> Chosen:
    """At most k actions, each the one by which F gains most; of equal ones the first.

    Args:
        cost: What every action costs each row; infinite where it does not serve it.
        k: How many to choose; fewer where no other one gains anything.
        unserved: B.
    """
    value = (unserved - cost.double()).clamp_min(0)
    value = torch.where(cost.isfinite(), value, 0)
    best = torch.zeros_like(value[:, 0])
    order: list[int] = []
    worth: list[float] = []
    lefts: list[tuple[float, Tensor]] = []
    for _ in range(k + 1):  # once more, for the bound after the last choice
        gain = (value - best[:, None]).clamp_min(0).sum(0)
        lefts.append((float(best.sum()), gain.sort(descending=True).values))
        top = int(gain.argmax()) if len(gain) else -1
        if len(order) == k or top < 0 or float(gain[top]) <= 0:
            break
        order.append(top)
        best = best.maximum(value[:, top])
        worth.append(float(best.sum()))
    most = float(value.amax(1).sum()) if value.shape[1] else 0.0
    bound = tuple(
        min(most, *(there + float(left[:count].sum()) for there, left in lefts)) for count in range(1, len(order) + 1)
    )
    return Chosen(tuple(order), tuple(worth), bound)


def actions_of_plans(
    encoder: Encoder, before: Float[Tensor, "m D"], after: Float[Tensor, "m D"], *, most: int, most_changes: int
) -> Actions:
    """Actions from the plans that single rows have: of those that change the same features the same way.

    Args:
        encoder: Knows the features.
        before: Rows as they are.
        after: Their counterfactuals.
        most: How many ways to take, the commonest.
        most_changes: How many features an action may change.
    """
    made = no_actions(encoder, before)
    if len(before) == 0:
        return made
    layout = Layout.of(encoder, before.device)
    pattern = _patterns(encoder, layout, before, after)
    few = (pattern != 0).sum(1)
    usable = (few > 0) & (few <= most_changes)
    before, after, pattern = before[usable], after[usable], pattern[usable]
    if len(pattern) == 0:
        return made
    kinds, member, count = pattern.unique(dim=0, return_inverse=True, return_counts=True)
    for which in count.argsort(descending=True, stable=True)[:most].tolist():
        rows = member == which
        for quantile in _QUANTILES:
            for by_amount in (True, False):
                action = _typical(encoder, layout, kinds[which], before[rows], after[rows], quantile, by_amount)
                made = Actions(torch.cat([made.kind, action.kind]), torch.cat([made.value, action.value]))
    return made.join()


_VALUE = 3  # in a pattern the first number that stands for a category; 1 and 2 are up and down


def _patterns(encoder: Encoder, layout: Layout, before: Tensor, after: Tensor) -> Int[Tensor, "m f"]:
    """How each feature changes, as a number: not, up, down, or to which category."""
    changed = encoder.changed(before, after)
    found = torch.zeros_like(changed, dtype=torch.long)
    measured = layout.measured(before) & layout.measured(after)
    for index, columns in enumerate(encoder.layout):
        first = columns.start
        to = after[:, columns].argmax(1) if columns.stop - first > 1 else after[:, first].round().long()
        way = torch.where(after[:, first] > before[:, first], 1, 2)
        kind = torch.where(measured[:, first], way, to + _VALUE)
        found[:, index] = torch.where(changed[:, index], kind, 0)
    return found


def _typical(
    encoder: Encoder, layout: Layout, kinds: Tensor, before: Tensor, after: Tensor, quantile: float, by_amount: bool
) -> Actions:
    """One action for rows that change alike: by an amount, or to at least or most the value, that this share needs."""
    kind, value = torch.zeros_like(kinds), torch.zeros_like(before[0])
    for index in kinds.nonzero()[:, 0].tolist():
        columns, way = encoder.layout[index], int(kinds[index])
        if way >= _VALUE:
            kind[index], value[columns] = TO, after[0, columns]
            continue
        first = columns.start
        amount, end = (after[:, first] - before[:, first]).abs().double(), after[:, first].double()
        if by_amount and bool(layout.plain[index]):
            far = float(amount.quantile(quantile, interpolation="higher"))
            kind[index], value[first] = BY, far if way == 1 else -far
        else:
            share = quantile if way == 1 else 1 - quantile
            far = float(end.quantile(share, interpolation="higher" if way == 1 else "lower"))
            kind[index], value[first] = (AT_LEAST if way == 1 else AT_MOST), far
    return Actions(kind[None], value[None])


def single_actions(encoder: Encoder, accepted: Float[Tensor, "m D"], open_: Bool[Tensor, "f"]) -> Actions:
    """Actions that move one feature: in either direction to where accepted rows are, or to another category.

    Args:
        encoder: Knows the features.
        accepted: Training rows with the wanted outcome.
        open_: Which features may change at all, for anybody.
    """
    kinds, values = [], []
    layout = Layout.of(encoder, accepted.device)
    for index in open_.nonzero()[:, 0].tolist() if len(accepted) else ():
        columns = encoder.layout[index]
        first, there = columns.start, layout.measured(accepted)[:, columns.start]
        if bool(layout.ordered[index]) and bool(there.any()):
            ends = accepted[there, first].double()
            reach = [float(ends.quantile(share, interpolation="nearest")) for share in _REACH]
            low, high = float(ends.min()), float(ends.max())
            spread = reach[-1] - reach[0] or high - low
            moves = [(AT_LEAST, far) for far in reach[1:]] + [(AT_MOST, far) for far in reach[:-1]]
            moves += [(AT_LEAST, high), (AT_MOST, low)]
            moves += [(BY, spread), (BY, -spread)] if bool(layout.plain[index]) else []
            for kind, far in moves:
                kinds.append((index, kind))
                values.append((slice(first, first + 1), accepted.new_tensor([far])))
        if not bool(layout.ordered[index]):
            for category in accepted[:, columns].unique(dim=0):
                kinds.append((index, TO))
                values.append((columns, category))
    made = no_actions(encoder, accepted)
    done = made.kind.new_zeros(len(kinds), len(encoder.layout))
    value = accepted.new_zeros(len(kinds), encoder.width)
    for position, ((index, what), (columns, there)) in enumerate(zip(kinds, values, strict=True)):
        done[position, index], value[position, columns] = what, there
    return Actions(done, value)


def united(actions: Actions, which: Sequence[int], most_changes: int) -> Actions:
    """All pairs of some actions that change different features, as one action each."""
    pairs = torch.tensor(list(combinations(which, 2)), dtype=torch.long, device=actions.kind.device).view(-1, 2)
    one, other = actions.at(pairs[:, 0]), actions.at(pairs[:, 1])
    apart = ((one.kind != NOT) & (other.kind != NOT)).sum(1) == 0
    apart &= one.changes + other.changes <= most_changes
    return Actions((one.kind + other.kind)[apart], (one.value + other.value)[apart])

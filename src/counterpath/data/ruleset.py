"""Rules on encoded rows: which rows keep to them, what follows from the others, and the nearest row that does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.encoding import Encoder, MixedAxes, NumberAxis, OneHotAxes, OrdinalAxis, on_grid, value_axis
from counterpath.data.rules import (
    Among,
    BoundImplication,
    BoundRule,
    ChangeImplies,
    Derived,
    Moves,
    Relation,
    Rule,
    Transition,
    derivations,
)

_HALF = 0.5  # legal one-hot columns are 0 or 1; and half a whole number is as far as rounding goes
_SAME = 1e-6  # of a range: a derived number is right up to this, ten times what encoding can tell
_SURELY = 1.5  # times the step of the grid: a number as displayed is at most one step from its point
_ROUNDS = 4  # of repairs: one may break what another one mended, and what four do not mend is rejected
_UNTOUCHED = 1.0  # of a range: what still is as it was is moved only where nothing else helps at less than this
_MOST_ROWS = 20_000  # training rows that rules are checked by: a share of them is known to within 0.2 %
_TIE = 1e-9  # relative: what floats make of a number that should be whole

T = TypeVar("T")


def _once(compute: Callable[["EncodedValues", str], T]) -> Callable[["EncodedValues", str], T]:
    """Keep what is computed for each feature."""

    def kept(self: "EncodedValues", feature: str) -> T:
        key = (compute.__name__, feature)
        if key not in self._kept:
            self._kept[key] = compute(self, feature)
        return self._kept[key]  # type: ignore[return-value]

    return kept


class EncodedValues:
    """The values of encoded rows in original units, as `rules.Values` has them; each is decoded when it is needed."""

    def __init__(self, encoder: Encoder, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"] | None = None) -> None:
        self.encoder, self.x, self.origin = encoder, x, origin
        self._kept: dict[tuple[str, str], object] = {}

    def _columns(self, feature: str) -> tuple[int, slice]:
        index = self.encoder.position[feature]
        return index, self.encoder.layout[index]

    @_once
    def number(self, feature: str) -> Float[Tensor, "n"]:
        """Of legal rows; where it is a code or a gap, any number."""
        index, columns = self._columns(feature)
        axis, points = value_axis(self.encoder.axes[index]), self.x[:, columns]
        if isinstance(axis, OneHotAxes):
            return points.argmax(1).double()
        if isinstance(axis, OrdinalAxis):
            return (points[:, 0].double() * (axis.count - 1)).round()
        if axis.grid.shared and not axis.grid.plain:
            return axis.numbers(on_grid(points[:, :1], points.dtype))
        exact = axis._exact(points[:, 0])
        return exact.round() if axis.whole else exact

    @_once
    def known(self, feature: str) -> Bool[Tensor, "n"]:
        """Where it is neither a code nor a gap."""
        index, columns = self._columns(feature)
        axis = self.encoder.axes[index]
        if isinstance(axis, MixedAxes):
            return self.x[:, columns.start + 1] > _HALF
        if isinstance(axis, OneHotAxes) and axis.gap:
            return self.x[:, columns.stop - 1] < _HALF
        return torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)

    @_once
    def slack(self, feature: str) -> Float[Tensor, "n"]:
        """A step of the grid, for numbers that need not be whole or on a grid of their own."""
        index, columns = self._columns(feature)
        axis, points = value_axis(self.encoder.axes[index]), self.x[:, columns]
        if not isinstance(axis, NumberAxis) or axis.whole or (axis.grid.shared and not axis.grid.plain):
            return torch.zeros(len(self.x), dtype=torch.float64, device=self.x.device)
        stored = 0.0 if axis.storage == torch.float64 else torch.finfo(axis.storage).eps
        return _SURELY * axis._steps(points[:, :1]) + stored * self.number(feature).abs()

    @_once
    def rounding(self, feature: str) -> Float[Tensor, "n"]:
        """Half a whole number, half a step, or what encoding can tell."""
        index, _ = self._columns(feature)
        axis = value_axis(self.encoder.axes[index])
        if not isinstance(axis, NumberAxis):
            return torch.full_like(self.slack(feature), _HALF * (1 + _TIE))
        apart = 1.0 if axis.whole else 0.0
        if axis.grid.step is not None:
            apart = axis.grid.step[0] / axis.grid.step[1]
        if len(axis.grid.values) > 1:
            apart = max(b - a for a, b in zip(axis.grid.values, axis.grid.values[1:], strict=False))
        reach = self.encoder.high[index] - self.encoder.low[index]
        return self.slack(feature) + apart * _HALF * (1 + _TIE) + _SAME * reach

    @_once
    def changed(self, feature: str) -> Bool[Tensor, "n"]:
        """Where any of its columns is another; everywhere if it is not known what the rows were."""
        _, columns = self._columns(feature)
        if self.origin is None:
            return torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        return (self.x[:, columns] != self.origin[:, columns]).any(-1)


@dataclass(frozen=True)
class RuleSet:
    """Rules that every row of every path keeps to.

    Attributes:
        encoder: Knows what is legal, and how features are encoded.
        rules: The rules, all transitions of a feature as one.
        derived: Those of them that derive features, each after what it follows from.
    """

    encoder: Encoder
    rules: tuple[BoundRule, ...]
    derived: tuple[Derived, ...]

    @classmethod
    def of(cls, encoder: Encoder, rules: Sequence[Rule]) -> "RuleSet":
        """Of rules that are bound to the schema of the encoder.

        Raises:
            InputError: Two transitions contradict each other, or features are derived in a circle.
        """
        moves: dict[str, list[Transition]] = {}
        for rule in rules:
            if isinstance(rule, Transition):
                moves.setdefault(rule.feature, []).append(rule)
        plain = [rule for rule in rules if isinstance(rule, BoundRule)]
        tables = [Moves.of(encoder.schema[name], some) for name, some in moves.items()]
        return cls(encoder, (*plain, *tables), derivations(rules))

    @property
    def texts(self) -> tuple[str, ...]:
        """The rules as text."""
        return tuple(map(str, self.rules))

    @cached_property
    def followers(self) -> Bool[Tensor, "f"]:
        """Which features are derived: they follow, and are nothing that anybody does."""
        derived = {rule.feature for rule in self.derived}
        return torch.tensor([name in derived for name in self.encoder.schema.names])

    def broken(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n r"]:
        """Which rules each row breaks.

        Args:
            x: Legal rows.
            origin: What each of them was before anything changed.
        """
        values, before = EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin, origin)
        broken = [~rule.holds(values, before) for rule in self.rules]
        return torch.stack(broken, 1) if broken else torch.zeros(len(x), 0, dtype=torch.bool, device=x.device)

    def hold(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows break no rule."""
        values, before = EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin, origin)
        good = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for rule in self.rules:
            good &= rule.holds(values, before)
        return good

    def broken_shares(self, rows: Float[Tensor, "n D"]) -> dict[str, float]:
        """By rule the share of training rows that break it; rules about changes are left out."""
        some = rows[:: -(-len(rows) // _MOST_ROWS)] if len(rows) > _MOST_ROWS else rows
        broken = self.broken(some, some).double().mean(0).tolist()
        pairs = zip(self.rules, broken, strict=True)
        return {str(rule): share for rule, share in pairs if not rule.needs_change}

    def derive(
        self, x: Float[Tensor, "n D"], lower: Tensor | None = None, upper: Tensor | None = None
    ) -> Float[Tensor, "n D"]:
        """The rows with derived features recomputed, as the nearest legal values within bounds.

        Where that is undefined, because it divides by zero or what it needs is a code or a gap, they stay as they are.
        """
        for rule in self.derived:
            values = EncodedValues(self.encoder, x)
            number = rule.expression.compute(values)
            there = number.isfinite() & rule.applies(values)
            near = (values.number(rule.feature) - number).abs() <= values.rounding(rule.feature)
            rows = (there & ~near).nonzero()[:, 0]
            if len(rows):
                bounds = (None, None) if lower is None or upper is None else (lower[rows], upper[rows])
                x = x.index_copy(0, rows, self._with_number(x[rows], rule.feature, number[rows], *bounds))
        return x

    def repair(
        self,
        x: Float[Tensor, "n D"],
        origin: Float[Tensor, "n D"],
        lower: Float[Tensor, "n D"],
        upper: Float[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        """Rows that break a rule moved to near ones that do not, where that is simple; `hold` says whether it was.

        A relation is met by moving the feature that needs to move least, of those that have changed already if one of
        them can; an implication by its conclusion, or else by taking back what called for it; a change that implies
        another by that other one, or else by taking it back; a transition by taking it back. What is left after a few
        rounds has the features of the rules that it breaks as they were.

        Args:
            x: Legal rows within their bounds.
            origin: What each of them was before anything changed.
            lower: The least that each column may be.
            upper: The most.
        """
        x = self.derive(x, lower, upper)
        for turn in range(_ROUNDS):
            broken = self.broken(x, origin)
            rows = broken.any(1).nonzero()[:, 0]
            if len(rows) == 0:
                return x
            part, ends = x[rows], (origin[rows], lower[rows], upper[rows])
            for index, rule in enumerate(self.rules):
                some = broken[rows, index].nonzero()[:, 0]
                if len(some) == 0 or isinstance(rule, Derived):
                    continue
                mended = self._mended(rule, part[some], *(each[some] for each in ends), last=turn == _ROUNDS - 1)
                part = part.index_copy(0, some, mended)
            x = x.index_copy(0, rows, self.derive(part, *ends[1:]))
        return x

    def _mended(
        self, rule: BoundRule, x: Tensor, origin: Tensor, lower: Tensor, upper: Tensor, *, last: bool
    ) -> Tensor:
        """Rows that break a rule, with what is simplest done about it."""
        if last:
            return self._taken_back(x, origin, lower, upper, rule.features)
        if isinstance(rule, Relation):
            return self._related(rule, x, origin, lower, upper)
        if isinstance(rule, Among):
            return self._among(rule, x, origin, lower, upper)
        if isinstance(rule, BoundImplication):
            tried = x
            for each in rule.conclusions:
                wrong = (~self._met(each, tried, origin)).nonzero()[:, 0]
                if len(wrong):
                    ends = (each_end[wrong] for each_end in (origin, lower, upper))
                    tried = tried.index_copy(0, wrong, self._mended(each, tried[wrong], *ends, last=False))
            names = tuple(dict.fromkeys(name for each in rule.premises for name in each.features))
            return self._first_that_holds(rule, x, origin, tried, self._taken_back(x, origin, lower, upper, names))
        if isinstance(rule, ChangeImplies):
            back = self._taken_back(x, origin, lower, upper, (rule.feature,))
            if rule.other_direction == "changes":
                return back
            values, before = EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin, origin)
            up = rule.other_direction == "up"
            needed = rule.needed(values, before) + _SURELY * (values.slack(rule.other) + values.slack(rule.feature))
            number = before.number(rule.other) + (needed if up else -needed)
            tried = self._moved(x, rule.other, number, lower, upper, up=torch.full_like(number, up, dtype=torch.bool))
            same = (tried == origin)[:, self._slice(rule.other)].all(-1) & (needed == 0)  # any change: the next number
            if bool(same.any()):
                further = number + (1.0 if up else -1.0) * values.rounding(rule.other).clamp_min(_HALF)
                tried = torch.where(
                    same[:, None],
                    self._moved(x, rule.other, further, lower, upper, up=torch.full_like(same, up)),
                    tried,
                )
            return self._first_that_holds(rule, x, origin, tried, back)
        return self._taken_back(x, origin, lower, upper, rule.features)

    def _met(self, rule: BoundRule, x: Tensor, origin: Tensor) -> Tensor:
        return rule.holds(EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin, origin))

    def _first_that_holds(self, rule: BoundRule, x: Tensor, origin: Tensor, *tries: Tensor) -> Tensor:
        """Of several tries the first that holds, row by row; the last if none does."""
        found = tries[-1]
        for tried in reversed(tries[:-1]):
            found = torch.where(self._met(rule, tried, origin)[:, None], tried, found)
        return found

    def _taken_back(self, x: Tensor, origin: Tensor, lower: Tensor, upper: Tensor, names: Sequence[str]) -> Tensor:
        """The rows with features as they were, where these are within bounds."""
        x = x.clone()
        for name in names:
            part = self._slice(name)
            inside = ((origin[:, part] >= lower[:, part]) & (origin[:, part] <= upper[:, part])).all(-1, keepdim=True)
            x[:, part] = torch.where(inside, origin[:, part], x[:, part])
        return x

    def _related(self, rule: Relation, x: Tensor, origin: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """One feature moved so far that the relation holds, the one for which that is least; or as far as one can."""
        values = EncodedValues(self.encoder, x, origin)
        gap, _, off = rule.gap(values)
        factors = rule.coefficients[0]
        exact = rule.sign == "=="
        if rule.sign == "!=":
            return self._taken_back(x, origin, lower, upper, rule.features)
        sign = gap.sign() if exact else torch.full_like(gap, 1.0 if rule.sign in ("<", "<=") else -1.0)
        aim = gap + (0.0 if exact else sign * off)
        if rule.sign in ("<", ">"):
            aim = aim + sign * _TIE * (1 + gap.abs())
        derived = {each.feature for each in self.derived}
        best, cost = x, torch.full_like(gap, torch.inf)
        left = torch.full_like(gap, torch.inf)
        for name, factor in factors.items():
            if factor == 0 or name in derived:
                continue
            number = values.number(name) - aim / factor
            up = (sign / factor < 0) if not exact else torch.zeros_like(gap, dtype=torch.bool)
            tried = self._moved(x, name, number, lower, upper, up=None if exact else up)
            part = self._slice(name)
            good = self._met(rule, tried, origin)
            there = EncodedValues(self.encoder, tried, origin)
            remains = (gap + factor * (there.number(name) - values.number(name))).abs()
            moved = (tried - x)[:, part].abs().sum(-1).double() + _UNTOUCHED * (~values.changed(name)).double()
            price = torch.where(good, moved, torch.inf)
            better = price < cost
            closer = cost.isinf() & price.isinf() & (remains < left)  # none does alone: the one that goes farthest
            best = torch.where((better | closer)[:, None], tried, best)
            cost, left = torch.minimum(cost, price), torch.where(closer, remains, left)
        return best

    def _among(self, rule: Among, x: Tensor, origin: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The feature as it was, if that is allowed; else the nearest value that is, and within bounds."""
        index = self.encoder.schema.names.index(rule.feature)
        here = EncodedValues(self.encoder, x, origin).number(rule.feature)
        categories = self.encoder.schema[rule.feature].categories
        if rule.negated and not categories:
            return self._taken_back(x, origin, lower, upper, (rule.feature,))
        options = [float(number) for number in self.encoder.seen[index]] if categories else list(rule.numbers)
        options = [number for number in options if not categories or (number in rule.numbers) != rule.negated]
        tries = [self._taken_back(x, origin, lower, upper, (rule.feature,))]
        order = sorted(options, key=lambda number: abs(number - float(here.median()))) if len(here) else options
        tries += [
            self._with_number(x, rule.feature, torch.full_like(here, number), lower, upper, keep=True)
            for number in order
        ]
        return self._first_that_holds(rule, x, origin, *tries, x)

    def _slice(self, name: str) -> slice:
        return self.encoder.layout[self.encoder.position[name]]

    def _moved(
        self, x: Tensor, name: str, number: Tensor, lower: Tensor, upper: Tensor, *, up: Tensor | None
    ) -> Tensor:
        """The rows with another number of a feature: the next legal one above or below, or with None the nearest."""
        index = self.encoder.schema.names.index(name)
        axis = value_axis(self.encoder.axes[index])
        if isinstance(axis, OneHotAxes):
            return x
        if up is not None:
            tie = _TIE * (1 + number.abs())
            if isinstance(axis, OrdinalAxis):
                seen = torch.tensor(axis.seen, dtype=torch.float64, device=x.device)
                above = seen[torch.searchsorted(seen, (number - tie).contiguous()).clamp(max=len(seen) - 1)]
                below = seen[(torch.searchsorted(seen, (number + tie).contiguous(), right=True) - 1).clamp(min=0)]
                number = torch.where(up, above, below)
            elif axis.grid.shared and not axis.grid.plain:
                number = torch.where(up, axis.grid.above(number - tie), axis.grid.below(number + tie))
            elif axis.whole:
                number = torch.where(up, (number - tie).ceil(), (number + tie).floor())
        return self._with_number(x, name, number, lower, upper)

    def _with_number(
        self,
        x: Tensor,
        name: str,
        number: Tensor,
        lower: Tensor | None = None,
        upper: Tensor | None = None,
        *,
        keep: bool = False,
    ) -> Tensor:
        """The rows with a feature as the legal value that is nearest to a number, within bounds.

        Args:
            x: Legal rows.
            name: The feature.
            number: Its number, of a category the index.
            lower: The least that each column may be.
            upper: The most.
            keep: Leave a row as it is where the value is beyond its bounds, rather than take the nearest within.
        """
        index = self.encoder.schema.names.index(name)
        axis, part = self.encoder.axes[index], self.encoder.layout[index]
        value = value_axis(axis)
        if isinstance(value, NumberAxis):
            number = number.clamp(value.lower, value.upper)
        points = on_grid(axis.points(number), x.dtype)
        points = self._legal(index, points)
        if lower is not None and upper is not None:
            least, most = lower[:, part], upper[:, part]
            if keep or isinstance(axis, OneHotAxes | MixedAxes):
                inside = ((points >= least) & (points <= most)).all(-1, keepdim=True)
                if isinstance(axis, MixedAxes) and not keep:
                    points = torch.cat([points[:, :1].clamp(least[:, :1], most[:, :1]), points[:, 1:]], 1)
                    inside = ((points >= least) & (points <= most)).all(-1, keepdim=True)
                points = torch.where(inside, points, x[:, part])
            else:
                points = points.clamp(least, most)
        x = x.clone()
        x[:, part] = points.to(x.dtype)
        return x

    def _legal(self, index: int, points: Tensor) -> Tensor:
        """The nearest legal points of one feature."""
        key = (index, points.device)
        if key not in self._roundings:
            from counterpath.data.encoding import Rounding

            self._roundings[key] = Rounding.of([self.encoder.axes[index]], points.device)
        return self._roundings[key](points)

    @cached_property
    def _roundings(self) -> dict[tuple[int, torch.device], Callable[[Tensor], Tensor]]:
        return {}

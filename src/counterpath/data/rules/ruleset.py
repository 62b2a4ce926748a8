"""Rules on encoded rows: which rows keep to them, what follows from the others, and the nearest row that does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.axes import MixedAxes, NumberAxis, OneHotAxes, OrdinalAxis, on_grid, value_axis
from counterpath.data.encoding import Encoder
from counterpath.data.rules.kinds import (
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
from counterpath.data.rules.matrix import KINDS_OF_RULES, Matrix, matrices_of
from counterpath.data.rules.values import HALF, SURELY, TIE, EncodedValues, FeatureReader, Readings
from counterpath.data.rules.whole import UNTOUCHED, WholeRelation

_ROUNDS = 4  # of repairs: one may break what another one mended, and what four do not mend is rejected
_MOST_ROWS = 20_000  # training rows that rules are checked by: a share of them is known to within 0.2 %


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
        found = self._held(x, origin)
        return ~(found if self._order is None else found[:, self._order])

    def hold(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows break no rule."""
        return self._held(x, origin).all(1)

    def _held(self, x: Tensor, origin: Tensor) -> Bool[Tensor, "n r"]:
        """Which rules hold, kind after kind."""
        reader, matrices = self._together(x.device)
        found = []
        if matrices:
            rows = Readings(reader, x, origin, before=self._about_changes)
            found = [matrix.hold(rows) for matrix in matrices]
        if self.derived:
            values, before = EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin)
            found += [rule.holds(values, before)[:, None] for rule in self.rules if isinstance(rule, Derived)]
        if not found:
            return torch.ones(len(x), 0, dtype=torch.bool, device=x.device)
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    @cached_property
    def _about_changes(self) -> bool:
        return any(rule.needs_change for rule in self.rules)

    @cached_property
    def _order(self) -> list[int] | None:
        """Where each rule is, kind after kind; None if they are in order."""
        kinds = [
            next(number for number, types in enumerate(KINDS_OF_RULES) if isinstance(rule, types))
            for rule in self.rules
        ]
        by_kind = sorted(range(len(kinds)), key=kinds.__getitem__)
        order = sorted(range(len(kinds)), key=by_kind.__getitem__)
        return None if order == sorted(order) else order

    def _together(self, device: torch.device) -> tuple[FeatureReader, list[Matrix]]:
        """What reads the features of all rules, and what looks at many rules at once."""
        if device not in self._by_device:
            plain = [rule for rule in self.rules if not isinstance(rule, Derived)]
            reader = FeatureReader.of(
                self.encoder, dict.fromkeys(name for rule in plain for name in rule.features), device
            )
            self._by_device[device] = reader, matrices_of(reader.names, self.rules, device)
        return self._by_device[device]

    @cached_property
    def _by_device(self) -> dict[torch.device, tuple[FeatureReader, list[Matrix]]]:
        return {}

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
        return self.try_repair(x, origin, lower, upper)[0]

    def try_repair(
        self,
        x: Float[Tensor, "n D"],
        origin: Float[Tensor, "n D"],
        lower: Float[Tensor, "n D"],
        upper: Float[Tensor, "n D"],
        rounds: int = _ROUNDS,
    ) -> tuple[Float[Tensor, "n D"], Int[Tensor, "m"]]:
        """The same, and the indices of rows that still break a rule; fewer rounds take nothing back."""
        x = self.derive(x, lower, upper)
        rows = torch.arange(len(x), device=x.device)
        for turn in range(rounds):
            broken = self.broken(x[rows], origin[rows])
            wrong = broken.any(1).nonzero()[:, 0]
            if len(wrong) == 0:
                return x, rows[:0]
            rows, broken = rows[wrong], broken[wrong]
            part, ends = x[rows], (origin[rows], lower[rows], upper[rows])
            for index in broken.any(0).nonzero()[:, 0].tolist():
                if isinstance(self.rules[index], Derived):
                    continue
                some = broken[:, index].nonzero()[:, 0]
                own = (each[some] for each in ends)
                mended = self._mended(self.rules[index], part[some], *own, last=turn == _ROUNDS - 1)
                part = part.index_copy(0, some, mended)
            x = x.index_copy(0, rows, self.derive(part, *ends[1:]))
        return x, rows[~self.hold(x[rows], origin[rows])]

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
            needed = rule.needed(values, before) + SURELY * (values.slack(rule.other) + values.slack(rule.feature))
            number = before.number(rule.other) + (needed if up else -needed)
            tried = self._moved(x, rule.other, number, lower, upper, up=torch.full_like(number, up, dtype=torch.bool))
            same = (tried == origin)[:, self._slice(rule.other)].all(-1) & (needed == 0)  # any change: the next number
            if bool(same.any()):
                further = number + (1.0 if up else -1.0) * values.rounding(rule.other).clamp_min(HALF)
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
        whole = self._whole(rule, x.device)
        if whole is not None:
            return whole.mended(x, origin, lower, upper)
        values = EncodedValues(self.encoder, x, origin)
        gap, _, off = rule.gap(values)
        factors = rule.coefficients[0]
        exact = rule.sign == "=="
        if rule.sign == "!=":
            return self._taken_back(x, origin, lower, upper, rule.features)
        sign = gap.sign() if exact else torch.full_like(gap, 1.0 if rule.sign in ("<", "<=") else -1.0)
        aim = gap + (0.0 if exact else sign * off)
        if rule.sign in ("<", ">"):
            aim = aim + sign * TIE * (1 + gap.abs())
        derived = {each.feature for each in self.derived}
        best, cost = x, torch.full_like(gap, torch.inf)
        left = torch.full_like(gap, torch.inf)
        for name, factor in factors.items():
            part = self._slice(name)
            if factor == 0 or name in derived or bool((lower[:, part] == upper[:, part]).all()):
                continue
            number = values.number(name) - aim / factor
            up = (sign / factor < 0) if not exact else torch.zeros_like(gap, dtype=torch.bool)
            tried = self._moved(x, name, number, lower, upper, up=None if exact else up)
            there = EncodedValues(self.encoder, tried, origin)
            good = rule.holds(there, there)
            remains = (gap + factor * (there.number(name) - values.number(name))).abs()
            moved = (tried - x)[:, part].abs().sum(-1).double() + UNTOUCHED * (~values.changed(name)).double()
            price = torch.where(good, moved, torch.inf)
            better = price < cost
            closer = cost.isinf() & price.isinf() & (remains < left)  # none does alone: the one that goes farthest
            best = torch.where((better | closer)[:, None], tried, best)
            cost, left = torch.minimum(cost, price), torch.where(closer, remains, left)
        return best

    def _whole(self, rule: Relation, device: torch.device) -> "WholeRelation | None":
        """The relation as one of whole numbers; None if it is none."""
        key = (rule, device)
        if key not in self._wholes:
            derived = {each.feature for each in self.derived}
            self._wholes[key] = WholeRelation.of(self.encoder, rule, derived, device)
        return self._wholes[key]

    @cached_property
    def _wholes(self) -> "dict[tuple[Relation, torch.device], WholeRelation | None]":
        return {}

    def _among(self, rule: Among, x: Tensor, origin: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The feature as it was, if that is allowed; else the nearest value that is, and within bounds."""
        back = self._taken_back(x, origin, lower, upper, (rule.feature,))
        index = self.encoder.position[rule.feature]
        categories = self.encoder.schema[rule.feature].categories
        if rule.negated and not categories:
            return back
        options = [float(number) for number in self.encoder.seen[index]] if categories else list(rule.numbers)
        options = [number for number in options if not categories or (number in rule.numbers) != rule.negated]
        numbers, part = torch.tensor(options, dtype=torch.float64, device=x.device), self._slice(rule.feature)
        points = self._legal(index, on_grid(self.encoder.axes[index].points(numbers), x.dtype))
        inside = ((points >= lower[:, None, part]) & (points <= upper[:, None, part])).all(-1)
        away = (EncodedValues(self.encoder, x, origin).number(rule.feature)[:, None] - numbers).abs()
        nearest = away.masked_fill(~inside, torch.inf).argmin(1)
        tried = x.clone()
        tried[:, part] = torch.where(inside.any(1, keepdim=True), points[nearest], x[:, part])
        return self._first_that_holds(rule, x, origin, back, tried, x)

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
            tie = TIE * (1 + number.abs())
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
        whole = isinstance(axis, NumberAxis) and axis.whole and axis.grid.plain
        points = on_grid(axis.points(number.round() if whole else number), x.dtype)
        points = points if whole else self._legal(index, points)  # all whole numbers are legal
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
            from counterpath.data.rounding import Rounding

            self._roundings[key] = Rounding.of([self.encoder.axes[index]], points.device)
        return self._roundings[key](points)

    @cached_property
    def _roundings(self) -> dict[tuple[int, torch.device], Callable[[Tensor], Tensor]]:
        return {}

"""All rules of a kind at once, on encoded rows: a few products of matrices instead of a loop over rules.

Searches ask about the same rules hundreds of times, about few rows each, so that what counts is how many operations it
takes, and not how large they are. Every class here says of its rules what their `holds` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.rules.expressions import DIGITS
from counterpath.data.rules.kinds import (
    Among,
    BoundCondition,
    BoundImplication,
    BoundRule,
    ChangeImplies,
    Derived,
    Moves,
    Relation,
)
from counterpath.data.rules.values import Readings


@dataclass(frozen=True)
class Relations:
    """Linear relations.

    Attributes:
        factors: Of left − right ≤ 0: by feature and relation; those of ≥ and > are turned round.
        constants: Likewise.
        used: By feature and relation 1 where it is in it.
        strict: Which are < or >.
        equal: Which are ==.
        unequal: Which are !=.
        mixed: Whether not all are <= or >=.
        sizes: |factors|.
    """

    factors: Float[Tensor, "f r"]
    constants: Float[Tensor, "r"]
    used: Float[Tensor, "f r"]
    strict: Bool[Tensor, "r"]
    equal: Bool[Tensor, "r"]
    unequal: Bool[Tensor, "r"]
    mixed: bool
    sizes: Float[Tensor, "f r"]

    @classmethod
    def of(cls, names: Sequence[str], rules: Sequence[Relation], device: torch.device) -> "Relations":
        """Of relations between some of these features."""
        factors = torch.zeros(len(names), len(rules), dtype=torch.float64, device=device)
        constants, used = factors.new_zeros(len(rules)), torch.zeros_like(factors, dtype=torch.float32)
        for number, rule in enumerate(rules):
            by, constant = rule.coefficients
            turned = -1.0 if rule.sign in (">", ">=") else 1.0
            constants[number] = turned * constant
            for name, factor in by.items():
                factors[names.index(name), number] = turned * factor
            used[[names.index(name) for name in rule.features], number] = 1
        strict, equal, unequal = (
            torch.tensor([rule.sign in some for rule in rules], dtype=torch.bool, device=device)
            for some in (("<", ">"), ("==",), ("!=",))
        )
        mixed = bool((strict | equal | unequal).any())
        return cls(factors, constants, used, strict, equal, unequal, mixed, factors.abs())

    def hold(self, rows: Readings) -> Bool[Tensor, "n r"]:
        """Where each is so or does not apply."""
        gap = torch.addmm(self.constants, rows.numbers, self.factors)
        tiny = torch.addmm(self.constants.abs(), rows.numbers.abs(), self.sizes).mul_(DIGITS)
        off = None
        if rows.slack is not None:
            off = rows.slack @ self.sizes
            same = rows.changed.float() @ self.used == 0  # what has not changed is displayed as it was
            off = torch.where(same & ~(self.equal | self.unequal), -off, off)
        good = gap <= (tiny if off is None else tiny - off)
        if self.mixed:
            beyond = tiny if off is None else tiny + off
            good = torch.where(self.strict, gap < -beyond, good)
            good = torch.where(self.equal, gap.abs() <= beyond, good)
            good = torch.where(self.unequal, gap.abs() > beyond, good)
        return good if rows.unknown is None else good | (rows.unknown.float() @ self.used > 0)


@dataclass(frozen=True)
class Memberships:
    """Allowed values.

    Attributes:
        feature: Which feature each is about.
        numbers: What is listed; NaN after the last.
        negated: Which allow all others.
    """

    feature: Int[Tensor, "r"]
    numbers: Float[Tensor, "r m"]
    negated: Bool[Tensor, "r"]

    @classmethod
    def of(cls, names: Sequence[str], rules: Sequence[Among], device: torch.device) -> "Memberships":
        """Of some of these features."""
        numbers = torch.full((len(rules), max(len(rule.numbers) for rule in rules)), torch.nan, dtype=torch.float64)
        for number, rule in enumerate(rules):
            numbers[number, : len(rule.numbers)] = torch.tensor(rule.numbers, dtype=torch.float64)
        feature = torch.tensor([names.index(rule.feature) for rule in rules], device=device)
        return cls(feature, numbers.to(device), torch.tensor([rule.negated for rule in rules], device=device))

    def hold(self, rows: Readings) -> Bool[Tensor, "n r"]:
        """Where the value is allowed, a code or a gap."""
        away = (rows.numbers[:, self.feature, None] - self.numbers).abs()
        reach = DIGITS * self.numbers.abs()
        if rows.slack is not None:
            reach = reach + rows.slack[:, self.feature, None]
        good = (away <= reach).any(-1) != self.negated
        return good if rows.unknown is None else good | rows.unknown[:, self.feature]


@dataclass(frozen=True)
class Conditions:
    """Rules about rows by themselves, made of single conditions.

    An implication holds where the opposite of any premise does, or all conclusions do: the opposite of a premise
    counts as much as all conclusions together.

    Attributes:
        parts: What looks at the single conditions, one kind after the other.
        counts: By condition and rule how much it counts; None where every rule is one condition, and in order.
        needed: By rule how much makes it hold.
    """

    parts: tuple[Relations | Memberships, ...]
    counts: Float[Tensor, "c r"] | None
    needed: Float[Tensor, "r"]

    @classmethod
    def of(cls, names: Sequence[str], rules: Sequence[BoundRule], device: torch.device) -> "Conditions":
        """Of rules about some of these features."""
        sides = [_sides(rule) for rule in rules]
        single = tuple(dict.fromkeys(each for two in sides for side in two for each in side))
        relations = [each for each in single if isinstance(each, Relation)]
        memberships = [each for each in single if isinstance(each, Among)]
        place = {each: number for number, each in enumerate((*relations, *memberships))}
        counts = torch.zeros(len(place), len(rules), device=device)
        needed = torch.tensor([float(len(set(conclusions))) for _, conclusions in sides], device=device)
        for rule, (premises, conclusions) in enumerate(sides):
            counts[[place[each] for each in conclusions], rule] += 1
            counts[[place[each] for each in premises], rule] += needed[rule]
        parts: list[Relations | Memberships] = [Relations.of(names, relations, device)] if relations else []
        parts += [Memberships.of(names, memberships, device)] if memberships else []
        plain = counts.shape[0] == counts.shape[1] and bool((counts == torch.eye(len(rules), device=device)).all())
        return cls(tuple(parts), None if plain else counts, needed)

    def hold(self, rows: Readings) -> Bool[Tensor, "n r"]:
        """Which rules hold."""
        each = [part.hold(rows) for part in self.parts]
        good = each[0] if len(each) == 1 else torch.cat(each, 1)
        return good if self.counts is None else good.float() @ self.counts >= self.needed


def _sides(rule: BoundRule) -> tuple[tuple[BoundCondition, ...], tuple[BoundCondition, ...]]:
    """The opposites of the premises of a rule, and its conclusions."""
    if isinstance(rule, BoundImplication):
        return tuple(each.opposite for each in rule.premises), rule.conclusions
    assert isinstance(rule, BoundCondition)
    return (), (rule,)


@dataclass(frozen=True)
class Transitions:
    """Which categories may become which.

    Attributes:
        feature: Which feature each rule is about.
        allowed: By rule, and by category before and after, whether that is allowed.
        rule: The numbers of the rules.
    """

    feature: Int[Tensor, "r"]
    allowed: Bool[Tensor, "r b a"]
    rule: Int[Tensor, "r"]

    @classmethod
    def of(cls, names: Sequence[str], rules: Sequence[Moves], device: torch.device) -> "Transitions":
        """Of rules about some of these features."""
        most = max(len(rule.table) for rule in rules) + 1  # a gap has a number of its own after the categories
        allowed = torch.ones(len(rules), most, most, dtype=torch.bool)
        for number, rule in enumerate(rules):
            allowed[number, : len(rule.table), : len(rule.table)] = torch.tensor(rule.table)
        feature = torch.tensor([names.index(rule.feature) for rule in rules], device=device)
        return cls(feature, allowed.to(device), torch.arange(len(rules), device=device))

    def hold(self, rows: Readings) -> Bool[Tensor, "n r"]:
        """Where a feature is as it was, may become what it is, or is a gap."""
        before, now = (numbers[:, self.feature].long() for numbers in (rows.before, rows.numbers))
        good = self.allowed[self.rule, before, now]
        return good if rows.ever_unknown is None else good | rows.ever_unknown[:, self.feature]


@dataclass(frozen=True)
class Changes:
    """Changes that imply others.

    Attributes:
        first: Which feature changes, by rule.
        other: Which has to change with it.
        sign: 1 where the first is to go up, −1 where down, 0 for any change.
        other_sign: Likewise.
        by: By how much the other one has to change at least.
        per: For how much of the first that is; 1 for any change, whatever its size.
        any_size: Where it is for any change.
        signed: Whether each has a direction.
        sized: Whether any says by how much.
    """

    first: Int[Tensor, "r"]
    other: Int[Tensor, "r"]
    sign: Float[Tensor, "r"]
    other_sign: Float[Tensor, "r"]
    by: Float[Tensor, "r"]
    per: Float[Tensor, "r"]
    any_size: Bool[Tensor, "r"]
    signed: bool
    sized: bool

    @classmethod
    def of(cls, names: Sequence[str], rules: Sequence[ChangeImplies], device: torch.device) -> "Changes":
        """Of rules about some of these features."""
        places = [[names.index(name) for name in rule.features] for rule in rules]
        numbers = [[_SIGNS[rule.direction], _SIGNS[rule.other_direction], rule.by, rule.per or 1.0] for rule in rules]
        table = torch.tensor(numbers, dtype=torch.float64, device=device).T
        any_size = torch.tensor([rule.per is None for rule in rules], device=device)
        first, other = torch.tensor(places, device=device).T
        return cls(
            first,
            other,
            table[0],
            table[1],
            table[2],
            table[3],
            any_size,
            bool((table[:2] != 0).all()),
            bool(table[2].any()),
        )

    def hold(self, rows: Readings) -> Bool[Tensor, "n r"]:
        """Where the first feature has not moved so, or the other one has moved enough."""
        moved = rows.numbers - rows.before
        first, other = moved[:, self.first], self._toward(moved[:, self.other], self.other_sign)
        rise = self._toward(first, self.sign).clamp_min(0)
        if rows.slack is not None:  # what is displayed as the same has not moved
            rise = rise.masked_fill(first.abs() <= rows.slack[:, self.first], 0)
            other = other - (rows.slack[:, self.other] + self.by / self.per * rows.slack[:, self.first])
        tiny = DIGITS * rows.numbers[:, self.other].abs()
        if self.sized:
            needed = self.by * torch.where(self.any_size, 1, rise / self.per)
            tiny = tiny + DIGITS * needed
            good = (rise <= 0) | ((other > tiny) & (other >= needed - tiny))
        else:
            good = (rise <= 0) | (other > tiny)
        unknown = rows.ever_unknown
        return good if unknown is None else good | unknown[:, self.first] | unknown[:, self.other]

    def _toward(self, moved: Float[Tensor, "n r"], sign: Float[Tensor, "r"]) -> Float[Tensor, "n r"]:
        """How far in a direction; with 0 in any."""
        return moved * sign if self.signed else torch.where(sign == 0, moved.abs(), moved * sign)


_SIGNS = {"up": 1.0, "down": -1.0, "changes": 0.0}

Matrix = Conditions | Transitions | Changes
KINDS_OF_RULES: tuple[tuple[type[BoundRule], ...], ...] = (
    (BoundCondition, BoundImplication),
    (Moves,),
    (ChangeImplies,),
    (Derived,),
)
"""What is looked at together, in this order; derived features one by one."""


def matrices_of(names: Sequence[str], rules: Sequence[BoundRule], device: torch.device) -> list[Matrix]:
    """What looks at many rules at once, kind after kind, without derived features."""
    found: list[Matrix] = []
    for types, kind in zip(KINDS_OF_RULES, (Conditions, Transitions, Changes), strict=False):
        some = [rule for rule in rules if isinstance(rule, types)]
        if some:
            found.append(kind.of(names, some, device))  # type: ignore[attr-defined]
    return found

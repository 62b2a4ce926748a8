"""The kinds of rules: what each says about values, before it is bound to a table and after it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.rules.expressions import (
    DIGITS,
    Call,
    Constant,
    Expression,
    Literal,
    Name,
    Operation,
    Values,
    literal_text,
    quoted,
)
from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.times import as_days
from counterpath.utils.errors import InputError, choose


class Rule(ABC):
    """Something that every row of every path keeps to. `str` is its text, which `parse_rule` turns back."""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The features that it is about."""

    @abstractmethod
    def bind(self, schema: Schema) -> "Rule":
        """The rule with its values as the schema has them.

        Raises:
            InputError: A feature or a category does not exist, or the feature is of another kind.
        """

    needs_change = False
    """Whether it is about a change, and not about a row by itself."""


class BoundRule(Rule):
    """A rule that rows can be checked by: bound to a schema, its categories are numbers."""

    @abstractmethod
    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """For which rows it holds, given the rows as they were before anything changed.

        It holds as displayed: where what is displayed may differ in its last digits, it holds whatever these are.
        """


class Condition(Rule):
    """What a row by itself meets or does not: a rule of its own, or a part of an implication."""

    @abstractmethod
    def bind(self, schema: Schema) -> "BoundCondition":
        """The condition with its values as the schema has them."""


class BoundCondition(Condition, BoundRule):
    """A condition that rows can be checked by."""

    @abstractmethod
    def is_met(self, values: Values) -> Bool[Tensor, "n"]:
        """Which rows meet it; where it does not apply they do not."""

    @abstractmethod
    def applies(self, values: Values) -> Bool[Tensor, "n"]:
        """Where none of its features is a code or a gap."""

    @property
    @abstractmethod
    def opposite(self) -> "BoundCondition":
        """What is met wherever it applies and this one surely is not, whatever the last digits are."""

    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """Where it is met or does not apply."""
        return self.is_met(values) | ~self.applies(values)


COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "<=": lambda gap, off: gap <= -off,
    ">=": lambda gap, off: gap >= off,
    "<": lambda gap, off: gap < -off,
    ">": lambda gap, off: gap > off,
    "==": lambda gap, off: gap.abs() <= off,
    "!=": lambda gap, off: gap.abs() > off,
}
"""By sign, whether left − right is so, whatever the last digits are, by which it may be off."""


_OPPOSITE = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Relation(BoundCondition):
    """A linear relation of numbers: left, one of <= >= < > == !=, right.

    Two numbers are equal if they are to the digits that are displayed.
    """

    left: Expression
    sign: str
    right: Expression

    @property
    def features(self) -> tuple[str, ...]:
        """Those of both sides."""
        return tuple(dict.fromkeys((*self.left.features, *self.right.features)))

    @cached_property
    def coefficients(self) -> tuple[dict[str, float], float]:
        """Of left − right: by feature, and the constant."""
        found = Operation("-", self.left, self.right).affine()
        if found is None:
            raise InputError(f"the rule {str(self)!r} is not linear; only a derived feature may multiply or divide two")
        return found

    def bind(self, schema: Schema) -> BoundCondition:
        """As it is; where it compares a category with a number that is one of them, that comparison."""
        for name in self.features:
            _feature(schema, name, self)
        if isinstance(self.left, Name) and isinstance(self.right, Constant) and not self.left.coded:
            feature = schema[self.left.feature]
            if feature.categories:
                return Comparison(feature.name, self.sign, self.right.value).bind(schema)
        _check_numbers(schema, (self.left, self.right), self)
        if not self.coefficients[0] or not any(self.coefficients[0].values()):
            raise InputError(f"the rule {str(self)!r} says nothing about any feature; compare features with each other")
        return self

    def is_met(self, values: Values) -> Bool[Tensor, "n"]:
        """Where it is so, and none of the features is a code or a gap."""
        gap, size, off = self.gap(values)
        tiny = DIGITS * size
        if self.sign not in ("==", "!="):  # what has not changed is displayed as it was
            off = torch.where(_any_changed(values, self.features), off, -off)
        off = off - tiny if self.sign in ("<=", ">=") else off + tiny
        return COMPARISONS[self.sign](gap, off) & self.applies(values)

    @cached_property
    def opposite(self) -> "Relation":
        """The same with the opposite sign."""
        return Relation(self.left, _OPPOSITE[self.sign], self.right)

    def gap(self, values: Values) -> tuple[Tensor, Tensor, Tensor]:
        """Left − right, the sum of the sizes of its terms, and by how much it may be off as displayed."""
        factors, constant = self.coefficients
        gap = torch.tensor(constant, dtype=torch.float64)
        size, off = gap.abs(), torch.zeros_like(gap)
        for name, factor in factors.items():
            term = factor * values.number(name)
            gap, size, off = gap + term, size + term.abs(), off + abs(factor) * values.slack(name)
        return gap, size, off

    def applies(self, values: Values) -> Bool[Tensor, "n"]:
        """Where none of the features is a code or a gap."""
        return _all_known(values, self.features)

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True)
class Comparison(Condition):
    """A feature compared with a category, or a date with a text; of categories without an order == and != only."""

    feature: str
    sign: str
    value: Literal

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def bind(self, schema: Schema) -> BoundCondition:
        """As the numbers of the categories that meet it; of a date the relation of its days."""
        feature = _feature(schema, self.feature, self)
        if not feature.categories:
            days = as_days(self.value) if KINDS[feature.kind].times else self.value
            if isinstance(days, str | bool):
                kind = "a date such as '2013-08-14'" if KINDS[feature.kind].times else "a number"
                raise InputError(
                    f"the rule {str(self)!r} compares feature {feature.name!r} (kind {feature.kind!r}) with "
                    f"{self.value!r}; expected {kind}"
                )
            return Relation(Name(self.feature), self.sign, Constant(days))
        if self.sign not in ("==", "!=") and feature.kind != "ordinal":
            raise InputError(
                f"the rule {str(self)!r} compares feature {feature.name!r} (kind {feature.kind!r}) by {self.sign}, and "
                "its categories have no order; compare by == or !=, list them with in […], or declare it ordinal"
            )
        here = feature.categories.index(_category(feature, self.value, self))
        meet = [number for number in range(len(feature.categories)) if _ORDER[self.sign](number, here)]
        if not meet:
            raise InputError(f"the rule {str(self)!r} can never be met: no category of {feature.name!r} does")
        return Among(self, self.feature, tuple(map(float, meet)))

    def __str__(self) -> str:
        return f"{quoted(self.feature)} {self.sign} {literal_text(self.value)}"


_ORDER: dict[str, Callable[[int, int], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<=": lambda one, other: one <= other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    ">": lambda one, other: one > other,
}


@dataclass(frozen=True)
class Membership(Condition):
    """A feature has one of some values, or with `negated` none of them."""

    feature: str
    values: tuple[Literal, ...]
    negated: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def bind(self, schema: Schema) -> "Among":
        """As numbers; of categories their indices."""
        feature = _feature(schema, self.feature, self)
        if feature.categories:
            listed: list[Any] = [feature.categories.index(_category(feature, each, self)) for each in self.values]
        else:
            listed = [as_days(each) if KINDS[feature.kind].times else each for each in self.values]
            if any(isinstance(each, str | bool) for each in listed):
                raise InputError(
                    f"the rule {str(self)!r} lists values of feature {feature.name!r} (kind {feature.kind!r}); "
                    "expected numbers"
                )
        if self.negated and len(set(listed)) == len(feature.categories):
            raise InputError(f"the rule {str(self)!r} can never be met: it leaves no category of {feature.name!r}")
        return Among(self, self.feature, tuple(sorted({float(each) for each in listed})), self.negated)

    def __str__(self) -> str:
        word = "not in" if self.negated else "in"
        return f"{quoted(self.feature)} {word} [{', '.join(map(literal_text, self.values))}]"


@dataclass(frozen=True)
class Among(BoundCondition):
    """A feature has one of some numbers: what comparisons with categories and memberships are, once they are bound.

    Attributes:
        condition: What it was made of, and reads like.
        feature: The feature.
        numbers: Those that meet it, or with `negated` do not; of categories their indices.
        negated: Whether all others meet it.
    """

    condition: Condition
    feature: str
    numbers: tuple[float, ...]
    negated: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def bind(self, schema: Schema) -> "Among":
        """Itself."""
        return self

    def is_met(self, values: Values) -> Bool[Tensor, "n"]:
        """Where it has one of them; as displayed, a number that is not whole has to be that very one."""
        here, slack = values.number(self.feature), values.slack(self.feature)
        numbers = torch.tensor(self.numbers, dtype=torch.float64, device=here.device)
        one = ((here[:, None] - numbers).abs() <= slack[:, None] + DIGITS * numbers.abs()).any(1)
        return (one != self.negated) & self.applies(values)

    @cached_property
    def opposite(self) -> "Among":
        """All other numbers."""
        return Among(self.condition, self.feature, self.numbers, not self.negated)

    def applies(self, values: Values) -> Bool[Tensor, "n"]:
        """Where it is neither a code nor a gap."""
        return values.known(self.feature)

    def __str__(self) -> str:
        return str(self.condition)


@dataclass(frozen=True)
class Implication(Rule):
    """Whoever meets all premises meets all conclusions."""

    premises: tuple[Condition, ...]
    conclusions: tuple[Condition, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Those of all conditions."""
        return tuple(dict.fromkeys(name for each in (*self.premises, *self.conclusions) for name in each.features))

    def bind(self, schema: Schema) -> "BoundImplication":
        """With all conditions bound."""
        try:
            sides = [tuple(each.bind(schema) for each in side) for side in (self.premises, self.conclusions)]
        except InputError as error:
            raise InputError(f"in the rule {str(self)!r}: {error}") from error
        return BoundImplication(*sides)

    def __str__(self) -> str:
        left, right = (" and ".join(map(str, side)) for side in (self.premises, self.conclusions))
        return f"{left} => {right}"


@dataclass(frozen=True)
class BoundImplication(Implication, BoundRule):
    """An implication that rows can be checked by."""

    premises: tuple[BoundCondition, ...]
    conclusions: tuple[BoundCondition, ...]

    def bind(self, schema: Schema) -> "BoundImplication":
        """Itself."""
        return self

    def is_called(self, values: Values) -> Bool[Tensor, "n"]:
        """Which rows meet the premises, or may as displayed."""
        called = torch.ones_like(self.premises[0].applies(values))
        for each in self.premises:
            called = called & ~each.opposite.holds(values, values)
        return called

    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """Where the premises are not met, or the conclusions are."""
        good = ~self.is_called(values)
        concluded = torch.ones_like(good)
        for each in self.conclusions:
            concluded = concluded & each.holds(values, origin)
        return good | concluded

    def __str__(self) -> str:
        return Implication.__str__(self)


@dataclass(frozen=True)
class ChangeImplies(BoundRule):
    """Whoever changes one feature in a direction changes another one, by at least so much.

    Attributes:
        feature: What changes.
        direction: "up", "down", or "changes" for any change.
        other: What has to change with it.
        other_direction: Likewise.
        by: By how much at least; 0 for any change.
        per: For how much of a change of the first feature that is; None for any change, whatever its size. Of a
            feature with an order a level is one category.
    """

    feature: str
    direction: str
    other: str
    other_direction: str
    by: int | float = 0
    per: int | float | None = None

    needs_change = True

    @property
    def features(self) -> tuple[str, ...]:
        """Both."""
        return self.feature, self.other

    def bind(self, schema: Schema) -> "ChangeImplies":
        """Itself, if both features have an order where one is needed."""
        for name, direction in ((self.feature, self.direction), (self.other, self.other_direction)):
            feature = _feature(schema, name, self)
            if direction != "changes" and KINDS[feature.kind].one_hot:
                raise InputError(
                    f"the rule {str(self)!r} has feature {name!r} go {direction}, and its categories have no order; "
                    "declare it ordinal, or say changes"
                )
        if self.feature == self.other:
            raise InputError(f"the rule {str(self)!r} is about one feature only; bound it, or give it a direction")
        if self.by < 0 or (self.per is not None and self.per <= 0):
            raise InputError(f"the rule {str(self)!r} has a number that is not positive; say down instead of up")
        if self.by and self.other_direction == "changes":
            raise InputError(f"the rule {str(self)!r} says by how much, and not whether up or down")
        if self.per is not None and self.direction == "changes":
            raise InputError(f"the rule {str(self)!r} counts a change that has no direction; say up or down")
        return self

    def rise(self, values: Values, origin: Values) -> Float[Tensor, "n"]:
        """By how much the first feature has moved in its direction; 0 where it has not."""
        moved = values.number(self.feature) - origin.number(self.feature)
        moved = torch.where(moved.abs() <= values.slack(self.feature), 0, moved)
        moved = moved.abs() if self.direction == "changes" else moved if self.direction == "up" else -moved
        both = values.known(self.feature) & origin.known(self.feature)
        return torch.where(both, moved, 0).clamp_min(0)

    def needed(self, values: Values, origin: Values) -> Float[Tensor, "n"]:
        """By how much the other feature has to move; 0 for any change."""
        rise = self.rise(values, origin)
        each = torch.ones_like(rise) if self.per is None else rise / self.per
        return self.by * each

    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """Where the first feature has not moved so, or the other one has moved enough."""
        rise, needed = self.rise(values, origin), self.needed(values, origin)
        moved = values.number(self.other) - origin.number(self.other)
        slack = values.slack(self.other) + (self.by / (self.per or 1)) * values.slack(self.feature)
        moved = moved.abs() if self.other_direction == "changes" else moved if self.other_direction == "up" else -moved
        tiny = DIGITS * (needed.abs() + values.number(self.other).abs())
        enough = (moved > slack + tiny) & (moved >= needed + slack - tiny)
        both = values.known(self.other) & origin.known(self.other)
        return (rise <= 0) | enough | ~both

    def __str__(self) -> str:
        text = f"{quoted(self.feature)} {self.direction} => {quoted(self.other)} {self.other_direction}"
        if not self.by:
            return text
        per = "" if self.per is None else " per level" if self.per == 1 else f" per {self.per!r}"
        return f"{text} by {self.by!r}{per}"


ANYTHING = "*"


@dataclass(frozen=True)
class Transition(Rule):
    """From which categories a feature may become which, or may not.

    Attributes:
        feature: A feature with categories.
        before: The categories from which; empty for any.
        after: The categories to which; empty for any.
        allowed: Whether the transition is allowed, and from these categories no other but those that are; else it is
            forbidden. Whoever has a category keeps it in any case.
    """

    feature: str
    before: tuple[Literal, ...]
    after: tuple[Literal, ...]
    allowed: bool = False

    needs_change = True

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def bind(self, schema: Schema) -> "Transition":
        """With the categories as the schema has them; all transitions of a feature together are its `Moves`."""
        feature = _feature(schema, self.feature, self)
        if not feature.categories:
            raise InputError(
                f"the rule {str(self)!r} is about feature {feature.name!r} (kind {feature.kind!r}), which has no "
                "categories; give it a direction, or write a change that implies another"
            )
        before, after = (tuple(_category(feature, each, self) for each in side) for side in (self.before, self.after))
        if not before and not after:
            raise InputError(f"the rule {str(self)!r} is about every transition; lock the feature, or leave it out")
        return Transition(self.feature, before, after, self.allowed)

    def __str__(self) -> str:
        sides = ("|".join(map(literal_text, side)) or ANYTHING for side in (self.before, self.after))
        return f"{quoted(self.feature)}: {' -> '.join(sides)} {'allowed' if self.allowed else 'forbidden'}"


@dataclass(frozen=True)
class Moves(BoundRule):
    """All transitions of a feature together, as a table: from which number to which it may go.

    Attributes:
        feature: The feature.
        table: Whether it may go from one category to another.
        rules: What it was made of.
    """

    feature: str
    table: tuple[tuple[bool, ...], ...]
    rules: tuple[Transition, ...]

    needs_change = True

    @classmethod
    def of(cls, feature: Feature, rules: Sequence[Transition]) -> "Moves":
        """Of bound transitions of one feature.

        Raises:
            InputError: One forbids what another one allows.
        """
        count, numbers = len(feature.categories), {each: i for i, each in enumerate(feature.categories)}
        table = [[True] * count for _ in range(count)]
        by: dict[tuple[int, int], Transition] = {}
        listed: dict[int, set[int]] = {}
        for rule in rules:
            before = [numbers[each] for each in rule.before or feature.categories]
            after = [numbers[each] for each in rule.after or feature.categories]
            for start in before:
                if rule.allowed:
                    listed.setdefault(start, set()).update(after)
                for end in after:
                    first = by.setdefault((start, end), rule)
                    if first.allowed != rule.allowed and start != end:
                        raise InputError(f"the rules {str(first)!r} and {str(rule)!r} contradict each other")
                    if not rule.allowed:
                        table[start][end] = False
        for start, ends in listed.items():
            table[start] = [may and end in ends for end, may in enumerate(table[start])]
        for number in range(count):
            table[number][number] = True
        return cls(feature.name, tuple(map(tuple, table)), tuple(rules))

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def bind(self, schema: Schema) -> "Moves":
        """Itself."""
        return self

    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """Where the feature is as it was, may become what it is, or is a gap."""
        both = values.known(self.feature) & origin.known(self.feature)
        start, end = (each.number(self.feature).nan_to_num().long() for each in (origin, values))
        table = torch.tensor(self.table, device=start.device)
        return table[start.where(both, 0), end.where(both, 0)] | ~both

    def __str__(self) -> str:
        return "; ".join(map(str, self.rules))


@dataclass(frozen=True)
class Derived(BoundRule):
    """A feature that follows from others: it is recomputed wherever one of them changes, and never searched."""

    feature: str
    expression: Expression

    @property
    def features(self) -> tuple[str, ...]:
        """The feature, and what it follows from."""
        return tuple(dict.fromkeys((self.feature, *self.expression.features)))

    def bind(self, schema: Schema) -> "Derived":
        """Itself, if what it follows from are numbers or codes of categories."""
        for name in self.features:
            _feature(schema, name, self)
        if KINDS[schema[self.feature].kind].one_hot:
            raise InputError(
                f"the rule {str(self)!r} derives feature {self.feature!r}, whose categories have no order; derive a "
                "number or an ordinal feature"
            )
        _check_numbers(schema, (self.expression,), self)
        if not self.expression.features or self.feature in self.expression.features:
            raise InputError(f"the rule {str(self)!r} derives {self.feature!r} from itself, or from nothing")
        if _divides_by_zero(self.expression):
            raise InputError(f"the rule {str(self)!r} divides by zero")
        return self

    def applies(self, values: Values) -> Bool[Tensor, "n"]:
        """Where neither the feature nor what it follows from is a code or a gap."""
        return _all_known(values, self.features)

    def holds(self, values: Values, origin: Values) -> Bool[Tensor, "n"]:
        """Where it is what it follows from the others, to the digits that are displayed.

        A division by zero says nothing: there a row may stay as it is, and none may be moved to.
        """
        value = self.expression.compute(values)
        away = (values.number(self.feature) - value).abs()
        near = away <= values.rounding(self.feature) + DIGITS * value.abs()
        held = (near & value.isfinite()) | ~self.applies(values)
        undefined = ~value.isfinite()
        if not bool(undefined.any()):
            return held
        same = [values.number(name) == origin.number(name) for name in self.features]
        return held | (undefined & torch.stack(same).all(0))

    def __str__(self) -> str:
        return f"{quoted(self.feature)} = {self.expression}"


def _divides_by_zero(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return _divides_by_zero(expression.argument)
    if not isinstance(expression, Operation):
        return False
    by_zero = expression.sign == "/" and isinstance(expression.right, Constant) and expression.right.value == 0
    return by_zero or _divides_by_zero(expression.left) or _divides_by_zero(expression.right)


def _any_changed(values: Values, features: Iterable[str]) -> Tensor:
    return torch.stack([values.changed(name) for name in features]).any(0)


def _all_known(values: Values, features: Iterable[str]) -> Tensor:
    known: Tensor | None = None
    for name in features:
        known = values.known(name) if known is None else known & values.known(name)
    assert known is not None
    return known


def _check_numbers(schema: Schema, expressions: Iterable[Expression], rule: Rule) -> None:
    """Raise an error where an expression computes with a category that is not coded, or codes a number."""
    for expression in expressions:
        if isinstance(expression, Call):
            _check_numbers(schema, (expression.argument,), rule)
        if isinstance(expression, Operation):
            _check_numbers(schema, (expression.left, expression.right), rule)
        if isinstance(expression, Name):
            feature = schema[expression.feature]
            if feature.categories and not expression.coded:
                raise InputError(
                    f"the rule {str(rule)!r} computes with feature {feature.name!r} (kind {feature.kind!r}), which has "
                    f"categories; write code({quoted(feature.name)}) for the number of its category"
                )
            if expression.coded and not feature.categories:
                raise InputError(
                    f"the rule {str(rule)!r} has code({quoted(feature.name)}), which is a number already; leave code "
                    "out"
                )


def _feature(schema: Schema, name: str, rule: Rule) -> Feature:
    return choose(f"feature in the rule {str(rule)!r}:", name, {feature.name: feature for feature in schema})


def _category(feature: Feature, value: Literal, rule: Rule) -> Any:
    """A category as the schema has it; text that reads like one will do."""
    for each in feature.categories:
        if each == value and isinstance(each, bool) == isinstance(value, bool):
            return each
    names = {str(category): category for category in feature.categories}
    return choose(f"category of feature {feature.name!r} in the rule {str(rule)!r}:", str(value), names)


def derivations(rules: Iterable[Rule]) -> tuple[Derived, ...]:
    """The derived features, each after what it follows from.

    Raises:
        InputError: A feature is derived twice, or from itself in a circle.
    """
    by: dict[str, Derived] = {}
    for rule in rules:
        if isinstance(rule, Derived):
            first = by.setdefault(rule.feature, rule)
            if first != rule:
                raise InputError(
                    f"the rules {str(first)!r} and {str(rule)!r} derive the same feature; leave one of them"
                )
    ordered: list[Derived] = []
    waiting: list[str] = []

    def visit(name: str) -> None:
        if name not in by or by[name] in ordered:
            return
        if name in waiting:
            circle = [*waiting[waiting.index(name) :], name]
            texts = "; ".join(str(by[each]) for each in circle[:-1])
            raise InputError(f"these rules derive features from each other in a circle, {' → '.join(circle)}: {texts}")
        waiting.append(name)
        for source in by[name].expression.features:
            visit(source)
        waiting.pop()
        ordered.append(by[name])

    for name in by:
        visit(name)
    return tuple(ordered)

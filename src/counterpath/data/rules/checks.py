"""Are rules consistent, do training rows keep to them, and which rules do these suggest?"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.rules.expressions import Constant, Name, Operation, quoted
from counterpath.data.rules.kinds import (
    Among,
    BoundImplication,
    Derived,
    Moves,
    Relation,
    Rule,
    Transition,
    derivations,
)
from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.tables import to_numbers
from counterpath.utils.errors import CounterpathWarning, InputError

_FEW_BREAK, _MOST_BREAK = 0.01, 0.5
"""Shares of the training rows that break a rule: from the first on a person should know, and from the second on the
rule is not one of these data."""
_SUGGESTED = 0.99  # share of rows in which a relation must hold to be suggested; one in a hundred may be a typing error
_BY_CHANCE = 0.9  # a relation that as many pairs of unrelated rows keep to says nothing
_TIGHT = 0.005  # share of rows in which both are equal: what is a part of something else is at times all of it
_MOST_ROWS = 20_000  # rows that suggestions are looked for in: a share of them is known to within 0.2 %
_FEWEST_ROWS = 30  # in which both are known, or nothing can be said
_SAME = 1e-6  # of a range, as derived numbers are compared


class FrameValues:
    """The values of a table, as `rules.Values` has them."""

    def __init__(self, schema: Schema, frame: pd.DataFrame) -> None:
        self.schema, self.frame = schema, frame
        self._kept: dict[str, Float[Tensor, n]] = {}

    def number(self, feature: str) -> Float[Tensor, "n"]:
        """As the table has it."""
        if feature not in self._kept:
            numbers = to_numbers(self.frame[feature], self.schema[feature])
            self._kept[feature] = torch.tensor(np.asarray(numbers, dtype=np.float64))
        return self._kept[feature]

    def known(self, feature: str) -> Bool[Tensor, "n"]:
        """Where it is neither a code nor a gap."""
        numbers, codes = self.number(feature), self.schema[feature].codes
        known = ~numbers.isnan()
        for code in codes:
            known &= numbers != float(code)
        return known

    def slack(self, feature: str) -> Float[Tensor, "n"]:
        """None: this is what is displayed."""
        return torch.zeros(len(self.frame), dtype=torch.float64)

    def rounding(self, feature: str) -> Float[Tensor, "n"]:
        """Half a whole number, half a step, or a millionth of the range."""
        own = self.schema[feature]
        if KINDS[own.kind].whole or own.step:
            return torch.full((len(self.frame),), 0.5 * float(own.step or 1) * (1 + 1e-9), dtype=torch.float64)
        numbers = self.number(feature)[self.known(feature)]
        reach = float(numbers.max() - numbers.min()) if len(numbers) else 0.0
        return torch.full((len(self.frame),), _SAME * reach, dtype=torch.float64)

    def changed(self, feature: str) -> Bool[Tensor, "n"]:
        """Nothing has changed, so what is equal is equal to the digit."""
        return torch.ones(len(self.frame), dtype=torch.bool)


def check_shares(shares: Mapping[str, float]) -> None:
    """Warn of rules that more than 1 % of the training rows break.

    Args:
        shares: By rule the share that breaks it.

    Raises:
        InputError: Most rows break a rule.
    """
    for said in often_broken(shares):
        warnings.warn(said, CounterpathWarning, stacklevel=3)


def often_broken(shares: Mapping[str, float]) -> list[str]:
    """What is to be said of rules that more than 1 % of the training rows break; arguments as of `check_shares`.

    Raises:
        InputError: Most rows break a rule.
    """
    notes = []
    for text, share in shares.items():
        said = f"the rule {text!r} is broken by {100 * share:.3g} % of the training rows"
        if share > _MOST_BREAK:
            raise InputError(
                f"{said}, so it is no rule of these data; turn it round, correct it, or leave it out (for a derived "
                "feature whose numbers are rounded, give the feature a step)"
            )
        if share > _FEW_BREAK:
            notes.append(f"{said}: they may be errors, or the rule has exceptions; a path begins by keeping to it")
    return notes


def check_consistent(schema: Schema, rules: Sequence[Rule]) -> None:
    """Raise an error if a rule can never be met, or some contradict each other, within the bounds of the schema.

    Relations and linear derivations are looked at together, by linear programming; an implication together with them,
    as if its premises were met, and with those that have the same premises.

    Raises:
        InputError: The message quotes the rules, as few as contradict each other.
    """
    derivations(rules)
    moves: dict[str, list[Transition]] = {}
    for rule in rules:
        if isinstance(rule, Transition):
            moves.setdefault(rule.feature, []).append(rule)
    for name, some in moves.items():
        Moves.of(schema[name], some)
    _check_immutable(schema, rules)
    always = [rule for rule in rules if isinstance(rule, Relation | Among) or _linear(rule) is not None]
    _check_together(schema, [(rule, [rule]) for rule in always], "")
    called: dict[tuple[str, ...], list[BoundImplication]] = {}
    for rule in rules:
        if isinstance(rule, BoundImplication):
            called.setdefault(tuple(sorted(map(str, rule.premises))), []).append(rule)
    for premises, alike in called.items():
        known: list[tuple[Rule | None, list[Rule]]] = [(None, list(alike[0].premises))]
        known += [(rule, [rule]) for rule in always]
        known += [(rule, list(rule.conclusions)) for rule in alike]
        _check_together(schema, known, f" for whom {' and '.join(premises)}")


def _check_immutable(schema: Schema, rules: Iterable[Rule]) -> None:
    for rule in rules:
        if isinstance(rule, Derived) and schema[rule.feature].immutable:
            free = [name for name in rule.expression.features if not schema[name].immutable]
            if free:
                raise InputError(
                    f"the rule {str(rule)!r} derives {rule.feature!r}, which is immutable, from {', '.join(free)}, "
                    f"which may change; make {rule.feature!r} free to follow, or these immutable, too"
                )


def _linear(rule: Rule) -> Relation | None:
    """A relation, or a linear derivation as one; a derived number may be rounded, so it is left out if that matters."""
    if isinstance(rule, Relation):
        return None if rule.sign == "!=" else rule
    if isinstance(rule, Derived) and rule.expression.affine() is not None:
        return Relation(Name(rule.feature), "==", rule.expression)
    return None


def _check_together(schema: Schema, known: Sequence[tuple[Rule | None, Sequence[Rule]]], whom: str) -> None:
    """Raise an error if nobody can meet all of these rules; what has no rule is taken for granted."""
    if _feasible(schema, [part for _, parts in known for part in parts]):
        return
    kept = list(known)
    for each in known:  # leave out what the contradiction does not need
        without = [other for other in kept if other is not each]
        if each[0] is not None and not _feasible(schema, [part for _, parts in without for part in parts]):
            kept = without
    texts = [repr(str(rule)) for rule, _ in kept if rule is not None]
    if not texts:
        raise InputError(f"nobody can be somebody{whom}, within the bounds of the features; leave such rules out")
    if len(texts) == 1:
        raise InputError(
            f"the rule {texts[0]} can never be met{whom or ' within the bounds of the features'}; correct it, or widen "
            "the bounds"
        )
    raise InputError(f"the rules {' and '.join(texts)} contradict each other{whom}; leave one of them out")


def _feasible(schema: Schema, rules: Sequence[Rule]) -> bool:
    """Whether some numbers within the bounds of the features meet all relations and memberships.

    The linear program is: find x with Ax + s·t ≤ b, with s = 1 for strict relations, and make t as large as it gets; if
    that is 0, a strict relation cannot be met.
    """
    from scipy.optimize import linprog

    names = list(dict.fromkeys(name for rule in rules for name in rule.features))
    among = _allowed(schema, rules)
    if among is None:
        return False
    lines: list[list[float]] = []
    limits: list[float] = []
    for rule in rules:
        relation = _linear(rule)
        if relation is None:
            continue
        factors, constant = relation.coefficients
        room = _room(schema[rule.feature]) if isinstance(rule, Derived) else 0.0
        line = [*(factors.get(name, 0.0) for name in names), 0.0]
        strict = [0.0] * len(names) + [1.0 if relation.sign in ("<", ">") else 0.0]
        for sign in _SIDES[relation.sign]:
            lines.append([sign * factor + more for factor, more in zip(line, strict, strict=True)])
            limits.append(room - sign * constant)
    if not lines:
        return True
    bounds = [*(_range(schema[name], among.get(name)) for name in names), (0.0, 1.0)]
    best = np.array([*np.zeros(len(names)), -1.0])
    found = linprog(best, A_ub=np.array(lines), b_ub=np.array(limits), bounds=bounds)
    if found.status == _INFEASIBLE:
        return False
    is_strict = any(line[-1] for line in lines)
    return not (is_strict and found.status == 0 and found.x[-1] <= 0)


_INFEASIBLE = 2  # what scipy says of a program without a solution; all else has the benefit of the doubt
_SIDES = {"<=": (1,), "<": (1,), ">=": (-1,), ">": (-1,), "==": (1, -1)}
"""By the sign of a relation, how it is written as ≤: an equality as two of them."""


def _allowed(schema: Schema, rules: Sequence[Rule]) -> dict[str, set[float]] | None:
    """By feature the numbers that memberships leave, where they are finitely many; None if some leave none."""
    found: dict[str, set[float]] = {}
    for rule in rules:
        if isinstance(rule, Among):
            allowed = _numbers_allowed(schema[rule.feature], rule)
            if allowed is not None:
                found[rule.feature] = found.get(rule.feature, allowed) & allowed
    return None if any(not allowed for allowed in found.values()) else found


def _room(feature: Feature) -> float:
    """By how much a derived number may be rounded."""
    return 0.5 * float(feature.step or 1) if KINDS[feature.kind].whole or feature.step else 0.0


def _numbers_allowed(feature: Feature, rule: Among) -> set[float] | None:
    """The numbers that a membership leaves; None for infinitely many."""
    if feature.categories:
        every = set(map(float, range(len(feature.categories))))
        return every - set(rule.numbers) if rule.negated else set(rule.numbers)
    return None if rule.negated else set(rule.numbers)


def _range(feature: Feature, allowed: set[float] | None) -> tuple[float | None, float | None]:
    if feature.categories:
        low, high = 0.0, float(len(feature.categories) - 1)
    else:
        low, high = (None if end is None else float(end) for end in (feature.lower, feature.upper))  # type: ignore[assignment]
    if allowed:
        low = min(allowed) if low is None else max(low, min(allowed))
        high = max(allowed) if high is None else min(high, max(allowed))
    return low, high


@dataclass(frozen=True)
class Suggestion:
    """A rule that the rows of a table suggest, for a person to accept.

    Attributes:
        rule: The rule, as text.
        holds: The share of the rows that it is about that keep to it.
        rows: How many these are.
    """

    rule: str
    holds: float
    rows: int

    def __str__(self) -> str:
        return self.rule


def suggest_rules(schema: Schema, frame: pd.DataFrame) -> tuple[Suggestion, ...]:
    """Relations that hold in nearly all rows of a table, the most telling first.

    - One number is at most another one, as a part is of its whole: in 99 % of the rows or more, equal in some, and
      rarely so by chance, if both came from different rows. What follows from two others is left out.
    - A number is the code of a category, counted from any number.

    Rows in which either is a code or a gap say nothing.
    """
    frame = frame.iloc[:: -(-len(frame) // _MOST_ROWS)] if len(frame) > _MOST_ROWS else frame
    values = FrameValues(schema, frame)
    numbers = [each for each in schema if not each.categories and not KINDS[each.kind].times]
    found: dict[tuple[str, str], tuple[Suggestion, float]] = {}
    columns = {each.name: values.number(each.name).numpy() for each in schema}
    known = {each.name: values.known(each.name).numpy() for each in schema}
    for small, large in permutations(numbers, 2):
        both = known[small.name] & known[large.name]
        one, other = columns[small.name][both], columns[large.name][both]
        said = _at_most(one, other)
        if said is not None:
            text = f"{quoted(small.name)} <= {quoted(large.name)}"
            found[small.name, large.name] = (Suggestion(text, said[0], int(both.sum())), said[1])
    for part, whole in list(found):
        between = {end for start, end in found if start == part} & {start for start, end in found if end == whole}
        if between - {part, whole}:
            del found[part, whole]
    relations = [each for each, _ in sorted(found.values(), key=lambda pair: pair[1])]
    return (*_codes(schema, columns, known), *relations)


def _at_most(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float] | None:
    """The share of rows in which the first is at most the second, and that by chance; None if it says nothing."""
    if len(one) < _FEWEST_ROWS or one.min() == one.max() or other.min() == other.max():
        return None
    holds, equal = float((one <= other).mean()), float((one == other).mean())
    informative = one > one.min()  # the least number of all is at most anything
    if holds < _SUGGESTED or equal < _TIGHT or informative.sum() < _FEWEST_ROWS or (one == other).all():
        return None
    ranks = np.searchsorted(np.sort(other), one[informative], side="left")
    by_chance = float(1 - ranks.mean() / len(other))
    return None if by_chance > _BY_CHANCE else (holds, by_chance)


def _codes(
    schema: Schema, columns: dict[str, NDArray[np.float64]], known: dict[str, NDArray[np.bool_]]
) -> list[Suggestion]:
    """Numbers that are the codes of a category."""
    found = []
    categories = [each for each in schema if len(each.categories) > 2]
    for number in (each for each in schema if each.kind == "integer"):
        for category in categories:
            both = known[number.name] & known[category.name]
            away = columns[number.name][both] - columns[category.name][both]
            if len(away) < _FEWEST_ROWS or len(np.unique(columns[category.name][both])) < 3:
                continue
            start = int(np.median(away))
            holds = float((away == start).mean())
            if holds >= _SUGGESTED:
                code: Operation | Name = Name(category.name, coded=True)
                if start:
                    code = Operation("+" if start > 0 else "-", code, Constant(abs(start)))
                found.append(Suggestion(f"{quoted(number.name)} = {code}", holds, int(both.sum())))
    return found

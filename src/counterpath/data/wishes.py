"""What a user may ask of the features of a table: each wish checked against the schema, and put plainly."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from counterpath.data.schema import KINDS, Feature, Number, Schema
from counterpath.errors import InputError, choose

T = TypeVar("T")

UP, DOWN = "up", "down"
_DIRECTIONS = dict.fromkeys((UP, DOWN))
_PAIRED = ("continuous", "integer", "ordinal")
_HUGE = sys.float_info.max
_FARTHEST = 1e6
"""How much harder one feature may be to change than another; beyond, single precision has too few digits."""


def names_of(schema: Schema, given: Any) -> tuple[str, ...]:
    """The names of features to lock, each once, in alphabetical order; one name alone will do."""
    listed = (given,) if isinstance(given, str) else _listed(given)
    if listed is None:
        raise InputError(f"lock is {given!r}; expected names of features, for instance lock=['{schema.names[0]}']")
    names = sorted({_named(schema, "lock", name).name for name in listed})
    if names and {*names, *schema.immutable} >= {*schema.names}:
        held = f", and these are immutable: {', '.join(schema.immutable)}" if schema.immutable else ""
        raise InputError(f"lock={names!r} leaves nothing that could change{held}; leave a feature out of lock")
    return tuple(names)


def by_feature(schema: Schema, option: str, given: Any, check: Callable[[Feature, Any], T]) -> dict[str, T]:
    """What is asked of each feature, checked, in the alphabetical order of their names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{option} is {given!r}; expected a mapping from the names of features, such as {{name: …}}")
    features = {name: _named(schema, option, name) for name in given}
    return {name: check(features[name], given[name]) for name in sorted(given)}


def direction(feature: Feature, given: Any) -> str:
    """Up or down."""
    if KINDS[feature.kind].one_hot:
        raise InputError(
            f"directions has feature {feature.name!r} (kind {feature.kind!r}), whose categories have no order; try "
            f"ranges={{{feature.name!r}: […]}} with those that are allowed, or declare it ordinal"
        )
    choose(f"direction of feature {feature.name!r}:", given if isinstance(given, str) else repr(given), _DIRECTIONS)
    return str(given)


def paired(feature: Feature) -> bool:
    """Whether a range of the feature is a pair of ends: its values have an order, and are more than two."""
    return feature.kind in _PAIRED


def span(feature: Feature, given: Any) -> tuple[Any, ...]:
    """Where a feature must stay: (low, high), or the categories that are allowed."""
    if not paired(feature):
        return _categories(feature, given)
    listed = None if isinstance(given, Set) else _listed(given)
    if listed is None or len(listed) != 2:
        raise _misfit(feature, given, "a pair (low, high), either of which may be None for an open end")
    if feature.categories:
        low, high = (None if end is None else _category(feature, end) for end in listed)
    else:
        low, high = (None if end is None else _number(feature, end, given) for end in listed)
    least, most = ends(feature, (low, high))
    if least > most:
        raise InputError(f"the range of feature {feature.name!r} has low={low!r} above high={high!r}; swap them?")
    if feature.kind == "integer" and math.isfinite(least + most) and math.ceil(least) > math.floor(most):
        raise InputError(f"the range of feature {feature.name!r}, {told(feature, (low, high))}, has no whole number")
    return low, high


def ends(feature: Feature, wanted: tuple[Any, ...]) -> tuple[float, float]:
    """The range of a feature whose values have an order as numbers, for categories as places; infinite if open."""
    places = {value: place for place, value in enumerate(feature.categories)}
    if not paired(feature):
        return float(min(places[value] for value in wanted)), float(max(places[value] for value in wanted))
    low, high = (end if end is None else float(places.get(end, -1) if places else end) for end in wanted)
    return -math.inf if low is None else low, math.inf if high is None else high


def told(feature: Feature, wanted: tuple[Any, ...]) -> str:
    """A range in words."""
    if not paired(feature):
        return " or ".join(map(repr, wanted))
    low, high = wanted
    if low is None or high is None:
        return "anything" if low is high else f"at least {low!r}" if high is None else f"at most {high!r}"
    return f"from {low!r} to {high!r}"


def count(option: str, given: Any) -> int:
    """A whole number from 1."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Integral) or given < 1:
        raise InputError(f"{option} is {given!r}; expected a whole number from 1")
    return int(given)


def difficulties(schema: Schema, given: Any) -> dict[str, Number]:
    """How hard features are to change."""
    hard = by_feature(schema, "difficulty", given, _difficulty)
    every = {name: hard.get(name, 1) for name in schema.names}
    easiest, hardest = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    if every[hardest] / every[easiest] > _FARTHEST:
        raise InputError(
            f"feature {hardest!r} has the difficulty {every[hardest]:g} and {easiest!r} {every[easiest]:g}, more than "
            f"a million times less; to rule a change out, lock the feature: lock=[{hardest!r}]"
        )
    return hard


def _difficulty(feature: Feature, given: Any) -> Number:
    value = _plain_number(given)
    if value is None or value <= 0:
        raise InputError(
            f"difficulty has {given!r} for feature {feature.name!r}; expected a positive number, 1 is usual"
        )
    return value


def _named(schema: Schema, option: str, name: Any) -> Feature:
    if not isinstance(name, str):
        raise InputError(f"{option} has {name!r}; expected the name of a feature, one of: {', '.join(schema.names)}")
    return choose(f"feature in {option}:", name, {feature.name: feature for feature in schema})


def _listed(given: Any) -> tuple[Any, ...] | None:
    """The elements of a list, an array or the like; None for text and all that has none."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return None
    return tuple(given)


def _number(feature: Feature, end: Any, given: Any) -> Number:
    value = _plain_number(end)
    if value is None:
        raise _misfit(feature, given, "a pair (low, high) of finite numbers, or None for an open end")
    return value


def _plain_number(given: Any) -> Number | None:
    """A finite number as Python's own; None if it is none."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Real):
        return None
    value: Number = int(given) if isinstance(given, Integral) else float(given)
    return value if -_HUGE <= value <= _HUGE else None


def _categories(feature: Feature, given: Any) -> tuple[Any, ...]:
    """The allowed categories, in the schema's order; one alone will do."""
    listed = (given,) if isinstance(given, str) else _listed(given)
    if not listed:
        raise _misfit(feature, given, f"the allowed ones of: {', '.join(map(repr, feature.categories))}")
    allowed = {_category(feature, value) for value in listed}
    return tuple(value for value in feature.categories if value in allowed)


def _category(feature: Feature, value: Any) -> Any:
    """A category as the schema has it; text that reads like one, as a command line gives it, will do."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str | bool | int | float) and plain in feature.categories:
        return feature.categories[feature.categories.index(plain)]
    names = {str(category): category for category in feature.categories}
    return choose(f"category in the range of feature {feature.name!r}:", str(plain), names)


def _misfit(feature: Feature, given: Any, expected: str) -> InputError:
    return InputError(
        f"the range of feature {feature.name!r} (kind {feature.kind!r}) is {given!r}; expected {expected}"
    )

"""What a person says about each feature: locked or not, which way and how far it may go, and how hard that is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from counterpath.data.columns import to_numbers
from counterpath.data.constraints import Constraints
from counterpath.data.schema import Feature, Number, Schema
from counterpath.data.wishes import paired
from counterpath.errors import InputError
from counterpath.explainer import Explainer

BOTH = "both"
"""The direction of a feature that may go up and down."""
_KINDS = ("immutable", "lock", "up", "down", "range", "max_changes")


@dataclass(frozen=True)
class Limit:
    """What is said about one feature.

    Attributes:
        locked: It must not change.
        direction: "up", "down" or `BOTH`.
        low: The smallest value that is allowed, or None.
        high: The largest one, or None.
        allowed: The categories that are allowed, for a feature without an order; empty for all of them.
        difficulty: How hard it is to change; None is no number, which an error says.
    """

    locked: bool = False
    direction: str = BOTH
    low: Any = None
    high: Any = None
    allowed: tuple[Any, ...] = ()
    difficulty: Number | None = 1

    def told(self, feature: Feature) -> str:
        """What differs from the usual, in a few words."""
        words = ["locked"] if self.locked else []
        words += [f"only {self.direction}"] if self.direction != BOTH else []
        if self.low is not None or self.high is not None:
            words.append(f"{'' if self.low is None else self.low}–{'' if self.high is None else self.high}")
        words += [f"{len(self.allowed)} of {len(feature.categories)} values"] if self.allowed else []
        words += [f"difficulty {self.difficulty:g}"] if self.difficulty not in (None, 1) else []
        return ", ".join(words)


def whole(given: Any) -> Any:
    """A whole number as one, for a field gives all as floats; anything else as it is."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def arguments(schema: Schema, limits: Mapping[str, Limit]) -> dict[str, Any]:
    """The limits as arguments of `Asked`: only what differs from the usual."""
    ranges: dict[str, Any] = {}
    for name, limit in limits.items():
        if limit.allowed:
            ranges[name] = limit.allowed
        elif paired(schema[name]) and (limit.low is not None or limit.high is not None):
            ranges[name] = (limit.low, limit.high)
    return {
        "lock": tuple(name for name, limit in limits.items() if limit.locked),
        "directions": {name: limit.direction for name, limit in limits.items() if limit.direction != BOTH},
        "ranges": ranges,
        "difficulty": {name: limit.difficulty for name, limit in limits.items() if limit.difficulty != 1},
    }


def value_problem(feature: Feature, value: Any, label: Any) -> str:
    """Why a value cannot be one of this feature, or nothing."""
    try:
        to_numbers(pd.Series([value], index=[label], name=feature.name), feature)
    except InputError as error:
        return str(error)
    return ""


def limit_problem(explainer: Explainer, feature: Feature, limit: Limit, person: pd.DataFrame | None) -> str:
    """Why a limit cannot be, or is not kept by the person as they are, or nothing.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        limit: What is said about it.
        person: One row that can be encoded; None if theirs cannot.
    """
    if limit == Limit():
        return ""
    said = arguments(explainer.schema_, {feature.name: limit})
    try:
        constraints = Constraints.of(explainer.schema_, **said)
        if person is not None:
            constraints.bounds(explainer.encoder_, person, explainer.encoder_.encode(person))
    except InputError as error:
        return str(error)
    return ""


def binding(schema: Schema, text: str) -> list[tuple[str, str]]:
    """The obstacles that an explanation names as `binding`, each as its kind and its name, the strongest first.

    A feature may be called anything, "a; lock: b" too, so names are looked for and not cut out.
    """
    return list(_obstacles(schema, text))


def _obstacles(schema: Schema, text: str) -> Iterator[tuple[str, str]]:
    rest = text
    longest_first = sorted(schema.names, key=len, reverse=True)
    while rest:
        kind, _, tail = rest.partition(": ")
        if kind not in _KINDS:
            return
        names = [tail.partition("; ")[0]] if kind == "max_changes" else longest_first
        found = next((name for name in names if tail == name or tail.startswith(f"{name}; ")), None)
        if found is None:
            return
        yield kind, found
        rest = tail[len(found) + 2 :]

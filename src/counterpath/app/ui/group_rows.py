"""Whom to explain: which rows of a table are taken, as values and functions that know nothing of a page."""

from dataclasses import dataclass
from random import Random
from typing import Any

from counterpath.answering import OTHER
from counterpath.app.ui.people import People
from counterpath.data.schema import Number

MOST = 1000
"""How many people are explained at once, at most."""
AT_FIRST = 100


@dataclass(frozen=True)
class Choice:
    """Which rows are taken.

    Attributes:
        rejected: Only those for whom the model does not decide as wanted.
        feature: A feature by which rows are filtered, or None.
        values: The categories of it that are taken; all if there are none.
        low: The least number of it that is taken, or None.
        high: The largest one, or None.
        most: How many of those that fit are drawn at random.
        seed: Of the draw: the same people every time.
    """

    rejected: bool = True
    feature: str | None = None
    values: tuple[Any, ...] = ()
    low: Number | None = None
    high: Number | None = None
    most: int = AT_FIRST
    seed: int = 0


def fitting(people: People, choice: Choice, wanted: Any) -> list[int]:
    """The places of all rows that a choice leaves, in order.

    Args:
        people: The rows.
        choice: Which are taken.
        wanted: The wanted class, or `OTHER`: then all with a decision are rejected.
    """
    places = range(len(people))
    if choice.rejected:
        places_left = [place for place in places if _is_rejected(people.decided[place], wanted)]
    else:
        places_left = list(places)
    if choice.feature is None:
        return places_left
    column = people.frame[choice.feature].tolist()
    return [place for place in places_left if _fits(column[place], choice)]


def drawn(places: list[int], choice: Choice) -> list[int]:
    """As many of the places as are asked for, at random, in order."""
    if len(places) <= choice.most:
        return places
    return sorted(Random(choice.seed).sample(places, choice.most))


def _is_rejected(decision: Any, wanted: Any) -> bool:
    return decision is not None and (wanted == OTHER or decision != wanted)


def _fits(value: Any, choice: Choice) -> bool:
    if choice.values and value not in choice.values:
        return False
    return not (choice.low is not None and value < choice.low) and not (choice.high is not None and value > choice.high)

"""A row's explanation in words: the only place that decides how values, changes and outcomes read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from counterpath.explanation.status import Status

OTHER = "other"
"""The wanted class of a request for any outcome but the present one."""

DIGITS = 4
_MOST_DIGITS = 17
_CHANGES_IN_A_LINE = 6


@dataclass(frozen=True)
class Change:
    """One feature that changed, as text; `direction` is 1 for up, -1 for down, 0 where there is no order."""

    feature: str
    old: str
    new: str
    direction: int = 0

    @property
    def arrow(self) -> str:
        """The change for people in a hurry."""
        return f"{self.feature} {self.old} → {self.new}"

    @property
    def entry(self) -> str:
        """The change as one of a list, where names may have several words."""
        return f"{self.feature}: {self.old} → {self.new}"

    @property
    def clause(self) -> str:
        """The change as part of a sentence."""
        verb = {1: "rose", -1: "fell", 0: "changed"}[self.direction]
        return f"{self.feature} {verb} from {self.old} to {self.new}"


@dataclass(frozen=True)
class Step:
    """One step of a path that is told in a few: what changes, and how probable the wanted outcome is then."""

    changes: str
    probability: float

    @property
    def line(self) -> str:
        """The step for a terminal."""
        return f"{self.changes or 'no change'} (p {probability(self.probability)})"


@dataclass(frozen=True)
class Row:
    """All that is to be told about one row.

    Attributes:
        label: Its index label.
        status: What became of it.
        reason: The same as a sentence about this row.
        before: The class that the model predicts for the row as asked.
        after: The class that it predicts for the row as returned.
        p_before: The probability of the wanted outcome for the row as asked.
        p_after: The same for the row as returned.
        changes: What differs between them.
        wanted: The wanted class, or `OTHER`.
        confidence: The probability that was asked for.
        binding: Which constraints stand in the way of a counterfactual; empty if none is known to.
        plan: Which of the person's plans this is, from 1.
        plans: How many plans were asked for.
        steps: How to get there, if that takes more than one step and was asked for.
    """

    label: str
    status: Status
    reason: str
    before: str
    after: str
    p_before: float
    p_after: float
    changes: tuple[Change, ...]
    wanted: str
    confidence: float
    binding: str = ""
    plan: int = 1
    plans: int = 1
    steps: tuple[Step, ...] = ()

    @property
    def number(self) -> str:
        """Which plan it is, in words."""
        return f"Plan {self.plan} of {self.plans}"

    @property
    def is_plan(self) -> bool:
        """Whether to call it a plan: one of several, and not the news that there is none or that none is needed."""
        return self.plans > 1 and (self.status.found or self.plan > 1)

    @property
    def line(self) -> str:
        """One line for a terminal."""
        return f"{self.label}: {self.brief}"

    @property
    def brief(self) -> str:
        """What became of the row, for people in a hurry."""
        obstacle = [f"in the way: {self.binding}"] if self.binding else []
        if self.status is Status.UNKNOWN_CATEGORY:
            return f"{self.status} | {self.reason}"
        if self.status is Status.NO_OTHER_PLAN:
            return " | ".join([str(self.status), *obstacle])
        head = f"{self.status} p {probability(self.p_before)} → {probability(self.p_after)}"
        shown = [change.arrow for change in self.changes[:_CHANGES_IN_A_LINE]]
        more = len(self.changes) - len(shown)
        changes = f"{'; '.join(shown) or 'no change'}{f'; and {more} more' if more else ''}"
        return " | ".join([head, changes, *obstacle])

    @property
    def sentence(self) -> str:
        """What would have to change, in plain language."""
        parts = [f"{self.number}:" if self.is_plan else "", self.now, self.claim]
        return " ".join(part for part in parts if part)

    @property
    def now(self) -> str:
        """What the model says today, if that is worth a sentence of its own."""
        if self.status in (Status.UNKNOWN_CATEGORY, Status.ALREADY, Status.NO_OTHER_PLAN):
            return ""
        return f"The model says {self.before} (probability of {outcome(self.wanted)}: {probability(self.p_before)})."

    @property
    def claim(self) -> str:
        """What it would say, and on what condition; or that there is no such thing."""
        match self.status:
            case Status.UNKNOWN_CATEGORY:
                return f"This row is not explained. {self.reason}"
            case Status.ALREADY:
                return f"The model already says {self.after} ({probability(self.p_after)}): nothing has to change."
            case Status.FOUND | Status.CROSSES_GAP:
                condition = f"if {self._clauses}" if self.changes else "after changes too small to list"
                told = probability(self.p_after)
                told = f"probability of {outcome(self.wanted)}: {told}" if self.wanted == OTHER else told
                return f"It would say {self.after} ({told}) {condition}.{self._gap}"
            case Status.NOT_FOUND:
                return f"No counterfactual was found: {self._closest}.{self._obstacle}"
            case Status.OUT_OF_TIME:
                return f"The time ran out before a counterfactual was found: {self._closest}.{self._obstacle}"
            case Status.NO_OTHER_PLAN:
                return f"No further plan that differs from the ones before was found.{self._obstacle}"

    @property
    def _gap(self) -> str:
        crosses = self.status is Status.CROSSES_GAP
        return " But no chain of people leads there: the path crosses a gap in the data." if crosses else ""

    @property
    def _closest(self) -> str:
        if not self.changes:
            return "nothing that was tried came closer than the row itself"
        there = f"{probability(self.p_after)}, but the model says {self.after} there"
        score = shortfall(self.p_after, self.confidence) if self.p_after < self.confidence else there
        return f"the closest came to {score}, if {self._clauses}"

    @property
    def _obstacle(self) -> str:
        return f" What stands in the way: {self.binding}." if self.binding else ""

    @property
    def _clauses(self) -> str:
        return listed([change.clause for change in self.changes])


def outcome(wanted: str) -> str:
    """The wanted class as part of a sentence."""
    return "another outcome" if wanted == OTHER else wanted


def listed(parts: Sequence[str]) -> str:
    """Join parts of a sentence: "a", "a and b", "a, b, and c"."""
    if len(parts) <= 2:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def value(given: Any, digits: int = DIGITS) -> str:
    """A value of a table as text: whole numbers whole, others with `digits` significant digits or more if large."""
    plain = given.item() if isinstance(given, np.generic) else given
    if plain is None or plain is pd.NA or plain != plain:
        return "–"
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return str(plain)
    if isinstance(plain, int) or (math.isfinite(plain) and plain == round(plain) and abs(plain) < 1e15):
        return str(int(plain))
    return f"{plain:.0f}" if abs(plain) >= 10 ** (digits - 1) else f"{plain:.{digits}g}"


def probability(given: float, digits: int = 2) -> str:
    """A probability as text that never says 0 or 1 for what is not; "–" if there is none."""
    if given is None or given != given:
        return "–"
    text, smallest = f"{given:.{digits}f}", 10.0**-digits
    if float(text) == 0 < given:
        return f"<{smallest:.{digits}f}"
    return f">{1 - smallest:.{digits}f}" if given < 1 == float(text) else text


def shortfall(reached: float, asked: float) -> str:
    """A probability beside the higher one that was asked for, with as many digits as it takes to tell them apart."""
    texts = _apart(probability, (reached, asked), digits=2)
    return f"{texts[0]}, where {texts[1]} was asked"


def percent(share: float) -> str:
    """A share as text; only none is 0 % and only all is 100 %."""
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return "under 1 %" if share < 0.5 else "over 99 %"
    return "–" if share != share else f"{100 * share:.0f} %"


def change(feature: str, old: Any, new: Any, ordered: bool) -> Change:
    """Describe one change with as many digits as it takes to tell old from new."""
    direction = (1 if new > old else -1) if ordered else 0
    before, after = texts((old, new))
    return Change(feature, before, after, direction)


def texts(values: Sequence[Any]) -> tuple[str, ...]:
    """Values of one feature as text, with as many digits as it takes to tell each from the one before it."""
    return _apart(value, values, DIGITS)


def _apart(form: Callable[[Any, int], str], values: Sequence[Any], digits: int) -> tuple[str, ...]:
    differ = [old != new for old, new in pairwise(values)]
    for more in range(digits, _MOST_DIGITS + 1):
        told = tuple(form(each, more) for each in values)
        if [old != new for old, new in pairwise(told)] == differ:
            return told
    return tuple(form(each, digits) for each in values)

"""A row's explanation in words: the only place that decides how values, changes and outcomes read."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from counterpath.data.schema import Schema
from counterpath.data.status import FOUND, BindingConstraint, Cause, Status, StatusCode
from counterpath.explanation.tables import PLAN, PLANS, own_labels, plan_numbers, plans_held

OTHER = "other"
"""The wanted class of a request for any outcome but the present one."""

DIGITS = 4
_MOST_DIGITS = 17
_CHANGES_IN_A_LINE = 6
_MOST_BINDING = 3  # constraints that a sentence names; more are counted

_FALLBACK = (
    "The local search got stuck; this path leads straight through the latent space to the nearest point that the model "
    "accepts, decoded from a training row."
)
_BEST = "The best point on the way is returned. Try a lower confidence, more steps or another method."
_CAUSES = {
    Cause.STEPS: f"No point within the allowed steps has the asked confidence. {_BEST}",
    Cause.FLAT: f"The search came to a point where the model is flat. {_BEST}",
    Cause.NOT_FINITE: f"The search ran into numbers that are not finite. {_BEST}",
    Cause.NO_TRAINING_ROW: "No training row within what may change has the target class with the asked confidence.",
    Cause.EDGE: "The model decides otherwise for this row than for one that differs in the eighth digit of a feature, "
    "which was the counterfactual: it stands on an edge of the model. Ask for a higher confidence.",
    Cause.TIME: "The time was up before a further plan was found, so the row is returned unchanged; allow more time.",
    Cause.INVALID: "The method returned a row that cannot be a counterfactual.",
}
_BINDING = {
    "immutable": "{} is immutable",
    "lock": "{} is locked",
    "up": "{} may only go up",
    "down": "{} may only go down",
    "range": "{} must stay within its range",
    "max_changes": "at most {} features may change",
}


def reason(status: Status, probability_after: float, confidence: float) -> str:
    """One sentence or two about what became of a row, and what to try.

    Args:
        status: What became of it.
        probability_after: The probability of the target for the row as returned.
        confidence: The probability that was asked for.
    """
    if status.code.found:
        return _FALLBACK if status.fallback else status.code.text
    if status.binding:
        blocked = _blocked(status.binding)
        if status.cause is Cause.NO_TRAINING_ROW:
            return f"{_CAUSES[status.cause]} {blocked}"
        other = f"{probability(probability_after)}, but another class is more probable there"
        score = shortfall(probability_after, confidence) if probability_after < confidence else other
        return f"Within what may change the search came to a probability of {score}. {blocked}"
    return f"{_CAUSES.get(status.cause, status.code.text)} {status.detail}".strip()


def binding_text(constraints: Sequence[Mapping[str, Any]]) -> str:
    """Binding constraints of a status in short, for a cell of a table."""
    return "; ".join(str(BindingConstraint.from_json(constraint)) for constraint in constraints)


def _blocked(constraints: Sequence[BindingConstraint]) -> str:
    words = [f"{_constraint(one)} (else {probability(one.reach)})" for one in constraints[:_MOST_BINDING]]
    rest = len(constraints) - len(words)
    return f"In the way: {'; '.join(words)}{f'; and {rest} more' if rest else ''}."


def _constraint(constraint: BindingConstraint) -> str:
    if constraint.kind == "max_changes" and constraint.feature == "1":
        return "only one feature may change"
    return _BINDING[constraint.kind].format(constraint.feature)


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
    status: StatusCode
    reason: str
    before: str
    after: str
    p_before: float
    p_after: float
    changes: tuple[Change, ...]
    wanted: str
    confidence: float
    binding: tuple[BindingConstraint, ...] = ()
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
        obstacle = [f"in the way: {self.binding_text}"] if self.binding else []
        if self.status is StatusCode.UNKNOWN_CATEGORY:
            return f"{self.status} | {self.reason}"
        if self.status is StatusCode.NO_OTHER_PLAN:
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
        if self.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.ALREADY, StatusCode.NO_OTHER_PLAN):
            return ""
        return f"The model says {self.before} (probability of {outcome(self.wanted)}: {probability(self.p_before)})."

    @property
    def claim(self) -> str:
        """What it would say, and on what condition; or that there is no such thing."""
        match self.status:
            case StatusCode.UNKNOWN_CATEGORY:
                return f"This row is not explained. {self.reason}"
            case StatusCode.ALREADY:
                return f"The model already says {self.after} ({probability(self.p_after)}): nothing has to change."
            case StatusCode.FOUND | StatusCode.CROSSES_GAP:
                condition = f"if {self._clauses}" if self.changes else "after changes too small to list"
                told = probability(self.p_after)
                told = f"probability of {outcome(self.wanted)}: {told}" if self.wanted == OTHER else told
                return f"It would say {self.after} ({told}) {condition}.{self._gap}"
            case StatusCode.NOT_FOUND:
                return f"No counterfactual was found: {self._closest}.{self._obstacle}"
            case StatusCode.OUT_OF_TIME:
                return f"The time ran out before a counterfactual was found: {self._closest}.{self._obstacle}"
            case StatusCode.NO_OTHER_PLAN:
                return f"No further plan that differs from the ones before was found.{self._obstacle}"

    @property
    def binding_text(self) -> str:
        """The constraints that stand in the way, in short."""
        return "; ".join(map(str, self.binding))

    @property
    def _gap(self) -> str:
        crosses = self.status is StatusCode.CROSSES_GAP
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
        return f" What stands in the way: {self.binding_text}." if self.binding else ""

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


def amounts(schema: Schema, frame: pd.DataFrame) -> frozenset[str]:
    """The features that are numbers, so that it makes sense to say by how much they changed."""
    names = (feature.name for feature in schema if not feature.categories)
    return frozenset(name for name in names if is_numeric_dtype(frame[name]) and not is_bool_dtype(frame[name]))


def ranges(old: pd.DataFrame, new: pd.DataFrame, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """From where to where each number goes in the rows as asked and as returned."""
    low, high = (
        {name: [float(getattr(frame[name].astype(float), end)()) for frame in (old, new)] for name in names}
        for end in ("min", "max")
    )
    return {name: (min(low[name]), max(high[name])) for name in sorted(names)}


def headline(statuses: Sequence[str], request: Mapping[str, Any], people: Sequence[int]) -> str:
    """One line about all rows, given the number of each one's person."""
    rows, told = _rows(len(statuses)), _counted(statuses)
    if plans_held(request) > 1:
        count = len(set(people))
        rows = f"{count} {'person' if count == 1 else 'people'}, up to {request[PLANS]} plans each"
        told = _plans_counted(statuses, people)
    elif request.get(PLAN) is not None:
        rows = f"{rows}, plan {request[PLAN]} of {request[PLANS]}"
    wanted = outcome(value(request["target_class"]))
    asked = f"method {request['method']}, wanted {wanted}, confidence {value(request['confidence'])}"
    return f"Explanation of {rows}: {told} ({asked})"


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _counted(statuses: Sequence[str]) -> str:
    found = sum(status in FOUND for status in statuses)
    return ", ".join([f"{found} found{_across(statuses)}", *_others(statuses)])


def _others(statuses: Sequence[str]) -> list[str]:
    """What became of the rows without a counterfactual, each with their number."""
    counts = {kind: statuses.count(kind) for kind in StatusCode if not kind.found}
    return [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count]


def _across(statuses: Sequence[str]) -> str:
    count = statuses.count(StatusCode.CROSSES_GAP)
    return f" ({count} of them across a gap in the data)" if count else ""


def _plans_counted(statuses: Sequence[str], people: Sequence[int]) -> str:
    """How many plans those have who have any; then what became of the other people, of whom the first row tells."""
    lucky = {person for status, person in zip(statuses, people, strict=True) if status in FOUND}
    theirs = [status for status, person in zip(statuses, people, strict=True) if person in lucky]
    first = {person: status for status, person in zip(reversed(statuses), reversed(people), strict=True)}
    others = [status for person, status in first.items() if person not in lucky]
    found = sum(status in FOUND for status in theirs)
    plans = f"{found} plan{'' if found == 1 else 's'} found"
    for_whom = f"{plans} for {len(lucky)} {'person' if len(lucky) == 1 else 'people'}" if lucky else plans
    with_plans = ", ".join([for_whom + _across(theirs), *_others(theirs)])
    return "; ".join([with_plans, *([", ".join(_others(others))] if others else [])])


def changed_places(changed: pd.DataFrame, features: Sequence[str]) -> list[tuple[int, str]]:
    """Which feature changed in which row, by position, row after row."""
    rows, places = np.nonzero(changed[list(features)].to_numpy(bool))
    return [(row, features[place]) for row, place in zip(rows.tolist(), places.tolist(), strict=True)]


def list_changes(frames: Mapping[str, pd.DataFrame], features: Sequence[str], amounts: Collection[str]) -> pd.DataFrame:
    """One row a changed feature, under the label of its row; see `Explanation.changes` for the columns.

    Args:
        frames: `factuals`, `counterfactuals` and `changed`.
        features: The features, in the order in which their changes are told.
        amounts: Those that are numbers, and have a difference.
    """
    places = changed_places(frames["changed"], features)
    old, new = _values(frames, features)
    columns = {
        "feature": [name for _, name in places],
        "from": [old[name][row] for row, name in places],
        "to": [new[name][row] for row, name in places],
        "change": [new[name][row] - old[name][row] if name in amounts else "" for row, name in places],
    }
    index = frames["factuals"].index[[row for row, _ in places]]
    return pd.DataFrame(columns, index=index, dtype=object).astype({"feature": str})


def tell(
    frames: Mapping[str, pd.DataFrame], features: Sequence[str], amounts: Collection[str], request: Mapping[str, Any]
) -> list[Row]:
    """Describe rows.

    Args:
        frames: `factuals`, `counterfactuals`, `status`, `outcome` and `changed` of these rows.
        features: The features, in the order in which their changes are told.
        amounts: Those that are numbers and rise or fall; others change.
        request: What was asked for.
    """
    old, new = _values(frames, features)
    changes: dict[int, list[Change]] = defaultdict(list)
    for row, name in changed_places(frames["changed"], features):
        changes[row].append(change(name, old[name][row], new[name][row], ordered=name in amounts))
    told = pd.concat([frames["status"], frames["outcome"]], axis=1).to_dict("records")
    index, plans = frames["factuals"].index, plans_held(request)
    rows = zip(own_labels(index, plans).tolist(), plan_numbers(index, plans).tolist(), told, strict=True)
    return [
        _row(label, plan, record, tuple(changes[place]), request) for place, (label, plan, record) in enumerate(rows)
    ]


def _values(frames: Mapping[str, pd.DataFrame], features: Sequence[str]) -> tuple[dict[str, list[Any]], ...]:
    """The values of every feature, as asked and as returned."""
    return tuple({name: frames[key][name].tolist() for name in features} for key in ("factuals", "counterfactuals"))


def _row(label: Any, plan: int, told: dict[Any, Any], changes: tuple[Change, ...], request: Mapping[str, Any]) -> Row:
    return Row(
        label=value(label),
        status=StatusCode(told["status"]),
        reason=told["reason"],
        binding=tuple(BindingConstraint.from_json(one) for one in told["binding"]),
        before=value(told["class_before"]),
        after=value(told["class_after"]),
        p_before=_float(told["probability_before"]),
        p_after=_float(told["probability_after"]),
        changes=changes,
        wanted=value(request["target_class"]),
        confidence=float(request["confidence"]),
        plan=plan,
        plans=plans_held(request),
    )


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


@dataclass(frozen=True)
class Person:
    """All rows of one person, in the order of their plans."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        """The first plan, which says what became of the person if there is none."""
        return self.rows[0]

    @property
    def several(self) -> bool:
        """Whether several plans were asked for."""
        return self.first.plans > 1

    @property
    def found(self) -> tuple[Row, ...]:
        """The plans that there are."""
        return tuple(row for row in self.rows if row.status.found)

    @property
    def told(self) -> tuple[Row, ...]:
        """The rows that have something to tell: not that there is no further plan, and no sad news twice."""
        old = (StatusCode.NO_OTHER_PLAN, self.first.status)
        return (self.first, *(row for row in self.rows[1:] if row.status.found or row.status not in old))

    @property
    def missing(self) -> tuple[Row, ...]:
        """The plans that do not exist, if others do: who has none at all, or needs none, misses no further one."""
        return tuple(row for row in self.rows[1:] if row.status is StatusCode.NO_OTHER_PLAN) if self.found else ()

    @property
    def result(self) -> str:
        """What became of the person, in two or three words."""
        across = sum(row.status is StatusCode.CROSSES_GAP for row in self.rows)
        if not self.several or not self.found:
            return "found, across a gap" if across else self.first.status.replace("_", " ")
        missing = len(self.rows) - len(self.found)
        count = f"{len(self.found)} of {len(self.rows)}" if missing else f"{len(self.found)}"
        gaps = f", {across} of them across a gap" if across else ""
        return f"{count} plan{'' if len(self.rows) == 1 else 's'} found{gaps}"

    @property
    def lines(self) -> list[str]:
        """One line a plan for a terminal, the label only on the first; below it the plan's steps, if they are told."""
        texts = [text for row in self.told for text in (self._head(row), *_steps(row))]
        if self.missing:
            texts.append(f"{which(self.missing).lower()}: {self.missing[0].brief}")
        label = self.first.label + (", " if self.first.is_plan else ": ")
        return [(" " * len(label) if place else label) + text for place, text in enumerate(texts)]

    def _head(self, row: Row) -> str:
        return f"{row.number.lower()}: {row.brief}" if row.is_plan else row.brief


def _steps(row: Row) -> list[str]:
    return [f"{number:>3}. {step.line}" for number, step in enumerate(row.steps, start=1)]


def gather(rows: Iterable[Row], people: Iterable[int]) -> list[Person]:
    """Rows by person, given the number of each row's person, in rising order."""
    paired = groupby(zip(people, rows, strict=True), key=lambda pair: pair[0])
    return [Person(tuple(row for _, row in pairs)) for _, pairs in paired]


def which(rows: tuple[Row, ...]) -> str:
    """The numbers of plans as the beginning of a sentence: "Plan 2 of 3", "Plans 2 and 3 of 3"."""
    numbers = listed([str(row.plan) for row in rows])
    return f"Plan{'' if len(rows) == 1 else 's'} {numbers} of {rows[0].plans}"

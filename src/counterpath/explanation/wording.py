"""An explanation in words: the only place that decides how values, changes, outcomes and measures read."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.constraints import CONSTRAINTS
from counterpath.data.schema import Feature, Schema
from counterpath.data.status import FOUND, BindingConstraint, Cause, Status, StatusCode
from counterpath.data.times import DATE, DURATION, day_text, value_text
from counterpath.explanation.tables import PLAN, PLANS, changed_cells, labels_without_plan, plan_numbers, plans_held

NOT_ACTIONABLE = "People cannot usually change this; switch off to allow it."
NOTICE = "A counterfactual explains the model; it promises nothing about the world."
OTHER = "other"
"""The target class of a request for any outcome but the present one."""

_ALL_DIGITS = 17  # with these every float64 has a text of its own
_LARGEST, _SMALLEST = 1e16, 1e-7
"""Numbers between them are written without an exponent: up to the first float64 has all digits of whole numbers."""
_PREDICTED_DIGITS = 4  # of a number that a regressor predicts: more than any regressor knows
_CHANGES_IN_A_LINE = 6  # more do not fit into one line of a terminal
_BINDING_IN_A_SENTENCE = 3  # those that cost most; a sentence that names more is not read to its end


def value(given: Any) -> str:
    """A value of a table as text that gives the same value when it is typed in: all of its digits, and no others."""
    if given is None or given is pd.NA or given != given:
        return "–"
    if isinstance(given, date | timedelta | np.datetime64 | np.timedelta64):
        return value_text(given)
    plain = given.item() if isinstance(given, np.generic) else given
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return str(plain)
    if isinstance(plain, int) or (abs(plain) < _LARGEST and plain == round(plain)):
        return str(int(plain))
    # Of single precision fewer digits are enough, which `item` would not know.
    number = given if isinstance(given, np.floating) else plain
    return np.format_float_positional(number, trim="-") if _SMALLEST <= abs(plain) < _LARGEST else str(number)


_LONG = re.compile(r"(?<![\w.,])\d{5,}(?=(?:\.\d+)?(?!\w))")
"""Whole parts of five digits and more: four are read without a separator, and years have four."""


def grouped(text: str) -> str:
    """A text in which long whole parts of numbers have separators of thousands: 99999 is 99,999."""
    return re.sub(_LONG, lambda match: f"{int(match[0]):,}", text)


def rounded(given: Any, digits: int = 3) -> str:
    """A measure as text: whole numbers whole, others with so many significant digits or more if large."""
    plain = given.item() if isinstance(given, np.generic) else given
    if not isinstance(plain, float) or not math.isfinite(plain) or plain == round(plain):
        return value(plain)
    return f"{plain:.0f}" if abs(plain) >= 10 ** (digits - 1) else f"{plain:.{digits}g}"


def shown(feature: Feature, given: Any) -> str:
    """A value of a feature as people know it: a category by its label, a number with every digit."""
    plain = given.item() if isinstance(given, np.generic) else given
    if feature.missing and _is_gap(plain):
        return MISSING
    label = feature.codes.get(plain) if _is_code(feature, plain) else feature.category_labels.get(str(plain))
    return value(given) if label is None else label


MISSING = "missing"
"""What is said of a gap."""


def _is_gap(plain: Any) -> bool:
    return plain is None or plain is pd.NA or plain is pd.NaT or bool(plain != plain)


def differ(old: Any, new: Any) -> bool:
    """Whether two values are different ones; a gap is the same as another gap."""
    return _is_gap(old) != _is_gap(new) or not (_is_gap(old) or bool(old == new))


def with_unit(feature: Feature, text: str) -> str:
    """A number of a feature, as text, with what it counts."""
    return f"{text} {feature.unit}" if feature.unit and not feature.categories and text != "–" else text


def amount(feature: Feature, given: Any) -> str:
    """A value of a feature as people know it, with its unit."""
    return with_unit(feature, read(feature, given))


def read(feature: Feature, given: Any) -> str:
    """A value of a feature for people to read: as `shown`, a number with separators of thousands."""
    text = shown(feature, given)
    return text if feature.categories or _is_code(feature, given) else grouped(text)


def number(feature: Feature, given: float) -> str:
    """The number that stands for a value of a feature without categories, as text: a date as a date."""
    if feature.kind == DATE:
        return day_text(given)
    return f"{value(given)} days" if feature.kind == DURATION else value(given)


def legal(feature: Feature, lower: float, upper: float) -> str:
    """Which numbers a feature may have, or usually has, as a hint beside a field.

    Args:
        feature: The feature.
        lower: The smallest one that it may become.
        upper: The largest one.
    """
    low, high = grouped(number(feature, lower)), grouped(number(feature, upper))
    ends = f"{low}–{high}" if feature.kind not in (DATE, DURATION) and lower >= 0 else f"{low} to {high}"
    if None in (feature.lower, feature.upper):
        return f"Training range {ends}"
    return f"{ends} in steps of {value(feature.step)}" if feature.step else ends


def titles(schema: Schema | None) -> dict[str, str]:
    """What people call each feature."""
    return {} if schema is None else {feature.name: feature.title for feature in schema}


def inline(label: str) -> str:
    """A label within a sentence: "Working hours" begins in lower case there, "US citizen" does not."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def class_text(schema: Schema, label: Any) -> str:
    """A class as people know it; `OTHER` as it is."""
    plain = label.item() if isinstance(label, np.generic) else label
    return schema.class_labels.get(str(plain), value(plain))


def probability(given: float, digits: int = 2) -> str:
    """A probability as text that never says 0 or 1 for what is not; "–" if there is none."""
    if given is None or given != given:
        return "–"
    text, smallest = f"{given:.{digits}f}", 10.0**-digits
    if float(text) == 0 < given:
        return f"<{smallest:.{digits}f}"
    return f">{1 - smallest:.{digits}f}" if given < 1 == float(text) else text


def percent(share: float, digits: int = 0) -> str:
    """A share as text; only none is 0 % and only all is 100 %."""
    if share is None or share != share:
        return "–"
    text, smallest = f"{100 * share:.{digits}f}", 10.0**-digits
    if float(text) == 0 < share:
        return f"under {smallest:.{digits}f} %"
    return f"over {100 - smallest:.{digits}f} %" if share < 1 and float(text) == 100 else f"{text} %"


def shortfall(reached: float, asked: float) -> str:
    """A probability beside the higher one that was asked for, with as many digits as it takes to tell them apart."""
    both = (reached, asked)
    for digits in range(_ALL_DIGITS):
        texts = [percent(each, digits) for each in both]
        if texts[0] != texts[1]:
            break
    return f"{texts[0]}, where {texts[1]} was asked"


def predicted(schema: Schema | None, number: Any) -> str:
    """A number that a regressor predicts, with its unit; "–" if there is none."""
    if number is None or number is pd.NA or number != number:
        return "–"
    return f"{rounded(float(number), _PREDICTED_DIGITS)} {schema.target_unit if schema else ''}".strip()


def wanted_range(target_range: Sequence[Any], schema: Schema | None = None) -> str:
    """A range of numbers that is asked for, in words."""
    low, high = target_range
    unit = f" {schema.target_unit}" if schema is not None and schema.target_unit else ""
    if low is None or high is None:
        return f"at least {value(low)}{unit}" if high is None else f"at most {value(high)}{unit}"
    return f"{value(low)} to {value(high)}{unit}"


def confidence_text(confidence: Any) -> str:
    """A confidence that is asked for: a number, or a range."""
    return wanted_range(confidence) if isinstance(confidence, list | tuple) else value(confidence)


def outcome(target: str) -> str:
    """The target class as part of a sentence."""
    return "another outcome" if target == OTHER else target


def listed(parts: Sequence[str]) -> str:
    """Join parts of a sentence: "a", "a and b", "a, b, and c"."""
    if len(parts) <= 2:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things: "1 row", "2 rows"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


_YOU = "you "


def condition(clauses: Sequence[str]) -> str:
    """What would have to be, as one part of a sentence; who is meant in one clause after another is said once."""
    pairs = zip(["", *clauses], clauses, strict=False)
    return listed([each.removeprefix(_YOU) if old.startswith(_YOU) else each for old, each in pairs])


@dataclass(frozen=True)
class Change:
    """One feature that changed, as text.

    Attributes:
        feature: The column.
        old: The value before, as people know it.
        new: The value after.
        title: What people call the feature; the column by default.
        unit: What its numbers count.
        phrase: The change in words, with {new} and {old}, if there are any for it.
        filled: Whether the value was missing before.
    """

    feature: str
    old: str
    new: str
    title: str = ""
    unit: str = ""
    phrase: str = ""
    filled: bool = False

    @property
    def name(self) -> str:
        """What to call the feature."""
        return self.title or self.feature

    @property
    def then(self) -> str:
        """The new value with its unit."""
        return f"{self.new} {self.unit}".strip()

    @property
    def arrow(self) -> str:
        """The change as briefly as possible; a label, unlike a column, may have several words."""
        return f"{self.feature} {self.old} → {self.then}" if self.name == self.feature else self.entry

    @property
    def entry(self) -> str:
        """The change as one of a list, where names may have several words."""
        return f"{self.name}: {self.old} → {self.then}"

    @property
    def clause(self) -> str:
        """The change as part of a sentence, after "if"."""
        if self.phrase:
            return re.sub(r"\{(new|old)\}", lambda match: str(getattr(self, match[1])), self.phrase)
        name = inline(self.name) if self.name != self.feature else self.feature
        if self.filled:
            return f"there were a value of {self.then} for {name}, which is missing now"
        return f"{name} were {self.new} instead of {self.old} {self.unit}".strip()


def change(feature: Feature, old: Any, new: Any) -> Change:
    """Describe a change of a feature; with a code, which has a label, instead of a number there is no unit."""
    before, after = read(feature, old), read(feature, new)
    coded = _is_code(feature, old) or _is_code(feature, new)
    unit = "" if feature.categories or coded else feature.unit
    phrase = "" if coded or before == MISSING else feature.phrase
    return Change(feature.name, before, after, feature.title, unit, phrase, filled=before == MISSING)


def _is_code(feature: Feature, given: Any) -> bool:
    return bool(feature.codes) and not _is_gap(given) and float(given) in feature.codes


@dataclass(frozen=True)
class Step:
    """One step of a path that is told in a few: what changes, and how probable the target is then."""

    changes: str
    probability: float

    @property
    def line(self) -> str:
        """The step for a terminal."""
        return f"{self.changes or 'no change'} (p {probability(self.probability)})"


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
    "not_actionable": "{} is not something that people can change",
    "up": "{} may only go up",
    "down": "{} may only go down",
    "range": "{} must be in its range",
    "rule": "the rule {}",
    "max_changes": "at most {} features may change",
}


_OF_NUMBERS = {
    "has the asked confidence": "is predicted in the asked range",
    "has the target class with the asked confidence": "is predicted in the asked range",
    "another class or a higher confidence": "another range",
    "a lower confidence": "a wider range",
    "Ask for a higher confidence": "Ask for a range that lies further in",
}
"""How the same is said of a regressor, which has neither classes nor probabilities."""
_WITHOUT = {
    "immutable": "if it could change",
    "lock": "if unlocked",
    "not_actionable": "if unlocked",
    "up": "if it could go down",
    "down": "if it could go up",
    "range": "without that range",
    "rule": "without that rule",
    "max_changes": "with more changes",
}
"""What is said of how far one would come without a binding constraint, by its kind."""
_BROKEN = "The row as it is breaks {}; its path leads to where it does not."
_UNSEEN = "Nobody in the training rows has these values together: {}. Nothing else was found."


def reason(
    status: Status, probability_after: float, confidence: float, schema: Schema | None = None, number: str = ""
) -> str:
    """A few sentences about what became of a row, and what to try.

    Args:
        status: What became of it.
        probability_after: The probability of the target for the row as returned.
        confidence: The probability that was asked for; NaN for none but the model's own decision.
        schema: What people call the features.
        number: What a regressor predicts for the row as returned, in words.
    """
    text = _reason(status, probability_after, confidence, schema, number)
    for words, others in _OF_NUMBERS.items() if number else ():
        text = text.replace(words, others)
    return f"{text} {_BROKEN.format(_rules(status.broken))}" if status.broken else text


def _rules(texts: Sequence[str]) -> str:
    return f"the rule{'' if len(texts) == 1 else 's'} {listed([f'“{text}”' for text in texts])}"


def _reason(
    status: Status, probability_after: float, confidence: float, schema: Schema | None, number: str = ""
) -> str:
    if status.code.found:
        found = _FALLBACK if status.fallback else status.code.text
        known = {feature.name: inline(feature.label) or feature.name for feature in schema or ()}
        pairs = listed([" and ".join(known.get(name, name) for name in pair) for pair in status.unseen_pairs])
        return f"{found} {_UNSEEN.format(pairs)}" if pairs else found
    if status.code is StatusCode.FRAGILE and status.share is not None:
        return f"{status.code.text} {percent(status.share)} of them accept it."
    if not status.binding:
        return f"{_CAUSES.get(status.cause, status.code.text)} {status.detail}".strip()
    else_ = [
        f" (would reach {percent(each.reach)} {_WITHOUT[each.kind]})" if not number else "" for each in status.binding
    ]
    named = [constraint(each, schema) + more for each, more in zip(status.binding, else_, strict=True)]
    more = len(named) - _BINDING_IN_A_SENTENCE
    binding = "; ".join([*named[:_BINDING_IN_A_SENTENCE], *([f"and {more} more"] if more > 0 else [])])
    if status.cause is Cause.NO_TRAINING_ROW:
        return f"{_CAUSES[status.cause]} In the way: {binding}."
    if number:
        return f"Within what may change the search came to {number}. In the way: {binding}."
    other = f"{percent(probability_after)}, but another class is more probable there"
    score = shortfall(probability_after, confidence) if probability_after < confidence else other
    return f"Within what may change the search came to a probability of {score}. In the way: {binding}."


def constraint(binding: BindingConstraint, schema: Schema | None = None) -> str:
    """A binding constraint as a clause."""
    if binding.kind == "max_changes":
        text = _BINDING[binding.kind].format(binding.feature)
        return "only one feature may change" if binding.feature == "1" else text
    if binding.kind == "rule":
        return _BINDING[binding.kind].format(f"“{binding.feature}”")
    names = {feature.name: inline(feature.label) or feature.name for feature in schema or ()}
    return _BINDING[binding.kind].format(names.get(binding.feature, binding.feature))


def binding_text(constraints: Iterable[Mapping[str, Any]]) -> str:
    """The binding constraints of a status in short, for a cell of a table."""
    return "; ".join(str(BindingConstraint.from_json(constraint)) for constraint in constraints)


_BUT = {
    StatusCode.CROSSES_GAP: " But no chain of people leads there: the path crosses a gap in the data.",
    StatusCode.IMPLAUSIBLE: " But hardly anybody is like that: the row is farther from the data than real rows are.",
}
"""What has to be said beside a counterfactual, by status."""


@dataclass(frozen=True)
class Row:
    """All that there is to say about one row.

    Attributes:
        label: Its index label.
        status: What became of it.
        reason: The same as a sentence about this row.
        before: The class that the model predicts for the row as asked.
        after: The class that it predicts for the row as returned.
        p_before: The probability of the target for the row as asked.
        p_after: The same for the row as returned.
        changes: What differs between them.
        target: The target class, or `OTHER`.
        confidence: The probability that was asked for, as of `asked_level`.
        binding: Which constraints stand in the way of a counterfactual, in words; empty if none is known to.
        plan: Which of the person's plans this is, from 1.
        plans: How many plans were asked for.
        steps: How to get there, if that takes more than one step and was asked for.
        classes: How many classes there are; 0 if that is not known.
        wanted: Of a regressor, which numbers are asked for, in words; before and after are numbers then.
        follows: Which changes follow from the others, by feature.
        share: Which share of the models that may follow accepts the row that is returned; NaN where nobody looked.
        retrained: How many of the models that were trained anew do so, and of how many; empty where nobody looked.
    """

    label: str
    status: StatusCode
    reason: str
    before: str
    after: str
    p_before: float
    p_after: float
    changes: tuple[Change, ...]
    target: str
    confidence: float
    binding: str = ""
    plan: int = 1
    plans: int = 1
    steps: tuple[Step, ...] = ()
    classes: int = 0
    wanted: str = ""
    follows: tuple[str, ...] = ()
    share: float = math.nan
    retrained: tuple[int, ...] = ()

    @property
    def lasting(self) -> str:
        """How many models that were trained anew would decide so, too, as a sentence; empty where nobody looked."""
        if not self.retrained or not self.status.valid:
            return ""
        accepting, count = self.retrained
        return f" It would still be accepted by {accepting} of {count} retrained models."

    @property
    def number(self) -> str:
        """Which plan it is, in words."""
        return f"Plan {self.plan} of {self.plans}"

    @property
    def is_plan(self) -> bool:
        """Whether to call it a plan: one of several, and not the news that there is none or that none is needed."""
        return self.plans > 1 and (self.status.found or self.plan > 1)

    @property
    def probabilities(self) -> str:
        """The probability of the target before and after; of a regressor, what it predicts."""
        if self.wanted:
            return f"{self.before} → {self.after}"
        return f"{probability(self.p_before)} → {probability(self.p_after)}"

    @property
    def measured(self) -> str:
        """What is known along a path: the probability of the target; of a regressor, how near the prediction is."""
        return f"nearness to {self.wanted}" if self.wanted else f"probability of {outcome(self.target)}"

    @property
    def brief(self) -> str:
        """What became of the row, in one line."""
        blocked = [f"in the way: {self.binding}"] if self.binding else []
        if self.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.OUTSIDE):
            return f"{self.status} | {self.reason}"
        if self.status is StatusCode.NO_OTHER_PLAN:
            return " | ".join([str(self.status), *blocked])
        shown = [change.arrow for change in self.changes[:_CHANGES_IN_A_LINE]]
        more = len(self.changes) - len(shown)
        changes = f"{'; '.join(shown) or 'no change'}{f'; and {more} more' if more else ''}"
        return " | ".join([f"{self.status} {'' if self.wanted else 'p '}{self.probabilities}", changes, *blocked])

    @property
    def sentence(self) -> str:
        """What would have to change, in plain language."""
        parts = [f"{self.number}:" if self.is_plan else "", self.now, self.claim]
        return " ".join(part for part in parts if part)

    @property
    def now(self) -> str:
        """What the model predicts today, if that is worth a sentence of its own."""
        if self.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.ALREADY, StatusCode.NO_OTHER_PLAN):
            return ""
        if self.wanted:
            return f"The model predicts {self.before}."
        already = " already" if self.status.found and self.before == self.after else ""
        return f"The model predicts {self.before}{already} ({self._odds(self.before, self.p_before)})."

    @property
    def claim(self) -> str:
        """What it would predict, and on what condition; or that there is no such thing."""
        blocked = f" What stands in the way: {self.binding}." if self.binding else ""
        clauses = condition([change.clause for change in self.changes if change.feature not in self.follows])
        odds = self._odds(self.after, self.p_after)
        match self.status:
            case StatusCode.UNKNOWN_CATEGORY | StatusCode.OUTSIDE:
                return f"This row is not explained. {self.reason}"
            case StatusCode.ALREADY:
                what = f"{self.after}, and {self.wanted} is asked" if self.wanted else f"{self.after} ({odds})"
                return f"The model already predicts {what}: nothing has to change.{self.lasting}"
            case StatusCode.FOUND | StatusCode.CROSSES_GAP | StatusCode.IMPLAUSIBLE:
                what = f"if {clauses}" if clauses else "after changes too small to list"
                follow = [change.entry for change in self.changes if change.feature in self.follows]
                what += f"; from that would follow {listed(follow)}" if follow else ""
                but = _BUT.get(self.status, "") + self.lasting
                then = f"predict {self.after}"
                if self.wanted:
                    return f"It would predict {self.wanted} ({self.after}) {what}.{but}"
                if self.before == self.after:  # what is asked for is more than the decision: confidence, or a range
                    then = "be surer" if self.p_before < self.confidence else "still do so"
                return f"It would {then} ({odds}) {what}.{but}"
            case StatusCode.NO_OTHER_PLAN:
                return f"No further plan that differs from the ones before was found.{blocked}"
            case StatusCode.FRAGILE:
                share = "" if math.isnan(self.share) else f" by {percent(self.share)} of the models that may follow"
                near = f", if {clauses}" if clauses else ""
                return f"Nothing that lasts was found: what comes nearest is accepted{share}{near}.{self.lasting}"
            case StatusCode.NOT_FOUND:
                return f"No counterfactual was found: {self._closest(clauses)}.{blocked}"
            case StatusCode.OUT_OF_TIME:
                return f"The time ran out before a counterfactual was found: {self._closest(clauses)}.{blocked}"

    def _closest(self, clauses: str) -> str:
        if not self.changes:
            return "nothing that was tried came closer than the row itself"
        if self.wanted:
            return f"the closest came to {self.after}, where {self.wanted} was asked, if {clauses}"
        there = f"{percent(self.p_after)}, but the model predicts {self.after} there"
        score = shortfall(self.p_after, self.confidence) if self.p_after < self.confidence else there
        return f"the closest came to {score}, if {clauses}"

    def _odds(self, label: str, target: float) -> str:
        """How probable a class is where the target has this probability, or else how probable that is.

        One of two classes has what the other one leaves, as the class before has of any other.
        """
        is_target = label == self.target if self.target != OTHER else label != self.before and self.classes == 2
        is_rest = label == self.before if self.target == OTHER else self.classes == 2
        if is_target or is_rest:
            return percent(target if is_target else 1 - target)
        return f"{percent(target)} for {outcome(self.target)}"


def asked_level(request: Mapping[str, Any], before: Any, classes: int) -> float:
    """What the probability of the target must reach: the asked confidence, or from which on the model decides so.

    NaN where the model's own decision among more than two classes is all that is asked for: no single number says it.
    """
    if request.get("target_range") is not None:
        return 1.0
    asked = request.get("confidence")
    if isinstance(asked, list | tuple):
        return 0.0 if asked[0] is None else float(asked[0])
    if asked is not None:
        return float(asked)
    if classes != 2:
        return math.nan
    by_class = request.get("threshold") or {}
    if request["target_class"] == OTHER:
        return 1 - float(by_class.get(str(before), 0.5))
    return float(by_class.get(str(request["target_class"]), 0.5))


def describe_rows(
    frames: Mapping[str, pd.DataFrame],
    schema: Schema,
    request: Mapping[str, Any],
    classes: int = 0,
    own: Sequence[Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Describe rows.

    Args:
        frames: `factuals`, `counterfactuals`, `status`, `outcome` and `changed` of these rows.
        schema: The features, in the order in which their changes are listed, and what people call them.
        request: What was asked for.
        classes: How many classes there are; 0 if that is not known.
        own: For each row what was asked for it alone.
    """
    old, new = (
        {name: list(frames[key][name].array) for name in schema.names} for key in ("factuals", "counterfactuals")
    )
    features = {feature.name: feature for feature in schema}
    changes: dict[int, list[Change]] = defaultdict(list)
    for row, name in changed_cells(frames["changed"], schema.names):
        changes[row].append(change(features[name], old[name][row], new[name][row]))
    index, plans = frames["factuals"].index, plans_held(request)
    answers = pd.concat([frames["status"], frames["outcome"]], axis=1).to_dict("records")
    labels, numbers = labels_without_plan(index, plans).tolist(), plan_numbers(index, plans).tolist()
    requests = [request] * len(answers) if own is None else [{**request, **each} for each in own]
    ranges = [each.get("target_range") for each in requests]
    wanted = ["" if each is None else wanted_range(each, schema) for each in ranges]
    said = predicted if any(wanted) else class_text
    return [
        Row(
            label=value(label),
            status=StatusCode(answer["status"]),
            reason=answer["reason"],
            before=said(schema, answer["class_before"]),
            after=said(schema, answer["class_after"]),
            p_before=float(answer["probability_before"]),
            p_after=float(answer["probability_after"]),
            changes=tuple(changes[position]),
            target=wanted[position] or class_text(schema, requests[position]["target_class"]),
            wanted=wanted[position],
            follows=tuple(answer.get("follows") or ()),
            share=float(answer.get("share", math.nan)),
            retrained=tuple(answer.get("retrained") or ()),
            confidence=asked_level(requests[position], answer["class_before"], classes),
            binding="; ".join(constraint(BindingConstraint.from_json(each), schema) for each in answer["binding"]),
            plan=plan,
            plans=plans,
            classes=classes,
        )
        for position, (label, plan, answer) in enumerate(zip(labels, numbers, answers, strict=True))
    ]


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
    def shown(self) -> tuple[Row, ...]:
        """The rows with something to say: not that there is no further plan, and no failure twice."""
        known = (StatusCode.NO_OTHER_PLAN, self.first.status)
        return (self.first, *(row for row in self.rows[1:] if row.status.found or row.status not in known))

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
        """One line a plan for a terminal, the label only on the first; below it the plan's steps, if there are any."""
        texts = []
        for row in self.shown:
            texts.append(f"{row.number.lower()}: {row.brief}" if row.is_plan else row.brief)
            texts += [f"{number:>3}. {step.line}" for number, step in enumerate(row.steps, start=1)]
        if self.missing:
            texts.append(f"{which(self.missing).lower()}: {self.missing[0].brief}")
        label = self.first.label + (", " if self.first.is_plan else ": ")
        return [(" " * len(label) if position else label) + text for position, text in enumerate(texts)]


def group_by_person(rows: Iterable[Row], people: Iterable[int]) -> list[Person]:
    """Rows by person, given the number of each row's person, whose rows are together."""
    paired = groupby(zip(people, rows, strict=True), key=lambda pair: pair[0])
    return [Person(tuple(row for _, row in pairs)) for _, pairs in paired]


def which(rows: tuple[Row, ...]) -> str:
    """The numbers of plans as the beginning of a sentence: "Plan 2 of 3", "Plans 2 and 3 of 3"."""
    numbers = listed([str(row.plan) for row in rows])
    return f"Plan{'' if len(rows) == 1 else 's'} {numbers} of {rows[0].plans}"


def headline(statuses: Sequence[str], request: Mapping[str, Any], people: Sequence[int], schema: Schema) -> str:
    """One line about all rows, given the number of each one's person."""
    if plans_held(request) > 1:
        rows = f"{counted(len(set(people)), 'person', 'people')}, up to {request[PLANS]} plans each"
        results = _count_plans(statuses, people)
    else:
        rows = counted(len(statuses), "row")
        rows += f", plan {request[PLAN]} of {request[PLANS]}" if request.get(PLAN) is not None else ""
        found = sum(status in FOUND for status in statuses)
        results = ", ".join([f"{found} found{_across(statuses)}", *_without(statuses)])
    asked = f"method {request['method']}, wanted {target_text(request, schema)}"
    sure = request.get("confidence")
    asked += "" if sure is None else f", confidence {confidence_text(sure)}"
    if request.get("threshold"):
        asked += f", decided by thresholds {_text(request['threshold'], None)}"
    return f"Explanation of {rows}: {results} ({asked})"


def target_text(request: Mapping[str, Any], schema: Schema) -> str:
    """What is asked for, as part of a sentence: a class, or a range of numbers."""
    asked = request.get("target_range")
    return outcome(class_text(schema, request["target_class"])) if asked is None else wanted_range(asked, schema)


def _without(statuses: Sequence[str]) -> list[str]:
    """What became of the rows without a counterfactual, each with their number."""
    counts = {code: statuses.count(code) for code in StatusCode if not code.found}
    return [f"{count} {code.replace('_', ' ')}" for code, count in counts.items() if count]


def _across(statuses: Sequence[str]) -> str:
    count = statuses.count(StatusCode.CROSSES_GAP)
    return f" ({count} of them across a gap in the data)" if count else ""


def _count_plans(statuses: Sequence[str], people: Sequence[int]) -> str:
    """How many plans those have who have any; then what became of the other people, of whom the first row says it."""
    rows = list(zip(statuses, people, strict=True))
    explained = {person for status, person in rows if status in FOUND}
    theirs = [status for status, person in rows if person in explained]
    first = {person: status for status, person in reversed(rows)}
    others = [status for person, status in first.items() if person not in explained]
    plans = f"{counted(sum(status in FOUND for status in theirs), 'plan')} found"
    plans += f" for {counted(len(explained), 'person', 'people')}" if explained else ""
    fewer = theirs.count(StatusCode.NO_OTHER_PLAN)
    lacking = _without([status for status in theirs if status != StatusCode.NO_OTHER_PLAN])
    found = ", ".join([plans + _across(theirs), *([f"{fewer} fewer than asked for"] if fewer else []), *lacking])
    return "; ".join([found, *([", ".join(_without(others))] if others else [])])


@dataclass(frozen=True)
class Meaning:
    """A number of a table, for a reader who has not met it.

    Attributes:
        label: What to call it.
        text: What it says.
        form: How to write it.
    """

    label: str
    text: str
    form: Callable[[Any], str] = rounded


def _yes(share: Any) -> str:
    return value(share) if share != share else "yes" if share else "no"


_UNIT = "1 is the whole range of one feature, or another category"

MEANINGS: dict[str, Meaning] = {
    "valid": Meaning("decided as asked", "whether the model decides as asked on the row as returned", percent),
    "confidence": Meaning("probability", "what the model gives the wanted outcome then", probability),
    "l0": Meaning("features changed", "how many features are different", rounded),
    "l1": Meaning("size of the change", f"all changes added up (L1); {_UNIT}", rounded),
    "l1_mad": Meaning(
        "size of the change, by spread", "all changes added up, each number by its MAD (L1/MAD)", rounded
    ),
    "l2": Meaning("distance", f"straight-line distance to the row as it was (L2); {_UNIT}", rounded),
    "l2_sq": Meaning("distance, squared", "its square, which punishes large changes (L2²)", rounded),
    "linf": Meaning("largest change", f"of any one feature (L∞); {_UNIT}", rounded),
    "ld": Meaning("distance to data", "to the nearest training row (LD): 0 is somebody real, far is nobody", rounded),
    "ld_sq": Meaning("distance to data, squared", "to the nearest training row (LD²): 0 is somebody real", rounded),
    "copy": Meaning("copies", "the share that is equal to a training row, so somebody's own record", percent),
    "violation": Meaning("immutable changed", "how many immutable features changed; 0 is right", rounded),
    "unseen_pairs": Meaning("unseen pairs", "pairs of its values that no training row has; 0 is right", rounded),
    "ynn": Meaning("neighbours alike", "share of the five nearest training rows decided the same", percent),
    "redundancy": Meaning("redundant changes", "how many changes, each alone, could be taken back", rounded),
    "valid_after": Meaning("valid after", "share of retrained models, unseen by the search, that accept it", percent),
    "valid_noise": Meaning("valid if missed", "share of small deviations in what changed that stay valid", percent),
    "steps": Meaning("steps", "points on the way there", rounded),
    "n": Meaning("n", "how many the means in this row of the table are over"),
    "explained": Meaning("searched", "for how many a counterfactual was looked for"),
    "found": Meaning("found", "the share of the searched ones for whom there is a counterfactual", percent),
    "flip ratio": Meaning("found", "the share of the searched ones with a counterfactual", percent),
    "local": Meaning("found unaided", "the same without those for which the fallback was needed", percent),
    "gaps": Meaning("across a gap", "the share reached only where the data have nobody", percent),
    "plans": Meaning("plans each", "how many different plans there are, on average", rounded),
    "changes most": Meaning("changes most", "the features that change most often, and in how many"),
    "seconds": Meaning("seconds", "for all rows together", lambda value: "–" if value != value else f"{value:.1f}"),
}
"""The measures and counts of tables over many rows, by their names."""

ENCODED = ("l1", "l2", "l2_sq", "linf", "ld", "ld_sq")
"""The measures between encoded rows, where a number may be on another scale than its own."""
UNITS = {
    **dict.fromkeys(("l1", "l2", "linf", "ld"), _UNIT),
    **dict.fromkeys(("l2_sq", "ld_sq"), f"squared; {_UNIT}"),
    "l1_mad": "median absolute deviations of the training rows, in original units; another category counts 1",
    **dict.fromkeys(("l0", "violation", "redundancy"), "features"),
    **dict.fromkeys(("valid", "copy"), "1 for yes, 0 for no"),
    **dict.fromkeys(("confidence", "ynn", "valid_after", "valid_noise"), "from 0 to 1"),
    "unseen_pairs": "pairs of features",
    "steps": "points after the first",
}
"""What the measures of a row are in."""


def scales(schema: Schema) -> str:
    """Which features distances count on another scale than their own, as a clause; empty for none."""
    logs = [feature.title for feature in schema if feature.transform != "identity"]
    return f"{listed(logs)} on a log scale" if logs else ""


def units(schema: Schema) -> dict[str, str]:
    """What each measure is in, given the features."""
    scaled = scales(schema)
    return {name: f"{text}; {scaled}" if scaled and name in ENCODED else text for name, text in UNITS.items()}


def meanings(schema: Schema, known: Mapping[str, Meaning] | None = None) -> dict[str, Meaning]:
    """What measures mean, with the scale of those between encoded rows where it is not the features' own."""
    scaled, known = scales(schema), MEANINGS if known is None else known
    if not scaled:
        return dict(known)
    more = {name: replace(known[name], text=f"{known[name].text}; {scaled}") for name in ENCODED if name in known}
    return {**known, **more}


ROW_MEANINGS: dict[str, Meaning] = MEANINGS | {
    "copy": Meaning("copy", "whether it is equal to a training row, so somebody's own record", _yes),
}
"""The same for one row."""


REQUEST_MEANINGS = {
    "method": "how to search",
    "target_class": "the wanted decision; other is any but the present one",
    "confidence": "what its probability must reach, or where it must lie; else what the model decides by",
    "target_range": "where the number that the model predicts must lie",
    "row_constraints": "what was asked for each row alone",
    "threshold": "from which probability on the model decides for a class",
    "plans": "how many counterfactuals each person may have",
    "plan": "which of them is shown",
    "paths": "how much of each path is kept",
    "time_limit": "how long to search at most",
    "plausibility": "how far from the data an answer may be: as far as this share of real rows",
    "closeness": "what is made small: l1, the sum of changes; l2, that of their squares; l0, their number",
    "robust": "which share of the models that may follow must accept it, too",
    "noise": "for which share of small deviations it must stay valid",
    **{name: kind.meaning for name, kind in CONSTRAINTS.items()},
    "model": "the model under explanation",
    "seed": "of all randomness",
    "max_steps": "the most steps of a search",
    "step_size": "length of a step in the latent space",
    "damping": "added to the diagonal of the metric",
    "sparsify": "redundant changes are put back",
    "keep_residual": "what the generative model does not reproduce of a row is kept along its path",
    "fallback": "a search that is stuck goes to the nearest point that the model accepts",
    "fidelity": "how much staying close weighs in the search",
    "refine": "answers are moved as close to the person as they can be; by default those of geodesic",
    "allow_copies": "a counterfactual may be equal to a training row",
    "staged": "on a path no feature goes back and forth, and few change at a time",
    "avoid_unseen": "pairs of values that no training row has are avoided",
    "tf32": "products are rounded while searching on a GPU",
    "representation_layer": "the layer that stands for what the model sees",
    "ambient_metric": "what steps are measured by",
    "uncertainty_cost": "steps cost more where the model is unsure",
}
"""What the parts of a request mean, for people who did not write it."""


def describe_provenance(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When, how fast and with which versions, as far as it is known: names and values."""
    known = [(name, str(provenance[name])) for name in ("date", "seconds") if name in provenance]
    used = ", ".join(f"{name} {number}" for name, number in provenance.get("versions", {}).items())
    return [*known, *([("versions", used)] if used else [])]


def describe_request(request: Mapping[str, Any], schema: Schema) -> list[tuple[str, str, str]]:
    """What was asked for, and not what was left open: the name, the value and the meaning of each part."""
    asked = {name: part for name, part in request.items() if part is not None and part != [] and part != {}}
    texts = {name: _text(part, schema if name in CONSTRAINTS else None) for name, part in asked.items()}
    if "target_range" in texts:
        texts["target_range"] = wanted_range(asked["target_range"], schema)
        texts.pop("target_class", None)
    if "row_constraints" in texts:
        some = sum(bool(each) for each in asked["row_constraints"])
        texts["row_constraints"] = f"of {counted(some, 'row')}"
    if isinstance(asked.get("confidence"), list | tuple):
        texts["confidence"] = confidence_text(asked["confidence"])
    if "target_class" in texts:
        texts["target_class"] = class_text(schema, asked["target_class"])
    return [(name, text, REQUEST_MEANINGS.get(name, "")) for name, text in texts.items()]


def _text(part: Any, schema: Schema | None, feature: Feature | None = None) -> str:
    """A part of a request; what a constraint has are features, or values of the feature that it is about."""
    features = {each.name: each for each in schema} if schema else {}
    if isinstance(part, Mapping):
        known = ((features.get(name), name, each) for name, each in part.items())
        return "; ".join(f"{of.title if of else name}: {_text(each, None, of)}" for of, name, each in known)
    if isinstance(part, list):
        return ", ".join(_text(each, schema, feature) for each in part)
    if feature is not None:
        return shown(feature, part)
    if isinstance(part, bool):
        return "yes" if part else "no"
    return features[part].title if isinstance(part, str) and part in features else value(part)

"""What became of a row: a code, why, whether a fallback was used, which constraints bind, and what was imputed.

Everything that is decided about a row is here as data. The sentences that people read are made from it, by
`explanation.wording.reason`, and never read back.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class StatusCode(StrEnum):
    """What became of a row that was to be explained; `text` is a sentence that says what to try."""

    FOUND = "found"
    CROSSES_GAP = "crosses_gap"
    IMPLAUSIBLE = "implausible"
    FRAGILE = "fragile"
    ALREADY = "already"
    NOT_FOUND = "not_found"
    OUT_OF_TIME = "out_of_time"
    UNKNOWN_CATEGORY = "unknown_category"
    OUTSIDE = "outside"
    NO_OTHER_PLAN = "no_other_plan"

    @property
    def text(self) -> str:
        """One sentence: what happened, and what to try."""
        return _TEXTS[self]

    @property
    def found(self) -> bool:
        """Whether there is a counterfactual, be it only across a gap in the data or far from them."""
        return self in (StatusCode.FOUND, StatusCode.CROSSES_GAP, StatusCode.IMPLAUSIBLE)

    @property
    def valid(self) -> bool:
        """Whether the model decides as asked on the row as returned."""
        return self.found or self in (StatusCode.ALREADY, StatusCode.FRAGILE)

    @property
    def searched(self) -> bool:
        """Whether it counts as looked for: not a row that needs nothing, nor a further plan that does not exist."""
        return self.found or self in (StatusCode.FRAGILE, StatusCode.NOT_FOUND, StatusCode.OUT_OF_TIME)


FOUND = tuple(code for code in StatusCode if code.found)
"""The codes of rows with a counterfactual."""

_TEXTS = {
    StatusCode.FOUND: "The model decides as asked on the row as returned.",
    StatusCode.CROSSES_GAP: "The model decides as asked on the row as returned, but the path to it crosses a gap in "
    "the data, where there is nobody; try fewer constraints or a lower confidence to find one that is nearer.",
    StatusCode.IMPLAUSIBLE: "The model decides as asked on the row as returned, but the row is farther from the data "
    "than nearly all real rows are; try fewer constraints or a lower confidence to find one that is nearer.",
    StatusCode.FRAGILE: "The model accepts the row that is returned, but fewer of the models that may follow do than "
    "was asked for, and nothing that lasts was found; try a smaller share, or fewer constraints.",
    StatusCode.ALREADY: "The model already decides as asked, so the row is returned unchanged; "
    "ask for another class or a higher confidence to see a change.",
    StatusCode.NOT_FOUND: "All steps were taken and the best point reached is returned; "
    "try more steps, a lower confidence or another method.",
    StatusCode.OUT_OF_TIME: "The time ran out and the best point reached is returned; "
    "try a longer time limit, fewer rows or a faster method.",
    StatusCode.UNKNOWN_CATEGORY: "The row has a category that was never seen in training, or no value at all, so it "
    "is returned unchanged; correct the value, or fit again with rows that have it.",
    StatusCode.OUTSIDE: "The row is outside of what was asked for and cannot get there, so it is returned unchanged; "
    "widen the range, or unlock what has to change.",
    StatusCode.NO_OTHER_PLAN: "No further plan that differs from the ones before was found, so the row is returned "
    "unchanged; ask for fewer plans, or try a lower confidence, more steps or fewer constraints.",
}


class Cause(StrEnum):
    """Why a row has no counterfactual, where its code alone does not say."""

    NONE = ""
    STEPS = "steps"
    """No point within the allowed steps was valid."""
    FLAT = "flat"
    """The search came to a point where the model is flat."""
    NOT_FINITE = "not_finite"
    """The search ran into numbers that are not finite."""
    NO_TRAINING_ROW = "no_training_row"
    """No training row within the feasible set is valid."""
    EDGE = "edge"
    """The counterfactual stood on an edge of the model: the row in original units is decided otherwise."""
    TIME = "time"
    """There was no time to look for a further plan."""
    INVALID = "invalid"
    """The method returned a row that the validator refused; the detail says why."""


@dataclass(frozen=True)
class BindingConstraint:
    """A constraint that stands in the way of a counterfactual.

    Attributes:
        kind: "immutable", "lock", "not_actionable", "up", "down", "range", "rule" or "max_changes".
        feature: The feature; for "rule" the rule, for "max_changes" how many features may change.
        reach: The highest probability of the target with a value that the constraint forbids, all else as it is.
    """

    kind: str
    feature: str
    reach: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.feature}"

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "BindingConstraint":
        """The constraint that `to_json` made a value of."""
        return cls(str(value["kind"]), str(value["feature"]), float(value["reach"]))


@dataclass(frozen=True)
class Status:
    """What became of a row.

    Attributes:
        code: What became of it.
        cause: Why there is no counterfactual.
        fallback: Whether the counterfactual was found by the fallback, because the search itself got stuck.
        binding: The constraints that stand in the way of a counterfactual, the one that costs most first.
        unseen_pairs: Pairs of features whose values no training row has together, where nothing else was found.
        imputed: The columns that were missing and filled in.
        detail: What is particular to this row: for instance the category that is not known.
        broken: The rules that the row breaks as it is; its path ends where it does not.
        follows: The features that change because others do: derived ones, and effects of what the person does.
        share: Which share of the family's models gives the row that is returned the wanted outcome; None where nobody
            looked.
        retrained: How many of the models that were held out from the family do so, and how many there are.
    """

    code: StatusCode
    cause: Cause = Cause.NONE
    fallback: bool = False
    binding: tuple[BindingConstraint, ...] = ()
    unseen_pairs: tuple[tuple[str, str], ...] = ()
    imputed: tuple[str, ...] = ()
    detail: str = ""
    broken: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    share: float | None = None
    retrained: tuple[int, int] | None = None

"""What the numbers of an explanation mean, in plain words: the only place that names them for readers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from counterpath.explanation import wording


@dataclass(frozen=True)
class Meaning:
    """A number of a table.

    Attributes:
        label: What to call it.
        text: What it says, for a reader who has not met it.
        form: How to write it.
    """

    label: str
    text: str
    form: Callable[[Any], str] = wording.value


def _two(value: Any) -> str:
    return wording.value(value, digits=3)


def _yes(value: Any) -> str:
    return wording.value(value) if value != value else "yes" if value else "no"


_PART = "1 is the whole range of one feature, or another category"

MEANINGS: dict[str, Meaning] = {
    "valid": Meaning("decided as asked", "whether the model decides as asked on the row as returned", wording.percent),
    "confidence": Meaning("probability", "what the model gives the wanted outcome then", wording.probability),
    "l0": Meaning("features changed", "how many features are different", _two),
    "l1": Meaning("size of the change", f"all changes added up (L1); {_PART}", _two),
    "l2": Meaning("distance", f"straight-line distance to the row as asked (L2); {_PART}", _two),
    "l2_sq": Meaning("distance, squared", "its square, which punishes large changes (L2²)", _two),
    "linf": Meaning("largest change", f"of any one feature (L∞); {_PART}", _two),
    "ld": Meaning("distance to data", "to the nearest training row (LD): 0 is somebody real, far is nobody", _two),
    "ld_sq": Meaning("distance to data, squared", "to the nearest training row (LD²): 0 is somebody real", _two),
    "copy": Meaning("copies", "the share that is equal to a training row, so somebody's own record", wording.percent),
    "violation": Meaning("immutable changed", "how many immutable features changed; 0 is right", _two),
    "ynn": Meaning("neighbours alike", "share of the five nearest training rows decided the same", wording.percent),
    "redundancy": Meaning("needless changes", "how many changes, each alone, could be taken back", _two),
    "steps": Meaning("steps", "points on the way there", _two),
    "n": Meaning("n", "how many the means in this row of the table are over"),
    "explained": Meaning("searched", "for how many a counterfactual was looked for"),
    "found": Meaning("found", "the share of the searched ones for whom there is a counterfactual", wording.percent),
    "flip ratio": Meaning("found", "the share of the searched ones with a counterfactual", wording.percent),
    "local": Meaning("found unaided", "the same without those that were led out of a dead end", wording.percent),
    "gaps": Meaning("across a gap", "the share reached only where the data have nobody", wording.percent),
    "plans": Meaning("plans each", "how many different plans there are, on average", _two),
    "changes most": Meaning("changes most", "the features that change most often, and in how many"),
    "seconds": Meaning("seconds", "for all rows together", lambda value: "–" if value != value else f"{value:.1f}"),
}

SINGLE: dict[str, Meaning] = MEANINGS | {
    "copy": Meaning("copy", "whether it is equal to a training row, so somebody's own record", _yes),
}
"""The same where they are about one person."""


def label(name: str) -> str:
    """What to call a number; as it is called itself, if nothing is known about it."""
    return MEANINGS[name].label if name in MEANINGS else name


def form(name: str, value: Any) -> str:
    """A number as text."""
    return MEANINGS[name].form(value) if name in MEANINGS else wording.value(value)


def legend(names: Iterable[str]) -> dict[str, str]:
    """What the columns of a table mean, by what they are called."""
    return {MEANINGS[name].label: MEANINGS[name].text for name in names if name in MEANINGS}

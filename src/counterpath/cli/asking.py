"""What to ask of an explainer, from the options of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpath.answering import OTHER
from counterpath.cli import constraining, options
from counterpath.explainer import Explainer
from counterpath.explanation.keeping import KEEP, check_keep


class Question:
    """What was asked, of which only so much is checked as needs no model.

    Args:
        given: By option what was given, without what constraints say; None for what was not.
        wishes: What may change.
        request: A file that holds a request, beside which nothing else may be asked.
        keep: How much of every path to keep if nobody says.
    """

    def __init__(self, given: Mapping[str, Any], wishes: constraining.Options, request: Path | None, keep: str) -> None:
        options.confidence(options.SURE if given["--confidence"] is None else given["--confidence"])
        if given["--method"] is not None:
            options.method(given["--method"])
        if given.get("--keep") is not None:
            check_keep(given["--keep"])
        if request is not None:
            constraining.refuse_beside_request({**given, **wishes.by_option})
        self.again = None if request is None else constraining.read_request(request)
        self._given, self._wishes, self._keep = given, wishes, keep

    @property
    def keep(self) -> Any:
        """How much of every path is asked for; None where a request does not say."""
        return (self._given.get("--keep") or self._keep) if self.again is None else self.again.get(KEEP)

    def of(self, explainer: Explainer) -> dict[str, Any]:
        """The same as what `Explainer.repeat` takes."""
        if self.again is not None:
            return self.again
        target, confidence = self._given["--target-class"], self._given["--confidence"]
        return self._wishes.arguments(explainer.schema_) | {
            "method": self._given["--method"],
            "seconds": self._given.get("--seconds"),
            KEEP: self.keep,
            "target_class": options.target_class(OTHER if target is None else target, explainer.classes_, OTHER),
            "confidence": options.SURE if confidence is None else confidence,
        }

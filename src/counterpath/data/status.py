"""What became of a row, each with a sentence that says what to try."""

from enum import StrEnum


class Status(StrEnum):
    """What became of a row that was to be explained."""

    FOUND = "found"
    CROSSES_GAP = "crosses_gap"
    ALREADY = "already"
    NOT_FOUND = "not_found"
    OUT_OF_TIME = "out_of_time"
    UNKNOWN_CATEGORY = "unknown_category"
    NO_OTHER_PLAN = "no_other_plan"

    @property
    def text(self) -> str:
        """One sentence: what happened, and what to try."""
        return _TEXTS[self]

    @property
    def found(self) -> bool:
        """Whether there is a counterfactual, be it only across a gap in the data."""
        return self in (Status.FOUND, Status.CROSSES_GAP)

    @property
    def valid(self) -> bool:
        """Whether the model decides as asked on the row as returned."""
        return self.found or self is Status.ALREADY

    @property
    def searched(self) -> bool:
        """Whether it counts as looked for: not a row that needs nothing, nor a further plan that is not there."""
        return self.found or self in (Status.NOT_FOUND, Status.OUT_OF_TIME)


FOUND = tuple(kind for kind in Status if kind.found)
"""What rows with a counterfactual are marked with in a table."""

_TEXTS = {
    Status.FOUND: "The model decides as asked on the row as returned.",
    Status.CROSSES_GAP: "The model decides as asked on the row as returned, but the path to it crosses a gap in the "
    "data, where there is nobody; try fewer constraints or a lower confidence to find one that is nearer.",
    Status.ALREADY: "The model already decides as asked, so the row is returned unchanged; "
    "ask for another class or a higher confidence to see a change.",
    Status.NOT_FOUND: "All steps were taken and the best point reached is returned; "
    "try more steps, a lower confidence or another method.",
    Status.OUT_OF_TIME: "The time ran out and the best point reached is returned; "
    "try a longer time limit, fewer rows or a faster method.",
    Status.UNKNOWN_CATEGORY: "The row has a category that was never seen in training, so it is returned unchanged; "
    "correct the value, or fit again with rows that have it.",
    Status.NO_OTHER_PLAN: "No further plan that differs from the ones before was found, so the row is returned "
    "unchanged; ask for fewer plans, or try a lower confidence, more steps or fewer constraints.",
}

LED = (
    "The local search got stuck; this path leads straight through the latent space to the nearest place that the model "
    "accepts, decoded from a training row."
)
"""The reason of a row that was found only by being led."""

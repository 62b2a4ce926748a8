"""What a batch job found, in numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from counterpath.batch.answers import UNUSABLE, UNUSABLE_TEXT
from counterpath.batch.job import Job
from counterpath.batch.receipts import Failure, Receipt, Totals
from counterpath.explanation.status import Status

_TOLD = ("shard", "source", "first", "rows", "problem")
"""What the summary says of a shard in quarantine; its file there has more."""
_DIGITS = 9
"""Sums of the same numbers in other shards differ in the sixteenth digit."""


def summarize(
    job: Job, receipts: Sequence[Receipt], failures: Sequence[Failure], *, engine: str, workers: int, seconds: float
) -> dict[str, Any]:
    """The summary of a job that has ended.

    Args:
        job: What was asked.
        receipts: Of all shards that are done, in this run or before.
        failures: What could not be done.
        engine: What did it.
        workers: How many of it.
        seconds: How long this run took.

    Returns:
        `rows` that are done, and how many were `found`; the `flip_ratio`, their share of the rows that were searched;
        `reasons`: by status how many rows have it and what it means; `binding`: how many rows each constraint stands in
        the way of; `measures`: the mean and standard deviation over the `n` rows that were found; `seconds` of this
        run, and `busy_seconds`, those of all shards one after the other, in all runs; and what is in `quarantine`.
    """
    totals = Totals()
    for receipt in sorted(receipts, key=lambda one: one.shard):
        totals = totals.plus(receipt)
    found, searched = (
        sum(totals.status.get(kind.value, 0) for kind in Status if getattr(kind, name))
        for name in ("found", "searched")
    )
    return {
        "rows": totals.rows,
        "found": found,
        "flip_ratio": _rounded(found / searched) if searched else None,
        "reasons": {name: {"rows": count, "text": _text(name)} for name, count in totals.status.items()},
        "binding": dict(sorted(totals.binding.items(), key=lambda one: (-one[1], one[0]))),
        "measures": {name: _moments(*sums) for name, sums in totals.measures.items()},
        "seconds": round(seconds, 3),
        "busy_seconds": round(totals.seconds, 3),
        "shards": {"done": len(receipts), "quarantined": len(failures)},
        "quarantine": [_without_details(failure) for failure in failures],
        "engine": engine,
        "workers": workers,
        "device": job.device,
        "request": dict(job.request),
        "versions": dict(job.versions),
    }


def _moments(count: int, total: float, squares: float) -> dict[str, float | int | None]:
    if not count:
        return {"n": 0, "mean": None, "std": None}
    mean = total / count
    variance = max(squares / count - mean * mean, 0.0)
    return {"n": count, "mean": _rounded(mean), "std": _rounded(math.sqrt(variance))}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _text(status: str) -> str:
    return UNUSABLE_TEXT if status == UNUSABLE else Status(status).text


def _without_details(failure: Failure) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(failure).items() if name in _TOLD}

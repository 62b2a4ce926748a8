"""A batch job from beginning to end: plan it, have it done by an engine, record what is done, sum it up."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from counterpath.batch import folder
from counterpath.batch.engine import Engine
from counterpath.batch.folder import Journal, Manifest
from counterpath.batch.job import Job
from counterpath.batch.results import UNUSABLE, UNUSABLE_TEXT, check_ids
from counterpath.batch.shards import Failure, Receipt, Told, Totals
from counterpath.batch.sources import Shard, Source, find, shards_of, survey
from counterpath.batch.worker import Errand
from counterpath.batch.writing import writing
from counterpath.data.status import StatusCode
from counterpath.explainer.explainer import Explainer
from counterpath.explanation.milestones import END, KEEP
from counterpath.utils.errors import BatchError, InputError
from counterpath.utils.files import write_json
from counterpath.utils.progress import track

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
        sum(totals.status.get(kind.value, 0) for kind in StatusCode if getattr(kind, name))
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
    return UNUSABLE_TEXT if status == UNUSABLE else StatusCode(status).text


def _without_details(failure: Failure) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(failure).items() if name in _TOLD}


STALL = 900.0
"""Seconds without a finished shard after which a job has stalled."""
SHARD_ROWS = {"cpu": 5_000, "cuda": 100_000}
"""How many rows a shard has, if nobody says: enough to keep the device busy, and soon done."""
_HOPELESS = 5
"""So many failures, and nothing ever done, and the job is given up."""


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Attributes:
        rows: Rows that are done, those of earlier runs among them.
        total: Rows of the whole input.
        rate: Rows a second in this run.
        failed: Shards that could not be done.
    """

    rows: int
    total: int
    rate: float
    failed: int

    @property
    def remaining(self) -> float:
        """Seconds until the end, if it goes on like this."""
        return (self.total - self.rows) / self.rate if self.rate else float("inf")


def run(
    model: str | Path,
    rows: str | Path,
    out: str | Path,
    engine: Engine,
    asked: Mapping[str, Any],
    *,
    own: str | None = None,
    ids: Sequence[str] = (),
    shard_rows: int | None = None,
    device: str = "cpu",
    restart: bool = False,
    stall: float = STALL,
    explainer: Explainer | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Explain every row of one or many files, and write what was found as Parquet.

    What is done stays done: called again with the same arguments, it goes on with what is missing, be it on another
    engine. Results do not depend on the engine, on how many workers it has, nor on the size of shards.

    Args:
        model: A model directory.
        rows: A file, a folder or a pattern of files, Parquet or comma-separated values.
        out: The folder for the results.
        engine: Who does it: `Local` or `Ray`.
        asked: What to ask, as arguments of `Explainer.explain`, or as the request of an explanation. Of paths nothing
            but the end is kept, unless `paths` says otherwise.
        own: The user's own model as `module:attribute`, if the model directory only names it.
        ids: Columns that are carried along.
        shard_rows: The most rows of a shard.
        device: "cpu" or "cuda": where workers compute.
        restart: Forget what was done before.
        stall: Seconds without a finished shard after which the job is given up.
        explainer: The model, if it is loaded already: what is asked is checked by it before anything begins.
        report: Told of the progress, shard by shard.
        say: Told what a user may want to know, in sentences.

    Returns:
        The summary: see `summarize`. It is written to `summary.json`, too.

    Raises:
        InputError: Something cannot be used, or the folder holds the results of another job; the message says what.
        BatchError: The job cannot go on, or has stalled; what is done is kept.
    """
    started, place = time.monotonic(), Path(out)
    loaded = Explainer.load(model) if explainer is None else explainer
    empty = loaded.encoder_.decode(loaded.models_.rows[:0])
    request = loaded.repeat({KEEP: END, **asked}, empty).request
    if request["time_limit"] is not None:
        raise InputError("a batch job has no time limit: its results would depend on how fast the machine is")
    check_ids(ids, loaded.schema_)
    job = Job.of(Path(model), request, own=own, ids=ids, shard_rows=shard_rows or SHARD_ROWS[device], device=device)
    sources = survey(find(str(rows), place), [*ids, *loaded.schema_.names], job.shard_rows)
    if all(source.problem for source in sources):
        raise InputError(f"none of the {len(sources)} files can be used; {sources[0].name}: {sources[0].problem}")
    with folder.held(place):
        journal, done = _opened(place, job, sources, restart=restart)
        broken = [_unreadable(number, source) for number, source in enumerate(sources) if source.problem]
        for failure in broken:
            folder.quarantine(place, failure)
        shards = shards_of(sources, job.shard_rows)
        missing = [shard for shard in shards if shard.name not in done]
        if done:
            rest = "; going on with the others" if missing else ""
            say(f"{len(done)} of {len(shards)} shards are done already{rest}")
        errand = Errand(str(Path(model).resolve()), str(Path.cwd()), job, tuple(sources), str(place.resolve()), device)
        watch = _Watch(sum(shard.rows for shard in shards), sum(one.rows for one in done.values()), report)
        failures = broken + _carried_out(engine, errand, missing, journal, done, watch, stall)
        for failure in failures:
            say(f"shard {failure.shard} ({failure.source}) is in quarantine: {failure.problem}")
        summary = summarize(
            job,
            list(done.values()),
            failures,
            engine=engine.name,
            workers=engine.workers,
            seconds=time.monotonic() - started,
        )
        folder.sweep(place)  # again: workers of an earlier run that was killed may have outlived it for a moment
        with writing(place / folder.SUMMARY):
            write_json(place / folder.SUMMARY, summary)
    return summary


def _opened(place: Path, job: Job, sources: Sequence[Source], *, restart: bool) -> tuple[Journal, dict[str, Receipt]]:
    """The journal of the results in a folder, if they are those of this job or of none yet, and what is done."""
    before = None if restart else Manifest.read(place)
    if before is not None:
        differences = before.differences(job, sources, folder.quarantined(place))
        if differences:
            raise InputError(
                f"{place} holds the results of another job: {'; '.join(differences)}. Choose another folder, ask as "
                "before, or start over with --restart, which deletes what is there"
            )
    if restart:
        folder.clear(place)
    folder.sweep(place)
    (place / folder.SUMMARY).unlink(missing_ok=True)  # it is out of date while a job runs
    now = Manifest.of(job, sources)
    if now != before:
        now.write(place)
    journal = Journal.of(place)
    recorded = journal.read()
    done = folder.intact(place, recorded, sources)
    if len(done) < len(recorded):
        journal.keep(done.values())
    folder.tidy(place, done.values())  # last: until the manifest tells of it, quarantine says what may have changed
    return journal, done


def _carried_out(
    engine: Engine,
    errand: Errand,
    shards: Sequence[Shard],
    journal: Journal,
    done: dict[str, Receipt],
    watch: "_Watch",
    stall: float,
) -> list[Failure]:
    """Have shards done and recorded, into `done`; returns those that could not be."""
    told: SimpleQueue[Told] = SimpleQueue()
    failures: list[Failure] = []
    with track("Explaining rows", watch.total) as advance:
        advance(watch.rows)
        try:
            if shards:
                engine.start(errand, shards, told.put)
            for _ in shards:
                answer = _next(told, stall, engine)
                if isinstance(answer, Receipt):
                    journal.add(answer)
                    done[answer.shard] = answer
                    advance(answer.rows, watch.add(answer.rows, len(failures)))
                    continue
                if answer.fatal:
                    raise BatchError(answer.problem)
                failures.append(answer)
                folder.quarantine(Path(errand.out), answer)
                if not done and _hopeless(failures, len(shards)):
                    raise BatchError(answer.problem)
        finally:
            engine.stop()
    return failures


def _next(told: "SimpleQueue[Told]", stall: float, engine: Engine) -> Told:
    try:
        return told.get(timeout=stall)
    except Empty:
        raise BatchError(
            f"the job has stalled: its {engine.workers} {engine.name} workers finished no shard within {stall:g} "
            "seconds, and were ended. What is done is kept: run the same command again, with --stall if a shard takes "
            "longer than that, with fewer --workers or with --engine local"
        ) from None


def _hopeless(failures: Sequence[Failure], shards: int) -> bool:
    """Whether what failed so far tells that the rest will: damaged rows do so only when there is no rest."""
    return len(failures) == shards or sum(not failure.damaged for failure in failures) >= _HOPELESS


def _unreadable(number: int, source: Source) -> Failure:
    return Failure(f"{number:05d}", source.name, 0, source.rows, f"{source.name} is left out: {source.problem}")


class _Watch:
    """Counts rows and seconds."""

    def __init__(self, total: int, rows: int, report: Callable[[Progress], None]) -> None:
        self.total, self.rows, self._before, self._report = total, rows, rows, report
        self._started = time.monotonic()

    def add(self, rows: int, failed: int) -> str:
        """Tell of some more rows; returns the rate in words."""
        self.rows += rows
        rate = (self.rows - self._before) / max(time.monotonic() - self._started, 1e-9)
        self._report(Progress(self.rows, self.total, rate, failed))
        return f"{rate:,.0f} rows/s"

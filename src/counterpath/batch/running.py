"""A batch job from beginning to end: plan it, have it done by an engine, record what is done, sum it up."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from counterpath.batch import folder
from counterpath.batch.engine import Engine, Job, Outcome, ShardFailure, ShardResult, Task
from counterpath.batch.folder import Journal, writing
from counterpath.batch.results import CONSTRAINT_COLUMNS, UNUSABLE, UNUSABLE_TEXT, check_ids
from counterpath.batch.sources import Shard, find_files, inspect_files, shards_of
from counterpath.data.row_constraints import check_constraint_columns
from counterpath.data.status import StatusCode
from counterpath.explainer.explainer import Explainer
from counterpath.explanation.tables import END
from counterpath.utils.errors import BatchError, InputError
from counterpath.utils.files import write_json
from counterpath.utils.importing import import_object
from counterpath.utils.progress import track

STALL = 900.0
"""Seconds without a finished shard after which a job has stalled: many times what a shard of the default size takes."""
SHARD_ROWS = {"cpu": 5_000, "cuda": 100_000}
"""How many rows a shard has by default: enough to keep the device busy, and soon done."""
_FAILURES_TO_GIVE_UP = 5
"""So many failures, and no shard ever done: then it is not the shards."""
_IN_SUMMARY = ("shard", "source", "first", "rows", "problem")
"""What the summary says of a shard in quarantine; its file there has more."""
_DIGITS = 9
"""Sums of the same numbers in other shards differ in the sixteenth digit."""


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
    request: Mapping[str, Any],
    *,
    user_model: str | None = None,
    ids: Sequence[str] = (),
    constraints: Sequence[str] = (),
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
        engine: What does the work: `Local` or `Ray`.
        request: The request, as arguments of `Explainer.explain`, or as an explanation records it. Of paths nothing
            but the end is kept, unless `paths` says otherwise.
        user_model: The user's own model as `module:attribute`, if the model directory only names it.
        ids: Columns of the input that are copied to the results.
        constraints: Columns with constraints of each row's own, as `counterpath.data.row_constraints` has them; they
            are copied, too.
        shard_rows: The most rows of a shard.
        device: "cpu" or "cuda": where workers compute.
        restart: Forget what was done before.
        stall: Seconds without a finished shard after which the job is given up.
        explainer: The model, if it is loaded already: the request is checked by it before anything begins.
        report: Called with the progress, shard by shard.
        say: Called with what a user may want to know, in sentences.

    Returns:
        The summary: see `summarize`. It is written to `summary.json`, too.

    Raises:
        InputError: Something cannot be used, or the folder holds the results of another job; the message says what.
        BatchError: The job cannot go on, or has stalled; what is done is kept.
    """
    started, path = time.monotonic(), Path(out)
    if explainer is None:
        explainer = Explainer.load(model, model=None if user_model is None else import_object(user_model))
    no_rows = explainer.encoder_.decode(explainer.models_.rows[:0])
    recorded = explainer.repeat({"paths": END, **request}, no_rows).request
    if recorded["time_limit"] is not None:
        raise InputError("a batch job has no time limit: its results would depend on how fast the machine is")
    if constraints:
        check_constraint_columns(explainer.schema_, constraints)
        recorded = {**recorded, CONSTRAINT_COLUMNS: list(constraints)}
        ids = [*ids, *(name for name in constraints if name not in ids)]
    check_ids(ids, explainer.schema_)
    size = shard_rows or SHARD_ROWS[device]
    job = Job.of(Path(model), recorded, user_model=user_model, ids=ids, shard_rows=size, device=device)
    sources = inspect_files(find_files(str(rows), path), [*ids, *explainer.schema_.names], size)
    if all(source.problem for source in sources):
        raise InputError(f"none of the {len(sources)} files can be used; {sources[0].name}: {sources[0].problem}")
    with folder.locked(path):
        journal, done = folder.open_results(path, job, sources, restart=restart)
        failures = [
            ShardFailure(f"{number:05d}", source.name, 0, source.rows, f"{source.name} is left out: {source.problem}")
            for number, source in enumerate(sources)
            if source.problem
        ]
        for failure in failures:
            folder.write_quarantine(path, failure)
        shards = shards_of(sources, size)
        missing = [shard for shard in shards if shard.name not in done]
        if done:
            rest = "; going on with the others" if missing else ""
            say(f"{len(done)} of {len(shards)} shards are done already{rest}")
        task = Task(str(Path(model).resolve()), str(Path.cwd()), job, tuple(sources), str(path.resolve()), device)
        failures += _do_shards(engine, task, missing, journal, done, stall, report)
        for failure in failures:
            say(f"shard {failure.shard} ({failure.source}) is in quarantine: {failure.problem}")
        seconds = time.monotonic() - started
        summary = summarize(job, done.values(), failures, engine=engine.name, workers=engine.workers, seconds=seconds)
        folder.remove_temporary(path)  # again: workers of a run that was killed may have outlived it for a moment
        with writing(path / folder.SUMMARY):
            write_json(path / folder.SUMMARY, summary)
    return summary


def _do_shards(
    engine: Engine,
    task: Task,
    shards: Sequence[Shard],
    journal: Journal,
    done: dict[str, ShardResult],
    stall: float,
    report: Callable[[Progress], None],
) -> list[ShardFailure]:
    """Have shards done and recorded, into `done`; returns those that could not be."""
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    failures: list[ShardFailure] = []
    rows = before = sum(result.rows for result in done.values())
    total, started = rows + sum(shard.rows for shard in shards), time.monotonic()
    with track("Explaining rows", total) as advance:
        advance(rows)
        try:
            if shards:
                engine.start(task, shards, outcomes.put)
            for _ in shards:
                outcome = outcomes.get(timeout=stall)
                if isinstance(outcome, ShardResult):
                    journal.add(outcome)
                    done[outcome.shard] = outcome
                    rows += outcome.rows
                    rate = (rows - before) / max(time.monotonic() - started, 1e-9)
                    report(Progress(rows, total, rate, len(failures)))
                    advance(outcome.rows, f"{rate:,.0f} rows/s")
                    continue
                if outcome.fatal:
                    raise BatchError(outcome.problem)
                failures.append(outcome)
                folder.write_quarantine(Path(task.out), outcome)
                others = sum(not failure.damaged for failure in failures)  # damaged rows say nothing about the rest
                if not done and (len(failures) == len(shards) or others >= _FAILURES_TO_GIVE_UP):
                    raise BatchError(outcome.problem)
        except Empty:
            raise BatchError(
                f"the job has stalled: its {engine.workers} {engine.name} workers finished no shard within {stall:g} "
                "seconds, and were ended. What is done is kept: run the same command again, with --stall if a shard "
                "takes longer than that, with fewer --workers or with --engine local"
            ) from None
        finally:
            engine.stop()
    return failures


def summarize(
    job: Job,
    results: Iterable[ShardResult],
    failures: Sequence[ShardFailure],
    *,
    engine: str,
    workers: int,
    seconds: float,
) -> dict[str, Any]:
    """The summary of a job that has ended.

    Args:
        job: The job.
        results: Of all shards that are done, in this run or before.
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
    ordered = sorted(results, key=lambda result: result.shard)
    status, binding = Counter[str](), Counter[str]()
    sums: dict[str, tuple[int, float, float]] = {}
    for result in ordered:
        status.update(result.status)
        binding.update(result.binding)
        for name, (count, total, squares) in result.measures.items():
            before = sums.get(name, (0, 0.0, 0.0))
            sums[name] = (before[0] + count, before[1] + total, before[2] + squares)
    texts = {UNUSABLE: UNUSABLE_TEXT, **{code.value: code.text for code in StatusCode}}
    found, searched = (
        sum(status[code.value] for code in StatusCode if getattr(code, kind)) for kind in ("found", "searched")
    )
    return {
        "rows": sum(result.rows for result in ordered),
        "found": found,
        "flip_ratio": _rounded(found / searched) if searched else None,
        "reasons": {name: {"rows": status[name], "text": texts[name]} for name in sorted(status)},
        "binding": dict(sorted(binding.items(), key=lambda one: (-one[1], one[0]))),
        "measures": {name: _moments(*values) for name, values in sums.items()},
        "seconds": round(seconds, 3),
        "busy_seconds": round(sum(result.seconds for result in ordered), 3),
        "shards": {"done": len(ordered), "quarantined": len(failures)},
        "quarantine": [{name: getattr(failure, name) for name in _IN_SUMMARY} for failure in failures],
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

"""Whole jobs, timed: many rows, the runs of the paper's table, fitting its models, and the same rows by others."""

import statistics
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from counterpath.bench import peers
from counterpath.bench.ours import our_runs, our_sweep
from counterpath.bench.timing import seconds_of
from counterpath.bench.workload import Workload
from counterpath.data.datasets import load
from counterpath.errors import CounterpathError, MissingExtraError
from counterpath.experiments.study import PRESETS, SETTINGS, Preset, assemble, encoded, fit_models
from counterpath.measures import MEASURES
from counterpath.methods import METHODS
from counterpath.models.training import Run
from counterpath.progress import track
from counterpath.search.objective import Objective
from counterpath.search.traverse import at_confidence, traverse

Rows = list[dict[str, Any]]


def sweeps(workload: Workload, counts: tuple[int, ...], steps: int, *, progress: bool | None = None) -> Rows:
    """All steps of RSGD for more and more rows, from host to host; the first one compiles what is to be compiled."""
    found: Rows = []
    with track("sweeps", len(counts), shown=progress) as advance:
        for count in counts:
            seconds = seconds_of(lambda count=count: our_sweep(workload, "rsgd", count, steps), workload.factual.device)  # type: ignore[misc]
            found.append({"rows": count, "steps": steps, "seconds": seconds, "rows_per_second": count / seconds})
            advance(note=f"{count:,} rows")
    return found


def runs(workload: Workload, steps: int, rounds: int, *, progress: bool | None = None) -> Rows:
    """The six runs of the paper's table, in turn: the first time, and the median of the times after it."""
    jobs, device = our_runs(workload, steps), workload.factual.device
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with track("runs of the table", len(jobs) * (rounds + 1), shown=progress) as advance:
        for _ in range(rounds + 1):
            for name, job in jobs.items():
                times[name].append(seconds_of(job, device))
                advance(note=name)
    found: Rows = [
        {"run": name, "seconds": statistics.median(each[1:]), "first_seconds": each[0]} for name, each in times.items()
    ]
    whole = {key: sum(row[key] for row in found) for key in ("seconds", "first_seconds")}
    return [dict(row, rows=len(workload.factual), steps=steps) for row in (*found, {"run": "all six"} | whole)]


def fits(seed: int, device: torch.device, size: Preset = PRESETS["paper"], *, progress: bool | None = None) -> Rows:
    """Classifier, VAE and uncertainty of the paper's experiments, fitted to every data set that is here."""
    found: Rows = []
    for name, settings in SETTINGS.items():
        try:
            data = load(name)
        except CounterpathError as error:
            found.append({"data": name, "rows": None, "seconds": None, "missing": str(error)})
            continue
        rows = encoded(data, device)
        seconds = seconds_of(
            lambda rows=rows, settings=settings: fit_models(rows, settings, size, Run(seed=seed, progress=progress)),  # type: ignore[misc]
            device,
        )
        found.append({"data": name, "rows": len(rows.train), "seconds": seconds, "missing": None})
    return found


def roundings(workload: Workload, steps: int, *, progress: bool | None = None) -> Rows:
    """What TF32 changes in the results: all rows of Adult to confidence 0.5, beside float32."""
    data = load("adult")
    study = assemble(data, encoded(data, workload.factual.device), workload.fitted)
    found: Rows = []
    for method in ("rsgd", "rsgd-c"):
        chosen = METHODS[method](workload.folded)
        search = partial(
            traverse,
            chosen.model,
            chosen.metric,
            Objective(workload.folded.classifier),
            study.factual,
            stop=at_confidence(0.5),
            steps=steps,
            damping=workload.damping,
            keep="end",
            progress=progress,
            name=method,
        )
        exact = search()
        for name, ends in (("float32", exact), ("TF32", search(tf32=True))):
            case = study.case(ends.end)
            valid = MEASURES["valid"](case) > 0
            found.append(
                {
                    "method": method,
                    "products": name,
                    "rows": len(ends.end),
                    "validity": float(valid.double().mean()),
                    **{key: float(MEASURES[key](case)[valid].double().mean()) for key in ("l1", "ld", "ld_sq")},
                    "mean_steps": float(ends.steps.double().mean()),
                    "same_steps": float((ends.steps == exact.steps).double().mean()),
                    "median_apart": float((ends.end - exact.end).norm(dim=-1).median()),
                }
            )
    return found


def beside_peers(workload: Workload, rows: int, limit: int, *, progress: bool | None = None) -> tuple[Rows, list[str]]:
    """Our methods, REVISE and DiCE on the same rows of Adult; and what is missing."""
    data = load("adult")
    study = assemble(data, encoded(data, workload.factual.device), workload.fitted)
    methods, missing = tuple(peers.PEERS), []
    limits = dict.fromkeys(peers.LIMITS, limit)
    try:
        found = peers.compare(study, methods=methods, rows=rows, limits=limits, progress=progress)
    except MissingExtraError as error:
        methods, missing = tuple(name for name in methods if not name.startswith("dice")), [str(error)]
        found = peers.compare(study, methods=methods, rows=rows, progress=progress)
    return [asdict(standing) for standing in found], missing

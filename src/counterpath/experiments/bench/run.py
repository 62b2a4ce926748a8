"""The benchmark as a whole: which parts it has, and what each of them measures."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from counterpath import __version__
from counterpath.data.datasets import load
from counterpath.experiments.bench import peers
from counterpath.experiments.bench.steps import (
    FLOOR,
    FULL,
    Effort,
    growth,
    memory_row,
    step_task,
    sweep_task,
    tasks_in,
    time_searches,
    time_steps,
    usable_ways,
)
from counterpath.experiments.bench.timing import machine, peak_memory, seconds_of
from counterpath.experiments.bench.variants import STEPPING, Step, our_runs, our_sweep
from counterpath.experiments.bench.workload import Sizes, Workload, adult_workload, random_workload
from counterpath.experiments.study import PRESETS, SETTINGS, Preset, assemble, encoded, fit_models
from counterpath.models.training import Run
from counterpath.search.measures import MEASURES
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective
from counterpath.search.traverse import at_confidence, traverse
from counterpath.utils.devices import tf32_products
from counterpath.utils.errors import CounterpathError, InputError, MissingExtraError, choose
from counterpath.utils.progress import track

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
        model, metric = geometry_of(method, workload.folded)
        search = partial(
            traverse,
            model,
            metric,
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


_MOST_SWEPT = {"cpu": 100_000, "cuda": 10_000_000}
"""More rows take minutes."""


@dataclass(frozen=True)
class Bench:
    """What to measure, and where.

    Attributes:
        device: Where to compute.
        rows: Rows that take a step together.
        seed: Of random models, of the fit, and of the order in which ways take turns.
        models: A folder with the checkpoints of `counterpath reproduce adult`; None times random models of its sizes,
            and fits some for the search.
        effort: How large the benchmark is.
        tf32: Let all ways round factors to TF32 on a GPU.
        progress: Show bars; by default where standard error is a terminal.
    """

    device: torch.device
    rows: int = 1024
    seed: int = 0
    models: Path | None = None
    effort: Effort = FULL
    tf32: bool = False
    progress: bool | None = None

    @property
    def sizes(self) -> Sizes:
        """Of the models and rows that are timed."""
        return replace(self.effort.sizes, rows=self.rows)

    @cached_property
    def adult(self) -> Workload:
        """Adult's rows and models, or random ones in their place."""
        if self.effort.adult or self.models is not None:
            return adult_workload(self.models, self.seed, self.device, progress=self.progress)
        return random_workload(self.sizes, self.seed, self.device)

    @cached_property
    def timed(self) -> Workload:
        """What single steps are timed on."""
        if self.models is not None:
            return self.adult.first(self.rows)
        return random_workload(self.sizes, self.seed, self.device)

    @cached_property
    def _usable(self) -> tuple[dict[str, Callable[[Workload, str], Step]], list[str]]:
        return usable_ways()

    @property
    def ways(self) -> dict[str, Callable[[Workload, str], Step]]:
        """The ways that can be timed here."""
        return self._usable[0]

    @property
    def missing(self) -> list[str]:
        """Why the others cannot."""
        return self._usable[1]


def steps(bench: Bench) -> Rows:
    """One step of every method, in every way."""
    rounds = bench.effort.rounds
    found: Rows = []
    with track("steps", len(STEPPING) * tasks_in(bench.ways, rounds), shown=bench.progress) as advance:
        for method in STEPPING:
            times = time_steps(bench.timed, method, ways=bench.ways, rounds=rounds, seed=bench.seed, advance=advance)
            found += times.rows()
    return found


def growing(bench: Bench) -> Rows:
    """One step of RSGD as one size grows."""
    rounds, points = bench.effort.growth_rounds, list(growth(bench.sizes, bench.device, bench.effort.growth))
    found: Rows = []
    with track("growth", len(points) * tasks_in(bench.ways, rounds), shown=bench.progress) as advance:
        for grows, sizes in points:
            workload = random_workload(sizes, bench.seed, bench.device)
            times = time_steps(workload, "rsgd", ways=bench.ways, rounds=rounds, seed=bench.seed, advance=advance)
            found += [{"grows": grows} | row for row in times.rows()]
    return found


def searches(bench: Bench) -> Rows:
    """All rows to a confidence of one half."""
    found: Rows = []
    workload, methods = bench.adult, ("rsgd", "rsgd-c")
    with track("searches", len(methods) * len({"ours", "paper"} & set(bench.ways)), shown=bench.progress) as advance:
        for method in methods:
            times = time_searches(
                workload,
                method,
                ways=bench.ways,
                steps=bench.effort.steps,
                block_size=bench.rows,
                advance=advance,
            )
            found += times.table()
    return found


def memory(bench: Bench) -> Rows:
    """The peak of one step in every way, and of our search as the rows grow."""
    device, threads, effort = str(bench.device), torch.get_num_threads(), bench.effort
    warm, found = replace(effort.memory_sizes, rows=128), []
    ways = [way for way in effort.memory_ways if way in (*bench.ways, FLOOR)]
    counts, models = _swept(bench), bench.sizes if bench.device.type == "cuda" else warm
    with track("memory", len(ways) + len(counts), shown=bench.progress) as advance:
        for way in ways:
            given = (way, "rsgd", bench.sizes, bench.seed, device)
            peak = peak_memory(step_task, bench.device, given, (way, "rsgd", warm, bench.seed, device), threads)
            found.append(memory_row("step", way, "rsgd", bench.rows, peak))
            advance(note=way)
        for count in counts:
            swept, first = (("rsgd", models, bench.seed, device, rows, 2) for rows in (count, 128))
            peak = peak_memory(sweep_task, bench.device, swept, first, threads)
            found.append(memory_row("sweep", "ours", "rsgd", count, peak))
            advance(note=f"{count:,} rows")
    return found


def sweeping(bench: Bench) -> Rows:
    """All steps for many rows, from host to host."""
    return sweeps(bench.adult, _swept(bench), bench.effort.sweep_steps, progress=bench.progress)


def table_runs(bench: Bench) -> Rows:
    """The six runs of the paper's table."""
    return runs(bench.adult, bench.effort.steps, rounds=3, progress=bench.progress)


def fitting(bench: Bench) -> Rows:
    """The training of the paper's models."""
    return fits(bench.seed, bench.device, bench.effort.fit, progress=bench.progress)


def peering(bench: Bench) -> Rows:
    """The same rows of Adult by others."""
    if bench.device.type != "cpu":
        raise InputError("the part 'peers' is measured on a CPU, where the others run: add --device cpu")
    workload = adult_workload(bench.models, bench.seed, bench.device, progress=bench.progress)
    effort = bench.effort
    found, missing = beside_peers(workload, effort.peer_rows, effort.slow_peer_rows, progress=bench.progress)
    bench.missing.extend(missing)
    return found


def rounding(bench: Bench) -> Rows:
    """What TF32 changes in the results."""
    workload = adult_workload(bench.models, bench.seed, bench.device, progress=bench.progress)
    return roundings(workload, bench.effort.steps, progress=bench.progress)


def _swept(bench: Bench) -> tuple[int, ...]:
    return tuple(rows for rows in bench.effort.swept if rows <= _MOST_SWEPT[bench.device.type])


PARTS: dict[str, Callable[[Bench], Rows]] = {
    "step": steps,
    "growth": growing,
    "search": searches,
    "runs": table_runs,
    "sweep": sweeping,
    "memory": memory,
    "tf32": rounding,
    "peers": peering,
    "fit": fitting,
}
"""What can be measured."""
USUAL = ("step", "growth", "search", "memory")
"""What takes a few minutes on a CPU."""


def measure(bench: Bench, what: Sequence[str] = USUAL) -> dict[str, Any]:
    """Run parts of the benchmark, one after the other; the result can be written as JSON."""
    parts = {name: choose("part of the benchmark", name, PARTS) for name in what}
    with tf32_products(bench.tf32):
        return _measured(bench, parts)


def _measured(bench: Bench, parts: dict[str, Callable[[Bench], Rows]]) -> dict[str, Any]:
    results: dict[str, Any] = {
        "machine": machine(bench.device),
        "settings": {
            "version": __version__,
            "rows": bench.rows,
            "seed": bench.seed,
            "models": _models(bench, False),
            "search_models": _models(bench, bench.effort.adult),
            "damping": bench.timed.damping,
            "sizes": asdict(bench.timed.sizes),
            "rounds": bench.effort.rounds,
            "growth_rounds": bench.effort.growth_rounds,
            "tf32": bench.tf32,
        },
        "not_measured": bench.missing,
    }
    return results | {name: part(bench) for name, part in parts.items()}


def _models(bench: Bench, adult: bool) -> str:
    if bench.models is not None:
        return "those of the paper's experiment on Adult"
    return "fitted to Adult by the quick preset" if adult else "random"

"""What `counterpath bench` measures: one function a part, each a list of rows that can be written as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from counterpath import __version__
from counterpath.data.datasets import load
from counterpath.experiments.bench import peers
from counterpath.experiments.bench.timing import Task, Timing, machine, peak_memory, seconds_of, side_by_side
from counterpath.experiments.bench.variants import (
    TIMED_METHODS,
    VARIANTS,
    BuildStep,
    Sizes,
    Workload,
    adult_workload,
    floors,
    our_runs,
    our_search,
    our_sweep,
    paper_search,
    random_workload,
)
from counterpath.experiments.tables import RIEMANNIAN
from counterpath.experiments.tabular import (
    EXPERIMENTS,
    PRESETS,
    SETTINGS,
    EncodedData,
    Preset,
    Study,
    assemble,
    fit_models,
)
from counterpath.models.training import Run
from counterpath.search.measures import MEASURES
from counterpath.search.traverse import at_confidence
from counterpath.utils.devices import tf32_products
from counterpath.utils.errors import CounterpathError, InputError, MissingExtraError, choose, require
from counterpath.utils.progress import Advance, track

Rows = list[dict[str, Any]]

FLOOR = "floor"
"""d + 1 plain forward passes of the decoder: less than any step can cost."""
GROWTH: dict[str, tuple[Any, ...]] = {
    "rows": (128, 512, 2048, 8192, 32768, 131072),
    "features": (13, 52, 208),
    "latent": (2, 5, 10, 20),
    "hidden": ((128, 64), (256, 128), (512, 256), (1024, 512)),
}
"""What grows, and through which sizes: a few doublings around the paper's models on Adult."""
CONFIDENCE = 0.5
"""Where a search ends: the decision has flipped, and what comes after depends on what users ask for."""
_CALLS = {"cpu": 5, "cuda": 10}
"""Steps in a row that make one time: a search launches a step on a GPU before the one before it is done."""
_MOST_GROWN_ROWS = {"cpu": 8192, "cuda": 131072}
"""More rows take a CPU seconds a step; on a GPU this is the size of its blocks."""
_MOST_SWEPT_ROWS = {"cpu": 100_000, "cuda": 10_000_000}
"""More rows take minutes."""
_WARM_ROWS = 128
"""Rows of the small task that comes before one whose memory is measured: one block of a search."""
_SWEPT_STEPS = 2
"""Steps of a sweep whose memory is measured: its peak does not grow with them, and the second reuses the first's."""
_RUN_ROUNDS = 3
"""How often the six runs are timed after the first time: the fewest with a median that one outlier does not move."""


@dataclass(frozen=True)
class BenchPreset:
    """How large the benchmark is; by default as for docs/performance.md: medians that repeat, in minutes.

    Attributes:
        sizes: Of the models that are timed, but for the rows.
        rounds: How often a step is timed.
        growth_rounds: How often it is for each size of the growth tables.
        growth: What grows, and through which sizes.
        steps: Of a search.
        swept: How many rows are searched in chunks, as far as suits the device.
        sweep_steps: Of how many steps.
        peer_rows: How many rows others get, too.
        slow_peer_rows: And how many of them slow ones get, which take minutes for one.
        fit: How long the models are trained whose fit is timed.
        memory_variants: The variants of a step whose memory is measured, each in a process of its own.
        adult: Whether searches are of Adult's rows with fitted models, even if they have to be fitted; otherwise of
            random ones.
    """

    sizes: Sizes = field(default_factory=Sizes)
    rounds: int = 20
    growth_rounds: int = 5
    growth: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: GROWTH)
    steps: int = 150
    swept: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    sweep_steps: int = 100
    peer_rows: int = 100
    slow_peer_rows: int = 2
    fit: Preset = PRESETS["paper"]
    memory_variants: tuple[str, ...] = (*VARIANTS, FLOOR)
    adult: bool = True


FULL = BenchPreset()
_SMALL = Sizes(hidden=(32, 16), centers=20, width=8)
"""Models that cost next to nothing, where rows are what counts or all is to be quick."""
QUICK = BenchPreset(
    sizes=_SMALL,
    rounds=2,
    growth_rounds=1,
    growth={"rows": (128, 512), "latent": (2, 5)},
    steps=5,
    swept=(1_000, 2_000),
    sweep_steps=2,
    peer_rows=2,
    slow_peer_rows=1,
    fit=Preset(1, 1, 1, 10, 10),
    memory_variants=("ours",),
    adult=False,
)
"""The least that runs every part: seconds, to see that all of it works here."""


@dataclass(frozen=True)
class Bench:
    """What to measure, and where.

    Attributes:
        device: Where to compute.
        rows: Rows that take a step together.
        seed: Of random models, of the fit, and of the order in which variants take turns.
        models: A folder with the checkpoints of `counterpath reproduce adult`; None times random models of its sizes,
            and fits some for the search.
        preset: How large the benchmark is.
        tf32: Let all variants round factors to TF32 on a GPU.
        progress: Show bars; by default where standard error is a terminal.
    """

    device: torch.device
    rows: int = 1024
    seed: int = 0
    models: Path | None = None
    preset: BenchPreset = FULL
    tf32: bool = False
    progress: bool | None = None

    @property
    def sizes(self) -> Sizes:
        """Of the models and rows that are timed."""
        return replace(self.preset.sizes, rows=self.rows)

    @cached_property
    def adult(self) -> Workload:
        """Adult's rows and models, or random ones in their place."""
        if self.preset.adult or self.models is not None:
            return self.fitted
        return random_workload(self.sizes, self.seed, self.device)

    @cached_property
    def fitted(self) -> Workload:
        """Adult's rows and models."""
        return adult_workload(self.models, self.seed, self.device, progress=self.progress)

    @property
    def study(self) -> Study:
        """The same beside the data that they were fitted to."""
        data = load("adult-carla")
        return assemble(data, EncodedData.of(data, self.device), self.fitted.fitted)

    @cached_property
    def timed(self) -> Workload:
        """What single steps are timed on."""
        if self.models is not None:
            return self.adult.with_rows(self.rows)
        return random_workload(self.sizes, self.seed, self.device)

    @property
    def swept(self) -> tuple[int, ...]:
        """How many rows are searched in chunks."""
        return tuple(rows for rows in self.preset.swept if rows <= _MOST_SWEPT_ROWS[self.device.type])

    @cached_property
    def not_measured(self) -> list[str]:
        """A sentence for each library that is missing; parts add theirs."""
        return _missing(*_STOCHMAN)

    @cached_property
    def variants(self) -> dict[str, BuildStep]:
        """The variants of a step whose libraries are installed."""
        without = {"paper"} if _missing(*_STOCHMAN) else set()
        return {name: build for name, build in VARIANTS.items() if name not in without}


_STOCHMAN = ("stochman", "the paper's implementation")


def _missing(module: str, purpose: str) -> list[str]:
    """A sentence that says which library is missing, or nothing."""
    try:
        require(module, "bench", purpose)
    except MissingExtraError as error:
        return [str(error)]
    return []


def measure_steps(bench: Bench) -> Rows:
    """One step of every method, by every variant."""
    rounds, rows = bench.preset.rounds, []
    with track("steps", len(TIMED_METHODS) * _advances(bench.variants, rounds), shown=bench.progress) as advance:
        for method in TIMED_METHODS:
            rows += time_steps(bench.timed, method, bench.variants, rounds, bench.seed, advance)
    return rows


def measure_growth(bench: Bench) -> Rows:
    """One step of RSGD as one size grows."""
    rounds, points = bench.preset.growth_rounds, list(growing(bench.sizes, bench.device, bench.preset.growth))
    rows: Rows = []
    with track("growth", len(points) * _advances(bench.variants, rounds), shown=bench.progress) as advance:
        for grows, sizes in points:
            workload = random_workload(sizes, bench.seed, bench.device)
            times = time_steps(workload, "rsgd", bench.variants, rounds, bench.seed, advance)
            rows += [{"grows": grows} | row for row in times]
    return rows


def growing(
    base: Sizes, device: torch.device, grid: Mapping[str, Sequence[Any]] = GROWTH
) -> Iterator[tuple[str, Sizes]]:
    """The sizes of the growth tables: one size grows, the others stay; rows as far as suits the device."""
    for grows, values in grid.items():
        for value in values:
            if grows != "rows" or value <= _MOST_GROWN_ROWS[device.type]:
                yield grows, replace(base, **{grows: value})


def time_steps(
    workload: Workload,
    method: str,
    variants: Mapping[str, BuildStep] = VARIANTS,
    rounds: int = 20,
    seed: int = 0,
    advance: Advance | None = None,
) -> Rows:
    """One step of all rows of a workload by every variant, and the floor; one row a variant, in seconds."""
    z, factual, sizes, device = workload.codes, workload.factual, workload.sizes, workload.factual.device
    steps: dict[str, Task] = {name: partial(build(workload, method), z, factual) for name, build in variants.items()}
    passes = floors(workload)
    times = side_by_side(steps | passes, device, rounds=rounds, calls=_CALLS[device.type], seed=seed, advance=advance)
    floor = min((times[name] for name in passes), key=lambda timing: timing.median)
    times = {name: times[name] for name in steps} | {FLOOR: floor}
    return [
        {
            **_timing_row(method, name, times, sizes.rows),
            **asdict(sizes),
            "quartiles": list(timing.quartiles),
            "flop_per_second": sizes.rows * decoder_flop(sizes) / timing.median,
            "times_floor": timing.median / floor.median,
        }
        for name, timing in times.items()
    ]


def _timing_row(method: str, variant: str, times: Mapping[str, Timing], rows: int) -> dict[str, Any]:
    """What is said of every time, in seconds."""
    seconds = times[variant].median
    return {
        "method": method,
        "variant": variant,
        "rows": rows,
        "seconds": seconds,
        "first_seconds": times[variant].first,
        "seconds_per_row": seconds / rows,
        "rows_per_second": rows / seconds,
        "paper_over_this": times["paper"].median / seconds if "paper" in times else None,
    }


def _advances(variants: Mapping[str, Any], rounds: int) -> int:
    """By how much one `time_steps` moves a progress bar on."""
    return (len(variants) + 2) * (rounds + 1)


def decoder_flop(sizes: Sizes) -> int:
    """Floating-point operations of d + 1 passes of a row through the decoder's matrices."""
    widths = (sizes.latent, *reversed(sizes.hidden), sizes.features)
    return 2 * (sizes.latent + 1) * sum(before * after for before, after in pairwise(widths))


def measure_searches(bench: Bench) -> Rows:
    """All rows to a confidence of one half; the paper's implementation through all steps."""
    rows: Rows = []
    variants = [name for name in ("ours", "paper") if name in bench.variants]
    with track("searches", len(RIEMANNIAN) * len(variants), shown=bench.progress) as advance:
        for method in RIEMANNIAN:
            rows += time_searches(bench.adult, method, variants, bench.preset.steps, bench.rows, advance)
    return rows


def time_searches(
    workload: Workload,
    method: str,
    variants: Sequence[str] = ("ours", "paper"),
    steps: int = 150,
    block_size: int = 1024,
    advance: Advance | None = None,
) -> Rows:
    """One search of all rows of a workload by each variant, its compilation included: a search is run once.

    Args:
        workload: The rows and models.
        method: One of `TIMED_METHODS`.
        variants: "ours", which stops each row at the confidence, and perhaps "paper", which takes all steps.
        steps: The most steps.
        block_size: Rows that take a step together in the paper's implementation.
        advance: Moves a progress bar on.
    """
    ours = []
    tasks: dict[str, Task] = {
        "ours": lambda: ours.append(our_search(workload, method, stop=at_confidence(CONFIDENCE), steps=steps)),
        "paper": partial(paper_search, workload, method, steps=steps, block_size=block_size),
    }
    device, count = workload.factual.device, len(workload.factual)
    times = side_by_side({name: tasks[name] for name in variants}, device, rounds=0, advance=advance)
    reached = float((ours[0].probability[-1] >= CONFIDENCE).double().mean())
    mean_steps = float(ours[0].steps.double().mean())
    return [
        {
            **_timing_row(method, name, times, count),
            "steps": steps,
            "block_size": block_size,
            "reached": reached if name == "ours" else None,
            "mean_steps": mean_steps if name == "ours" else float(steps),
        }
        for name in times
    ]


def measure_runs(bench: Bench) -> Rows:
    """The six runs of the paper's table, in turn: the first time, and the median of the times after it."""
    workload, steps = bench.adult, bench.preset.steps
    runs = our_runs(workload, steps)
    with track("runs of the table", len(runs) * (_RUN_ROUNDS + 1), shown=bench.progress) as advance:
        times = side_by_side(runs, bench.device, rounds=_RUN_ROUNDS, warmup=0, seed=bench.seed, advance=advance)
    rows: Rows = [{"run": name, "seconds": each.median, "first_seconds": each.first} for name, each in times.items()]
    rows.append({"run": "all six"} | {key: sum(row[key] for row in rows) for key in ("seconds", "first_seconds")})
    return [row | {"rows": len(workload.factual), "steps": steps} for row in rows]


def measure_sweeps(bench: Bench) -> Rows:
    """All steps of RSGD for more and more rows, from host to host; the first one compiles what is to be compiled."""
    rows: Rows = []
    workload, steps = bench.adult, bench.preset.sweep_steps
    with track("sweeps", len(bench.swept), shown=bench.progress) as advance:
        for count in bench.swept:
            seconds = seconds_of(partial(our_sweep, workload, "rsgd", count, steps), bench.device)
            rows.append({"rows": count, "steps": steps, "seconds": seconds, "rows_per_second": count / seconds})
            advance(note=f"{count:,} rows")
    return rows


def measure_memory(bench: Bench) -> Rows:
    """The peak of one step by every variant, and of our search as the rows grow."""
    device, small = str(bench.device), replace(_SMALL, rows=_WARM_ROWS)
    # A sweep on a CPU has small models, because rows are what counts.
    models = bench.sizes if bench.device.type == "cuda" else small
    variants = [name for name in bench.preset.memory_variants if name in (*bench.variants, FLOOR)]
    rows: Rows = []

    def measure_peak(what: str, variant: str, count: int, build: partial[Task], warmup: partial[Task]) -> None:
        size, how = peak_memory(build, warmup, bench.device, torch.get_num_threads())
        row = {"what": what, "method": "rsgd", "variant": variant, "rows": count}
        rows.append(row | {"peak_bytes": size, "bytes_per_row": size / count, "measured": how})
        advance(note=f"{variant}, {count:,} rows")

    with track("memory", len(variants) + len(bench.swept), shown=bench.progress) as advance:
        for name in variants:
            tasks = (partial(step_task, name, "rsgd", sizes, bench.seed, device) for sizes in (bench.sizes, small))
            measure_peak("step", name, bench.rows, *tasks)
        for count in bench.swept:
            sweep = partial(sweep_task, "rsgd", models, bench.seed, device, _SWEPT_STEPS)
            measure_peak("sweep", "ours", count, partial(sweep, count), partial(sweep, _WARM_ROWS))
    return rows


def step_task(variant: str, method: str, sizes: Sizes, seed: int, device: str) -> Task:
    """One step, ready to run: for `peak_memory`."""
    workload = random_workload(sizes, seed, torch.device(device))
    z, factual = workload.codes, workload.factual
    if variant == FLOOR:
        return floors(workload)["one batch"]
    return partial(VARIANTS[variant](workload, method), z, factual)


def sweep_task(method: str, sizes: Sizes, seed: int, device: str, steps: int, rows: int) -> Task:
    """A search of many rows of which only the ends are kept, ready to run: for `peak_memory`."""
    return partial(our_sweep, random_workload(sizes, seed, torch.device(device)), method, rows, steps)


def measure_tf32(bench: Bench) -> Rows:
    """What TF32 changes in the results: all rows of Adult to confidence 0.5, beside float32."""
    study, rows = bench.study, []
    for method in RIEMANNIAN:
        options = {"stop": at_confidence(CONFIDENCE), "steps": bench.preset.steps, "keep": "end", "name": method}
        exact, rounded = (
            our_search(bench.fitted, method, tf32=tf32, progress=bench.progress, **options) for tf32 in (False, True)
        )
        for products, ends in (("float32", exact), ("TF32", rounded)):
            case = study.case(ends.end)
            valid = MEASURES["valid"](case) > 0
            rows.append(
                {
                    "method": method,
                    "products": products,
                    "rows": len(ends.end),
                    "validity": float(valid.double().mean()),
                    **{key: float(MEASURES[key](case)[valid].double().mean()) for key in peers.DISTANCES},
                    "mean_steps": float(ends.steps.double().mean()),
                    "same_steps": float((ends.steps == exact.steps).double().mean()),
                    "median_apart": float((ends.end - exact.end).norm(dim=-1).median()),
                }
            )
    return rows


def measure_peers(bench: Bench) -> Rows:
    """Our methods, REVISE and DiCE on the same rows of Adult."""
    if bench.device.type != "cpu":
        raise InputError("the part 'peers' is measured on a CPU, where the others run: add --device cpu")
    methods = tuple(peers.PEERS)
    if missing := _missing("dice_ml", "a comparison with DiCE"):
        methods = tuple(name for name in methods if not name.startswith("dice"))
        bench.not_measured.extend(missing)
    limits = dict.fromkeys(peers.LIMITS, bench.preset.slow_peer_rows)
    rows = bench.preset.peer_rows
    return peers.compare(bench.study, methods=methods, rows=rows, limits=limits, progress=bench.progress)


def measure_fits(bench: Bench) -> Rows:
    """The training of classifier, VAE and uncertainty of the paper's experiments on every data set that is here."""
    rows: Rows = []
    for name, table in EXPERIMENTS.items():
        try:
            data = EncodedData.of(load(table), bench.device)
        except CounterpathError as error:
            rows.append({"data": name, "rows": None, "seconds": None, "missing": str(error)})
            continue
        run = Run(seed=bench.seed, progress=bench.progress)
        seconds = seconds_of(partial(fit_models, data, SETTINGS[table], bench.preset.fit, run), bench.device)
        rows.append({"data": name, "rows": len(data.train), "seconds": seconds, "missing": None})
    return rows


PARTS: dict[str, Callable[[Bench], Rows]] = {
    "step": measure_steps,
    "growth": measure_growth,
    "search": measure_searches,
    "runs": measure_runs,
    "sweep": measure_sweeps,
    "memory": measure_memory,
    "tf32": measure_tf32,
    "peers": measure_peers,
    "fit": measure_fits,
}
"""What can be measured."""
USUAL = ("step", "growth", "search", "memory")
"""What takes a few minutes on a CPU."""


def measure(bench: Bench, what: Sequence[str] = USUAL) -> dict[str, Any]:
    """Run parts of the benchmark, one after the other; the result can be written as JSON."""
    parts = {name: choose("part of the benchmark", name, PARTS) for name in what}
    with tf32_products(bench.tf32):
        results: dict[str, Any] = {
            "machine": machine(bench.device),
            "settings": {
                "version": __version__,
                "rows": bench.rows,
                "seed": bench.seed,
                "models": _origin(bench, fitted=False),
                "search_models": _origin(bench, fitted=bench.preset.adult),
                "damping": bench.timed.damping,
                "sizes": asdict(bench.timed.sizes),
                "rounds": bench.preset.rounds,
                "growth_rounds": bench.preset.growth_rounds,
                "tf32": bench.tf32,
            },
            "not_measured": bench.not_measured,
        }
        return results | {name: part(bench) for name, part in parts.items()}


def _origin(bench: Bench, *, fitted: bool) -> str:
    """Where models are from."""
    if bench.models is not None:
        return "those of the paper's experiment on Adult"
    return "fitted to Adult by the quick preset" if fitted else "random"

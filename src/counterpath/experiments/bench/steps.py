"""One step, a whole search, and the memory of both: ours beside the other ways, on the same work."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from counterpath.experiments.bench.timing import Peak, Task, Timing, side_by_side
from counterpath.experiments.bench.variants import (
    Step,
    eager_step,
    floors,
    our_search,
    our_step,
    our_sweep,
    paper_search,
    paper_step,
)
from counterpath.experiments.bench.workload import Sizes, Workload, random_workload
from counterpath.experiments.study import PRESETS, Preset
from counterpath.utils.errors import MissingExtraError, require
from counterpath.utils.progress import Advance

WAYS: dict[str, Callable[[Workload, str], Step]] = {"ours": our_step, "paper": paper_step, "eager": eager_step}
"""How a step can be taken: ours, the paper's way with stochman, and by eager `torch.func`."""
FLOOR = "floor"
"""d + 1 plain forward passes of the decoder: less than any step can cost."""

_CALLS = {"cpu": 5, "cuda": 10}
_MOST_ROWS = {"cpu": 8192, "cuda": 131072}

GROWTH: dict[str, tuple[Any, ...]] = {
    "rows": (128, 512, 2048, 8192, 32768, 131072),
    "features": (13, 52, 208),
    "latent": (2, 5, 10, 20),
    "hidden": ((128, 64), (256, 128), (512, 256), (1024, 512)),
}
"""What grows, and through which sizes."""


@dataclass(frozen=True)
class StepTimes:
    """One step of a method in several ways.

    Attributes:
        method: `rsgd`, `rsgd-c` or `sgd`.
        sizes: Of rows and models.
        timings: By way, and of the floor.
    """

    method: str
    sizes: Sizes
    timings: Mapping[str, Timing]

    def rows(self) -> list[dict[str, Any]]:
        """One row a way, in seconds."""
        return [
            {
                "method": self.method,
                "way": way,
                **asdict(self.sizes),
                "seconds": timing.median,
                "quartiles": list(timing.quartiles),
                "first_seconds": timing.first,
                "seconds_per_row": timing.median / self.sizes.rows,
                "rows_per_second": self.sizes.rows / timing.median,
                "flop_per_second": self.sizes.rows * decoder_flop(self.sizes) / timing.median,
                "times_floor": timing.median / self.timings[FLOOR].median,
                "paper_over_this": _ratio(self.timings.get("paper"), timing),
            }
            for way, timing in self.timings.items()
        ]


@dataclass(frozen=True)
class SearchTimes:
    """A whole search by a method: ours to a confidence, the paper's way through all steps.

    Attributes:
        method: `rsgd`, `rsgd-c` or `sgd`.
        rows: How many rows were searched.
        steps: The most steps.
        block_size: Rows that take a step together in the paper's way.
        reached: The share of the rows that ours took to the confidence.
        mean_steps: How many steps a row took in ours.
        timings: By way. The first call is timed, with whatever it compiles: a search is run once.
    """

    method: str
    rows: int
    steps: int
    block_size: int
    reached: float
    mean_steps: float
    timings: Mapping[str, Timing]

    def table(self) -> list[dict[str, Any]]:
        """One row a way, in seconds."""
        return [
            {
                "method": self.method,
                "way": way,
                "rows": self.rows,
                "steps": self.steps,
                "block_size": self.block_size,
                "reached": self.reached if way == "ours" else None,
                "mean_steps": self.mean_steps if way == "ours" else float(self.steps),
                "seconds": timing.median,
                "first_seconds": timing.first,
                "seconds_per_row": timing.median / self.rows,
                "rows_per_second": self.rows / timing.median,
                "paper_over_this": _ratio(self.timings.get("paper"), timing),
            }
            for way, timing in self.timings.items()
        ]


def decoder_flop(sizes: Sizes) -> int:
    """Floating-point operations of d + 1 passes of a row through the decoder's matrices."""
    widths = (sizes.latent, *reversed(sizes.hidden), sizes.features)
    return 2 * (sizes.latent + 1) * sum(before * after for before, after in pairwise(widths))


def usable_ways() -> tuple[dict[str, Callable[[Workload, str], Step]], list[str]]:
    """The ways whose libraries are installed, and a sentence for each that is not."""
    try:
        require("stochman", "bench", "the paper's way")
    except MissingExtraError as error:
        return {way: build for way, build in WAYS.items() if way != "paper"}, [str(error)]
    return dict(WAYS), []


def time_steps(
    workload: Workload,
    method: str,
    *,
    ways: Mapping[str, Callable[[Workload, str], Step]] = WAYS,
    rounds: int = 20,
    seed: int = 0,
    advance: Advance | None = None,
) -> StepTimes:
    """Time one step of all rows of a workload in every way, and the floor."""
    z, factual = workload.codes, workload.factual
    tasks: dict[str, Task] = {way: partial(build(workload, method), z, factual) for way, build in ways.items()}
    lowest = floors(workload)
    device = factual.device
    timings = side_by_side(tasks | lowest, device, rounds=rounds, calls=_CALLS[device.type], seed=seed, advance=advance)
    floor = min((timings[name] for name in lowest), key=lambda timing: timing.median)
    return StepTimes(method, workload.sizes, {way: timings[way] for way in tasks} | {FLOOR: floor})


def tasks_in(ways: Mapping[str, Any], rounds: int) -> int:
    """By how much one `time_steps` moves a progress bar on."""
    return (len(ways) + 2) * (rounds + 1)


def growth(
    base: Sizes, device: torch.device, grid: Mapping[str, Sequence[Any]] = GROWTH
) -> Iterator[tuple[str, Sizes]]:
    """The sizes of the growth tables: one size grows, the others stay; rows as far as suits the device."""
    for grows, values in grid.items():
        for value in values:
            if grows != "rows" or value <= _MOST_ROWS[device.type]:
                yield grows, replace(base, **{grows: value})


def time_searches(
    workload: Workload,
    method: str,
    *,
    ways: Mapping[str, Any] = WAYS,
    steps: int = 150,
    block_size: int = 1024,
    confidence: float = 0.5,
    advance: Advance | None = None,
) -> SearchTimes:
    """Search all rows of a workload once in our way and, where stochman is there, once in the paper's."""
    found = []
    tasks: dict[str, Task] = {
        "ours": lambda: found.append(our_search(workload, method, steps=steps, confidence=confidence))
    }
    if "paper" in ways:
        tasks["paper"] = partial(paper_search, workload, method, steps=steps, block_size=block_size)
    timings = side_by_side(tasks, workload.factual.device, rounds=0, advance=advance)
    reached = float((found[0].probability[-1] >= confidence).double().mean())
    mean_steps = float(found[0].steps.double().mean())
    return SearchTimes(method, len(workload.factual), steps, block_size, reached, mean_steps, timings)


def step_task(way: str, method: str, sizes: Sizes, seed: int, device: str) -> Task:
    """One step, ready to run: for `peak_memory`."""
    workload = random_workload(sizes, seed, torch.device(device))
    z, factual = workload.codes, workload.factual
    if way == FLOOR:
        return floors(workload)["one batch"]
    return partial(WAYS[way](workload, method), z, factual)


def sweep_task(method: str, sizes: Sizes, seed: int, device: str, rows: int, steps: int) -> Task:
    """A search of many rows of which only the ends are kept, ready to run: for `peak_memory`."""
    workload = random_workload(sizes, seed, torch.device(device))
    return lambda: our_sweep(workload, method, rows, steps)


def memory_row(what: str, way: str, method: str, rows: int, peak: Peak) -> dict[str, Any]:
    """A row of the memory table, in bytes."""
    return {
        "what": what,
        "method": method,
        "way": way,
        "rows": rows,
        "peak_bytes": peak.size,
        "bytes_per_row": peak.size / rows,
        "measured": peak.how,
    }


def _ratio(slow: Timing | None, fast: Timing) -> float | None:
    return None if slow is None else slow.median / fast.median


@dataclass(frozen=True)
class Effort:
    """How large the benchmark is.

    Attributes:
        sizes: Of the models that are timed, but for the rows.
        rounds: How often a step is timed.
        growth_rounds: How often it is for each size of the growth tables.
        growth: What grows, and through which sizes.
        steps: Of a search.
        swept: How many rows are searched in chunks, as far as suits the device.
        sweep_steps: Of how many steps.
        peer_rows: How many rows others get, too.
        slow_peer_rows: And how many of them those who take minutes for one.
        fit: How long the models are trained whose fit is timed.
        memory_sizes: Of the models in sweeps whose memory is measured on a CPU; small ones, because rows are what
            counts.
        memory_ways: The ways to take a step whose memory is measured, each in a process of its own.
        adult: Whether searches are of Adult's rows with fitted models, even if they have to be fitted; otherwise of
            random ones.
    """

    sizes: Sizes
    rounds: int
    growth_rounds: int
    growth: dict[str, tuple[Any, ...]]
    steps: int
    swept: tuple[int, ...]
    sweep_steps: int
    peer_rows: int
    slow_peer_rows: int
    fit: Preset
    memory_sizes: Sizes
    memory_ways: tuple[str, ...]
    adult: bool


_SMALL = Sizes(hidden=(32, 16), centers=20, width=8)
FULL = Effort(
    sizes=Sizes(),
    rounds=20,
    growth_rounds=5,
    growth=GROWTH,
    steps=150,
    swept=(10_000, 100_000, 1_000_000, 10_000_000),
    sweep_steps=100,
    peer_rows=100,
    slow_peer_rows=2,
    fit=PRESETS["paper"],
    memory_sizes=_SMALL,
    memory_ways=(*WAYS, FLOOR),
    adult=True,
)
QUICK = Effort(
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
    memory_sizes=_SMALL,
    memory_ways=("ours",),
    adult=False,
)

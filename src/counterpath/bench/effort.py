"""How large the benchmark is."""

from dataclasses import dataclass
from typing import Any

from counterpath.bench.steps import FLOOR, GROWTH, WAYS
from counterpath.bench.workload import Sizes
from counterpath.experiments.study import PRESETS, Preset


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

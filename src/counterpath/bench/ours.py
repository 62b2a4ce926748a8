"""Counterpath's own step and search, as they are timed."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from counterpath.bench.workload import Workload
from counterpath.blocks import rows_for
from counterpath.devices import keep_freed_memory
from counterpath.errors import choose
from counterpath.methods import METHODS, Method
from counterpath.replay import Replayed
from counterpath.search.objective import Objective
from counterpath.search.step import euclidean_length, slope
from counterpath.search.sweep import CHUNK, sweep
from counterpath.search.traverse import Trajectory, at_confidence, traverse

Step = Callable[[Tensor, Tensor], Tensor]
"""Maps codes `(n, d)` and their factual rows `(n, D)` to the codes after one step."""

STEPPING = ("rsgd", "rsgd-c", "sgd")
"""The methods whose steps are timed."""
STEP_SIZE = 0.1
FIDELITY = 0.1


def our_step(workload: Workload, method: str) -> Step:
    """One whole step: decode, evaluate, metric, solve, move; in blocks, and on a GPU replayed, as the search has it."""
    chosen, objective = _method(workload, method), Objective(workload.folded.classifier)

    def move(z: Tensor, factual: Tensor) -> Tensor:
        with torch.no_grad():
            here = slope(chosen.model, chosen.metric, objective, z, factual, None, workload.damping)
            return z - STEP_SIZE * euclidean_length(here.direction, here.gradient).to(z.dtype)

    keep_freed_memory()
    return _replaying(move) if workload.factual.is_cuda else _in_blocks(move)


def _in_blocks(move: Step) -> Step:
    def step(z: Tensor, factual: Tensor) -> Tensor:
        size = rows_for(z.device, many=True)
        return torch.cat([move(*part) for part in zip(z.split(size), factual.split(size), strict=True)])

    return step


def _replaying(move: Step) -> Step:
    """The same step of tensors that stay where they are, recorded when it is first taken."""
    held: list[tuple[Tensor, Tensor, Replayed[Tensor]]] = []

    def step(z: Tensor, factual: Tensor) -> Tensor:
        if not held or held[0][0].shape != z.shape:
            own = z.clone(), factual.clone()
            held[:] = [(*own, Replayed(lambda: move(*own), z.device))]
        held_z, held_factual, again = held[0]
        held_z.copy_(z)
        held_factual.copy_(factual)
        again()
        return again.result

    return step


def our_search(workload: Workload, method: str, *, steps: int, confidence: float = 0.5) -> Trajectory:
    """The search of all rows, each of which stops where it reaches the confidence."""
    chosen = _method(workload, method)
    return traverse(
        chosen.model,
        chosen.metric,
        Objective(workload.folded.classifier),
        workload.factual,
        stop=at_confidence(confidence),
        steps=steps,
        step_size=STEP_SIZE,
        damping=workload.damping,
    )


def our_sweep(workload: Workload, method: str, rows: int, steps: int) -> int:
    """All steps for many rows, those of the workload again and again: made on the host, and the ends brought back.

    Returns:
        How many rows came back.
    """
    chosen = _method(workload, method)
    ends = sweep(
        chosen.model,
        chosen.metric,
        Objective(workload.folded.classifier),
        _chunks(workload.factual.cpu(), rows, CHUNK[workload.factual.device.type]),
        device=workload.factual.device,
        steps=steps,
        step_size=STEP_SIZE,
        damping=workload.damping,
    )
    return sum(len(found.end) for found in ends)


def our_runs(workload: Workload, steps: int) -> dict[str, Callable[[], Trajectory]]:
    """The runs of the paper's table, by name: every optimiser without and with the fidelity term, all paths kept."""
    runs: dict[str, Callable[[], Trajectory]] = {}
    for method in ("sgd", "rsgd", "rsgd-c"):
        for fidelity in (0.0, FIDELITY):
            chosen, objective = _method(workload, method), Objective(workload.folded.classifier, fidelity=fidelity)
            runs[f"{method}{' with fidelity' if fidelity else ''}"] = partial(
                traverse,
                chosen.model,
                chosen.metric,
                objective,
                workload.factual,
                steps=steps,
                step_size=STEP_SIZE,
                damping=workload.damping,
            )
    return runs


def _chunks(rows: Tensor, count: int, size: int) -> Iterator[Tensor]:
    for begin in range(0, count, size):
        yield rows[torch.arange(begin, min(begin + size, count)) % len(rows)]


def _method(workload: Workload, method: str) -> Method:
    return choose("method to time", method, {name: METHODS[name] for name in STEPPING})(workload.folded)

"""The only search loop: walk downhill from every factual until its stop rule says so."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.blocks import map_blocks, rows_for
from counterpath.errors import InputError
from counterpath.geometry.metric import DAMPING, Metric
from counterpath.models.latent import LatentModel
from counterpath.progress import track
from counterpath.search.constraint import Terms
from counterpath.search.objective import Objective
from counterpath.search.step import Slope, StepRule, euclidean_length, slope

StopRule = Callable[[Slope], Tensor]
"""Says for which rows to stop, given what is known where they are."""


class StopReason(IntEnum):
    """Why the search of a row ended; `text` says it in a sentence."""

    CONFIDENCE_REACHED = 0
    ALL_STEPS_TAKEN = 1
    NO_WAY_DOWN = 2
    NOT_FINITE = 3
    OUT_OF_TIME = 4

    @property
    def text(self) -> str:
        """What happened, and what to try where that was not wanted."""
        return _TEXTS[self]


_TEXTS = {
    StopReason.CONFIDENCE_REACHED: "The asked confidence was reached.",
    StopReason.ALL_STEPS_TAKEN: "All steps were taken; for a higher confidence allow more steps.",
    StopReason.NO_WAY_DOWN: "The gradient vanished: the objective is flat here. Try another start or method.",
    StopReason.NOT_FINITE: "The metric or the loss stopped being a number; the path ends there. Raise the damping.",
    StopReason.OUT_OF_TIME: "The time was up before the asked confidence was reached; allow more of it.",
}


@dataclass(frozen=True)
class Trajectory:
    """The paths of n rows over at most T steps.

    Entry t of every tensor is the state after t steps. A row that stopped earlier stays where it stopped.

    Attributes:
        z: Latent points.
        x: Decoded rows.
        probability: Of the wanted outcome.
        loss: The objective.
        sigma: The decoder's uncertainty, averaged over the features (0 for models that have none).
        length: Euclidean length in X of the path so far.
        steps: How many steps each row took.
        reason: A `StopReason` for each row.
    """

    z: Float[Tensor, "t n d"]
    x: Float[Tensor, "t n D"]
    probability: Float[Tensor, "t n"]
    loss: Float[Tensor, "t n"]
    sigma: Float[Tensor, "t n"]
    length: Float[Tensor, "t n"]
    steps: Int[Tensor, "n"]
    reason: Int[Tensor, "n"]

    @property
    def end(self) -> Float[Tensor, "n D"]:
        """The last decoded row of every path."""
        return self.x[-1]

    def reasons(self) -> list[StopReason]:
        """Why each row stopped."""
        return [StopReason(code) for code in self.reason.tolist()]


def never(here: Slope) -> Tensor:
    """Stop rule of the paper's tables: take all steps."""
    return torch.zeros_like(here.valid)


def at_confidence(confidence: float) -> StopRule:
    """Stop at the first point whose probability of the wanted outcome is at least `confidence`."""
    if not 0 < confidence < 1:
        raise InputError(f"a confidence lies between 0 and 1; given {confidence!r}, try 0.5")
    return lambda here: here.probability >= confidence


def traverse(
    model: LatentModel,
    metric: Metric,
    objective: Objective,
    factual: Float[Tensor, "n D"],
    *,
    context: Float[Tensor, "n c"] | None = None,
    terms: Terms | None = None,
    stop: StopRule = never,
    steps: int = 150,
    step_size: float = 0.1,
    step_rule: StepRule = euclidean_length,
    damping: float = DAMPING,
    block_size: int | None = None,
    deadline: float = math.inf,
    progress: bool | None = False,
    name: str = "search",
) -> Trajectory:
    """Walk z ← z − η·step(M⁻¹∇f) from the code of every factual.

    All rows share one block of `block_size` slots whose shape never changes. A slot whose row has finished takes the
    next waiting row, and slots without a row repeat the first one, unrecorded. So the result of a row does not depend
    on the other rows: any order and any split gives the same bits on one device.

    Args:
        model: The space to walk in.
        metric: The geometry of that space.
        objective: What to minimise.
        factual: The rows to start from.
        context: What the model is conditioned on, one row a factual.
        terms: What the walks have to respect.
        stop: When a row is done before all steps are taken.
        steps: The most steps.
        step_size: η.
        step_rule: How a direction becomes a step of unit size.
        damping: Added to the metric's diagonal.
        block_size: Slots in the block; by default what suits the device.
        deadline: When to give up what is not finished, by the clock `time.monotonic`. A row that was not even begun
            has its factual for a path.
        progress: Show a bar; None shows it where standard error is a terminal.
        name: For the bar.
    """
    _insist(factual, steps, step_size, damping)
    count = len(factual)
    block_size = block_size or rows_for(factual.device)
    with torch.no_grad():
        start = map_blocks(model.encode, factual, context, block_size=block_size)
        record = _Record.empty(steps, start, factual)
        if count == 0:
            return record.trajectory()
        first = torch.zeros(1, dtype=torch.long, device=start.device)
        waiting = torch.cat([torch.arange(count, device=start.device), first.expand(block_size)])
        row, taken = waiting[:block_size].clone(), torch.zeros_like(waiting[:block_size])
        real = torch.arange(block_size, device=start.device) < count
        z, following = start[row], block_size
        with track(name, count, shown=progress) as advance:
            while bool(real.any()):
                if time.monotonic() > deadline:
                    record.give_up(row[real], taken[real], waiting[following:count], start, factual)
                    break
                its_terms = None if terms is None else terms.at(row)
                here = slope(model, metric, objective, z, factual[row], _pick(context, row), damping, its_terms)
                step = step_rule(here.direction, here.gradient).to(z.dtype)
                reason = _reason(here, step, stop, taken, steps)
                record.write(row, taken, real, z, here)
                done = (reason >= 0) & real
                record.finish(row[done], taken[done], reason[done])
                z, taken = z - step_size * step, taken + 1
                finished = int(done.sum())
                if finished:
                    slots = done.nonzero()[:, 0]
                    fresh = torch.arange(following, following + finished, device=start.device)
                    row[slots] = waiting[fresh.clamp_max(len(waiting) - 1)]
                    real[slots] = fresh < count
                    taken[slots] = 0
                    z[slots] = start[row[slots]]
                    following += finished
                    advance(finished)
    return record.trajectory()


def _reason(here: Slope, step: Tensor, stop: StopRule, taken: Tensor, steps: int) -> Tensor:
    """The stop reason of every slot, or −1 for those that walk on."""
    reason = torch.full_like(taken, -1)
    reason[taken >= steps] = StopReason.ALL_STEPS_TAKEN
    reason[(step == 0).all(-1)] = StopReason.NO_WAY_DOWN
    reason[stop(here)] = StopReason.CONFIDENCE_REACHED
    reason[~here.valid] = StopReason.NOT_FINITE
    return reason


@dataclass(frozen=True)
class _Record:
    """Buffers that slots write their rows into; one more row takes what empty slots write."""

    z: Tensor
    x: Tensor
    probability: Tensor
    loss: Tensor
    sigma: Tensor
    steps: Tensor
    reason: Tensor

    @classmethod
    def empty(cls, steps: int, start: Tensor, factual: Tensor) -> "_Record":
        shape = (steps + 1, len(factual) + 1)
        whole = torch.zeros(len(factual) + 1, dtype=torch.long, device=start.device)
        return cls(
            z=start.new_zeros(*shape, start.shape[-1]),
            x=factual.new_zeros(*shape, factual.shape[-1]),
            probability=factual.new_zeros(shape),
            loss=factual.new_zeros(shape),
            sigma=factual.new_zeros(shape),
            steps=whole,
            reason=whole.clone(),
        )

    def write(self, row: Tensor, taken: Tensor, real: Tensor, z: Tensor, here: Slope) -> None:
        row = torch.where(real, row, self.steps.shape[0] - 1)
        taken = torch.where(real, taken, 0)
        # A point that is not finite is not part of the path: the point before it stays the last one.
        keep = torch.where(here.valid | (taken == 0), row, self.steps.shape[0] - 1)
        for buffer, value in (
            (self.z, z),
            (self.x, here.x),
            (self.probability, here.probability),
            (self.loss, here.loss),
            (self.sigma, here.sigma),
        ):
            buffer[taken, keep] = value

    def finish(self, row: Tensor, taken: Tensor, reason: Tensor) -> None:
        self.steps[row] = torch.where((reason == StopReason.NOT_FINITE) & (taken > 0), taken - 1, taken)
        self.reason[row] = reason

    def give_up(self, row: Tensor, taken: Tensor, waiting: Tensor, start: Tensor, factual: Tensor) -> None:
        begun = taken > 0
        waiting = torch.cat([waiting, row[~begun]])
        self.z[0, waiting], self.x[0, waiting] = start[waiting], factual[waiting]
        self.steps[row[begun]] = taken[begun] - 1
        self.reason[torch.cat([row, waiting])] = StopReason.OUT_OF_TIME

    def trajectory(self) -> Trajectory:
        steps, reason = self.steps[:-1], self.reason[:-1]
        times = torch.arange(len(self.z), device=steps.device)[:, None].minimum(steps)
        rows = torch.arange(len(steps), device=steps.device).expand_as(times)
        z, x, probability, loss, sigma = (
            buffer[times, rows] for buffer in (self.z, self.x, self.probability, self.loss, self.sigma)
        )
        moved = (x[1:] - x[:-1]).norm(dim=-1).cumsum(0)
        length = torch.cat([torch.zeros_like(probability[:1]), moved])
        return Trajectory(z, x, probability, loss, sigma, length, steps, reason)


def _pick(context: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if context is None else context[rows]


def _insist(factual: Tensor, steps: int, step_size: float, damping: float) -> None:
    bad = (~factual.isfinite()).nonzero()
    if len(bad):
        raise InputError(f"the factual rows must be finite; row {int(bad[0, 0])}, column {int(bad[0, 1])} is not")
    if steps < 0:
        raise InputError(f"the number of steps must be at least 0; given {steps}")
    if not (step_size > 0 and math.isfinite(step_size)):
        raise InputError(f"the step size must be a positive number; given {step_size!r}, try 0.1")
    if not (damping >= 0 and math.isfinite(damping)):
        raise InputError(f"the damping must be at least 0; given {damping!r}, try {DAMPING:g}")

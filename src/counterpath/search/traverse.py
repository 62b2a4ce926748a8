"""The only search loop of the local methods: step downhill from every factual row until its stop rule says so.

Rows are searched for in one block whose shape never changes (`Slots`): a slot whose row is done takes the next waiting
row. `sweep` searches more rows than fit into memory, chunk after chunk.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum, auto
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.metric import DAMPING, Metric, capturable, euclidean
from counterpath.models.classifier import Classifier
from counterpath.models.latent import IdentityModel, LatentModel
from counterpath.models.vae import VAE
from counterpath.search.feasible import StepConstraints
from counterpath.search.objective import Objective
from counterpath.search.step import Slope, StepRule, euclidean_length, slope
from counterpath.utils.devices import block_size_for, map_blocks, tf32_products
from counterpath.utils.errors import InputError, choose
from counterpath.utils.progress import ShouldStop, never_stop, track
from counterpath.utils.replay import Replayed


@dataclass(frozen=True)
class Slots:
    """The rows in the block, and where they are; the tensors stay, their numbers change.

    Attributes:
        z: Latent points.
        row: The row in each slot; the number of rows for a slot that is empty.
        taken: Steps taken so far.
        begun: How many rows have a slot, or had one.
        count: How many rows there are.
    """

    z: Float[Tensor, "b d"]
    row: Int[Tensor, "b"]
    taken: Int[Tensor, "b"]
    begun: Int[Tensor, ""]
    count: int

    @classmethod
    def filled(cls, start: Float[Tensor, "n d"], size: int) -> "Slots":
        """As many slots as asked for, with the first rows in them."""
        row = torch.arange(size, device=start.device).clamp_max(len(start))
        z = start[row.clamp_max(len(start) - 1)]
        return cls(z, row, torch.zeros_like(row), row.new_tensor(min(size, len(start))), len(start))

    def move(self, z: Float[Tensor, "b d"], done: Bool[Tensor, "b"], start: Float[Tensor, "n d"]) -> None:
        """Go on, and give the slots that are done to the rows that wait, in their order."""
        following = (self.begun + done.cumsum(0) - 1).clamp_max(self.count)
        row = torch.where(done, following, self.row)
        self.begun.add_(done.sum()).clamp_max_(self.count)
        self.z.copy_(torch.where(done[:, None], start[row.clamp_max(self.count - 1)], z))
        self.taken.copy_(torch.where(done, 0, self.taken + 1))
        self.row.copy_(row)

    def finished(self) -> int:
        """How many rows are done; this waits for the device."""
        return int(self.begun - (self.row < self.count).sum())


StopRule = Callable[[Slope], Tensor]
"""Says for which rows to stop, given the slope where they are."""

KEEP: dict[str, Callable[[int], int]] = {"all": lambda steps: steps + 1, "end": lambda steps: 1}
"""How much of a path is kept, and how many points that is: every one, or the last."""

_BETWEEN_LOOKS = {"cpu": 1, "cuda": 16}
"""Steps between looks at which rows are done: a look makes a GPU wait, and 16 steps hide what it costs."""
_OWN_MODULES = ("counterpath.geometry.metric", "counterpath.search.step", __name__)


class StopReason(IntEnum):
    """Why the search of a row ended; `text` says it in a sentence."""

    CONFIDENCE_REACHED = 0  # the others count on from here; a tensor holds one number for each row
    ALL_STEPS_TAKEN = auto()
    NO_WAY_DOWN = auto()
    NOT_FINITE = auto()
    OUT_OF_TIME = auto()

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

    Entry t of every tensor is the state after t steps. A row that stopped earlier stays where it stopped. Where only
    ends are kept there is one entry, the last.

    Attributes:
        z: Latent points.
        x: Decoded rows.
        probability: Of the target.
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

    def to(self, device: torch.device) -> "Trajectory":
        """The same on another device."""
        return Trajectory(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def reasons(self) -> list[StopReason]:
        """Why each row stopped."""
        return [StopReason(code) for code in self.reason.tolist()]


def never(here: Slope) -> Tensor:
    """Stop rule of the paper's tables: take all steps."""
    return torch.zeros_like(here.valid)


def at_confidence(confidence: float) -> StopRule:
    """Stop at the first point whose probability of the target is at least `confidence`."""
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
    step_constraints: StepConstraints | None = None,
    stop: StopRule = never,
    steps: int = 150,
    step_size: float = 0.1,
    step_rule: StepRule = euclidean_length,
    damping: float = DAMPING,
    keep: str = "all",
    tf32: bool = False,
    block_size: int | None = None,
    should_stop: ShouldStop = never_stop,
    progress: bool | None = False,
    name: str = "search",
) -> Trajectory:
    """Step z ← z − η·step(M⁻¹∇f) from the code of every factual row.

    All rows share one block of `block_size` slots whose shape never changes. A slot whose row has finished takes the
    next waiting row, and slots without a row repeat the first one, unrecorded. So the result of a row does not depend
    on the other rows: any order and any split gives the same bits on one device.

    Args:
        model: The space to search in.
        metric: The geometry of that space.
        objective: What to minimise.
        factual: The rows to start from.
        context: What the model is conditioned on, one row a factual.
        step_constraints: What the steps have to respect.
        stop: When a row is done before all steps are taken.
        steps: The most steps.
        step_size: η.
        step_rule: How a direction becomes a step of unit size.
        damping: Added to the metric's diagonal.
        keep: "all" points of the paths, or only their "end": memory then does not grow with the steps.
        tf32: Round the factors of products to TF32 on a GPU, which is faster and less exact.
        block_size: Slots in the block; by default what suits the device.
        should_stop: When to give up what is not finished. A row that was not even begun has its factual for a path.
        progress: Show a bar; None shows it where standard error is a terminal.
        name: For the bar.
    """
    _insist(factual, steps, step_size, damping)
    device, block_size = factual.device, block_size or block_size_for(factual.device)
    points = choose("keep", keep, KEEP)(steps)
    with torch.no_grad(), tf32_products(tf32):
        start = map_blocks(model.encode, factual, context, block_size=block_size)
        record = _Record.empty(points, start, factual)
        if len(factual) == 0:
            return record.trajectory()
        slots = Slots.filled(start, block_size)

        def look() -> tuple[Slope, Tensor]:
            row = slots.row.clamp_max(len(factual) - 1)
            row_context = None if context is None else context[row]
            constraints = None if step_constraints is None else step_constraints.at(row)
            here = slope(model, metric, objective, slots.z, factual[row], row_context, damping, constraints)
            return here, step_rule(here.direction, here.gradient).to(start.dtype)

        def go_on() -> None:
            here, step = looking.result
            reason = _reason(here, step, stop, slots.taken, steps)
            record.write(slots, here, reason)
            slots.move(slots.z - step_size * step, reason >= 0, start)

        unbounded = step_constraints is None or step_constraints.bounded is None
        solved = metric is euclidean or capturable(start.shape[-1])
        record_look = unbounded and solved and never_waits(model, metric, objective.classifier, step_rule)
        looking = Replayed(look, device, record=record_look)
        # What is recorded reads tensors where they were, and a look that is not recorded puts them elsewhere.
        going_on = Replayed(go_on, device, record=record_look and never_waits(stop))
        seen = 0
        with track(name, len(factual), shown=progress) as advance:
            while seen < len(factual):
                if should_stop():
                    record.give_up(slots, start, factual)
                    break
                for _ in range(_BETWEEN_LOOKS[device.type]):
                    looking()
                    going_on()
                finished = slots.finished()
                advance(finished - seen)
                seen = finished
    return record.trajectory()


def never_waits(*pieces: object) -> bool:
    """Whether work on a GPU can be recorded: our own pieces never wait for it, while a user's may do anything.

    A piece of which that depends on what it is made of says so itself, by its attribute `never_waits`.
    """
    return all(
        isinstance(piece, VAE | IdentityModel | Classifier)
        or getattr(piece, "__module__", "") in _OWN_MODULES
        or getattr(piece, "never_waits", False) is True
        for piece in pieces
    )


def _reason(here: Slope, step: Tensor, stop: StopRule, taken: Tensor, steps: int) -> Tensor:
    """The stop reason of every slot, or −1 for those that go on."""
    reason = torch.where(taken >= steps, StopReason.ALL_STEPS_TAKEN, -1)
    reason = torch.where((step == 0).all(-1), StopReason.NO_WAY_DOWN, reason)
    reason = torch.where(stop(here), StopReason.CONFIDENCE_REACHED, reason)
    return torch.where(here.valid, reason, StopReason.NOT_FINITE)


@dataclass(frozen=True)
class _Record:
    """Buffers that slots write their rows into; one more row takes what empty slots write."""

    z: Tensor
    x: Tensor
    probability: Tensor
    loss: Tensor
    sigma: Tensor
    length: Tensor
    steps: Tensor
    reason: Tensor

    @classmethod
    def empty(cls, points: int, start: Tensor, factual: Tensor) -> "_Record":
        shape = (points, len(factual) + 1)
        whole = torch.zeros(len(factual) + 1, dtype=torch.long, device=start.device)
        return cls(
            z=start.new_zeros(*shape, start.shape[-1]),
            x=factual.new_zeros(*shape, factual.shape[-1]),
            probability=factual.new_zeros(shape),
            loss=factual.new_zeros(shape),
            sigma=factual.new_zeros(shape),
            length=factual.new_zeros(shape),
            steps=whole,
            reason=whole.clone(),
        )

    def write(self, slots: Slots, here: Slope, reason: Tensor) -> None:
        # A point that is not finite is not part of the path: the point before it stays the last one.
        first, last = slots.taken == 0, len(self.steps) - 1
        row = torch.where(here.valid | first, slots.row, last)
        point = slots.taken.clamp_max(len(self.z) - 1)
        before = (point if len(self.z) == 1 else (point - 1).clamp_min(0), row)
        moved = torch.where(first, 0, self.length[before] + (here.x - self.x[before]).norm(dim=-1))
        for buffer, value in (
            (self.z, slots.z),
            (self.x, here.x),
            (self.probability, here.probability),
            (self.loss, here.loss),
            (self.sigma, here.sigma),
            (self.length, moved),
        ):
            buffer[point, row] = value
        self.steps[row] = slots.taken
        self.reason[slots.row] = reason

    def give_up(self, slots: Slots, start: Tensor, factual: Tensor) -> None:
        """Mark all rows that are not done; those that were not begun have their factual row for a path."""
        busy = slots.row < slots.count
        row = slots.row[busy]
        queued = torch.arange(int(slots.begun), slots.count, device=row.device)
        waiting = torch.cat([row[slots.taken[busy] == 0], queued])
        self.z[0, waiting], self.x[0, waiting] = start[waiting], factual[waiting]
        self.reason[torch.cat([row, waiting])] = StopReason.OUT_OF_TIME

    def trajectory(self) -> Trajectory:
        steps, reason = self.steps[:-1], self.reason[:-1]
        times = torch.arange(len(self.z), device=steps.device)[:, None].minimum(steps)
        rows = torch.arange(len(steps), device=steps.device).expand_as(times)
        kept = ("z", "x", "probability", "loss", "sigma", "length")
        return Trajectory(**{name: getattr(self, name)[times, rows] for name in kept}, steps=steps, reason=reason)


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


CHUNK = {"cpu": 1 << 16, "cuda": 1 << 19}
"""Rows in a chunk, by the type of the device: several blocks, so that little of the last one is empty."""


def sweep(
    model: LatentModel,
    metric: Metric,
    objective: Objective,
    chunks: Iterable[Tensor],
    *,
    device: torch.device,
    **options: Any,
) -> Iterator[Trajectory]:
    """Search chunks of rows, and give back where the paths of each end, on the device that the chunk came from.

    What is in memory is one chunk, whatever the number of rows.

    Args:
        model: The space to search in, on `device`; not a conditional one.
        metric: The geometry of that space.
        objective: What to minimise.
        chunks: Rows to start from, for instance `rows.split(CHUNK[device.type])`; only one is held at a time.
        device: Where to compute.
        options: As of `traverse`. Blocks are large unless `block_size` says otherwise.
    """
    options = {"keep": "end", "block_size": block_size_for(device, many=True), **options}
    for chunk in chunks:
        yield traverse(model, metric, objective, chunk.to(device), **options).to(chunk.device)

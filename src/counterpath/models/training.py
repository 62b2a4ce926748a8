"""The only training loop.

Every model is trained by `train`: it shuffles, batches, steps, reports progress, fails early and loudly when the loss
is not finite, and writes checkpoints from which a killed run goes on to bit-identical weights (on a CPU).
"""

import hashlib
import importlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from counterpath.utils.errors import CheckpointError, InputError, TrainingError
from counterpath.utils.files import atomic, remove_leftovers
from counterpath.utils.progress import track
from counterpath.utils.replay import Replayed

Loss = Callable[[tuple[Tensor, ...], torch.Generator], Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

_FORMAT = "counterpath-checkpoint-1"


@dataclass(frozen=True)
class Run:
    """How to run a training, apart from what is trained: its seed, its checkpoint and its progress bar.

    Attributes:
        seed: Of the shuffling and of the noise in the loss.
        checkpoint: Folder for the checkpoints; None writes none.
        seconds_between: How often to write one, at the end of an epoch.
        progress: Show a bar; by default where standard error is a terminal.
    """

    seed: int = 0
    checkpoint: Path | None = None
    seconds_between: float = 2.0
    progress: bool | None = None


@dataclass
class EarlyStopping:
    """Keeps the weights that are best on rows that are not trained on, and stops when they get no better.

    Attributes:
        loss: Of those rows, called with the module in evaluation mode before the first epoch and after each.
        patience: Epochs without a better loss, after which training stops.
        losses: What it was each time; the first is that of the initial weights.
    """

    loss: Callable[[], float]
    patience: int
    losses: list[float] = field(default_factory=list)

    @property
    def best(self) -> int:
        """After how many epochs the loss was lowest."""
        return min(range(len(self.losses)), key=self.losses.__getitem__)

    @property
    def over(self) -> bool:
        """Whether it has not got better for too long."""
        return len(self.losses) - 1 - self.best >= self.patience


def train(
    name: str,
    module: nn.Module,
    loss: Loss,
    tensors: Sequence[Tensor],
    *,
    epochs: int,
    batch_size: int,
    optimizer: MakeOptimizer,
    run: Run,
    identity: Sequence[Tensor] | None = None,
    stopping: EarlyStopping | None = None,
    epoch_rows: int | None = None,
    anneal: bool = False,
) -> list[float]:
    """Minimise the mean of `loss` over mini-batches, and leave `module` in evaluation mode.

    Batches all have one size; what is left over at the end of an epoch is dropped, and differs from epoch to epoch.

    Args:
        name: What is trained, for the progress bar, for messages and for the checkpoint's file name.
        module: Whose parameters are trained.
        loss: Maps a batch (one slice of each tensor) and a random generator to a scalar.
        tensors: The data, with one row a sample, on the device of the module.
        epochs: Passes over the data.
        batch_size: Rows in a batch; at most all rows.
        optimizer: Makes the optimiser from the parameters, for instance `partial(torch.optim.Adam, lr=1e-3)`.
        run: Seed, checkpoint and progress.
        identity: What distinguishes this run from any other when it goes on from a checkpoint; by default the data and
            the initial weights. Give the raw data where those were computed from them, by arithmetic that another
            number of threads would round differently.
        stopping: Stop early, and end with the weights that were best; by default the last ones are kept.
        epoch_rows: Rows that make an epoch, drawn anew each time, where there are more; by default all.
        anneal: Let the learning rate fall to nothing along half a cosine, which takes a fraction of the steps that a
            constant rate needs (Loshchilov and Hutter, "SGDR", ICLR 2017).

    Returns:
        The mean loss of every epoch.

    Raises:
        InputError: If the data are empty or not finite.
        TrainingError: If the loss stops being finite.
        CheckpointError: If the checkpoint is damaged or of another run.
    """
    _import_compiler()
    check_finite(name, *tensors)
    device = tensors[0].device
    generator = torch.Generator(device).manual_seed(run.seed)
    optim = optimizer(p for p in module.parameters() if p.requires_grad)
    rates = [group["lr"] for group in optim.param_groups]
    for group in optim.param_groups:
        group["capturable"] = device.type == "cuda"
        if anneal:  # a tensor: where steps are replayed, a number would stay what it was in the first of them
            group["lr"] = torch.tensor(group["lr"], device=device)
    batch_size = min(batch_size, len(tensors[0]))
    checkpoint, losses = None, []
    if run.checkpoint is not None:
        path = run.checkpoint / f"{name.replace(' ', '-')}.safetensors"
        known = (*tensors, *module.state_dict().values()) if identity is None else identity
        fingerprint = _fingerprint([name, epochs, batch_size, run.seed], optim, known)
        checkpoint = _Checkpoint(path, fingerprint, module, optim, generator, stopping, {})
        losses = checkpoint.restore()
    best = {} if checkpoint is None else checkpoint.best
    _watch(stopping, module, best, first=True)
    batches = _Batches(loss, tensors, batch_size, optim, generator, epoch_rows)
    written = time.monotonic()
    with track(f"training {name}", epochs, shown=run.progress) as advance:
        advance(len(losses))
        while len(losses) < epochs and not (stopping is not None and stopping.over):
            module.train()
            if anneal:
                for group, rate in zip(optim.param_groups, rates, strict=True):
                    group["lr"].fill_(rate * 0.5 * (1 + math.cos(math.pi * len(losses) / epochs)))
            losses.append(batches.epoch())
            _check_loss(name, losses, optim)
            _watch(stopping, module, best)
            ended = len(losses) == epochs or (stopping is not None and stopping.over)
            if checkpoint is not None and (ended or time.monotonic() - written >= run.seconds_between):
                checkpoint.save(losses)
                written = time.monotonic()
            advance(note=f"loss {losses[-1]:.4g}")
        if checkpoint is not None and epochs == 0:  # what needs no training is kept beside what did
            checkpoint.save(losses)
    if stopping is not None:
        module.load_state_dict(best)
    module.eval()
    return losses


@cache
def _import_compiler() -> None:
    """Import what torch's first optimiser imports, in a thread.

    Whatever frames it is imported from are held for good, and with them their data: here there are none.
    """
    thread = threading.Thread(target=importlib.import_module, args=("torch._dynamo",))
    thread.start()
    thread.join()


def _watch(stopping: EarlyStopping | None, module: nn.Module, best: dict[str, Tensor], *, first: bool = False) -> None:
    """Measure the loss on rows that are not trained on, and keep the weights if it is the lowest so far."""
    if stopping is None or (first and stopping.losses):
        return
    module.eval()
    with torch.no_grad():
        stopping.losses.append(stopping.loss())
    if stopping.best == len(stopping.losses) - 1:
        best.update({key: value.clone() for key, value in module.state_dict().items()})


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from `seed` without touching the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


_CHECKED_AT_ONCE = 1 << 16  # rows: what is compared with infinity is copied, and a large table must not be


def check_finite(name: str, *tensors: Tensor) -> None:
    """Raise an error that names the first row and column that is not a finite number."""
    if len({len(tensor) for tensor in tensors}) != 1:
        raise InputError(f"{name}: the tensors differ in rows: {[len(tensor) for tensor in tensors]}")
    if len(tensors[0]) == 0:
        raise InputError(f"{name}: there are no rows to train on")
    for tensor in tensors:
        if not all(bool(part.isfinite().all()) for part in tensor.split(_CHECKED_AT_ONCE)):
            bad = (~tensor.isfinite()).nonzero()
            row, *column = bad[0].tolist()
            where = f"row {row}" + (f", column {column[0]}" if column else "")
            raise InputError(f"{name}: the data hold {len(bad)} values that are NaN or infinite (first: {where})")


class _Batches:
    """Takes optimiser steps, batch by batch, without waiting for the device within an epoch."""

    def __init__(
        self,
        loss: Loss,
        tensors: Sequence[Tensor],
        batch_size: int,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        epoch_rows: int | None,
    ) -> None:
        self.count, self.generator, self.epoch_rows = len(tensors[0]), generator, epoch_rows
        self.device = tensors[0].device
        total = self.total = torch.zeros((), device=self.device)
        rows = self.rows = torch.zeros(batch_size, dtype=torch.long, device=self.device)

        def step() -> None:  # no method: a cycle would hold the data until the collector comes
            optimizer.zero_grad(set_to_none=True)
            value = loss(tuple(tensor[rows] for tensor in tensors), generator)
            value.backward()
            optimizer.step()
            total.add_(value.detach())

        self.step = Replayed(step, self.device, generator)

    def epoch(self) -> float:
        """Run through the data once, in a new order, and return the mean loss."""
        count, some = self.count, self.epoch_rows
        if some is None or some >= count:
            order = torch.randperm(count, generator=self.generator, device=self.device)
        else:
            order = torch.randint(count, (some,), generator=self.generator, device=self.device)
        batches = order[: len(order) // len(self.rows) * len(self.rows)].view(-1, len(self.rows))
        self.total.zero_()
        for rows in batches:
            self.rows.copy_(rows)
            self.step()
        return float(self.total) / len(batches)


def _check_loss(name: str, losses: list[float], optimizer: torch.optim.Optimizer) -> None:
    if not math.isfinite(losses[-1]):
        rate = optimizer.param_groups[0]["lr"]
        before = f"; it was {losses[-2]:.4g} in the epoch before" if len(losses) > 1 else ""
        raise TrainingError(
            f"training {name}: the loss became {losses[-1]} in epoch {len(losses)}{before}. "
            f"Scale the features to about [0, 1] and try a learning rate below {rate:g}"
        )


def _fingerprint(settings: list[Any], optimizer: torch.optim.Optimizer, identity: Sequence[Tensor]) -> str:
    """What makes two runs the same run: their settings, those of the optimiser, and the data."""
    digest = hashlib.sha256()
    defaults = {key: repr(value) for key, value in optimizer.defaults.items()}
    digest.update(json.dumps([*settings, type(optimizer).__name__, defaults]).encode())
    for tensor in identity:
        digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().reshape(-1).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Checkpoint:
    """A file from which a run goes on: weights, optimiser, random state and the losses so far."""

    path: Path
    fingerprint: str
    module: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    stopping: EarlyStopping | None
    best: dict[str, Tensor]

    def save(self, losses: list[float]) -> None:
        """Write the file, whole or not at all."""
        tensors = {f"weights.{key}": value for key, value in self.module.state_dict().items()}
        tensors |= {f"best.{key}": value for key, value in self.best.items()}
        tensors["random"] = self.generator.get_state()
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
        header = {"format": _FORMAT, "fingerprint": self.fingerprint, "losses": json.dumps(losses)}
        if self.stopping is not None:
            header["held_out"] = json.dumps(self.stopping.losses)
        with atomic(self.path) as temporary:
            save_file({key: value.detach().contiguous() for key, value in tensors.items()}, temporary, metadata=header)

    def restore(self) -> list[float]:
        """Put everything back as it was, and return the losses so far; none if there is no file yet."""
        remove_leftovers(self.path)
        if not self.path.exists():
            return []
        try:
            with safetensors.safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(
                f"the checkpoint {self.path} is damaged ({error}): delete it to train again"
            ) from error
        if header.get("format") != _FORMAT or header.get("fingerprint") != self.fingerprint:
            raise CheckpointError(
                f"the checkpoint {self.path} belongs to another run (other data, settings, seed or version): "
                "delete it, or use another folder"
            )
        state: dict[int, dict[str, Tensor]] = {}
        weights: dict[str, Tensor] = {}
        for key, value in tensors.items():
            kind, _, entry = key.partition(".")
            if kind == "weights":
                weights[entry] = value
            elif kind == "best":
                self.best[entry] = value.to(self.generator.device)
            elif kind == "optimizer":
                index, _, entry = entry.partition(".")
                state.setdefault(int(index), {})[entry] = value
        self.module.load_state_dict(weights)
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.generator.set_state(tensors["random"].cpu())
        if self.stopping is not None:
            self.stopping.losses[:] = json.loads(header["held_out"])
        losses: list[float] = json.loads(header["losses"])
        return losses

"""Our own classifier of a table: a logistic regression, and what a network adds to it on rows that it was not shown.

Small tables carry little more than a linear model, and a network alone overfits them; large ones carry more. Here the
data decide: the linear part comes first, with the ridge penalty that predicts held-out rows best; the network begins at
nothing beside it, and is trained only as long as held-out rows gain; a temperature makes the probabilities honest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from counterpath.models.classifier import Beside, Classifier, rescaled
from counterpath.models.layers import update_batch_norm
from counterpath.models.training import EarlyStopping, Run, check_finite, seeded, train
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError
from counterpath.utils.progress import track

_PENALTIES = (0.3, 3.0, 30.0, 100.0)  # ridge penalties of standardised columns: from nearly none to what 700 rows need
_LINEAR_ROWS = 50_000  # by so many rows a linear part of a few hundred weights is known well, whatever the table's size
_LINEAR_STEPS = 100  # of L-BFGS; fewer than fifty are needed at all but the weakest penalty
_FOLDS = 5  # a fifth of the rows is held out, as is usual
_CROSS_VALIDATED = 10_000  # rows below which all folds are held out in turn: one fifth of them alone says too little
_MOST_HELD_OUT = 10_000  # rows; the log loss of so many is known to within 0.005
_EPOCHS = 40  # the most: nearly all tables stop before
_PATIENCE = (
    12  # epochs without gain: a network that begins at nothing may lose at first, and each costs a pass over the rows
)
_EPOCH_ROWS = 100_000  # rows after which a large table is looked at: with 40 epochs it is trained on 4 million at most
_BATCH = 16, 512  # smallest and largest batch: BatchNorm needs some rows, and eight batches make an epoch
_LEARNING_RATE = (
    1e-3  # of Adam: at half of it large tables are not done in 40 epochs, at twice small ones gain for one only
)
_WEIGHT_DECAY = 0.01  # of the network: it is stopped before decay matters, and from 0.001 to 0.3 nothing changes
_SMALLEST_SPREAD = 1e-3  # of a column in [0, 1]: one that is nearly constant is not blown up
_TEMPERATURES = 0.25, 4.0, 161  # from, to, how many: no classifier is farther off than fourfold, and each is 1.7 % more


@dataclass(frozen=True)
class Task:
    """Some rows of a table to learn from, or to be measured on; the table itself is never copied.

    Attributes:
        table: All rows of the table.
        labels: The index of the class of each; or numbers to predict.
        weights: How much an error on each class weighs.
        mean: Of the columns of the rows that are learned from.
        spread: Their standard deviation.
        index: Which rows these are.
    """

    table: Float[Tensor, "N D"]
    labels: Tensor
    weights: Float[Tensor, "K"]
    mean: Float[Tensor, "D"]
    spread: Float[Tensor, "D"]
    index: Int[Tensor, "n"]

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "N D"],
        y: Tensor,
        classes: int,
        class_weights: Sequence[float] | None,
        index: Int[Tensor, "n"] | None = None,
    ) -> "Task":
        """Rows of a table, by default all, with the classes' weights, by default the same."""
        weights = torch.tensor([1.0] * classes if class_weights is None else list(class_weights)).to(x)
        rows = x if index is None else x[index]
        mean, spread = rows.mean(0), rows.std(0).clamp_min(_SMALLEST_SPREAD)
        return cls(x, y, weights, mean, spread, torch.arange(len(x), device=x.device) if index is None else index)

    @property
    def y(self) -> Tensor:
        """The class or the number of every row."""
        return self.labels[self.index]

    def x(self, index: Int[Tensor, "m"] | None = None) -> Float[Tensor, "m D"]:
        """Rows of the table, standardised; by default these."""
        return (self.table[self.index if index is None else index] - self.mean) / self.spread

    def some(self) -> "Task":
        """At most 50,000 of the rows; a table may be sorted, so they are taken at equal distances."""
        return replace(self, index=self.index[:: -(-len(self.index) // _LINEAR_ROWS)])

    def loss(self, logits: Tensor) -> Tensor:
        """The weighted cross entropy of logits for all rows, or the mean squared error of numbers."""
        return error(logits, self.y, self.weights)


def error(logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Of the log odds of class 1 `(n,)`, one logit a class `(n, K)`, or predicted numbers `(n,)`."""
    if y.is_floating_point():
        return F.mse_loss(logits, y.to(logits))
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    return F.cross_entropy(logits, y, weight=weights.to(logits))


def fit_own_regressor(
    x: Float[Tensor, "n D"],
    y: Float[Tensor, "n"],
    *,
    width: int = 24,
    run: Run | None = None,
    index: Int[Tensor, "m"] | None = None,
) -> Classifier:
    """Train a regressor in the same way: a ridge regression, and what a network adds to it on held-out rows.

    Args:
        x: Rows.
        y: The number of every row.
        width: H, the size of the network's representation.
        run: Seed, checkpoint and progress.
        index: Which rows to learn from; by default all.
    """
    known = y if index is None else y[index]
    mean, spread = float(known.mean()), float(known.std()) or 1.0
    regressor = fit_own(x, ((y - mean) / spread).to(x), 2, width=width, run=run, index=index)
    return rescaled(regressor, mean, spread)


def fit_own(
    x: Float[Tensor, "n D"],
    y: Int[Tensor, "n"] | Float[Tensor, "n"],
    classes: int,
    *,
    class_weights: Sequence[float] | None = None,
    width: int = 24,
    run: Run | None = None,
    index: Int[Tensor, "m"] | None = None,
) -> Classifier:
    """Train a classifier whose probabilities hold for rows that it was not shown.

    Ridge penalty, number of epochs and temperature are chosen by the cross entropy of held-out rows: of each fifth in
    turn in tables below 10,000 rows, which are then fitted as a whole; of one fifth, at most 10,000 rows, in others.

    Args:
        x: Rows.
        y: The index of every row's class; or numbers, to predict which there is one output, as for two classes.
        classes: How many classes.
        class_weights: How much an error on each class weighs; by default the same.
        width: H, the size of the network's representation.
        run: Seed, checkpoint and progress.
        index: Which rows to learn from, which are not copied; by default all.

    References:
        Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
    """
    run = run or Run()
    check_finite("classifier", x)
    task = Task.of(x, y, classes, class_weights, index)
    if bool((task.y == task.y[0]).all()):
        raise InputError(f"a classifier needs more than one class in its labels; given only class {int(task.y[0])}")
    crossed = len(task.index) < _CROSS_VALIDATED
    parts = split(task, run.seed, _FOLDS if crossed else 1)
    penalty = best_penalty(parts)
    if not crossed:
        (rest, held_out), *_ = parts
        classifier, _ = _fit(rest, held_out, penalty, width, _EPOCHS, run)
        temperature = _temperature(held_out, map_blocks(classifier, held_out.x()))
        return _on_rows(classifier, task, temperature).requires_grad_(False)
    curves = []
    with track("choosing the classifier", len(parts), shown=run.progress) as advance:
        for rest, held_out in parts:
            curves.append(_fit(rest, held_out, penalty, width, _EPOCHS, Run(run.seed, progress=False), "fold")[1])
            advance()
    epochs = _best_epoch(curves, parts)
    classifier, _ = _fit(task, None, penalty, width, epochs, run)
    everywhere = replace(task, index=torch.cat([held_out.index for _, held_out in parts]))
    temperature = _temperature(everywhere, torch.cat([curve[epochs] for curve in curves]))
    return _on_rows(classifier, task, temperature).requires_grad_(False)


def split(task: Task, seed: int, count: int) -> list[tuple[Task, Task]]:
    """The rest of the rows, and those that are held out, for each of `count` parts."""
    fold = folds(task.y, seed)
    return [
        (replace(task, index=task.index[fold != index]), replace(task, index=task.index[fold == index]))
        for index in range(count)
    ]


def folds(y: Tensor, seed: int) -> Int[Tensor, "n"]:
    """The part that every row belongs to: each has its share of every class or number, and at most 10,000 rows."""
    parts = max(_FOLDS, -(-len(y) // _MOST_HELD_OUT))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty_like(y, dtype=torch.long)
    fold[order] = torch.arange(len(y), device=y.device) % parts
    return fold


def fit_linear(task: Task, penalty: float) -> tuple[Float[Tensor, "D k"], Float[Tensor, "k"]]:
    """A logistic regression by L-BFGS: minimises the mean cross entropy + penalty/(2n)·‖w‖²."""
    logits = 1 if len(task.weights) == 2 else len(task.weights)
    x = task.x().double()
    weight = x.new_zeros(x.shape[-1], logits).requires_grad_()
    bias = x.new_zeros(logits).requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_LINEAR_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = task.loss(_flat(x @ weight + bias)) + penalty / (2 * len(x)) * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return weight.detach(), bias.detach()


def _flat(logits: Tensor) -> Tensor:
    return logits[:, 0] if logits.shape[-1] == 1 else logits


def best_penalty(parts: Sequence[tuple[Task, Task]]) -> float:
    """The penalty with which linear parts predict held-out rows best."""

    def loss(penalty: float) -> float:
        total = 0.0
        for rest, held_out in parts:
            weight, bias = fit_linear(rest.some(), penalty)
            total += float(held_out.loss(_flat(held_out.x().double() @ weight + bias))) * len(held_out.index)
        return total

    return min(_PENALTIES, key=loss)


def _fit(
    task: Task,
    held_out: Task | None,
    penalty: float,
    width: int,
    epochs: int,
    run: Run,
    name: str = "classifier",
) -> tuple[Classifier, list[Tensor]]:
    """A linear part, and a network trained beside it; with the logits of held-out rows after every epoch."""
    classes = len(task.weights)
    with seeded(run.seed):
        classifier = Classifier(task.table.shape[-1], width, classes, linear=True).to(task.table)
    beside = classifier.representation
    assert isinstance(beside, Beside)
    some = task.some()
    weight, bias = fit_linear(some, penalty)
    scale = (some.x().double() @ weight).std(0).clamp_min(_SMALLEST_SPREAD)
    with torch.no_grad():  # in the representation the linear part has unit spread, as what BatchNorm makes of the rest
        beside.linear.weight.zero_()[: len(scale)] = (weight / scale).T.to(task.table)
        beside.linear.bias.zero_()
        classifier.head.weight.zero_()[:, width:].diagonal().copy_(scale)
        classifier.head.bias.copy_(bias)
    beside.linear.requires_grad_(False)
    logits: list[Tensor] = []

    def held_out_loss() -> float:
        assert held_out is not None
        update_batch_norm(classifier, some.x())
        logits.append(map_blocks(classifier, held_out.x()))
        return float(held_out.loss(logits[-1]))

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        (index,) = batch
        return error(classifier(task.x(index)), task.labels[index], task.weights)

    train(
        name,
        classifier,
        loss,
        (task.index,),
        epochs=epochs,
        batch_size=min(_BATCH[1], max(_BATCH[0], len(task.index) // 8)),
        optimizer=partial(torch.optim.AdamW, lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY, fused=True),
        run=run,
        identity=(task.table, task.labels, task.weights, task.index),
        stopping=None if held_out is None else EarlyStopping(held_out_loss, _PATIENCE),
        epoch_rows=_EPOCH_ROWS,
    )
    update_batch_norm(classifier, some.x())
    return classifier, logits


@torch.no_grad()
def _best_epoch(curves: Sequence[Sequence[Tensor]], parts: Sequence[tuple[Task, Task]]) -> int:
    """After how many epochs the held-out rows of all parts together are predicted best."""

    def loss(epoch: int) -> float:
        pairs = zip(curves, parts, strict=True)
        return sum(float(held_out.loss(curve[epoch])) * len(held_out.index) for curve, (_, held_out) in pairs)

    return min(range(min(map(len, curves))), key=loss)


@torch.no_grad()
def _temperature(task: Task, logits: Tensor) -> float:
    """What to multiply logits by, so that their cross entropy is lowest; numbers stay as they are."""
    if task.labels.is_floating_point():
        return 1.0
    low, high, count = _TEMPERATURES
    factors: list[float] = torch.logspace(math.log10(low), math.log10(high), count).tolist()
    return min(factors, key=lambda factor: float(task.loss(factor * logits.double())))


@torch.no_grad()
def _on_rows(classifier: Classifier, task: Task, temperature: float) -> Classifier:
    """The classifier of rows that are not standardised, with a temperature; both become part of its weights."""
    beside = classifier.representation
    assert isinstance(beside, Beside)
    for layer in (beside.network[0], beside.linear):
        assert isinstance(layer, nn.Linear)
        layer.weight.div_(task.spread)
        layer.bias.sub_(layer.weight @ task.mean)
    for values in (classifier.head.weight, classifier.head.bias):
        values *= temperature
    return classifier

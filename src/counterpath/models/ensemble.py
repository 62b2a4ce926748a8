"""Many classifiers of one table, trained at once: what our own classifier might be after the next training.

Each member is a classifier as `own` fits it, a logistic regression and a network beside it, with three things drawn
anew: the rows (a bootstrap of the table), the seed (first weights and batches) and, a little, the settings (ridge
penalty, learning rate). How long its network is trained, and its temperature, are chosen by the rows that its bootstrap
left out. The weights of all members are stacked, so that a step of all of them is one batched product a layer.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.models.own import Task, best_penalty, fit_linear, split
from counterpath.models.training import check_finite
from counterpath.utils.devices import map_blocks
from counterpath.utils.progress import track

WIDTH = 24
"""H, the size of the representation: that of our own classifier."""
MOST_ROWS = 100_000
"""Rows of a bootstrap: of more, so many are drawn, which makes members differ rather too much than too little."""
SETTINGS = {"penalty": 2.0, "learning rate": 2**0.5}
"""By which factor settings are at most larger or smaller, log-uniformly: about one step of the grids they come from."""
_LEARNING_RATE = 1e-3  # of Adam, as in `own`
_WEIGHT_DECAY = 0.01  # as in `own`
_BETAS, _TINY = (0.9, 0.999), 1e-8  # of Adam, as usual
_EPOCHS, _PATIENCE = 30, 2  # the most, and without gain for the mean member: all are trained as long as that gains
_BATCH = 16, 512  # as in `own`
_MEMBER_STEPS = 3000  # steps of each member at most: large tables are done after as many batches
_JUDGED = 192  # rows by which each member is stopped: of its own, which its bootstrap left out
_TRIED = 640  # rows among which these are: a third of them is out of each bootstrap
_NORM_ROWS = 256  # of the statistics of BatchNorm, of each member's own rows: half of a large batch
_NEWTON_STEPS = 40  # with the Hessian of all rows: each takes off half of what is lacking, or more
_TRAINED_AT_ONCE = {"cpu": 32, "cuda": 1024}
"""Members that are trained at once, by device: on a CPU as many as stay in its cache."""
_AT_ONCE = 16  # members whose linear parts are fitted at once: it bounds the memory for tables of many classes
_TEMPERATURES = torch.logspace(-0.6, 0.6, 49)  # from a quarter to four, in steps of 6 %
_BLOCK_ROWS = {"cpu": 8, "cuda": 1024}
"""Rows that are asked about at once, by device: a fraction of what suits one model, because there are many. A search
mostly asks about few: on a CPU eight rows take a third of the time of 32, and many rows a fifth more."""
_EPSILON = 1e-5  # of BatchNorm, as usual


@dataclass(frozen=True)
class Ensemble:
    """m classifiers with a linear part beside a network of four layers, BatchNorm folded.

    Attributes:
        weights: Of the layers, `(m, in, out)`.
        biases: Of the layers, `(m, 1, out)`.
        head: From the last layer to the logits.
        linear: From the row to the logits.
        bias: Of the logits.
        numbers: Whether they are regressors: the one logit is the number that is predicted.
    """

    weights: tuple[Float[Tensor, "m _ _"], ...]
    biases: tuple[Float[Tensor, "m 1 _"], ...]
    head: Float[Tensor, "m h k"]
    linear: Float[Tensor, "m D k"]
    bias: Float[Tensor, "m 1 k"]
    numbers: bool = False

    def __len__(self) -> int:
        return len(self.head)

    def at(self, some: slice | Int[Tensor, "c"]) -> "Ensemble":
        """Some of the members."""
        weights, biases = (tuple(each[some] for each in stack) for stack in (self.weights, self.biases))
        return Ensemble(weights, biases, self.head[some], self.linear[some], self.bias[some], self.numbers)

    @classmethod
    def joined(cls, parts: Sequence["Ensemble"]) -> "Ensemble":
        """The members of several."""
        tensors = [each.to_tensors() for each in parts]
        whole = {name: torch.cat([each[name] for each in tensors]) for name in tensors[0]}
        return cls.from_tensors(whole, numbers=parts[0].numbers)

    def logits(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "m n k"]:
        """Of every member and row."""
        h = x.expand(len(self), *x.shape)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            h = torch.baddbmm(bias, h, weight, beta=2, alpha=2).sigmoid_().mul_(2).sub_(1)  # tanh, see `_tanh`
        return h @ self.head + x @ self.linear + self.bias

    @torch.no_grad()
    def predict_proba(self, x: Float[Tensor, "n D"], some: slice = slice(None)) -> Float[Tensor, "m n K"]:
        """The probability of every class by some of the members; of regressors the number.

        In blocks of one shape, so that nobody's answer depends on others.
        """
        chosen = self.at(some)
        if len(chosen) == 0:
            return x.new_zeros(0, len(x), 1 if self.numbers else max(2, self.head.shape[-1]))
        said = map_blocks(lambda rows: chosen._said(rows).transpose(0, 1), x, block_size=_BLOCK_ROWS[x.device.type])
        return said.transpose(0, 1)

    def _said(self, x: Tensor) -> Tensor:
        logits = self.logits(x)
        if self.numbers:
            return logits
        return torch.cat([-logits, logits], -1).sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)

    def to_tensors(self) -> dict[str, Tensor]:
        """As tensors, for a model directory."""
        stacks = {"weights": self.weights, "biases": self.biases}
        layers = {f"{name}.{number}": each for name, stack in stacks.items() for number, each in enumerate(stack)}
        return {**layers, "head": self.head, "linear": self.linear, "bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], *, numbers: bool) -> "Ensemble":
        """What `to_tensors` made tensors of."""
        depth = sum(name.startswith("weights.") for name in tensors)
        weights, biases = (tuple(tensors[f"{name}.{i}"] for i in range(depth)) for name in ("weights", "biases"))
        return cls(weights, biases, tensors["head"], tensors["linear"], tensors["bias"], numbers)


@dataclass
class _Parameters:
    """What is trained of m members.

    These are weights `(m, in, out)`, scale and shift of BatchNorm, the head, and what scales the linear part.
    """

    weights: list[Tensor]
    scales: list[Tensor]
    shifts: list[Tensor]
    head: Tensor
    beside: Tensor
    bias: Tensor

    @property
    def all(self) -> list[Tensor]:
        return [*self.weights, *self.scales, *self.shifts, self.head, self.beside, self.bias]

    def at(self, some: Int[Tensor, "c"]) -> "_Parameters":
        """Of some members."""
        weights, scales, shifts = ([each[some] for each in stack] for stack in (self.weights, self.scales, self.shifts))
        return _Parameters(weights, scales, shifts, self.head[some], self.beside[some], self.bias[some])

    def hidden(
        self, x: Float[Tensor, "m b D"], norms: Sequence[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Float[Tensor, "m b h"], list[tuple[Tensor, Tensor]]]:
        """The last layer, and mean and variance in each: those of the rows themselves, or given ones."""
        found = []
        for number, (weight, scale, shift) in enumerate(zip(self.weights, self.scales, self.shifts, strict=True)):
            raw = x @ weight  # a bias would go out with the mean
            if norms is None:
                mean = raw.mean(1, keepdim=True)
                variance = (raw - mean).square().mean(1, keepdim=True)  # faster than torch.var_mean along this axis
            else:
                mean, variance = norms[number]
            found.append((mean, variance))
            x = _tanh((raw - mean) * ((variance + _EPSILON).rsqrt() * scale) + shift)
        return x, found

    def logits(self, x: Tensor, linear: Tensor, norms: Sequence[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """Of rows `(m, b, D)`; `linear` is the fixed linear part, of unit spread."""
        return self.hidden(x, norms)[0] @ self.head + (x @ linear) @ self.beside + self.bias


def _tanh(x: Tensor) -> Tensor:
    """tanh x = 2σ(2x) − 1, which takes a quarter of the time on a CPU, and differs by rounding alone."""
    return 2 * torch.sigmoid(2 * x) - 1


def fit_ensemble(
    x: Float[Tensor, "n D"],
    y: Int[Tensor, "n"] | Float[Tensor, "n"],
    classes: int,
    count: int,
    *,
    class_weights: Sequence[float] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Ensemble:
    """Train `count` members at once.

    Args:
        x: Rows.
        y: The index of every row's class; or numbers.
        classes: How many classes.
        count: How many members.
        class_weights: How much an error on each class weighs; by default the same.
        seed: Of all that is drawn.
        progress: Show a bar.
    """
    check_finite("family", x)
    numbers = y.is_floating_point()
    mean, spread = (float(y.mean()), float(y.std()) or 1.0) if numbers else (0.0, 1.0)
    labels = ((y - mean) / spread).to(x) if numbers else y
    generator = torch.Generator().manual_seed(seed)
    task = Task.of(x, labels, classes, class_weights)
    drawn = torch.randint(len(x), (count, min(len(x), MOST_ROWS)), generator=generator).to(x.device)
    factors = [
        (torch.rand(count, generator=generator) * 2 - 1).mul(math.log(most)).exp().to(x) for most in SETTINGS.values()
    ]
    penalty = best_penalty(split(task, seed, 1))
    linear, bias = _linear_parts(task, drawn, penalty, factors[0].double())
    scale = _spreads(task, linear)
    parameters = _first(x.shape[-1], scale, bias, generator, x)
    unit, table = (linear / scale).to(x), (x - task.mean) / task.spread
    rates, trained = _LEARNING_RATE * factors[1], []
    groups = torch.arange(count, device=x.device).tensor_split(math.ceil(count / _TRAINED_AT_ONCE[x.device.type]))
    with track("training the family", len(groups), shown=progress) as advance:
        for some in groups:
            start = parameters.at(some)
            best, temperature = _train(
                start, unit[some], table, labels, task.weights, drawn[some], rates[some], generator
            )
            members = _folded(best, unit[some], _norms(best, table, drawn[some]), numbers=numbers)
            trained.append(_on_rows(members, task, temperature, mean, spread))
            advance()
    return Ensemble.joined(trained)


def _spreads(task: Task, linear: Float[Tensor, "m D k"]) -> Float[Tensor, "m 1 k"]:
    """How far apart the linear parts of rows are."""
    some = task.some().x().double()
    spreads = [(some @ part).std(1, keepdim=True) for part in linear.split(_AT_ONCE)]
    return torch.cat(spreads).clamp_min(_LEAST_SPREAD)


_LEAST_SPREAD = 1e-3  # of a linear part: one that says nothing is not blown up


def _linear_parts(task: Task, drawn: Tensor, penalty: float, factors: Tensor) -> tuple[Tensor, Tensor]:
    """The ridge or logistic regressions of all members, `(m, D, k)` and their biases `(m, 1, k)`.

    Newton steps from the regression of all rows, with the Hessian there: a bootstrap moves neither by much. The largest
    penalty of a member is part of the Hessian, so that no step is too long.
    """
    some = task.some()
    weight, bias = fit_linear(some, penalty)
    x = F.pad(some.x().double(), (0, 1), value=1.0)  # the last column is the bias, which is not penalised
    start, y = torch.cat([weight, bias[None]]), some.y
    ridge = torch.ones(len(start), dtype=x.dtype, device=x.device)
    ridge[-1] = 0
    logits = x @ start
    on_rows = task.weights.double()[y][:, None] if not y.is_floating_point() else x.new_ones(len(x), 1)
    curvature = on_rows * _curvature(logits, y)
    most = penalty * float(factors.max())
    steps = [
        torch.linalg.inv(x.T @ (x * each[:, None]) + torch.diag(most * ridge + _SMALL * len(x))) for each in curvature.T
    ]
    counts = torch.stack([torch.bincount(each, minlength=len(task.table))[some.index] for each in drawn])
    counts = counts * (len(some.index) / counts.sum(1, keepdim=True))  # of a sample of the rows: as many of it
    found = []
    for part, factor in zip(counts.split(_AT_ONCE), factors.split(_AT_ONCE), strict=True):
        w = start.expand(len(part), *start.shape).clone()
        for _ in range(_NEWTON_STEPS):
            residual = _residual(x @ w, y) * on_rows * part[..., None]
            gradient = x.T @ residual + penalty * factor[:, None, None] * ridge[:, None] * w
            w -= torch.stack([gradient[..., each] @ step for each, step in enumerate(steps)], -1)
        found.append(w)
    whole = torch.cat(found)
    return whole[:, :-1], whole[:, -1:]


_SMALL = 1e-9  # of the curvature a row, on the diagonal: columns that others add up to leave the Hessian singular


def _curvature(logits: Tensor, y: Tensor) -> Tensor:
    """Of the error by each logit: p(1 − p); for more than two classes p, which bounds that and the others' parts."""
    if y.is_floating_point():
        return torch.ones_like(logits) * 2
    if logits.shape[-1] == 1:
        return logits.sigmoid() * (1 - logits.sigmoid()) * _ROOM
    return logits.softmax(-1) * _ROOM


_ROOM = 1.2  # above the curvature of all rows: a bootstrap may be more curved, and too long a step would not converge


def _residual(logits: Tensor, y: Tensor) -> Tensor:
    """The derivative of the error of each row by its logits."""
    if y.is_floating_point():
        return 2 * (logits - y[:, None].to(logits))
    if logits.shape[-1] == 1:
        return logits.sigmoid() - y[:, None].to(logits)
    return logits.softmax(-1) - F.one_hot(y, logits.shape[-1]).to(logits)


def _first(columns: int, scale: Tensor, bias: Tensor, generator: torch.Generator, like: Tensor) -> _Parameters:
    """Weights before the training: the network begins at nothing beside the linear part, as in `own`."""
    count, outputs = len(scale), scale.shape[-1]
    sizes = (columns, 2 * WIDTH, 2 * WIDTH, WIDTH, WIDTH)

    def drawn(inputs: int, width: int) -> Tensor:
        most = inputs**-0.5  # as torch's linear layers
        weights: Tensor = (torch.rand(count, inputs, width, generator=generator) * 2 - 1) * most
        return weights.to(like)

    return _Parameters(
        [drawn(inputs, width) for inputs, width in itertools.pairwise(sizes)],
        [like.new_ones(count, 1, width) for width in sizes[1:]],
        [like.new_zeros(count, 1, width) for width in sizes[1:]],
        like.new_zeros(count, WIDTH, outputs),
        torch.diag_embed(scale[:, 0]).to(like),
        bias.to(like),
    )


@dataclass
class _Adam:
    """AdamW with a learning rate of each member's own."""

    parameters: list[Tensor]
    rates: Float[Tensor, "m"]
    step: int = 0

    def __post_init__(self) -> None:
        self.first, self.second = ([torch.zeros_like(each) for each in self.parameters] for _ in range(2))

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        self.step += 1
        fast, slow = (1 - beta**self.step for beta in _BETAS)
        for number, (each, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            rate = self.rates.view(-1, *[1] * (each.ndim - 1))
            self.first[number].lerp_(gradient, 1 - _BETAS[0])
            self.second[number].lerp_(gradient.square(), 1 - _BETAS[1])
            each.mul_(1 - rate * _WEIGHT_DECAY)
            each.sub_(rate / fast * self.first[number] / ((self.second[number] / slow).sqrt() + _TINY))


def _train(
    start: _Parameters,
    linear: Float[Tensor, "m D k"],
    table: Float[Tensor, "n D"],
    labels: Tensor,
    class_weights: Tensor,
    drawn: Int[Tensor, "m b"],
    rates: Float[Tensor, "m"],
    generator: torch.Generator,
) -> tuple[_Parameters, Float[Tensor, "m"]]:
    """The weights of every member where the rows that its bootstrap left out are predicted best, and a temperature."""
    count, rows = drawn.shape
    judged, out = _left_out(drawn, len(table), generator)
    batch = min(_BATCH[1], max(_BATCH[0], rows // 8), rows)
    per_epoch = max(1, rows // batch)
    epochs = max(1, min(_EPOCHS, _MEMBER_STEPS // per_epoch))
    trained = start.all
    adam = _Adam(trained, rates)

    def judge() -> tuple[Tensor, Tensor]:
        norms = _norms(start, table, drawn)
        logits = start.logits(table[judged], linear, norms)
        return _mean_error(logits, labels[judged], class_weights, out), logits

    with torch.no_grad():
        best, logits = judge()
    kept, kept_logits = [each.clone() for each in trained], logits
    history = [float(best.mean())]
    for _ in range(epochs):
        order = torch.rand(count, rows, generator=generator).argsort(1).to(drawn)
        for first in range(0, per_epoch * batch, batch):
            some = drawn.gather(1, order[:, first : first + batch])
            for each in trained:
                each.requires_grad_(True)
            with torch.enable_grad():
                each_error = _row_errors(start.logits(table[some], linear), labels[some], class_weights)
                gradients = torch.autograd.grad(each_error.mean(1).sum(), trained)
            for each in trained:
                each.requires_grad_(False)
            adam.update(gradients)
        with torch.no_grad():
            now, logits = judge()
        better = now < best
        best = torch.where(better, now, best)
        kept = [
            torch.where(better.view(-1, *[1] * (each.ndim - 1)), each, before)
            for each, before in zip(trained, kept, strict=True)
        ]
        kept_logits = torch.where(better[:, None, None], logits, kept_logits)
        history.append(float(best.mean()))
        if len(history) > _PATIENCE and history[-1 - _PATIENCE] - history[-1] < _GAIN * abs(history[0]):
            break
    depth = len(start.weights)
    layers = [kept[part * depth : (part + 1) * depth] for part in range(3)]
    best_ones = _Parameters(layers[0], layers[1], layers[2], *kept[3 * depth :])
    return best_ones, _temperatures(kept_logits, labels[judged], class_weights, out)


def _left_out(
    drawn: Int[Tensor, "m b"], rows: int, generator: torch.Generator
) -> tuple[Int[Tensor, "m j"], Bool[Tensor, "m j"]]:
    """Rows by which each member is judged, of its own: mostly such that its bootstrap left out, and which those are.

    Were they the same for all that are trained together, these would be more alike than those of another training.
    """
    out = torch.ones(len(drawn), rows, dtype=torch.bool, device=drawn.device).scatter_(1, drawn, False)
    tried = torch.rand(len(drawn), min(_TRIED, rows), generator=generator)
    tried = (tried * rows).long().to(drawn) if rows > _TRIED else tried.argsort(dim=1).to(drawn)
    there = out.gather(1, tried)
    first = there.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :_JUDGED]
    return tried.gather(1, first), there.gather(1, first)


_GAIN = 1e-3  # of the first loss, over the epochs of patience: less is not worth their time


def _row_errors(logits: Float[Tensor, "m b k"], y: Tensor, class_weights: Tensor) -> Float[Tensor, "m b"]:
    """The error of each row, weighted by its class so that the weights are 1 on average; `y` is `(m, b)` or `(b,)`."""
    y = y.expand(logits.shape[:2])
    if y.is_floating_point():
        return (logits[..., 0] - y).square()
    if logits.shape[-1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], -1)
    errors = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
    weights = class_weights.to(logits)[y]
    return errors * weights / weights.mean(1, keepdim=True)


def _mean_error(logits: Tensor, y: Tensor, class_weights: Tensor, out: Tensor) -> Float[Tensor, "m"]:
    """The mean over the rows that each bootstrap left out."""
    errors = _row_errors(logits, y, class_weights)
    return (errors * out).sum(1) / out.sum(1).clamp_min(1)


@torch.no_grad()
def _temperatures(logits: Tensor, y: Tensor, class_weights: Tensor, out: Tensor) -> Float[Tensor, "m"]:
    """What to multiply the logits of every member by; numbers stay as they are."""
    if y.is_floating_point():
        return torch.ones_like(logits[:, 0, 0])
    losses = torch.stack([_mean_error(each * logits, y, class_weights, out) for each in _TEMPERATURES.to(logits)])
    return _TEMPERATURES.to(logits)[losses.argmin(0)]


@torch.no_grad()
def _norms(parameters: _Parameters, table: Tensor, drawn: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance in every layer, of each member's own rows."""
    return parameters.hidden(table[drawn[:, :_NORM_ROWS]])[1]


@torch.no_grad()
def _folded(parameters: _Parameters, linear: Tensor, norms: list[tuple[Tensor, Tensor]], *, numbers: bool) -> Ensemble:
    """Members with BatchNorm folded, and the linear part as one."""
    weights, biases = [], []
    each = zip(parameters.weights, parameters.scales, parameters.shifts, norms, strict=True)
    for weight, scale, shift, (mean, variance) in each:
        factor = scale * (variance + _EPSILON).rsqrt()
        weights.append(weight * factor)
        biases.append(shift - mean * factor)
    ends = parameters.head, linear @ parameters.beside, parameters.bias
    return Ensemble(tuple(weights), tuple(biases), *ends, numbers)


@torch.no_grad()
def _on_rows(ensemble: Ensemble, task: Task, temperature: Tensor, mean: float, spread: float) -> Ensemble:
    """The members for rows that are not standardised, with their temperatures; of numbers, in their own units."""
    first = ensemble.weights[0] / task.spread[:, None]
    first_bias = ensemble.biases[0] - (task.mean @ first)[:, None]
    factor = temperature[:, None, None] * spread
    linear = ensemble.linear / task.spread[:, None]
    bias = ensemble.bias - (task.mean @ linear)[:, None]
    return Ensemble(
        (first, *ensemble.weights[1:]),
        (first_bias, *ensemble.biases[1:]),
        ensemble.head * factor,
        linear * factor,
        bias * factor + mean,
        ensemble.numbers,
    )

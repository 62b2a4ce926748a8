"""What the methods of the literature share: the best end of each row so far, and how ends are looked for.

Most of them say where to go and not by which way. So a path is the straight line to the end, its points made legal.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.models.latent import LatentModel
from counterpath.search.method import Problem
from counterpath.search.nearest import straight_lines
from counterpath.search.objective import Objective
from counterpath.search.paths import Paths, is_first
from counterpath.search.traverse import StopReason
from counterpath.utils.devices import map_blocks

Loss = Callable[[Tensor, Tensor], Tensor]
"""What is minimised: rows and their factual rows to one number each."""
Candidates = Callable[[Tensor, Tensor], Tensor]
"""Feasible rows, given points of some space and to which row each belongs."""

_LATER = 1 << 13
"""Rows about which a model is asked at once: of a table it takes about as long for one row as for a thousand."""
_AT_ONCE = 1 << 15
"""Candidates that are held at once: with 100 columns 13 MB, and enough to fill a block of any device."""


@dataclass
class Best:
    """For each row of a problem the best end so far: a valid one before any other, then the one that costs least.

    Attributes:
        problem: The rows.
        x: The ends, at first the rows themselves.
        valid: Which of them are valid.
        cost: What each costs; infinite where nothing has been looked at.
        timed_out: Whether there was no time to look on.
        later: What was offered for later, and has not been looked at.
    """

    problem: Problem
    x: Float[Tensor, "n D"]
    valid: Bool[Tensor, "n"]
    cost: Float[Tensor, "n"]
    timed_out: bool = False
    later: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, problem: Problem) -> "Best":
        """The rows themselves, which nothing can beat where they are valid already."""
        factual = problem.feasible.factual
        valid = problem.validator.is_valid(factual, problem.feasible.origin)
        cost = torch.where(valid, -torch.inf, torch.inf).to(factual.dtype)
        return cls(problem, factual.clone(), valid, cost)

    def offer(
        self,
        x: Float[Tensor, "p D"],
        cost: Float[Tensor, "p"],
        row: Int[Tensor, "p"] | None = None,
    ) -> None:
        """Feasible rows that may be better, one for each row, or any number of some rows; what is not finite is not.

        Of several of one row that are as good the first counts.
        """
        row = torch.arange(len(self.x), device=x.device) if row is None else row
        finite = (x.isfinite().all(-1) & cost.isfinite()).nonzero()[:, 0]
        x, cost, row = x[finite], cost[finite].to(self.cost.dtype), row[finite]
        valid = self.problem.validator.is_valid(x, self.problem.feasible.origin[row])
        order = cost.argsort(stable=True)
        order = order[(~valid[order]).int().argsort(stable=True)]
        order = order[row[order].argsort(stable=True)]
        first = order[is_first(row[order])]
        x, cost, row, valid = x[first], cost[first], row[first], valid[first]
        better = (valid & ~self.valid[row]) | ((valid == self.valid[row]) & (cost < self.cost[row]))
        taken = row[better]
        self.x[taken], self.valid[taken], self.cost[taken] = x[better], valid[better], cost[better]

    def offer_later(self, x: Float[Tensor, "n D"], cost: Float[Tensor, "n"]) -> None:
        """As `offer`, one for each row, but only looked at before `paths`: the model is asked about many at once."""
        self.later.append((x, cost))
        if len(self.later) * len(x) >= _LATER:
            self.look()

    def look(self) -> None:
        """Look at what was offered for later."""
        if self.later:
            x, cost = map(torch.cat, zip(*self.later, strict=True))
            row = torch.arange(len(self.x), device=x.device).repeat(len(self.later))
            self.later.clear()
            self.offer(x, cost, row)

    @property
    def should_stop(self) -> bool:
        """Whether it is time to give up; then it is remembered."""
        self.timed_out = self.timed_out or self.problem.options.should_stop()
        return self.timed_out

    def paths(self) -> Paths:
        """The straight lines to the ends."""
        self.look()
        missing = StopReason.OUT_OF_TIME if self.timed_out else StopReason.ALL_STEPS_TAKEN
        reason = torch.where(self.valid, StopReason.CONFIDENCE_REACHED, missing)
        return straight_lines(self.problem, self.x, (self.x != self.problem.feasible.factual).any(-1), reason)


def gradient(loss: Loss, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
    """∂loss/∂x of every row."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(point, factual).sum(), point)
    return slope


def target_loss(problem: Problem) -> Loss:
    """−log p of the target, by the classifier that searches follow; of a regressor how far its number is off."""
    objective = Objective.of(problem.setup.models.classifier, problem.target)
    return lambda x, factual: objective.loss(x, factual)[0]


def descend_codes(
    best: Best,
    model: LatentModel,
    start: Float[Tensor, "n d"],
    context: Tensor | None,
    loss: Loss,
    *,
    learning_rate: float,
    fixed: Bool[Tensor, "n D"] | None = None,
) -> None:
    """Adam on codes z, for all rows at once: ∂/∂z of loss(μ(z), x) = Jμᵀ·∂loss/∂x.

    Every decoded row is made feasible and offered, at the loss that it has then.

    Args:
        best: The best ends, which are updated; it says how many steps there are.
        model: The latent space.
        start: Codes to start from.
        context: What the model is conditioned on.
        loss: What is minimised.
        learning_rate: Of Adam.
        fixed: Columns that stay as they are, where the model is not conditioned on them.
    """
    problem, feasible = best.problem, best.problem.feasible

    def look(z: Tensor, factual: Tensor, context: Tensor | None, fixed: Tensor | None) -> Tensor:
        here = model.linearize(z, context)
        x = here.mean if fixed is None else torch.where(fixed, factual, here.mean)
        slope = gradient(loss, x, factual)
        slope = slope if fixed is None else slope.masked_fill(fixed, 0)
        return torch.cat([(slope[:, None] @ here.mean_jac)[:, 0], x], dim=1)

    z = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=learning_rate)
    width = start.shape[1]
    for _ in range(problem.options.max_steps + 1):
        if best.should_stop:
            return
        with torch.no_grad():
            looked = map_blocks(look, z.detach(), feasible.factual, context, fixed)
            x = feasible.legal(looked[:, width:])
            best.offer_later(x, map_blocks(loss, x, feasible.factual))
        z.grad = looked[:, :width]
        optimizer.step()


def grow_spheres(
    best: Best,
    center: Float[Tensor, "n k"],
    candidates: Candidates,
    *,
    samples: int,
    radius: float,
    growths: int,
    halvings: int = 0,
) -> None:
    """Draw points in shells around centers, each farther away than the one before, until one of a shell is valid.

    Of all valid points of that shell the closest one is taken, by the cost of the feasible set. First the ball of the
    given radius is halved until it holds no valid point. All rows share their draws, so that the answer of one does not
    depend on the others.

    Args:
        best: The best ends, which are updated.
        center: The rows in the space of the spheres.
        candidates: What points of that space stand for.
        samples: Points of a shell.
        radius: Of the first ball, and the width of a shell.
        growths: How many shells there are.
        halvings: How often the ball may be halved.
    """
    device, generator = center.device, torch.Generator().manual_seed(best.problem.setup.seed)
    pending = (~best.valid).nonzero()[:, 0]
    width = torch.full_like(center[:, 0], radius)

    def draw() -> tuple[Tensor, Tensor]:
        direction = torch.randn(samples, center.shape[1], generator=generator, dtype=torch.float64)
        direction = direction / direction.norm(dim=1, keepdim=True)
        return tuple(each.to(center) for each in (direction, torch.rand(samples, 1, generator=generator)))  # type: ignore[return-value]

    def valid_in(rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row whether the shell has a valid point, the closest of them, and its cost."""
        direction, share = draw()
        found = [(rows[:0] > 0, center.new_zeros(0, best.x.shape[1]), center[:0, 0])]
        for some in torch.arange(len(rows), device=device).split(max(1, _AT_ONCE // samples)):
            row = rows[some].repeat_interleave(samples)
            near, far = (each[some].repeat_interleave(samples)[:, None] for each in (low, high))
            points = center[row] + direction.repeat(len(some), 1) * torch.lerp(near, far, share.repeat(len(some), 1))
            x = candidates(points, row)
            good = best.problem.validator.is_valid(x, best.problem.feasible.origin[row])
            cost = best.problem.feasible.cost(x, row).masked_fill(~good, torch.inf).view(len(some), samples)
            least, index = cost.min(1)
            found.append((least < torch.inf, x.view(len(some), samples, -1)[torch.arange(len(some)), index], least))
        return tuple(map(torch.cat, zip(*found, strict=True)))  # type: ignore[return-value]

    inner, balls = pending, 0
    while len(inner) and balls < halvings and not best.should_stop:
        exists, x, cost = valid_in(inner, torch.zeros_like(width[inner]), width[inner])
        best.offer(x[exists], cost[exists], inner[exists])  # should the shells miss what the ball had
        inner, balls = inner[exists], balls + 1
        width[inner] /= 2
    low, high = width.clone(), 2 * width
    if halvings == 0:
        low, high = torch.zeros_like(width), width.clone()
    for _ in range(growths):
        if len(pending) == 0 or best.should_stop:
            return
        exists, x, cost = valid_in(pending, low[pending], high[pending])
        best.offer(x[exists], cost[exists], pending[exists])
        pending = pending[~exists]
        low, high = high, high + width

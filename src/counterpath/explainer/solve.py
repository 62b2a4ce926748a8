"""From a request to what was found: who is searched for, what came of it, and in which words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from counterpath.data import constraints
from counterpath.data.constraints import Constraints
from counterpath.data.status import BindingConstraint, Cause, Status, StatusCode
from counterpath.explanation.milestones import ALL, check_keep
from counterpath.fitting.fitted import FittedModels
from counterpath.search.conflicts import binding_constraints
from counterpath.search.diverse import Plans, one_plan, several_plans
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import METHODS
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.problem import AT_ONCE, SearchOptions
from counterpath.search.traverse import StopReason
from counterpath.utils.errors import InputError, choose

OTHER = "other"
"""The target class of a request for any class but the one that a row is in now."""
NEAREST = "nearest"
COPYING = (NEAREST, "face")
"""The methods whose counterfactuals are training rows."""
_CAUSES = {
    StopReason.ALL_STEPS_TAKEN: Cause.STEPS,
    StopReason.NO_WAY_DOWN: Cause.FLAT,
    StopReason.NOT_FINITE: Cause.NOT_FINITE,
}


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        target: The place of the wanted class; None for any class but the present one.
        confidence: What the probability of the wanted outcome must reach.
        method: A key of `METHODS`, or "nearest".
        walk: How to search.
        paths: How much of every path is kept, a key of `KEEPS`.
        constraints: What may change, and how easily.
        plans: How many different counterfactuals to find for every row.
    """

    target: int | None
    confidence: float
    method: str
    walk: SearchOptions
    paths: str = ALL
    constraints: Constraints = field(default_factory=Constraints)
    plans: int = 1

    def __post_init__(self) -> None:
        choose("method", self.method, {**METHODS, NEAREST: None})
        check_keep(self.paths)
        constraints.count("plans", self.plans)
        if not self.walk.allow_copies and self.method in COPYING:
            raise InputError(
                f"method {self.method!r} returns training rows, which allow_copies=False forbids: try method='geodesic'"
            )
        self.wanted(0)

    def wanted(self, now: int) -> Target:
        """What a row wants that is in class `now`."""
        if self.target is None:
            return Target(now, other=True, confidence=self.confidence)
        return Target(self.target, confidence=self.confidence)


@dataclass(frozen=True)
class Group:
    """Rows that want the same, and what was found for them: all of it but the ways there, which are long.

    Attributes:
        wanted: What they want.
        place: Their places among all rows that were asked about.
        factual: Their encoded rows.
        before: What the model answers for them.
        counterfactual: The rows to return, encoded: where their paths end.
        steps: How many steps each path has.
        status: What became of each.
    """

    wanted: Target
    place: Tensor
    factual: Tensor
    before: Tensor
    counterfactual: Tensor
    steps: Tensor
    status: tuple[Status, ...]

    @property
    def moved(self) -> Tensor:
        """Which rows are not returned as they were: their paths have more than one point."""
        return self.steps > 0


Found = tuple[Group, Paths]
"""A group, and the way from each of its rows, whose last point is what is returned."""


def answer(learned: FittedModels, frame: pd.DataFrame, place: Tensor, request: Request) -> Iterator[Found]:
    """Search for every row, in groups that want the same and are not too large.

    A group is searched for when it is asked for. So whoever keeps little of its paths needs no more memory for many
    rows than for one group.

    Args:
        learned: The models.
        frame: Rows without unknown categories.
        place: Their places among all rows that were asked about.
        request: What is asked for.

    Raises:
        InputError: A row is outside its own range.
    """
    x = learned.encoder.encode(frame).to(learned.rows.device)
    bounds, weights = (
        request.constraints.bounds(learned.encoder, frame, x),
        request.constraints.weights(learned.encoder),
    )
    answers = learned.explained.predict_proba_table(frame, x)
    now = answers.argmax(-1)
    for target in [0] if request.target is not None else now.unique().tolist():
        wanted = request.wanted(target)
        member = torch.ones_like(now, dtype=torch.bool) if request.target is not None else now == target
        already = wanted.met(answers)
        for rows, find in ((member & already, _unsearched), (member & ~already, _searched)):
            for some in rows.nonzero()[:, 0].split(max(AT_ONCE // request.plans, 1)):
                if len(some):
                    scope = FeasibleSet.of(learned.encoder, x[some], bounds.at(some), weights)
                    yield find(learned, scope, answers[some], place[some], wanted, request)


def _unsearched(
    learned: FittedModels, scope: FeasibleSet, before: Tensor, place: Tensor, wanted: Target, request: Request
) -> Found:
    paths = learned.quest(request.walk).stay(_repeated(scope, request.plans), wanted)
    exists = torch.arange(len(paths.reason), device=place.device) % request.plans == 0
    status = [Status(StatusCode.ALREADY)] * len(exists)
    return _group(Plans(paths, exists, torch.zeros_like(exists)), status, scope, before, place, wanted, request)


def _searched(
    learned: FittedModels, scope: FeasibleSet, before: Tensor, place: Tensor, wanted: Target, request: Request
) -> Found:
    quest, most = learned.quest(request.walk), request.constraints.max_changes

    def search(within: FeasibleSet) -> Paths:
        if request.method == NEAREST:
            return quest.line(within, learned.rows, learned.probabilities, wanted)
        return quest.pursue(METHODS[request.method](learned.parts), within, wanted)

    def probability(x: Tensor) -> Tensor:
        return wanted.probability(learned.explained.predict_proba(x))

    if request.plans == 1:
        paths = one_plan(search, scope, probability, most)
        plans = Plans(paths, torch.ones_like(paths.found), torch.zeros_like(paths.found))
    else:
        plans = several_plans(search, scope, probability, count=request.plans, most=most)
    paths = plans.paths
    short = (~paths.found & plans.exists & (paths.reason != StopReason.OUT_OF_TIME)).nonzero()[:, 0]
    wide = _repeated(scope, request.plans).at(short)
    ways = binding_constraints(wide, paths.x[paths.last[short]], probability, request.constraints) if len(short) else []
    in_the_way = dict(zip(short.tolist(), ways, strict=True))
    return _group(plans, _statuses(paths, request, in_the_way), scope, before, place, wanted, request)


def _group(
    plans: Plans,
    status: Sequence[Status],
    scope: FeasibleSet,
    before: Tensor,
    place: Tensor,
    wanted: Target,
    request: Request,
) -> Found:
    """One row for each person and plan."""
    count = request.plans
    numbers = torch.arange(count, device=place.device)
    given = zip(status, plans.exists.tolist(), plans.cut.tolist(), strict=True)
    whole = [what if there else _MISSING[cut] for what, there, cut in given]
    group = Group(
        wanted,
        (place[:, None] * count + numbers).flatten(),
        scope.factual.repeat_interleave(count, dim=0),
        before.repeat_interleave(count, dim=0),
        plans.paths.x[plans.paths.last],
        torch.bincount(plans.paths.row, minlength=len(whole)) - 1,
        tuple(whole),
    )
    return group, plans.paths


def _repeated(scope: FeasibleSet, count: int) -> FeasibleSet:
    return scope.at(torch.arange(len(scope), device=scope.factual.device).repeat_interleave(count))


_MISSING = {cut: Status(StatusCode.NO_OTHER_PLAN, Cause.TIME if cut else Cause.NONE) for cut in (False, True)}
"""The status of a plan that is not there, by whether the time was up."""


def _statuses(paths: Paths, request: Request, binding: Mapping[int, Sequence[BindingConstraint]]) -> list[Status]:
    """What became of every row."""
    reasons = [StopReason(code) for code in paths.reason.tolist()]
    whys = enumerate(zip(reasons, paths.led.tolist(), paths.gap.tolist(), strict=True))
    return [
        Status(StatusCode.CROSSES_GAP if gap else StatusCode.FOUND, fallback=led)
        if reason is StopReason.CONFIDENCE_REACHED
        else _not_found(reason, request, binding.get(row, ()))
        for row, (reason, led, gap) in whys
    ]


def _not_found(reason: StopReason, request: Request, binding: Sequence[BindingConstraint]) -> Status:
    if reason is StopReason.OUT_OF_TIME:
        return Status(StatusCode.OUT_OF_TIME)
    cause = Cause.NO_TRAINING_ROW if request.method == NEAREST else _CAUSES[reason]
    return Status(StatusCode.NOT_FOUND, cause, binding=tuple(binding))

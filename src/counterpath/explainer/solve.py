"""From a request to what was found: who is searched for, what came of it, and in which words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from counterpath.data import constraints
from counterpath.data.constraints import Constraints
from counterpath.data.status import LED
from counterpath.explanation import Status, wording
from counterpath.explanation.milestones import ALL, check_keep
from counterpath.fitting.fitted import Learned
from counterpath.search.conflicts import Obstacle, obstacles
from counterpath.search.diverse import Plans, one_plan, several_plans
from counterpath.search.feasible import Scope
from counterpath.search.method import METHODS
from counterpath.search.objective import Wanted
from counterpath.search.paths import Paths
from counterpath.search.problem import AT_ONCE, Walk
from counterpath.search.traverse import StopReason
from counterpath.utils.errors import InputError, choose

OTHER = "other"
"""The target class of a request for any class but the one that a row is in now."""
NEAREST = "nearest"
COPYING = (NEAREST, "face")
"""The methods whose counterfactuals are training rows."""
_BEST = "The best point on the way is returned. Try a lower confidence, more steps or another method."
_NOT_FOUND = {
    StopReason.ALL_STEPS_TAKEN: f"No point within the allowed steps has the asked confidence. {_BEST}",
    StopReason.NO_WAY_DOWN: f"The search came to a place where the model is flat. {_BEST}",
    StopReason.NOT_FINITE: f"The search ran into numbers that are not finite. {_BEST}",
}
_NO_TIME = "The time was up before a further plan was found, so the row is returned unchanged; allow more time."
_OBSTACLES = 3
_IN_THE_WAY = {
    "immutable": "{} is immutable",
    "lock": "{} is locked",
    "up": "{} may only go up",
    "down": "{} may only go down",
    "range": "{} must stay within its range",
    "max_changes": "at most {} features may change",
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
    walk: Walk
    paths: str = ALL
    constraints: Constraints = field(default_factory=Constraints)
    plans: int = 1

    def __post_init__(self) -> None:
        choose("method", self.method, {**METHODS, NEAREST: None})
        check_keep(self.paths)
        constraints.count("plans", self.plans)
        if not self.walk.allow_copies and self.method in COPYING:
            raise InputError(
                f"method {self.method!r} returns training rows, and allow_copies=False forbids it: try method='geodesic'"
            )
        self.wanted(0)

    def wanted(self, now: int) -> Wanted:
        """What a row wants that is in class `now`."""
        if self.target is None:
            return Wanted(now, other=True, confidence=self.confidence)
        return Wanted(self.target, confidence=self.confidence)


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
        status: What came of each.
        reason: The same in words.
        binding: Which constraints stand in the way of those without a counterfactual.
    """

    wanted: Wanted
    place: Tensor
    factual: Tensor
    before: Tensor
    counterfactual: Tensor
    steps: Tensor
    status: tuple[Status, ...]
    reason: tuple[str, ...]
    binding: tuple[str, ...]

    @property
    def moved(self) -> Tensor:
        """Which rows are not returned as they were: their paths have more than one point."""
        return self.steps > 0


Found = tuple[Group, Paths]
"""A group, and the way from each of its rows, whose last point is what is returned."""


def answer(learned: Learned, frame: pd.DataFrame, place: Tensor, request: Request) -> Iterator[Found]:
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
    answers = learned.subject.about(frame, x)
    now = answers.argmax(-1)
    for target in [0] if request.target is not None else now.unique().tolist():
        wanted = request.wanted(target)
        member = torch.ones_like(now, dtype=torch.bool) if request.target is not None else now == target
        already = wanted.met(answers)
        for rows, find in ((member & already, _unsearched), (member & ~already, _searched)):
            for some in rows.nonzero()[:, 0].split(max(AT_ONCE // request.plans, 1)):
                if len(some):
                    scope = Scope.of(learned.encoder, x[some], bounds.at(some), weights)
                    yield find(learned, scope, answers[some], place[some], wanted, request)


def _unsearched(
    learned: Learned, scope: Scope, before: Tensor, place: Tensor, wanted: Wanted, request: Request
) -> Found:
    paths = learned.quest(request.walk).stay(_repeated(scope, request.plans), wanted)
    exists = torch.arange(len(paths.reason), device=place.device) % request.plans == 0
    told = [_Told(Status.ALREADY, Status.ALREADY.text)] * len(exists)
    return _group(Plans(paths, exists, torch.zeros_like(exists)), told, scope, before, place, wanted, request)


def _searched(learned: Learned, scope: Scope, before: Tensor, place: Tensor, wanted: Wanted, request: Request) -> Found:
    quest, most = learned.quest(request.walk), request.constraints.max_changes

    def search(within: Scope) -> Paths:
        if request.method == NEAREST:
            return quest.line(within, learned.rows, learned.answers, wanted)
        return quest.pursue(METHODS[request.method](learned.parts), within, wanted)

    def probability(x: Tensor) -> Tensor:
        return wanted.probability(learned.subject.answers(x))

    if request.plans == 1:
        paths = one_plan(search, scope, probability, most)
        plans = Plans(paths, torch.ones_like(paths.found), torch.zeros_like(paths.found))
    else:
        plans = several_plans(search, scope, probability, count=request.plans, most=most)
    paths = plans.paths
    short = (~paths.found & plans.exists & (paths.reason != StopReason.OUT_OF_TIME)).nonzero()[:, 0]
    wide = _repeated(scope, request.plans).at(short)
    ways = obstacles(wide, paths.x[paths.last[short]], probability, request.constraints) if len(short) else []
    in_the_way = dict(zip(short.tolist(), ways, strict=True))
    return _group(plans, _told(paths, request, in_the_way), scope, before, place, wanted, request)


def _group(
    plans: Plans,
    told: Sequence["_Told"],
    scope: Scope,
    before: Tensor,
    place: Tensor,
    wanted: Wanted,
    request: Request,
) -> Found:
    """One row for each person and plan."""
    count = request.plans
    numbers = torch.arange(count, device=place.device)
    given = zip(told, plans.exists.tolist(), plans.cut.tolist(), strict=True)
    whole = [what if there else _MISSING[cut] for what, there, cut in given]
    group = Group(
        wanted,
        (place[:, None] * count + numbers).flatten(),
        scope.factual.repeat_interleave(count, dim=0),
        before.repeat_interleave(count, dim=0),
        plans.paths.x[plans.paths.last],
        torch.bincount(plans.paths.row, minlength=len(whole)) - 1,
        tuple(what.status for what in whole),
        tuple(what.reason for what in whole),
        tuple(what.binding for what in whole),
    )
    return group, plans.paths


def _repeated(scope: Scope, count: int) -> Scope:
    return scope.at(torch.arange(len(scope), device=scope.factual.device).repeat_interleave(count))


@dataclass(frozen=True)
class _Told:
    status: Status
    reason: str
    binding: str = ""


_MISSING = {cut: _Told(Status.NO_OTHER_PLAN, _NO_TIME if cut else Status.NO_OTHER_PLAN.text) for cut in (False, True)}
"""What is said of a plan that is not there, by whether the time was up."""


def _told(paths: Paths, request: Request, obstacles: Mapping[int, Sequence[Obstacle]]) -> list[_Told]:
    """What came of every row, and why, in a sentence."""
    best, reasons = paths.probability[paths.last].tolist(), [StopReason(code) for code in paths.reason.tolist()]
    found = {
        (led, gap): _Told(status, LED if led else status.text)
        for led in (False, True)
        for gap, status in ((False, Status.FOUND), (True, Status.CROSSES_GAP))
    }
    whys = enumerate(zip(reasons, paths.led.tolist(), paths.gap.tolist(), strict=True))
    return [
        found[led, gap]
        if reason is StopReason.CONFIDENCE_REACHED
        else _told_short(reason, best[row], request, obstacles.get(row, ()))
        for row, (reason, led, gap) in whys
    ]


def _told_short(reason: StopReason, best: float, request: Request, obstacles: Sequence[Obstacle]) -> _Told:
    """The same for a row whose best point, with this probability of the wanted outcome, is not good enough."""
    if reason is StopReason.OUT_OF_TIME:
        return _Told(Status.OUT_OF_TIME, Status.OUT_OF_TIME.text)
    why = "No training row within what may change has the wanted outcome with the asked confidence."
    why = why if request.method == NEAREST else _NOT_FOUND[reason]
    if obstacles:
        other = f"{wording.probability(best)}, but another class is more probable there"
        score = wording.shortfall(best, request.confidence) if best < request.confidence else other
        why = (
            why if request.method == NEAREST else f"Within what may change the search came to a probability of {score}."
        )
        why = f"{why} {_blocked(obstacles)}"
    return _Told(Status.NOT_FOUND, why, "; ".join(str(obstacle) for obstacle in obstacles))


def _blocked(group: Sequence[Obstacle]) -> str:
    """What binds, as a sentence."""
    words = [f"{_obstacle(one)} (else {wording.probability(one.reach)})" for one in group[:_OBSTACLES]]
    rest = len(group) - len(words)
    return f"In the way: {'; '.join(words)}{f'; and {rest} more' if rest else ''}."


def _obstacle(obstacle: Obstacle) -> str:
    if obstacle.kind == "max_changes" and obstacle.name == "1":
        return "only one feature may change"
    return _IN_THE_WAY[obstacle.kind].format(obstacle.name)

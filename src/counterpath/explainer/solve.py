"""From a request to paths: which rows are searched for, by which method, and what became of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.data.status import BindingConstraint, Cause, Status, StatusCode
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation.tables import END
from counterpath.fitting.fitted import FittedModels
from counterpath.models.explained import Thresholds, decide
from counterpath.models.latent import context_for
from counterpath.search.conflicts import binding_constraints
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, SearchOptions
from counterpath.search.methods import ROWS_AT_ONCE
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.plans import Plans, one_plan, several_plans
from counterpath.search.staging import stage
from counterpath.search.traverse import StopReason
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError

_CAUSES = {
    StopReason.ALL_STEPS_TAKEN: Cause.STEPS,
    StopReason.NO_WAY_DOWN: Cause.FLAT,
    StopReason.NOT_FINITE: Cause.NOT_FINITE,
}
_NO_PLAN = {
    timed_out: Status(StatusCode.NO_OTHER_PLAN, Cause.TIME if timed_out else Cause.NONE) for timed_out in (False, True)
}
"""The status of a plan that does not exist, by whether the time was up."""


@dataclass(frozen=True)
class Group:
    """Rows with the same target, and what was found for them: all of it but the paths, which are long.

    Attributes:
        target: What the model is to predict for them.
        index: Their indices among all rows and plans that were asked for.
        factual: The rows, encoded.
        before: The probabilities that the model gives them.
        counterfactual: The rows to return, encoded: where their paths end.
        steps: How many steps each path has.
        status: What became of each.
    """

    target: Target
    index: Tensor
    factual: Tensor
    before: Tensor
    counterfactual: Tensor
    steps: Tensor
    status: tuple[Status, ...]

    @property
    def moved(self) -> Tensor:
        """Which rows are not returned as they were: their paths have more than one point."""
        return self.steps > 0


@dataclass(frozen=True)
class Solver:
    """Solves one request with fitted models.

    Attributes:
        models: The models.
        request: What is asked for.
        method: How to search.
        options: The settings of the search.
        constraints: What may change.
        thresholds: How the model decides, as of `decide`.
    """

    models: FittedModels
    request: Request
    method: Method
    options: SearchOptions
    constraints: Constraints
    thresholds: Thresholds | None = None

    def __post_init__(self) -> None:
        if self.method.returns_training_rows and not self.options.allow_copies:
            raise InputError(
                f"method {self.method.name!r} returns training rows, and allow_copies=False forbids them: "
                "try method='geodesic'"
            )

    @property
    def target_index(self) -> int | None:
        """The index of the target class; None for any class but the present one."""
        explained, wanted = self.models.explained, self.request.target_class
        return None if wanted == OTHER and OTHER not in explained.classes else explained.class_index(wanted)

    def solve(self, frame: pd.DataFrame, index: Tensor) -> Iterator[tuple[Group, Paths]]:
        """Search for every row, in groups with the same target that are not too large.

        A group is searched for when it is asked for. So whoever keeps little of its paths needs no more memory for many
        rows than for one group.

        Args:
            frame: Rows without unknown categories.
            index: Their indices among all rows that were asked about.

        Yields:
            A group, and the path of each of its rows, whose last point is what is returned.

        Raises:
            InputError: A range holds no category of the training rows.
        """
        models, constraints, target_index = self.models, self.constraints, self.target_index
        x = models.encoder.encode(frame).to(models.rows.device)
        bounds, costs = constraints.bounds(models.encoder, frame, x), constraints.weights(models.encoder)
        probabilities = models.explained.predict_proba_table(frame, x)
        predicted = decide(probabilities, self.thresholds)
        hopeless = torch.zeros_like(predicted, dtype=torch.bool)
        hopeless[list(bounds.hopeless)] = True
        inside, like = bounds.hold(x), self._reconstructed(x) if constraints.ranges else x
        for present in [0] if target_index is not None else predicted.unique().tolist():
            member = torch.ones_like(predicted, dtype=torch.bool) if target_index is not None else predicted == present
            target = Target(
                present if target_index is None else target_index,
                other=target_index is None,
                confidence=self.request.confidence,
                thresholds=self.thresholds,
            )
            already = target.is_reached(probabilities) & inside
            for rows in (member & hopeless, member & already & ~hopeless, member & ~already & ~hopeless):
                for some in rows.nonzero()[:, 0].split(max(ROWS_AT_ONCE // self.request.plans, 1)):
                    if len(some):
                        why = [bounds.hopeless.get(row, "") for row in some.tolist()]
                        box = None if why[0] else bounds.at(some)
                        feasible = FeasibleSet.of(models.encoder, x[some], box, costs, like=like[some])
                        stays = bool(why[0]) or bool(already[some[0]])
                        # No variable here may hold the paths of a group while the next one is searched for.
                        yield self._group(
                            *(self._stay(feasible, target, why) if stays else self._search(feasible, target)),
                            feasible,
                            probabilities[some],
                            index[some],
                            target,
                        )

    def _reconstructed(self, x: Tensor) -> Tensor:
        """What the generative model makes of rows: with which probability each category."""
        latent = self.models.latent
        with torch.no_grad():
            return map_blocks(latent.decode, map_blocks(latent.encode, x), context_for(latent, x))

    def _stay(self, feasible: FeasibleSet, target: Target, why: Sequence[str]) -> tuple[Plans, list[Status]]:
        """Paths of one point, for rows that have reached the target, or cannot get where they must end."""
        repeated = feasible.repeat(self.request.plans)
        row = torch.arange(len(repeated), device=feasible.factual.device)
        problem = self.models.problem(self.method, repeated, target, self.options)
        paths = problem.paths(row, repeated.factual, torch.full_like(row, StopReason.CONFIDENCE_REACHED))
        exists = row % self.request.plans == 0
        each = [Status(StatusCode.OUTSIDE, detail=one) if one else Status(StatusCode.ALREADY) for one in why]
        status = [one for one in each for _ in range(self.request.plans)]
        return Plans(paths, exists, torch.zeros_like(exists)), status

    def _search(self, feasible: FeasibleSet, target: Target) -> tuple[Plans, list[Status]]:
        request, options = self.request, self.options

        def probability(x: Tensor) -> Tensor:
            return target.probability(self.models.explained.predict_proba(x))

        # What is missing stays missing, and nobody becomes somebody whom nobody has seen; rather that than nothing.
        kept = feasible.keep_gaps()
        tries = [(kept, options)] if kept is feasible else [(kept, options), (feasible, options)]
        tries += [(feasible, replace(options, avoid_unseen=False))] if options.avoid_unseen else []
        plans = self._plans(kept, target, options)
        for within, how in tries[1:]:
            stuck = ~plans.paths.found.view(-1, request.plans).any(1)
            if how is options:
                stuck &= (within.fixed != kept.fixed).any(1)  # nothing is missing of the others
            rows = stuck.nonzero()[:, 0]
            if len(rows) and not options.should_stop():
                plans = plans.replace_rows(rows, self._plans(within.at(rows), target, how), request.plans)
        paths = plans.paths
        missed = (~paths.found & plans.exists & (paths.reason != StopReason.OUT_OF_TIME)).nonzero()[:, 0]
        binding: dict[int, list[BindingConstraint]] = {}
        if len(missed):
            wide, ends = feasible.repeat(request.plans).at(missed), paths.x[paths.last[missed]]
            found = binding_constraints(wide, ends, probability, self.constraints)
            binding = dict(zip(missed.tolist(), found, strict=True))
        return plans, self._statuses(paths, feasible.repeat(request.plans), binding)

    def _plans(self, feasible: FeasibleSet, target: Target, options: SearchOptions) -> Plans:
        """The plans of every row."""
        max_changes = self.constraints.max_changes

        def search(within: FeasibleSet) -> Paths:
            return self.models.search(self.method, within, target, options)

        def probability(x: Tensor) -> Tensor:
            return target.probability(self.models.explained.predict_proba(x))

        if self.request.plans > 1:
            count = self.request.plans
            return several_plans(search, feasible, probability, count=count, max_changes=max_changes)
        paths = one_plan(search, feasible, probability, max_changes)
        return Plans(paths, torch.ones_like(paths.found), torch.zeros_like(paths.found))

    def _statuses(
        self, paths: Paths, feasible: FeasibleSet, binding: Mapping[int, Sequence[BindingConstraint]]
    ) -> list[Status]:
        """What became of every row."""
        reasons = [StopReason(code) for code in paths.reason.tolist()]
        unseen = self.models.combinations.names(paths.x[paths.last], feasible.origin)
        each = enumerate(zip(reasons, paths.fallback.tolist(), paths.gap.tolist(), unseen, strict=True))
        return [
            Status(StatusCode.CROSSES_GAP if gap else StatusCode.FOUND, fallback=fallback, unseen_pairs=tuple(pairs))
            if reason is StopReason.CONFIDENCE_REACHED
            else self._not_found(reason, binding.get(row, ()))
            for row, (reason, fallback, gap, pairs) in each
        ]

    def _not_found(self, reason: StopReason, binding: Sequence[BindingConstraint]) -> Status:
        if reason is StopReason.OUT_OF_TIME:
            return Status(StatusCode.OUT_OF_TIME)
        cause = Cause.NO_TRAINING_ROW if self.method.returns_training_rows else _CAUSES[reason]
        return Status(StatusCode.NOT_FOUND, cause, binding=tuple(binding))

    def _group(
        self,
        plans: Plans,
        status: Sequence[Status],
        feasible: FeasibleSet,
        before: Tensor,
        index: Tensor,
        target: Target,
    ) -> tuple[Group, Paths]:
        """A group, with one row for each row and plan, and its paths."""
        count, validator = (
            self.request.plans,
            self.models.problem(self.method, feasible, target, self.options).validator,
        )
        paths = validator.from_origin(feasible.repeat(count), plans.paths)
        steps = torch.bincount(paths.row, minlength=len(status)) - 1
        if self.options.staged and self.request.paths != END and not self.method.returns_training_rows:
            paths = stage(validator, feasible.repeat(count), paths)
        each = zip(status, plans.exists.tolist(), plans.timed_out.tolist(), strict=True)
        whole = tuple(one if exists else _NO_PLAN[timed_out] for one, exists, timed_out in each)
        group = Group(
            target,
            (index[:, None] * count + torch.arange(count, device=index.device)).flatten(),
            feasible.origin.repeat_interleave(count, dim=0),
            before.repeat_interleave(count, dim=0),
            paths.x[paths.last],
            steps,
            whole,
        )
        return group, paths

"""From a request to paths: which rows are searched for, by which method, and what became of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.data.axes import NumberAxis, spacing, value_axis
from counterpath.data.constraints import Bounds, Constraints
from counterpath.data.returned import decoded_rows
from counterpath.data.row_constraints import OWN_CONSTRAINTS, OWN_TARGETS, merged
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.status import BindingConstraint, Cause, Status, StatusCode
from counterpath.data.tables import to_numbers
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation.tables import END
from counterpath.fitting.fitted import FittedModels
from counterpath.models.classifier import Thresholds, decide
from counterpath.models.latent import context_for
from counterpath.search.actions import cheapest_actions
from counterpath.search.conflicts import binding_constraints
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchOptions
from counterpath.search.methods import rows_at_once, search
from counterpath.search.objective import NumberTarget, Target, by_confidence, by_row
from counterpath.search.paths import Paths, merge
from counterpath.search.plans import Plans, one_plan, several_plans
from counterpath.search.stability import Stability, share_of
from counterpath.search.staging import stage
from counterpath.search.traverse import StopReason
from counterpath.search.validity import Validator, without_broken
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError

_CAUSES = {
    StopReason.ALL_STEPS_TAKEN: Cause.STEPS,
    StopReason.NO_WAY_DOWN: Cause.FLAT,
    StopReason.NOT_FINITE: Cause.NOT_FINITE,
}
_FOUND = Status(StatusCode.FOUND)
_OFF = 1e-3
"""Of a probability: far above what the eighth digit of a number does to a smooth model, far below a step of a tree."""
_MORE_REFUSALS = (3, 12)
"""How many times as many models may refuse, and one more, where nothing lasts: each is a search for these rows."""
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
        steps_known: For which the way was looked for: not by a method that finds the end first, if only that is asked.
    """

    target: Target
    index: Tensor
    factual: Tensor
    before: Tensor
    counterfactual: Tensor
    steps: Tensor
    status: tuple[Status, ...]
    steps_known: Tensor

    @property
    def moved(self) -> Tensor:
        """Which rows are not returned as they were: their paths have more than one point."""
        return self.steps > 0


@dataclass(frozen=True)
class _Part:
    """Rows with the same target that are searched for together, or none of which is searched for.

    Attributes:
        frame: The rows as they were given.
        feasible: What each of them may become.
        target: What the model is to predict.
        before: The probabilities that it gives them now.
        index: Their indices among all rows.
        why: For each why it cannot get where it must end; empty if it can.
        constraints: The constraints of each.
        stays: Whether nothing is searched for: they have reached the target, or cannot.
    """

    frame: pd.DataFrame
    feasible: FeasibleSet
    target: Target
    before: Tensor
    index: Tensor
    why: Sequence[str]
    constraints: Sequence[Constraints]
    stays: bool


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
        self.request.check_target(self.models.explained)
        if self.method.returns_training_rows and not self.options.allow_copies:
            raise InputError(
                f"method {self.method.name!r} returns training rows, and allow_copies=False forbids them: "
                "try method='geodesic'"
            )

    @property
    def target_index(self) -> int | None:
        """The index of the target class; None for any class but the present one."""
        explained, wanted = self.models.explained, self.request.target_class
        if explained.numbers and wanted == OTHER:
            return 0
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
        for solver, some, confidences in self._by_target(index):
            yield from solver._solve(frame.iloc[some.cpu().numpy()], index[some], confidences)

    def _by_target(self, index: Tensor, *, mix: bool = True) -> Iterator[tuple["Solver", Tensor, Tensor | None]]:
        """Which rows have a target of their own, and what solves for them; by their position.

        Rows that differ in their confidence alone are solved for together, if that is wanted and the method can do it:
        then the third value says what each of them asks for, NaN for the model's own decision.
        """
        every = torch.arange(len(index), device=index.device)
        rows = self.request.row_constraints
        if not rows:
            yield self, every, None
            return
        targets: dict[str, tuple[dict[str, Any], list[int], list[float]]] = {}
        for position, row in enumerate(index.tolist()):
            own = {name: rows[row][name] for name in OWN_TARGETS if name in rows[row]}
            asked = own.get("confidence", self.request.confidence)
            together = mix and self._mixes_confidences and not isinstance(asked, list | tuple)
            key = {name: value for name, value in own.items() if name != "confidence" or not together}
            _, some, levels = targets.setdefault(f"{together} {sorted(key.items(), key=str)!r}", (own, [], []))
            some.append(position)
            levels.append(math.nan if asked is None or not together else float(asked))
        for own, some, levels in targets.values():
            solver = replace(self, request=replace(self.request, **own)) if own else self
            differ = len({repr(level) for level in levels}) > 1
            confidences = torch.tensor(levels, dtype=torch.float64, device=index.device) if differ else None
            yield solver, every[torch.tensor(some, device=index.device)], confidences

    @property
    def _mixes_confidences(self) -> bool:
        """Whether rows with other confidences can be searched for together."""
        numbers, stable = self.models.explained.numbers, self.options.stability is None
        causes = self.constraints.graph(self.models.encoder.schema) is not None
        return self.method.row_by_row and stable and not numbers and not causes

    def _own_constraints(self, index: Tensor) -> list[Constraints]:
        """The constraints of each row, of which equal ones are the same object."""
        rows, schema = self.request.row_constraints, self.models.encoder.schema
        if not rows:
            return [self.constraints] * len(index)
        known: dict[str, Constraints] = {}
        found = []
        for row in index.tolist():
            key = repr([(name, rows[row][name]) for name in OWN_CONSTRAINTS if name in rows[row]])
            if key not in known:
                known[key] = merged(self.constraints, rows[row], schema)
            found.append(known[key])
        return found

    def _own_answers(self, index: Tensor) -> dict[str, Tensor]:
        """How many plans rows ask for, and which of them ask for the way, where they differ; as of `FeasibleSet`."""
        request, rows, found = self.request, index.tolist() if self.request.row_constraints else [], {}
        plans = [request.of_row("plans", row) for row in rows]
        ways = [request.of_row("paths", row) != END for row in rows]
        if any(count != request.plans for count in plans):
            found["plan_counts"] = torch.tensor(plans, device=index.device)
        if any(asked != (request.paths != END) for asked in ways):
            found["ways"] = torch.tensor(ways, device=index.device)
        return found

    def _bounds(self, frame: pd.DataFrame, x: Tensor, each: Sequence[Constraints]) -> Bounds:
        """The bounds of all rows, by their own constraints."""
        encoder, different = self.models.encoder, {id(one): one for one in each}
        if len(different) == 1:
            return each[0].bounds(encoder, frame, x)
        lower, upper, locked = torch.empty_like(x), torch.empty_like(x), torch.zeros_like(x, dtype=torch.bool)
        hopeless: dict[int, str] = {}
        for key, one in different.items():
            some = [position for position, other in enumerate(each) if id(other) == key]
            rows = torch.tensor(some, device=x.device)
            part = one.bounds(encoder, frame.iloc[some], x[rows])
            lower[rows], upper[rows], locked[rows] = part.lower, part.upper, part.locked
            hopeless |= {some[row]: why for row, why in part.hopeless.items()}
        return Bounds(lower, upper, locked, hopeless)

    def _solve(self, frame: pd.DataFrame, index: Tensor, confidences: Tensor | None) -> Iterator[tuple[Group, Paths]]:
        """The same for rows that have one target, but for the class that they are in now, and their confidence."""
        for part in self._parts(frame, index, confidences):
            # No variable here may hold the paths of a group while the next one is searched for.
            yield from self._groups(
                *(
                    self._stay(part.feasible, part.target, part.why)
                    if part.stays
                    else self._over_edges(part, *self._search(part.feasible, part.target, part.constraints))
                ),
                part.feasible,
                part.before,
                part.index,
                part.target,
            )

    def problems(self, frame: pd.DataFrame, index: Tensor) -> Iterator[tuple[Tensor, Problem | None]]:
        """What there is to search for, without searching: the indices of rows, and the problem that they share.

        Rows that cannot get where they must end have none; those that have reached the target are left out. What is
        missing stays missing.
        """
        for solver, some, _ in self._by_target(index, mix=False):
            for part in solver._parts(frame.iloc[some.cpu().numpy()], index[some], None):
                if not part.stays:
                    kept, limit = part.feasible.keep_gaps(), solver.constraints.max_changes
                    yield part.index, self.models.problem(self.method, kept, part.target, self.options, limit)
                elif part.why[0]:
                    yield part.index, None

    def _parts(self, frame: pd.DataFrame, index: Tensor, confidences: Tensor | None) -> Iterator["_Part"]:
        """The rows in groups that are not too large, with what each row may become."""
        models, constraints, target_index = self.models, self.constraints, self.target_index
        each, asked = self._own_constraints(index), self._own_answers(index)
        x = models.encoder.encode(frame).to(models.rows.device)
        probabilities = models.explained.predict_proba_table(frame, x)
        x = self._on_their_side(frame, x, probabilities)
        bounds, costs = self._bounds(frame, x, each), constraints.weights(models.encoder)
        most = rows_at_once(x.device, x.shape[1])
        rules, schema = constraints.ruleset(models.encoder), models.encoder.schema
        graph = constraints.graph(schema)
        effects = None if graph is None else models.effects(graph, constraints.always_follow(schema))
        predicted = decide(probabilities, self.thresholds)
        hopeless = torch.zeros_like(predicted, dtype=torch.bool)
        hopeless[list(bounds.hopeless)] = True
        inside, like = bounds.hold(x), self._reconstructed(x) if any(one.ranges for one in each) else x
        if rules is not None:
            inside &= rules.hold(x, x)
            for row, broken in self._unlawful(rules, x, bounds, like).items():
                bounds.hopeless.setdefault(row, broken)
                hopeless[row] = True
        for present in [0] if target_index is not None else predicted.unique().tolist():
            member = torch.ones_like(predicted, dtype=torch.bool) if target_index is not None else predicted == present
            target = self._target(present, target_index)
            already = by_row(target, confidences).is_reached(probabilities) & inside
            if self.options.stability is not None:
                rows = already.nonzero()[:, 0]
                lasts = self.options.stability.holds(x[rows], x[rows], target, models.explained.predict_proba)
                already = already.index_copy(0, rows, lasts)
            for rows in (member & hopeless, member & already & ~hopeless, member & ~already & ~hopeless):
                for some in rows.nonzero()[:, 0].split(max(most // self.request.plans, 1)):
                    if len(some):
                        why = [bounds.hopeless.get(row, "") for row in some.tolist()]
                        box = None if why[0] else bounds.at(some)
                        stays = bool(why[0]) or bool(already[some[0]])
                        laws: dict[str, Any] = {} if stays else {"rules": rules, "effects": effects}
                        feasible = FeasibleSet.of(models.encoder, x[some], box, costs, like=like[some], **laws)
                        own_answers: dict[str, Any] = {name: every[some] for name, every in asked.items()}
                        feasible = replace(feasible, **own_answers)
                        if confidences is not None:
                            feasible = replace(feasible, confidences=confidences[some])
                        own = [each[row] for row in some.tolist()]
                        given = frame.iloc[some.cpu().numpy()]
                        yield _Part(given, feasible, target, probabilities[some], index[some], why, own, stays)

    def _on_their_side(self, frame: pd.DataFrame, x: Tensor, probabilities: Tensor) -> Tensor:
        """Encoded rows for which the model says what it says of the rows themselves.

        A number with more digits than the encoding has is decoded as one beside it, and trees split at the very numbers
        of their training rows: a filled-in mean, say, may lie on the other side. Where that changes the probabilities,
        such numbers are encoded as the next point beyond what was given.

        Args:
            frame: The rows.
            x: The same, encoded.
            probabilities: What the model says of the rows themselves.
        """
        explained, encoder = self.models.explained, self.models.encoder
        if explained.table_proba is None or explained.numbers:
            return x
        off = (explained.predict_proba(x) - probabilities).abs().amax(-1)
        rows = (off > _OFF).nonzero()[:, 0]
        if len(rows) == 0:
            return x
        given = frame.iloc[rows.cpu().numpy()]
        decoded, beside = encoder.decode(x[rows].cpu()), x[rows].clone()
        for feature, axis, columns in zip(encoder.schema, encoder.axes, encoder.layout, strict=True):
            if not isinstance(value_axis(axis), NumberAxis):
                continue
            own, back = (to_numbers(table[feature.name], feature) for table in (given, decoded))
            toward = torch.from_numpy(np.nan_to_num(np.sign(own - back))).to(x)
            column = beside[:, columns.start]
            beside[:, columns.start] = column + toward * spacing(column)
        nearer = (explained.predict_proba(beside) - probabilities[rows]).abs().amax(-1) < off[rows]
        return x.index_copy(0, rows[nearer], beside[nearer])

    def _target(self, present: int, target_index: int | None) -> Target:
        """What rows of a class, or all rows, are to become."""
        if self.request.target_range is not None:
            low, high = self.request.target_range
            ends = -math.inf if low is None else low, math.inf if high is None else high
            return NumberTarget(low=ends[0], high=ends[1], spread=self.models.spread)
        return Target(
            present if target_index is None else target_index,
            other=target_index is None,
            confidence=self.request.confidence,
            thresholds=self.thresholds,
        )

    def _unlawful(self, rules: RuleSet, x: Tensor, bounds: Bounds, like: Tensor) -> dict[int, str]:
        """By row which rules it breaks, if nothing that may change mends that."""
        broken = rules.broken(x, x)
        rows = [row for row in broken.any(1).nonzero()[:, 0].tolist() if row not in bounds.hopeless]
        if not rows:
            return {}
        some = torch.tensor(rows, device=x.device)
        feasible = FeasibleSet.of(self.models.encoder, x[some], bounds.at(some), like=like[some], rules=rules)
        left = rules.broken(feasible.factual, feasible.origin)
        found = {}
        for row, still in zip(rows, left, strict=True):
            names = [f"“{rules.texts[index]}”" for index in still.nonzero()[:, 0].tolist()]
            if names:
                found[row] = f"It breaks the rule {' and '.join(names)}, and nothing that may change mends that."
        return found

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

    def _search(
        self, feasible: FeasibleSet, target: Target, constraints: Sequence[Constraints]
    ) -> tuple[Plans, list[Status]]:
        request, options = self.request, self.options
        if options.stability is not None:
            options = replace(options, stability=options.stability.for_a_search())
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
        plans, fragile = self._rather_fragile(plans, tries[-1][0], target, tries[-1][1])
        paths = plans.paths
        missed = (~paths.found & plans.exists & (paths.reason != StopReason.OUT_OF_TIME)).nonzero()[:, 0]
        binding: dict[int, list[BindingConstraint]] = {}
        if len(missed):
            wide, ends = feasible.repeat(request.plans).at(missed), paths.x[paths.last[missed]]
            own = [constraints[row // request.plans] for row in missed.tolist()]
            found = binding_constraints(wide, ends, self.models.explained.predict_proba, target, own)
            binding = dict(zip(missed.tolist(), found, strict=True))
        status = self._statuses(paths, feasible.repeat(request.plans), binding)
        return plans, self._with_shares(status, paths, target, fragile)

    def _over_edges(self, part: _Part, plans: Plans, status: list[Status]) -> tuple[Plans, list[Status]]:
        """The same, searched for again where the model decides otherwise on a row exactly as it is returned.

        What did not change is returned with all of its digits, and trees split at the very numbers of their training
        rows. These people are few; each is searched for alone, with a model that is asked about nothing else.
        """
        models, paths, count = self.models, plans.paths, self.request.plans
        found = paths.found.nonzero()[:, 0]
        if models.explained.table_proba is None or len(found) == 0:
            return plans, status
        end, people = paths.x[paths.last[found]], found // count
        origin, given = part.feasible.origin, part.frame
        table = decoded_rows(models.encoder, end, origin[people], given.iloc[people.cpu().numpy()])
        confidences = part.feasible.confidences
        target = by_row(part.target, None if confidences is None else confidences[people])
        refused = ~target.is_reached(models.explained.predict_proba_table(table, end))
        for row in people[refused].unique().tolist():
            if self.options.should_stop():
                break
            alone = replace(self, models=models.asked_exactly(given.iloc[[row]], origin[row]))
            some = torch.tensor([row], device=people.device)
            again, said = alone._search(part.feasible.at(some), part.target, [part.constraints[row]])
            plans = plans.replace_rows(some, again, count)
            status = [*status[: row * count], *said, *status[(row + 1) * count :]]
        return plans, status

    def _rather_fragile(
        self, plans: Plans, feasible: FeasibleSet, target: Target, options: SearchOptions
    ) -> tuple[Plans, Tensor]:
        """The same with what comes nearest to lasting, for rows that have nothing that lasts; and which rows that is.

        More and more models may refuse, until something is found; at last any number, and any deviation may be fatal.
        """
        stability, count = options.stability, self.request.plans
        fragile = torch.zeros_like(plans.exists)
        if stability is None:
            return plans, fragile
        rungs: list[Stability | None] = [None]
        if stability.members is not None:
            size = len(stability.members)
            refusals = [int((stability.allowed[0] + 1) * each) for each in _MORE_REFUSALS]
            rungs = [*(stability.relaxed(each) for each in refusals if each < size), None]
        for rung in rungs:
            paths = plans.paths
            late = (paths.reason == StopReason.OUT_OF_TIME).view(-1, count).any(1)
            rows = (~paths.found.view(-1, count).any(1) & ~late).nonzero()[:, 0]
            if len(rows) == 0 or options.should_stop():
                break
            others = self._plans(feasible.at(rows), target, replace(options, stability=rung))
            found = others.paths.found.view(-1, count).any(1)
            chosen = (rows[found][:, None] * count + torch.arange(count, device=rows.device)).flatten()
            some = found.nonzero()[:, 0]
            kept = (some[:, None] * count + torch.arange(count, device=rows.device)).flatten()
            part = Plans(others.paths.select(kept), others.exists[kept], others.timed_out[kept])
            plans = plans.replace_rows(rows[found], part, count)
            fragile[chosen] = True
        return plans, fragile

    def _with_shares(self, status: list[Status], paths: Paths, target: Target, fragile: Tensor) -> list[Status]:
        """The same with the share of the family's models that give every row that is returned the wanted outcome."""
        stability = self.options.stability
        if stability is None:
            return status
        shares: list[float | None] = [None] * len(status)
        if stability.members is not None:
            shares = share_of(stability.members, paths.x[paths.last], target).tolist()
        each = zip(status, shares, fragile.tolist(), strict=True)
        return [
            replace(one, share=share, code=StatusCode.FRAGILE if weak and one.code.found else one.code)
            for one, share, weak in each
        ]

    def _plans(self, feasible: FeasibleSet, target: Target, options: SearchOptions) -> Plans:
        """The plans of every row, under what the options ask."""
        max_changes, whole = self.constraints.max_changes, self.method.respects_limits
        if options.stability is not None:
            lasting = replace(options.stability, chosen=self.method.chooses_features)
            options = replace(options, stability=lasting)
            if lasting.one_change and whole:
                max_changes = 1  # all of these are tried, and nothing else in vain

        def look(within: FeasibleSet) -> Paths:
            limit = max_changes if whole else None
            problem = self.models.problem(self.method, within, target, options, limit)
            found = search(self.method, problem)
            if within.effects is None or (self.method.returns_training_rows and not options.refine):
                return found
            return cheapest_actions(problem.validator, within, found)

        def probability(x: Tensor) -> Tensor:
            return target.score(self.models.explained.predict_proba(x))

        if self.request.plans > 1:
            count = self.request.plans
            return several_plans(
                look, feasible, probability, count=count, max_changes=max_changes, respects_limits=whole
            )
        paths = look(feasible) if whole else one_plan(look, feasible, probability, max_changes)
        return Plans(paths, torch.ones_like(paths.found), torch.zeros_like(paths.found))

    def _statuses(
        self, paths: Paths, feasible: FeasibleSet, binding: Mapping[int, Sequence[BindingConstraint]]
    ) -> list[Status]:
        """What became of every row."""
        status = [_FOUND] * len(paths.reason)
        plain = paths.found & ~(paths.fallback | paths.gap | paths.implausible)
        rows = plain.nonzero()[:, 0]
        unseen = self.models.combinations.count(paths.x[paths.last[rows]], feasible.origin[rows]) > 0
        others = torch.cat([rows[unseen], (~plain).nonzero()[:, 0]])
        names = self.models.combinations.names(paths.x[paths.last[others]], feasible.origin[others])
        said = (paths.reason, paths.fallback, paths.gap, paths.implausible)
        each = zip(others.tolist(), *(flags[others].tolist() for flags in said), names, strict=True)
        for row, reason, fallback, gap, implausible, pairs in each:
            if reason != StopReason.CONFIDENCE_REACHED:
                status[row] = self._not_found(StopReason(reason), binding.get(row, ()))
                continue
            code = StatusCode.CROSSES_GAP if gap else StatusCode.IMPLAUSIBLE if implausible else StatusCode.FOUND
            status[row] = Status(code, fallback=fallback, unseen_pairs=tuple(pairs))
        return self._with_rules(status, paths, feasible) if feasible.ruled else status

    def _with_rules(self, status: list[Status], paths: Paths, feasible: FeasibleSet) -> list[Status]:
        """The same with what follows from the changes of each row, and which rules it breaks as it is."""
        rules = feasible.rules
        if feasible.effects is not None or (rules is not None and rules.derived):
            end, names = paths.x[paths.last], feasible.encoder.schema.names
            follow = (feasible.encoder.changed(feasible.origin, end) & ~feasible.actions(end)).tolist()
            some = [tuple(name for name, is_it in zip(names, row, strict=True) if is_it) for row in follow]
            status = [replace(one, follows=each) for one, each in zip(status, some, strict=True)]
        if rules is None:
            return status
        broken = rules.broken(feasible.origin, feasible.origin).tolist()
        texts = [tuple(text for text, is_it in zip(rules.texts, row, strict=True) if is_it) for row in broken]
        return [replace(one, broken=each) for one, each in zip(status, texts, strict=True)]

    def _not_found(self, reason: StopReason, binding: Sequence[BindingConstraint]) -> Status:
        if reason is StopReason.OUT_OF_TIME:
            return Status(StatusCode.OUT_OF_TIME)
        cause = Cause.NO_TRAINING_ROW if self.method.returns_training_rows else _CAUSES[reason]
        return Status(StatusCode.NOT_FOUND, cause, binding=tuple(binding))

    def _groups(
        self,
        plans: Plans,
        status: Sequence[Status],
        feasible: FeasibleSet,
        before: Tensor,
        index: Tensor,
        target: Target,
    ) -> Iterator[tuple[Group, Paths]]:
        """The groups of some rows, one for each confidence that they ask for, each with its paths."""
        whole, paths = self._group(plans, status, feasible, before, index, target)
        del plans
        if feasible.confidences is None:
            yield whole, paths
            return
        for one, rows in by_confidence(target, feasible.repeat(self.request.plans).confidences):
            part = replace(
                whole,
                target=one,
                **{
                    name: getattr(whole, name)[rows]
                    for name in ("index", "factual", "before", "counterfactual", "steps", "steps_known")
                },
                status=tuple(whole.status[row] for row in rows.tolist()),
            )
            yield part, paths.select(rows)

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
        if feasible.ruled:
            paths = without_broken(validator, feasible.repeat(count), paths)
        steps = torch.bincount(paths.row, minlength=len(status)) - 1
        walked = torch.full_like(steps, self.request.paths != END, dtype=torch.bool)
        if feasible.ways is not None:
            walked &= feasible.ways.repeat_interleave(count)
        if self.options.staged and not (self.method.returns_training_rows and not self.options.refine):
            paths = _staged(validator, feasible.repeat(count), paths, walked)
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
            steps_known=walked | torch.full_like(walked, not self.method.ends_first),
        )
        return group, paths


def _staged(validator: Validator, feasible: FeasibleSet, paths: Paths, walked: Tensor) -> Paths:
    """The paths, in steps that people can take where the way is asked for."""
    some = walked.nonzero()[:, 0]
    if len(some) == 0:
        return paths
    within, rest = feasible.at(some), (~walked).nonzero()[:, 0]
    staged = stage(validator, within, paths.select(some) if len(rest) else paths)
    if feasible.ruled:
        staged = without_broken(validator, within, staged)
    return merge([(some, staged), (rest, paths.select(rest))]) if len(rest) else staged

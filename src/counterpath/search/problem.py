"""From people to counterfactuals, on tensors: search until the model itself says yes, and keep the way there."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from counterpath.models.classifier import Differentiable, probabilities
from counterpath.models.latent import LatentModel
from counterpath.search.face import FaceGraph
from counterpath.search.fallback import led
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import travel
from counterpath.search.method import Method
from counterpath.search.nearest import nearest_within, straight_path
from counterpath.search.objective import Objective, Target
from counterpath.search.paths import Paths, behind, better, ended, firsts, flat, merged, progress, some, stations
from counterpath.search.residual import Data, ResidualDecoder
from counterpath.search.roadmap import Roadmap
from counterpath.search.sparsify import needless, within_reach
from counterpath.search.traverse import StopReason, StopRule, never_waits, traverse
from counterpath.search.validity import AtLegalRow, Validator
from counterpath.utils.deadline import ShouldStop, never_stop
from counterpath.utils.errors import NotFittedError

AT_ONCE = 16384
"""How many rows are searched for at once."""
_LINE = 10
_MARGIN, _SURE = 0.1, 0.99


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        max_steps: The most steps of a search.
        step_size: η.
        damping: Added to the metric's diagonal.
        fidelity: α, how much staying close to the factual weighs.
        fallback: Lead rows that the search leaves without a counterfactual to the nearest landmark.
        sparsify: Put back every change that a counterfactual does not need.
        keep_residual: Start at the person, and carry what the generative model does not reproduce of them along.
        refine: Let ways over the network slide and relax.
        allow_copies: Whether a counterfactual may be equal to a training row.
        tf32: Round the factors of products to TF32 on a GPU while searching.
        over: When to give up.
        progress: Show a bar.
    """

    max_steps: int = 150
    step_size: float = 0.1
    damping: float = 5e-3
    fidelity: float = 0.0
    fallback: bool = True
    sparsify: bool = True
    keep_residual: bool = True
    refine: bool = True
    allow_copies: bool = True
    tf32: bool = False
    over: ShouldStop = never_stop
    progress: bool | None = False


@dataclass(frozen=True)
class Problem:
    """What a search needs to know.

    Attributes:
        classifier: What to follow downhill.
        answers: The model under explanation; legal encoded rows to the probability of every class.
        exact: Whether `classifier` is that model itself. A surrogate is followed until it is sure; then the model is
            asked about the whole path at once, and the first point that it accepts is the end.
        space: The generative model, for codes and uncertainty of any row.
        network: Roads through the space; its landmarks are where rows that get stuck are led.
        walk: How to search.
        data: The training rows, to tell what is plausible; without them nothing is put back.
        chains: Makes the roads from training row to training row.
    """

    classifier: Differentiable
    answers: Callable[[Tensor], Tensor]
    exact: bool
    space: LatentModel
    network: Roadmap | None
    walk: SearchOptions
    data: Data | None = None
    chains: Callable[[], FaceGraph] | None = None

    @cached_property
    def judge(self) -> Validator:
        """Asks the model."""
        return Validator(self.answers, self.space, self.data, self.walk.allow_copies)

    def pursue(self, method: Method, scope: FeasibleSet, wanted: Target) -> Paths:
        """The way from every person to a row within their scope for which the model itself gives the wanted outcome.

        A global method takes the cheapest way over its network. Where a local search gets stuck, the straight line in
        latent space to the nearest landmark that has the wanted outcome is taken instead. A row that does not get there
        either ends at its best point.
        """
        search = self._walked_on
        if method.globally:
            search = self._travelled if method.model is self.space else self._chained
        places = torch.arange(len(scope), device=scope.factual.device).split(AT_ONCE)
        return merged([(rows, search(method, scope.at(rows), wanted)) for rows in places])

    def stay(self, scope: FeasibleSet, wanted: Target) -> Paths:
        """Paths of one point, for rows that have what they want."""
        row = torch.arange(len(scope), device=scope.factual.device)
        return self.judge.paths(row, scope.factual, scope, wanted, torch.full_like(row, StopReason.CONFIDENCE_REACHED))

    def line(self, scope: FeasibleSet, train: Tensor, answers: Tensor, wanted: Target) -> Paths:
        """The straight line to the nearest training row in scope that has the wanted outcome, its points made legal."""
        factual, candidates = scope.factual, train[wanted.met(answers)]
        row = torch.arange(len(factual), device=factual.device)
        if len(candidates) == 0:
            return self.judge.paths(row, factual, scope, wanted, torch.full_like(row, StopReason.NO_WAY_DOWN))
        end, exists = nearest_within(factual, candidates, scope.lower, scope.upper, scope.weights, free=scope.free)
        points = straight_path(factual, end, _LINE).transpose(0, 1).flatten(0, 1)
        row = row.repeat_interleave(_LINE + 1)
        x = scope.legal(points, row).view(len(factual), _LINE + 1, -1).clone()
        x[:, 0], x[:, -1] = factual, end
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, StopReason.NO_WAY_DOWN)
        paths = self.judge.paths(row, x.flatten(0, 1), scope, wanted, reason)
        return paths.points(exists[paths.row] | firsts(paths.row))

    def _chained(self, method: Method, scope: FeasibleSet, wanted: Target) -> Paths:
        assert self.chains is not None
        row, x, exists, late = self.chains().follow(scope, wanted, self.walk.over)
        missing = torch.where(late, StopReason.OUT_OF_TIME, StopReason.NO_WAY_DOWN)
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, missing)
        return ended(self.judge.paths(row, x, scope, wanted, reason))

    def _travelled(self, method: Method, scope: FeasibleSet, wanted: Target) -> Paths:
        if self.network is None:
            raise NotFittedError("this method needs the network that Explainer.fit lays, and there is none")
        walk = self.walk
        journey = ResidualDecoder.of(self.space, scope, generative=True, carry=walk.keep_residual)
        found = travel(
            self.network,
            journey,
            wanted,
            self.answers,
            lambda x: self.judge.met(x, wanted),
            self.data,
            refine=walk.refine,
            over=walk.over,
            progress=walk.progress,
        )
        row, x, z = found.row, found.x, found.z
        reason = torch.where(found.late, StopReason.OUT_OF_TIME, StopReason.ALL_STEPS_TAKEN)
        if walk.keep_residual:
            x = torch.where(firsts(row)[:, None], scope.factual[row], x)
        else:
            row, x, z = behind(scope.factual, journey.start, row, x, z)
        paths = replace(ended(self.judge.paths(row, x, scope, wanted, reason, z)), gap=found.gap)
        if self.data is None:
            return paths
        paths = self._tidied(scope, paths, wanted) if walk.sparsify else paths
        if not walk.refine:
            return paths
        return paths.points(stations(paths.row, self.data.distance(paths.x), self.data.typical))

    def _walked_on(self, method: Method, scope: FeasibleSet, wanted: Target) -> Paths:
        pending = torch.arange(len(scope), device=scope.factual.device)
        kept: list[tuple[Tensor, Paths]] = []
        stuck: Paths | None = None
        for stop, carry in self._attempts(method, scope, wanted):
            paths = better(stuck, self._walked(method, scope.at(pending), wanted, stop, carry=carry))
            done = paths.found | (paths.reason == StopReason.OUT_OF_TIME)
            kept.append((pending[done], some(paths, done)))
            pending, stuck = pending[~done], some(paths, ~done)
            if len(pending) == 0:
                break
        if stuck is not None and len(pending):
            home = self._led(scope.at(pending), wanted) if self.walk.fallback and method.model is self.space else None
            kept.append((pending, stuck if home is None else better(stuck, home)))
        paths = merged(kept)
        return self._tidied(scope, paths, wanted) if self.walk.sparsify and self.data is not None else paths

    def _tidied(self, scope: FeasibleSet, paths: Paths, wanted: Target) -> Paths:
        """The paths, with features that need not change left as they are at every point."""
        assert self.data is not None
        found = paths.found.nonzero()[:, 0]
        if len(found) == 0:
            return paths
        person, end = scope.factual[found], paths.x[paths.last[found]]
        order = [float(scope.feature_costs[columns][0]) for columns in scope.encoder.layout]
        features = needless(
            person,
            end,
            scope.encoder.layout,
            met=lambda x: self.judge.met(x, wanted),
            probability=lambda x: wanted.probability(self.answers(x)),
            plausible=within_reach(self.data.neighbours, self.data.reach, end),
            feature_costs=order,
        )
        still = scope.features(end != person).logical_not()  # what comes back by itself need not go away, either
        back = torch.zeros_like(scope.told)
        back[found] = scope.columns(features | still)
        return self.judge.holding(scope, paths, back, wanted)

    def _led(self, scope: FeasibleSet, wanted: Target) -> Paths | None:
        if self.network is None:
            return None
        walk = self.walk
        return led(
            self.judge, self.network.landmarks, scope, wanted, step_size=walk.step_size, carry=walk.keep_residual
        )

    def _attempts(self, method: Method, scope: FeasibleSet, wanted: Target) -> list[tuple[StopRule, bool]]:
        """When to stop in one search after the other, and whether it carries the residual along all the way.

        What is carried can hold a person back: so whoever is stuck with it walks once more without.
        """
        if self.exact:
            recordable = never_waits(self.answers) and self.judge.all_may
            stops = [AtLegalRow(scope.encoder, lambda x: self.judge.met(x, wanted), recordable)]
        else:
            sure = min(wanted.confidence + _MARGIN, _SURE)
            stops = [self._sure(scope, wanted, sure), self._sure(scope, wanted, _SURE)]
        carry = self.walk.keep_residual and method.model is self.space
        return [*((stop, carry) for stop in stops), *([(stops[-1], False)] if carry else [])]

    def _sure(self, scope: FeasibleSet, wanted: Target, confidence: float) -> AtLegalRow:
        surely = replace(wanted, confidence=max(confidence, wanted.confidence))
        return AtLegalRow(
            scope.encoder, lambda x: surely.met(probabilities(self.classifier(x))), never_waits(self.classifier)
        )

    def _walked(self, method: Method, scope: FeasibleSet, wanted: Target, stop: StopRule, *, carry: bool) -> Paths:
        factual, generative = scope.factual, method.model is self.space
        journey = ResidualDecoder.of(method.model, scope, generative=generative, carry=carry)
        found = traverse(
            method.model,
            method.metric,
            Objective(self.classifier, wanted.target, wanted.other, self.walk.fidelity),
            factual,
            context=journey.told,
            terms=journey.terms,
            stop=stop,
            steps=self.walk.max_steps,
            step_size=self.walk.step_size,
            damping=self.walk.damping,
            tf32=self.walk.tf32,
            over=self.walk.over,
            progress=self.walk.progress,
            name="searching",
        )
        row, x, z = flat(found)
        x = scope.legal(x, row)
        codes = z if generative else self.judge.codes(x)
        if not self.walk.keep_residual:
            row, x, codes = behind(factual, self.judge.codes(factual), row, x, codes)
        elif carry and self.data is not None:
            x = journey.faded(row, x, z, lambda rows: self.judge.met(rows, wanted), self.data)
        elif generative and not carry:
            x = ResidualDecoder.of(method.model, scope, generative=True, carry=True).rows(
                z, row, 1 - progress(row)[:, None]
            )
        if self.walk.keep_residual:
            x = torch.where(firsts(row)[:, None], factual[row], x)
        return ended(self.judge.paths(row, x, scope, wanted, found.reason, codes))

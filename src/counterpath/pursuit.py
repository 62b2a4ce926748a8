"""From people to counterfactuals, on tensors: search until the model itself says yes, and keep the way there."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.geometry.neighbours import Neighbours
from counterpath.journey import Data, Journey
from counterpath.methods import Method
from counterpath.models.classifier import Differentiable, probabilities
from counterpath.models.latent import LatentModel, given
from counterpath.paths import Paths, behind, better, ended, firsts, flat, merged, progress, shares, some
from counterpath.scope import Scope, legal
from counterpath.search.nearest import nearest_within, straight_path
from counterpath.search.objective import Objective
from counterpath.search.step import Slope
from counterpath.search.traverse import StopReason, traverse
from counterpath.search.wanted import Wanted
from counterpath.tidying import needless, within_reach

_AT_ONCE = 16384
_LINE = 10
_CANDIDATES = 100
_MARGIN, _SURE = 0.1, 0.99


@dataclass(frozen=True)
class Walk:
    """How to search.

    Attributes:
        steps: The most steps of a search.
        step_size: η.
        damping: Added to the metric's diagonal.
        fidelity: α, how much staying close to the factual weighs.
        home: Lead rows that the search leaves without a counterfactual to the nearest landmark.
        tidy: Put back every change that a counterfactual does not need.
        carry: Start at the person, and carry what the generative model does not reproduce of them along.
        deadline: When to give up, by the clock `time.monotonic`.
        progress: Show a bar.
    """

    steps: int = 150
    step_size: float = 0.1
    damping: float = 5e-3
    fidelity: float = 0.0
    home: bool = True
    tidy: bool = True
    carry: bool = True
    deadline: float = math.inf
    progress: bool | None = False


@dataclass(frozen=True)
class Landmarks:
    """Places that the model has been asked about: the training rows as the generative model decodes them.

    Attributes:
        x: Legal encoded rows.
        z: Their codes.
        answers: What the model under explanation says about them.
    """

    x: Float[Tensor, "m D"]
    z: Float[Tensor, "m d"]
    answers: Float[Tensor, "m K"]


@dataclass(frozen=True)
class Quest:
    """What a search needs to know.

    Attributes:
        classifier: What to follow downhill.
        answers: The model under explanation; legal encoded rows to the probability of every class.
        exact: Whether `classifier` is that model itself. A surrogate is followed until it is sure; then the model is
            asked about the whole path at once, and the first point that it accepts is the end.
        space: The generative model, for codes and uncertainty of any row.
        landmarks: Where to lead rows that get stuck.
        walk: How to search.
        data: The training rows, to tell what is plausible; without them nothing is put back.
    """

    classifier: Differentiable
    answers: Callable[[Tensor], Tensor]
    exact: bool
    space: LatentModel
    landmarks: Landmarks | None
    walk: Walk
    data: Data | None = None

    def pursue(self, method: Method, scope: Scope, wanted: Wanted) -> Paths:
        """Walk from every person to a row within their scope for which the model itself gives the wanted outcome.

        Where the local search gets stuck, the straight line in latent space to the nearest landmark that has the wanted
        outcome is taken instead. A row that does not get there either ends at its best point.
        """
        places = torch.arange(len(scope), device=scope.factual.device).split(_AT_ONCE)
        return merged([(rows, self._pursue(method, scope.at(rows), wanted)) for rows in places])

    def stay(self, scope: Scope, wanted: Wanted) -> Paths:
        """Paths of one point, for rows that have what they want."""
        row = torch.arange(len(scope), device=scope.factual.device)
        return self._measured(row, scope.factual, scope, wanted, torch.full_like(row, StopReason.CONFIDENCE_REACHED))

    def line(self, scope: Scope, train: Tensor, answers: Tensor, wanted: Wanted) -> Paths:
        """The straight line to the nearest training row in scope that has the wanted outcome, its points made legal."""
        factual, candidates = scope.factual, train[wanted.met(answers)]
        row = torch.arange(len(factual), device=factual.device)
        if len(candidates) == 0:
            return self._measured(row, factual, scope, wanted, torch.full_like(row, StopReason.NO_WAY_DOWN))
        end, exists = nearest_within(factual, candidates, scope.lower, scope.upper, scope.weights, free=scope.free)
        points = straight_path(factual, end, _LINE).transpose(0, 1).flatten(0, 1)
        row = row.repeat_interleave(_LINE + 1)
        x = scope.legal(points, row).view(len(factual), _LINE + 1, -1).clone()
        x[:, 0], x[:, -1] = factual, end
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, StopReason.NO_WAY_DOWN)
        paths = self._measured(row, x.flatten(0, 1), scope, wanted, reason)
        return paths.points(exists[paths.row] | firsts(paths.row))

    def _pursue(self, method: Method, scope: Scope, wanted: Wanted) -> Paths:
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
            led = self._led(scope.at(pending), wanted) if self.walk.home and method.model is self.space else None
            kept.append((pending, stuck if led is None else better(stuck, led)))
        paths = merged(kept)
        return self._tidied(scope, paths, wanted) if self.walk.tidy and self.data is not None else paths

    def _tidied(self, scope: Scope, paths: Paths, wanted: Wanted) -> Paths:
        """The paths, with features that need not change left as they are at every point."""
        assert self.data is not None
        found = paths.found.nonzero()[:, 0]
        if len(found) == 0:
            return paths
        person, end = scope.factual[found], paths.x[paths.last[found]]
        order = [float(scope.difficulty[columns][0]) for columns in scope.encoder.layout]
        features = needless(
            person,
            end,
            scope.encoder.layout,
            met=lambda x: wanted.met(self.answers(x)),
            probability=lambda x: wanted.probability(self.answers(x)),
            plausible=within_reach(self.data.neighbours, self.data.reach),
            difficulty=order,
        )
        still = scope.features(end != person).logical_not()  # what comes back by itself need not go away, either
        back = torch.zeros_like(scope.told)
        back[found] = scope.columns(features | still)
        return self._holding(scope, paths, back, wanted)

    def _holding(self, scope: Scope, paths: Paths, columns: Tensor, wanted: Wanted) -> Paths:
        """The paths with some columns of each row as they were."""
        x = torch.where(columns[paths.row], scope.factual[paths.row], paths.x)
        same = (x == paths.x).all(-1, keepdim=True)
        codes = torch.where(same, paths.z, self._codes(x))
        return replace(ended(self._measured(paths.row, x, scope, wanted, paths.reason, codes)), led=paths.led)

    def _attempts(self, method: Method, scope: Scope, wanted: Wanted) -> list[tuple[Callable[[Slope], Tensor], bool]]:
        """When to stop in one search after the other, and whether it carries the residual along all the way.

        What is carried can hold a person back: so whoever is stuck with it walks once more without.
        """
        if self.exact:
            stops = [lambda here: wanted.met(self.answers(_legal_here(scope, here)))]
        else:
            sure = min(wanted.confidence + _MARGIN, _SURE)
            stops = [self._sure(scope, wanted, sure), self._sure(scope, wanted, _SURE)]
        carry = self.walk.carry and method.model is self.space
        return [*((stop, carry) for stop in stops), *([(stops[-1], False)] if carry else [])]

    def _sure(self, scope: Scope, wanted: Wanted, confidence: float) -> Callable[[Slope], Tensor]:
        surely = replace(wanted, confidence=max(confidence, wanted.confidence))
        return lambda here: surely.met(probabilities(self.classifier(_legal_here(scope, here))))

    def _walked(
        self, method: Method, scope: Scope, wanted: Wanted, stop: Callable[[Slope], Tensor], *, carry: bool
    ) -> Paths:
        factual, generative = scope.factual, method.model is self.space
        journey = Journey.of(method.model, scope, generative=generative, carry=carry)
        found = traverse(
            method.model,
            method.metric,
            Objective(self.classifier, wanted.target, wanted.other, self.walk.fidelity),
            factual,
            context=journey.told,
            terms=journey.terms,
            stop=stop,
            steps=self.walk.steps,
            step_size=self.walk.step_size,
            damping=self.walk.damping,
            deadline=self.walk.deadline,
            progress=self.walk.progress,
            name="searching",
        )
        row, x, z = flat(found)
        x = scope.legal(x, row)
        codes = z if generative else self._codes(x)
        if not self.walk.carry:
            row, x, codes = behind(factual, self._codes(factual), row, x, codes)
        elif carry and self.data is not None:
            x = journey.faded(row, x, z, lambda rows: wanted.met(self.answers(rows)), self.data)
        elif generative and not carry:
            x = Journey.of(method.model, scope, generative=True, carry=True).rows(z, row, 1 - progress(row)[:, None])
        if self.walk.carry:
            x = torch.where(firsts(row)[:, None], factual[row], x)
        return ended(self._measured(row, x, scope, wanted, found.reason, codes))

    def _led(self, scope: Scope, wanted: Wanted) -> Paths | None:
        """The line in latent space to the nearest landmark with the wanted outcome; None if there is no landmark."""
        if self.landmarks is None:
            return None
        accepted = wanted.met(self.landmarks.answers)
        if not bool(accepted.any()):  # then at least to one that is decided as wanted, though less surely
            accepted = wanted.decided(self.landmarks.answers)
        if not bool(accepted.any()):
            return None
        journey = Journey.of(self.space, scope, generative=True, carry=self.walk.carry)
        start, (end, goal) = journey.start, self._goals(journey, self.landmarks, accepted, wanted)
        row, share = shares((end - start).norm(dim=-1) / self.walk.step_size)
        codes = torch.lerp(start[row], end[row], share[:, None])
        x = journey.rows(codes, row, 1 - share[:, None])
        x = torch.where((share == 1)[:, None], goal[row], x)  # what the model was asked about, to the bit
        reason = torch.full_like(row[: len(scope)], StopReason.ALL_STEPS_TAKEN)
        if self.walk.carry:
            x = torch.where(firsts(row)[:, None], scope.factual[row], x)
        else:
            row, x, codes = behind(scope.factual, start, row, x, codes)
        paths = ended(self._measured(row, x, scope, wanted, reason, codes))
        return replace(paths, led=torch.ones_like(paths.led))

    def _goals(self, journey: Journey, landmarks: Landmarks, accepted: Tensor, wanted: Wanted) -> tuple[Tensor, Tensor]:
        """For every row the code of the landmark to be led to, and the legal row that it is decoded as.

        A landmark is decoded with the columns that the person keeps and within their bounds, and may be accepted no
        more. So the model is asked again, about the nearest few; if it accepts none, the most probable one is taken.
        """
        scope, x, z = journey.scope, landmarks.x[accepted], landmarks.z[accepted]
        near = Neighbours(x, scope.weights).nearest(scope.factual, 1 if scope.free else _CANDIDATES)[1]
        if scope.free:
            return z[near[:, 0]], x[near[:, 0]]
        count = near.shape[1]
        whose = torch.arange(len(near), device=near.device).repeat_interleave(count)
        goals = journey.rows(z[near.flatten()], whose, 0.0)
        answers = self.answers(goals)
        met, probability = wanted.met(answers).view_as(near), wanted.probability(answers).view_as(near)
        chosen = torch.where(met.any(1), met.int().argmax(1), probability.argmax(1))
        place = torch.arange(len(near), device=near.device)
        return z[near[place, chosen]], goals.view(len(near), count, -1)[place, chosen]

    def _codes(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return map_blocks(self.space.encode, x)

    def _measured(
        self, row: Tensor, x: Tensor, scope: Scope, wanted: Wanted, reason: Tensor, z: Tensor | None = None
    ) -> Paths:
        codes = self._codes(x) if z is None else z
        with torch.no_grad():
            told = given(self.space, x, scope.told[row])
            sigma = map_blocks(lambda *where: _spread(self.space, *where), codes, told)
        answers = self.answers(x)
        return Paths(
            row,
            x,
            codes,
            sigma,
            wanted.probability(answers).to(x.dtype),
            wanted.met(answers),
            reason,
            torch.zeros_like(reason, dtype=torch.bool),
        )


def _legal_here(scope: Scope, here: Slope) -> Tensor:
    assert here.terms is not None
    return legal(scope.encoder, here.x, here.terms.lower, here.terms.upper)


def _spread(space: LatentModel, z: Tensor, told: Tensor | None) -> Tensor:
    std = space.uncertainty(z, told)
    return torch.zeros_like(z[:, 0]) if std is None else std.mean(-1)

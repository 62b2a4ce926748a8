"""From people to counterfactuals, on tensors: search until the model itself says yes, and keep the way there."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.data.encoding import Encoder
from counterpath.geometry.neighbours import Neighbours
from counterpath.methods import Method
from counterpath.models.classifier import Differentiable, probabilities
from counterpath.models.held import Held
from counterpath.models.latent import LatentModel, given
from counterpath.paths import Paths, behind, better, ended, flat, merged, shares, some
from counterpath.search.nearest import nearest_accepted, straight_path
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
        deadline: When to give up, by the clock `time.monotonic`.
        progress: Show a bar.
    """

    steps: int = 150
    step_size: float = 0.1
    damping: float = 5e-3
    fidelity: float = 0.0
    home: bool = True
    tidy: bool = True
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
class Data:
    """The training rows, and how far from them real rows are.

    Attributes:
        neighbours: The rows.
        reach: The distance to the nearest of them that 95 % of held-out rows do not exceed.
    """

    neighbours: Neighbours
    reach: float


@dataclass(frozen=True)
class Quest:
    """What a search needs to know.

    Attributes:
        classifier: What to follow downhill.
        answers: The model under explanation; legal encoded rows to the probability of every class.
        exact: Whether `classifier` is that model itself. A surrogate is followed until it is sure; then the model is
            asked about the whole path at once, and the first point that it accepts is the end.
        encoder: Knows what a legal row is.
        space: The generative model, for codes and uncertainty of any row.
        landmarks: Where to lead rows that get stuck.
        walk: How to search.
        data: The training rows, to tell what is plausible; without them nothing is put back.
    """

    classifier: Differentiable
    answers: Callable[[Tensor], Tensor]
    exact: bool
    encoder: Encoder
    space: LatentModel
    landmarks: Landmarks | None
    walk: Walk
    data: Data | None = None

    def pursue(self, method: Method, factual: Float[Tensor, "n D"], wanted: Wanted) -> Paths:
        """Walk from every factual to a legal row for which the model itself gives the wanted outcome.

        Where the local search gets stuck, the straight line in latent space to the nearest landmark that has the wanted
        outcome is taken instead. A row that does not get there either ends at its best point.
        """
        parts = [self._pursue(method, part, wanted) for part in factual.split(_AT_ONCE)]
        sizes = torch.tensor([0, *(len(part.reason) for part in parts[:-1])]).cumsum(0)
        rows = [torch.arange(len(part.reason)) + int(first) for part, first in zip(parts, sizes, strict=True)]
        paths = merged([(place.to(factual.device), part) for place, part in zip(rows, parts, strict=True)])
        return self._tidied(factual, paths, wanted) if self.walk.tidy and self.data is not None else paths

    def stay(self, factual: Float[Tensor, "n D"], wanted: Wanted) -> Paths:
        """Paths of one point, for rows that have what they want."""
        row = torch.arange(len(factual), device=factual.device)
        return self._measured(row, factual, wanted, torch.full_like(row, StopReason.CONFIDENCE_REACHED))

    def line(self, factual: Float[Tensor, "n D"], train: Tensor, answers: Tensor, wanted: Wanted) -> Paths:
        """The straight line to the nearest training row that has the wanted outcome, its points made legal."""
        row = torch.arange(len(factual), device=factual.device)
        if not bool(wanted.met(answers).any()):
            return self._measured(row, factual, wanted, torch.full_like(row, StopReason.NO_WAY_DOWN))
        end, exists = nearest_accepted(factual, train, wanted.met(answers), self._held, self._weights(factual))
        points = straight_path(factual, end, _LINE).transpose(0, 1).clone()
        points[..., self._held] = factual[:, None, self._held]  # to the bit
        legal = self._legal(points.flatten(0, 1)).view_as(points).clone()
        legal[:, 0], legal[:, -1] = factual, end
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, StopReason.NO_WAY_DOWN)
        paths = self._measured(row.repeat_interleave(_LINE + 1), legal.flatten(0, 1), wanted, reason)
        first = torch.arange(len(paths.row), device=row.device) % (_LINE + 1) == 0
        return paths.points(exists[paths.row] | first)

    def _pursue(self, method: Method, factual: Tensor, wanted: Wanted) -> Paths:
        pending = torch.arange(len(factual), device=factual.device)
        kept: list[tuple[Tensor, Paths]] = []
        stuck: Paths | None = None
        for stop in self._stops(wanted):
            paths = better(stuck, self._walked(method, factual[pending], wanted, stop))
            done = paths.found | (paths.reason == StopReason.OUT_OF_TIME)
            kept.append((pending[done], some(paths, done)))
            pending, stuck = pending[~done], some(paths, ~done)
            if len(pending) == 0:
                return merged(kept)
        assert stuck is not None
        led = self._led(factual[pending], wanted) if self.walk.home and method.model is self.space else None
        return merged([*kept, (pending, stuck if led is None else better(stuck, led))])

    def _tidied(self, factual: Tensor, paths: Paths, wanted: Wanted) -> Paths:
        """The paths, with features that need not change left as they are at every point."""
        assert self.data is not None
        found = paths.found.nonzero()[:, 0]
        if len(found) == 0:
            return paths
        person, back = self._legal(factual), torch.zeros_like(factual, dtype=torch.bool)
        features = needless(
            person[found],
            paths.x[paths.last[found]],
            self.encoder.layout,
            met=lambda x: wanted.met(self.answers(x)),
            probability=lambda x: wanted.probability(self.answers(x)),
            plausible=within_reach(self.data.neighbours, self.data.reach),
        )
        for columns, put_back in zip(self.encoder.layout, features.T, strict=True):
            back[found, columns] = put_back[:, None]
        first = torch.ones_like(paths.row, dtype=torch.bool)
        first[1:] = paths.row[1:] != paths.row[:-1]
        x = torch.where(back[paths.row] & ~first[:, None], person[paths.row], paths.x)
        same = (x == paths.x).all(-1, keepdim=True)
        codes = torch.where(same, paths.z, self._codes(x))
        return replace(ended(self._measured(paths.row, x, wanted, paths.reason, codes)), led=paths.led)

    def _stops(self, wanted: Wanted) -> list[Callable[[Slope], Tensor]]:
        if self.exact:
            return [lambda here: wanted.met(self.answers(self._legal(here.x)))]
        return [self._sure(wanted, min(wanted.confidence + _MARGIN, _SURE)), self._sure(wanted, _SURE)]

    def _sure(self, wanted: Wanted, confidence: float) -> Callable[[Slope], Tensor]:
        surely = replace(wanted, confidence=max(confidence, wanted.confidence))
        return lambda here: surely.met(probabilities(self.classifier(self._legal(here.x))))

    def _walked(self, method: Method, factual: Tensor, wanted: Wanted, stop: Callable[[Slope], Tensor]) -> Paths:
        found = traverse(
            method.model,
            method.metric,
            Objective(self.classifier, wanted.target, wanted.other, self.walk.fidelity),
            factual,
            context=given(self.space, factual) if method.model is self.space else None,
            stop=stop,
            steps=self.walk.steps,
            step_size=self.walk.step_size,
            damping=self.walk.damping,
            deadline=self.walk.deadline,
            progress=self.walk.progress,
            name="searching",
        )
        row, x, z = flat(found)
        legal = self._legal(x)
        codes = z if method.model is self.space else self._codes(legal)
        row, legal, codes = behind(factual, self._codes(factual), row, legal, codes)
        return ended(self._measured(row, legal, wanted, found.reason, codes))

    def _led(self, factual: Tensor, wanted: Wanted) -> Paths | None:
        """The line in latent space to the nearest landmark with the wanted outcome; None if there is no landmark."""
        if self.landmarks is None:
            return None
        accepted = wanted.met(self.landmarks.answers)
        if not bool(accepted.any()):  # then at least to one that is decided as wanted, though less surely
            accepted = wanted.decided(self.landmarks.answers)
        if not bool(accepted.any()):
            return None
        start, told = self._codes(factual), given(self.space, factual)
        end, goal = self._goals(factual, told, self.landmarks, accepted, wanted)
        row, share = shares((end - start).norm(dim=-1) / self.walk.step_size)
        codes = torch.lerp(start[row], end[row], share[:, None])
        with torch.no_grad():
            legal = self._legal(map_blocks(self.space.decode, codes, None if told is None else told[row]))
        arrived = (share == 1)[:, None]  # what the model was asked about, to the bit
        legal = torch.where(arrived, goal[row], legal)
        reason = torch.full_like(row[: len(factual)], StopReason.ALL_STEPS_TAKEN)
        row, legal, codes = behind(factual, start, row, legal, codes)
        paths = ended(self._measured(row, legal, wanted, reason, codes))
        return replace(paths, led=torch.ones_like(paths.led))

    def _goals(
        self, factual: Tensor, told: Tensor | None, landmarks: Landmarks, accepted: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Tensor]:
        """For every row the code of the landmark to be led to, and the legal row that it is decoded as.

        Where columns are held, a landmark is decoded with those of the person, and may be accepted no more. So the
        model is asked again, about the nearest few.
        """
        x, z = landmarks.x[accepted], landmarks.z[accepted]
        near = Neighbours(x, self._weights(x)).nearest(factual, 1 if told is None else _CANDIDATES)[1]
        if told is None:
            return z[near[:, 0]], x[near[:, 0]]
        count = near.shape[1]
        with torch.no_grad():
            decoded = map_blocks(self.space.decode, z[near.flatten()], told.repeat_interleave(count, dim=0))
        legal = self._legal(decoded)
        chosen = wanted.met(self.answers(legal)).view_as(near).int().argmax(1)
        place = torch.arange(len(near), device=near.device)
        return z[near[place, chosen]], legal.view(len(near), count, -1)[place, chosen]

    @property
    def _held(self) -> list[int]:
        return self.space.columns.tolist() if isinstance(self.space, Held) else []

    def _weights(self, rows: Tensor) -> Tensor:
        return self.encoder.weights.to(rows)

    def _legal(self, x: Tensor) -> Tensor:
        """The nearest legal rows; columns that are held stay as they are, even where no training row goes so far."""
        legal = self.encoder.round(x)
        return (
            legal.index_copy(-1, self.space.columns, x[:, self.space.columns])
            if isinstance(self.space, Held)
            else legal
        )

    def _codes(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return map_blocks(self.space.encode, x)

    def _measured(self, row: Tensor, x: Tensor, wanted: Wanted, reason: Tensor, z: Tensor | None = None) -> Paths:
        codes = self._codes(x) if z is None else z
        with torch.no_grad():
            sigma = map_blocks(lambda *where: _spread(self.space, *where), codes, given(self.space, x))
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


def _spread(space: LatentModel, z: Tensor, told: Tensor | None) -> Tensor:
    std = space.uncertainty(z, told)
    return torch.zeros_like(z[:, 0]) if std is None else std.mean(-1)

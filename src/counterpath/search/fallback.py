"""Rows that a local search leaves without a counterfactual are led, straight through the latent space."""

from dataclasses import replace

import torch
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, behind, ended, firsts, shares
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import Landmarks
from counterpath.search.traverse import StopReason
from counterpath.search.validity import Validator

_CANDIDATES = 100


def led(
    judge: Validator, landmarks: Landmarks, scope: FeasibleSet, wanted: Target, *, step_size: float, carry: bool
) -> Paths | None:
    """The line in latent space to the nearest landmark with the wanted outcome; None if there is no landmark.

    Args:
        judge: Asks the model.
        landmarks: Where to lead to.
        scope: What each person may become.
        wanted: The outcome.
        step_size: Length of a step in latent space.
        carry: Whether what is not reproduced of people is carried along, and fades.
    """
    accepted = wanted.met(landmarks.answers)
    if not bool(accepted.any()):  # then at least to one that is decided as wanted, though less surely
        accepted = wanted.decided(landmarks.answers)
    if not bool(accepted.any()):
        return None
    journey = ResidualDecoder.of(judge.space, scope, generative=True, carry=carry)
    start, (end, goal) = journey.start, _goals(judge, journey, landmarks, accepted, wanted)
    row, share = shares((end - start).norm(dim=-1) / step_size)
    codes = torch.lerp(start[row], end[row], share[:, None])
    x = journey.rows(codes, row, 1 - share[:, None])
    x = torch.where((share == 1)[:, None], goal[row], x)  # what the model was asked about, to the bit
    reason = torch.full_like(row[: len(scope)], StopReason.ALL_STEPS_TAKEN)
    if carry:
        x = torch.where(firsts(row)[:, None], scope.factual[row], x)
    else:
        row, x, codes = behind(scope.factual, start, row, x, codes)
    paths = ended(judge.paths(row, x, scope, wanted, reason, codes))
    return replace(paths, led=torch.ones_like(paths.led))


def _goals(
    judge: Validator, journey: ResidualDecoder, landmarks: Landmarks, accepted: Tensor, wanted: Target
) -> tuple[Tensor, Tensor]:
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
    answers = judge.answers(goals)
    met, probability = wanted.met(answers).view_as(near), wanted.probability(answers).view_as(near)
    chosen = torch.where(met.any(1), met.int().argmax(1), probability.argmax(1))
    place = torch.arange(len(near), device=near.device)
    return z[near[place, chosen]], goals.view(len(near), count, -1)[place, chosen]

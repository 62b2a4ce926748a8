"""The fallback of local searches: where one gets stuck, a straight line through the latent space to a landmark."""

from dataclasses import replace

import torch
from torch import Tensor

from counterpath.geometry.graph import Neighbours
from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths, is_first, line_points, prepend
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import Landmarks
from counterpath.search.traverse import StopReason
from counterpath.search.validity import Validator

_CANDIDATES = 100  # nearest landmarks that are tried under a row's constraints: it bounds what the model is asked


def fallback_paths(
    validator: Validator, landmarks: Landmarks, feasible: FeasibleSet, *, step_size: float, keep_residual: bool
) -> Paths | None:
    """The line in latent space to the nearest landmark that reaches the target; None if there is no landmark.

    Args:
        validator: Asks the model.
        landmarks: Where lines may end.
        feasible: What each row may become.
        step_size: Length of a step in latent space.
        keep_residual: Whether what is not reproduced of a row is added along its line, less and less.
    """
    target = validator.target
    accepted = target.is_reached(landmarks.probabilities)
    if not bool(accepted.any()):  # then at least to one that is predicted as asked, though less confidently
        accepted = target.is_predicted(landmarks.probabilities)
    if not bool(accepted.any()):
        return None
    decoder = ResidualDecoder.of(validator.latent, feasible, generative=True, keep_residual=keep_residual)
    start, (end, goal) = decoder.start, _goals(validator, decoder, landmarks, accepted)
    row, fraction = line_points((end - start).norm(dim=-1) / step_size)
    codes = torch.lerp(start[row], end[row], fraction[:, None])
    x = decoder.decode(codes, row, 1 - fraction[:, None])
    x = torch.where((fraction == 1)[:, None], goal[row], x)  # what the model was asked about, to the bit
    reason = torch.full_like(row[: len(feasible)], StopReason.ALL_STEPS_TAKEN)
    if keep_residual:
        x = torch.where(is_first(row)[:, None], feasible.factual[row], x)
    else:
        row, x, codes = prepend(feasible.factual, start, row, x, codes)
    paths = validator.paths(feasible, row, x, reason, codes).truncate()
    return replace(paths, fallback=torch.ones_like(paths.fallback))


def _goals(
    validator: Validator, decoder: ResidualDecoder, landmarks: Landmarks, accepted: Tensor
) -> tuple[Tensor, Tensor]:
    """For every row the code of the landmark where its line ends, and the legal row that it is decoded as.

    A landmark is decoded under the row's context and within its bounds, and may not reach the target any more. So the
    model is asked again, about the nearest few; if none of them does, the one where the target is most probable is
    taken.
    """
    feasible, x, z = decoder.feasible, landmarks.x[accepted], landmarks.z[accepted]
    free = feasible.unconstrained
    same = free and validator.combinations is None and not feasible.encoder.personal  # may anybody be this landmark?
    same = same and validator.stability is None
    near = Neighbours(x, feasible.weights).nearest(feasible.factual, 1 if same else _CANDIDATES)[1]
    if same:
        return z[near[:, 0]], x[near[:, 0]]
    count = near.shape[1]
    row = torch.arange(len(near), device=near.device).repeat_interleave(count)
    index = near.flatten()
    goals = feasible.legal(x[index], row) if free else decoder.decode(z[index], row, 0.0)
    probabilities, target = validator.predict_proba(goals), validator.target
    possible = validator.is_possible(goals, feasible.origin[row])
    reached = target.is_reached(probabilities) & possible
    if validator.stability is not None:
        some = reached.nonzero()[:, 0]
        reached = reached.index_copy(0, some, validator.lasts(goals[some], feasible.origin[row[some]]))
    reached = reached.view_as(near)
    chosen = torch.where(reached.any(1), reached.int().argmax(1), target.score(probabilities).view_as(near).argmax(1))
    index = torch.arange(len(near), device=near.device)
    return z[near[index, chosen]], goals.view(len(near), count, -1)[index, chosen]

"""Global methods on the surface, with models that are known in closed form."""

import torch
from torch import Tensor

from counterpath.experiments.surface import chain, link
from counterpath.search.face import FaceGraph


def _right(x: Tensor) -> Tensor:
    """Accepts what lies to the right of 1."""
    return x[:, 0] - 1


def _grid(gap: float = 0.0) -> Tensor:
    """Points on a grid, the right half moved away by a gap."""
    points = torch.cartesian_prod(torch.arange(-1.0, 2.01, 0.25), torch.arange(-1.0, 1.01, 0.25))
    points = torch.cat([points, torch.zeros(len(points), 1)], 1)
    return torch.where(points[:, :1] > 0.9, points + torch.tensor([gap, 0, 0]), points)


def test_a_chain_begins_at_the_row_and_ends_at_an_accepted_training_row() -> None:
    start = torch.tensor([[-0.9, 0.1, 0.0], [0.2, -0.6, 0.0]])
    path = chain(link(_right, _grid()), start, 40)
    assert path.shape == (41, 2, 3)
    assert torch.equal(path[0], start)
    assert bool((_right(path[-1]) > 0).all())
    assert float((path[-1][:, None] - _grid()).norm(dim=-1).amin(1).max()) == 0


def test_who_has_no_chain_stays() -> None:
    rows = _grid()[_grid()[:, 0] < 0.9]
    path = chain(link(_right, rows), rows[:3], 10)
    assert torch.equal(path[-1], rows[:3])


def test_chains_touch_only_what_is_allowed() -> None:
    rows = _grid()
    chains = FaceGraph.of(rows, torch.zeros(len(rows), 2), torch.ones(3))
    allowed = (rows[:, 1] > 0) | (rows[:, 0] < 0)
    ways, exists = chains.ways(torch.tensor([[-0.9, -0.9, 0.0]]), rows[:, 0] > 1, allowed)
    assert exists.tolist() == [True]
    assert bool(allowed[ways].all())
    none, exists = chains.ways(torch.zeros(2, 3), rows[:, 0] > 1, rows[:, 0] < 1)
    assert len(none) == 2
    assert exists.tolist() == [False, False]

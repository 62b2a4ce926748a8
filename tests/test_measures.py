import math

import pytest
import torch

from counterpath.measures import distance_to_data, instability, path_distance_to_data, turning


def test_distance_to_data() -> None:
    train = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert distance_to_data(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), train).tolist() == [2.0, 0.0]
    path = torch.tensor([[[0.0, 2.0]], [[4.0, 4.0]]])
    assert path_distance_to_data(path, train).tolist() == [[2.0], [5.0]]


def test_turning_adds_up_angles_and_ignores_rests() -> None:
    square = torch.tensor([[0.0, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
    straight = torch.tensor([[0.0, 0], [1, 1], [2, 2], [2, 2], [2, 2], [2, 2]])
    found = turning(torch.stack([square, straight], 1))
    # Standing still between two steps hides the corner there: the square has three corners, one of them hidden.
    assert found.tolist() == pytest.approx([math.pi, 0.0], abs=1e-3)
    assert turning(torch.tensor([[[0.0]], [[1.0]], [[0.0]]])).item() == pytest.approx(math.pi, abs=1e-3)


def test_instability_is_relative_to_the_move_of_the_start() -> None:
    start, end = torch.zeros(4, 2), torch.ones(4, 2)
    assert instability(end, end + 0.2, start, start + 0.1) == pytest.approx(2.0)
    assert instability(end, end, start, start + 0.1) == 0.0

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.geometry.graph import Neighbours
from counterpath.models.training import seeded
from counterpath.utils.errors import InputError

sizes = st.tuples(st.integers(1, 40) | st.integers(600, 1000), st.integers(1, 30), st.integers(1, 6))


@settings(deadline=None)
@given(sizes, st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_neighbours_are_exact_on_either_path(size: tuple[int, int, int], count: int, weighted: bool, seed: int) -> None:
    references, queries, width = size
    with seeded(seed):
        reference, query = torch.randn(references, width), torch.randn(queries, width)
        weights = torch.rand(width) if weighted else None
    scale = torch.ones(width) if weights is None else weights
    everything = ((query[:, None] - reference[None]).double() * scale).norm(dim=-1)
    expected = everything.sort(dim=1).values[:, : min(count, references)]
    neighbours = Neighbours(reference, weights)
    for distance, index in (
        neighbours.nearest(query, count),
        neighbours._nearest_on_gpu(query * scale, min(count, references)),
    ):
        torch.testing.assert_close(distance.double(), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(everything.gather(1, index), expected, rtol=1e-5, atol=1e-6)


def test_weights_decide_what_is_near_and_leave_the_rows_as_they_are() -> None:
    reference = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    neighbours = Neighbours(reference, torch.tensor([1.0, 0.1]))
    assert neighbours.nearest(torch.zeros(1, 2))[1].tolist() == [[1]]
    assert neighbours.nearest(torch.zeros(1, 2))[0].item() == pytest.approx(0.2)
    assert neighbours.reference is reference
    assert Neighbours(reference).nearest(torch.zeros(1, 2))[1].tolist() == [[0]]


def test_a_point_of_the_reference_is_at_distance_zero() -> None:
    reference = torch.rand(100, 5) + 1000
    assert (Neighbours(reference).nearest(reference)[0] == 0).all()


def test_nothing_to_look_in_is_an_error() -> None:
    with pytest.raises(InputError, match="no reference rows"):
        Neighbours(torch.rand(0, 3))

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.errors import InputError
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.training import seeded


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_neighbours_are_exact_on_either_path(references: int, queries: int, width: int, count: int, seed: int) -> None:
    with seeded(seed):
        reference, query = torch.randn(references, width), torch.randn(queries, width)
    everything = (query[:, None].double() - reference[None].double()).norm(dim=-1)
    expected = everything.sort(dim=1).values[:, : min(count, references)]
    neighbours = Neighbours(reference)
    for distance, index in (
        neighbours.nearest(query, count),
        neighbours._nearest_on_gpu(query, min(count, references)),
    ):
        torch.testing.assert_close(distance.double(), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(everything.gather(1, index), expected, rtol=1e-5, atol=1e-6)


def test_a_point_of_the_reference_is_at_distance_zero() -> None:
    reference = torch.rand(100, 5) + 1000
    assert (Neighbours(reference).nearest(reference)[0] == 0).all()


def test_nothing_to_look_in_is_an_error() -> None:
    with pytest.raises(InputError, match="no reference rows"):
        Neighbours(torch.rand(0, 3))

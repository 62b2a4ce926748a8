import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.errors import InputError
from counterpath.geometry.neighbours import nearest
from counterpath.models.training import seeded


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 6), st.integers(0, 99))
def test_the_nearest_neighbour_is_exact(references: int, queries: int, width: int, seed: int) -> None:
    with seeded(seed):
        reference, query = torch.randn(references, width), torch.randn(queries, width)
    distance, index = nearest(query, reference)
    everything = (query[:, None].double() - reference[None].double()).norm(dim=-1)
    torch.testing.assert_close(distance.double(), everything.amin(1), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(everything.gather(1, index[:, None])[:, 0], everything.amin(1), rtol=1e-12, atol=0)


def test_a_point_of_the_reference_is_at_distance_zero() -> None:
    reference = torch.rand(100, 5) + 1000
    assert (nearest(reference, reference)[0] == 0).all()


def test_nothing_to_look_in_is_an_error() -> None:
    with pytest.raises(InputError, match="no reference rows"):
        nearest(torch.rand(2, 3), torch.rand(0, 3))

"""Distances over retrainings: lengths are those of the decoded curve, and their spread is what it says."""

import pytest
import torch

from counterpath.experiments.stability import coefficient_of_variation, geodesic_distances
from counterpath.models.latent import IdentityModel


def test_in_flat_space_shortest_paths_are_hardly_longer_than_straight_lines() -> None:
    rows = torch.rand(600, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths = geodesic_distances(IdentityModel(), rows, seed=3)
    twice = geodesic_distances(IdentityModel(), 2 * rows, seed=3)
    torch.testing.assert_close(twice, 2 * lengths)
    assert lengths.shape == (50,)
    # between uniform points of the unit square the mean distance is 0.52; over a graph a little more
    assert 0.52 * 0.85 < float(lengths.mean()) < 0.52 * 1.35
    assert not torch.equal(lengths, geodesic_distances(IdentityModel(), rows, seed=4))


def test_the_coefficient_of_variation_does_not_know_scales_and_leaves_out_what_is_not_connected() -> None:
    one = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    lengths = torch.stack([one, 1.1 * one, 0.9 * one])
    found = coefficient_of_variation(lengths)
    assert found["median"] == pytest.approx(0.1)
    assert found["low"] == pytest.approx(found["high"])
    lengths[1, 2] = torch.inf
    assert coefficient_of_variation(lengths)["pairs"] == 2
    assert coefficient_of_variation(torch.stack([one, one]))["median"] == 0

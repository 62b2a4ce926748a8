import math

import pytest
import torch
from torch import Tensor

from counterpath.geometry.curve import length, metric_field
from counterpath.geometry.metric import Linearization, euclidean, jacobian_autodiff, pullback, scaled_by_uncertainty
from counterpath.models.latent import IdentityModel
from counterpath.models.training import seeded
from counterpath.search.roadmap import CostField
from tests.conftest import random_vae

HEIGHT, WIDTH, LEVEL = 1.0, 0.5, 0.1


class Hill(IdentityModel):
    """The plane, with an uncertainty that is high around the origin."""

    def uncertainty(self, z: Tensor, context: Tensor | None = None) -> Tensor:  # type: ignore[override]
        high = HEIGHT * torch.exp(-z.square().sum(-1, keepdim=True) / WIDTH**2)
        return (LEVEL + high).expand(-1, 2)

    def linearize(self, z: Tensor, context: Tensor | None = None) -> Linearization:
        plain = super().linearize(z)
        return Linearization(plain.mean, plain.mean_jac, *jacobian_autodiff(self.uncertainty, z))


class Flat(Hill):
    """The plane, with the same uncertainty everywhere."""

    def uncertainty(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return torch.full_like(z, 3 * LEVEL)


HILL = CostField(Hill(), scaled_by_uncertainty(pullback, LEVEL), 2 * LEVEL)
LEFT, RIGHT = torch.tensor([[-2.0, 0.05]]).double(), torch.tensor([[2.0, 0.05]]).double()


def _price(cost_field: CostField, curve: Tensor, context: Tensor | None = None, pieces: int = 8) -> tuple[float, float]:
    """What a polyline costs, and how high it goes."""
    context = None if context is None else context.expand(len(curve) - 1, -1)
    cost, highest = cost_field.segment_cost(curve[:-1], curve[1:], context, pieces)
    return float(cost.sum()), float(highest.max())


def test_the_way_around_an_uncertain_region_is_cheaper_than_the_way_through() -> None:
    angle = torch.linspace(math.pi, 0, 40).double()
    around = torch.cat([LEFT, 1.2 * torch.stack([angle.cos(), angle.sin()], 1), RIGHT])
    through = torch.cat([LEFT, RIGHT])
    cheap, dear = (_price(HILL, curve, pieces=40) for curve in (around, through))
    assert cheap[0] < 0.8 * dear[0]
    assert cheap[1] < HILL.data_limit < dear[1]
    plain = CostField(
        HILL.model, lambda lin: euclidean(lin) * lin.mean_jac.square().sum(1, keepdim=True), HILL.data_limit
    )
    assert _price(plain, around)[0] > _price(plain, through)[0] == pytest.approx(4)


def test_a_price_is_the_length_times_the_price_of_the_place() -> None:
    with seeded(0):
        start, end = torch.randn(2, 7, 2, dtype=torch.float64)
    for pieces in (1, 2, 5):
        cost, highest = CostField(Flat(), scaled_by_uncertainty(pullback, LEVEL), 1.0).segment_cost(
            start, end, None, pieces
        )
        torch.testing.assert_close(cost, (end - start).norm(dim=-1) * (1 + 3))
        torch.testing.assert_close(highest, torch.full((7,), 3 * LEVEL).double())


def test_more_pieces_come_closer_to_the_length_of_the_line() -> None:
    with seeded(0):
        start, end = torch.randn(2, 7, 2, dtype=torch.float64)
    share = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    line = torch.lerp(start[:, None], end[:, None], share)
    field = metric_field(HILL.model.linearize, HILL.metric, 0.0)
    expected, above = length(line, field), Hill().uncertainty(line.flatten(0, 1)).mean(1).view(7, -1)
    errors = []
    for pieces in (10, 20, 40):
        cost, highest = HILL.segment_cost(start, end, None, pieces)
        errors.append(float(((cost - expected) / expected).abs().max()))
        torch.testing.assert_close(highest, above[:, :: 1000 // pieces].amax(1), rtol=1e-9, atol=0)
    assert errors[2] < 2e-3
    assert errors[2] < 0.5 * errors[1] < 0.5 * errors[0]


def test_ends_that_have_been_decoded_are_not_decoded_again() -> None:
    with seeded(0):
        start, end = torch.randn(2, 7, 2, dtype=torch.float64)
    ends = HILL.decode(start, None), HILL.decode(end, None)
    for pieces in (1, 3):
        for one, other in zip(
            HILL.segment_cost(start, end, None, pieces), HILL.segment_cost(start, end, None, pieces, ends), strict=True
        ):
            assert torch.equal(one, other)
    wrong = HILL.decode(start, None), HILL.decode(start, None)
    assert (HILL.segment_cost(start, end, None, 1, wrong)[0] == 0).all()


def test_a_price_does_not_depend_on_other_lines_or_the_direction() -> None:
    vae = random_vae(conditional=True, always_conditioned=(0,), blocks=((1, 4), (4, 6)))
    with seeded(0):
        start, end = torch.randn(2, 150, 3, dtype=torch.float64)
        context = vae.context(torch.rand(150, 6, dtype=torch.float64))
    assert context is not None
    cost_field = CostField(vae, scaled_by_uncertainty(pullback, 0.5), 1.0)
    cost, highest = cost_field.segment_cost(start, end, context, 3)
    some = torch.tensor([140, 3, 77])
    for one, other in zip(
        cost_field.segment_cost(start[some], end[some], context[some], 3), (cost, highest), strict=True
    ):
        assert torch.equal(one, other[some])
    back = cost_field.segment_cost(end, start, context, 3)
    torch.testing.assert_close(back[0], cost, rtol=1e-9, atol=0)
    torch.testing.assert_close(back[1], highest, rtol=1e-9, atol=0)
    assert not torch.allclose(cost_field.segment_cost(start, end, context.roll(1, 0), 3)[0], cost), (
        "it hangs on what is context"
    )
    assert cost_field.segment_cost(start[:0], end[:0], context[:0], 3)[0].shape == (0,)


def test_the_level_and_the_edge_are_those_of_the_data() -> None:
    with seeded(0):
        z = torch.randn(500, 2, dtype=torch.float64)
    cost_field = CostField.of(Hill(), pullback, z, None)
    spread = Hill().uncertainty(z).mean(1)
    assert cost_field.data_limit == pytest.approx(float(spread.quantile(0.99)))
    lin = Hill().linearize(z)
    torch.testing.assert_close(
        cost_field.metric(lin), scaled_by_uncertainty(pullback, float(spread.mean()))(lin), rtol=1e-9, atol=0
    )
    plain = CostField.of(Hill(), pullback, z, None, uncertainty_cost=False)
    assert torch.equal(plain.metric(lin), pullback(lin))
    assert plain.data_limit == cost_field.data_limit


def test_a_model_without_uncertainty_is_data_everywhere() -> None:
    with seeded(0):
        z = torch.randn(20, 2, dtype=torch.float64)
    cost_field = CostField.of(IdentityModel(), pullback, z, None)
    cost, highest = cost_field.segment_cost(z[:10], z[10:], None, 4)
    torch.testing.assert_close(cost, (z[:10] - z[10:]).norm(dim=-1))
    assert cost_field.data_limit == 0
    assert not (highest > cost_field.data_limit).any()


def test_relaxed_curves_bend_around_the_hill_between_the_same_ends() -> None:
    straight = torch.lerp(LEFT[:, None], RIGHT[:, None], torch.linspace(0, 1, 17).double()[:, None])
    costs = [_price(HILL, straight[0])[0]]
    for steps in (3, 10, 60):
        relaxed = HILL.relax(straight, None, steps=steps)
        assert torch.equal(relaxed[:, [0, -1]], straight[:, [0, -1]])
        costs.append(_price(HILL, relaxed[0])[0])
    assert costs[3] < costs[2] < costs[1] < costs[0]
    assert relaxed[0, 8, 1] > 0.4, "on the side where it was a little higher"
    assert HILL.relax(straight[:0], None, steps=3).shape == (0, 17, 2)


def test_what_is_told_goes_with_each_curve_and_curves_are_relaxed_alone() -> None:
    vae = random_vae(conditional=True, always_conditioned=(0,), blocks=((1, 4), (4, 6)))
    with seeded(0):
        curves = 0.1 * torch.randn(5, 7, 3, dtype=torch.float64).cumsum(1)
        context = vae.context(torch.rand(5, 6, dtype=torch.float64))
    assert context is not None
    cost_field = CostField(vae, scaled_by_uncertainty(pullback, 0.5), 1.0)
    together = cost_field.relax(curves, context, steps=3)
    each = context.repeat_interleave(6, 0)
    before, after = (
        (cost_field.segment_cost(points[:, :-1].flatten(0, 1), points[:, 1:].flatten(0, 1), each, 1)[0] ** 2).view(
            5, -1
        )
        for points in (curves, together)
    )
    assert (after.sum(1) <= before.sum(1)).all()
    assert (after.sum(1) < 0.9 * before.sum(1)).any()
    for place in (4, 0):
        alone = cost_field.relax(curves[place : place + 1], context[place : place + 1], steps=3)
        assert torch.equal(alone[0], together[place])
    assert not torch.allclose(cost_field.relax(curves, context.roll(1, 0), steps=3), together)

"""Routes over a roadmap to whatever node reaches the target, for a model that is conditioned on nothing."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Encoder, Feature, Schema
from counterpath.data.constraints import Constraints
from counterpath.data.surface import Surface
from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Neighbours
from counterpath.geometry.metric import pullback
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_vae
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.search.paths import is_first
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import CostField, Landmarks, Roadmap, connect
from counterpath.search.routes import Ends, RoutePoints, refined_routes, slide
from counterpath.search.validity import Plausibility, Validator
from tests.search.problems import linear

TARGET = Target(1, confidence=0.6)
NAMES = tuple("abc")
SCHEMA = Schema(tuple(Feature(name, "continuous") for name in NAMES))


@dataclass(frozen=True)
class World:
    """The surface as a table, and a linear model that says yes to some of what it decodes."""

    vae: VAE
    encoder: Encoder
    rows: Tensor
    model: Callable[[Tensor], Tensor]
    roadmap: Roadmap
    plausibility: Plausibility

    def decoder(self, feasible: FeasibleSet, *, keep_residual: bool = True) -> ResidualDecoder:
        return ResidualDecoder.of(self.vae, feasible, generative=True, keep_residual=keep_residual)

    def validator(self, target: Target = TARGET, *, data: bool = True) -> Validator:
        return Validator(self.model, self.vae, target, self.plausibility if data else None)

    def travel(self, decoder: ResidualDecoder, target: Target = TARGET, *, refine: bool = True) -> RoutePoints:
        fresh = Roadmap(self.roadmap.cost_field, self.roadmap.landmarks, self.roadmap.graph)
        return refined_routes(fresh, decoder, target, self.validator(target), refine=refine)

    def says_yes(self, x: Tensor, target: Target = TARGET) -> Tensor:
        return target.is_reached(self.model(x))


@pytest.fixture(scope="module")
def world(surface: Surface) -> World:
    x = surface.x.double()
    frame = pd.DataFrame(x.numpy(), columns=list(NAMES))
    encoder = Encoder.fit(frame, SCHEMA)
    rows = encoder.encode(frame)
    training = VAETraining(mean_epochs=60, std_epochs=10, batch_size=64)
    vae = fit_vae(rows, 2, hidden=(32, 32), centers=60, training=training, run=Run(seed=0))
    slope = torch.tensor([9.0, 3.0, 0.0])
    landmarks = Landmarks.of(vae, encoder.round, rows, torch.rand(len(rows), 2), linear(slope, 0.0), 0)
    score = (landmarks.x * slope).sum(-1)
    model = linear(slope, 0.5 - float(score.quantile(0.7)))
    landmarks = replace(landmarks, probabilities=model(landmarks.x))
    roadmap = Roadmap.build(CostField.of(vae, pullback, landmarks.z, None), landmarks, 0)
    neighbours = Neighbours(rows)
    apart = neighbours.nearest(rows, 2)[0][:, 1]
    limits = float(apart.quantile(0.95)), float(apart.square().mean().sqrt())
    return World(vae, encoder, rows, model, roadmap, Plausibility(neighbours, *limits))


@pytest.fixture(scope="module")
def rows(world: World) -> Tensor:
    """Rows that the model rejects."""
    return world.rows[~world.says_yes(world.rows)][:12]


def _last(found: RoutePoints) -> Tensor:
    return torch.cat([is_first(found.row)[1:], torch.tensor([True])])


def _equal(one: RoutePoints, other: RoutePoints, order: Tensor) -> None:
    """The same for the rows of the first, which are these of the second."""
    for place, row in enumerate(order.tolist()):
        for name in ("x", "z"):
            assert torch.equal(getattr(one, name)[one.row == place], getattr(other, name)[other.row == row]), name
    assert torch.equal(one.gap, other.gap[order])


def _routes(world: World, decoder: ResidualDecoder) -> tuple[Tensor, Tensor]:
    shortest = world.roadmap.shortest_paths(TARGET)
    goal = (shortest.cost == 0).nonzero()[:, 0]
    return connect(world.roadmap, shortest, decoder.start, goal[:4].expand(len(decoder.start), -1))


def test_bridges_are_gaps(world: World, rows: Tensor) -> None:
    decoder, roadmap = world.decoder(FeasibleSet.of(world.encoder, rows)), world.roadmap
    plain, _ = _routes(world, decoder)
    everywhere = replace(roadmap.graph, bridge=torch.ones_like(roadmap.graph.bridge))
    bridged, gap = _routes(replace(world, roadmap=Roadmap(roadmap.cost_field, roadmap.landmarks, everywhere)), decoder)
    assert torch.equal(bridged, plain)
    steps = (plain[:, 2:] != plain[:, 1:-1]).any(-1).any(1)
    assert torch.equal(gap, steps), "from node to node; getting on crosses no bridge"
    assert steps.any()


@pytest.mark.parametrize("refine", [False, True])
def test_paths_begin_at_the_rows_and_end_where_the_model_says_yes(world: World, rows: Tensor, refine: bool) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows))
    found = world.travel(decoder, refine=refine)
    first, last = is_first(found.row), _last(found)
    assert found.row[first].tolist() == list(range(len(rows)))
    torch.testing.assert_close(found.z[first], decoder.start)
    torch.testing.assert_close(found.x[first], rows, rtol=0, atol=1e-5)
    assert torch.equal(decoder.feasible.legal(found.x, found.row), found.x)
    met = world.says_yes(found.x)
    assert met[last].all()
    if not refine:
        assert not met[~last & ~first].any(), "it stops at the first such point"


def test_refined_ends_cost_no_more_and_are_no_less_plausible(world: World, rows: Tensor) -> None:
    feasible = FeasibleSet.of(world.encoder, rows)
    rough, fine = (world.travel(world.decoder(feasible), refine=refine) for refine in (False, True))
    before, after = (found.x[_last(found)] for found in (rough, fine))
    assert (feasible.cost(after) <= feasible.cost(before)).all()
    assert (feasible.cost(after) < feasible.cost(before)).any()
    far, near = world.plausibility.distance(after), world.plausibility.distance(before)
    assert (far <= near.clamp_min(world.plausibility.typical) + 1e-6).all()
    assert torch.equal(fine.gap, rough.gap)


def test_without_data_ends_stay_where_they_are(world: World, rows: Tensor) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows))
    one = refined_routes(world.roadmap, decoder, TARGET, world.validator(data=False))
    _equal(one, world.travel(decoder, refine=False), torch.arange(len(rows)))


def test_the_answer_does_not_depend_on_who_else_asks_nor_on_the_order(world: World, rows: Tensor) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows))
    together = world.travel(decoder)
    order = torch.arange(len(rows)).flip(0)
    _equal(world.travel(decoder.at(order)), together, order)
    for row in (0, 7):
        _equal(world.travel(decoder.at(torch.tensor([row]))), together, torch.tensor([row]))


def test_a_roadmap_that_others_have_used_gives_the_same_answer(world: World, rows: Tensor) -> None:
    roadmap = Roadmap(world.roadmap.cost_field, world.roadmap.landmarks, world.roadmap.graph)
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows[:6]))
    for target in (Target(0), Target(1, confidence=0.8)):
        refined_routes(roadmap, decoder, target, world.validator(target))
    _equal(refined_routes(roadmap, decoder, TARGET, world.validator()), world.travel(decoder), torch.arange(6))


def test_where_nobody_gets_there_paths_lead_to_the_most_probable(world: World, rows: Tensor) -> None:
    hopeless = replace(TARGET, confidence=1 - 1e-12)
    found = world.travel(world.decoder(FeasibleSet.of(world.encoder, rows)), hopeless)
    assert not world.says_yes(found.x, hopeless).any()
    before, after = (TARGET.probability(world.model(x)) for x in (rows, found.x[_last(found)]))
    assert (after > before).float().mean() > 0.9


def test_without_the_residual_paths_begin_at_the_reconstruction(world: World, rows: Tensor) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows), keep_residual=False)
    found = world.travel(decoder)
    bare = decoder.decode(decoder.start, torch.arange(len(rows)), 0.0)
    assert torch.equal(found.x[is_first(found.row)], bare)


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("up", "down")), max_size=2), st.integers(0, 7))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_point_is_feasible(world: World, rows: Tensor, directions: dict[str, str], first: int) -> None:
    factual = rows[first : first + 5]
    wishes = Constraints.of(SCHEMA, directions=directions)
    bounds = wishes.bounds(world.encoder, world.encoder.decode(factual), factual)
    feasible = FeasibleSet.of(world.encoder, factual, bounds)
    found = world.travel(world.decoder(feasible))
    assert feasible.contains(found.x, found.row).all()
    assert torch.equal(feasible.legal(found.x, found.row), found.x)
    torch.testing.assert_close(found.x[is_first(found.row)], factual, rtol=0, atol=1e-5)


def test_ways_are_relaxed(world: World, rows: Tensor) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows))
    ways = resample(_routes(world, decoder)[0], 8)
    field = world.roadmap.cost_field
    relaxed = field.relax(ways, None, steps=3)
    assert torch.equal(relaxed[:, [0, -1]], ways[:, [0, -1]])
    before, after = (
        field.segment_cost(points[:, :-1].flatten(0, 1), points[:, 1:].flatten(0, 1), None, 1)[0].view(-1, 8)
        for points in (ways, relaxed)
    )
    assert (after.square().sum(1) <= before.square().sum(1) * (1 + 1e-6)).all()
    assert (after.square().sum(1) < 0.95 * before.square().sum(1)).any()


# Sliding


def _ends(world: World, decoder: ResidualDecoder) -> Ends:
    z, weight = _routes(world, decoder)[0][:, -1], torch.zeros(len(decoder.start))
    return Ends(z, weight, decoder.decode(z, torch.arange(len(z)), weight[:, None]))


def test_ends_slide_to_where_they_cost_less_and_stay_valid_and_plausible(world: World, rows: Tensor) -> None:
    feasible = FeasibleSet.of(world.encoder, rows)
    decoder, every = world.decoder(feasible), torch.arange(len(rows))
    before, field = _ends(world, decoder), world.roadmap.cost_field
    assert world.says_yes(before.x).all()
    plausible = world.plausibility.no_farther_than(before.x, world.plausibility.typical)
    after = slide(field, decoder, before, world.validator().is_valid, plausible)
    moved = (after.z != before.z).any(-1)
    assert moved.any()
    assert (feasible.cost(after.x)[moved] < feasible.cost(before.x)[moved]).all()
    assert torch.equal(after.x[~moved], before.x[~moved])
    assert world.says_yes(after.x).all()
    assert plausible(after.x, every).all()
    assert torch.equal(after.x, decoder.decode(after.z, every, after.weight[:, None])), "the rows of these codes"
    edge = field.decode(before.z, None).spread.clamp_min(field.data_limit)
    assert (field.decode(after.z, None).spread <= edge).all()


def test_ends_stay_where_nothing_else_is_accepted(world: World, rows: Tensor) -> None:
    decoder = world.decoder(FeasibleSet.of(world.encoder, rows))
    ends = _ends(world, decoder)

    def never(tried: Tensor, _: Tensor) -> Tensor:
        return torch.zeros(len(tried), dtype=torch.bool)

    anything = world.plausibility.no_farther_than(ends.x, math.inf)
    for is_valid, plausible in ((never, anything), (world.validator().is_valid, never)):
        after = slide(world.roadmap.cost_field, decoder, ends, is_valid, plausible)
        assert torch.equal(after.z, ends.z)
        assert torch.equal(after.x, ends.x)

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.curve import resample
from counterpath.search import geodesic as geodesic_module
from counterpath.search import roadmap as roadmap_module
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import Ends, RoutePoints, find_routes, refined_routes, slide
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.paths import is_first
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import Roadmap
from counterpath.search.validity import Validator

TARGET = Target(1, confidence=0.6)
NAMES = ("city", "size", "children", "member", "sex", "debt", "score")


def _roadmap_of(models: FittedModels) -> Roadmap:
    """A roadmap that has not been used yet."""
    fitted = models.state(METHODS["geodesic"], SearchOptions())
    return Roadmap(fitted.cost_field, fitted.landmarks, fitted.graph)


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    """Rows that the model denies what is target."""
    return models.rows[~TARGET.is_reached(models.probabilities)][:12]


@pytest.fixture(autouse=True)
def _small_conditional(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roadmap_module, geodesic_module):
        monkeypatch.setattr(module, "CONDITIONAL_NODES", 150)


def _network(models: FittedModels) -> Roadmap:
    return _roadmap_of(models)


def _journey(models: FittedModels, feasible: FeasibleSet, *, keep_residual: bool = True) -> ResidualDecoder:
    return ResidualDecoder.of(models.latent, feasible, generative=True, keep_residual=keep_residual)


def _met(models: FittedModels, target: Target = TARGET) -> Callable[[Tensor], Tensor]:
    return lambda x: target.is_reached(models.explained.predict_proba(x))


def _validator(models: FittedModels, target: Target = TARGET, *, unseen: bool = True, data: bool = True) -> Validator:
    """What asks the model; by default, people whom nobody has seen are as good as any."""
    plausibility, combinations = models.plausibility if data else None, None if unseen else models.combinations
    return Validator(models.explained.predict_proba, models.latent, target, plausibility, combinations=combinations)


def _travel(
    models: FittedModels, decoder: ResidualDecoder, target: Target = TARGET, *, unseen: bool = True, **options: object
) -> RoutePoints:
    validator = _validator(models, target, unseen=unseen)
    return refined_routes(_network(models), decoder, target, validator, **options)  # type: ignore[arg-type]


def _locked(models: FittedModels, feasible: FeasibleSet, *names: str) -> FeasibleSet:
    held = torch.zeros_like(feasible.fixed)
    held[:, models.encoder.columns(*names)] = True
    return feasible.fix(held)


def _last(found: RoutePoints) -> Tensor:
    return torch.cat([is_first(found.row)[1:], torch.tensor([True])])


def _equal(one: RoutePoints, other: RoutePoints, order: Tensor) -> None:
    """The same for the people of the first, who are these of the second."""
    for place, person in enumerate(order.tolist()):
        for name in ("x", "z"):
            assert torch.equal(getattr(one, name)[one.row == place], getattr(other, name)[other.row == person]), name
    assert torch.equal(one.gap, other.gap[order])
    assert torch.equal(one.timed_out, other.timed_out[order])


# Routes


def test_routes_lead_from_the_people_to_goals(models: FittedModels, rows: Tensor) -> None:
    roadmap, decoder = _network(models), _journey(models, FeasibleSet.of(models.encoder, rows))
    routes = find_routes(roadmap, decoder, TARGET, _validator(models))
    assert torch.equal(routes.points[:, 0], decoder.start)
    assert not routes.timed_out.any()
    goal = roadmap.landmarks.z[TARGET.is_reached(roadmap.landmarks.probabilities)]
    assert (torch.cdist(routes.points[:, -1].double(), goal.double()).amin(1) < 1e-6).all()


def test_goals_are_asked_about_as_the_person_would_be_there(models: FittedModels, rows: Tensor) -> None:
    for lock in (("city",), ("debt", "score")):
        decoder = _journey(models, _locked(models, FeasibleSet.of(models.encoder, rows), *lock))
        roadmap = _network(models)
        routes = find_routes(roadmap, decoder, TARGET, _validator(models))
        met = _met(models)(decoder.decode(routes.points[:, -1], torch.arange(len(rows)), 0.0))
        assert met.any()
        assert decoder.context is not None
        for person in (~met).nonzero()[:, 0]:
            conditional = roadmap.without_edges(decoder.context[person][None])
            around = decoder.finish(conditional.decoded.mean, person.expand(len(conditional.z)), 0.0)
            assert not _met(models)(around).any(), "only where no landmark would do"


def test_who_has_no_goal_among_the_nearest_nodes_goes_further(
    models: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (roadmap_module, geodesic_module):
        monkeypatch.setattr(module, "CONDITIONAL_NODES", 10)
    decoder, roadmap = (
        _journey(models, _locked(models, FeasibleSet.of(models.encoder, rows), "score")),
        _network(models),
    )
    routes = find_routes(roadmap, decoder, TARGET, _validator(models))
    met = _met(models)(decoder.decode(routes.points[:, -1], torch.arange(len(rows)), 0.0))
    assert decoder.context is not None
    further = 0
    for person in range(len(rows)):
        near, wide = (
            roadmap.conditional(decoder.context[person][None]),
            roadmap.without_edges(decoder.context[person][None]),
        )
        here, there = (
            _met(models)(decoder.finish(conditional.decoded.mean, torch.full((len(conditional.z),), person), 0.0)).any()
            for conditional in (near, wide)
        )
        assert bool(met[person]) == bool(there)
        further += int(there & ~here)
    assert further > 0


def test_bridges_are_gaps(models: FittedModels, rows: Tensor) -> None:
    roadmap, decoder = _network(models), _journey(models, FeasibleSet.of(models.encoder, rows))
    assert roadmap.graph is not None
    plain = find_routes(roadmap, decoder, TARGET, _validator(models))
    everywhere = replace(roadmap.graph, bridge=torch.ones_like(roadmap.graph.bridge))
    over = Roadmap(roadmap.cost_field, roadmap.landmarks, everywhere)
    bridged = find_routes(over, decoder, TARGET, _validator(models))
    assert torch.equal(bridged.points, plain.points)
    steps = (plain.points[:, 2:] != plain.points[:, 1:-1]).any(-1).any(1)
    assert torch.equal(bridged.gap, steps), "from node to node; getting on crosses no bridge"
    assert steps.sum() > 0


@pytest.mark.parametrize("lock", [(), ("city",)])
def test_when_time_is_up_nothing_is_asked_any_more(models: FittedModels, rows: Tensor, lock: tuple[str, ...]) -> None:
    feasible = _locked(models, FeasibleSet.of(models.encoder, rows), *lock)
    decoder, roadmap = _journey(models, feasible), _network(models)

    def never(x: Tensor) -> Tensor:
        raise AssertionError("there is no time")

    validator = replace(_validator(models), predict_proba=never)
    routes = find_routes(roadmap, decoder, TARGET, validator, should_stop=lambda: True)
    assert routes.timed_out.all()
    assert not routes.gap.any()
    assert not roadmap._conditional
    assert (routes.points == decoder.start[:, None]).all()
    found = _travel(models, decoder, should_stop=lambda: True)
    assert found.timed_out.all()
    assert found.row.tolist() == list(range(len(rows)))
    torch.testing.assert_close(found.x, rows, rtol=0, atol=1e-5)


def test_who_was_served_before_time_was_up_has_a_path(models: FittedModels, rows: Tensor) -> None:
    decoder = _journey(models, _locked(models, FeasibleSet.of(models.encoder, rows), "score"))
    whole = _travel(models, decoder, refine=False)
    looks = itertools.count()
    cut = _travel(models, decoder, refine=False, should_stop=lambda: next(looks) > 12)
    assert 0 < cut.timed_out.sum() < len(rows)
    served = (~cut.timed_out).nonzero()[:, 0]
    for person in served.tolist():
        assert torch.equal(cut.x[cut.row == person], whole.x[whole.row == person])
    assert (torch.bincount(cut.row)[cut.timed_out] == 1).all()


def test_ways_are_relaxed(models: FittedModels, rows: Tensor) -> None:
    roadmap, decoder = _network(models), _journey(models, FeasibleSet.of(models.encoder, rows))
    routes = find_routes(roadmap, decoder, TARGET, _validator(models))
    ways = resample(routes.points, 8)
    relaxed = roadmap.cost_field.relax(ways, decoder.context, steps=3)
    assert torch.equal(relaxed[:, [0, -1]], ways[:, [0, -1]])
    assert decoder.context is not None
    told = decoder.context.repeat_interleave(8, 0)
    before, after = (
        roadmap.cost_field.segment_cost(points[:, :-1].flatten(0, 1), points[:, 1:].flatten(0, 1), told, 1)[0].view(
            -1, 8
        )
        for points in (ways, relaxed)
    )
    before, after = before.square().sum(1), after.square().sum(1)
    assert (after <= before * (1 + 1e-6)).all()
    moving = before > 0
    assert (after < 0.9 * before)[moving].float().mean() > 0.5


# Travelling


@pytest.mark.parametrize("refine", [False, True])
def test_paths_begin_at_the_people_and_end_where_the_model_says_yes(
    models: FittedModels, rows: Tensor, refine: bool
) -> None:
    decoder = _journey(models, FeasibleSet.of(models.encoder, rows))
    found = _travel(models, decoder, refine=refine)
    first, last = is_first(found.row), _last(found)
    assert found.row[first].tolist() == list(range(len(rows)))
    assert torch.equal(found.z[first], decoder.start)
    torch.testing.assert_close(found.x[first], rows, rtol=0, atol=1e-5)
    assert torch.equal(decoder.feasible.legal(found.x, found.row), found.x)
    met = _met(models)(found.x)
    assert met[last].all()
    if not refine:
        assert not met[~last & ~first].any(), "it stops at the first such point"


def test_refined_ends_cost_no_more_and_are_no_less_plausible(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    rough, fine = (_travel(models, _journey(models, feasible), refine=refine) for refine in (False, True))
    before, after = (found.x[_last(found)] for found in (rough, fine))
    assert (feasible.cost(after) <= feasible.cost(before)).all()
    assert (feasible.cost(after) < feasible.cost(before)).any()
    far, near = models.plausibility.distance(after), models.plausibility.distance(before)
    assert (far <= near.clamp_min(models.plausibility.typical) + 1e-6).all()
    assert torch.equal(fine.gap, rough.gap)


def test_without_data_ends_stay_where_they_are(models: FittedModels, rows: Tensor) -> None:
    decoder = _journey(models, FeasibleSet.of(models.encoder, rows))
    one = refined_routes(_network(models), decoder, TARGET, _validator(models, data=False))
    _equal(one, _travel(models, decoder, refine=False), torch.arange(len(rows)))


@pytest.mark.parametrize("lock", [(), ("city",), ("score",)])
def test_the_answer_does_not_depend_on_who_else_asks_nor_on_the_order(
    models: FittedModels, rows: Tensor, lock: tuple[str, ...]
) -> None:
    decoder = _journey(models, _locked(models, FeasibleSet.of(models.encoder, rows), *lock))
    together = _travel(models, decoder)
    order = torch.arange(len(rows)).flip(0)
    _equal(_travel(models, decoder.at(order)), together, order)
    for person in (0, 7):
        alone = torch.tensor([person])
        _equal(_travel(models, decoder.at(alone)), together, alone)


def test_a_network_that_others_have_used_gives_the_same_answer(models: FittedModels, rows: Tensor) -> None:
    used = _network(models)
    feasible = FeasibleSet.of(models.encoder, rows[:6])
    journeys = [_journey(models, part) for part in (feasible, _locked(models, feasible, "sex"))]
    for outcome in (Target(2), TARGET):
        for decoder in journeys:
            refined_routes(used, decoder, outcome, _validator(models, outcome))
    for decoder in reversed(journeys):
        again = refined_routes(used, decoder, TARGET, _validator(models))
        _equal(again, _travel(models, decoder), torch.arange(6))


def test_where_nobody_gets_there_paths_lead_to_the_most_probable(models: FittedModels, rows: Tensor) -> None:
    hopeless = replace(TARGET, confidence=0.9999999)
    found = _travel(models, _journey(models, FeasibleSet.of(models.encoder, rows)), hopeless)
    assert not _met(models, hopeless)(found.x).any()
    assert not found.timed_out.any()
    before, after = (TARGET.probability(models.explained.predict_proba(x)) for x in (rows, found.x[_last(found)]))
    assert (after > before).float().mean() > 0.9


def test_without_what_is_carried_paths_begin_at_the_reconstruction(models: FittedModels, rows: Tensor) -> None:
    decoder = _journey(models, FeasibleSet.of(models.encoder, rows), keep_residual=False)
    found = _travel(models, decoder)
    bare = decoder.decode(decoder.start, torch.arange(len(rows)), 0.0)
    assert torch.equal(found.x[is_first(found.row)], bare)
    assert _met(models)(found.x[_last(found)]).all()


@given(
    st.sets(st.sampled_from(NAMES), max_size=3),
    st.dictionaries(
        st.sampled_from(("children", "debt", "score", "size")), st.sampled_from(("up", "down")), max_size=2
    ),
    st.booleans(),
    st.integers(0, 7),
)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_point_is_within_scope_with_told_columns_to_the_bit(
    models: FittedModels, rows: Tensor, lock: set[str], directions: dict[str, str], few: bool, first: int
) -> None:
    factual = rows[first : first + 5]
    frame = models.encoder.decode(factual)
    cities = {"city": tuple({*frame["city"], *("ABC" if few else "ABCDEFGHIJKL")})}
    wishes = Constraints.of(models.encoder.schema, lock=sorted(lock), directions=directions, ranges=cities)
    feasible = FeasibleSet.of(models.encoder, factual, wishes.bounds(models.encoder, frame, factual))
    found = _travel(models, _journey(models, feasible))
    lower, upper, told = (part[found.row] for part in (feasible.lower, feasible.upper, feasible.fixed))
    assert ((found.x >= lower) & (found.x <= upper)).all()
    assert torch.equal(found.x[told], factual[found.row][told])
    held = models.encoder.columns(*lock)
    assert torch.equal(found.x[:, held], factual[found.row][:, held])
    torch.testing.assert_close(found.x[is_first(found.row)], factual, rtol=0, atol=1e-5)
    assert torch.equal(feasible.legal(found.x, found.row), found.x)


# Sliding


def test_ends_slide_to_where_they_cost_less_and_stay_valid_and_plausible(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    decoder, roadmap, every = _journey(models, feasible), _network(models), torch.arange(len(rows))
    routes = find_routes(roadmap, decoder, TARGET, _validator(models))
    z, share = routes.points[:, -1], torch.zeros(len(rows))
    before = Ends(z, share, decoder.decode(z, every, share[:, None]))
    assert _met(models)(before.x).all()
    plausible = models.plausibility.no_farther_than(before.x, models.plausibility.typical)
    after = slide(roadmap.cost_field, decoder, before, _validator(models).is_valid, plausible)
    assert (feasible.cost(after.x) <= feasible.cost(before.x)).all()
    moved = (after.z != before.z).any(-1)
    assert moved.any()
    assert (feasible.cost(after.x)[moved] < feasible.cost(before.x)[moved]).all()
    assert torch.equal(after.x[~moved], before.x[~moved])
    assert _met(models)(after.x).all()
    assert plausible(after.x, every).all()
    assert torch.equal(after.x, decoder.decode(after.z, every, share[:, None])), "the rows of these codes"
    edge = roadmap.cost_field.decode(before.z, decoder.context).spread.clamp_min(roadmap.cost_field.data_limit)
    assert (roadmap.cost_field.decode(after.z, decoder.context).spread <= edge).all()


def test_ends_stay_where_nothing_else_is_accepted(models: FittedModels, rows: Tensor) -> None:
    decoder, roadmap = _journey(models, FeasibleSet.of(models.encoder, rows)), _network(models)
    z, share = decoder.start.roll(1, 0), torch.zeros(len(rows))
    ends = Ends(z, share, decoder.decode(z, torch.arange(len(rows)), share[:, None]))

    def never(tried: Tensor, _: Tensor) -> Tensor:
        return torch.zeros(len(tried), dtype=torch.bool)

    for is_valid, plausible in (
        (never, models.plausibility.no_farther_than(ends.x, math.inf)),
        (_validator(models).is_valid, never),
    ):
        after = slide(roadmap.cost_field, decoder, ends, is_valid, plausible)
        assert torch.equal(after.z, ends.z)
        assert torch.equal(after.x, ends.x)

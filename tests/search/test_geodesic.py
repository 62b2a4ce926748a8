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
from counterpath.search import roadmap as network_module
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import Ends, Travelled, find_routes, slide, travel
from counterpath.search.objective import Target
from counterpath.search.paths import firsts
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import Roadmap
from counterpath.search.sparsify import within_reach

TARGET = Target(1, confidence=0.6)
NAMES = ("city", "size", "children", "member", "sex", "debt", "score")


@pytest.fixture(scope="module")
def rows(learned: FittedModels) -> Tensor:
    """Rows that the model denies what is wanted."""
    return learned.rows[~TARGET.met(learned.probabilities)][:12]


@pytest.fixture(autouse=True)
def _small_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "NODES", 150)


def _network(learned: FittedModels) -> Roadmap:
    assert learned.landmarks is not None
    return Roadmap(learned.terrain, learned.landmarks, learned.graph)


def _journey(learned: FittedModels, scope: FeasibleSet, *, carry: bool = True) -> ResidualDecoder:
    return ResidualDecoder.of(learned.space, scope, generative=True, carry=carry)


def _met(learned: FittedModels, wanted: Target = TARGET) -> Callable[[Tensor], Tensor]:
    return lambda x: wanted.met(learned.explained.predict_proba(x))


def _travel(learned: FittedModels, journey: ResidualDecoder, wanted: Target = TARGET, **options: object) -> Travelled:
    met = _met(learned, wanted)
    return travel(
        _network(learned),
        journey,
        wanted,
        learned.explained.predict_proba,
        met,
        learned.data,
        **options,  # type: ignore[arg-type]
    )


def _locked(learned: FittedModels, scope: FeasibleSet, *names: str) -> FeasibleSet:
    held = torch.zeros_like(scope.told)
    held[:, learned.encoder.columns(*names)] = True
    return scope.holding(held)


def _last(found: Travelled) -> Tensor:
    return torch.cat([firsts(found.row)[1:], torch.tensor([True])])


def _equal(one: Travelled, other: Travelled, order: Tensor) -> None:
    """The same for the people of the first, who are these of the second."""
    for place, person in enumerate(order.tolist()):
        for name in ("x", "z"):
            assert torch.equal(getattr(one, name)[one.row == place], getattr(other, name)[other.row == person]), name
    assert torch.equal(one.gap, other.gap[order])
    assert torch.equal(one.late, other.late[order])


# Routes


def test_routes_lead_from_the_people_to_goals(learned: FittedModels, rows: Tensor) -> None:
    network, journey = _network(learned), _journey(learned, FeasibleSet.of(learned.encoder, rows))
    routes = find_routes(network, journey, TARGET, learned.explained.predict_proba)
    assert torch.equal(routes.points[:, 0], journey.start)
    assert not routes.late.any()
    goal = network.landmarks.z[TARGET.met(network.landmarks.answers)]
    assert (torch.cdist(routes.points[:, -1].double(), goal.double()).amin(1) < 1e-6).all()


def test_goals_are_asked_about_as_the_person_would_be_there(learned: FittedModels, rows: Tensor) -> None:
    for lock in (("city",), ("debt", "score")):
        journey = _journey(learned, _locked(learned, FeasibleSet.of(learned.encoder, rows), *lock))
        network = _network(learned)
        routes = find_routes(network, journey, TARGET, learned.explained.predict_proba)
        met = _met(learned)(journey.rows(routes.points[:, -1], torch.arange(len(rows)), 0.0))
        assert met.any()
        assert journey.told is not None
        for person in (~met).nonzero()[:, 0]:
            world = network.everywhere(journey.told[person][None])
            around = journey.become(world.decoded.mean, person.expand(len(world.z)), 0.0)
            assert not _met(learned)(around).any(), "only where no landmark would do"


def test_who_has_no_goal_among_the_nearest_nodes_goes_further(
    learned: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "NODES", 10)
    journey, network = (
        _journey(learned, _locked(learned, FeasibleSet.of(learned.encoder, rows), "score")),
        _network(learned),
    )
    routes = find_routes(network, journey, TARGET, learned.explained.predict_proba)
    met = _met(learned)(journey.rows(routes.points[:, -1], torch.arange(len(rows)), 0.0))
    assert journey.told is not None
    further = 0
    for person in range(len(rows)):
        near, wide = network.world(journey.told[person][None]), network.everywhere(journey.told[person][None])
        here, there = (
            _met(learned)(journey.become(world.decoded.mean, torch.full((len(world.z),), person), 0.0)).any()
            for world in (near, wide)
        )
        assert bool(met[person]) == bool(there)
        further += int(there & ~here)
    assert further > 0


def test_bridges_are_gaps(learned: FittedModels, rows: Tensor) -> None:
    network, journey = _network(learned), _journey(learned, FeasibleSet.of(learned.encoder, rows))
    assert network.graph is not None
    plain = find_routes(network, journey, TARGET, learned.explained.predict_proba)
    everywhere = replace(network.graph, bridge=torch.ones_like(network.graph.bridge))
    bridged = find_routes(
        Roadmap(network.terrain, network.landmarks, everywhere), journey, TARGET, learned.explained.predict_proba
    )
    assert torch.equal(bridged.points, plain.points)
    steps = (plain.points[:, 2:] != plain.points[:, 1:-1]).any(-1).any(1)
    assert torch.equal(bridged.gap, steps), "from node to node; getting on crosses no bridge"
    assert steps.sum() > 0


@pytest.mark.parametrize("lock", [(), ("city",)])
def test_when_time_is_up_nothing_is_asked_any_more(learned: FittedModels, rows: Tensor, lock: tuple[str, ...]) -> None:
    scope = _locked(learned, FeasibleSet.of(learned.encoder, rows), *lock)
    journey, network = _journey(learned, scope), _network(learned)

    def never(x: Tensor) -> Tensor:
        raise AssertionError("there is no time")

    routes = find_routes(network, journey, TARGET, never, over=lambda: True)
    assert routes.late.all()
    assert not routes.gap.any()
    assert not network._worlds
    assert (routes.points == journey.start[:, None]).all()
    found = _travel(learned, journey, over=lambda: True)
    assert found.late.all()
    assert found.row.tolist() == list(range(len(rows)))
    torch.testing.assert_close(found.x, rows, rtol=0, atol=1e-5)


def test_who_was_served_before_time_was_up_has_a_path(learned: FittedModels, rows: Tensor) -> None:
    journey = _journey(learned, _locked(learned, FeasibleSet.of(learned.encoder, rows), "score"))
    whole = _travel(learned, journey, refine=False)
    looks = itertools.count()
    cut = _travel(learned, journey, refine=False, over=lambda: next(looks) > 12)
    assert 0 < cut.late.sum() < len(rows)
    served = (~cut.late).nonzero()[:, 0]
    for person in served.tolist():
        assert torch.equal(cut.x[cut.row == person], whole.x[whole.row == person])
    assert (torch.bincount(cut.row)[cut.late] == 1).all()


def test_ways_are_relaxed(learned: FittedModels, rows: Tensor) -> None:
    network, journey = _network(learned), _journey(learned, FeasibleSet.of(learned.encoder, rows))
    routes = find_routes(network, journey, TARGET, learned.explained.predict_proba)
    ways = resample(routes.points, 8)
    relaxed = network.terrain.relaxed(ways, journey.told, steps=3)
    assert torch.equal(relaxed[:, [0, -1]], ways[:, [0, -1]])
    assert journey.told is not None
    told = journey.told.repeat_interleave(8, 0)
    before, after = (
        network.terrain.price(points[:, :-1].flatten(0, 1), points[:, 1:].flatten(0, 1), told, 1)[0].view(-1, 8)
        for points in (ways, relaxed)
    )
    before, after = before.square().sum(1), after.square().sum(1)
    assert (after <= before * (1 + 1e-6)).all()
    moving = before > 0
    assert (after < 0.9 * before)[moving].float().mean() > 0.5


# Travelling


@pytest.mark.parametrize("refine", [False, True])
def test_paths_begin_at_the_people_and_end_where_the_model_says_yes(
    learned: FittedModels, rows: Tensor, refine: bool
) -> None:
    journey = _journey(learned, FeasibleSet.of(learned.encoder, rows))
    found = _travel(learned, journey, refine=refine)
    first, last = firsts(found.row), _last(found)
    assert found.row[first].tolist() == list(range(len(rows)))
    assert torch.equal(found.z[first], journey.start)
    torch.testing.assert_close(found.x[first], rows, rtol=0, atol=1e-5)
    assert torch.equal(learned.encoder.round(found.x), found.x)
    met = _met(learned)(found.x)
    assert met[last].all()
    if not refine:
        assert not met[~last & ~first].any(), "it stops at the first such point"


def test_refined_ends_cost_no_more_and_are_no_less_plausible(learned: FittedModels, rows: Tensor) -> None:
    scope = FeasibleSet.of(learned.encoder, rows)
    rough, fine = (_travel(learned, _journey(learned, scope), refine=refine) for refine in (False, True))
    before, after = (found.x[_last(found)] for found in (rough, fine))
    assert (scope.cost(after) <= scope.cost(before)).all()
    assert (scope.cost(after) < scope.cost(before)).any()
    far, near = learned.data.distance(after), learned.data.distance(before)
    assert (far <= near.clamp_min(learned.data.typical) + 1e-6).all()
    assert torch.equal(fine.gap, rough.gap)


def test_without_data_ends_stay_where_they_are(learned: FittedModels, rows: Tensor) -> None:
    journey, ask = _journey(learned, FeasibleSet.of(learned.encoder, rows)), learned.explained.predict_proba
    one = travel(_network(learned), journey, TARGET, ask, _met(learned), None)
    _equal(one, _travel(learned, journey, refine=False), torch.arange(len(rows)))


@pytest.mark.parametrize("lock", [(), ("city",), ("score",)])
def test_the_answer_does_not_depend_on_who_else_asks_nor_on_the_order(
    learned: FittedModels, rows: Tensor, lock: tuple[str, ...]
) -> None:
    journey = _journey(learned, _locked(learned, FeasibleSet.of(learned.encoder, rows), *lock))
    together = _travel(learned, journey)
    order = torch.arange(len(rows)).flip(0)
    _equal(_travel(learned, journey.at(order)), together, order)
    for person in (0, 7):
        alone = torch.tensor([person])
        _equal(_travel(learned, journey.at(alone)), together, alone)


def test_a_network_that_others_have_used_gives_the_same_answer(learned: FittedModels, rows: Tensor) -> None:
    used, met = _network(learned), _met(learned)
    scope = FeasibleSet.of(learned.encoder, rows[:6])
    journeys = [_journey(learned, part) for part in (scope, _locked(learned, scope, "sex"))]
    for outcome in (Target(2), TARGET):
        for journey in journeys:
            travel(used, journey, outcome, learned.explained.predict_proba, _met(learned, outcome), learned.data)
    for journey in reversed(journeys):
        again = travel(used, journey, TARGET, learned.explained.predict_proba, met, learned.data)
        _equal(again, _travel(learned, journey), torch.arange(6))


def test_where_nobody_gets_there_paths_lead_to_the_most_probable(learned: FittedModels, rows: Tensor) -> None:
    hopeless = replace(TARGET, confidence=0.9999999)
    found = _travel(learned, _journey(learned, FeasibleSet.of(learned.encoder, rows)), hopeless)
    assert not _met(learned, hopeless)(found.x).any()
    assert not found.late.any()
    before, after = (TARGET.probability(learned.explained.predict_proba(x)) for x in (rows, found.x[_last(found)]))
    assert (after > before).float().mean() > 0.9


def test_without_what_is_carried_paths_begin_at_the_reconstruction(learned: FittedModels, rows: Tensor) -> None:
    journey = _journey(learned, FeasibleSet.of(learned.encoder, rows), carry=False)
    found = _travel(learned, journey)
    bare = journey.rows(journey.start, torch.arange(len(rows)), 0.0)
    assert torch.equal(found.x[firsts(found.row)], bare)
    assert _met(learned)(found.x[_last(found)]).all()


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
    learned: FittedModels, rows: Tensor, lock: set[str], directions: dict[str, str], few: bool, first: int
) -> None:
    factual = rows[first : first + 5]
    frame = learned.encoder.decode(factual)
    cities = {"city": tuple({*frame["city"], *("ABC" if few else "ABCDEFGHIJKL")})}
    wishes = Constraints.of(learned.encoder.schema, lock=sorted(lock), directions=directions, ranges=cities)
    scope = FeasibleSet.of(learned.encoder, factual, wishes.bounds(learned.encoder, frame, factual))
    found = _travel(learned, _journey(learned, scope))
    lower, upper, told = (part[found.row] for part in (scope.lower, scope.upper, scope.told))
    assert ((found.x >= lower) & (found.x <= upper)).all()
    assert torch.equal(found.x[told], factual[found.row][told])
    held = learned.encoder.columns(*lock)
    assert torch.equal(found.x[:, held], factual[found.row][:, held])
    torch.testing.assert_close(found.x[firsts(found.row)], factual, rtol=0, atol=1e-5)
    assert torch.equal(scope.legal(found.x, found.row), found.x)


# Sliding


def test_ends_slide_to_where_they_cost_less_and_stay_valid_and_plausible(learned: FittedModels, rows: Tensor) -> None:
    scope = FeasibleSet.of(learned.encoder, rows)
    journey, network, everybody = _journey(learned, scope), _network(learned), torch.arange(len(rows))
    routes = find_routes(network, journey, TARGET, learned.explained.predict_proba)
    z, share = routes.points[:, -1], torch.zeros(len(rows))
    before = Ends(z, share, journey.rows(z, everybody, share[:, None]))
    assert _met(learned)(before.x).all()
    plausible = within_reach(learned.neighbours, learned.data.typical, before.x)
    after = slide(network, journey, before, _met(learned), plausible)
    assert (scope.cost(after.x) <= scope.cost(before.x)).all()
    moved = (after.z != before.z).any(-1)
    assert moved.any()
    assert (scope.cost(after.x)[moved] < scope.cost(before.x)[moved]).all()
    assert torch.equal(after.x[~moved], before.x[~moved])
    assert _met(learned)(after.x).all()
    assert plausible(after.x, everybody).all()
    assert torch.equal(after.x, journey.rows(after.z, everybody, share[:, None])), "the rows of these codes"
    edge = network.terrain.decoded(before.z, journey.told).spread.clamp_min(network.terrain.edge)
    assert (network.terrain.decoded(after.z, journey.told).spread <= edge).all()


def test_ends_stay_where_nothing_else_is_accepted(learned: FittedModels, rows: Tensor) -> None:
    journey, network = _journey(learned, FeasibleSet.of(learned.encoder, rows)), _network(learned)
    z, share = journey.start.roll(1, 0), torch.zeros(len(rows))
    ends = Ends(z, share, journey.rows(z, torch.arange(len(rows)), share[:, None]))
    for met, plausible in (
        (lambda x: torch.zeros(len(x), dtype=torch.bool), within_reach(learned.neighbours, math.inf, ends.x)),
        (_met(learned), lambda tried, whose: torch.zeros(len(tried), dtype=torch.bool)),
    ):
        after = slide(network, journey, ends, met, plausible)
        assert torch.equal(after.z, ends.z)
        assert torch.equal(after.x, ends.x)

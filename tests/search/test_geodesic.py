"""The closest plausible end, and the way there: from the row to it, over the data, feasible at every point."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.fitting.fitted import FittedModels
from counterpath.search import geodesic as geodesic_module
from counterpath.search.ends import Ends, closest_ends
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import GeodesicState, ways
from counterpath.search.method import Problem, SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, is_first
from counterpath.search.roadmap import Roadmap
from counterpath.search.traverse import StopReason
from counterpath.search.validity import check_paths
from counterpath.utils.errors import NotFittedError

TARGET = Target(1, confidence=0.6)
NAMES = ("city", "size", "children", "member", "sex", "debt", "score")
METHOD = METHODS["geodesic"]


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    """Rows that the model rejects."""
    return models.rows[~TARGET.is_reached(models.probabilities)][:16]


def _problem(
    models: FittedModels, feasible: FeasibleSet, options: SearchOptions | None = None, most: int | None = None
) -> Problem:
    return models.problem(METHOD, feasible, TARGET, options or SearchOptions(), most)


def _state(models: FittedModels) -> GeodesicState:
    state = models.state(METHOD, SearchOptions())
    assert isinstance(state, GeodesicState)
    return state


def _locked(models: FittedModels, feasible: FeasibleSet, *names: str) -> FeasibleSet:
    held = torch.zeros_like(feasible.fixed)
    held[:, models.encoder.columns(*names)] = True
    return feasible.fix(held)


def _equal(one: Paths, other: Paths, order: Tensor) -> None:
    """The same for the rows of the first, which are these of the second."""
    for place, row in enumerate(order.tolist()):
        for name in ("x", "z"):
            assert torch.equal(getattr(one, name)[one.row == place], getattr(other, name)[other.row == row]), name
    for name in ("reason", "gap", "implausible"):
        assert torch.equal(getattr(one, name), getattr(other, name)[order]), name


@pytest.mark.parametrize("refine", [False, True])
def test_paths_begin_at_the_rows_and_end_at_the_first_valid_point(
    models: FittedModels, rows: Tensor, refine: bool
) -> None:
    problem = _problem(models, FeasibleSet.of(models.encoder, rows), SearchOptions(refine=refine))
    paths = METHOD.search(problem)
    assert paths.found.all()
    first = is_first(paths.row)
    assert torch.equal(paths.x[first], rows)
    check_paths("geodesic", problem.validator, problem.feasible, paths)
    last = torch.zeros_like(first).index_fill(0, paths.last, True)
    assert paths.valid[last].all()
    assert not paths.valid[~last].any()
    moves = (paths.x[1:] != paths.x[:-1]).any(-1) | first[1:]
    assert moves.all(), "every step changes something"


@pytest.mark.whole
def test_it_ends_where_the_closest_end_is(models: FittedModels, rows: Tensor) -> None:
    problem = _problem(models, FeasibleSet.of(models.encoder, rows))
    ends, paths = closest_ends(problem, _state(models).sources), METHOD.search(problem)
    assert torch.equal(paths.x[paths.last], ends.x)
    assert torch.equal(paths.found, ends.found)
    assert torch.equal(paths.implausible, ends.implausible)


def test_refinement_costs_nobody_more(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    rough, fine = (METHOD.search(_problem(models, feasible, SearchOptions(refine=refine))) for refine in (False, True))
    before, after = (feasible.cost(paths.x[paths.last]) for paths in (rough, fine))
    assert (after <= before).all()
    assert (after < before).any()


@pytest.mark.whole
@pytest.mark.parametrize("lock", [(), ("city",), ("score",)])
def test_the_answer_does_not_depend_on_who_else_asks_nor_on_the_order(
    models: FittedModels, rows: Tensor, lock: tuple[str, ...]
) -> None:
    problem = _problem(models, _locked(models, FeasibleSet.of(models.encoder, rows), *lock))
    together = METHOD.search(problem)
    order = torch.arange(len(rows)).flip(0)
    _equal(METHOD.search(problem.at(order)), together, order)
    for row in (0, 7):
        _equal(METHOD.search(problem.at(torch.tensor([row]))), together, torch.tensor([row]))


def test_when_time_is_up_nothing_is_asked_any_more(models: FittedModels, rows: Tensor) -> None:
    def never(x: Tensor) -> Tensor:
        raise AssertionError("there is no time")

    problem = _problem(models, FeasibleSet.of(models.encoder, rows), SearchOptions(should_stop=lambda: True))
    asked = replace(problem, setup=replace(problem.setup, predict_proba=never))
    ends = closest_ends(asked, _state(models).sources)
    assert ends.timed_out.all()
    paths = METHOD.search(problem)
    assert (paths.reason == StopReason.OUT_OF_TIME).all()
    assert torch.equal(paths.x, rows), "every row stays where it is"
    assert not (paths.gap | paths.implausible).any()


def test_rows_without_an_end_stay_where_they_are(models: FittedModels, rows: Tensor) -> None:
    problem = _problem(models, FeasibleSet.of(models.encoder, rows))
    ends = closest_ends(problem, _state(models).sources)
    nothing = torch.arange(len(rows)) % 2 == 0
    some = Ends(
        torch.where(nothing[:, None], rows, ends.x),
        ends.found & ~nothing,
        torch.arange(len(rows)) < 4,
        ends.implausible,
    )
    paths = ways(problem, _state(models).roadmap, some)
    assert (torch.bincount(paths.row)[nothing] == 1).all()
    assert paths.reason[nothing].tolist() == [StopReason.OUT_OF_TIME] * 2 + [StopReason.ALL_STEPS_TAKEN] * 6
    assert paths.found.tolist() == (~nothing).tolist()


def test_straight_ways_stay_straight_and_others_go_over_the_roadmap(
    models: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, state = _problem(models, FeasibleSet.of(models.encoder, rows)), _state(models)
    ends = closest_ends(problem, state.sources)
    field = state.roadmap.cost_field
    over = torch.zeros(len(rows), dtype=torch.long)
    route = Roadmap.route

    def counted(self: Roadmap, start: Tensor, end: Tensor) -> Tensor:
        over[0] += len(start)
        return route(self, start, end)

    monkeypatch.setattr(Roadmap, "route", counted)
    lenient, strict = (
        Roadmap(replace(field, data_limit=limit), state.roadmap.landmarks, state.roadmap.graph) for limit in (1e9, -1.0)
    )
    ways(problem, lenient, ends)
    assert over[0] == 0, "all of it is on the data"
    paths = ways(problem, strict, ends)
    assert 0 < over[0] <= len(rows)
    assert torch.equal(paths.x[paths.last], ends.x)
    check_paths("geodesic", problem.validator, problem.feasible, paths)


def test_gaps_are_said_of_ways_that_leave_the_data_between_two_parts(
    models: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, state = _problem(models, FeasibleSet.of(models.encoder, rows)), _state(models)
    ends, graph = closest_ends(problem, state.sources), state.roadmap.graph
    bridges = replace(graph, bridge=torch.ones_like(graph.bridge))
    apart = Roadmap(replace(state.roadmap.cost_field, data_limit=-1.0), state.roadmap.landmarks, bridges)
    off = torch.arange(len(rows)) % 2 == 0
    monkeypatch.setattr(Roadmap, "leaves_data", lambda self, start, end, context: off)
    monkeypatch.setattr(Roadmap, "crosses_gap", lambda self, start, end: torch.ones(len(start), dtype=torch.bool))
    assert torch.equal(ways(problem, apart, ends).gap, off)


@given(
    st.sets(st.sampled_from(NAMES), max_size=3),
    st.dictionaries(
        st.sampled_from(("children", "debt", "score", "size")), st.sampled_from(("up", "down")), max_size=2
    ),
    st.booleans(),
    st.integers(0, 7),
    st.sampled_from((None, 1, 2)),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_point_is_feasible_with_fixed_columns_to_the_bit(
    models: FittedModels,
    rows: Tensor,
    lock: set[str],
    directions: dict[str, str],
    few: bool,
    first: int,
    most: int | None,
) -> None:
    factual = rows[first : first + 5]
    frame = models.encoder.decode(factual)
    cities = {"city": tuple({*frame["city"], *("ABC" if few else "ABCDEFGHIJKL")})}
    wishes = Constraints.of(models.encoder.schema, lock=sorted(lock), directions=directions, ranges=cities)
    feasible = FeasibleSet.of(models.encoder, factual, wishes.bounds(models.encoder, frame, factual))
    problem = _problem(models, feasible, most=most)
    paths = METHOD.search(problem)
    check_paths("geodesic", problem.validator, feasible, paths)
    held = models.encoder.columns(*lock)
    assert torch.equal(paths.x[:, held], factual[paths.row][:, held])
    changed = models.encoder.changed(factual[paths.row], paths.x).sum(-1)
    assert most is None or (changed <= most).all(), "on the way, too"
    end = paths.x[paths.last]
    unchanged = ~feasible.columns(feasible.features(end != factual))
    assert (paths.x == factual[paths.row])[unchanged[paths.row]].all(), "what is the same at the end need not move"
    assert end.isfinite().all()


def test_what_was_fitted_comes_back_from_tensors(models: FittedModels, rows: Tensor) -> None:
    problem, state = _problem(models, FeasibleSet.of(models.encoder, rows)), _state(models)
    again = METHOD.state_from_tensors(models.setup, SearchOptions(), METHOD.state_to_tensors(state))
    _equal(METHOD.search(replace(problem, state=again)), METHOD.search(problem), torch.arange(len(rows)))


def test_without_what_it_fits_it_says_what_is_missing(models: FittedModels, rows: Tensor) -> None:
    problem = _problem(models, FeasibleSet.of(models.encoder, rows))
    with pytest.raises(NotFittedError, match=r"needs the roadmap that Explainer\.fit builds"):
        METHOD.search(replace(problem, state=None))
    with pytest.raises(NotFittedError, match="needs landmarks"):
        METHOD.fit(replace(models.setup, landmarks=None), SearchOptions())


def test_the_roadmap_has_a_bounded_number_of_nodes(models: FittedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geodesic_module, "ROUTE_NODES", 50)
    state = METHOD.fit(models.setup, SearchOptions())
    assert len(state.roadmap.landmarks.z) == state.roadmap.graph.count == 50

"""The closest plausible end of every row: found whenever there is one, the same for everybody, and told if far away."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from counterpath.data import Encoder
from counterpath.fitting.fitted import FittedModels
from counterpath.search.candidates import Admissible
from counterpath.search.ends import Ends, closest_ends
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem, SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from tests.search.problems import (
    Model,
    any_linear,
    cheapest_of,
    encoder_of,
    is_admissible,
    pasted,
    problem_of,
    sources_of,
    table,
)
from tests.sizes import examples


def _table(seed: int, count: int = 120) -> tuple[Encoder, Tensor]:
    frame = table(count, seed)
    encoder = encoder_of(frame)
    return encoder, encoder.encode(frame)


def _forest(rows: Tensor, seed: int) -> Model:
    """A black box: steps everywhere, and no slope anywhere."""
    random = torch.Generator().manual_seed(seed)
    slope = torch.randn(rows.shape[1], generator=random)
    score = (rows * slope).sum(-1) + 0.3 * torch.randn(len(rows), generator=random)
    forest = RandomForestClassifier(20, max_depth=5, random_state=0, n_jobs=1)
    forest.fit(rows.numpy(), (score > score.quantile(0.6)).numpy())

    def predict_proba(x: Tensor) -> Tensor:
        return torch.from_numpy(forest.predict_proba(x.numpy())) if len(x) else torch.zeros(0, 2, dtype=torch.float64)

    return predict_proba


def _ends(problem: Problem) -> Ends:
    return closest_ends(problem, sources_of(problem))


def _check(problem: Problem, ends: Ends) -> None:
    """Every promise about ends, by brute force."""
    every = torch.arange(len(problem))
    plain = ends.found & ~ends.implausible
    assert is_admissible(problem, ends.x, every)[plain].all()
    bare = replace(problem, setup=replace(problem.setup, plausibility=None))
    assert is_admissible(bare, ends.x, every)[ends.found].all(), "far from the data, perhaps, but valid"
    lacking = (~ends.found).nonzero()[:, 0]  # what came closest may be, but is not valid
    feasible = problem.feasible.at(lacking)
    assert ((ends.x[lacking] >= feasible.lower) & (ends.x[lacking] <= feasible.upper)).all()
    assert not problem.target.is_reached(problem.setup.predict_proba(ends.x[lacking]))[
        problem.validator.is_possible(ends.x[lacking], feasible.origin)
    ].any()
    exists = cheapest_of(problem, *pasted(problem), slack=-1e-6).isfinite()
    anything = cheapest_of(bare, *pasted(bare)).isfinite()
    if (
        problem.max_changes is None
    ):  # under a limit searches are complete on a grid, and training rows need not be on it
        assert plain[exists].all(), "an accepted training row, put in, would have done"
        assert ends.found[anything].all(), "rather far away than nothing"
    assert not (ends.implausible & ~ends.found).any()
    assert not ends.timed_out.any()


@pytest.mark.whole
@given(
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from((0.1, 0.5, 0.95)),
    st.sampled_from((None, 1, 2)),
    st.sampled_from((0.5, 0.8)),
    st.sampled_from((0.4, 0.05)),
)
@settings(max_examples=examples(40), deadline=None)
def test_it_is_found_whenever_an_accepted_row_put_in_is_admissible(
    seed: int, pairs: bool, share: float, most: int | None, confidence: float, accepted: float
) -> None:
    encoder, rows = _table(seed)
    model, target = any_linear(encoder, rows[:80], seed, accepted), Target(1, confidence=confidence)
    problem = problem_of(
        encoder,
        rows[:80],
        model,
        rows[80:][~target.is_reached(model(rows[80:]))],
        target=target,
        share=share,
        seen_pairs=pairs,
        max_changes=most,
        options={"plausibility": share},
    )
    _check(problem, _ends(problem))


@pytest.mark.parametrize("share", [0.2, 0.95])
def test_the_same_with_a_black_box(share: float) -> None:
    encoder, rows = _table(7, 200)
    model, options = _forest(rows, 7), {"plausibility": share}
    rejected = rows[120:][~Target(1).is_reached(model(rows[120:]))]
    problem = problem_of(encoder, rows[:120], model, rejected, share=share, options=options)
    ends = _ends(problem)
    _check(problem, ends)
    assert ends.found.all()
    _same_in_any_order_and_split(problem, ends)


def test_no_accepted_training_row_put_in_is_much_closer() -> None:
    """Of 48 near ones the cheapest are polished: on average that is far cheaper than the cheapest of all, as it is."""
    encoder, rows = _table(0, 300)
    problem = problem_of(encoder, rows[:200], any_linear(encoder, rows[:200], 0), rows[200:])
    rejected = ~problem.target.is_reached(problem.setup.predict_proba(rows[200:]))
    problem = problem.at(rejected)
    ends, best = _ends(problem), cheapest_of(problem, *pasted(problem))
    both = ends.found & best.isfinite()
    assert both.float().mean() > 0.9
    assert problem.feasible.cost(ends.x)[both].sum() < 0.7 * best[both].sum()


@pytest.mark.whole
@given(st.integers(0, 10_000), st.sampled_from((0.1, 0.95)))
@settings(max_examples=examples(15, least=5), deadline=None)
def test_what_is_found_at_a_confidence_is_found_at_every_lower_one(seed: int, share: float) -> None:
    encoder, rows = _table(seed)
    model = any_linear(encoder, rows[:80], seed, 0.2)
    factual = rows[80:][~Target(1).is_reached(model(rows[80:]))]
    found = []
    for confidence in (0.9, 0.8, 0.5):
        target, options = Target(1, confidence=confidence), {"plausibility": share}
        found.append(_ends(problem_of(encoder, rows[:80], model, factual, target=target, share=share, options=options)))
    for higher, lower in itertools.pairwise(found):
        assert (lower.found | ~higher.found).all()


@pytest.mark.whole
@given(st.integers(0, 10_000), st.sampled_from((1, 2)))
@settings(max_examples=examples(15, least=5), deadline=None)
def test_what_is_found_under_a_limit_is_found_without(seed: int, most: int) -> None:
    encoder, rows = _table(seed)
    model = any_linear(encoder, rows[:80], seed, 0.2)
    few, free = (
        _ends(problem_of(encoder, rows[:80], model, rows[80:], share=0.3, max_changes=limit)) for limit in (most, None)
    )
    assert (free.found | ~few.found).all()
    plain = few.found & ~few.implausible
    assert (free.found & ~free.implausible)[plain].all()


def _same_in_any_order_and_split(problem: Problem, together: Ends) -> None:
    sources, count = sources_of(problem), len(problem)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    for size in (1, 7, count):
        for some in order.split(size)[: examples(12, least=3)]:
            part = closest_ends(problem.at(some), sources)
            for name in ("x", "found", "timed_out", "implausible"):
                assert torch.equal(getattr(part, name), getattr(together, name)[some]), name


@pytest.mark.whole
@given(st.integers(0, 10_000), st.sampled_from(("l1", "l2", "l0")), st.sampled_from((None, 1)), st.booleans())
@settings(max_examples=examples(10, least=4), deadline=None)
def test_any_order_and_any_split_gives_the_same_bits(seed: int, closeness: str, most: int | None, costs: bool) -> None:
    encoder, rows = _table(seed)
    model = any_linear(encoder, rows[:80], seed)
    constraints = {"feature_costs": {"hours": 1.7, "job": 3.3}} if costs else None
    problem = problem_of(
        encoder,
        rows[:80],
        model,
        rows[80:][~Target(1).is_reached(model(rows[80:]))],
        share=0.3,
        seen_pairs=True,
        max_changes=most,
        options={"closeness": closeness, "plausibility": 0.3},
        constraints=constraints,
    )
    _same_in_any_order_and_split(problem, _ends(problem))


@pytest.mark.whole
def test_any_order_and_any_split_gives_the_same_bits_with_our_own_classifier(models: FittedModels) -> None:
    target, method = Target(1, confidence=0.6), METHODS["geodesic"]
    rows = models.rows[~target.is_reached(models.probabilities)][:40]
    problem = models.problem(method, FeasibleSet.of(models.encoder, rows), target, SearchOptions())
    sources, together = problem.state.sources, closest_ends(problem, problem.state.sources)
    assert together.found.all()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    for some in (*order.split(1)[:8], *order.split(13), order):
        part = closest_ends(problem.at(some), sources)
        assert torch.equal(part.x, together.x[some])


def test_closeness_is_what_is_made_small() -> None:
    encoder, rows = _table(3)
    model, costs = any_linear(encoder, rows, 3), {}
    for asked in ("l1", "l2", "l0"):
        problem = problem_of(encoder, rows, model, options={"closeness": asked})
        ends = _ends(problem)
        assert ends.found.all()
        every = torch.arange(len(problem))
        for measured in ("l1", "l2", "l0"):
            admissible = replace(Admissible.of(problem), closeness=measured)
            costs[asked, measured] = float(admissible.cost(ends.x, every).mean())
    for measured in ("l1", "l2", "l0"):
        best = min(costs[asked, measured] for asked in ("l1", "l2", "l0"))
        assert costs[measured, measured] <= best * 1.01


def test_features_that_cost_more_change_less() -> None:
    encoder, rows = _table(3)
    model, changed = any_linear(encoder, rows, 3), []
    for constraints in (None, {"feature_costs": {"job": 50, "hours": 50}}):
        problem = problem_of(encoder, rows, model, constraints=constraints)
        ends = _ends(problem)
        moved = encoder.changed(problem.feasible.factual, ends.x)
        changed.append(int(moved[:, [encoder.schema.index("job"), encoder.schema.index("hours")]].sum()))
    assert changed[1] < 0.5 * changed[0]


def test_what_is_far_from_the_data_is_flagged_and_as_near_as_it_can_be() -> None:
    """A person far away may stay as far as they are; one who must go farther is told."""
    encoder, rows = _table(5)
    income, sex = encoder.columns("income")[0], encoder.columns("sex")

    def model(x: Tensor) -> Tensor:
        p = torch.where(x[:, income] >= 0.95, 0.9, 0.1)
        return torch.stack([1 - p, p], 1)

    # All of one sex are poor; nobody is rich but one of the other sex, and nobody can become that.
    poor = rows[(rows[:, sex] == rows[0, sex]).all(-1) & (rows[:, income] < 0.6)]
    rich = poor[:1].clone()
    rich[0, income], rich[0, sex] = 1.0, 1 - rich[0, sex]
    train = torch.cat([poor, rich])
    problem = problem_of(encoder, train, model, poor[:20], share=0.05, options={"plausibility": 0.05})
    ends = _ends(problem)
    assert ends.found.all()
    assert ends.implausible.all()
    plausibility = problem.setup.plausibility
    assert plausibility is not None
    assert plausibility.limit < 0.35, "the poor are less rich by more than that"
    assert (plausibility.distance(ends.x) > plausibility.limit).all()
    near = problem_of(encoder, train, model, poor[:20], share=None)
    assert not _ends(near).implausible.any(), "without data nothing is far"


def test_time() -> None:
    encoder, rows = _table(2)
    model = any_linear(encoder, rows[:80], 2)
    factual = rows[80:][~Target(1).is_reached(model(rows[80:]))]
    never = _ends(problem_of(encoder, rows[:80], model, factual, options={"should_stop": lambda: True}))
    assert never.timed_out.all()
    assert not never.found.any()
    whole = _ends(problem_of(encoder, rows[:80], model, factual, share=0.02, options={"plausibility": 0.02}))
    for patience in range(1, 12):
        looks = itertools.count()
        options = {"should_stop": lambda looks=looks, patience=patience: next(looks) >= patience, "plausibility": 0.02}
        problem = problem_of(encoder, rows[:80], model, factual, share=0.02, options=options)
        ends = _ends(problem)
        assert torch.equal(ends.timed_out, ends.timed_out & ~ends.found)
        assert (ends.found | ends.timed_out | ~whole.found).all(), "what would be found is found, or there was no time"
        plain = ends.found & ~ends.implausible
        assert is_admissible(problem, ends.x, torch.arange(len(problem)))[plain].all()
    assert not whole.timed_out.any()


def test_who_is_valid_as_soon_as_they_have_entered_their_range_goes_no_further() -> None:
    encoder, rows = _table(6)
    hours = encoder.columns("hours")[0]

    def model(x: Tensor) -> Tensor:
        p = torch.sigmoid(20 * (x[:, hours] - 0.5))
        return torch.stack([1 - p, p], 1)

    outside = rows[(rows[:, hours] < 0.4)]
    problem = problem_of(encoder, rows, model, outside, share=None, constraints={"ranges": {"hours": (45, None)}})
    assert (problem.feasible.factual != problem.feasible.origin).any(-1).all()
    ends = _ends(problem)
    assert ends.found.all()
    assert torch.equal(ends.x, problem.feasible.factual)
    lower = problem_of(encoder, rows, model, outside, share=None, constraints={"ranges": {"hours": (20, None)}})
    ends, every = _ends(lower), torch.arange(len(lower))
    assert ends.found.all()
    assert is_admissible(lower, ends.x, every).all()
    limited = problem_of(
        encoder, rows, model, outside, share=None, max_changes=1, constraints={"ranges": {"income": (6000, None)}}
    )
    changed = encoder.changed(limited.feasible.origin, _ends(limited).x)
    assert (changed.sum(-1) <= 1).all(), "entering a range is a change"


def test_who_can_only_be_valid_far_away_as_they_enter_is_found() -> None:
    """Entered, the row is valid but not plausible, and nothing else is: it is the answer, and said to be far."""
    encoder, rows = _table(6)
    hours = encoder.columns("hours")[0]
    train = rows[rows[:, hours] < 0.5]

    def model(x: Tensor) -> Tensor:
        p = torch.where(x[:, hours] >= 0.9, 0.9, 0.1)
        return torch.stack([1 - p, p], 1)

    high = float(encoder.decode(rows)["hours"].max())
    names = [name for name in encoder.schema.names if name not in ("hours", "sex")]
    problem = problem_of(
        encoder,
        train,
        model,
        train[:10],
        share=0.5,
        options={"plausibility": 0.5},
        constraints={"ranges": {"hours": (high, None)}, "lock": names},
    )
    ends = _ends(problem)
    assert ends.found.all()
    assert ends.implausible.all()
    assert torch.equal(ends.x, problem.feasible.factual)


def test_nobody_asks() -> None:
    encoder, rows = _table(0)
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 0))
    ends = closest_ends(problem.at(torch.arange(0)), sources_of(problem))
    assert len(ends.x) == len(ends.found) == 0

"""The cheapest actions, where changes have consequences: as cheap as a formula says that they can be."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from counterpath.data import Feature, Schema
from counterpath.data.causes import parse_causes
from counterpath.models.effects import Effects
from counterpath.search.actions import cheapest_actions
from counterpath.search.candidates import Admissible
from counterpath.search.ends import closest_ends
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem
from counterpath.search.polish import put_back, shrink
from counterpath.search.traverse import StopReason
from tests.search.problems import encoder_of, linear, problem_of, sources_of

SCHEMA = Schema(tuple(Feature(name, "continuous") for name in ("cause", "effect", "other")))
SLOPE, OFFSET = torch.tensor([1.0, 3.0, 2.0]), -3.0
SHARE = 0.8
"""Of a change of the cause that its effect changes by: acting on the cause gains 1 + 0.8 · 3 = 3.4 for each unit."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Rows from the middle of [0, 1]³, so that no effect leaves it."""
    torch.manual_seed(0)
    values = torch.rand(200, 3).round(decimals=3)
    values[:2] = torch.tensor([[0.0] * 3, [1.0] * 3])
    frame = pd.DataFrame(values.double().numpy(), columns=list(SCHEMA.names))
    encoder = encoder_of(frame, SCHEMA)
    rows = encoder.encode(frame)
    own = rows[((rows > 0.2) & (rows < 0.6)).all(-1)]
    made = problem_of(encoder, rows, linear(SLOPE, OFFSET), own[own @ SLOPE < -OFFSET], share=None)
    causes = parse_causes(SCHEMA, [f"effect = {SHARE} * cause"])
    assert causes is not None
    effects = Effects.fit(encoder, rows, causes)
    return replace(made, feasible=FeasibleSet.of(encoder, made.feasible.factual, effects=effects))


def cheapest(problem: Problem) -> torch.Tensor:
    """What has to be gained, at 3.4 a unit: no other action gains as much, and nothing is in the way of this one."""
    return (-OFFSET - problem.feasible.factual @ SLOPE) / 3.4


def test_the_search_acts_where_most_follows(problem: Problem) -> None:
    ends, within = closest_ends(problem, sources_of(problem)), problem.feasible
    assert bool(ends.found.all())
    x = torch.stack([within.factual, ends.x], 1).flatten(0, 1)
    row = torch.arange(len(within)).repeat_interleave(2)
    paths = problem.paths(row, x, torch.full((len(within),), StopReason.CONFIDENCE_REACHED))
    led = cheapest_actions(problem.validator, within, paths)
    end = led.x[led.last]
    assert (within.cost(end) <= within.cost(ends.x)).all()
    assert (within.cost(end) <= 1.02 * cheapest(problem) + 1e-4).all()
    acts = within.actions(end)
    assert acts[:, 0].all()
    assert not acts[:, 1].any(), "which follows"


def test_any_paths_lead_to_the_cheapest_actions(problem: Problem) -> None:
    within = problem.feasible
    count = len(within)
    row = torch.arange(count).repeat_interleave(2)
    end = within.factual.clone()
    end[:, 2], end[:, 1] = 1.0, 0.95  # dear: acts on what could follow
    x = torch.stack([within.factual, end], 1).flatten(0, 1)
    paths = problem.paths(row, x, torch.full((count,), StopReason.CONFIDENCE_REACHED))
    assert bool(paths.found.all())
    led = cheapest_actions(problem.validator, within, paths)
    assert bool(led.found.all())
    cost = within.cost(led.x[led.last])
    assert (cost <= 1.02 * cheapest(problem) + 1e-4).all()
    assert torch.equal(led.x[led.row.diff(prepend=torch.tensor([-1])) != 0], within.factual)


def test_an_effect_is_kept_where_what_follows_would_harm(problem: Problem) -> None:
    encoder, own = problem.feasible.encoder, problem.feasible.factual
    slope = torch.tensor([3.0, 2.5, 1.0])
    lacking = -OFFSET - own @ slope
    some = (lacking > 0) & (lacking < 1)  # who gets there before the cause ends
    assert int(some.sum()) > 5
    made = problem_of(encoder, own, linear(slope, OFFSET), own[some], share=None)
    causes = parse_causes(SCHEMA, ["effect = -0.3 * cause"])  # which alone gains 3 - 0.3 · 2.5 = 2.25 for each unit
    assert causes is not None
    within = FeasibleSet.of(encoder, own[some], effects=Effects.fit(encoder, own, causes))
    made = replace(made, feasible=within)
    row = torch.arange(len(within)).repeat_interleave(2)
    x = torch.stack([own[some], torch.ones_like(own[some])], 1).flatten(0, 1)
    paths = made.paths(row, x, torch.full((len(within),), StopReason.CONFIDENCE_REACHED))
    led = cheapest_actions(made.validator, within, paths)
    assert (within.cost(led.x[led.last]) <= 1.005 * lacking[some] / 3 + 3e-4).all()


def test_what_follows_is_brought_anew_when_a_cause_moves_back(problem: Problem) -> None:
    within, admissible = problem.feasible, Admissible.of(problem)
    row = torch.arange(len(within))
    x = within.factual.clone()
    x[:, 0] += 0.37  # more than anybody needs
    x = within.settle(x, row)
    assert torch.equal(within.acted(x, row)[:, 1], within.factual[:, 1])
    some = admissible.admit(x, row)
    assert len(some)
    for move in (shrink, put_back):
        moved = move(admissible, some)
        acts = within.actions(moved.x, moved.row)
        assert not acts[:, 1:].any()
        change = moved.x - within.factual[moved.row]
        torch.testing.assert_close(change[:, 1], SHARE * change[:, 0], atol=2e-3, rtol=0)
    best = shrink(admissible, some)
    assert (within.cost(best.x, best.row) <= 1.02 * cheapest(problem)[best.row] + 5e-3).all(), "1/256 of a change"

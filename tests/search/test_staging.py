"""Staged paths: straight in every feature, few features at a time, over rows that are legal, plausible and possible."""

from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import counterpath as cp
from counterpath.data import Encoder, Feature, Schema
from counterpath.geometry.graph import Neighbours
from counterpath.search.combinations import Combinations
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, is_first
from counterpath.search.staging import MOST_FEATURES, MOST_POINTS, feature_steps, stage
from counterpath.search.traverse import StopReason
from counterpath.search.validity import Plausibility, Validator
from tests.conftest import random_vae
from tests.tables import features

SCHEMA = Schema(
    (
        Feature("job", "categorical", categories=("boss", "clerk", "cook", "none")),
        Feature("size", "ordinal", categories=("S", "M", "L", "XL")),
        Feature("owner", "boolean"),
        Feature("hours", "integer", min_change=5),
        Feature("income", "continuous", step=50),
        Feature("rate", "continuous", step=0.5, step_from="own"),
        Feature("gain", "integer", values="observed", transform="log1p"),
    )
)
NUMBERS = ("hours", "income", "rate", "gain")
FOUND, LOST = int(StopReason.CONFIDENCE_REACHED), int(StopReason.ALL_STEPS_TAKEN)


@dataclass(frozen=True)
class Case:
    """Random paths of a random table, each from a row to a legal one, and back and forth on the way."""

    feasible: FeasibleSet
    paths: Paths
    validator: Validator

    def staged(self) -> Paths:
        return stage(self.validator, self.feasible, self.paths)

    def at(self, rows: Tensor) -> Paths:
        return stage(self.validator, self.feasible.at(rows), self.paths.select(rows))


def _table(random: np.random.Generator, count: int = 80) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "job": random.choice(SCHEMA["job"].categories, count),
            "size": random.choice(SCHEMA["size"].categories, count),
            "owner": random.random(count) < 0.5,
            "hours": random.integers(0, 80, count),
            "income": random.uniform(0, 5000, count).round(2),
            "rate": random.uniform(0, 9, count).round(1),
            "gain": np.where(random.random(count) < 0.7, 0, random.integers(100, 9999, count)),
        }
    )


def _case(seed: int, *, limit: float = 100.0, unseen: bool = True, anywhere: bool = False, points: int = 40) -> Case:
    random = np.random.default_rng(seed)
    frame = _table(random)
    encoder = Encoder.fit(frame, SCHEMA)
    rows = encoder.encode(frame)
    feasible = FeasibleSet.of(encoder, rows[:12])
    counts = torch.tensor(random.integers(2, points, 12))
    row = torch.arange(12).repeat_interleave(counts)
    x = feasible.legal(torch.tensor(random.uniform(-0.2, 1.2, (len(row), encoder.width)), dtype=torch.float32), row)
    x = torch.where(is_first(row)[:, None], rows[row], x)
    ends = feasible.legal(rows[20:32])  # who are like somebody
    x[counts.cumsum(0) - 1] = ends

    def predict(tried: Tensor) -> Tensor:
        """Accepts nothing but the ends; or, anywhere, half of what there is."""
        half = tried[:, encoder.columns("income")[0]] > 0.5
        accepted = (Neighbours(ends).nearest(tried)[0][:, 0] == 0) | (half & anywhere)
        return torch.stack([~accepted, accepted], 1).float()

    seen = None if unseen else Combinations.fit(encoder, rows)
    plausibility = Plausibility(Neighbours(rows, encoder.weights), limit, limit)
    validator = Validator(predict, random_vae(encoder.width).float(), Target(1), plausibility, combinations=seen)
    reason = torch.where(torch.arange(12) == 5, LOST, FOUND)
    paths = validator.paths(feasible, row, x, reason)
    return Case(feasible, replace(paths, gap=torch.arange(12) % 3 == 0, fallback=torch.arange(12) % 4 == 0), validator)


def _assert_straight(case: Case, staged: Paths) -> None:
    """Whoever has a path: it leads from them to their end over legal rows, and no feature ever goes back."""
    encoder, paths = case.feasible.encoder, case.paths
    assert torch.equal(staged.x[is_first(staged.row)], case.feasible.factual)
    assert torch.equal(staged.x[staged.last], paths.x[paths.last])
    assert torch.equal(case.feasible.legal(staged.x, staged.row), staged.x)
    for row in range(len(case.feasible)):
        if not bool(paths.found[row]):
            continue
        points = staged.x[staged.row == row]
        assert len(points) <= MOST_POINTS
        assert not len(points) > 1 or (points[1:] != points[:-1]).any(-1).all(), "no step stands still"
        way = points[-1] - points[0]
        for columns in encoder.layout:
            moved = (points[1:, columns] - points[:-1, columns]) * way[columns].sign()
            assert (moved >= 0).all()
            assert (points[:, columns][:, way[columns] == 0] == points[0, columns][way[columns] == 0]).all()
        frame = encoder.decode(points)
        for name in ("job", "size", "owner"):
            values = frame[name].tolist()
            assert name == "size" or values.count(values[0]) + values.count(values[-1]) >= len(values)
    for name in ("reason", "fallback", "gap"):
        assert torch.equal(getattr(staged, name), getattr(paths, name))


@pytest.mark.whole
@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.6, 100.0]), st.booleans(), st.booleans())
def test_paths_are_straight_and_legal_whatever_the_search_did(
    seed: int, limit: float, unseen: bool, anywhere: bool
) -> None:
    case = _case(seed, limit=limit, unseen=unseen, anywhere=anywhere)
    staged = case.staged()
    _assert_straight(case, staged)
    inner = ~is_first(staged.row) & ~torch.isin(torch.arange(len(staged.row)), staged.last) & (staged.row != 5)
    assert not staged.valid[inner].any(), "it ends at its first valid point"
    assert case.validator.is_possible(staged.x[inner], case.feasible.factual[staged.row[inner]]).all()
    distance = case.validator.plausibility.distance(staged.x)  # type: ignore[union-attr]
    ends = torch.maximum(distance[is_first(staged.row)], distance[staged.last])
    assert (distance <= ends[staged.row].clamp_min(limit))[inner].all(), "nobody is farther away than at the ends"


def test_where_anybody_is_plausible_two_features_change_at_a_time() -> None:
    for seed in range(5):
        case = _case(seed)
        staged = case.staged()
        many = case.feasible.features(staged.x[staged.last] != case.feasible.factual).sum(1)
        assert (feature_steps(case.feasible, staged)[staged.row != 5] <= MOST_FEATURES).all()
        steps = torch.bincount(staged.row) - 1
        assert (steps >= (many + 1) // MOST_FEATURES)[case.paths.found].all()
        assert many.max() > 4


@pytest.mark.parametrize("unseen", [True, False])
def test_more_change_at_once_only_where_nobody_is_in_between(unseen: bool) -> None:
    crowded = 0
    for seed in range(6):
        case = _case(seed, limit=0.3, unseen=unseen, points=3)
        staged, plausibility = case.staged(), case.validator.plausibility
        assert plausibility is not None
        distance = plausibility.distance(staged.x)
        allowed = torch.maximum(distance[is_first(staged.row)], distance[staged.last]).clamp_min(0.3)
        for point in (feature_steps(case.feasible, staged) > MOST_FEATURES).nonzero()[:, 0].tolist():
            row = int(staged.row[point])
            if row == 5:
                continue
            crowded += 1
            before, after = staged.x[point - 1], staged.x[point]
            names = case.feasible.features((before != after)[None])[0].nonzero()[:, 0].tolist()
            few = [*chain(combinations(names, 1), combinations(names, 2))]
            chosen = torch.zeros(len(few), len(SCHEMA), dtype=torch.bool)
            for index, some in enumerate(few):
                chosen[index, list(some)] = True
            tried = torch.where(
                case.feasible.at(torch.zeros(len(few), dtype=torch.long)).columns(chosen), after, before
            )
            factual = case.feasible.factual[row].expand(len(few), -1)
            there = case.validator.is_possible(tried, factual) & (plausibility.distance(tried) <= allowed[row])
            assert not there.any(), "somebody would have been there"
    assert crowded > 5


def test_whoever_has_no_counterfactual_keeps_the_path_of_the_search() -> None:
    case = _case(3)
    staged = case.staged()
    for name in ("x", "z", "probability", "sigma", "valid"):
        before, after = (getattr(paths, name)[paths.row == 5] for paths in (case.paths, staged))
        assert torch.equal(before, after), name
    lost = replace(case.paths, reason=torch.full_like(case.paths.reason, LOST))
    assert stage(case.validator, case.feasible, lost) is lost
    unknown = replace(case.validator, plausibility=None)
    assert stage(unknown, case.feasible, case.paths) is case.paths


@pytest.mark.parametrize("limit", [0.3, 100.0])
def test_a_path_does_not_depend_on_the_others_nor_on_their_order(limit: float) -> None:
    case = _case(7, limit=limit, unseen=False)
    together = case.staged()
    for rows in (torch.arange(12).flip(0), torch.tensor([4]), torch.tensor([9, 2, 5])):
        some, expected = case.at(rows), together.select(rows)
        for name in ("row", "x", "valid", "reason", "fallback", "gap"):
            assert torch.equal(getattr(some, name), getattr(expected, name)), name
        torch.testing.assert_close(some.probability, expected.probability)


def test_a_path_that_is_one_step_or_none_stays() -> None:
    case = _case(1)
    first = is_first(case.paths.row)
    still = case.paths.points(first)
    assert torch.equal(stage(case.validator, case.feasible, still).x, case.feasible.factual)
    x = case.feasible.factual.clone()
    x[:, case.feasible.encoder.columns("size")[0]] = 1.0
    row = torch.arange(12).repeat_interleave(2)
    pairs = torch.stack([case.feasible.factual, x], 1).flatten(0, 1)
    short = case.validator.paths(case.feasible, row, pairs, torch.full((12,), FOUND))
    staged = stage(case.validator, case.feasible, short)
    assert torch.equal(staged.x[staged.last], x)
    assert (torch.bincount(staged.row) <= 2).all(), "one feature in one step, as it was"


@pytest.mark.whole
@pytest.mark.parametrize("method", ["geodesic", "rsgd", "sgd"])
def test_answers_are_staged_and_the_counterfactuals_are_those_of_the_search(
    explainer: cp.Explainer, people: pd.DataFrame, method: str
) -> None:
    rows = features(people).head(12)
    asked = [{"paths": "all"}, {"paths": "end"}]
    staged, ends = (explainer.explain(rows, "low", method=method, plans=2, **how) for how in asked)
    raw = cp.Explainer.explain(explainer.set_params(staged=False), rows, "low", method=method, plans=2)
    explainer.set_params(staged=True)
    names = list(rows.columns)
    for other in (ends, raw):
        pd.testing.assert_frame_equal(staged.counterfactuals, other.counterfactuals, check_exact=True)
        pd.testing.assert_frame_equal(staged.status, other.status, check_exact=True)
    codes = {name: people[name].dtype.categories for name in ("size",)}

    def back_and_forth(path: pd.DataFrame) -> bool:
        numbers = path[["children", "debt", "score"]].assign(
            size=[list(codes["size"]).index(value) for value in path["size"]]
        )
        steps = numbers.diff().iloc[1:]
        return bool(((steps > 0).any() & (steps < 0).any()).any()) or any(
            (path[name] != path[name].shift()).sum() > 2 for name in ("city", "sex", "member")
        )

    found = np.flatnonzero(staged.status["status"] == "found")
    paths = [[result.paths[result.paths["row"] == row][names] for row in found] for result in (staged, raw)]
    assert len(found) > 5
    assert not any(map(back_and_forth, paths[0]))

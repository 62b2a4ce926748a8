"""What lasts: counts of models, deviations, and the order in which models are asked."""

import pandas as pd
import pytest
import torch
from torch import Tensor

from counterpath.data import Encoder, Feature, Schema
from counterpath.models.family import GivenMembers
from counterpath.search.deviations import DRAWS, MOST_STEPS, deviations
from counterpath.search.objective import NumberTarget, Target
from counterpath.search.stability import Stability, noise_share, share_of, typical_level

SCHEMA = Schema(
    (
        Feature("hours", "integer", step=5),
        Feature("rate", "continuous"),
        Feature("job", "categorical", categories=("a", "b", "c")),
    )
)
FRAME = pd.DataFrame({"hours": [0, 100, 50, 20], "rate": [0.0, 10.0, 5.0, 1.0], "job": ["a", "b", "c", "a"]})
ENCODER = Encoder.fit(FRAME, SCHEMA)
ROWS = ENCODER.encode(FRAME)
TARGET = Target(1)


def _from(level: float):
    """A model that accepts whoever has at least this much of the first column."""

    def said(x: Tensor) -> Tensor:
        accepted = (x[:, 0] >= level).to(x.dtype)
        return torch.stack([1 - accepted, accepted], 1)

    return said


MEMBERS = GivenMembers(tuple(_from(level) for level in (0.9, 0.1, 0.3, 0.5, 0.7)))


def _row(hours: float, rate: float = 5.0, job: str = "a") -> Tensor:
    return ENCODER.encode(pd.DataFrame({"hours": [int(hours)], "rate": [rate], "job": [job]}))


def test_deviations_miss_what_changed_by_steps_of_the_schema_and_nothing_else() -> None:
    tried = deviations(ENCODER, _row(50, 6.0, "b"), _row(20, 5.0, "a"))
    assert tried.shape == (1, DRAWS, ENCODER.width)
    found = ENCODER.decode(tried[0])
    assert set(found["hours"]) == {50 + 5 * off for off in range(-MOST_STEPS, MOST_STEPS + 1)}
    assert (found["rate"] - 6).abs().max() == pytest.approx(0.2, abs=1e-4)  # two per cent of a range of ten
    assert set(found["job"]) == {"b"}
    same = deviations(ENCODER, _row(50, 5.0), _row(20, 5.0))
    assert set(ENCODER.decode(same[0])["rate"]) == {5.0}


def test_deviations_stay_legal_at_the_end_of_a_range() -> None:
    found = ENCODER.decode(deviations(ENCODER, _row(100), _row(20))[0])
    assert found["hours"].max() == 100


def test_share_of_deviations_that_stay_valid_by_hand() -> None:
    x, factual = _row(50), _row(20)
    hours = torch.tensor(ENCODER.decode(deviations(ENCODER, x, factual)[0])["hours"].to_numpy())
    share = noise_share(ENCODER, x, factual, TARGET, _from(0.5))
    assert share.item() == pytest.approx((hours >= 50).double().mean().item())
    assert 0.4 < share.item() < 0.8


def test_share_of_models_and_who_is_accepted() -> None:
    x = torch.cat([_row(20), _row(60), _row(100)])
    assert share_of(MEMBERS, x, TARGET).tolist() == pytest.approx([0.2, 0.6, 1.0])
    factual = torch.cat([_row(0)] * 3)
    for refusals, expected in ((0, [False, False, True]), (2, [False, True, True]), (4, [True, True, True])):
        stability = Stability(ENCODER, MEMBERS, (refusals,) * 4)
        assert stability.holds(x, factual, TARGET, _from(0.1)).tolist() == expected


def test_every_feature_that_was_chosen_counts() -> None:
    x, factual = torch.cat([_row(60), _row(60, 6.0), _row(60, 6.0, "b")]), torch.cat([_row(0)] * 3)
    stability = Stability(ENCODER, MEMBERS, (2, 2, 2, 1))
    assert stability.changes(x, factual).tolist() == [1, 2, 3]
    assert stability.holds(x, factual, TARGET, _from(0.1)).tolist() == [True, True, False]
    line = Stability(ENCODER, MEMBERS, (2, 2, 2, 1), chosen=False)
    assert line.holds(x, factual, TARGET, _from(0.1)).tolist() == [True] * 3
    never = Stability(ENCODER, MEMBERS, (2, -1, -1, -1))
    assert never.holds(_row(100), _row(0), TARGET, _from(0.1)).tolist() == [False]


def test_a_confidence_is_asked_of_the_explained_model_alone() -> None:
    def unsure(x: Tensor) -> Tensor:
        return torch.tensor([[0.4, 0.6]]).repeat(len(x), 1)

    assert share_of(GivenMembers((unsure,)), ROWS, Target(1, confidence=0.9)).tolist() == [1.0] * 4


def test_a_range_of_numbers_is_asked_of_every_model() -> None:
    members = GivenMembers((lambda x: 100 * x[:, :1], lambda x: 50 * x[:, :1]))
    assert share_of(members, _row(80), NumberTarget(low=70.0)).tolist() == [0.5]


def _sloped(level: float, asked: list[int]):
    """A model whose log odds rise with the first column, from that level on above 0; it counts what it is asked."""

    def said(x: Tensor) -> Tensor:
        asked.append(len(x))
        accepted = (20 * (x[:, 0] - level)).sigmoid()
        return torch.stack([1 - accepted, accepted], 1)

    return said


def test_a_panel_refuses_what_is_clear_and_all_models_are_asked_about_the_rest() -> None:
    panel: list[int] = []
    rest: list[int] = []
    levels = torch.linspace(0.3, 0.7, 100)[torch.randperm(100, generator=torch.Generator().manual_seed(0))].tolist()
    many = GivenMembers(tuple(_sloped(level, panel if number < 32 else rest) for number, level in enumerate(levels)))
    stability = Stability(ENCODER, many, (5,) * 4)
    x = torch.cat([_row(hours) for hours in range(0, 101, 5)])
    lasts = stability.holds(x, torch.cat([_row(0)] * len(x)), TARGET, _from(0.1))
    assert lasts.tolist() == (share_of(many, x, TARGET) >= 0.95).tolist()
    assert panel[0] == len(x) > 2 * rest[0]
    edge = stability.advantage(x, TARGET)
    assert (edge.diff() > 0).all()  # a search can go by it
    assert edge[x[:, 0] < 0.6].max() < 0 < edge[x[:, 0] > 0.75].min()


def test_a_training_row_is_asked_about_once_for_each_target() -> None:
    calls = []

    def counted(x: Tensor) -> Tensor:
        calls.append(len(x))
        return _from(0.5)(x)

    stability = Stability(ENCODER, GivenMembers((counted,)), (0,) * 4)
    reached = torch.tensor([False, True, True, True])
    for _ in range(2):
        assert stability.among(ROWS, reached, TARGET).tolist() == [False, True, True, False]
    assert calls == [3]


def test_the_level_from_which_rows_mostly_last() -> None:
    advantage = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    lasts = torch.tensor([False, True, False, False, True])  # from 0.2 on two are wrong, from 0.5 on one
    assert typical_level(advantage, lasts, torch.tensor(0.0)).item() == pytest.approx(0.5)
    assert typical_level(advantage, torch.zeros(5, dtype=torch.bool), torch.tensor(0.05)).item() == pytest.approx(0.05)


def _slopes(asked: dict[int, int]) -> GivenMembers:
    """A hundred models in no order, each with a level of its own; it is counted how many rows each is asked about."""
    normal = torch.special.ndtri((torch.arange(100) + 0.5) / 100)
    levels = (0.5 + 0.08 * normal)[torch.randperm(100, generator=torch.Generator().manual_seed(0))].tolist()

    def model(number: int, level: float):
        def said(x: Tensor) -> Tensor:
            asked[number] = asked.get(number, 0) + len(x)
            accepted = (20 * (x[:, 0] - level)).sigmoid()
            return torch.stack([1 - accepted, accepted], 1)

        return said

    return GivenMembers(tuple(model(number, level) for number, level in enumerate(levels)))


GRID = _row(0).repeat(101, 1)
GRID[:, 0] = torch.linspace(0, 1, 101)


@pytest.mark.parametrize("allowed", [0, 3, 20])
def test_strictest_first_gives_the_verdicts_of_all_in_any_order_and_asks_less(allowed: int) -> None:
    unordered: dict[int, int] = {}
    ordered: dict[int, int] = {}
    as_given = Stability(ENCODER, _slopes(unordered), (allowed,) * 4)
    strictest = Stability(ENCODER, _slopes(ordered), (allowed,) * 4)
    assert strictest.among(GRID, GRID[:, 0] >= 0.5, TARGET).any()
    ordered.clear()
    turned = Stability(ENCODER, _slopes({}).take(torch.arange(99, -1, -1)), (allowed,) * 4)
    wanted = share_of(_slopes({}), GRID, TARGET) >= 1 - allowed / 100 - 1e-6
    assert wanted.any()
    assert not wanted.all()
    for each in (strictest, as_given, turned):
        assert each.accepted(GRID, TARGET).tolist() == wanted.tolist()
    assert len(ordered) == 100
    assert min(ordered.values()) >= wanted.sum()  # all are asked about who is accepted
    if allowed < 20:  # beyond that the panel has refused all whom the others would
        assert sum(ordered.values()) < sum(unordered.values())


def test_nothing_is_asked_twice_within_a_search_and_a_new_search_asks_anew() -> None:
    asked: dict[int, int] = {}
    once: dict[int, int] = {}
    stability = Stability(ENCODER, _slopes(asked), (3, 3, 2, 1)).for_a_search()
    twice = torch.cat([GRID, GRID])
    wanted = (share_of(_slopes({}), twice, TARGET) >= 0.97 - 1e-6).tolist()
    assert stability.accepted(twice, TARGET).tolist() == wanted
    Stability(ENCODER, _slopes(once), (3, 3, 2, 1)).accepted(GRID, TARGET)
    assert asked == once
    before = dict(asked)
    assert stability.accepted(GRID.flip(0), TARGET).tolist() == wanted[: len(GRID)][::-1]
    assert asked == before
    stability.for_a_search().accepted(GRID, TARGET)
    assert asked == {number: 2 * count for number, count in before.items()}


def test_what_is_remembered_of_a_row_is_for_its_changes_and_its_target_alone() -> None:
    stability = Stability(ENCODER, _slopes({}), (20, 20, 3, 0)).for_a_search()
    for changes in (1, 2, 3, 2, 1):
        allowed = (20, 20, 3, 0)[changes]
        wanted = share_of(_slopes({}), GRID, TARGET) >= 1 - allowed / 100 - 1e-6
        found = stability.accepted(GRID, TARGET, torch.full((len(GRID),), changes))
        assert found.tolist() == wanted.tolist()
    other = stability.accepted(GRID, Target(0))
    assert other.tolist() == (share_of(_slopes({}), GRID, Target(0)) >= 0.8 - 1e-6).tolist()
    relaxed = stability.relaxed(50)
    assert relaxed.accepted(GRID, TARGET).sum() > stability.accepted(GRID, TARGET).sum()


def test_a_family_for_single_changes_alone_is_told() -> None:
    small = Stability(ENCODER, MEMBERS, (1, 1, -1, -1))
    assert small.one_change
    assert not small.relaxed(2).one_change  # what is fragile may change as much as it takes
    assert not Stability(ENCODER, MEMBERS, (1, 1, 0, -1)).one_change
    assert not Stability(ENCODER, MEMBERS, (1, 1, -1, -1), chosen=False).one_change
    assert not Stability(ENCODER, noise=0.9).one_change

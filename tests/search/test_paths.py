import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.models.training import seeded
from counterpath.search.paths import (
    Paths,
    better_paths,
    is_first,
    line_points,
    merge,
    path_fraction,
    plausible_points,
    prepend,
)
from counterpath.search.traverse import StopReason
from tests.sizes import examples

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def _rows(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def _paths(lengths: list[int], seed: int) -> Paths:
    row, count = _rows(lengths), len(lengths)
    with seeded(seed):
        return Paths(
            row,
            torch.rand(len(row), 3),
            torch.rand(len(row), 2),
            torch.rand(len(row)),
            torch.rand(len(row)),
            torch.rand(len(row)) < 0.3,
            torch.full((count,), int(StopReason.ALL_STEPS_TAKEN)),
            torch.rand(count) < 0.5,
            torch.rand(count) < 0.5,
            torch.rand(count) < 0.5,
        )


@given(LENGTHS, st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=examples(50), deadline=None)
def test_stations_are_the_ends_and_what_is_as_close_to_the_data(lengths: list[int], seed: int, typical: float) -> None:
    row = _rows(lengths)
    with seeded(seed):
        distance = torch.rand(len(row), dtype=torch.float64)
    expected = []
    for part in distance.split(lengths):
        limit = max(float(part[0]), float(part[-1]), typical)
        expected += [place in (0, len(part) - 1) or float(value) <= limit for place, value in enumerate(part)]
    kept = plausible_points(row, distance, typical)
    assert kept.tolist() == expected
    assert torch.equal(plausible_points(row[kept], distance[kept], typical), torch.ones_like(kept[kept])), (
        "once is enough"
    )


def test_a_leap_over_what_nobody_has_is_made_at_once() -> None:
    row = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    distance = torch.tensor([0.1, 0.3, 0.9, 0.4, 0.2, 0.5, 0.9, 0.8])
    assert plausible_points(row, distance, 0.3).tolist() == [True, True, False, False, True, True, False, True]
    assert plausible_points(row, distance, 1.0).all()


@given(LENGTHS)
@settings(max_examples=examples(20), deadline=None)
def test_is_first_and_progress(lengths: list[int]) -> None:
    row = _rows(lengths)
    starts = [0, *itertools.accumulate(lengths)][:-1]
    assert is_first(row).nonzero()[:, 0].tolist() == starts
    expected = [place / (size - 1) if size > 1 else 1.0 for size in lengths for place in range(size)]
    torch.testing.assert_close(path_fraction(row), torch.tensor(expected))


def test_shares_of_lines_are_equal_steps() -> None:
    row, share = line_points(torch.tensor([2.0, 0.0, 1.2]))
    assert row.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert share.tolist() == [0, 0.5, 1, 0, 1, 0, 0.5, 1]


@given(LENGTHS, st.integers(0, 1000), st.randoms(use_true_random=False))
@settings(max_examples=examples(30), deadline=None)
def test_rows_are_picked_and_put_together_with_all_that_belongs_to_them(
    lengths: list[int], seed: int, random: object
) -> None:
    paths = _paths(lengths, seed)
    order = torch.tensor(random.sample(range(len(lengths)), len(lengths)))  # type: ignore[attr-defined]
    shuffled = paths.select(order)
    assert shuffled.gap.tolist() == paths.gap[order].tolist()
    assert shuffled.row.tolist() == _rows([lengths[row] for row in order.tolist()]).tolist()
    half = len(order) // 2
    again = merge([(order[:half], paths.select(order[:half])), (order[half:], paths.select(order[half:]))])
    for name in ("row", "x", "z", "sigma", "probability", "valid", "reason", "fallback", "gap", "implausible"):
        assert torch.equal(getattr(again, name), getattr(paths, name)), name
    twice = paths.select(order[:1].repeat(2))
    assert torch.equal(twice.x[twice.row == 0], twice.x[twice.row == 1])
    chosen = paths.filter(paths.gap)
    assert chosen.gap.all()
    assert len(chosen.reason) == int(paths.gap.sum())


@given(LENGTHS, st.integers(0, 1000))
@settings(max_examples=examples(30), deadline=None)
def test_paths_end_at_the_first_success_or_at_their_best_point(lengths: list[int], seed: int) -> None:
    paths = _paths(lengths, seed)
    cut = paths.truncate()
    assert torch.equal(cut.gap, paths.gap)
    assert torch.equal(cut.implausible, paths.implausible)
    for row in range(len(lengths)):
        here = paths.row == row
        met, probability = paths.valid[here].tolist(), paths.probability[here]
        end = met.index(True) if any(met) else int(probability.argmax())
        assert torch.equal(cut.x[cut.row == row], paths.x[here][: end + 1])
        assert bool(cut.found[row]) == any(met)
    assert torch.equal(cut.row[cut.last], torch.arange(len(lengths)))


def test_of_two_searches_the_better_one_is_taken_with_its_gaps() -> None:
    before, after = (_paths([3, 4, 2, 5, 1, 6], seed).truncate() for seed in (0, 1))
    best = better_paths(before, after)
    assert better_paths(None, after) is after
    taken = after.found | (after.probability[after.last] > before.probability[before.last])
    assert 0 < taken.sum() < 6
    for name in ("gap", "fallback", "implausible"):
        one, other = getattr(after, name), getattr(before, name)
        assert torch.equal(getattr(best, name), torch.where(taken, one, other)), name
    assert torch.equal(
        best.probability[best.last], torch.where(taken, after.probability[after.last], before.probability[before.last])
    )


def test_points_behind_the_people() -> None:
    paths = _paths([2, 1], 0)
    people, codes = torch.zeros(2, 3), torch.ones(2, 2)
    row, x, z = prepend(people, codes, paths.row, paths.x, paths.z)
    assert row.tolist() == [0, 0, 0, 1, 1]
    assert torch.equal(x, torch.cat([people[:1], paths.x[:2], people[:1], paths.x[2:]]))
    assert torch.equal(z, torch.cat([codes[:1], paths.z[:2], codes[:1], paths.z[2:]]))


def test_what_is_said_of_paths_can_be_said_of_others_of_the_same_rows() -> None:
    paths, other = _paths([2, 4, 1], 0), _paths([5, 2, 3], 1)
    said = paths.described_as(other)
    for name in ("fallback", "gap", "implausible"):
        assert torch.equal(getattr(said, name), getattr(other, name))
    for name in ("row", "x", "z", "reason", "valid"):
        assert torch.equal(getattr(said, name), getattr(paths, name))

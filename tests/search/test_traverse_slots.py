import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.search.traverse import Slots


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**16))
def test_every_row_gets_a_slot_once_and_in_its_order(count: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    start = torch.arange(count, dtype=torch.float64)[:, None]
    slots, seen = Slots.filled(start, size), []
    ended: list[int] = []
    while slots.finished() < count:
        walking = slots.row < count
        seen += [
            row
            for row, taken in zip(slots.row.tolist(), slots.taken.tolist(), strict=True)
            if taken == 0 and row < count
        ]
        assert torch.equal(slots.z[walking & (slots.taken == 0)], start[slots.row[walking & (slots.taken == 0)]])
        done = torch.rand(size, generator=generator) < 0.4
        ended += slots.row[done & walking].tolist()
        slots.move(slots.z - 1, done, start)
    assert seen == sorted(seen) == list(range(count))
    assert sorted(ended) == list(range(count))

import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.utils.devices import map_blocks


@given(st.integers(0, 40), st.integers(1, 12))
def test_every_block_has_one_shape_and_every_row_comes_back_once(rows: int, size: int) -> None:
    x = torch.arange(float(rows))[:, None]
    seen = []

    def double(block: torch.Tensor, nothing: None) -> torch.Tensor:
        seen.append(block.shape)
        return 2 * block

    assert torch.equal(map_blocks(double, x, None, block_size=size), 2 * x)
    assert set(seen) == {(size, 1)}

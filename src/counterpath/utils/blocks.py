"""Row-wise work on blocks of one fixed shape.

A matrix product of another shape rounds differently, and a search amplifies that. So whatever is computed row by row
goes through blocks whose shape never changes: any order and any split of the rows then gives bit-identical results.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from counterpath.utils.devices import keep_freed_memory

# By device. On a CPU 128 rows fill its vector units and still end soon for a single row; on a GPU fewer than 8,192 rows
# take as long as 8,192, because launching the kernels then takes longer than running them.
_BLOCK_ROWS = {"cpu": 128, "cuda": 8192}
# For many rows: the sizes beyond which a row gets hardly cheaper (see docs/performance.md).
_BULK_BLOCK_ROWS = {"cpu": 512, "cuda": 131072}


def block_size_for(device: torch.device, *, many: bool = False) -> int:
    """How many rows make a block on a device: enough to keep it busy, and few enough for a low latency.

    Args:
        device: Where the rows are.
        many: Whether there are so many rows that throughput counts, and latency does not.
    """
    return (_BULK_BLOCK_ROWS if many else _BLOCK_ROWS)[device.type]


def map_blocks(function: Callable[..., Tensor], *tensors: Tensor | None, block_size: int | None = None) -> Tensor:
    """Apply a row-wise `function` to blocks of exactly `block_size` rows; the last one is padded with its first row.

    Args:
        function: Maps tensors of `block_size` rows to a tensor of as many rows.
        tensors: Tensors with the same number of rows; None is passed on as None.
        block_size: Rows in a block; by default what suits the device.
    """
    keep_freed_memory()
    first_tensor = next(tensor for tensor in tensors if tensor is not None)
    count, device = len(first_tensor), first_tensor.device
    block_size = block_size or block_size_for(device)
    if count == 0:
        return function(*(None if t is None else t.new_zeros(block_size, *t.shape[1:]) for t in tensors))[:0]
    parts = []
    for first in range(0, count, block_size):
        rows = torch.arange(first, first + block_size, device=device)
        rows = torch.where(rows < count, rows, first)
        parts.append(function(*(None if t is None else t[rows] for t in tensors))[: count - first])
    return torch.cat(parts)

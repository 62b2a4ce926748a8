"""Where tensors live, how exactly they are multiplied there, and how many rows at a time.

A matrix product of another shape rounds differently, and a search amplifies that. So whatever is computed row by row
goes through blocks whose shape never changes: any order and any split of the rows then gives bit-identical results.
"""

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad

from counterpath.utils.errors import InputError


def resolve_device(name: str) -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:N" into a device; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; choose one of: auto, cpu, cuda, cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} was asked for, but torch sees {torch.cuda.device_count()} GPUs; try: cpu")
    return device


@contextmanager
def tf32_products(enabled: bool) -> Iterator[None]:
    """Let matrix products on a GPU round their factors to TF32 within the block, if `enabled`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if enabled else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what is freed, up to 64 MB, for the next step of the same work.

    By default it returns a step's tensors to the system and asks for them anew, page by page, which takes as long as
    the arithmetic. It adapts: from now on it keeps pieces as large as the largest that was freed, 32 MB at most.
    """
    torch.ones((32 << 20) - (1 << 16), dtype=torch.uint8)


def release_memory() -> None:
    """Give back to the system what is freed: between the parts of a fit, which need pieces of other sizes.

    Arrow keeps what tables took, and the C library what lies between pieces that are still in use; where that is not
    glibc, it does as it likes.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# By device. On a CPU 128 rows fill its vector units and still end soon for a single row; on a GPU fewer than 16,384
# rows take nearly as long as 16,384, because launching the kernels then takes longer than running them.
_BLOCK_ROWS = {"cpu": 128, "cuda": 16384}
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
        rows: slice | Tensor = slice(first, first + block_size)
        if first + block_size > count:
            index = torch.arange(first, first + block_size, device=device)
            rows = torch.where(index < count, index, first)
        parts.append(function(*(None if t is None else t[rows] for t in tensors))[: count - first])
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def kernels_usable(*tensors: Tensor) -> bool:
    """Whether kernels can take these tensors: plain ones on a GPU, of which no derivative is wanted."""
    return (
        all(tensor.is_cuda and not is_functorch_wrapped_tensor(tensor) for tensor in tensors)
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
        and forward_ad._current_level < 0  # a derivative in forward mode would be lost without a word
        and _installed()
    )


def in_float32() -> bool:
    """Whether products must be as exact as float32: torch's default, `torch.set_float32_matmul_precision("highest")`.

    Otherwise their factors may be rounded to TF32, which has 10 bits after the point where float32 has 23.
    """
    return torch.get_float32_matmul_precision() == "highest"


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None

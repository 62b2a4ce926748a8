"""Where tensors live, and how exactly they are multiplied there."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

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

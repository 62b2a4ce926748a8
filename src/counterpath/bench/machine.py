"""What the figures are measured on, and how fast it multiplies."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from counterpath.bench.timing import side_by_side

_MATRIX = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product that shows how fast a device multiplies."""
_CPU_INFO = Path("/proc/cpuinfo")


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "matmul_flop_per_second": _matmul_speed(device),
    }


def _matmul_speed(device: torch.device) -> float:
    """Floating-point operations a second in the product of two large matrices, as exact as products are now."""
    size = _MATRIX[device.type]
    one, out = torch.rand(size, size, device=device), torch.empty(size, size, device=device)
    times = side_by_side({"product": lambda: torch.mm(one, one, out=out)}, device, rounds=5)
    return 2 * size**3 / times["product"].median


def _cpu() -> str:
    if _CPU_INFO.exists():
        names = [line.partition(":")[2].strip() for line in _CPU_INFO.read_text().splitlines() if "model name" in line]
        if names:
            return names[0]
    return platform.processor() or platform.machine()

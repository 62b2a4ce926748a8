"""Kernels are tested where they can run: on a GPU, or by Triton's interpreter, which needs none."""

import importlib
import importlib.util
import os
import sys

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton looks when a kernel is defined


@pytest.fixture(scope="session")
def device() -> torch.device:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("kernels are written in Triton, and it is not installed: pip install triton")
    # Triton reads the source of its kernels, which the checker of shapes would have rewritten.
    finders, sys.meta_path[:] = sys.meta_path[:], [f for f in sys.meta_path if "jaxtyping" not in type(f).__module__]
    for name in ("density", "tangents", "small"):
        importlib.import_module(f"counterpath.geometry.kernels.{name}")
    sys.meta_path[:] = finders
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

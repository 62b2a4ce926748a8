"""Kernels for GPUs, written in Triton: the same numbers as the plain functions that call them, in fewer passes.

A plain function checks `usable` and hands over. Everything works without: on a CPU, on a GPU without Triton, in
float64, and where derivatives are taken, the plain function goes on by itself.
"""

import importlib.util
from functools import cache

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad

WIDEST = 128
"""The most outputs of a network whose tangents a kernel can hold in registers."""

MOST_AXES = 8
"""The most latent axes of kernels for codes and metrics: a d × d matrix a thread must fit its registers."""


def usable(*tensors: Tensor) -> bool:
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

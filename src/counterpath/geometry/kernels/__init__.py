"""Kernels for GPUs, written in Triton: the same numbers as the plain functions that call them, in fewer passes.

A plain function checks `devices.kernels_usable` and hands over. Everything works without: on a CPU, on a GPU without
Triton, in float64, and where derivatives are taken, the plain function goes on by itself.
"""

WIDEST = 128
"""The most outputs of a network whose tangents a kernel can hold in registers."""

MOST_AXES = 8
"""The most latent axes of kernels for codes and metrics: a d × d matrix a thread must fit its registers."""

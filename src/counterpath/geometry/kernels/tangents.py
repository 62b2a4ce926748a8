"""Value and tangents of a network with two hidden layers, without writing the tangents of the second one.

For x = W₃ t₂ + b₃, t₂ = tanh(W₂ t₁ + b₂), t₁ = tanh(W₁ z + b₁) the derivative along the latent axis j is

    ẋⱼ = W₃ (1 − t₂²) ⊙ ((1 − t₁²) Bⱼ),   Bⱼ = diag(w₁ⱼ) W₂ᵀ,

with w₁ⱼ the column of W₁ that belongs to axis j. Bⱼ does not depend on the row: so all tangents are products of one
matrix, 1 − t₁², with weights that are prepared once, and what a tile of them makes goes through the rest of the network
while it is still in registers.

Tensor cores are fastest in float16, whose 10 bits after the point are as many as TF32's, over a smaller range: so both
factors are scaled by powers of two. A float32 number is the sum of two such numbers, high and low; the products
high·high, high·low and low·high together are as exact as a product in float32, for three times the work of the first.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from counterpath.geometry.kernels.density import to_tf32

_TILE = 128  # weights are padded to whole tiles of the kernel below, so that it needs no masks
_SHAPE = {"BM": 64, "BN": 128, "num_warps": 4, "num_stages": 3}
"""The sums of a tile, and what is loaded ahead, must fit the registers and the shared memory of a multiprocessor."""


def push(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    value: Tensor,
    directions: Tensor,
    *,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """The outputs `(n, o)` and their tangents `(d, n, o)`.

    Args:
        weights: W₁, W₂ and W₃.
        biases: b₁, b₂ and b₃.
        value: Inputs `(n, i)`.
        directions: What to differentiate along, the same for all rows `(d, i)`.
        exact: As exact as float32; else in TF32.
    """
    (hidden, width), outputs, rows, axes = weights[1].shape, len(weights[2]), len(value), len(directions)
    wide = triton.next_power_of_2(max(16, outputs))
    deep, across = (triton.cdiv(size, _TILE) * _TILE for size in (hidden, width))
    levels = 2 if exact else 1  # high, and low
    inner = value.new_empty(levels, axes + 1, deep, across, dtype=torch.float16)
    last = value.new_empty(levels, wide, deep)
    along = directions @ weights[0].T
    largest = torch.stack([torch.linalg.vector_norm(each, torch.inf) for each in (weights[1], along)])
    _prepare[(triton.cdiv(inner[0].numel(), 1024),)](
        weights[1], along, largest, inner, hidden, width, axes, deep, across, exact, 1024, num_warps=4
    )
    _prepare_last[(triton.cdiv(last[0].numel(), 1024),)](
        weights[2], last, outputs, hidden, wide, deep, exact, 1024, num_warps=4
    )
    factors = value.new_empty(levels, 2, rows, across, dtype=torch.float16)
    before = torch.addmm(biases[0], value, weights[0].T)
    _activate[(triton.cdiv(rows * across, 1024),)](before, factors, rows, width, across, exact, 1024, num_warps=4)
    second = value.new_empty(rows, deep)
    out = value.new_empty(axes + 1, rows, wide)
    tiles = triton.cdiv(rows, _SHAPE["BM"])
    for valued in (True, False):
        _layers[(tiles * (1 if valued else axes),)](
            factors,
            inner,
            largest,
            biases[1],
            second,
            last,
            biases[2],
            out,
            rows,
            across,
            deep,
            hidden,
            outputs,
            axes,
            WIDE=wide,
            VALUE=valued,
            EXACT=exact,
            BK=32 if exact else 64,
            **_SHAPE,
        )
    return out[axes, :, :outputs], out[:axes, :, :outputs]


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _scale(largest, valued):
    """A power of two by which weights get close to the largest float16."""
    most = tl.load(largest) * tl.where(valued, 1.0, tl.load(largest + 1))
    return tl.exp2(tl.floor(tl.log2(16384.0 / tl.maximum(most, 1e-30))))


@triton.jit
def _prepare(
    weight,
    along,
    largest,
    out,
    lines,
    width,
    axes,
    deep,
    across,
    EXACT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bⱼ for every axis and, last, W₂; scaled, split and with zeros up to whole tiles."""
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = (axes + 1) * deep * across
    column, line, axis = offset % across, offset // across % deep, offset // across // deep
    known = (offset < size) & (column < width) & (line < lines)
    x = tl.load(weight + line * width + column, mask=known, other=0.0)
    x *= tl.load(along + axis * width + column, mask=known & (axis < axes), other=1.0)
    x *= tl.where(axis == axes, _scale(largest, True), _scale(largest, False))
    high = x.to(tl.float16)
    tl.store(out + offset, high, mask=offset < size)
    if EXACT:
        tl.store(out + size + offset, (x - high.to(tl.float32)).to(tl.float16), mask=offset < size)


@triton.jit
def _prepare_last(weight, out, outputs, hidden, wide, deep, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    """W₃, split and with zeros up to whole tiles."""
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column, line = offset % deep, offset // deep
    x = tl.load(weight + line * hidden + column, mask=(line < outputs) & (column < hidden), other=0.0)
    high = to_tf32(x)
    tl.store(out + offset, high, mask=line < wide)
    if EXACT:
        tl.store(out + wide * deep + offset, x - high, mask=line < wide)


@triton.jit
def _activate(before, factors, rows, width, across, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    """t = tanh(a) and 1 − t², scaled; and what their rounding leaves."""
    size = rows.to(tl.int64) * across
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, column = offset // across, offset % across
    inside = offset < size
    t = _tanh(tl.load(before + row * width + column, mask=inside & (column < width), other=0.0))
    t, s = t * 4096, (1 - t * t) * 4096
    t_high, s_high = t.to(tl.float16), s.to(tl.float16)
    tl.store(factors + offset, t_high, mask=inside)
    tl.store(factors + size + offset, s_high, mask=inside)
    if EXACT:
        tl.store(factors + 2 * size + offset, (t - t_high.to(tl.float32)).to(tl.float16), mask=inside)
        tl.store(factors + 3 * size + offset, (s - s_high.to(tl.float32)).to(tl.float16), mask=inside)


@triton.jit
def _layers(
    factors,
    weights,
    largest,
    bias,
    second,
    last,
    last_bias,
    result,
    rows,
    width,
    hidden,
    units,
    outputs,
    axes,
    WIDE: tl.constexpr,
    VALUE: tl.constexpr,
    EXACT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One tile of rows and one axis: factor · weightᵀ, the second activation or its slope, and the last layer."""
    tile = tl.program_id(0)
    axis = axes if VALUE else tile % axes
    row = (tile if VALUE else tile // axes) * BM + tl.arange(0, BM)
    inside = (row < rows)[:, None]
    line = row.to(tl.int64)[:, None]
    whole = rows.to(tl.int64) * width
    factor = factors if VALUE else factors + whole
    weight = weights + axis * hidden * width
    low = (axes + 1) * hidden * width
    total = tl.zeros((BM, WIDE), tl.float32)
    output = tl.arange(0, WIDE)
    shrink = 1 / (4096 * _scale(largest, VALUE))
    for start in range(0, hidden, BN):
        unit = start + tl.arange(0, BN)
        activation = tl.zeros((BM, BN), tl.float32)
        pointer = second + line * hidden + unit[None, :]
        pointer_c = last + output[None, :] * hidden + unit[:, None]
        c = tl.load(pointer_c)
        if not VALUE:
            t = tl.load(pointer, mask=inside, other=0.0)
        for begin in range(0, width, BK):
            inner = begin + tl.arange(0, BK)
            pointer_a = factor + line * width + inner[None, :]
            pointer_b = weight + unit[None, :] * width + inner[:, None]
            a = tl.load(pointer_a, mask=inside, other=0.0)
            b = tl.load(pointer_b)
            if EXACT:
                a_low = tl.load(pointer_a + 2 * whole, mask=inside, other=0.0)
                b_low = tl.load(pointer_b + low)
                activation = tl.dot(a_low, b, activation)
                activation = tl.dot(a, b_low, activation)
            activation = tl.dot(a, b, activation)
        activation *= shrink
        if VALUE:
            activation = _tanh(activation + tl.load(bias + unit, mask=unit < units, other=0.0)[None, :])
            tl.store(pointer, activation, mask=inside)
        else:
            activation = activation * (1 - t * t)
        high = to_tf32(activation)
        if EXACT:
            total = tl.dot(activation - high, c, total, input_precision="tf32")
            total = tl.dot(high, tl.load(pointer_c + WIDE * hidden), total, input_precision="tf32")
        total = tl.dot(high, c, total, input_precision="tf32")
    if VALUE:
        total += tl.load(last_bias + output, mask=output < outputs, other=0.0)[None, :]
    tl.store(result + (axis * rows.to(tl.int64) + line) * WIDE + output[None, :], total, mask=inside)

"""Gram matrices of Jacobians, and systems with small matrices, a row to a lane, in float64."""

import triton
import triton.language as tl
from torch import Tensor, float64
from torch import bool as boolean


def gram(factor: Tensor) -> Tensor:
    """FᵀF `(n, d, d)` of factors `(n, D, d)` with any strides."""
    rows, height, size = factor.shape
    out = factor.new_empty(rows, size, size, dtype=float64)
    wide, block = _shape(size, 2048)
    _gram[(triton.cdiv(rows, block),)](
        factor, out, rows, height, *factor.stride(), SIZE=size, WIDE=wide, BM=block, num_warps=1
    )
    return out


def solve(matrix: Tensor, vector: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """M⁻¹v for positive definite `(n, d, d)`, and for which rows it is valid; see `geometry.metric.try_solve`."""
    rows, size = vector.shape
    solution, valid = vector.new_empty(rows, size, dtype=float64), vector.new_empty(rows, dtype=boolean)
    wide, block = _shape(size, 1024)
    _solve[(triton.cdiv(rows, block),)](
        matrix.contiguous(),
        vector.contiguous(),
        solution,
        valid,
        rows,
        floor,
        SIZE=size,
        WIDE=wide,
        BM=block,
        num_warps=4,
    )
    return solution, valid


def _shape(size: int, entries: int) -> tuple[int, int]:
    """The next power of two, and how many matrices of that size have so many entries."""
    wide = triton.next_power_of_2(size)
    return wide, max(1, entries // (wide * wide))


@triton.jit
def _gram(
    factor,
    out,
    rows,
    height,
    by_row,
    by_line,
    by_axis,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    BM: tl.constexpr,
):
    row = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)[:, None, None]
    left, right = tl.arange(0, WIDE)[None, :, None], tl.arange(0, WIDE)[None, None, :]
    total = tl.zeros((BM, WIDE, WIDE), tl.float64)
    for line in range(height):
        # Both sides are loaded, though they are the same numbers: each then lies where its threads need it.
        begin = factor + row * by_row + line * by_line
        one = tl.load(begin + left.to(tl.int64) * by_axis, mask=(row < rows) & (left < SIZE), other=0.0)
        other = tl.load(begin + right.to(tl.int64) * by_axis, mask=(row < rows) & (right < SIZE), other=0.0)
        total += one.to(tl.float64) * other.to(tl.float64)
    inside = (row < rows) & (left < SIZE) & (right < SIZE)
    tl.store(out + row * SIZE * SIZE + left * SIZE + right, total, mask=inside)


@triton.jit
def _solve(matrix, vector, solution, valid, rows, floor, SIZE: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr):
    """Gauss and Jordan's elimination without exchanges, which a positive definite matrix does not need."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    axis = tl.arange(0, WIDE)
    inside = (row < rows)[:, None] & (axis < SIZE)[None, :]
    where = row.to(tl.int64)[:, None, None] * SIZE * SIZE + axis[None, :, None] * SIZE + axis[None, None, :]
    a = tl.load(matrix + where, mask=inside[:, :, None] & (axis < SIZE)[None, None, :], other=0.0)
    b = tl.load(vector + row.to(tl.int64)[:, None] * SIZE + axis[None, :], mask=inside, other=0.0).to(tl.float64)
    good, pivots = row < rows, tl.full((BM, WIDE), 1.0, tl.float64)
    for i in tl.static_range(SIZE):
        line = tl.sum(tl.where(axis[None, :, None] == i, a, 0.0), 1)
        pivot = tl.sum(tl.where(axis[None, :] == i, line, 0.0), 1)
        pivot = tl.where(pivot < floor, floor, pivot)
        good = good & (pivot > 0) & (pivot < float("inf"))
        pivot = tl.where(pivot > 0, pivot, 1.0)
        pivots = tl.where(axis[None, :] == i, pivot[:, None], pivots)
        column = tl.sum(tl.where(axis[None, None, :] == i, a, 0.0), 2)
        ratio = tl.where(axis[None, :] == i, 0.0, column / pivot[:, None])
        right = tl.sum(tl.where(axis[None, :] == i, b, 0.0), 1)
        a -= ratio[:, :, None] * line[:, None, :]
        b -= ratio * right[:, None]
    b /= pivots
    good = good & (tl.sum(tl.where(tl.abs(b) < float("inf"), 0, 1), 1) == 0)
    b = tl.where(good[:, None], b, 0.0)
    tl.store(solution + row.to(tl.int64)[:, None] * SIZE + axis[None, :], b, mask=inside)
    tl.store(valid + row, good, mask=row < rows)

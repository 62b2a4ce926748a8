"""The mass of radial basis functions around centres, and its slope, in one pass over the centres."""

import triton
import triton.language as tl
from torch import Tensor

_SHAPE = {"BM": 128, "BK": 32, "num_warps": 4}  # a tile of basis functions that four warps can hold in registers


def density(z: Tensor, centers: Tensor, bandwidth: Tensor, extra: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Σφ `(n,)` and Σλφ(z − c) `(n, d)`, with φ = exp(−λ(‖z − c‖² + extra)).

    Args:
        z: Codes `(n, d)`.
        centers: c `(K, d)`.
        bandwidth: λ `(K,)`.
        extra: A squared distance `(n, K)` beside that of the codes.
    """
    rows, axes = z.shape
    mass, slope = z.new_empty(rows), z.new_empty(rows, axes)
    _density[(triton.cdiv(rows, _SHAPE["BM"]),)](
        z.contiguous(),
        centers.contiguous(),
        centers.mean(0),
        bandwidth,
        z if extra is None else extra,
        mass,
        slope,
        rows,
        len(centers),
        AXES=axes,
        EXTRA=extra is not None,
        **_SHAPE,
    )
    return mass, slope


@triton.jit
def to_tf32(x):
    """Float32 rounded to the 10 bits after the point that TF32 has."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _density(
    z,
    centers,
    middle,
    bandwidth,
    extra,
    mass,
    slope,
    rows,
    count,
    AXES: tl.constexpr,
    EXTRA: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """All sums over centres are one product: of the basis with 1, λ and λ(c − middle); exact by high and low parts."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = row < rows
    column = tl.arange(0, 16)
    axis = column - 2
    real = (axis >= 0) & (axis < AXES)
    origin = tl.load(middle + axis, mask=real, other=0.0)
    sums = tl.zeros((BM, 16), tl.float32)
    for begin in range(0, count, BK):
        k = begin + tl.arange(0, BK)
        known = k < count
        rate = tl.load(bandwidth + k, mask=known, other=0.0)
        squared = tl.zeros((BM, BK), tl.float32)
        if EXTRA:
            where = row.to(tl.int64)[:, None] * count + k[None, :]
            squared += tl.load(extra + where, mask=inside[:, None] & known[None, :], other=0.0)
        for i in tl.static_range(AXES):
            here = tl.load(z + row * AXES + i, mask=inside, other=0.0)
            there = tl.load(centers + k * AXES + i, mask=known, other=0.0)
            difference = here[:, None] - there[None, :]
            squared += difference * difference
        basis = tl.where(known[None, :], tl.exp(-rate[None, :] * squared), 0.0)
        offset = k[:, None] * AXES + axis[None, :]
        weight = tl.load(centers + offset, mask=known[:, None] & real[None, :], other=0.0) - origin[None, :]
        weight = tl.where(column[None, :] == 1, 1.0, tl.where(real[None, :], weight, 0.0)) * rate[:, None]
        weight = tl.where(column[None, :] == 0, 1.0, weight)
        basis_high, weight_high = to_tf32(basis), to_tf32(weight)
        sums = tl.dot(basis - basis_high, weight_high, sums, input_precision="tf32")
        sums = tl.dot(basis_high, weight - weight_high, sums, input_precision="tf32")
        sums = tl.dot(basis_high, weight_high, sums, input_precision="tf32")
    total = tl.sum(tl.where(column[None, :] == 0, sums, 0.0), 1)
    rated = tl.sum(tl.where(column[None, :] == 1, sums, 0.0), 1)
    offset = row[:, None] * AXES + axis[None, :]
    code = tl.load(z + offset, mask=inside[:, None] & real[None, :], other=0.0)
    tl.store(mass + row, total, mask=inside)
    pull = (code - origin[None, :]) * rated[:, None] - sums
    tl.store(slope + offset, pull, mask=inside[:, None] & real[None, :])

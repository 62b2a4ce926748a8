"""Numbers with fewer bits."""

import triton
import triton.language as tl


@triton.jit
def nearest(x):
    """Float32 rounded to the 10 bits after the point that TF32 has."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)

"""Rows as they are returned: what did not change is what was given, to the last bit."""

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.data.tables import cast_if_lossless


def decoded_rows(
    encoder: Encoder, x: Float[Tensor, "n D"], before: Float[Tensor, "n D"], factuals: pd.DataFrame
) -> pd.DataFrame:
    """Rows in original units; a feature that is encoded as the factual one is the factual one, to the bit."""
    decoded = encoder.decode(x)
    columns = {}
    for name, part in zip(encoder.schema.names, encoder.layout, strict=True):
        same = (x[:, part] == before[:, part]).all(-1).cpu().numpy()
        columns[name] = _mixed(decoded[name], factuals[name], same)
    return pd.DataFrame({name: columns[name] for name in decoded.columns})


def _mixed(decoded: pd.Series, original: pd.Series, same: NDArray[np.bool_]) -> pd.Series:
    """One column, in part as it was given; its dtype is that of decoded values wherever it holds those."""
    if not same.any():
        return decoded
    parts = [decoded[~same], cast_if_lossless(original[same], decoded.dtype)]
    whole = pd.concat([part for part in parts if len(part)], ignore_index=True)
    order = np.argsort(np.concatenate([np.flatnonzero(~same), np.flatnonzero(same)]))
    return whole.iloc[order].reset_index(drop=True)


def interleaved(
    decoded: pd.DataFrame, index: NDArray[np.int64], original: pd.DataFrame, original_index: NDArray[np.int64]
) -> pd.DataFrame:
    """Decoded rows, and rows exactly as they were given, each at its position.

    Decoding is exact to 6e-8 of a range only. The dtype is that of decoded rows wherever it holds what was given.
    """
    fitting = {name: cast_if_lossless(original[name], decoded[name].dtype) for name in decoded.columns}
    whole = pd.concat([decoded, pd.DataFrame(fitting, index=original.index)], ignore_index=True)
    return whole.iloc[np.argsort(np.concatenate([index, original_index]))].reset_index(drop=True)

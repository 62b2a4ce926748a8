"""Paths as tables in original units, with as many of their points as are kept."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.answering import Group
from counterpath.data.columns import alike
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Schema
from counterpath.explanation import path_columns
from counterpath.explanation.keeping import END, MILESTONES, only_milestones
from counterpath.explanation.telling import amounts
from counterpath.learned import Learned
from counterpath.paths import Paths, firsts, picked

_AT_ONCE = 4096
"""Of how many paths all points are a table at the same time, if few of them are kept."""


def table_of(learned: Learned, group: Group, paths: Paths, factuals: pd.DataFrame, keep: str) -> pd.DataFrame | None:
    """As much of the paths of a group as is kept, in the columns of `Explanation.paths`; None if that is nothing.

    Args:
        learned: The models.
        group: Whose paths they are.
        paths: Every point of them.
        factuals: All rows that were asked about.
        keep: A key of `KEEPS`.
    """
    if keep == END:
        return None
    schema, whose = learned.encoder.schema, torch.arange(len(group.steps), device=group.steps.device)
    numbers, tables = amounts(schema, factuals), []
    for rows in whose.split(_AT_ONCE):
        table = _points(learned, picked(paths, rows), group.place[rows], group.factual[rows], factuals)
        tables.append(only_milestones(table, schema, numbers) if keep == MILESTONES else table)
    return pd.concat(tables, ignore_index=True)


def join_tables(
    tables: Sequence[pd.DataFrame | None], schema: Schema, factuals: pd.DataFrame, after: NDArray[np.float64]
) -> pd.DataFrame:
    """The paths of all groups, row after row.

    Args:
        tables: Those of each group.
        schema: What the features are.
        factuals: All rows that were asked about.
        after: The probability of the wanted outcome for each of them as it is returned, which is where its path ends.
    """
    there = [table for table in tables if table is not None]
    if not there:
        return _empty(schema, factuals)
    whole = pd.concat(there, ignore_index=True).sort_values(["row", "step"], kind="stable", ignore_index=True)
    last = ~whole["row"].duplicated(keep="last").to_numpy()
    probability = whole["probability"].to_numpy(copy=True)
    probability[last] = after[whole["row"].to_numpy()[last]]
    return whole.assign(probability=probability)


def decoded_rows(
    encoder: Encoder, x: Float[Tensor, "n D"], before: Float[Tensor, "n D"], given: pd.DataFrame
) -> pd.DataFrame:
    """Rows in original units; a feature that is encoded as the person's is the person's, to the bit."""
    decoded = encoder.decode(x)
    columns = {}
    for name, part in zip(encoder.schema.names, encoder.layout, strict=True):
        same = (x[:, part] == before[:, part]).all(-1).cpu().numpy()
        columns[name] = _mixed(decoded[name], given[name], same)
    return pd.DataFrame({name: columns[name] for name in decoded.columns})


def _mixed(decoded: pd.Series, given: pd.Series, same: NDArray[np.bool_]) -> pd.Series:
    """One column, in part as it was given; its dtype is that of decoded values wherever it holds those."""
    if not same.any():
        return decoded
    parts = [decoded[~same], alike(given[same], decoded.dtype)]
    whole = pd.concat([part for part in parts if len(part)], ignore_index=True)
    order = np.argsort(np.concatenate([np.flatnonzero(~same), np.flatnonzero(same)]))
    return whole.iloc[order].reset_index(drop=True)


def interleaved(
    decoded: pd.DataFrame, places: NDArray[np.int64], given: pd.DataFrame, given_places: NDArray[np.int64]
) -> pd.DataFrame:
    """Decoded rows, and rows exactly as they were given, each at its place.

    Decoding is exact to 6e-8 of a range only. The dtype is that of decoded rows wherever it holds what was given.
    """
    fitting = {name: alike(given[name], decoded[name].dtype) for name in decoded.columns}
    whole = pd.concat([decoded, pd.DataFrame(fitting, index=given.index)], ignore_index=True)
    return whole.iloc[np.argsort(np.concatenate([places, given_places]))].reset_index(drop=True)


def _points(learned: Learned, paths: Paths, place: Tensor, factual: Tensor, factuals: pd.DataFrame) -> pd.DataFrame:
    """All points of paths in original units, row after row."""
    schema, first = learned.encoder.schema, firsts(paths.row)
    moved = ((paths.x[1:] - paths.x[:-1]) * learned.encoder.weights.to(paths.x)).norm(dim=-1)
    moved = torch.cat([moved.new_zeros(1), moved]).masked_fill(first, 0)
    total = moved.double().cumsum(0)
    starts = first.nonzero()[:, 0]
    step = torch.arange(len(paths.row), device=paths.row.device) - starts[paths.row]
    where = learned.view.show(paths.z)
    extra = {
        "probability": paths.probability,
        "uncertainty": paths.sigma,
        "length": total - total[starts[paths.row]],
        "map_x": where[:, 0],
        "map_y": where[:, 1],
    }
    names = list(schema.names)
    asked = factuals[names].iloc[place.cpu().numpy()]
    whose = paths.row[~first]
    decoded = decoded_rows(learned.encoder, paths.x[~first], factual[whose], asked.iloc[whose.cpu().numpy()])
    decoded = decoded[names]
    frame = interleaved(decoded, (~first).nonzero()[:, 0].cpu().numpy(), asked, starts.cpu().numpy())
    points = pd.DataFrame({"row": place[paths.row].cpu().numpy(), "step": step.cpu().numpy()})
    ends = pd.DataFrame({name: values.double().cpu().numpy() for name, values in extra.items()})
    return pd.concat([points, frame, ends], axis=1).set_axis(path_columns(schema.names), axis=1)


def _empty(schema: Schema, factuals: pd.DataFrame) -> pd.DataFrame:
    numbers = pd.DataFrame(np.zeros((0, 5)))
    places = pd.DataFrame(np.zeros((0, 2), dtype=np.int64))
    features = factuals[list(schema.names)].iloc[:0].reset_index(drop=True)
    return pd.concat([places, features, numbers], axis=1).set_axis(path_columns(schema.names), axis=1)

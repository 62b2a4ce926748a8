"""The rows of a shard as a table, by what the features are and not by what happens to be in the shard.

What pandas makes of a column of text depends on all of its values: one letter among a million digits, and every number
is text. A shard is a piece of a file, and its rows must mean what they mean in the whole of it. So values of a file
of comma-separated values are read one by one: as a number where the feature is one, else as the category that is
written so.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from counterpath.batch.sources import Shard, Source, insist_unchanged
from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.errors import InputError

_AT_ONCE = 1 << 12
"""Rows of a Parquet file that are decoded at a time: a shard far into a large row group passes all before it."""
_GAPS = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"]
_GAPS += ["N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
"""What pandas takes for a missing value."""


def read(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    """The rows of a shard, under their numbers in the file, and the columns that are carried along as they are.

    Raises:
        InputError: The file has changed since the job was planned, or is not what it seemed to be.
    """
    insist_unchanged(source)
    frame, carried = (_csv if source.cuts else _parquet)(source, shard, schema, ids)
    if len(frame) != shard.rows:
        raise InputError(
            f"{source.name} has {len(frame)} rows where {shard.rows} were counted, from row {shard.first} on: its "
            "quotes or line breaks cannot be followed; convert it to Parquet"
        )
    return frame.set_axis(pd.RangeIndex(shard.first, shard.first + shard.rows)), carried


def _parquet(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    """Only the row groups that the shard is in are read, in batches: a group may be larger than the memory."""
    end = shard.first + shard.rows
    with pq.ParquetFile(source.path) as file:
        sizes = np.array([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
        ends = np.cumsum(sizes)
        touched = np.flatnonzero((ends > shard.first) & (ends - sizes < end)).tolist()
        position = int(ends[touched[0]] - sizes[touched[0]])
        kept: list[pa.RecordBatch] = []
        for batch in file.iter_batches(_AT_ONCE, row_groups=touched, columns=[*ids, *schema.names]):
            first, last = max(shard.first - position, 0), min(end - position, len(batch))
            if first < last:
                kept.append(batch.slice(first, last - first))
            position += len(batch)
            if position >= end:
                break
    table = pa.Table.from_batches(kept)
    return table.select(list(schema.names)).to_pandas(), table.select(list(ids))


def _csv(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    start, end = source.cuts[shard.number], source.cuts[shard.number + 1]
    with Path(source.path).open("rb") as file:
        header = file.read(source.cuts[0])
        file.seek(start)
        content = BytesIO(header + file.read(end - start))
    where = f"{source.name}, from row {shard.first} on,"
    try:
        # All columns are read: if only some are, pandas does not notice rows that have more fields than the header.
        frame = pd.read_csv(
            content,
            encoding="utf-8-sig",
            dtype=object,
            keep_default_na=False,
            na_values=dict.fromkeys(schema.names, _GAPS),  # an identifier may be called NA, which is no gap
        )
    except ValueError as error:  # pandas' parser errors are, too
        raise InputError(f"{where} cannot be read: {error}") from error
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{where} has rows with more fields than the header")
    features = {feature.name: _values(frame[feature.name], feature) for feature in schema}
    return pd.DataFrame(features), pa.table({name: pa.array(frame[name], pa.string()) for name in ids})


def _values(column: pd.Series, feature: Feature) -> pd.Series:
    """The values of a feature that are written in a column; what is none stays as it is written."""
    places, texts = pd.factorize(column)
    number = KINDS[feature.kind].categories is None
    known = {} if number else _written(feature.categories)
    values = [_number(text) if number else known.get(text, _category(text, feature.categories)) for text in texts]
    found = np.array([*values, np.nan], dtype=object)[places]  # a gap has the place -1
    plain = number and all(isinstance(value, float) for value in values)
    return pd.Series(found, name=column.name, dtype=np.float64 if plain else object)


def _written(categories: Sequence[Any]) -> Mapping[str, Any]:
    """Categories by how they are written; yes and no in all ways in which pandas reads them."""
    truths = {text: one for one in categories if isinstance(one, bool) for text in (f"{one}".lower(), f"{one}".upper())}
    return truths | {str(category): category for category in categories}


def _category(text: str, categories: Sequence[Any]) -> Any:
    """The category that a number stands for: 1.0 is 1."""
    number = _number(text)
    return next((one for one in categories if not isinstance(one, str | bool) and one == number), text)


def _number(text: str) -> float | str:
    """The number that is written, or the text if that is none; Python would read 1_000 as one."""
    try:
        return text if "_" in text else float(text)
    except ValueError:
        return text

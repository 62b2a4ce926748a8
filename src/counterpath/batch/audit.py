"""An audit of what a batch job wrote, read in pieces: however many rows there are, it needs no more memory."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from counterpath.batch.folder import COUNTERFACTUALS, Manifest
from counterpath.batch.results import MEASURED, RESERVED
from counterpath.data.schema import Schema
from counterpath.explanation.audit import (
    MEASURES,
    PERMUTATIONS,
    RESAMPLES,
    Audit,
    Moments,
    audit,
    burdens_of,
    group_labels,
)
from counterpath.explanation.summary import MOST_VALUES, keys_of
from counterpath.explanation.tables import PLAN, feature_columns
from counterpath.utils.errors import InputError

SAMPLE = 200_000
"""Rows up to which all are kept. Of more, so many are drawn for what cannot be added up: medians, pairs and trees."""
_PIECE = 50_000  # rows that are read at once: some ten megabytes


def audit_folder(
    schema: Schema,
    folder: Path,
    by: Sequence[str],
    *,
    find: Sequence[str] = (),
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    sample: int = SAMPLE,
) -> Audit:
    """Compare groups over the results of a batch job.

    Means, differences and their tests are over all rows; pairs, effort and found groups over a sample of them, if there
    are more than that holds. Of several plans the first counts.

    Args:
        schema: That of the model.
        folder: What `counterpath batch` wrote.
        by: Columns to group by: features that did not change, or columns that were copied by `--id`.
        find: Features in which a tree looks for groups.
        permutations: As in `audit`.
        resamples: The same.
        seed: Of all randomness.
        sample: How many rows to keep.

    Raises:
        InputError: The folder holds no results, or a column is not there, or may have changed.
    """
    manifest, files = Manifest.read(folder), sorted((folder / COUNTERFACTUALS).glob("*.parquet"))
    if manifest is None or not files:
        raise InputError(f"{folder} holds no results of a batch job; expected what counterpath batch wrote")
    request = dict(manifest.job.request)
    features = _unchanged(schema, request)
    columns = feature_columns(schema.names, RESERVED)
    present = pq.read_schema(files[0]).names
    for name in (*by, *find):
        if name in schema.names and name not in features:
            raise InputError(
                f"feature {name!r} may have changed, and the results have only what it became: copy it under another "
                f"name with --id when the job is run, or group by one of: {', '.join(features)}"
            )
        if name not in schema.names and name not in present:
            raise InputError(f"the results have no column {name!r}; copy it with --id when the job is run")
    read = {columns[name]: name for name in features} | {name: name for name in by if name not in schema.names}
    total = sum(_first_plans(file) for file in files)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(total, sample, replace=False)) if total > sample else np.arange(total)
    kept = list(_sampled(files, read, chosen))
    rows = pd.concat([each[0] for each in kept], ignore_index=True)
    burden = pd.concat([each[1] for each in kept], ignore_index=True)
    options: dict[str, Any] = {"permutations": permutations, "resamples": resamples, "seed": seed}
    if total > sample:
        middle = float(burden["l1"].median())
        options["totals"] = _totals(files, read, by, schema, middle)
        options["settings"] = {
            "people": total,
            **({"searched": int(next(iter(options["totals"].values())).count["found"].sum())} if by else {}),
            "sample": f"{sample:,} of {total:,} rows for the table of groups, pairs, effort and found "
            "groups; all rows for differences",
        }
    return audit(rows, burden, list(by), schema, find=find, request=request, **options)


def _unchanged(schema: Schema, request: Mapping[str, Any]) -> list[str]:
    """The features that a request leaves as they are."""
    unlocked = set(request.get("unlock", ()))
    fixed = {*schema.immutable, *request.get("lock", ()), *(set(schema.not_actionable) - unlocked)}
    return [name for name in schema.names if name in fixed]


def _first_plans(file: Path) -> int:
    """How many people a file is about."""
    names = pq.read_schema(file).names
    if PLAN not in names:
        return int(pq.read_metadata(file).num_rows)
    return int((pq.read_table(file, columns=[PLAN])[PLAN].to_numpy() == 1).sum())


def _pieces(files: Sequence[Path], read: Mapping[str, str]) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Piece by piece the people, and their burden."""
    for file in files:
        source = pq.ParquetFile(file)
        names = source.schema_arrow.names
        plan = [PLAN] if PLAN in names else []
        wanted = [*read, "status", *(name for name in MEASURED if name in MEASURES), *plan]
        for piece in source.iter_batches(batch_size=_PIECE, columns=list(dict.fromkeys(wanted))):
            table = piece.to_pandas()
            table = table[table[PLAN] == 1] if plan else table
            people = table[list(read)].rename(columns=dict(read)).reset_index(drop=True)
            measures = table[[name for name in MEASURED if name in MEASURES]].reset_index(drop=True)
            yield people, burdens_of(table["status"].to_numpy(), measures, unknown=True)


def _sampled(
    files: Sequence[Path], read: Mapping[str, str], chosen: np.ndarray
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Of every piece the people at the chosen positions."""
    start = 0
    for people, burden in _pieces(files, read):
        low, high = np.searchsorted(chosen, [start, start + len(people)])
        some = chosen[low:high] - start
        yield people.iloc[some], burden.iloc[some]
        start += len(people)


def _totals(
    files: Sequence[Path], read: Mapping[str, str], by: Sequence[str], schema: Schema, middle: float
) -> dict[str, Moments]:
    """By grouping how many there are of each group, their means and variances, over all rows."""
    sums: dict[str, list[pd.DataFrame]] = {name: [] for name in by}
    titles = {feature.name: feature.title for feature in schema}
    for people, burden in _pieces(files, read):
        searched = burden["found"].notna().to_numpy()
        values = burden[searched].assign(within=(burden["l1"][searched] <= middle).astype(float))
        for name in by:
            if people[name].nunique() > MOST_VALUES and pd.api.types.is_numeric_dtype(people[name]):
                raise InputError(f"column {name!r} is a number with many values; group it before the job is run")
            label = group_labels(keys_of(people, name), schema)[searched].to_numpy()
            known = values.notna().groupby(label).sum()
            plain, squares = values.fillna(0).groupby(label).sum(), values.fillna(0).pow(2).groupby(label).sum()
            sums[name].append(pd.concat({"count": known, "sum": plain, "square": squares}, axis=1))
        for name, parts in sums.items():  # added up as they come
            sums[name] = [pd.concat(parts).groupby(level=0).sum()]
    found = {}
    for name, (whole,) in sums.items():
        found[titles.get(name, name)] = Moments.of(
            *(pd.DataFrame(whole[part]).astype(float) for part in ("sum", "square", "count"))
        )
    return found

"""Explanations in files: JSON that comes back as it was, and one flat table for other programs."""

import json
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa

from counterpath.errors import InputError
from counterpath.explanation.columns import FILE, OUTCOME, TOLD, beside
from counterpath.explanation.frames import frame_from_json, frame_to_json
from counterpath.explanation.plans import PLAN
from counterpath.files import atomic

FORMAT = "counterpath-explanation"
VERSION = 2
"""2: the status says what is binding, and an index may have several levels. A reader of 1 alone refuses it."""


def dumps(frames: Mapping[str, pd.DataFrame], rest: Mapping[str, Any]) -> str:
    """The text of a file that holds tables and other values."""
    tables = {name: frame_to_json(frame) for name, frame in frames.items()}
    value = {"format": FORMAT, "version": VERSION, **rest, "frames": tables}
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def loads(source: str | Path) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """The tables and the other values of a text that `dumps` made, or of the file that holds it."""
    text, name = _read(source)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{name} is not JSON: {error}; expected what Explanation.to_json writes") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f"{name} is JSON, but no explanation; expected what Explanation.to_json writes")
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise InputError(f"{name} has version {version!r}; expected a whole number from 1 to {VERSION}")
    if version > VERSION:
        raise InputError(
            f"{name} has version {version}, and this Counterpath reads up to {VERSION}: a newer one wrote it; "
            "upgrade to read it"
        )
    if not isinstance(value.get("frames"), dict):
        raise InputError(f"{name} is a damaged explanation: it has no tables; write it again")
    frames = {key: frame_from_json(table) for key, table in value["frames"].items()}
    return _upgraded(frames, version), value


def flat(
    counterfactuals: pd.DataFrame, status: pd.DataFrame, outcome: pd.DataFrame, features: tuple[str, ...], plans: int
) -> pd.DataFrame:
    """One table: the counterfactuals, then the columns `FILE`; see `columns.beside` for features of the same name.

    The number of the plan is part of the index, and a column of most files: no feature has its name either.
    """
    reserved = FILE if plans == 1 else (PLAN, *FILE)
    told = pd.concat([status[list(TOLD)], outcome[list(OUTCOME)]], axis=1)
    return pd.concat([counterfactuals.rename(columns=beside(features, reserved)), told], axis=1)


def write_csv(table: pd.DataFrame, path: Path) -> Path:
    """Write a table as `stream_csv` does to a file."""
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        stream_csv(table, file)
    return path


def stream_csv(table: pd.DataFrame, stream: TextIO) -> None:
    """Write a table with its index, which is called `row` if it has no name of its own."""
    table.to_csv(stream, index_label=index_labels(table), lineterminator="\n")


def index_labels(table: pd.DataFrame) -> list[str]:
    """The levels of the index as columns of a file: by name, or `row`, `row_2` … if it has none, or one that is taken.

    Of levels with equal names the last one keeps it: that is the number of the plan.
    """
    names = list(table.index.names)
    taken = {*map(str, table.columns), *map(str, names)}
    spare = (label for label in chain(["row"], (f"row_{place}" for place in count(2))) if label not in taken)
    free = (
        name is not None and name not in table.columns and name not in names[p + 1 :] for p, name in enumerate(names)
    )
    return [str(name) if is_free else next(spare) for name, is_free in zip(names, free, strict=True)]


def write_parquet(table: pd.DataFrame, path: Path) -> Path:
    """Write a table with its index."""
    try:
        with atomic(path) as temporary:
            table.to_parquet(temporary)
    except pa.ArrowException as error:
        message = f"the explanation has no form in Parquet: {error}; try to_csv or to_json"
        raise InputError(message) from error
    return path


def _upgraded(frames: dict[str, pd.DataFrame], version: int) -> dict[str, pd.DataFrame]:
    """The tables of an older file with the columns that have come since."""
    if version > 1 or "status" not in frames:
        return frames
    status = frames["status"]
    kind = status["reason"].dtype if "reason" in status else object
    return frames | {"status": status.assign(binding="").astype({"binding": kind})}


def _read(source: str | Path) -> tuple[str, str]:
    """The text, and what to call it in an error: a string that begins like JSON is the text itself, else a path."""
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        return source, "the text"
    try:
        return Path(source).read_text(encoding="utf-8"), str(source)
    except OSError as error:
        shown = repr(str(source)[:60])
        reason = error.strerror or error
        raise InputError(f"{shown} is neither JSON text nor a file that can be read: {reason}") from error
    except ValueError as error:  # not UTF-8, or a text that no path can be
        raise InputError(f"{str(source)[:60]!r} is neither JSON text nor a text file: {error}") from error

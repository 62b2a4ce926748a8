"""Runs a suite cell by cell. Every cell is a line of a file once it is done: a run that is cut off goes on from there.

A cell is one method on one data set, model and seed. What fails is a cell, too, with its reason.
"""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from counterpath.experiments.leaderboard.arena import Arena, summarize
from counterpath.experiments.leaderboard.suites import PRESETS, SUITES, Preset, methods_of
from counterpath.search.methods import METHODS
from counterpath.utils.errors import InputError, choose

FILE = "cells.jsonl"
LOCKS = ".locks"
"""The folder of what processes hold, so that no two do the same; a lock ends with its process."""
REPRODUCED = "reproduced"
"""The method of a cell that holds a published row, and ours of it."""


@dataclass(frozen=True)
class Key:
    """Which cell it is."""

    suite: str
    preset: str
    data: str
    model: str
    seed: int
    method: str


def plan(
    suite: str,
    preset: str,
    *,
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Key]:
    """All cells of a run, those that share a model one after another, and first those of the first seed.

    Raises:
        InputError: Something of it is unknown.
    """
    chosen, size = choose("suite", suite, SUITES), choose("preset", preset, PRESETS)
    for name in methods or ():
        choose("method", name, METHODS)
    runs = (0,) if chosen.deterministic else size.seeds
    return [
        Key(suite, preset, table, model, seed, method)
        for seed in seeds or runs
        for table in data or size.data[suite]
        for model in models or chosen.models or size.models
        for method in (REPRODUCED, *(methods or METHODS))
    ]


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """The cells that are done; of a line that was cut off nothing.

    Of two lines of one cell the later one counts.
    """
    found: dict[Key, dict[str, Any]] = {}
    path = folder / FILE
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            cell = json.loads(line)
            found[_key(cell)] = cell
        except (json.JSONDecodeError, KeyError):
            continue
    return list(found.values())


def run(
    keys: Sequence[Key], folder: Path, preset: Preset, *, seconds: float | None = None, retry: bool = False
) -> Iterator[dict[str, Any]]:
    """Do the cells that are not done, and give back each when it is written.

    Any number of processes may work on one folder: each data set, model and seed is done by one of them.

    Args:
        keys: The cells, as of `plan`.
        folder: Where the file of cells is, or will be.
        preset: How large they are.
        seconds: Begin no further cell after so many seconds; None for all.
        retry: Do those again that failed.

    Raises:
        InputError: The folder cannot be written.
    """
    try:
        (folder / LOCKS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from error
    begun = read_cells(folder)
    failed = {_key(cell) for cell in begun if retry and cell["status"] == "failed"}
    _, left_out = methods_of(preset)
    started = time.monotonic()
    for where, group in itertools.groupby(keys, lambda key: replace(key, method="")):
        if not (failed.intersection(some := list(group)) or set(some) - {_key(cell) for cell in read_cells(folder)}):
            continue
        name = "-".join(str(value) for value in where.__dict__.values() if value != "")
        with contextlib.suppress(Timeout), FileLock(folder / LOCKS / name, timeout=0):
            again = failed.intersection(_key(cell) for cell in read_cells(folder) if cell["status"] == "failed")
            done, arena = {_key(cell) for cell in read_cells(folder)} - again, None
            for key in some:
                if key in done:
                    continue
                if seconds is not None and time.monotonic() - started > seconds:
                    return
                if key.method not in left_out and arena is None:
                    arena = _make(key, preset)
                cell = {**key.__dict__, **_cell(key, arena, left_out)}
                _write(folder, cell)
                yield cell


def _key(cell: dict[str, Any]) -> Key:
    return Key(**{name: cell[name] for name in Key.__dataclass_fields__})


def _write(folder: Path, cell: dict[str, Any]) -> None:
    """Add a line, whole and alone: after one that was cut off a new one begins."""
    with FileLock(folder / LOCKS / FILE), (folder / FILE).open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
        broken = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if broken else b"") + json.dumps(cell).encode() + b"\n")


def _make(key: Key, preset: Preset) -> Arena | Exception:
    try:
        return SUITES[key.suite].make(key.data, key.model, key.seed, preset)
    except Exception as error:  # whatever it is, it is why the cells of this arena are empty
        return error


def _cell(key: Key, arena: Arena | Exception | None, left_out: dict[str, str]) -> dict[str, Any]:
    """What a cell holds beside its key."""
    if key.method in left_out:
        return {"status": "left out", "reason": left_out[key.method]}
    if not isinstance(arena, Arena):
        return {"status": "failed", "reason": f"{type(arena).__name__}: {arena}"}
    try:
        if key.method == REPRODUCED:
            return _reproduced(arena)
        return {"status": "done", **arena.run(key.method)}
    except Exception as error:  # of a method that fails here, which is a result
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def _reproduced(arena: Arena) -> dict[str, Any]:
    """Their rows, and ours of one of them beside what it may be off by."""
    published = [{"method": each.method, "values": dict(each.values), "note": each.note} for each in arena.published]
    beside = {"published": published, "note": arena.note, "people": len(arena.rows)}
    if arena.reproduce is None:
        return {"status": "left out", "reason": arena.why_not, **beside}
    started = time.monotonic()
    made = arena.reproduce()
    values = summarize(arena.answers(made.answers).measure(arena.convention))
    ours = {"valid": values["valid"], **values["means"]}
    off: dict[str, dict[str, Any]] = {
        name: {"published": made.published.values[name], "ours": ours.get(name), "tolerance": tolerance}
        for name, tolerance in made.tolerances.items()
    }
    within = all(_is_within(**each) for each in off.values())
    return {
        "status": "done",
        "row": made.published.method,
        "how": made.how,
        "within": within,
        "measures": off,
        "seconds": time.monotonic() - started,
        **beside,
    }


def _is_within(published: float, ours: float | None, tolerance: float) -> bool:
    return ours is not None and abs(ours - published) <= tolerance + 1e-9  # but for rounding

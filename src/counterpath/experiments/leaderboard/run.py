"""Runs a suite cell by cell. Every cell is a line of a file once it is done: a run that is cut off goes on from there.

A cell is one method on one data set, model and seed. What fails is a cell, too, with its reason.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpath.experiments.leaderboard.arena import Arena, summarize
from counterpath.experiments.leaderboard.suites import PRESETS, SUITES, Preset, methods_of
from counterpath.search.methods import METHODS
from counterpath.utils.errors import InputError, choose

FILE = "cells.jsonl"
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
    """All cells of a run, those that share a model one after another.

    Raises:
        InputError: Something of it is unknown.
    """
    chosen, size = choose("suite", suite, SUITES), choose("preset", preset, PRESETS)
    for name in methods or ():
        choose("method", name, METHODS)
    runs = (0,) if chosen.deterministic else size.seeds
    return [
        Key(suite, preset, table, model, seed, method)
        for table in data or size.data[suite]
        for model in models or chosen.models or size.models
        for seed in seeds or runs
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
            found[Key(**{name: cell[name] for name in Key.__dataclass_fields__})] = cell
        except (json.JSONDecodeError, KeyError):
            continue
    return list(found.values())


def run(
    keys: Sequence[Key], folder: Path, preset: Preset, *, seconds: float | None = None, retry: bool = False
) -> Iterator[dict[str, Any]]:
    """Do the cells that are not done, and give back each when it is written.

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
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from error
    done = {
        Key(**{name: cell[name] for name in Key.__dataclass_fields__})
        for cell in read_cells(folder)
        if not (retry and cell["status"] == "failed")
    }
    arena: Arena | Exception | None = None
    where: tuple[str, str, str, int] | None = None
    _, left_out = methods_of(preset)
    started = time.monotonic()
    for key in keys:
        if key in done:
            continue
        if seconds is not None and time.monotonic() - started > seconds:
            return
        here = (key.suite, key.data, key.model, key.seed)
        if key.method not in left_out and where != here:
            where, arena = here, _make(key, preset)
        cell = {**key.__dict__, **_cell(key, arena, left_out)}
        with (folder / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell) + "\n")
        yield cell


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

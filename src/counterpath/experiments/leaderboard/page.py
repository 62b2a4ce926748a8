"""The page of a leaderboard: one file, sortable tables and figures, made from the cells of runs; nothing is fetched."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from counterpath.experiments.leaderboard.acceptance import (
    COLUMNS,
    DEFAULT,
    RIVALS,
    Verdict,
    mean_and_spread,
    row,
    verdict,
)
from counterpath.experiments.leaderboard.run import REPRODUCED
from counterpath.experiments.leaderboard.suites import PRESETS, SUITES
from counterpath.explanation.plots.style import COLORS, figure
from counterpath.search.methods import LITERATURE, METHODS
from counterpath.utils.files import write_text

PAGE = "index.html"
SUMMARY = "summary.md"
PAIRS = (("l1", "lof"), ("ld_sq", "l0"), ("valid", "seconds"))
"""What the figures show against each other, where both are measured."""
FIRST = ("valid", "l0", *RIVALS, "violation", "seconds", "cpu_seconds")
"""The columns that need no scrolling, where there are any of them."""
_SPREAD = ("valid", "l0", *RIVALS)
"""Of which the spread over seeds is shown."""


@dataclass(frozen=True)
class Block:
    """One data set and model of a suite: its rows by method, averaged over seeds.

    Attributes:
        suite: Whose rules.
        data: The data set.
        model: The explained model.
        preset: How large the runs were; never two of them together.
        seeds: The seeds.
        done: By method its means over seeds.
        spread: By method the standard deviations over seeds, where there are several.
        missing: By method why it has none.
        published: What others have published.
        notes: What is worth knowing.
        verdicts: Whether the default keeps what is promised, seed by seed.
    """

    suite: str
    data: str
    model: str
    preset: str
    seeds: tuple[int, ...]
    done: Mapping[str, Mapping[str, float]]
    spread: Mapping[str, Mapping[str, float]]
    missing: Mapping[str, str]
    published: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.suite} · {self.data} · {self.model}"

    @property
    def columns(self) -> list[str]:
        """The measures that any of its methods has; first those that are compared first, so that they are seen."""
        found = dict.fromkeys(name for values in self.done.values() for name in values)
        names = [*(name for name in FIRST if name in found), *(name for name in found if name not in FIRST)]
        return list(names or dict.fromkeys(name for each in self.published for name in each["values"]))


def blocks_of(cells: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The cells by suite, data set and model, in the order of the suites; of one preset each.

    The full one counts as soon as it has the default, else the quick one.
    """
    groups: dict[tuple[str, str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for cell in cells:
        sizes = groups.setdefault((cell["suite"], cell["data"], cell["model"]), {})
        sizes.setdefault(cell["preset"], []).append(cell)
    places = {(suite, data): at for suite in SUITES for at, data in enumerate(PRESETS["full"].data[suite])}
    order = sorted(groups, key=lambda key: (list(SUITES).index(key[0]), places.get(key[:2], len(places))))
    return [_block(*where, *_largest(groups[where])) for where in order]


def _largest(sizes: Mapping[str, list[Mapping[str, Any]]]) -> tuple[str, list[Mapping[str, Any]]]:
    with_default = {name for name, cells in sizes.items() if any(cell["method"] == DEFAULT for cell in cells)}
    name = max(sizes, key=lambda name: (name in with_default, list(PRESETS).index(name)))
    return name, sizes[name]


def _block(suite: str, data: str, model: str, preset: str, cells: list[Mapping[str, Any]]) -> Block:
    done: dict[str, dict[str, float]] = {}
    spread: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    notes: list[str] = []
    published: list[Any] = []
    seeds = tuple(sorted({cell["seed"] for cell in cells}))
    for method in METHODS:
        own = [cell for cell in cells if cell["method"] == method]
        good = [cell for cell in own if cell["status"] == "done"]
        values = [_values(cell) for cell in good]
        if good:
            names = dict.fromkeys(name for each in values for name in each)
            both = {name: mean_and_spread([each[name] for each in values if name in each]) for name in names}
            done[method] = {name: mean for name, (mean, _) in both.items()}
            spread[method] = {name: off for name, (_, off) in both.items()} if len(good) > 1 else {}
        elif own:
            missing[method] = f"{own[0]['status']}: {own[0]['reason']}"
    for cell in cells:
        if cell["method"] != REPRODUCED:
            continue
        published = published or list(cell.get("published", ()))
        people = cell.get("people")
        notes += [f"{people} people. {cell.get('note', '')}"] if people else []
        notes += [_reproduction(cell)] if suite != "ours" else []
    notes += _incomplete(cells, seeds)
    said = [verdict([cell for cell in cells if cell["seed"] == seed]) for seed in seeds] if suite == "ours" else []
    return Block(
        suite, data, model, preset, seeds, done, spread, missing, published, tuple(dict.fromkeys(notes)),
        tuple(each for each in said if each is not None),
    )  # fmt: skip


def _incomplete(cells: Sequence[Mapping[str, Any]], seeds: tuple[int, ...]) -> list[str]:
    """Which methods were cut off by the clock, and which do not have all seeds."""
    late, some = {}, {}
    for method in METHODS:
        own = [cell for cell in cells if cell["method"] == method and cell["status"] == "done"]
        share = max((cell.get("out_of_time", 0.0) for cell in own), default=0.0)
        if share:
            late[method] = f"{method} ({share:.0%} of the people)"
        if own and len(own) < len(seeds):
            some[method] = f"{method} ({', '.join(str(cell['seed']) for cell in own)})"
    limit = next((cell["time_limit"] for cell in cells if "time_limit" in cell), 0)
    lines = [f"Cut off after {limit:g} s, with no answer for the rest: {', '.join(late.values())}."] if late else []
    return lines + (
        [f"Of these not all seeds are there, and means are over: {', '.join(some.values())}."] if some else []
    )


def _values(cell: Mapping[str, Any]) -> dict[str, float]:
    means = {name: value for name, value in cell["means"].items() if value is not None}
    busy = {"cpu_seconds": cell["cpu_seconds"]} if "cpu_seconds" in cell else {}
    return {"valid": cell["valid"], **means, "seconds": cell["seconds"], **busy}


def _reproduction(cell: Mapping[str, Any]) -> str:
    """A sentence on the published row that was reproduced, or why none was."""
    if cell["status"] != "done":
        return f"No published row is reproduced: {cell['reason']}."
    shown = ", ".join(
        f"{name} {_text(each['ours'])} (published {_text(each['published'])} ± {_text(each['tolerance'])})"
        for name, each in cell["measures"].items()
    )
    verdict = "within the tolerance" if cell["within"] else "NOT within the tolerance"
    return f"Published row {cell['row']} by our implementation, {verdict}: {shown}. {cell['how']}."


def acceptance(blocks: Sequence[Block]) -> tuple[str, list[list[str]]]:
    """Whether the default method keeps what is promised of it in our own suite: a sentence, and the rows of a table."""
    some = [block for block in blocks if block.verdicts]
    every = [each for block in some for each in block.verdicts]
    kept = sum(each.kept for each in every)
    small = "" if all(block.preset == "full" for block in some) else " Rows marked (quick) are of the small preset."
    text = (
        f"In {kept} of {len(every)} cells (data set, model and seed) the default, {DEFAULT}, breaks nothing, is valid "
        "for at least 99 % of the people for whom any method has a feasible, plausible answer, and nobody of whom that "
        "is true as well is better in L1, LD² and LOF at once. violations: the worst seed; valid: of those people, the "
        f"worst seed; L1, LD², LOF: mean ± standard deviation over seeds.{small}"
    )
    titles = [f"{block.data} · {block.model}" + ("" if block.preset == "full" else " (quick)") for block in some]
    return text, [row(title, block.verdicts) for title, block in zip(titles, some, strict=True)]


def write_page(cells: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write the page and a summary in Markdown into a folder, and return the page's path."""
    blocks = blocks_of(cells)
    environment = Environment(
        loader=PackageLoader("counterpath.experiments.leaderboard"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    shown = [
        {
            "id": "-".join((block.suite, block.data, block.model)),
            "title": block.title,
            "about": f"{SUITES[block.suite].title}; {_size(block)}.",
            "notes": block.notes,
            "columns": block.columns,
            "rows": _rows(block),
            "figure": Markup(_figure(block)),  # our own drawing, whose texts Matplotlib escapes
        }
        for block in blocks
    ]
    text, rows = acceptance(blocks)
    rendered = environment.get_template("page.html.j2").render(
        blocks=shown, promise=text, columns=COLUMNS, accepted=rows, default=DEFAULT
    )
    write_text(folder / PAGE, rendered)
    head = f"## What is promised of the default\n\n{text}\n\n{_table(COLUMNS, rows)}\n" if rows else ""
    write_text(folder / SUMMARY, "\n".join([head, *(_markdown(block) for block in blocks)]).lstrip())
    return folder / PAGE


def _size(block: Block) -> str:
    seeds = ", ".join(map(str, block.seeds))
    return f"preset {block.preset}, {'seeds' if len(block.seeds) > 1 else 'seed'} {seeds}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]) + "\n"


def _rows(block: Block) -> list[dict[str, Any]]:
    rows = [_row(method, values, block, _kind(method)) for method, values in block.done.items()]
    rows += [_row(f"{each['method']} (published)", each["values"], block, "published") for each in block.published]
    return rows + [
        {"method": method, "kind": "", "reason": reason, "cells": []} for method, reason in block.missing.items()
    ]


def _kind(method: str) -> str:
    return "default" if method == DEFAULT else "literature" if method in LITERATURE else ""


def _row(method: str, values: Mapping[str, float], block: Block, kind: str) -> dict[str, Any]:
    off = block.spread.get(method, {})
    spread = {name: f" ± {off[name]:.1g}" for name in _SPREAD if off.get(name)}
    cells = [
        {"number": values.get(name, ""), "text": _text(values.get(name)) + spread.get(name, "")}
        for name in block.columns
    ]
    return {"method": method, "kind": kind, "reason": "", "cells": cells}


def _text(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _figure(block: Block) -> str:
    """What is measured against each other, the methods that no other beats in both joined by a line; SVG."""
    pairs = [pair for pair in PAIRS if sum(all(n in v for n in pair) for v in block.done.values()) > 2]
    if not pairs:
        return ""
    with figure(None, 4.2 * len(pairs), 3.6) as fig:
        for axes, (x, y) in zip(fig.subplots(1, len(pairs), squeeze=False)[0], pairs, strict=True):
            points = {method: (v[x], v[y]) for method, v in block.done.items() if x in v and y in v}
            for method, (one, other) in points.items():
                size = 60 if method == DEFAULT else 26
                axes.scatter([one], [other], s=size, color=COLORS.get(method, "#777777"), zorder=3)
            best = _undominated(points, up=x == "valid")
            axes.plot(*zip(*best, strict=True), color="#b0b7c0", lw=1, zorder=1)
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            if min(other for _, other in points.values()) > 0 and _spread(points) > 30:
                axes.set_yscale("log")
            _write_names(axes, dict(sorted(points.items(), key=lambda each: (each[0] != DEFAULT, each[1] not in best))))
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _write_names(axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """The names of points, those first that matter most; one that would lie on another is left to the table."""
    axes.figure.draw_without_rendering()  # so that the axes are where they will be
    written: list[Any] = []
    for method, point in points.items():
        name = axes.annotate(method, point, xytext=(5, 3), textcoords="offset points", fontsize=7)
        place = name.get_window_extent()
        if any(place.overlaps(other) for other in written):
            name.remove()
        else:
            written.append(place)


def _spread(points: Mapping[str, tuple[float, float]]) -> float:
    values = [other for _, other in points.values()]
    return max(values) / min(values)


def _undominated(points: Mapping[str, tuple[float, float]], *, up: bool) -> list[tuple[float, float]]:
    """The points that no other is better than in both: less is better, but for x where `up`."""
    sign = -1.0 if up else 1.0
    return sorted(
        {
            point
            for point in points.values()
            if not any(
                sign * other[0] <= sign * point[0] and other[1] <= point[1] and other != point
                for other in points.values()
            )
        }
    )


def _markdown(block: Block) -> str:
    head = f"## {block.title}\n\n{_size(block).capitalize()}.\n\n"
    head += "".join(f"- {line}\n" for line in block.notes)
    width = len(block.columns)
    rows = [
        [
            f"`{each['method']}`",
            *([each["reason"]] + [""] * (width - 1) if each["reason"] else [cell["text"] for cell in each["cells"]]),
        ]
        for each in _rows(block)
    ]
    return head + "\n" + _table(["method", *block.columns], rows)

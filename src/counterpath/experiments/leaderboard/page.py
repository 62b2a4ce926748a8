"""The page of a leaderboard: one file, sortable tables and figures, made from the cells of runs; nothing is fetched."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from counterpath.experiments.leaderboard.run import REPRODUCED
from counterpath.experiments.leaderboard.suites import SUITES
from counterpath.explanation.plots.style import COLORS, figure
from counterpath.search.methods import LITERATURE, METHODS
from counterpath.utils.files import write_text

DEFAULT = "geodesic"
"""The method that users get."""
PAGE = "index.html"
SUMMARY = "summary.md"
PAIRS = (("l1", "lof"), ("ld_sq", "l0"), ("valid", "seconds"))
"""What the figures show against each other, where both are measured."""
RIVALS = ("l1", "ld_sq", "lof")
"""No other method without violations should be better in all of them."""
FIRST = ("valid", "l0", *RIVALS, "violation", "seconds")
"""The columns that need no scrolling, where there are any of them."""
_ENOUGH = 0.99  # of the rows that any method solves, that the default must solve


@dataclass(frozen=True)
class Block:
    """One data set and model of a suite: its rows by method, averaged over seeds.

    Attributes:
        suite: Whose rules.
        data: The data set.
        model: The explained model.
        seeds: The seeds.
        done: By method its means.
        missing: By method why it has none.
        published: What others have published.
        notes: What is worth knowing.
    """

    suite: str
    data: str
    model: str
    seeds: tuple[int, ...]
    done: Mapping[str, Mapping[str, float]]
    missing: Mapping[str, str]
    published: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...]

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
    """The cells by suite, data set and model; the largest preset of each."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["suite"], cell["data"], cell["model"]), []).append(cell)
    return [_block(*where, group) for where, group in groups.items()]


def _block(suite: str, data: str, model: str, cells: list[Mapping[str, Any]]) -> Block:
    full = [cell for cell in cells if cell["preset"] == "full"]
    cells = full or cells
    done: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    notes: list[str] = []
    published: list[Any] = []
    for method in METHODS:
        own = [cell for cell in cells if cell["method"] == method]
        good = [_values(cell) for cell in own if cell["status"] == "done"]
        if good:
            names = dict.fromkeys(name for values in good for name in values)
            done[method] = {name: _mean([values[name] for values in good if name in values]) for name in names}
        elif own:
            missing[method] = f"{own[0]['status']}: {own[0]['reason']}"
    for cell in cells:
        if cell["method"] != REPRODUCED:
            continue
        published = published or list(cell.get("published", ()))
        people = cell.get("people")
        notes += [f"{people} people. {cell.get('note', '')}"] if people else []
        notes += [_reproduction(cell)]
    seeds = tuple(sorted({cell["seed"] for cell in cells}))
    return Block(suite, data, model, seeds, done, missing, published, tuple(dict.fromkeys(notes)))


def _values(cell: Mapping[str, Any]) -> dict[str, float]:
    means = {name: value for name, value in cell["means"].items() if value is not None}
    return {"valid": cell["valid"], **means, "seconds": cell["seconds"]}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


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


def verdicts(block: Block) -> list[str]:
    """Whether the default method keeps what is promised of it in our own suite, in sentences."""
    own = block.done.get(DEFAULT)
    if block.suite != "ours" or own is None:
        return []
    broken = own.get("type_violations", 0) + own.get("violation", 0)
    most = max(values["valid"] for values in block.done.values() if values.get("violation", 0) == 0)
    text = f"The default, {DEFAULT}: {broken:.3g} violations a row, valid for {own['valid']:.3f}"
    text += f" of the rows (any method without violations: {most:.3f})"
    lines = [text + ("." if broken == 0 and own["valid"] >= _ENOUGH * most else "; that is not as promised.")]
    rivals: dict[tuple[str, ...], list[str]] = {}
    for method, values in block.done.items():
        if method == DEFAULT or values.get("violation", 0) > 0 or values["valid"] < _ENOUGH * most:
            continue
        better = [name for name in RIVALS if name in values and name in own and values[name] < own[name]]
        if len(better) >= 2:
            rivals.setdefault(tuple(better), []).append(method)
    for measured, names in rivals.items():
        every = "all of " if len(measured) == len(RIVALS) else ""
        lines.append(f"Marked: better than it in {every}{', '.join(measured)}, and as often valid: {', '.join(names)}.")
    return lines


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
            "about": f"{SUITES[block.suite].title}; seeds {', '.join(map(str, block.seeds))}.",
            "verdicts": [*block.notes, *verdicts(block)],
            "columns": block.columns,
            "rows": _rows(block),
            "figure": Markup(_figure(block)),  # our own drawing, whose texts Matplotlib escapes
        }
        for block in blocks
    ]
    write_text(folder / PAGE, environment.get_template("page.html.j2").render(blocks=shown))
    write_text(folder / SUMMARY, "\n".join(_markdown(block) for block in blocks))
    return folder / PAGE


def _rows(block: Block) -> list[dict[str, Any]]:
    rows = [_row(method, values, block, _kind(method)) for method, values in block.done.items()]
    rows += [_row(f"{each['method']} (published)", each["values"], block, "published") for each in block.published]
    return rows + [
        {"method": method, "kind": "", "reason": reason, "cells": []} for method, reason in block.missing.items()
    ]


def _kind(method: str) -> str:
    return "default" if method == DEFAULT else "literature" if method in LITERATURE else ""


def _row(method: str, values: Mapping[str, float], block: Block, kind: str) -> dict[str, Any]:
    cells = [{"number": values.get(name, ""), "text": _text(values.get(name))} for name in block.columns]
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
                axes.annotate(method, (one, other), xytext=(4, 3), textcoords="offset points", fontsize=7)
            best = _undominated(points, up=x == "valid")
            axes.plot(*zip(*best, strict=True), color="#b0b7c0", lw=1, zorder=1)
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            if min(other for _, other in points.values()) > 0 and _spread(points) > 30:
                axes.set_yscale("log")
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


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
    head = f"## {block.title}\n\nSeeds {', '.join(map(str, block.seeds))}.\n\n"
    head += "".join(f"- {line}\n" for line in (*block.notes, *verdicts(block)))
    lines = [f"| method | {' | '.join(block.columns)} |", "|---" * (len(block.columns) + 1) + "|"]
    for row in _rows(block):
        if row["reason"]:
            lines.append(f"| `{row['method']}` | {row['reason']} |" + " |" * (len(block.columns) - 1))
        else:
            lines.append(f"| `{row['method']}` | " + " | ".join(cell["text"] for cell in row["cells"]) + " |")
    return head + "\n" + "\n".join(lines) + "\n"

"""The page of a leaderboard: one file, sortable tables and figures, made from the cells of runs; nothing is fetched."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from counterpath.experiments.leaderboard.acceptance import (
    COLUMNS,
    DEFAULT,
    ENOUGH,
    RIVALS,
    Verdict,
    mean_and_spread,
    row,
    sentences,
    spread_text,
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
LABELS = {
    "l0": "L0", "l1": "L1", "l2": "L2", "l2_sq": "L2²", "l2_squared": "L2²", "linf": "L∞", "ld": "LD", "ld_sq": "LD²",
    "lof": "LOF", "knn_5": "kNN₅", "ynn": "yNN", "cpu_seconds": "CPU seconds",
}  # fmt: skip
"""What measures are called on the page; others by their names."""
_NOT_RUN = "not run"
_WIDE = 30  # times the least: from there on points near it would lie on each other without a logarithm


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
    models = list(PRESETS["full"].models)

    def place(key: tuple[str, str, str]) -> tuple[int, ...]:
        suite, data, model = key
        named = list(SUITES[suite].models or models)
        return (
            list(SUITES).index(suite),
            places.get((suite, data), len(places)),
            named.index(model) if model in named else len(named),
        )

    order = sorted(groups, key=place)
    return [_block(*where, *_largest(groups[where])) for where in order]


def _largest(sizes: Mapping[str, list[Mapping[str, Any]]]) -> tuple[str, list[Mapping[str, Any]]]:
    with_default = {name for name, cells in sizes.items() if any(cell["method"] == DEFAULT for cell in cells)}
    name = max(sizes, key=lambda name: (name in with_default, list(PRESETS).index(name)))
    return name, sizes[name]


def _block(suite: str, data: str, model: str, preset: str, cells: list[Mapping[str, Any]]) -> Block:
    done: dict[str, dict[str, float]] = {}
    spread: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    people = sorted({cell["n"] for cell in cells if "n" in cell})
    notes = [f"{' or '.join(map(str, people))} people a seed."] if people else []
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
        else:
            missing[method] = _NOT_RUN + (": needs a flow" if METHODS[method].needs else "")
    for cell in cells:
        if cell["method"] != REPRODUCED:
            continue
        published = published or list(cell.get("published", ()))
        note = str(cell.get("note", ""))
        notes += [f"{note[:1].upper()}{note[1:]}."] if note else []
        notes += [_reproduction(cell)] if suite != "ours" else []
    notes += _incomplete(cells, seeds)
    said = [verdict([cell for cell in cells if cell["seed"] == seed]) for seed in seeds] if suite == "ours" else []
    verdicts = [each for each in said if each is not None]
    notes += sentences(verdicts) if verdicts else []
    return Block(
        suite, data, model, preset, seeds, done, spread, missing, published, tuple(dict.fromkeys(notes)),
        tuple(verdicts),
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
            "group": f"{block.suite} · {block.data}",
            "model": block.model,
            "about": f"{SUITES[block.suite].title}; {_size(block)}.",
            "notes": block.notes,
            "columns": [label(name) for name in block.columns],
            "rows": _rows(block),
            "figures": [Markup(each) for each in _figures(block)],  # our own drawings, whose texts Matplotlib escapes
        }
        for block in blocks
    ]
    groups: dict[str, list[Any]] = {}
    for each in shown:
        groups.setdefault(str(each["group"]), []).append(each)
    text, rows = acceptance(blocks)
    rendered = environment.get_template("page.html.j2").render(
        blocks=shown, groups=groups, promise=text, columns=COLUMNS, accepted=rows, default=DEFAULT
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
    spread = {name: text for name in _SPREAD if (text := spread_text(values.get(name, 0.0), off.get(name, 0.0)))}
    cells = [
        {"number": _number(values.get(name)), "text": _text(values.get(name)) + spread.get(name, "")}
        for name in block.columns
    ]
    return {"method": method, "kind": kind, "reason": "", "cells": cells}


def label(name: str) -> str:
    """What a measure is called on the page."""
    return LABELS.get(name, name.replace("_", " "))


def _number(value: float | None) -> str:
    """What a column is sorted by; more digits than that say nothing."""
    return "" if value is None else f"{value:.6g}"


def _text(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _figures(block: Block) -> list[str]:
    """What is measured against each other, the methods that no other beats in both joined by a line; SVG."""
    pairs = [pair for pair in PAIRS if sum(all(n in v for n in pair) for v in block.done.values()) > 2]
    return [_figure(block, x, y) for x, y in pairs]


def _figure(block: Block, x: str, y: str) -> str:
    """One of them; hollow is who is seldomer valid than the default, as means over fewer people are no rival's."""
    points = {method: (v[x], v[y]) for method, v in block.done.items() if x in v and y in v}
    enough = ENOUGH * block.done.get(DEFAULT, {}).get("valid", 0.0)
    rivals = {name: point for name, point in points.items() if block.done[name].get("valid", 0.0) >= enough}
    with figure(None, 4.6, 3.6) as fig:
        axes = fig.subplots()
        for method, (one, other) in points.items():
            size, color = 60 if method == DEFAULT else 26, COLORS.get(method, "#777777")
            axes.scatter([one], [other], s=size, edgecolors=color, c=color if method in rivals else "none", zorder=3)
        best = _undominated(points if x == "valid" else rivals, up=x == "valid")
        axes.plot(*zip(*best, strict=True), color="#b0b7c0", lw=1, zorder=1)
        axes.set_xlabel(label(x))
        axes.set_ylabel(label(y))
        for at, scale in enumerate((axes.set_xscale, axes.set_yscale)):
            if (x, y)[at] != "valid" and min(each[at] for each in points.values()) > 0 and _spread(points, at) > _WIDE:
                scale("log")
        if axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=5)  # so that their numbers do not touch
        axes.margins(x=0.15)  # room for the names
        _write_names(axes, dict(sorted(points.items(), key=lambda each: (each[0] != DEFAULT, each[1] not in best))))
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    title = f"{label(y)} against {label(x)}, {block.title}"
    return _small(text[text.index("<svg") :]).replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def _small(svg: str) -> str:
    """The same drawing in fewer letters: the page says the font, and names of groups, which repeat, say nothing."""
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<g id=\"[^\"]*\">", "<g>", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r" transform=\"rotate\(-0 [^\"]*\)\"", "", svg)
    svg = re.sub(r' (d|x|y)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg)
    return re.sub(r">\s+<", "><", svg)


def _write_names(axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """The names of points, those first that matter most; one that would lie on another is left to the table."""
    axes.figure.draw_without_rendering()  # so that the axes are where they will be
    written: list[Any] = []
    for method, point in points.items():
        for right, up in ((True, 3), (False, 3), (True, -9), (False, -9)):
            name = axes.annotate(
                method, point, xytext=(5 if right else -5, up), textcoords="offset points", fontsize=7,
                ha="left" if right else "right",
            )  # fmt: skip
            place = name.get_window_extent()
            if not any(place.overlaps(other) for other in written):
                written.append(place)
                break
            name.remove()


def _spread(points: Mapping[str, tuple[float, float]], at: int) -> float:
    values = [each[at] for each in points.values()]
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
    return head + "\n" + _table(["method", *map(label, block.columns)], rows)

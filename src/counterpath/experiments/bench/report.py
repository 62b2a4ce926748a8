"""What was measured, as tables for people."""

from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Table = list[dict[str, str]]

VARIANTS = {
    "ours": "ours",
    "paper": "(a) paper's: stochman, autograd, inv",
    "eager": "(b) eager torch.func",
    "floor": "(c) floor: d+1 decoder passes",
}
"""What the variants are called."""
TITLES = {
    "step": "One step",
    "growth": "One RSGD step as sizes grow, in ms",
    "search": "A search of all rows to confidence 0.5; (a) through all steps",
    "runs": "The runs of the paper's table",
    "sweep": "RSGD through all steps for many rows, from host to host",
    "memory": "Peak memory beyond models and rows",
    "tf32": "What TF32 changes: all rows of Adult to confidence 0.5",
    "peers": "The same rows of Adult by others, on the same classifier",
    "fit": "Training the models of the paper's experiments",
}


def tables(results: Mapping[str, Any]) -> dict[str, Table]:
    """The parts that were measured, by their titles."""
    return {title: _table(part, results[part]) for part, title in TITLES.items() if results.get(part)}


def caption(results: Mapping[str, Any]) -> str:
    """The machine, the settings, how to read the tables, and what is missing."""
    machine, settings, sizes = results["machine"], results["settings"], results["settings"]["sizes"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    lines = [
        f"Measured on {where}; {machine['threads']} threads, torch {machine['torch']}, "
        f"counterpath {settings['version']}; products in {'TF32' if settings['tf32'] else 'float32'}, of which the "
        f"device makes {machine['matmul_flop_per_second'] / 1e12:.3g} TFLOP/s.",
        f"Models: {settings['models']}, {sizes['features']} features, latent {sizes['latent']}, "
        f"hidden {_widths(sizes['hidden'])}, {sizes['centers']} centres, classifier {sizes['width']}; "
        f"{sizes['rows']:,} rows take a step together; damping {settings['damping']:g}; seed {settings['seed']}.",
        f"Medians over {settings['rounds']} rounds ({settings['growth_rounds']} where sizes grow) in which all "
        "variants take turns; the first call, with whatever it compiles, on its own. A search is run once, first call "
        f"included; its models are {settings['search_models']}.",
        *(f"not measured: {reason}" for reason in results["not_measured"]),
    ]
    return "\n".join(lines)


def markdown(results: Mapping[str, Any]) -> str:
    """All tables as a Markdown page."""
    pieces = []
    for title, table in tables(results).items():
        head = list(table[0])
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *(list(row.values()) for row in table)]
        pieces.append(f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*pieces, caption(results).replace("\n", "\n\n")]) + "\n"


def _table(part: str, rows: list[dict[str, Any]]) -> Table:
    if part == "growth":
        return _growth(rows)
    return [{heading: show(row) for heading, show in _COLUMNS[part].items()} for row in rows]


def _growth(rows: list[dict[str, Any]]) -> Table:
    """One row a size, one column a variant."""
    points: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        value = row[row["grows"]]
        size = _widths(value) if isinstance(value, list | tuple) else f"{value:,}"
        points.setdefault((row["grows"], size), {})[row["variant"]] = row["seconds"]
    return [
        {
            "grows": grows,
            "to": size,
            **{variant: _milliseconds(seconds) for variant, seconds in times.items()},
            "× floor": f"{times['ours'] / times['floor']:.2f}",
            "paper / ours": f"{times['paper'] / times['ours']:.2f}" if "paper" in times else "–",
        }
        for (grows, size), times in points.items()
    ]


def _widths(hidden: list[int] | tuple[int, ...]) -> str:
    return "-".join(str(width) for width in hidden)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _cell(key: str, pattern: str = "", scale: float | None = None) -> Callable[[Row], str]:
    """Shows one figure of a row by a format pattern; a dash where there is none."""

    def show(row: Row) -> str:
        value = row[key]
        return "–" if value is None else format(value if scale is None else scale * value, pattern)

    return show


def _variant(row: Row) -> str:
    return VARIANTS[row["variant"]]


def _of(group: str, key: str) -> Callable[[Row], str]:
    """Shows one figure of a group of figures."""
    return lambda row: _cell(key, ".3g")(row[group])


_DISTANCES = ("l1", "ld", "ld_sq")
_COUNT = ",.0f"
_COLUMNS: dict[str, dict[str, Callable[[Row], str]]] = {
    "step": {
        "method": _cell("method"),
        "variant": _variant,
        "ms": lambda row: _milliseconds(row["seconds"]),
        "middle half": lambda row: "–".join(_milliseconds(value) for value in row["quartiles"]),
        "first": lambda row: _milliseconds(row["first_seconds"]),
        "µs/row": _cell("seconds_per_row", ".3g", 1e6),
        "rows/s": _cell("rows_per_second", _COUNT),
        "TFLOP/s": _cell("flop_per_second", ".3g", 1e-12),
        "× floor": _cell("times_floor", ".2f"),
        "(a) / this": lambda row: "–" if row["variant"] == "floor" else _cell("paper_over_this", ".2f")(row),
    },
    "search": {
        "method": _cell("method"),
        "variant": _variant,
        "rows": _cell("rows", _COUNT),
        "steps a row": _cell("mean_steps", ".1f"),
        "reached": _cell("reached", ".3f"),
        "seconds": _cell("seconds", ".3g"),
        "ms/row": _cell("seconds_per_row", ".3g", 1e3),
        "rows/s": _cell("rows_per_second", _COUNT),
        "(a) / this": _cell("paper_over_this", ".2f"),
    },
    "runs": {
        "run": _cell("run"),
        "rows": _cell("rows", _COUNT),
        "steps": _cell("steps"),
        "seconds": _cell("seconds", ".3g"),
        "first": _cell("first_seconds", ".3g"),
    },
    "sweep": {
        "rows": _cell("rows", _COUNT),
        "steps": _cell("steps"),
        "seconds": _cell("seconds", ".3g"),
        "rows/s": _cell("rows_per_second", _COUNT),
        "µs/row and step": lambda row: f"{1e6 * row['seconds'] / row['rows'] / row['steps']:.3g}",
    },
    "memory": {
        "what": _cell("what"),
        "variant": _variant,
        "rows": _cell("rows", _COUNT),
        "MiB": _cell("peak_bytes", ",.1f", 2**-20),
        "bytes/row": _cell("bytes_per_row", _COUNT),
        "measured": _cell("measured"),
    },
    "tf32": {
        "method": _cell("method"),
        "products": _cell("products"),
        "rows": _cell("rows", _COUNT),
        "valid": _cell("validity", ".4f"),
        **{name: _cell(name, ".4f") for name in _DISTANCES},
        "steps a row": _cell("mean_steps", ".2f"),
        "same steps": _cell("same_steps", ".3f"),
        "median apart": _cell("median_apart", ".2g"),
    },
    "peers": {
        "method": _cell("method"),
        "rows": _cell("rows"),
        "valid": _cell("valid"),
        "seconds": _cell("seconds", ".3g"),
        "ms/valid": _cell("seconds_per_valid", ".3g", 1e3),
        "× rsgd": _cell("ratio", ".2f"),
        **{name: _of("distances", name) for name in _DISTANCES},
        "common": _cell("common"),
        **{f"{name} common": _of("common_distances", name) for name in _DISTANCES},
    },
    "fit": {
        "data": _cell("data"),
        "rows": _cell("rows", _COUNT),
        "seconds": lambda row: row["missing"] or f"{row['seconds']:.3g}",
    },
}
"""The columns of each table, by their headings; the growth table is another."""

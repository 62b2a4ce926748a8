"""What was measured, as tables for people."""

from collections.abc import Callable, Mapping
from typing import Any

Table = list[dict[str, str]]

WAYS = {
    "ours": "ours",
    "paper": "(a) paper's way: stochman, autograd, inv",
    "eager": "(b) eager torch.func",
    "floor": "(c) floor: d+1 decoder passes",
}
"""What the ways are called."""
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
    return {TITLES[part]: show(results[part]) for part, show in _SHOWN.items() if results.get(part)}


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
        f"Medians over {settings['rounds']} rounds ({settings['growth_rounds']} where sizes grow) in which all ways "
        "take turns; the first call, with whatever it compiles, on its own. A search is run once, first call included; "
        f"its models are {settings['search_models']}.",
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


def _steps(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "method": row["method"],
            "way": WAYS[row["way"]],
            "ms": _milliseconds(row["seconds"]),
            "middle half": "–".join(_milliseconds(value) for value in row["quartiles"]),
            "first": _milliseconds(row["first_seconds"]),
            "µs/row": f"{1e6 * row['seconds_per_row']:.3g}",
            "rows/s": f"{row['rows_per_second']:,.0f}",
            "TFLOP/s": f"{row['flop_per_second'] / 1e12:.3g}",
            "× floor": f"{row['times_floor']:.2f}",
            "(a) / this": _times(None if row["way"] == "floor" else row["paper_over_this"]),
        }
        for row in rows
    ]


def _growth(rows: list[dict[str, Any]]) -> Table:
    """One row a size, one column a way."""
    points: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        value = row[row["grows"]]
        size = _widths(value) if isinstance(value, list | tuple) else f"{value:,}"
        points.setdefault((row["grows"], size), {})[row["way"]] = row["seconds"]
    return [
        {
            "grows": grows,
            "to": size,
            **{way: _milliseconds(seconds) for way, seconds in times.items()},
            "× floor": f"{times['ours'] / times['floor']:.2f}",
            "paper / ours": _times(times["paper"] / times["ours"] if "paper" in times else None),
        }
        for (grows, size), times in points.items()
    ]


def _searches(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "method": row["method"],
            "way": WAYS[row["way"]],
            "rows": f"{row['rows']:,}",
            "steps a row": f"{row['mean_steps']:.1f}",
            "reached": "–" if row["reached"] is None else f"{row['reached']:.3f}",
            "seconds": f"{row['seconds']:.3g}",
            "ms/row": f"{1e3 * row['seconds_per_row']:.3g}",
            "rows/s": f"{row['rows_per_second']:,.0f}",
            "(a) / this": _times(row["paper_over_this"]),
        }
        for row in rows
    ]


def _memory(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "what": row["what"],
            "way": WAYS[row["way"]],
            "rows": f"{row['rows']:,}",
            "MiB": f"{row['peak_bytes'] / 2**20:,.1f}",
            "bytes/row": f"{row['bytes_per_row']:,.0f}",
            "measured": row["measured"],
        }
        for row in rows
    ]


def _runs(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "run": row["run"],
            "rows": f"{row['rows']:,}",
            "steps": str(row["steps"]),
            "seconds": f"{row['seconds']:.3g}",
            "first": f"{row['first_seconds']:.3g}",
        }
        for row in rows
    ]


def _sweeps(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "rows": f"{row['rows']:,}",
            "steps": str(row["steps"]),
            "seconds": f"{row['seconds']:.3g}",
            "rows/s": f"{row['rows_per_second']:,.0f}",
            "µs/row and step": f"{1e6 * row['seconds'] / row['rows'] / row['steps']:.3g}",
        }
        for row in rows
    ]


def _roundings(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "method": row["method"],
            "products": row["products"],
            "rows": f"{row['rows']:,}",
            "valid": f"{row['validity']:.4f}",
            **{name: f"{row[name]:.4f}" for name in ("l1", "ld", "ld_sq")},
            "steps a row": f"{row['mean_steps']:.2f}",
            "same steps": f"{row['same_steps']:.3f}",
            "median apart": f"{row['median_apart']:.2g}",
        }
        for row in rows
    ]


def _peers(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "method": row["method"],
            "rows": str(row["rows"]),
            "valid": str(row["valid"]),
            "seconds": f"{row['seconds']:.3g}",
            "ms/valid": "–" if row["seconds_per_valid"] is None else f"{1e3 * row['seconds_per_valid']:.3g}",
            "× rsgd": _times(row["ratio"]),
            **{name: _number(row["distances"][name]) for name in ("l1", "ld", "ld_sq")},
            "common": "–" if row["common"] is None else str(row["common"]),
            **{f"{name} common": _number(row["common_distances"][name]) for name in ("l1", "ld", "ld_sq")},
        }
        for row in rows
    ]


def _fits(rows: list[dict[str, Any]]) -> Table:
    return [
        {
            "data": row["data"],
            "rows": "–" if row["rows"] is None else f"{row['rows']:,}",
            "seconds": row["missing"] if row["seconds"] is None else f"{row['seconds']:.3g}",
        }
        for row in rows
    ]


_SHOWN: dict[str, Callable[[list[dict[str, Any]]], Table]] = {
    "step": _steps,
    "growth": _growth,
    "search": _searches,
    "runs": _runs,
    "sweep": _sweeps,
    "memory": _memory,
    "tf32": _roundings,
    "peers": _peers,
    "fit": _fits,
}


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _widths(hidden: list[int] | tuple[int, ...]) -> str:
    return "-".join(str(width) for width in hidden)

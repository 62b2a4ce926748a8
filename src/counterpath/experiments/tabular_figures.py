"""The figures of the tabular experiment: LD by step, everything by confidence, the bandwidth's trade-off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from counterpath.experiments.study import OPTIMIZERS, STEPS
from counterpath.experiments.tables import GLOBAL, RIEMANNIAN
from counterpath.explanation.plots.style import COLORS, figure

STYLES = {"no": "-", "yes": "--"}
PANELS = {
    "ctr": "share that reaches it",
    "ld_sq": "LD²",
    "path_ld_max_sq": "max LD² on the path",
    "l2_sq": "L2²",
    "steps": "steps needed",
}
"""What is drawn against the confidence, with the titles."""


def draw_all(results: Mapping[str, Any], folder: Path) -> None:
    """Draw every figure of an experiment."""
    _by_step(results, folder / "ld-by-step")
    _by_confidence(results, folder / "by-confidence")
    _curve(results, folder / "bandwidth")


def _by_step(results: Mapping[str, Any], path: Path) -> None:
    with figure(path, 8.4, 3.4) as fig:
        panels = zip(fig.subplots(1, 2, sharey=True), ("no", "yes"), ("Without", "With"), strict=True)
        for axes, constraint, title in panels:
            for name in OPTIMIZERS:
                rows = [r for r in results["by_step"] if (r["optimizer"], r["constraint"]) == (name, constraint)]
                steps, ld = [row["steps"] for row in rows], [row["ld_sq"] for row in rows]
                axes.plot(steps, [cell["mean"] for cell in ld], color=COLORS[name], label=name)
                low, high = ([cell["mean"] + side * cell["std"] for cell in ld] for side in (-1, 1))
                axes.fill_between(steps, low, high, color=COLORS[name], alpha=0.2, lw=0)
            _finish(axes, title=f"{title} fidelity term", xlabel="gradient steps")
        fig.axes[0].set_ylabel("squared distance to the closest training row")
        fig.axes[0].legend()


def _by_confidence(results: Mapping[str, Any], path: Path) -> None:
    with figure(path, 13.2, 3.3) as fig:
        for axes, (key, title) in zip(fig.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for constraint in ("no", "yes"):
                for name in (*OPTIMIZERS, *(GLOBAL if constraint == "no" else ())):
                    _confidence_line(axes, results, name, constraint, key)
            _finish(axes, title=title, xlabel="confidence", ylim=(0, 1.03 if key == "ctr" else None))
        fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=8)


def _confidence_line(axes: Axes, results: Mapping[str, Any], name: str, constraint: str, key: str) -> None:
    line = (name, constraint, "reached")
    rows = [r for r in results["by_confidence"] if (r["optimizer"], r["constraint"], r["subset"]) == line]
    values = [row[key] if key == "ctr" else row[key]["mean"] for row in rows]
    points = [(row["threshold"], value) for row, value in zip(rows, values, strict=True) if value is not None]
    if points:  # a path over a graph has no steps
        label = f"{name}{', fidelity' if constraint == 'yes' else ''}"
        axes.plot(*zip(*points, strict=True), color=COLORS[name], ls=STYLES[constraint], label=label)


def _curve(results: Mapping[str, Any], path: Path) -> None:
    with figure(path, 5.4, 3.9) as fig:
        axes = fig.subplots()
        for name in RIEMANNIAN:
            points = [(row[f"flip_ratio {name}"], row[f"ld_sq {name}"]) for row in results["curve"]]
            axes.plot(*zip(*points, strict=True), "o-", color=COLORS[name], label=f"{name}, over λ")
            for row, point in zip(results["curve"], points, strict=True):
                axes.annotate(f"{row['bandwidth']:g}", point, textcoords="offset points", xytext=(4, 4), fontsize=7)
        for row in results["table"]:
            name, key = row["optimizer"], (row["steps"], row["constraint"], row["subset"])
            if key == (STEPS[-1], "no", "valid") and name in OPTIMIZERS:
                star = (row["flip_ratio"], row["ld_sq"]["mean"])
                axes.scatter(*star, marker="*", s=130, color=COLORS[name], zorder=5)
                axes.annotate(name, star, textcoords="offset points", xytext=(6, -10), fontsize=8)
        title = "Bandwidth λ (stars: the table's rows)"
        _finish(axes, title=title, xlabel="flip ratio after 150 steps", ylabel="LD² after 150 steps")
        axes.legend()


def _finish(axes: Axes, *, ylim: tuple[float, float | None] = (0, None), **texts: str) -> None:
    axes.set(ylim=ylim, **texts)
    axes.grid(alpha=0.3)

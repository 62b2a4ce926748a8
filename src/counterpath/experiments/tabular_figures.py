"""The figures of the tabular experiment: LD by step, everything by confidence, the bandwidth's trade-off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from counterpath.experiments.confidence import OPTIMIZERS, ROADS
from counterpath.explanation.plots.style import COLORS, figure

STYLES = {"no": "-", "yes": "--"}
WORDS = {"no": "without fidelity term", "yes": "with fidelity term"}


def draw_all(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure of an experiment and return where they are."""
    return [
        _by_step(results, folder / "ld-by-step"),
        _by_confidence(results, folder / "by-confidence"),
        _curve(results, folder / "bandwidth"),
    ]


def _by_step(results: Mapping[str, Any], path: Path) -> Path:
    with figure(path, 8.4, 3.4) as fig:
        for axes, constraint in zip(fig.subplots(1, 2, sharey=True), ("no", "yes"), strict=True):
            for name in OPTIMIZERS:
                rows = [r for r in results["by_step"] if (r["optimizer"], r["constraint"]) == (name, constraint)]
                steps = [row["steps"] for row in rows]
                mean = [row["ld_sq"]["mean"] for row in rows]
                spread = [row["ld_sq"]["std"] for row in rows]
                axes.plot(steps, mean, color=COLORS[name], label=name)
                low = [m - s for m, s in zip(mean, spread, strict=True)]
                high = [m + s for m, s in zip(mean, spread, strict=True)]
                axes.fill_between(steps, low, high, color=COLORS[name], alpha=0.2, lw=0)
            axes.set(title=WORDS[constraint].capitalize(), xlabel="gradient steps", ylim=(0, None))
            axes.grid(alpha=0.3)
        fig.axes[0].set_ylabel("squared distance to the closest training row")
        fig.axes[0].legend()
    return path


def _by_confidence(results: Mapping[str, Any], path: Path) -> Path:
    panels = (
        ("ctr", "share that reaches it"),
        ("ld_sq", "LD²"),
        ("path_ld_max_sq", "max LD² on the path"),
        ("l2_sq", "L2²"),
        ("steps", "steps needed"),
    )
    with figure(path, 13.2, 3.3) as fig:
        for axes, (key, title) in zip(fig.subplots(1, 5), panels, strict=True):
            for constraint in ("no", "yes"):
                for name in (*OPTIMIZERS, *(ROADS if constraint == "no" else ())):
                    _confidence_line(axes, results, name, constraint, key)
            axes.set(title=title, xlabel="confidence", ylim=(0, 1.03 if key == "ctr" else None))
            axes.grid(alpha=0.3)
        fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=8)
    return path


def _confidence_line(axes: Axes, results: Mapping[str, Any], name: str, constraint: str, key: str) -> None:
    wanted = (name, constraint, "reached")
    rows = [r for r in results["by_confidence"] if (r["optimizer"], r["constraint"], r["subset"]) == wanted]
    values = [row[key] if key == "ctr" else row[key]["mean"] for row in rows]
    points = [(row["threshold"], value) for row, value in zip(rows, values, strict=True) if value is not None]
    if not points:  # a way over a graph has no steps
        return
    label = f"{name}{', fidelity' if constraint == 'yes' else ''}"
    axes.plot(*zip(*points, strict=True), color=COLORS[name], ls=STYLES[constraint], label=label)


def _curve(results: Mapping[str, Any], path: Path) -> Path:
    with figure(path, 5.4, 3.9) as fig:
        axes = fig.subplots()
        for name in ("rsgd", "rsgd-c"):
            flip = [row[f"flip_ratio {name}"] for row in results["curve"]]
            far = [row[f"ld_sq {name}"] for row in results["curve"]]
            axes.plot(flip, far, "o-", color=COLORS[name], label=f"{name}, over λ")
            for row, x, y in zip(results["curve"], flip, far, strict=True):
                axes.annotate(f"{row['bandwidth']:g}", (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
        for row in results["table"]:
            if (row["steps"], row["constraint"], row["subset"]) == (150, "no", "valid") and row[
                "optimizer"
            ] in OPTIMIZERS:
                point = (row["flip_ratio"], row["ld_sq"]["mean"])
                axes.scatter(*point, marker="*", s=130, color=COLORS[row["optimizer"]], zorder=5)
                axes.annotate(row["optimizer"], point, textcoords="offset points", xytext=(6, -10), fontsize=8)
        axes.set(xlabel="flip ratio after 150 steps", ylabel="LD² after 150 steps", ylim=(0, None))
        axes.set_title("Bandwidth λ (stars: the table's rows)")
        axes.grid(alpha=0.3)
        axes.legend()
    return path

"""The pictures of Adult in the documentation, by the model of the demo.

    python -m benchmarks.pictures docs/images       methods-adult.png and gallery.png

`python -m benchmarks.explorer --pictures docs/images` takes those of the explorer. `counterpath reproduce surface
--preset paper --seeds 0 --out DIR` draws figures/teaser.png, and figures/side-by-side.png (methods-surface).
"""

import argparse
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from counterpath.cli.demo import DATA, PLANS, fitted
from counterpath.data import datasets
from counterpath.data.datasets import Dataset
from counterpath.explainer.compare import Comparison
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import wording
from counterpath.explanation.plots.style import COLORS, INK, PALETTE, SOFT, figure

METHODS = ("wachter", "sgd", "rsgd", "rsgd-c", "geodesic")
LOCKED = ("capital-gain", "capital-loss")  # of the gallery: what nobody decides upon
FACTS = ("age", "education", "workclass", "occupation", "hours-per-week")
_CONFIDENCE = 0.6  # of the methods: where they differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--methods", type=int, default=43133, help="The person whom several methods explain.")
    parser.add_argument("--gallery", type=int, default=44882, help="The person whose plans are shown.")
    arguments = parser.parse_args()
    data = datasets.load(DATA)
    explainer = fitted(data, "cpu")
    draw_methods(explainer, data, data.test.loc[[arguments.methods]], arguments.folder / "methods-adult.png")
    draw_gallery(explainer, data, data.test.loc[[arguments.gallery]], arguments.folder / "gallery.png")


def draw_methods(explainer: Explainer, data: Dataset, person: pd.DataFrame, path: Path) -> None:
    """One person by several methods."""
    results = {
        method: explainer.explain(
            person, data.desired_class, confidence=_CONFIDENCE, method=method, directions=data.directions, lock=LOCKED
        )
        for method in METHODS
    }
    Comparison(results, dict.fromkeys(METHODS, 0.0)).plot(person.index[0], with_map=False).savefig(path, dpi=160)


def draw_gallery(explainer: Explainer, data: Dataset, person: pd.DataFrame, path: Path) -> None:
    """One person's plans side by side, each as steps to take one after another."""
    result = explainer.explain(person, data.desired_class, plans=PLANS, directions=data.directions, lock=LOCKED)
    row, target = person.index[0], data.schema.class_label(data.desired_class)
    plans = [result.milestones(row, plan=number + 1) for number in range(PLANS)]
    rows = max(len(steps) for steps in plans)
    facts = (wording.amount(data.schema[name], person.loc[row, name]) for name in FACTS)
    denied = data.schema.class_label(explainer.predict(person).iloc[0])
    before = wording.percent(1 - plans[0]["probability"].iloc[0])
    with figure(path.with_suffix(""), 11.6, 0.7 + 0.62 * rows) as fig:
        fig.suptitle(f"Who: {', '.join(facts)}. The model predicts {denied} ({before}).", fontsize=10, color=INK)
        for number, (axes, steps) in enumerate(zip(fig.subplots(1, PLANS), plans, strict=True), start=1):
            _draw_steps(axes, steps, rows, f"Plan {number}", f"today; the probability of {target} is")
    path.with_suffix(".svg").unlink()


def _draw_steps(axes: Axes, steps: pd.DataFrame, rows: int, title: str, today: str) -> None:
    """One plan: what to do in each step, and below it a bar of the probability once it is done."""
    axes.set_title(title, loc="left", fontweight="bold", color=INK)
    for place, (probability, changes) in enumerate(zip(steps["probability"], steps["changes"], strict=True)):
        color = COLORS["rsgd-c"] if place == len(steps) - 1 else PALETTE[0]
        lines = [line for change in changes.split("; ") for line in wrap(change, 58)] if place else [today]
        look: Any = {"va": "center", "fontsize": 8.5, "annotation_clip": False}
        axes.barh(place, 1, height=0.2, color="#e8ecf1")
        axes.barh(place, probability, height=0.2, color=color)
        axes.plot([0.5, 0.5], [place - 0.1, place + 0.15], color=INK, lw=1.2)
        axes.annotate(str(place or ""), (-0.05, place), ha="center", fontweight="bold", **look)
        axes.annotate(wording.percent(probability), (1.02, place), **look)
        axes.annotate(
            "\n".join(lines), (0, place - 0.15), va="bottom", fontsize=8, color=INK if place else SOFT
        ).set_in_layout(False)
    axes.set(xlim=(-0.1, 1.14), ylim=(rows - 0.8, -0.45))
    axes.set_axis_off()


if __name__ == "__main__":
    main()

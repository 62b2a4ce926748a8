"""The figures of the digits: images along paths, and what the judges say against the width of the latent space."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from counterpath.explanation.plots.style import COLORS, figure

SIDE = 8  # pixels, either way
_SHOWN = 8
"""Images of a path, at equal distances: a line of them is as wide as a page."""
_PANELS = {"flip_ratio": "flip ratio", "judged": "forest agrees", "ld": "LD", "milliseconds_per_row": "ms a row"}


def draw_digits(results: Mapping[str, Any], paths: Mapping[str, Tensor], folder: Path) -> None:
    """Draw all figures."""
    _draw_paths(paths, folder / "paths")
    _draw_widths(results, folder / "latent-size")


def _draw_paths(paths: Mapping[str, Tensor], path: Path) -> None:
    """One line a method, from the image that is explained to the answer."""
    with figure(path, 9.0, 1.15 * len(paths)) as drawing:
        panels = drawing.subplots(len(paths), _SHOWN, squeeze=False)
        for line, (method, images) in zip(panels, paths.items(), strict=True):
            for place, panel in enumerate(line):
                image = images[round(place * (len(images) - 1) / (_SHOWN - 1))]
                panel.imshow(image.view(SIDE, SIDE).numpy(), cmap="gray_r", vmin=0, vmax=1)
                panel.set_xticks([])
                panel.set_yticks([])
            line[0].set_ylabel(method, rotation=0, ha="right", va="center")


def _draw_widths(results: Mapping[str, Any], path: Path) -> None:
    """Each measure against the width of the latent space, with test images for comparison."""
    table = pd.DataFrame(results["table"])
    table = table[table["uncertainty"] == table["uncertainty"].iloc[0]]
    with figure(path, 3.0 * len(_PANELS), 3.0) as drawing:
        panels = drawing.subplots(1, len(_PANELS), squeeze=False)
        for panel, (measure, title) in zip(panels.flat, _PANELS.items(), strict=True):
            for method, rows in table.groupby("method", sort=False):
                medians = rows.groupby("latent_dim")[measure].median()
                panel.plot(medians.index, medians, marker="o", label=method, color=COLORS.get(str(method)))
            if measure in results["test_rows"]:
                panel.axhline(results["test_rows"][measure], color="gray", linestyle=":", label="test images")
            panel.set_xlabel("latent size")
            panel.set_title(title)
        panels.flat[0].legend(fontsize=8)

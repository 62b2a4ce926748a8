"""Figures: one look for all of them. Matplotlib is loaded only when something is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpath.utils.files import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "wachter": "#56B4E9",
    "ambient": "#CC79A7",
    "sgd": "#D55E00",
    "rsgd": "#0072B2",
    "rsgd-c": "#009E73",
    "flow": "#E69F00",
    "geodesic": "#000000",
    "face": "#882255",
    "nearest": "#555555",
    "revise": "#AA4499",
    "cchvae": "#44AA99",
    "clue": "#DDCC77",
    "cruds": "#999933",
    "growing-spheres": "#88CCEE",
    "nice": "#117733",
    "dice": "#CC6677",
    "ppcef": "#332288",
    "mcce": "#661100",
}
"""One colour a method, which colour-blind readers can tell apart: the palettes of Okabe and Ito, and of Tol."""

CLASS_COLORS = ("#7a7a7a", "#E6C229")

PALETTE = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
"""The same palette in the order in which any number of classes or features takes it."""

INK = "#1b1f24"
SOFT = "#5b6470"
MOST_FEATURES = 15
"""How many features a figure shows: with more of them it is higher than a page or a screen."""

MOST_PATHS = 30
"""How many paths are drawn on a map: more cover each other."""

# Text of the size of a page's, no frame that says nothing, and drawings that are equal if what is drawn is.
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.hashsalt": "counterpath",
    "svg.fonttype": "none",
}


@contextmanager
def figure(path: str | Path | None, width: float, height: float) -> "Iterator[Figure]":
    """Draw on a figure of `width` × `height` inches, and save it as `path`.png and `path`.svg, if there is a `path`.

    Nothing is written if drawing fails. The figure is its own canvas: no window, no global state.
    """
    import matplotlib as mpl

    from counterpath.explanation.plots.shown import ShownFigure

    with mpl.rc_context(_STYLE):
        fig = ShownFigure(figsize=(width, height), layout="constrained")
        yield fig
        if path is None:
            return
        for suffix, metadata in ((".png", {}), (".svg", {"Date": None})):
            with atomic(Path(path).with_suffix(suffix)) as temporary:
                fig.savefig(temporary, metadata=metadata)


def plain(text: str) -> str:
    """A text from outside as it is: Matplotlib would set what stands between two dollar signs as mathematics."""
    return text.replace("$", r"\$")

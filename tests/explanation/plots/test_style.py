from pathlib import Path

import matplotlib as mpl
import pytest

from counterpath.explanation.plots.style import COLORS, PALETTE, figure
from counterpath.search.methods import LITERATURE, METHODS
from tests.explanation.markup import svg


def test_a_figure_is_saved_only_where_there_is_a_path(tmp_path: Path) -> None:
    with figure(None, 2.0, 1.0) as fig:
        fig.subplots().plot([0, 1])
    assert list(tmp_path.iterdir()) == []
    assert svg(fig).count("<svg") == 1
    with figure(tmp_path / "a", 2.0, 1.0) as fig:
        fig.subplots().plot([0, 1])
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "a.svg"}


def test_a_drawing_that_fails_leaves_no_file_and_no_style_behind(tmp_path: Path) -> None:
    size = mpl.rcParams["font.size"]

    def fail() -> None:
        with figure(tmp_path / "a", 2.0, 1.0):
            assert mpl.rcParams["font.size"] != size
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert mpl.rcParams["font.size"] == size


def test_text_in_a_drawing_is_text_that_can_be_searched() -> None:
    with figure(None, 2.0, 1.0) as fig:
        fig.text(0.5, 0.5, "education")
    assert ">education</text>" in svg(fig)


def test_every_colour_of_the_palette_is_there_once_and_agrees_with_the_methods() -> None:
    assert len(set(PALETTE)) == len(PALETTE)
    # the palette has too few colours for all
    beside = {COLORS[name] for name in ("nearest", "geodesic", "face", *LITERATURE)}
    assert set(COLORS.values()) - beside <= set(PALETTE)


def test_every_method_has_a_colour_of_its_own() -> None:
    assert set(METHODS) <= set(COLORS)
    assert len(set(COLORS.values())) == len(COLORS)

import html
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.plots import figures
from counterpath.explanation.plots.style import MOST_FEATURES, PALETTE
from tests.explanation.conftest import make, make_empty, make_landscape
from tests.explanation.markup import evil, svg


@pytest.mark.parametrize("name", ["plot_changes", "plot_path", "plot_map"])
def test_a_figure_is_returned_and_saved_as_png_and_svg(explanation: Explanation, name: str, tmp_path: Path) -> None:
    row = ["ann"] if name == "plot_path" else []
    first = getattr(explanation, name)(*row)
    assert list(tmp_path.iterdir()) == []
    getattr(explanation, name)(*row, path=str(tmp_path / "a"))
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "a.svg"}
    assert svg(first) == svg(getattr(explanation, name)(*row))


def test_changes_count_the_found_rows_only_and_show_the_direction(explanation: Explanation) -> None:
    often, amount = explanation.plot_changes().axes
    assert [label.get_text() for label in often.get_yticklabels()] == [
        "hours-per-week",
        "education-num",
        "marital-status",
        "owner",
    ]
    assert [text.get_text() for text in often.texts] == ["100 %", "50 %", "50 %", "50 %"]
    rise, fall, _ = (bar.get_width() for bar in often.patches[:3])
    assert (rise, fall) == (0.5, 0.5)
    shares = sorted(amount.collections[0].get_offsets()[:, 0])
    spread = 60.0 - 13.0
    assert shares == pytest.approx([-4 / spread, 6.2345678 / spread])
    assert [text.get_text() for text in amount.texts] == ["Non-Married → Married  (1 of 1)", "False → True  (1 of 1)"]


def test_a_path_shows_only_what_moves_with_its_first_and_last_value(explanation: Explanation) -> None:
    fig = explanation.plot_path("ann")
    labels = [axes.get_ylabel() for axes in fig.axes]
    assert labels == ["probability\nof 1", "uncertainty", "education-num", "hours-per-week", "marital-status"]
    assert [text.get_text() for text in fig.axes[3].texts] == ["46.2345678", "40"]
    assert [text.get_text() for text in fig.axes[4].texts] == ["Married", "Non-Married"]
    assert fig.axes[0].lines[1].get_ydata()[0] == 0.5


def test_the_milestones_of_a_path_are_numbered_where_there_are_several(explanation: Explanation) -> None:
    axes = explanation.plot_path("ann").axes[0]
    stops = explanation.milestones("ann").iloc[1:]
    assert axes.collections[0].get_offsets().tolist() == stops[["step", "probability"]].to_numpy().tolist()
    assert [text.get_text() for text in axes.texts if text.get_fontsize() == 6] == ["1", "2", "3"]
    assert not explanation.plot_path("dee").axes[0].collections


def test_a_path_without_uncertainty_has_no_panel_for_it(explanation: Explanation) -> None:
    made = make(paths=explanation.paths.assign(uncertainty=np.nan))
    assert "uncertainty" not in [axes.get_ylabel() for axes in made.plot_path("ann").axes]


def test_a_path_of_one_step_can_be_drawn(explanation: Explanation) -> None:
    assert len(explanation.plot_path("bob").axes) == 2


def test_a_map_has_a_colour_for_each_class_and_ends_where_the_path_ends(explanation: Explanation) -> None:
    fig = make(landscape=make_landscape(classes=9, volume=True)).plot_map(["ann"])
    axes = fig.axes[0]
    _, labels = axes.get_legend_handles_labels()
    assert labels == [*(f"predicted {label}" for label in range(9)), "now", "counterfactual"]
    codes = [item for item in axes.collections if item.get_label().startswith("predicted")]
    assert [to_hex(item.get_facecolor()[0]) for item in codes[:7]] == [color.lower() for color in PALETTE]
    looks = {(to_hex(item.get_facecolor()[0]), item.get_paths()[0].vertices.shape) for item in codes}
    assert len(looks) == 9
    last = explanation.path("ann")[["map_x", "map_y"]].iloc[-1].tolist()
    assert axes.collections[-1].get_offsets()[0].tolist() == last
    assert axes.get_title() == explanation.note


def test_the_map_of_a_space_with_one_dimension_has_no_volume_and_is_drawn() -> None:
    line = make_landscape(volume=True).assign(map_y=0.0)
    assert len(make(landscape=line).plot_map().axes) == 1


def test_a_map_says_how_many_paths_it_leaves_out(explanation: Explanation) -> None:
    many = explanation.select(["ann"] * 33)
    assert "30 paths, 3 more not drawn" in many.plot_map().get_suptitle()


def test_many_features_are_cut_and_counted() -> None:
    names = [f"f{number}" for number in range(20)]
    steps = pd.DataFrame(np.arange(40.0).reshape(2, 20), columns=names)
    known = pd.DataFrame({"step": [0, 1], "probability": [0.1, 0.9], "uncertainty": [np.nan] * 2})
    schema = Schema(tuple(Feature(name, "continuous") for name in names))
    fig = figures.draw_path(known, steps, dict.fromkeys(names, (0.0, 1.0)), schema, "many", ("1", 0.5))
    assert len(fig.axes) == 1 + MOST_FEATURES
    assert "5 more features move" in fig.axes[-1].get_xlabel()
    changed = pd.DataFrame(True, index=range(2), columns=names)
    fig = figures.draw_changes(steps, steps + 1, changed, dict.fromkeys(names, (0.0, 0.0)), schema)
    assert "5 more features" in fig.get_supxlabel()


def test_figures_of_plans_say_that_they_are_plans(plans: Explanation) -> None:
    often, _ = plans.plot_changes().axes
    assert often.get_title() == "How often it changes (5 plans)"
    assert plans.plot_path("ann", plan=2).get_suptitle().startswith("Row ann, plan 2 of 3: the model predicts 0")
    assert svg(plans.plot_path(("ann", 2))) == svg(plans.plot_path("ann", plan=2))
    assert plans.plan(2).plot_path("ann").get_suptitle().startswith("Row ann: the model predicts 0")
    assert "No plan was found" in plans.select("bob").plot_changes().texts[0].get_text()


def test_a_map_has_the_paths_of_all_plans_that_there_are(plans: Explanation) -> None:
    assert "(7 paths)" in plans.plot_map().get_suptitle()
    assert "(3 paths)" in plans.plot_map("ann").get_suptitle()
    assert "(2 paths)" in plans.plot_map([("ann", 2), "bob"]).get_suptitle()
    assert "(2 paths)" in plans.plot_map(["cem"]).get_suptitle()


def test_nothing_to_draw_is_said(empty: Explanation) -> None:
    assert "nothing to draw" in empty.plot_changes().texts[0].get_text()
    assert empty.plot_map().get_suptitle().startswith("Latent map (0 paths")
    bare = make_empty()
    fig = figures.draw_map(bare.landscape.iloc[:0], bare.paths, bare.schema, "")
    assert "no map" in fig.texts[0].get_text()
    none = make(status=make().status.assign(status=str(StatusCode.NOT_FOUND)))
    assert "nothing to draw" in none.plot_changes().texts[0].get_text()


@pytest.mark.parametrize("name", ["$x_1$ & <b>", "a $ b", r"\\$y^2\\$", "$\\frac{1}{2}$"])
def test_names_are_drawn_as_they_are_and_not_as_mathematics_or_tags(name: str) -> None:
    made = evil(name)
    shown = html.escape(name, quote=False)
    assert shown in svg(made.plot_changes())
    assert svg(made.plot_path(name)).count(shown) >= 3
    assert svg(made.plot_map()).count(shown) >= 2

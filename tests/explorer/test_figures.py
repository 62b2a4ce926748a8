"""The figures of the explorer: plain values, small, with names shown as text; some of them drawn in a real browser."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import BrowserContext, Page
from plotly.offline import get_plotlyjs

import counterpath as cp
from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation
from counterpath.explorer.figures import (
    FEW,
    Figure,
    Panel,
    changes_figure,
    cursor,
    description_of,
    label,
    measures_figure,
    path_figure,
    shares_figure,
    stacked,
    template_label,
    wilson,
)
from counterpath.explorer.figures_map import MOST_CODES, VolumeGrid, map_figure, volume_grid
from counterpath.utils.errors import InputError
from tests.explanation.conftest import make, make_empty, make_landscape, make_plans
from tests.tables import features

NASTY = "<img src=x onerror=alert(1)>"
BOLD = "<b>x</b> %{x} &lt;"


def renamed(result: Explanation) -> Explanation:
    """An explanation with names and categories that look like markup."""
    names = {"hours-per-week": NASTY, "education-num": BOLD}
    values = {"Married": NASTY, "Non-Married": BOLD}

    def relabel(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.astype({"marital-status": object}).rename(columns=names)
        return frame.assign(**{"marital-status": frame["marital-status"].replace(values)})

    changed = result.changed.rename(columns=names)
    schema = Schema(
        tuple(
            Feature(
                names.get(feature.name, feature.name),
                feature.kind,
                immutable=feature.immutable,
                categories=tuple(values.get(value, value) for value in feature.categories),
            )
            for feature in result.schema
        )
    )
    return make(
        target=BOLD,
        factuals=relabel(result.factuals),
        counterfactuals=relabel(result.counterfactuals),
        changed=changed,
        paths=relabel(result.paths),
        schema=schema,
        landscape=result.landscape.assign(predicted=np.where(result.landscape["predicted"] == 0, NASTY, BOLD)),
    )


def figures(result: Explanation) -> dict[str, Figure]:
    group = result.factuals["marital-status"]
    return {
        "path": path_figure(result, "ann"),
        "map": map_figure({"rsgd": result, NASTY: result}, "ann"),
        "changes": changes_figure(result),
        "shares": shares_figure(result, group),
        "measures": measures_figure(result.summary(by="marital-status")),
    }


def texts(value: Any) -> Iterator[str]:
    """All text in a figure that plotly could show."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in ("meta", "legendgroup"):  # of these two nothing is shown
                yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)


def test_text_is_shown_as_text() -> None:
    assert label("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"
    assert label("&lt;") == "&amp;lt;"
    assert label("a" * 40) == "a" * 27 + "…"
    assert label("<" * 40) == "&lt;" * 27 + "…", "cut before it is escaped, so that no entity is cut"
    assert label("two\nlines") == "two lines"
    assert template_label("%{x}") == "&#37;{x}"


def test_stacked_panels_fill_the_figure_under_their_headings() -> None:
    panels = [Panel("one", 30, ({},), y={}), Panel("two", 50, ({},), y={}, x={"nticks": 5})]
    margin = {"l": 9, "r": 0, "t": 3, "b": 7}
    drawn = stacked(panels, "two panels", heading=10, gap=20, margin=margin, annotations=[])
    layout = drawn["layout"]
    assert layout["height"] == 3 + 120 + 7
    assert layout["yaxis"]["domain"] == pytest.approx([80 / 120, 110 / 120])
    assert layout["yaxis2"]["domain"] == pytest.approx([0, 50 / 120])
    assert [text["y"] for text in layout["annotations"]] == pytest.approx([110 / 120, 50 / 120])
    assert [(trace["xaxis"], trace["yaxis"]) for trace in drawn["data"]] == [("x", "y"), ("x2", "y2")]


@pytest.mark.parametrize("name", ["path", "map", "changes", "shares", "measures"])
def test_figures_are_plain_small_and_without_foreign_markup(name: str) -> None:
    drawn = figures(renamed(make()))[name]
    assert len(json.dumps(drawn, allow_nan=False)) < 60_000
    assert drawn["data"]
    assert "width" not in drawn["layout"], "as wide as there is room"
    assert description_of(drawn)
    for text in texts(drawn):
        assert "<img" not in text
        assert "<b>x" not in text
    written = " ".join(texts(drawn))
    assert "&lt;img" in written or "&lt;b&gt;x" in written, "the names are there"


def test_font_sizes_can_be_read() -> None:
    def sizes(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            for name, part in value.items():
                if "font" in name and "size" in part:
                    yield part["size"]
                yield from sizes(part)
        elif isinstance(value, list):
            for part in value:
                yield from sizes(part)

    assert min(size for drawn in figures(make()).values() for size in sizes(drawn)) >= 11


def test_a_path_has_every_feature_that_moves_and_a_cursor() -> None:
    result = make()
    drawn = path_figure(result, "ann")
    names = [trace.get("name") for trace in drawn["data"] if trace.get("name")]
    assert names == ["probability", "uncertainty", "education-num", "hours-per-week", "marital-status"]
    assert drawn["layout"]["images"][0]["x"] == 5, "at the end"
    assert cursor(3) == {"images[0].x": 3}


def test_a_path_is_in_original_units() -> None:
    drawn = path_figure(make(), "ann")
    hours = next(trace for trace in drawn["data"] if trace.get("name") == "hours-per-week")
    assert hours["customdata"][0] == "40"
    assert hours["customdata"][-1] == "46.2345678"
    married = next(trace for trace in drawn["data"] if trace.get("name") == "marital-status")
    assert married["line"]["shape"] == "hv"
    assert married["customdata"] == ["Non-Married"] * 3 + ["Married"] * 3
    headings = " ".join(text["text"] for text in drawn["layout"]["annotations"])
    assert "Non-Married → Married" in headings
    assert "0.17 → 0.52" in headings


def test_milestones_are_numbered_as_their_steps() -> None:
    result = make()
    stops = result.milestones("ann")
    drawn = path_figure(result, "ann")
    dots = [trace for trace in drawn["data"] if trace["mode"] == "markers+text"]
    if len(stops) > 2:
        assert dots[0]["x"] == stops["step"].tolist()[1:]
        assert dots[0]["text"] == [str(number) for number in range(1, len(stops))]
    else:
        assert not dots


def test_a_path_of_one_point_and_one_of_a_plan_are_drawn() -> None:
    assert path_figure(make(), "bob")["data"]
    plans = make_plans()
    second = path_figure(plans.plan(2), "ann")
    assert second != path_figure(plans.plan(1), "ann")
    assert second["data"][-1]["x"][-1] == plans.path("ann", 2)["step"].iloc[-1]


def test_a_map_has_the_paths_of_all_methods_and_at_most_so_many_codes() -> None:
    many = pd.concat([make_landscape()] * 20, ignore_index=True)
    result = make(landscape=many)
    drawn = map_figure({"rsgd": result, "sgd": result}, "ann")
    codes = [trace for trace in drawn["data"] if str(trace.get("name", "")).startswith("predicted ")]
    assert sum(len(trace["x"]) for trace in codes) <= MOST_CODES
    lines = {trace["name"]: trace for trace in drawn["data"] if trace.get("name") in ("rsgd", "sgd")}
    assert lines["rsgd"]["x"] == lines["sgd"]["x"]
    assert lines["rsgd"]["line"]["color"] != lines["sgd"]["line"]["color"]
    words = [text["text"] for text in drawn["layout"]["annotations"]]
    assert "rsgd<br>sgd" in words, "one label where paths end together"
    assert any("2 of 5 latent dimensions" in word for word in words)
    json.dumps(drawn, allow_nan=False)


def test_a_map_shows_the_volume_on_a_log_scale() -> None:
    assert not [trace for trace in map_figure({"rsgd": make()}, "ann")["data"] if trace["type"] == "heatmap"]
    grid = VolumeGrid(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([[1.0, 10.0], [100.0, np.nan]]))
    (heat,) = [trace for trace in map_figure({"rsgd": make()}, "ann", background=grid)["data"] if "z" in trace]
    assert "log" in heat["colorbar"]["title"]["text"]
    assert heat["z"] == [[0.0, 1.0], [2.0, None]]


def test_a_map_without_a_path_or_without_anything() -> None:
    gone = map_figure({"rsgd": make()}, "eva")
    assert not [trace for trace in gone["data"] if trace.get("name") == "rsgd"]
    with pytest.raises(InputError, match="no row 'zoe'"):
        map_figure({"rsgd": make()}, "zoe")
    plans = make_plans()
    first, third = (map_figure({"rsgd": plans.plan(plan)}, "ann") for plan in (1, 3))
    assert first == map_figure({"rsgd": plans}, "ann")
    assert len(third["data"]) == len(first["data"])
    nothing = map_figure({"rsgd": make(keep="end", landscape=make_landscape().iloc[:0])}, "ann")
    assert nothing["data"] == []


def test_changes_add_up() -> None:
    drawn = changes_figure(make())
    bars = {trace["name"]: trace["x"] for trace in drawn["data"]}
    total = np.sum([bars[name] for name in bars], axis=0)
    expected = make().changed[["hours-per-week", "education-num", "marital-status", "owner"]].iloc[[0, 2]].mean()
    assert sorted(total) == sorted(expected)
    assert bars["rises"][0] == bars["falls"][0] == 0.5, "hours rise for one and fall for the other"
    assert changes_figure(make_empty())["data"] == []


def test_shares_by_group_are_those_of_the_table() -> None:
    result = make()
    drawn = shares_figure(result, result.factuals["marital-status"])
    (heat,) = drawn["data"]
    assert heat["z"][0] == [1.0], "both who were found are not married, and both change their hours"
    assert shares_figure(make_empty(), make_empty().factuals["sex"])["data"] == []


def test_measures_by_group_say_how_many_and_mark_few() -> None:
    summary = make().summary(by="sex")
    drawn = measures_figure(summary)
    ticks = drawn["layout"]["yaxis"]["ticktext"]
    assert [tick.split("n ")[-1] for tick in ticks] == [str(n) for n in summary["n"]]
    found = drawn["data"][0]
    assert set(found["marker"]["color"]) == {"white"}, "few"
    assert str(FEW) in description_of(drawn)
    many = measures_figure(summary.assign(n=FEW))
    assert "white" not in many["data"][0]["marker"]["color"]


def test_the_interval_of_a_share_is_that_of_wilson() -> None:
    low, high = wilson(np.array([0.5, 1.0, 0.0]), np.array([10.0, 10.0, 10.0]))
    assert low == pytest.approx([0.2366, 0.7225, 0.0], abs=1e-4)  # Brown, Cai and DasGupta (2001)
    assert high == pytest.approx([0.7634, 1.0, 0.2775], abs=1e-4)


def test_a_volume_grid_is_positive_and_covers_the_map(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    grid = volume_grid(explainer, features(people).head(1))
    assert grid is not None
    assert grid.volume.shape == (len(grid.y), len(grid.x))
    assert np.isfinite(grid.volume).all()
    assert (grid.volume > 0).all()
    result = explainer.explain(features(people).head(2), confidence=0.5)
    drawn = map_figure({"geodesic": result}, "p0", background=grid)
    assert len(json.dumps(drawn, allow_nan=False)) < 90_000
    assert grid.x[0] < result.landscape["map_x"].min()
    assert grid.x[-1] > result.landscape["map_x"].max()


@pytest.fixture
def blank(context: BrowserContext) -> Page:
    """An empty page on which figures can be drawn."""
    page = context.new_page()
    page.set_content("<body style='margin:0'></body>")
    page.add_script_tag(content=get_plotlyjs())
    return page


@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser_names_are_text_and_nothing_is_cut_off(blank: Page, width: int) -> None:
    page = blank
    page.set_viewport_size({"width": width, "height": 800})
    for name, drawn in figures(renamed(make())).items():
        page.evaluate(
            """async drawn => {
                document.body.replaceChildren(document.createElement('div'));
                await Plotly.newPlot(document.body.firstChild, drawn.data, drawn.layout, drawn.config);
            }""",
            drawn,
        )
        seen = page.evaluate("document.body.innerText + [...document.querySelectorAll('text')].map(t => t.textContent)")
        assert NASTY[:14] in seen or BOLD[:8] in seen, name
        assert page.locator("img").count() == 0
        wide = page.evaluate(
            """() => [...document.querySelectorAll('text')].filter(text => {
                const box = text.getBoundingClientRect();
                return box.width && (box.left < -1 || box.right > innerWidth + 1);
            }).map(text => text.textContent)"""
        )
        assert wide == [], name


def test_in_a_browser_the_cursor_moves_without_drawing_again(blank: Page) -> None:
    moved = blank.evaluate(
        """async ([drawn, update]) => {
            const box = document.body.appendChild(document.createElement('div'));
            await Plotly.newPlot(box, drawn.data, drawn.layout, drawn.config);
            let plots = 0;
            box.on('plotly_afterplot', () => plots++);
            const at = () => box.querySelector('.imagelayer image').getBoundingClientRect().left;
            const before = at();
            await Plotly.relayout(box, update);
            return {plots, moved: before - at() > 10};
        }""",
        [path_figure(make(), "ann"), cursor(1)],
    )
    assert moved == {"plots": 0, "moved": True}

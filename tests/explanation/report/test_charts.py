import numpy as np
import pandas as pd
import pytest

from counterpath.explanation.report.charts import HEIGHT, MAP, Axis, Map, bar, coordinate
from tests.explanation.conftest import SCHEMA, make_landscape


def test_a_line_goes_from_left_to_right_and_up_when_values_rise() -> None:
    drawn = Axis(np.array([0.0, 1.0, 4.0])).line(np.array([0.0, 0.5, 1.0]), (0.0, 1.0), "p", level=0.5)
    assert 'points="0,17.6 25,10 100,2.4"' in drawn
    assert f'y1="{HEIGHT / 2:g}" y2="{HEIGHT / 2:g}"' in drawn


def test_a_constant_line_and_a_path_of_one_point_are_drawn() -> None:
    assert "nan" not in Axis(np.array([0.0, 1.0])).line(np.array([3.0, 3.0]), (3.0, 3.0), "v")
    assert 'points="0,' in Axis(np.array([5.0])).line(np.array([3.0]), (3.0, 3.0), "v")


def test_categories_are_stairs_that_hold_until_the_next() -> None:
    drawn = Axis(np.array([0.0, 1.0, 2.0])).stairs(np.array([0.0, 0.0, 1.0]), "c")
    assert 'd="M0 17.6H50V17.6H100V2.4"' in drawn


def test_milestones_are_numbered_where_there_are_several() -> None:
    values = np.array([0.0, 0.5, 1.0])
    assert Axis(np.arange(3.0), stops=(2,)).numbers(values, (0.0, 1.0)) == ""
    drawn = Axis(np.arange(3.0), stops=(1, 2)).numbers(values, (0.0, 1.0))
    assert drawn.count("stop") == 2
    assert 'style="left:50%;top:50%">1<' in drawn


def test_a_map_holds_all_codes_and_paths_in_its_box_and_classes_differ_in_shape_too() -> None:
    path = pd.DataFrame({"map_x": [-9.0, 0.0, 0.0], "map_y": [0.0, 0.0, 0.0]})
    latent = Map.around(make_landscape(), path, SCHEMA)
    points = np.array([[float(v) for v in point.split(",")] for point in latent._points(latent.landscape)])
    assert (points >= 0).all()
    assert (points <= [MAP, latent.height]).all()
    assert latent.codes.count("h.1") == 300
    assert {'stroke-linecap="round"', 'stroke-linecap="square"'} <= set(latent.codes.replace("/", " ").split())
    drawn = latent.draw([path], 'a "label"')
    assert 'aria-label="a &#34;label&#34;"' in drawn
    assert drawn.count("<polyline") == 2


@pytest.mark.parametrize("classes", [1, 7])
def test_a_map_of_one_line_or_of_many_classes_is_drawn(classes: int) -> None:
    flat = make_landscape(classes).assign(map_y=0.0)
    latent = Map.around(flat, flat.iloc[:0], SCHEMA)
    assert "nan" not in latent.codes + latent.draw([], "none")
    assert latent.legend.count("predicted ") == classes


def test_bars_are_as_wide_as_their_shares() -> None:
    drawn = bar({"up": 0.25, "down": 1 / 3}, "<25 %")
    assert '<b class="up" style="width:25%"></b><b class="down" style="width:33.3%"></b>' in drawn
    assert "&lt;25 %" in drawn


def test_coordinates_have_the_digits_that_can_be_seen() -> None:
    assert [coordinate(value) for value in (0.0, 40.04, 40.06, -1.0)] == ["0", "40", "40.1", "-1"]

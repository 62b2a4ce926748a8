"""Of every path all points are kept, those that tell it in a few steps, or none: what is told is the same."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from counterpath.explanation import Explanation
from counterpath.explanation.milestones import KEEPS, choose_each, choose_points, only_milestones
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, make, make_plans
from tests.explanation.test_milestones import NUMBERS, SCHEMA, as_path, points

FICKLE = points(hours=[4, 4, 0, 0, 0], pay=[2.0, 0.0, 0.0, 4.0, 1.0])
"""A path of whose milestones others are chosen, if they are taken for the whole path."""


def several(*paths: pd.DataFrame) -> pd.DataFrame:
    """Paths one after another, as an explanation has them."""
    return pd.concat([as_path(path).assign(row=row) for row, path in enumerate(paths)], ignore_index=True)


def test_the_milestones_of_many_paths_are_those_of_each() -> None:
    random = np.random.default_rng(0)
    paths = []
    for count in (1, 2, 9, 30):
        columns = {name: random.integers(0, 3, count) for name in ("hours", "pay", "job", "education")}
        names = {name: [SCHEMA[name].categories[place] for place in columns[name]] for name in ("job", "education")}
        paths.append(points(**columns | names))
    whole = several(*paths)
    kept = only_milestones(whole, SCHEMA, NUMBERS)
    for row, path in enumerate(paths):
        assert kept.loc[kept["row"] == row, "step"].tolist() == choose_points(path, SCHEMA, NUMBERS)
    assert kept.index.tolist() == list(range(len(kept)))
    assert (kept.dtypes == whole.dtypes).all()
    pd.testing.assert_frame_equal(kept, whole.merge(kept[["row", "step"]])[list(kept)])


def test_no_paths_have_no_milestones() -> None:
    assert len(choose_each(FICKLE.iloc[:0], np.zeros(0, dtype=np.int64), SCHEMA, NUMBERS)) == 0


def test_milestones_that_were_kept_are_not_chosen_again() -> None:
    places = choose_points(FICKLE, SCHEMA, NUMBERS)
    kept = FICKLE.iloc[places]
    assert choose_points(kept, SCHEMA, NUMBERS) != list(range(len(places)))
    assert choose_points(kept, SCHEMA, NUMBERS, chosen=True) == list(range(len(places)))
    assert choose_points(kept, SCHEMA, NUMBERS, 2, chosen=True) == [0, len(places) - 1]


@pytest.mark.parametrize("made", [make, make_plans])
def test_an_explanation_says_the_same_by_its_milestones(made: Any, tmp_path: Path) -> None:
    whole, kept = made(), made(keep="milestones")
    assert (whole.kept_paths, kept.kept_paths) == ("all", "milestones")
    assert len(kept.paths) < len(whole.paths)
    for label in LABELS[:4]:
        stops = whole.milestones(label)
        pd.testing.assert_frame_equal(kept.milestones(label), stops)
        pd.testing.assert_frame_equal(kept.path(label), stops.drop(columns="changes"))
    assert kept.to_text(steps=True) == whole.to_text(steps=True)
    assert kept.sentences.equals(whole.sentences)
    pd.testing.assert_frame_equal(kept.summary(), whole.summary())
    again = Explanation.from_json(kept.to_json())
    assert again.kept_paths == "milestones"
    pd.testing.assert_frame_equal(again.milestones("ann"), whole.milestones("ann"))
    cards = [result.to_html(tmp_path / "page.html").read_text(encoding="utf-8") for result in (whole, kept)]
    told = [re.sub("<svg.*?</svg>", "", card[card.index("<article") :], flags=re.DOTALL) for card in cards]
    assert told[0] == told[1]


def test_selected_rows_and_plans_know_what_was_kept() -> None:
    kept = make_plans(keep="milestones")
    assert kept.select("ann").kept_paths == kept.plan(2).kept_paths == "milestones"
    pd.testing.assert_frame_equal(kept.plan(2).milestones("ann"), make_plans().milestones("ann", plan=2))


def test_the_figures_of_milestones_stand_at_their_true_steps() -> None:
    whole, kept = make(), make(keep="milestones")
    stops = kept.path("ann")
    line = kept.plot_path("ann").axes[0].lines[0]
    assert line.get_xdata().tolist() == stops["step"].tolist()
    assert line.get_ydata().tolist() == stops["probability"].tolist()
    numbers = [[text.get_text() for text in made.plot_path("ann").axes[0].texts] for made in (whole, kept)]
    assert numbers[0] == numbers[1]
    assert len(kept.plot_map().axes) == len(whole.plot_map().axes)


@pytest.mark.parametrize("keep", ["some", "mileston", True, None])
def test_what_cannot_be_kept_is_refused_with_what_can(keep: Any) -> None:
    with pytest.raises(InputError, match=f"unknown way to keep paths '{keep}'.*: {', '.join(KEEPS)}"):
        make(request=make().request | {"paths": keep})
    with pytest.raises(InputError, match="unknown way to keep paths"):
        Explanation.from_json(make(keep="end").to_json().replace('"paths": "end"', f'"paths": "{keep}"'))

"""How training rows spread over the values of a feature, as the strip behind its control shows it; and what if."""

import math

import pandas as pd
import pytest

import counterpath as cp
from counterpath.data.schema import Feature
from counterpath.explorer.distribution import BINS, Distribution, Scale
from counterpath.explorer.what_if import Curve, curve_figure, table_of, values_of
from tests.tables import features


@pytest.mark.parametrize("scale", [Scale(17, 90, whole=True), Scale(0, 99_999, logarithmic=True), Scale(-2.5, 4.75)])
def test_a_scale_has_an_inverse(scale: Scale) -> None:
    assert (scale.number(0), scale.number(1)) == (scale.low, scale.high)
    for position in (0.1, 0.37, 0.9):
        near = 0.6 / (scale.high - scale.low) if scale.whole else 5e-3
        assert scale.position(scale.number(position)) == pytest.approx(position, abs=near)
    assert scale.position(scale.high + 1e6) == 1
    assert Scale(3, 3).position(3) == 0.5


def test_bars_follow_the_rows_and_are_said_in_words(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    for feature in explainer.schema_:
        made = Distribution.of(explainer, feature, people[feature.name])
        assert max(made.bars) == 1
        assert made.words.startswith("Training rows: ")
        assert made.svg.count("<rect") == sum(bar > 0 for bar in made.bars)
        place = made.place(feature, people[feature.name].iloc[0])
        assert place is not None
        assert 0 <= place <= 1
    score = Distribution.of(explainer, explainer.schema_["score"], people["score"])
    assert len(score.bars) == BINS
    assert score.place(explainer.schema_["score"], None) is None
    city = Distribution.of(explainer, explainer.schema_["city"], people["city"])
    counts = people["city"].value_counts()
    shares = dict(zip(city.categories, city.bars, strict=True))
    for name, count in counts.items():
        assert shares[str(name)] == pytest.approx(math.sqrt(count / counts.max()))
    assert city.place(explainer.schema_["city"], "Atlantis") is None


def test_what_if_asks_about_one_feature_alone(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).head(1)
    for name in ("score", "city", "size", "children"):
        feature, own = explainer.schema_[name], row[name].tolist()[0]
        values = values_of(explainer, feature, own)
        assert own in values
        table = table_of(explainer, row, feature, values)
        assert table[name].tolist() == values
        others = table.drop(columns=name)
        assert len(others.drop_duplicates()) == 1
        chances = explainer.predict_proba(table)["low"]
        assert chances.iloc[values.index(own)] == pytest.approx(explainer.predict_proba(row)["low"].iloc[0], abs=1e-6)
        curve = Curve(feature, tuple(values), tuple(chances.tolist()), values.index(own), "low")
        figure = curve_figure(curve)
        assert figure["layout"]["meta"] == curve.sentence
        assert figure["data"]


def test_a_curve_is_said_in_words() -> None:
    hours = Feature("hours", "integer", unit="hours", label="Working hours")
    curve = Curve(hours, (20, 40, 60), (0.01, 0.2, 0.5), 1, ">50K")
    assert curve.sentence == (
        "With Working hours alone, the probability of >50K goes from 1 % at 20 hours to 50 % at 60 hours; now it is "
        "20 % at 40 hours."
    )
    flat = Curve(hours, (20, 40), (0.2, 0.2), 0, ">50K")
    assert flat.sentence == "Whatever Working hours is, the probability of >50K stays at 20 %."

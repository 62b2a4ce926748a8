"""Tables as they come: gaps and codes are values, and the model is asked about rows that have them."""

import json
import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpath as cp
from counterpath.batch.running import run
from counterpath.explanation import Explanation
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from tests.batch.inline import Inline
from tests.service.conftest import service
from tests.tables import small

pytestmark = pytest.mark.filterwarnings(
    "ignore:The(se numbers| generative model):counterpath.utils.errors.CounterpathWarning"
)
CODES = {-7.0: "never late", -8.0: "no usable record"}
"""Of the months since somebody was late: no number says that they never were."""


IMPORTED: Any = types.ModuleType("scoring_of_gaps")
"""A module from which the user's model can be imported."""


def table(rows: int = 700, seed: int = 0) -> pd.DataFrame:
    """People with gaps in three columns, codes in one, and a decision that hangs on all of them."""
    random = np.random.default_rng(seed)
    wealth, care = random.random((2, rows))
    income = np.round(1000 + 5000 * wealth + random.normal(0, 300, rows), -1)
    months = np.where(care > 0.7, -7, np.where(care < 0.1, -8, np.round(60 * care)))
    score = income / 6000 + care + 0.5 * (months == -7) + random.normal(0, 0.1, rows)
    frame = pd.DataFrame(
        {
            "income": np.where(random.random(rows) < 0.2, np.nan, income),
            "months": months.astype(float),
            "dependents": np.where(random.random(rows) < 0.1, np.nan, random.integers(0, 5, rows)),
            "home": np.where(random.random(rows) < 0.15, None, np.where(wealth > 0.5, "own", "rent")),
            "age": random.integers(20, 70, rows),
        }
    )
    return frame.assign(granted=np.where(score - 0.3 * frame["income"].isna() > 1.1, "yes", "no"))


def schema(frame: pd.DataFrame) -> cp.Schema:
    overrides = {"months": {"codes": CODES, "unit": "months"}, "home": {"kind": "categorical"}}
    return cp.Schema.infer(frame.drop(columns="granted"), overrides=overrides)


def encoded(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as gradient boosting takes it, gaps and all."""
    return frame.assign(home=frame["home"].map({"own": 1.0, "rent": 0.0}))


class Boosted:
    """Gradient boosting of the table as it is, that remembers what it was asked."""

    def __init__(self, frame: pd.DataFrame) -> None:
        features = encoded(frame.drop(columns="granted"))
        self.model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(features, frame["granted"])
        self.classes_ = self.model.classes_

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        return self.model.predict_proba(encoded(frame))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return table()


@pytest.fixture(scope="module")
def boosted(frame: pd.DataFrame) -> Boosted:
    return Boosted(frame)


@pytest.fixture(scope="module", params=["own", "boosted"])
def explainer(request: pytest.FixtureRequest, frame: pd.DataFrame, boosted: Boosted) -> cp.Explainer:
    model = {"model": boosted} if request.param == "boosted" else {}
    return small(seed=0).fit(frame, "granted", schema=schema(frame), **model)


@pytest.fixture(scope="module")
def people(explainer: cp.Explainer) -> pd.DataFrame:
    others = table(200, seed=1).drop(columns="granted")
    return others[explainer.predict(others).to_numpy() == "no"].head(40)


@pytest.fixture(scope="module")
def result(explainer: cp.Explainer, people: pd.DataFrame) -> Explanation:
    return explainer.explain(people, target_class="yes")


def test_a_model_that_takes_gaps_is_asked_about_rows_with_them(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    assert explainer.imputer_ is None
    assert [each.name for each in explainer.schema_ if each.missing] == ["income", "dependents", "home"]
    model = explainer._models().explained
    if model.kind == "black-box":
        direct = Boosted(table()).predict_proba(people)
        np.testing.assert_allclose(explainer.predict_proba(people).to_numpy(), direct, atol=1e-12)


def test_every_answer_is_valid_with_its_gaps(explainer: cp.Explainer, result: Explanation) -> None:
    found = result.status["status"].isin(["found", "crosses_gap"])
    assert found.mean() >= 0.95
    assert (explainer.predict(result.counterfactuals[found]) == "yes").all()


def test_a_gap_stays_one_on_the_whole_path_or_is_filled_and_said_to_be(result: Explanation) -> None:
    before, after = result.factuals.isna(), result.counterfactuals.isna()
    assert not (after & ~before).to_numpy().any(), "nobody is advised to leave something out"
    for position, label in enumerate(result.factuals.index):
        path = result.path(label)
        for name in before.columns[before.iloc[position]]:
            gaps = path[name].isna().to_numpy()
            if after.iloc[position][name]:
                assert gaps.all()
            else:
                assert not np.diff(gaps.astype(int)).max() > 0, "what is filled in stays filled in"
                assert f"for {name}, which is missing now" in result.sentences.loc[label]
                assert result.changed.loc[label, name]


def test_no_value_lies_between_codes(result: Explanation, frame: pd.DataFrame) -> None:
    measured = frame.loc[~frame["months"].isin(list(CODES)), "months"]
    months = pd.concat([result.counterfactuals["months"], result.paths["months"]])
    assert (months.isin(list(CODES)) | months.between(measured.min(), measured.max())).all()
    assert (months == months.round()).all()


def test_codes_are_said_by_their_meaning(explainer: cp.Explainer) -> None:
    late = table(300, seed=2).drop(columns="granted").query("months == -8")
    late = late[explainer.predict(late).to_numpy() == "no"].head(5)
    result = explainer.explain(late, target_class="yes", lock=["income", "age", "dependents", "home"])
    moved = result.changed.index[result.changed["months"]]
    assert len(moved)
    for label in moved:
        sentence = result.sentences.loc[label]
        assert "-8" not in sentence
        assert "no usable record" in sentence
        change = result.changes.loc[[label]].query("feature == 'months'")["change"].item()
        assert change == "", "a code and a number have no difference"


def test_every_surface_shows_gaps_and_codes(result: Explanation, tmp_path: Any) -> None:
    again = Explanation.from_json(json.loads(json.dumps(result.to_json())))
    pd.testing.assert_frame_equal(again.counterfactuals, result.counterfactuals)
    pd.testing.assert_frame_equal(again.factuals, result.factuals)
    result.to_csv(tmp_path / "rows.csv")
    result.to_html(tmp_path / "report.html")
    result.plot_changes(tmp_path / "changes.png")
    for label in result.factuals.index[:6]:
        result.plot_path(label, path=tmp_path / "path.png")
        stops = result.milestones(label)
        assert "nan" not in " ".join(stops["changes"]).lower()
    assert "nan" not in " ".join(result.sentences).lower()


def test_a_batch_reads_and_writes_gaps_and_codes(
    explainer: cp.Explainer, boosted: Boosted, result: Explanation, people: pd.DataFrame, tmp_path: Any
) -> None:
    """Of both models: a batch finds a user's own one by the place from which it is imported."""
    explainer.save(tmp_path / "model")
    own = explainer._models().explained.kind == "own"
    sys.modules[IMPORTED.__name__], IMPORTED.model = IMPORTED, boosted
    named = {} if own else {"user_model": f"{IMPORTED.__name__}:model"}
    for suffix, write in ((".csv", people.to_csv), (".parquet", people.to_parquet)):
        write(tmp_path / f"people{suffix}", index=False)
        out = tmp_path / suffix[1:]
        run(tmp_path / "model", tmp_path / f"people{suffix}", out, Inline(), {"target_class": "yes"}, **named)
        rows = pd.concat([pd.read_parquet(part) for part in sorted(out.glob("**/*.parquet"))])
        for name in ("income", "months", "dependents"):
            expected = result.counterfactuals[name].to_numpy(float)
            np.testing.assert_array_equal(rows[name].to_numpy(float, na_value=np.nan), expected)


def test_the_service_takes_and_gives_null(explainer: cp.Explainer, result: Explanation, people: pd.DataFrame) -> None:
    with service({"people": explainer}, Settings(rows=50)) as client:
        rows = json.loads(people.head(6).to_json(orient="records"))
        answer = client.post("/v1/models/people:explain", json={"rows": rows, "target_class": "yes"})
        assert answer.status_code == 200, answer.text
        wanted = result.counterfactuals.head(6).to_dict("records")
        for given, expected in zip(answer.json()["rows"], wanted, strict=True):
            for name, value in given["plans"][0]["counterfactual"].items():
                assert value == expected[name] or (value is None and pd.isna(expected[name]))


def test_answers_are_the_same_one_by_one(explainer: cp.Explainer, result: Explanation, people: pd.DataFrame) -> None:
    one = explainer.explain(people.iloc[[3]], target_class="yes")
    pd.testing.assert_frame_equal(one.counterfactuals, result.counterfactuals.iloc[[3]])


def test_a_saved_model_keeps_gaps_and_codes(
    explainer: cp.Explainer, boosted: Boosted, result: Explanation, people: pd.DataFrame, tmp_path: Any
) -> None:
    explainer.save(tmp_path / "model")
    model = {"model": boosted} if explainer._models().explained.kind == "black-box" else {}
    again = cp.Explainer.load(tmp_path / "model", **model)
    assert again.encoder_ == explainer.encoder_
    pd.testing.assert_frame_equal(again.explain(people, target_class="yes").counterfactuals, result.counterfactuals)


def test_locks_and_directions_hold_for_codes(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    result = explainer.explain(people, target_class="yes", directions={"months": "up"}, lock=["home"])
    before, paths = result.factuals, result.paths
    own = before.iloc[paths["row"].to_numpy()]
    months, start = paths["months"].to_numpy(), own["months"].to_numpy()
    coded = np.isin(start, list(CODES))
    assert (months[coded] == start[coded]).all(), "a code has no direction"
    assert (months[~coded] >= start[~coded]).all()
    same = paths["home"].to_numpy() == own["home"].to_numpy()
    assert (same | (paths["home"].isna().to_numpy() & own["home"].isna().to_numpy())).all()


def test_a_range_is_of_numbers_and_not_of_codes(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    result = explainer.explain(people, target_class="yes", ranges={"months": (10, 50)})
    found = result.status["status"].isin(["found", "crosses_gap"])
    assert found.any()
    assert result.counterfactuals.loc[found, "months"].between(10, 50).all()


def test_several_plans_and_other_methods(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    for options in ({"plans": 3}, {"method": "rsgd"}, {"method": "nearest"}, {"method": "sgd"}, {"max_changes": 2}):
        result = explainer.explain(people.head(8), target_class="yes", **options)
        found = result.status["status"].isin(["found", "crosses_gap"])
        assert not (result.counterfactuals[found].isna() & ~result.factuals[found].isna()).to_numpy().any()
        assert (explainer.predict(result.counterfactuals[found]) == "yes").all()


def test_a_model_that_refuses_gaps_is_named_with_the_column(frame: pd.DataFrame) -> None:
    frame = encoded(frame)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(
        frame.drop(columns="granted").fillna(0), frame["granted"]
    )
    for missing in ("keep", "auto"):
        with pytest.raises(InputError, match=r"'income', row \d+.*Pipeline does not take rows with gaps.*impute"):
            small(missing=missing).fit(frame, "granted", model=model)
    with pytest.raises(InputError, match=r"'income'.*missing value"):
        small(missing="error").fit(frame, "granted")
    with pytest.raises(InputError, match="way to treat missing values"):
        small(missing="drop").fit(frame, "granted")


def test_a_pipeline_with_an_imputer_of_its_own_is_asked_about_gaps(frame: pd.DataFrame) -> None:
    frame = encoded(frame)
    features = frame.drop(columns="granted")
    model = make_pipeline(SimpleImputer(), RandomForestClassifier(30, random_state=0)).fit(features, frame["granted"])
    explainer = small().fit(frame, "granted", model=model)
    rejected = features[model.predict(features) == "no"].head(15)
    result = explainer.explain(rejected, target_class="yes")
    found = result.status["status"].isin(["found", "crosses_gap"])
    assert found.mean() >= 0.9
    assert (model.predict(result.counterfactuals[found]) == "yes").all()
    assert not (result.counterfactuals.isna() & ~rejected.isna()).to_numpy().any()


def test_a_row_of_nothing_but_gaps_has_a_status(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    fully = {"income": np.nan, "dependents": np.nan, "home": None}
    rows = people.head(2).assign(**fully)
    assert len(explainer.explain(rows, target_class="yes")) == 2
    with pytest.raises(InputError, match=r"column 'age', row 99.*missing"):
        explainer.explain(people.head(1).set_axis([99]).assign(age=np.nan), target_class="yes")


def test_a_gap_outside_of_where_it_must_stay_is_said_to_be_missing(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    rows = people[people["income"].isna()].head(2)
    result = explainer.explain(rows, target_class="yes", stay_within={"income": (0, 1e9)})
    assert result.status["status"].tolist() == ["outside"] * len(rows)
    assert result.status["reason"].str.contains("income is missing, outside of where it must stay").all()


def test_codes_must_not_be_measurements(frame: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"'age'.*code 30.*values on both sides"):
        small().fit(frame, "granted", schema=schema(frame).replace("age", codes={30: "thirty"}))
    with pytest.raises(InputError, match=r"'age'.*code 30, which lies within its bounds 0 to 99"):
        schema(frame).replace("age", codes={30: "thirty"}, lower=0, upper=99)
    with pytest.raises(InputError, match=r"'age'.*the code '-7.0' twice"):
        schema(frame).replace("age", codes={"-7": "a", "-7.0": "b"})
    with pytest.raises(InputError, match=r"'home'.*codes, which are for numbers"):
        schema(frame).replace("home", codes={-1: "none"})
    with pytest.raises(InputError, match=r"'age'.*the code 'x'"):
        schema(frame).replace("age", codes={"x": "none"})
    only = pd.DataFrame({"months": [-7, -8] * 10, "age": range(20)})
    with pytest.raises(InputError, match=r"'months' has nothing but codes"):
        cp.Encoder.fit(only, cp.Schema.infer(only, overrides={"months": {"kind": "integer", "codes": CODES}}))

import dataclasses
import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.io import STATUS_TYPES, frame_from_json, frame_to_json, index_labels
from counterpath.explanation.tables import feature_columns, path_columns
from counterpath.explanation.wording import binding_text
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, LOCKED, ONLY_UP, lists, make, make_empty, make_plans, make_status

FRAMES = ("factuals", "counterfactuals", "status", "outcome", "changed", "paths", "landscape")


def through_json(frame: pd.DataFrame) -> pd.DataFrame:
    return frame_from_json(json.loads(json.dumps(frame_to_json(frame), allow_nan=False)))


def _without_unused_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """The table whose index has no memory of rows that it was cut from."""
    levels = isinstance(frame.index, pd.MultiIndex)
    return frame.set_axis(frame.index.remove_unused_levels()) if levels else frame


@pytest.mark.parametrize(
    "made",
    [
        make(),
        make(keep="milestones"),
        make(keep="end"),
        make_empty(),
        make(labels=[7, 7, -1, 2, 3]),
        make().select(["cem"]),
        make_plans(),
        make_plans(labels=[7, 7, -1, 2, 3], keep="end"),
        make_plans(labels=pd.Index(LABELS, name="plan")),
        make_plans(labels=pd.MultiIndex.from_product([["x"], range(5)], names=["branch", None])),
        make_plans().select([("cem", 2), "ann"]),
        make_plans().select([]),
        make_plans().plan(3),
    ],
    ids=[
        "full",
        "milestones",
        "no paths",
        "empty",
        "equal labels",
        "selection",
        "plans",
        "plans of equal labels",
        "plans of people in a level called plan",
        "plans of labels of two parts",
        "selection of plans",
        "no plans",
        "one of three plans",
    ],
)
def test_json_gives_back_an_equal_explanation(made: Explanation) -> None:
    again = Explanation.from_json(made.to_json())
    for name in FRAMES:
        one, other = _without_unused_labels(getattr(again, name)), _without_unused_labels(getattr(made, name))
        assert_frame_equal(one, other, check_index_type="exact", check_column_type="exact")
    assert_frame_equal(_without_unused_labels(again.measures()), _without_unused_labels(made.measures()))
    assert (again.schema, again.request, again.note, again.diagnostics) == (
        made.schema,
        made.request,
        made.note,
        made.diagnostics,
    )
    assert str(again) == str(made)


def test_json_goes_through_a_file(explanation: Explanation, tmp_path: Path) -> None:
    text = explanation.to_json(tmp_path / "deep" / "a.json")
    assert (tmp_path / "deep" / "a.json").read_text(encoding="utf-8") == text
    for source in (tmp_path / "deep" / "a.json", str(tmp_path / "deep" / "a.json"), text):
        assert_frame_equal(Explanation.from_json(source).counterfactuals, explanation.counterfactuals)


STRUCTURED = {
    "constraints and imputed columns": (
        [[], [], [], [LOCKED, ONLY_UP], [LOCKED]],
        [["owner", "sex"], [], [], ["sex"], []],
    ),
    "nothing": ([[] for _ in LABELS], [[] for _ in LABELS]),
}


@pytest.fixture(params=STRUCTURED, ids=str)
def structured(request: pytest.FixtureRequest) -> Explanation:
    """An explanation in which some rows used the fallback, with constraints that bind, or none."""
    binding, imputed = (lists(*values, index=make().status.index) for values in STRUCTURED[request.param])
    return make(status=make().status.assign(binding=binding, imputed=imputed, fallback=[True, *[False] * 4]))


def test_a_status_is_the_same_after_json(structured: Explanation) -> None:
    again = Explanation.from_json(structured.to_json()).status
    assert_frame_equal(again, structured.status)
    for name in ("fallback", "binding", "imputed"):
        assert again[name].tolist() == structured.status[name].tolist()
    column = json.loads(structured.to_json())["frames"]["status"]["columns"][list(again).index("binding")]
    assert column["values"] == structured.status["binding"].tolist()


def test_a_status_in_parquet_has_lists_of_one_type_whether_or_not_they_are_empty(
    structured: Explanation, tmp_path: Path
) -> None:
    table = pq.read_table(structured.to_parquet(tmp_path / "a.parquet"))
    assert table.schema.field("binding").type == STATUS_TYPES["binding"]
    assert table.schema.field("fallback").type == pa.bool_()
    assert table["binding"].to_pylist() == structured.status["binding"].tolist()
    assert table["fallback"].to_pylist() == structured.status["fallback"].tolist()
    assert "imputed" not in table.column_names


def test_a_status_in_csv_is_text(structured: Explanation, tmp_path: Path) -> None:
    table = pd.read_csv(structured.to_csv(tmp_path / "a.csv"), keep_default_na=False)
    binding = structured.status["binding"].map(binding_text).tolist()
    assert table["binding"].tolist() == binding
    assert binding[3] in ("lock: age; up: hours-per-week", "")
    assert table["fallback"].tolist() == [True, *[False] * 4]


COLUMNS = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint8": st.integers(0, 255),
    "float64": st.floats(),
    "float32": st.floats(width=32),
    "bool": st.booleans(),
    "str": st.text(max_size=5),
    "object": st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    "Int64": st.one_of(st.just(pd.NA), st.integers(-9, 9)),
    "string[python]": st.one_of(st.just(pd.NA), st.text(max_size=3)),
}


@st.composite
def frames(draw: Any) -> pd.DataFrame:
    rows = draw(st.integers(0, 4))
    columns = {}
    for name in draw(st.lists(st.text(max_size=4), max_size=4, unique=True)):
        dtype = draw(st.sampled_from([*COLUMNS, "category"]))
        if dtype == "category":
            kinds = draw(st.sampled_from([["a", "b", "c"], [3, 1, 2], [0.5, 1.5], [True, False]]))
            values = draw(st.lists(st.sampled_from([*kinds, None]), min_size=rows, max_size=rows))
            columns[name] = pd.Series(pd.Categorical(values, categories=kinds, ordered=draw(st.booleans())))
        else:
            columns[name] = pd.Series(draw(st.lists(COLUMNS[dtype], min_size=rows, max_size=rows)), dtype=dtype)
    frame = pd.DataFrame(columns, index=range(rows))
    kinds = [st.integers(-5, 5), st.text(max_size=3), st.floats()]
    levels = [
        draw(st.lists(draw(st.sampled_from(kinds)), min_size=rows, max_size=rows))
        for _ in range(draw(st.integers(0, 3)))
    ]
    names = draw(st.lists(st.sampled_from([None, "id"]), min_size=max(len(levels), 1), max_size=max(len(levels), 1)))
    if len(levels) > 1:
        return frame.set_axis(pd.MultiIndex.from_arrays(levels, names=names))
    return (frame.set_axis(pd.Index(levels[0])) if levels else frame).rename_axis(names[0])


@settings(deadline=None)
@given(frames())
def test_any_table_comes_back_exactly(frame: pd.DataFrame) -> None:
    assert_frame_equal(
        through_json(frame), frame, check_exact=True, check_index_type="exact", check_column_type="exact"
    )


def test_times_come_back_in_columns_and_in_the_index() -> None:
    stamps = pd.Series(pd.to_datetime(["2020-01-01 10:00:00.123456", None]))
    spans = pd.Series(pd.to_timedelta(["3 days 02:00:00.5", None]))
    objects = [date(2020, 1, 1), datetime(2020, 1, 1, 10), timedelta(days=1, seconds=3), None]
    frame = pd.DataFrame({"naive": stamps, "zoned": stamps.dt.tz_localize("Europe/Berlin"), "span": spans})
    frame = pd.concat([frame, frame], ignore_index=True).assign(objects=pd.Series(objects, dtype=object))
    for index in (
        frame.index,
        pd.date_range("2020", periods=4, tz="UTC", name="day"),
        pd.timedelta_range("1h", periods=4),
    ):
        indexed = frame.set_axis(index)
        again = frame_from_json(json.loads(json.dumps(frame_to_json(indexed))))
        pd.testing.assert_frame_equal(again, indexed, check_freq=False)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": [1 + 2j]}), "dtype 'complex128'"),
        (pd.DataFrame({"a": pd.Series([[1j]], dtype=object)}), r"the value 1j has no form"),
        (pd.DataFrame({"a": pd.Series([{1}], dtype=object)}), r"the value \{1\} has no form"),
        (pd.DataFrame({"a": [1]}).rename_axis([("b", 1)]), r"the name \('b', 1\) cannot be written"),
        (pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2 + 1j)])), r"the value \(2\+1j\) has no form"),
    ],
)
def test_what_json_cannot_hold_is_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        frame_to_json(frame)


def damaged(**changes: Any) -> str:
    return json.dumps(json.loads(make().to_json()) | changes)


def without_frame(name: str) -> str:
    value = json.loads(make().to_json())
    del value["frames"][name]
    return json.dumps(value)


def with_column(value: Any) -> str:
    whole = json.loads(make().to_json())
    whole["frames"]["factuals"]["columns"][0] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "no explanation"),
        ('{"format": "something else"}', "no explanation"),
        ("no such file.json", "neither JSON text nor a file"),
        ("", "neither JSON text nor a file"),
        ("x\0y", "neither JSON text nor a text file"),
        (damaged(version=4), "version 4, and this Counterpath reads 3: a newer one wrote it; upgrade"),
        (damaged(version=2), "version 2, and this Counterpath reads 3: write it again"),
        (damaged(version="1"), "version '1'"),
        (damaged(frames=None), "no tables"),
        (damaged(frames={"factuals": 3}), "a table in JSON cannot be read"),
        (damaged(schema={}), "a schema in JSON looks like"),
        (damaged(request=None), "damaged"),
        (without_frame("measures"), "damaged: KeyError 'measures'"),
        (with_column({"dtype": "complex128", "values": [0] * 5}), "dtype 'complex128'"),
        (with_column({"dtype": "int64", "values": [0]}), "other lengths"),
        (with_column({"dtype": "int64", "values": ["a"] * 5}), "cannot be read: ValueError"),
        (with_column({"dtype": 3, "values": []}), "cannot be read"),
        (with_column([]), "cannot be read"),
    ],
)
def test_foreign_damaged_and_newer_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Explanation.from_json(text)


def test_a_csv_file_has_the_answers_beside_the_counterfactuals(explanation: Explanation, tmp_path: Path) -> None:
    table = pd.read_csv(explanation.to_csv(tmp_path / "a.csv"), index_col="person")
    own = [
        "status",
        "reason",
        "fallback",
        "binding",
        "class_before",
        "probability_before",
        "class_after",
        "probability_after",
    ]
    assert list(table.columns) == [*explanation.schema.names, *own]
    assert table["hours-per-week"].tolist() == explanation.counterfactuals["hours-per-week"].tolist()
    assert table["status"].tolist() == explanation.status["status"].tolist()
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]


def test_a_csv_file_with_plans_has_their_numbers_beside_the_labels(plans: Explanation, tmp_path: Path) -> None:
    table = pd.read_csv(plans.to_csv(tmp_path / "a.csv"), index_col=["person", "plan"], keep_default_na=False)
    assert table.index.equals(plans.factuals.index)
    assert table["binding"].tolist() == [""] * 9 + ["lock: age; up: hours-per-week"] + [""] * 5
    assert table["hours-per-week"].tolist() == plans.counterfactuals["hours-per-week"].tolist()
    unnamed = make_plans(labels=pd.RangeIndex(5)).to_csv(tmp_path / "b.csv").read_text(encoding="utf-8")
    assert unnamed.startswith("row,plan,age,")
    assert unnamed.splitlines()[1].startswith("0,1,39,")


@pytest.mark.parametrize(
    ("names", "columns", "labels"),
    [
        ([None], ["age"], ["row"]),
        (["age"], ["age"], ["row"]),
        ([None], ["row"], ["row_2"]),
        ([None, "plan"], ["age"], ["row", "plan"]),
        (["plan", "plan"], ["age"], ["row", "plan"]),
        ([None, "row", None, "plan"], ["age"], ["row_2", "row", "row_3", "plan"]),
        ([3, "plan"], ["age"], ["3", "plan"]),
    ],
)
def test_levels_of_an_index_have_names_of_their_own_in_a_file(names: list, columns: list, labels: list) -> None:
    levels = [[0]] * len(names)
    index = pd.Index([0], name=names[0]) if len(names) == 1 else pd.MultiIndex.from_arrays(levels, names=names)
    assert index_labels(pd.DataFrame(0, index=index, columns=columns)) == labels


def test_a_feature_called_plan_is_not_taken_for_the_number_of_the_plan(tmp_path: Path) -> None:
    names = ("factuals", "counterfactuals", "changed")
    for made, called in ((make(), "plan"), (make_plans(), "feature_plan")):
        tables = {name: getattr(made, name).rename(columns={"age": "plan"}) for name in names}
        schema = Schema((Feature("plan", "integer"), *make().schema.features[1:]))
        paths = made.paths.rename(columns={"age": "plan"})
        odd = dataclasses.replace(made, **tables, schema=schema, paths=paths)
        assert odd.to_frame().columns[0] == called
        assert list(pd.read_csv(odd.to_csv(tmp_path / "a.csv")).columns).count("plan") == 1
        assert odd.path("ann")["plan"].tolist() == [39] * 6


@pytest.mark.parametrize(
    "made",
    [
        make(),
        make(labels=[1, 1, 2, 3, 4]),
        make_plans(),
        make_plans(labels=[1, 1, 2, 3, 4]),
        make_plans(labels=pd.Index(LABELS, name="plan")),
    ],
)
def test_a_parquet_file_keeps_index_and_dtypes(made: Explanation, tmp_path: Path) -> None:
    table = pd.read_parquet(made.to_parquet(tmp_path / "a.parquet"))
    names = list(made.counterfactuals.index.names)
    assert len({*pq.read_schema(tmp_path / "a.parquet").names}) == len(pq.read_schema(tmp_path / "a.parquet").names)
    expected = made.counterfactuals.rename_axis(["row", "plan"]) if names == ["plan", "plan"] else made.counterfactuals
    assert_frame_equal(table[list(made.schema.names)], expected, check_index_type=False)
    assert table["probability_after"].equals(made.outcome["probability_after"])


def test_a_parquet_file_of_nothing_has_the_columns(empty: Explanation, tmp_path: Path) -> None:
    table = pd.read_parquet(empty.to_parquet(tmp_path / "a.parquet"))
    assert len(table) == 0
    assert table["age"].dtype == np.int64
    assert table.columns[-1] == "probability_after"


def test_parquet_that_cannot_be_is_refused_and_leaves_nothing(explanation: Explanation, tmp_path: Path) -> None:
    mixed = explanation.outcome.assign(class_after=pd.Series([1, "a", 2, 3, 4], dtype=object).to_numpy())
    with pytest.raises(InputError, match=r"no form in Parquet: .* try to_csv"):
        make(outcome=mixed).to_parquet(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_feature_called_like_a_column_of_ours_gets_a_prefix() -> None:
    assert feature_columns(["status", "feature_status", "age"], ["status"]) == {
        "status": "feature_feature_status",
        "feature_status": "feature_status",
        "age": "age",
    }
    assert path_columns(["step", "age"])[:4] == ["row", "step", "feature_step", "age"]


def test_an_explanation_with_such_features_works_everywhere(tmp_path: Path) -> None:
    names = ["status", "step"]
    factuals = pd.DataFrame({"status": [1.0], "step": [5.0]})
    counterfactuals = factuals.assign(status=2.0)
    index = factuals.index
    paths = pd.DataFrame([[0, 0, 1.0, 5.0, 0.1, np.nan, 0, 0, 0], [0, 1, 2.0, 5.0, 0.9, np.nan, 1, 1, 1]])
    made = make(
        factuals=factuals,
        counterfactuals=counterfactuals,
        status=make_status([StatusCode.FOUND], ["Yes."], index),
        outcome=make().outcome.iloc[:1].set_axis(index),
        changed=factuals.ne(counterfactuals),
        paths=paths.set_axis(path_columns(names), axis=1),
        schema=Schema(tuple(Feature(name, "continuous") for name in names)),
        compute_measures=pd.DataFrame(index=[0]),
    )
    assert made.path(0)["feature_step"].tolist() == [5.0, 5.0]
    assert made.path(0)["step"].tolist() == [0, 1]
    table = pd.read_csv(made.to_csv(tmp_path / "a.csv"))
    assert list(table.columns[:4]) == ["row", "feature_status", "step", "status"]
    assert table["status"].tolist() == ["found"]
    labels = [text.get_text() for axes in made.plot_path(0).axes for text in (axes.yaxis.label,)]
    assert labels == ["probability\nof 1", "status"]


INDICES = {
    "dates": pd.date_range("2024-01-31", periods=5, freq="ME", name="when"),
    "dates without a frequency": pd.DatetimeIndex(["2024-01-01", None, "1950-06-01", "2024-01-03", "2024-01-09"]),
    "a time zone": pd.date_range("2024-03-30", periods=5, freq="D", tz="Europe/Berlin"),
    "an offset": pd.date_range("2024-03-30", periods=5, freq="h", tz="+02:00"),
    "seconds": pd.DatetimeIndex(np.arange(5).astype("M8[s]")),
    "periods": pd.period_range("2024-01", periods=5, freq="M"),
    "durations": pd.timedelta_range("1h", periods=5, freq="h"),
    "categories": pd.CategoricalIndex(["b", "a", "c", "b", None], categories=["c", "b", "a"], ordered=True),
    "categories of dates": pd.CategoricalIndex(pd.DatetimeIndex(np.arange(5).astype("M8[s]"))),
    "intervals": pd.interval_range(0, 5, closed="left"),
    "text": pd.Index(["ä", "", "x y", "é", None], dtype="string"),
    "levels": pd.MultiIndex.from_arrays(
        [pd.date_range("2024-01-01", periods=5, tz="UTC"), list("abcde"), pd.period_range("2024", periods=5, freq="Y")],
        names=["day", None, "year"],
    ),
}


@pytest.mark.parametrize("kind", INDICES)
def test_every_index_comes_back_from_json(kind: str) -> None:
    frame = pd.DataFrame({"a": [1.5, 2, 3, 4, 5], "when": pd.date_range("2020-01-01", periods=5)}, index=INDICES[kind])
    again = frame_from_json(json.loads(json.dumps(frame_to_json(frame))))
    pd.testing.assert_frame_equal(again, frame, check_freq=True)
    assert again.index.names == frame.index.names


def test_an_explanation_with_an_index_of_dates_comes_back(explanation: Explanation) -> None:
    dates = pd.date_range("2024-01-01", periods=len(explanation), tz="Europe/Berlin", name="day")
    names = ("factuals", "counterfactuals", "status", "outcome", "changed")
    dated = dataclasses.replace(
        explanation,
        **{name: getattr(explanation, name).set_axis(dates) for name in names},
        compute_measures=explanation.measures().set_axis(dates),
    )
    again = Explanation.from_json(dated.to_json())
    pd.testing.assert_frame_equal(again.counterfactuals, dated.counterfactuals)
    pd.testing.assert_frame_equal(again.measures(), dated.measures())

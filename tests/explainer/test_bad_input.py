"""Section 9 of the design: bad input gets an error with words, or a status; never NaN, never silence."""

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath import Explanation, StatusCode
from counterpath.fitting import persistence
from counterpath.utils.errors import CounterpathWarning, InputError, StoreError
from tests.tables import LABEL, features, mixed, small

pytestmark = pytest.mark.filterwarnings("ignore:The :counterpath.utils.errors.CounterpathWarning")
QUICK = {"epochs": 3, "max_steps": 12}


@pytest.fixture(scope="module")
def quick(explainer: cp.Explainer) -> cp.Explainer:
    return copy.copy(explainer).set_params(max_steps=12)


@pytest.fixture
def rows() -> pd.DataFrame:
    return features(mixed(12, seed=1))


def _with(frame: pd.DataFrame, row: int, name: str, value: Any) -> pd.DataFrame:
    changed = frame.copy()
    if changed[name].dtype != object and isinstance(value, str):
        changed[name] = changed[name].astype(object)
    changed.iloc[row, changed.columns.get_loc(name)] = value
    return changed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("score", np.nan, "column 'score', row p4: nan is a missing value"),
        ("score", np.inf, "column 'score', row p4: inf is not finite"),
        ("debt", -np.inf, "column 'debt', row p4: -inf is not finite"),
        ("score", "ten", "column 'score', row p4: 'ten' is not a number"),
        ("debt", -5.0, "column 'debt', row p4: -5.0 is outside what the transform log1p takes"),
        ("score", 1e300, "column 'score', row p4: 1e.300 is too far from the training rows"),
        ("city", None, "column 'city', row p4: .* is a missing value"),
    ],
)
def test_a_bad_value_is_named_with_its_column_and_row(
    quick: cp.Explainer, rows: pd.DataFrame, name: str, value: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        quick.explain(_with(rows, 4, name, value))


def test_a_part_of_a_whole_number_is_refused(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"column 'children', row p4: 1.5 is not a whole number"):
        quick.explain(_with(rows.astype({"children": float}), 4, "children", 1.5))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_value_in_training_is_named_too(people: pd.DataFrame, value: float) -> None:
    with pytest.raises(InputError, match=r"column 'score', row p9: (nan|inf) is"):
        small(missing="error").fit(_with(people, 9, "score", value), LABEL)


def test_missing_and_extra_columns_are_named(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="columns that are missing: city, score"):
        quick.explain(rows.drop(columns=["score", "city"]))
    with pytest.raises(InputError, match="columns too many: shoe"):
        quick.explain(rows.assign(shoe=1))
    with pytest.raises(InputError, match="columns that are there twice: city"):
        quick.explain(pd.concat([rows, rows[["city"]]], axis=1))
    with pytest.raises(InputError, match="a table was expected"):
        quick.explain(rows.iloc[0].to_dict())


@pytest.mark.parametrize(("name", "value"), [("city", "Z"), ("size", "tiny"), ("sex", "X"), ("member", "maybe")])
def test_an_unknown_category_is_told_and_the_others_are_explained(
    quick: cp.Explainer, rows: pd.DataFrame, name: str, value: str
) -> None:
    asked = _with(rows, 4, name, value)
    found, without = quick.explain(asked, "low"), quick.explain(rows.drop(index="p4"), "low")
    assert found.status.loc["p4", "status"] == StatusCode.UNKNOWN_CATEGORY
    assert f"column '{name}', row p4: '{value}' is not a known category; known are:" in found.status.loc["p4", "reason"]
    assert found.counterfactuals.loc["p4"].to_dict() == asked.loc["p4"].to_dict()
    assert found.outcome.loc["p4", ["class_before", "class_after"]].isna().all()
    pd.testing.assert_frame_equal(
        found.counterfactuals.drop(index="p4"), without.counterfactuals, check_dtype=False, check_categorical=False
    )
    pd.testing.assert_frame_equal(found.status.drop(index="p4"), without.status)
    assert len(found.summary()) == 1
    assert "p4" in repr(found)
    with pytest.raises(InputError, match="row 'p4' has no path"):
        found.path("p4")
    again = Explanation.from_json(found.to_json())
    pd.testing.assert_frame_equal(again.counterfactuals, found.counterfactuals)


def test_an_unknown_category_concerns_only_its_row_in_a_prediction(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    asked = _with(rows, 4, "city", "Z")
    said = (
        rf"1 of {len(rows)} rows have a category .* not predicted .*column 'city', row p4: 'Z' is not a known category"
    )
    with pytest.warns(CounterpathWarning, match=said):
        probabilities = quick.predict_proba(asked)
    with pytest.warns(CounterpathWarning, match=said):
        predicted = quick.predict(asked)
    assert probabilities.loc["p4"].isna().all()
    assert predicted["p4"] is pd.NA
    others = rows.drop(index="p4")
    pd.testing.assert_frame_equal(probabilities.drop(index="p4"), quick.predict_proba(others))
    assert predicted.drop(index="p4").tolist() == quick.predict(others).tolist()


def test_all_rows_may_have_an_unknown_category(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    found = quick.explain(rows.assign(city="Z"))
    assert (found.status["status"] == StatusCode.UNKNOWN_CATEGORY).all()
    assert found.measures().isna().all(axis=None)


@pytest.mark.parametrize("dtype", [object, "category", "string"])
def test_dtypes_are_those_of_the_training_table_whatever_was_given(
    quick: cp.Explainer, rows: pd.DataFrame, dtype: Any
) -> None:
    given = rows.astype({"city": dtype, "sex": dtype, "children": "float64"})
    found, expected = quick.explain(given, "low"), quick.explain(rows, "low")
    assert StatusCode.ALREADY in set(found.status["status"])
    pd.testing.assert_frame_equal(found.counterfactuals, expected.counterfactuals, check_exact=True)


def test_an_ordered_category_may_know_fewer_values(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    given = rows.assign(size=rows["size"].cat.remove_unused_categories())
    given = given[given["size"].isin(["small", "huge"])].assign(size=lambda frame: frame["size"].astype(str))
    found = quick.explain(given.assign(size=given["size"].astype("category")), "low")
    assert found.counterfactuals["size"].dtype == rows["size"].dtype


@pytest.mark.usefixtures("brief")
def test_a_constant_never_changes(people: pd.DataFrame) -> None:
    table = people.assign(planet="Earth", year=2024, tax=0.19)
    explainer = small(epochs=15, max_steps=12).fit(table, LABEL)
    found = explainer.explain(table.head(40), "low")
    assert (found.status["status"] == StatusCode.FOUND).sum() > 3
    steps = found.paths
    for name, value in (("planet", "Earth"), ("year", 2024), ("tax", 0.19)):
        assert (found.counterfactuals[name] == value).all()
        assert (steps[name] == value).all()


@pytest.mark.usefixtures("brief")
def test_duplicate_rows_and_few_different_ones_can_be_learned(people: pd.DataFrame) -> None:
    explainer = small(**QUICK).fit(people.iloc[np.tile(np.arange(12), 40)], LABEL)
    assert len(explainer.explain(features(people).head(5))) == 5


def test_equal_rows_only_are_refused(people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="all training rows are equal"):
        small().fit(features(people).iloc[[0] * 50].assign(risk=["low", "high"] * 25), LABEL)


def test_one_class_only_is_refused(people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="'risk' has one class only, 'low'"):
        small().fit(people.assign(risk="low"), LABEL)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_fit_needs_rows(people: pd.DataFrame, count: int) -> None:
    with pytest.raises(InputError, match=f"at least 10 rows; given {count}"):
        small().fit(people.head(count), LABEL)


def test_ten_rows_can_be_learned(people: pd.DataFrame) -> None:
    explainer = small(**QUICK).fit(people.head(10), LABEL)
    assert "training rows, because the table is small" in str(explainer.diagnostics())
    assert len(explainer.explain(features(people).head(3))) == 3


def test_no_rows_give_an_answer_without_rows(quick: cp.Explainer, rows: pd.DataFrame, tmp_path: Path) -> None:
    found = quick.explain(rows.head(0), "low")
    assert len(found) == 0
    whole = quick.explain(rows, "low")
    for name in ("counterfactuals", "paths", "outcome", "changed", "status"):
        some = getattr(found, name)
        assert list(some.columns) == list(getattr(whole, name).columns), name
        assert (some.dtypes == getattr(whole, name).dtypes).all(), name
    assert found.summary()["n"].tolist() == [0]
    assert repr(found)
    assert len(found.changes) == len(found.sentences) == len(found.measures()) == 0
    assert len(Explanation.from_json(found.to_json())) == 0
    assert found.to_csv(tmp_path / "a.csv").exists()
    assert found.to_parquet(tmp_path / "a.parquet").exists()
    assert found.to_html(tmp_path / "a.html").exists()
    assert quick.predict_proba(rows.head(0)).shape == (0, 3)
    assert len(quick.predict(rows.head(0))) == 0


@pytest.mark.usefixtures("brief")
def test_huge_numbers_in_training_are_a_range_like_any_other(people: pd.DataFrame) -> None:
    table = people.assign(huge=np.linspace(-1e300, 1e300, len(people)))
    explainer = small(**QUICK).fit(table, LABEL)
    found = explainer.explain(table.head(20))
    assert found.counterfactuals["huge"].between(-1e300, 1e300).all()
    assert np.isfinite(found.measures()[["l1", "l2_sq"]]).all(axis=None)
    assert found.to_json()


def test_far_outside_the_range_is_brought_back_into_it(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    found = quick.explain(_with(rows, 4, "score", 1e25), method="nearest")
    assert found.counterfactuals["score"].max() < 20
    assert Explanation.from_json(found.to_json()).counterfactuals["score"].max() < 20
    assert repr(found)
    assert set(quick.explain(_with(rows, 4, "score", 1e25)).status["status"]) <= {*StatusCode}


# Labels


def test_labels_that_cannot_be_labels_are_refused(people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="fit needs the labels: target='column'"):
        small(**QUICK).fit(features(people))
    with pytest.raises(InputError, match=r"no target column 'rsik'; it has: city, .*risk"):
        small().fit(people, "rsik")
    with pytest.raises(InputError, match="there are 7 labels for 600 rows"):
        small().fit(features(people), ["low"] * 7)
    with pytest.raises(InputError, match="'risk', row p5: the label is missing"):
        small().fit(_with(people, 5, LABEL, None), LABEL)
    with pytest.raises(InputError, match=r"has 600 different values.*pandas.cut"):
        small(task="classification").fit(people.drop(columns=LABEL), "score")
    with pytest.raises(InputError, match=r"expected text, numbers or truth values.*astype\(str\)"):
        small().fit(people.assign(risk=pd.cut(people["score"], 3)), LABEL)


# Model directories


@pytest.fixture
def folder(quick: cp.Explainer, tmp_path: Path) -> Path:
    return quick.save(tmp_path / "model")


def _forge(folder: Path, **changes: Any) -> None:
    config, tensors = persistence.load(folder)
    persistence.save(folder, {key: value for key, value in {**config, **changes}.items() if value is not ...}, tensors)


def test_a_damaged_directory_is_refused_by_the_name_of_the_file(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"weights.safetensors"):
        cp.load(folder)
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StoreError, match=r"weights.safetensors"):
        cp.load(folder)
    weights.write_bytes(whole)
    (folder / "config.json").unlink()
    with pytest.raises(StoreError, match=r"config.json"):
        cp.load(folder)


def test_a_foreign_or_newer_directory_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        cp.load(tmp_path / "nothing")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.bin").write_bytes(b"weights")
    with pytest.raises(StoreError, match="foreign"):
        cp.load(tmp_path / "foreign")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(StoreError, match=r"newer|version"):
        cp.load(folder)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_is_never_loaded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Bomb()))
    shutil.copytree(folder, tmp_path / "posing")
    (tmp_path / "posing" / "weights.safetensors").write_bytes(pickle.dumps(Bomb()))
    for path in ("model.pkl", "posing"):
        with pytest.raises(StoreError):
            cp.load(tmp_path / path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "key", ["encoder", "generator", "explained", "classes", "parameters", "diagnostics", "imputer"]
)
def test_a_config_that_lacks_something_is_refused(folder: Path, key: str) -> None:
    _forge(folder, **{key: ...})
    with pytest.raises(StoreError, match="do not fit together"):
        cp.load(folder)


def test_a_config_with_other_parameters_or_sizes_is_refused(folder: Path) -> None:
    config, _ = persistence.load(folder)
    _forge(folder, parameters={**config["parameters"], "invented": 1})
    with pytest.raises(StoreError, match="invented"):
        cp.load(folder)
    _forge(folder, parameters=config["parameters"], generator={**config["generator"], "latent": 7})
    with pytest.raises(StoreError, match="do not fit together"):
        cp.load(folder)


def test_a_folder_with_something_else_is_not_overwritten(quick: cp.Explainer, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError):
        quick.save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from counterpath.batch.results import explain_rows
from counterpath.explainer.explainer import Explainer

REQUEST = {"target_class": "yes", "method": "nearest", "paths": "end"}


@pytest.fixture
def some(loans: pd.DataFrame) -> pd.DataFrame:
    return loans.drop(columns="loan").head(12).set_axis(pd.RangeIndex(100, 112))


def test_results_are_those_of_explain(fitted: Explainer, some: pd.DataFrame) -> None:
    result = fitted.explain(some, **REQUEST)
    table = explain_rows(fitted, REQUEST, some, source="here").counterfactuals.to_pandas()
    assert table["row"].tolist() == some.index.tolist()
    assert set(table["source"]) == {"here"}
    for name in ("status", "reason", "fallback"):
        assert table[name].tolist() == result.status[name].tolist()
    for name in ("binding", "unseen", "follows", "retrained", "imputed"):
        assert [list(values) for values in table[name]] == result.status[name].tolist()
    for name in some:
        assert table[name].tolist() == result.counterfactuals[name].tolist()
    for name, values in result.measures().items():
        np.testing.assert_array_equal(table[name], values)
    np.testing.assert_array_equal(table["probability_after"], result.outcome["probability_after"])


@pytest.mark.parametrize("more", [{}, {"paths": "milestones", "plans": 2}], ids=["end", "milestones"])
def test_a_row_has_the_same_result_whatever_rows_are_beside_it(
    fitted: Explainer, some: pd.DataFrame, more: dict[str, Any]
) -> None:
    """With rows that spoil the types of their columns, too."""
    request, strange = REQUEST | more, some.astype(object)
    strange.loc[101, "age"], strange.loc[102, "age"], strange.loc[103, "income"] = None, "old", np.inf
    strange.loc[104, "job"], strange.loc[105, "owner"] = "pilot", "maybe"
    ids = pa.table({"who": [f"w{label}" for label in some.index]})
    whole = explain_rows(fitted, request, strange, ids, "s")
    alone = [
        explain_rows(fitted, request, strange.iloc[[index]], ids.slice(index, 1), "s") for index in range(len(some))
    ]
    assert pa.concat_tables([one.counterfactuals for one in alone]).equals(whole.counterfactuals)
    if whole.milestones is not None:
        tables = [one.milestones for one in alone if one.milestones is not None]
        assert pa.concat_tables(tables).equals(whole.milestones)


def test_rows_that_cannot_be_used_say_why_and_the_others_are_explained(fitted: Explainer, some: pd.DataFrame) -> None:
    strange = some.astype(object)
    strange.loc[101, "age"], strange.loc[102, "age"], strange.loc[103, "income"] = None, "old", np.inf
    strange.loc[105, "owner"] = "maybe"
    found = explain_rows(fitted, REQUEST, strange)
    table = found.counterfactuals.to_pandas().set_index("row")
    assert table.index[table["status"] == "unusable"].tolist() == [101, 102, 103]
    assert "column 'age', row 101" in table.loc[101, "reason"]
    assert "'old' is not a number" in table.loc[102, "reason"]
    assert "inf is not finite" in table.loc[103, "reason"]
    assert table.loc[[101, 102, 103], list(some)].isna().all(axis=None)
    assert table.loc[105, "status"] == "unknown_category"
    assert pd.isna(table.loc[105, "owner"])
    assert table.loc[105, "job"] == some.loc[105, "job"]
    usable = some.drop(index=[101, 102, 103, 105])
    expected = fitted.explain(usable, **REQUEST)
    assert table.loc[usable.index, "status"].tolist() == expected.status["status"].tolist()
    assert found.status["unusable"] == 3
    assert sum(found.status.values()) == len(some)


def test_rows_outside_a_range_are_led_into_it_unless_they_must_stay_within(
    fitted: Explainer, some: pd.DataFrame
) -> None:
    low, high = int(some["age"].quantile(0.3)), int(some["age"].quantile(0.7))
    outside = ~some["age"].between(low, high).to_numpy()
    assert outside.any()
    ended, stayed = (
        explain_rows(fitted, REQUEST | {kind: {"age": [low, high]}}, some).counterfactuals.to_pandas()
        for kind in ("ranges", "stay_within")
    )
    assert (stayed["status"] == "outside").tolist() == outside.tolist()
    found = ended["status"].isin(["found", "crosses_gap", "already"])
    assert found[outside].any()
    assert ended["age"][found].between(low, high).all()


def test_nothing_but_rows_that_cannot_be_used(fitted: Explainer, some: pd.DataFrame) -> None:
    found = explain_rows(fitted, REQUEST, some.assign(age=np.nan))
    assert found.status == {"unusable": len(some)}
    assert found.measures["l1"] == (0, 0.0, 0.0)
    assert found.counterfactuals.schema.equals(explain_rows(fitted, REQUEST, some).counterfactuals.schema)


def test_columns_of_a_file_are_constraints_of_its_rows(fitted: Explainer, some: pd.DataFrame) -> None:
    own = pd.DataFrame({"age.lock": [True] * 12, "income.low": ["1000"] * 12, "target_class": ["yes"] * 12})
    own.loc[[1, 2], ["income.low", "target_class"]] = [["much", "yes"], ["1000", "perhaps"]]
    request = REQUEST | {"method": "geodesic", "constraint_columns": list(own)}
    found = explain_rows(fitted, request, some, pa.Table.from_pandas(own, preserve_index=False))
    table = found.counterfactuals.to_pandas().set_index("row")
    assert table.index[table["status"] == "unusable"].tolist() == [101, 102]
    assert "row 101" in table.loc[101, "reason"]
    assert "'much'" in table.loc[101, "reason"]
    assert table.loc[102, "reason"].startswith("the constraints of row 102: the target class 'perhaps' does not exist")
    good = table[table["status"].isin(["found", "crosses_gap", "implausible"])]
    assert len(good)
    assert (good["age"] == some.loc[good.index, "age"]).all()
    assert (good["income"] >= 1000).all()


def test_imputed_columns_are_named(model_folder: Path, fitted: Explainer, loans: pd.DataFrame) -> None:
    from counterpath.data.impute import Imputer

    imputing = copy.copy(fitted)
    imputing.imputer_ = Imputer.fit(loans.drop(columns="loan"), fitted.schema_)
    rows = loans.drop(columns="loan").head(3).astype({"age": float})
    rows.loc[1, "age"] = np.nan
    table = explain_rows(imputing, REQUEST, rows).counterfactuals.to_pandas()
    assert [list(names) for names in table["imputed"]] == [[], ["age"], []]
    assert "unusable" not in table["status"].tolist()


def test_every_plan_has_a_row(fitted: Explainer, some: pd.DataFrame) -> None:
    found = explain_rows(fitted, REQUEST | {"plans": 3}, some)
    table = found.counterfactuals.to_pandas()
    assert table["row"].tolist() == np.repeat(some.index, 3).tolist()
    assert table["plan"].tolist() == [1, 2, 3] * len(some)
    assert sum(found.status.values()) == len(some)


def test_sums_are_over_the_rows_that_were_found(fitted: Explainer, some: pd.DataFrame) -> None:
    found = explain_rows(fitted, REQUEST, some)
    table = found.counterfactuals.to_pandas()
    l1 = table.loc[table["status"] == "found", "l1"]
    assert len(l1) > 0
    assert found.measures["l1"] == (len(l1), pytest.approx(l1.sum()), pytest.approx((l1**2).sum()))

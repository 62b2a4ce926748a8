"""The same script with one import changed: by DiCE itself where it is installed, and by the adapter."""

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from counterpath.explainer.adapters import dice_ml as adapter
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.tables import SMALL

NUMBERS = ["age", "income"]


@pytest.fixture(scope="module")
def table(loans: pd.DataFrame) -> pd.DataFrame:
    return loans[["age", "income", "job", "sex"]].assign(loan=(loans["loan"] == "yes").astype(int))


@pytest.fixture(scope="module")
def features(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="loan")


def pipeline(last: Any) -> Any:
    return make_pipeline(make_column_transformer((OneHotEncoder(), ["job", "sex"]), (StandardScaler(), NUMBERS)), last)


@pytest.fixture(scope="module")
def model(table: pd.DataFrame, features: pd.DataFrame) -> Any:
    return pipeline(LogisticRegression()).fit(features, table["loan"])


@pytest.fixture(scope="module")
def dice(table: pd.DataFrame, model: Any) -> adapter.Dice:
    data = adapter.Data(dataframe=table, continuous_features=NUMBERS, outcome_name="loan")
    return adapter.Dice(data, adapter.Model(model=model, backend="sklearn"), device="cpu", **SMALL)


def script(dice_ml: ModuleType, table: pd.DataFrame, model: Any, rows: pd.DataFrame, **options: Any) -> Any:
    """As DiCE's own documentation has it."""
    data = dice_ml.Data(dataframe=table, continuous_features=["age", "income"], outcome_name="loan")
    explained = dice_ml.Model(model=model, backend="sklearn")
    found = dice_ml.Dice(data, explained, method="random", **options).generate_counterfactuals(
        rows,
        total_CFs=3,
        desired_class="opposite",
        features_to_vary=["income", "job"],
        permitted_range={"income": [500, 40000]},
    )
    found.visualize_as_dataframe(show_only_changes=True)
    return found


@pytest.mark.parametrize("name", ["adapter", "dice_ml"])
@pytest.mark.filterwarnings("ignore")  # DiCE's own
def test_a_script_runs_with_either_import(
    name: str, table: pd.DataFrame, features: pd.DataFrame, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = name == "dice_ml"
    library = pytest.importorskip("dice_ml") if theirs else adapter
    rows = features[model.predict(features) == 0].head(2)
    found = script(library, table, model, rows, **({} if theirs else SMALL | {"device": "cpu"}))
    assert len(found.cf_examples_list) == 2
    for number, each in enumerate(found.cf_examples_list):
        assert list(each.final_cfs_df.columns) == list(each.test_instance_df.columns) == list(table.columns)
        assert 1 <= len(each.final_cfs_df) <= 3
        assert model.predict(each.final_cfs_df[list(features.columns)]).tolist() == [1] * len(each.final_cfs_df)
        assert each.final_cfs_df["loan"].tolist() == [1] * len(each.final_cfs_df)
        assert each.test_instance_df["loan"].tolist() == [0]
        assert (each.final_cfs_df["age"] == rows["age"].iloc[number]).all()
        assert each.final_cfs_df["income"].between(500, 40000).all()
        assert each.new_outcome == 1
    said = capsys.readouterr().out
    assert "Query instance (original outcome : 0)" in said
    assert "ounterfactual set (new outcome: 1" in said


@pytest.mark.filterwarnings("ignore")  # DiCE's own
def test_dice_reads_the_json_that_is_written(dice: adapter.Dice, features: pd.DataFrame, model: Any) -> None:
    real = pytest.importorskip("dice_ml.counterfactual_explanations")
    rows = features[model.predict(features) == 0].head(2)
    found = dice.global_feature_importance(rows, total_CFs=2)
    read = real.CounterfactualExplanations.from_json(found.to_json())
    assert read.summary_importance == pytest.approx(found.summary_importance)
    for ours, theirs in zip(found.cf_examples_list, read.cf_examples_list, strict=True):
        assert ours.final_cfs_df is not None
        assert theirs.final_cfs_df.to_numpy().tolist() == ours.final_cfs_df.astype(object).to_numpy().tolist()
    changed = [
        each.final_cfs_df["income"].ne(each.test_instance_df["income"].iloc[0]) for each in found.cf_examples_list
    ]
    assert found.summary_importance["income"] == pytest.approx(np.concatenate(changed).mean())


def test_a_function_before_the_model_is_called(table: pd.DataFrame, features: pd.DataFrame) -> None:
    logarithm = pipeline(LogisticRegression())

    def transform(frame: pd.DataFrame, base: float) -> pd.DataFrame:
        return frame.assign(income=np.log(frame["income"]) / np.log(base))

    logarithm.fit(transform(features, 2.0), table["loan"])
    model = adapter.Model(model=logarithm, func=transform, kw_args={"base": 2.0})
    data = adapter.Data(dataframe=table, continuous_features=NUMBERS, outcome_name="loan")
    dice = adapter.Dice(data, model, method="nearest", device="cpu", **SMALL)
    row = features[logarithm.predict(transform(features, 2.0)) == 0].head(1)
    (found,) = dice.generate_counterfactuals(row, 1, desired_class=1).cf_examples_list
    assert found.final_cfs_df is not None
    assert logarithm.predict(transform(found.final_cfs_df[list(features.columns)], 2.0)).tolist() == [1]


def test_a_regressor_is_asked_for_a_range(table: pd.DataFrame, features: pd.DataFrame) -> None:
    scaled = FunctionTransformer(np.log)
    amounts = features.drop(columns="income").assign(limit=scaled.transform(features["income"]) * 10)
    regressor = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["job", "sex"]), remainder="passthrough"), LinearRegression()
    ).fit(features, amounts["limit"])
    data = adapter.Data(
        dataframe=features.assign(limit=amounts["limit"]), continuous_features=NUMBERS, outcome_name="limit"
    )
    dice = adapter.Dice(data, adapter.Model(model=regressor, model_type="regressor"), device="cpu", **SMALL)
    before = regressor.predict(features.head(1))[0]
    (found,) = dice.generate_counterfactuals(
        features.head(1), 1, desired_range=[before + 1, before + 9]
    ).cf_examples_list
    assert found.final_cfs_df is not None
    after = regressor.predict(found.final_cfs_df[list(features.columns)])
    assert before + 1 <= after[0] <= before + 9
    with pytest.raises(InputError, match="desired_range is None; of a regressor"):
        dice.generate_counterfactuals(features.head(1), 1)


def test_what_tunes_dice_is_said_to_be_unused_and_what_nobody_knows_is_refused(
    dice: adapter.Dice, features: pd.DataFrame
) -> None:
    row = features[dice.explainer.predict(features).to_numpy() == 0].head(1)
    with pytest.warns(CounterpathWarning, match="proximity_weight, random_seed: set for the search of DiCE"):
        dice.generate_counterfactuals(row, 1, proximity_weight=0.5, random_seed=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'proximity'"):
        dice.generate_counterfactuals(row, 1, proximity=0.5)


def test_what_cannot_be_asked_is_named(dice: adapter.Dice, features: pd.DataFrame, table: pd.DataFrame) -> None:
    row = features[dice.explainer.predict(features).to_numpy() == 0].head(1)
    for options, said in (
        ({"features_to_vary": ["hight"]}, "features_to_vary has 'hight'"),
        ({"desired_class": 7}, "desired_class is 7; expected 'opposite' or a whole number from 0 to 1"),
        ({"desired_range": [0, 1]}, "desired_range is for regressors"),
        ({"features_to_vary": ["sex"], "stopping_threshold": 0.999}, "No counterfactuals found"),
    ):
        with pytest.raises(InputError, match=said):
            dice.generate_counterfactuals(row, 1, **options)
    with pytest.raises(InputError, match="private data, is not enough"):
        adapter.Data(features={"age": [0, 100]}, outcome_name="loan")
    with pytest.raises(InputError, match="backend='PYT'"):
        adapter.Model(model=object(), backend="PYT")
    with pytest.raises(InputError, match="continuous_features has 'hight'"):
        adapter.Data(dataframe=table, continuous_features=["hight"], outcome_name="loan")

"""Order, split, duplicates, table library, files and processes do not change an answer by a bit."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor, nn

import counterpath as cp
from counterpath import Explanation
from counterpath.utils.errors import InputError
from tests.explainer.conftest import shorten_classifier, shorten_surrogate
from tests.tables import LABEL, features, mixed, small

ROWS = 60
QUICK = {"epochs": 3, "max_steps": 12}
pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore:The generative model:counterpath.utils.errors.CounterpathWarning"),
]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return features(mixed(ROWS, seed=1))


@pytest.fixture(scope="module")
def quick(explainer: cp.Explainer) -> cp.Explainer:
    return copy.copy(explainer).set_params(max_steps=12)


def assert_same(first: Explanation, second: Explanation) -> None:
    """Everything that was found is the same, bit for bit."""
    for name in ("counterfactuals", "paths", "status", "outcome", "changed", "landscape"):
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name), check_exact=True, obj=name)
    pd.testing.assert_frame_equal(first.measures(), second.measures(), check_exact=True)


@pytest.mark.parametrize("method", ["geodesic", "rsgd", "rsgd-c", "face", "nearest"])
def test_any_order_and_any_split_gives_the_same_bits(quick: cp.Explainer, rows: pd.DataFrame, method: str) -> None:
    whole = quick.explain(rows, method=method, confidence=0.6)
    order = np.random.default_rng(0).permutation(ROWS)
    assert_same(quick.explain(rows.iloc[order], method=method, confidence=0.6), whole.select(rows.index[order]))
    for first, last in ((0, 1), (1, 2), (2, 37), (37, ROWS)):
        part = quick.explain(rows.iloc[first:last], method=method, confidence=0.6)
        assert_same(part, whole.select(rows.index[first:last]))


def test_equal_rows_get_equal_answers_also_under_equal_labels(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    twice = quick.explain(rows.iloc[[3, 5, 3, 3]].set_axis(["a", "a", "b", "a"]), "high")
    assert twice.counterfactuals.index.tolist() == ["a", "a", "b", "a"]
    for name in ("counterfactuals", "status", "outcome"):
        frame = getattr(twice, name).reset_index(drop=True)
        pd.testing.assert_frame_equal(
            frame.iloc[[0, 0]].reset_index(drop=True), frame.iloc[[2, 3]].reset_index(drop=True)
        )
    paths = [twice.path(place) for place in (0, 2, 3)]
    for path in paths[1:]:
        pd.testing.assert_frame_equal(paths[0], path, check_exact=True)


def test_two_fits_with_one_seed_are_the_same(quick: cp.Explainer, people: pd.DataFrame, rows: pd.DataFrame) -> None:
    again = small(max_steps=12).fit(people, LABEL)
    assert_same(again.explain(rows.head(9)), quick.explain(rows.head(9)))


@pytest.mark.usefixtures("brief")
def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path, people: pd.DataFrame, rows: pd.DataFrame) -> None:
    first = small(**QUICK).fit(people, LABEL, checkpoint=tmp_path)
    assert any(tmp_path.iterdir())
    second = small(**QUICK).fit(people, LABEL, checkpoint=tmp_path)
    assert_same(first.explain(rows.head(5)), second.explain(rows.head(5)))


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_tables_of_other_libraries_get_the_same_answers(
    quick: cp.Explainer, people: pd.DataFrame, rows: pd.DataFrame, convert: object
) -> None:
    plain = rows.head(20).reset_index(drop=True)
    assert callable(convert)
    asked = quick.explain(convert(plain), "low")
    expected = quick.explain(plain, "low")
    assert asked.pandas.counterfactuals.to_dict() == expected.counterfactuals.to_dict()
    pd.testing.assert_frame_equal(asked.pandas.status, expected.status)
    one, other = (
        small(**QUICK).fit(table, LABEL, schema=quick.schema_)
        for table in (people, convert(people.reset_index(drop=True)))
    )
    pd.testing.assert_frame_equal(one.predict_proba(plain), other.predict_proba(plain), check_exact=True)


# Files and processes

SCRIPT = """
import sys
from pathlib import Path

import pandas as pd

import counterpath as cp
from tests.explainer.test_same_answers import KINDS, REQUEST

folder = Path(sys.argv[1])
for kind, options in KINDS.items():
    found = cp.load(folder / kind, **options()).explain(pd.read_parquet(folder / "rows.parquet"), **REQUEST)
    found.to_json(folder / f"{kind}.json")
"""
REQUEST = {"target_class": "low", "confidence": 0.6, "method": "rsgd-c"}


def forest(seed: int = 0) -> RandomForestClassifier:
    """The same forest in every process: a pipeline on the table as it is, with its text."""
    frame = mixed()
    text = make_column_transformer((OneHotEncoder(), ["city", "size", "sex"]), remainder="passthrough")
    return make_pipeline(text, RandomForestClassifier(30, max_depth=6, random_state=seed)).fit(
        features(frame), frame[LABEL]
    )


class Net(nn.Module):
    """A user's own torch model: three logits, and code of its own between the layers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(18, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return 5 * self.last(torch.relu(self.first(x)))


class Pca(nn.Module):
    """A user's own generator: a random projection and its transpose."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.axes = nn.Parameter(torch.linalg.qr(torch.randn(18, 18))[0][:, :12])

    def encode(self, x: Tensor) -> Tensor:
        return x @ self.axes

    def decode(self, z: Tensor) -> Tensor:
        return z @ self.axes.T


KINDS = {
    "own": dict,
    "forest": lambda: {"model": forest()},
    "torch": lambda: {"model": Net()},
    "generator": lambda: {"generator": Pca()},
}


@pytest.fixture(scope="module")
def fitted(quick: cp.Explainer, people: pd.DataFrame) -> dict[str, cp.Explainer]:
    with pytest.MonkeyPatch.context() as patch:
        shorten_surrogate(patch, 100, rows=30)
        shorten_classifier(patch)
        others = {
            kind: small(**QUICK).fit(people, LABEL, **options())  # type: ignore[arg-type]
            for kind, options in KINDS.items()
            if kind != "own"
        }
    return {"own": quick, **others}


@pytest.mark.slow
def test_a_new_process_gives_the_same_bits(fitted: dict[str, cp.Explainer], rows: pd.DataFrame, tmp_path: Path) -> None:
    for kind in KINDS:
        fitted[kind].save(tmp_path / kind)
    few = rows.head(25)
    few.to_parquet(tmp_path / "rows.parquet")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True, env=environment)
    for kind in KINDS:
        here = fitted[kind].explain(few, **REQUEST)
        assert_same(Explanation.from_json(tmp_path / f"{kind}.json"), Explanation.from_json(here.to_json()))


def test_all_that_was_learned_comes_back(explainer: cp.Explainer, tmp_path: Path) -> None:
    again = cp.load(explainer.save(tmp_path / "model"))
    assert again.get_params() == explainer.get_params()
    assert (again.classes_, again.schema_, again.target_) == (explainer.classes_, explainer.schema_, LABEL)
    assert str(again.diagnostics()) == str(explainer.diagnostics())


def test_the_files_hold_no_model_of_the_user_and_ask_for_it(fitted: dict[str, cp.Explainer], tmp_path: Path) -> None:
    for kind, name in (("forest", "sklearn.pipeline.Pipeline"), ("torch", "Net"), ("generator", "Pca")):
        fitted[kind].save(tmp_path / kind)
        with pytest.raises(InputError, match=rf"{name}, which is not stored with it"):
            cp.load(tmp_path / kind)
    fitted["own"].save(tmp_path / "own")
    with pytest.raises(InputError, match="without a model of yours"):
        cp.load(tmp_path / "own", model=Net())
    with pytest.raises(InputError, match="without a generator of yours"):
        cp.load(tmp_path / "own", generator=Pca())


def test_another_model_than_the_one_of_the_fit_is_refused(fitted: dict[str, cp.Explainer], tmp_path: Path) -> None:
    fitted["torch"].save(tmp_path / "torch")
    with pytest.raises(InputError, match="predicts otherwise than"):
        cp.load(tmp_path / "torch", model=Net(seed=1))
    fitted["forest"].save(tmp_path / "forest")
    with pytest.raises(InputError, match="predicts otherwise than"):
        cp.load(tmp_path / "forest", model=forest(seed=1))
    with pytest.raises(InputError, match="cannot be asked for probabilities"):
        cp.load(tmp_path / "forest", model="forest")

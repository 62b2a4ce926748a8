"""The recipe for Spark, called as Spark calls it: with batches of pandas, cut anywhere."""

import importlib.util
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import counterpath as cp
from counterpath.batch import run
from counterpath.explanation.io import STATUS_TYPES
from counterpath.utils.errors import InputError
from tests.tables import features, mixed

from .inline import Inline

IDS = pa.schema([("case", pa.int64()), ("note", pa.string())])
REQUEST = {"target_class": "low", "method": "nearest", "plans": 2}
CUTS = ([0, 30], [0, 1, 1, 8, 30], [0, 0, 29, 30, 30])


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "spark.py"
    spec = importlib.util.spec_from_file_location("recipe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(explainer: cp.Explainer, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(explainer.save(tmp_path_factory.mktemp("spark") / "model"))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Rows as Spark hands them over: no categorical columns, gaps, and some that cannot be explained."""
    frame = features(mixed(30, seed=3)).astype({"size": str, "children": float}).reset_index(drop=True)
    frame.loc[4, "city"] = "never seen"
    frame.loc[[7, 29], "debt"] = float("nan")
    frame.insert(0, "case", [2**53 + 1 + number for number in range(30)])  # floating-point numbers cannot hold these
    frame.insert(1, "note", [None if number % 3 else f"note {number}" for number in range(30)])
    return frame


@pytest.fixture(scope="module")
def batch(model: str, rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """What a batch job makes of the same rows, without their numbers, which Spark does not know."""
    folder = tmp_path_factory.mktemp("batch")
    typed = pa.unify_schemas([IDS, pa.Schema.from_pandas(rows.drop(columns=IDS.names), preserve_index=False)])
    pq.write_table(pa.Table.from_pandas(rows, typed), folder / "rows.parquet")
    run(
        model,
        folder / "rows.parquet",
        folder / "out",
        Inline(),
        {**REQUEST, "paths": "end"},
        ids=IDS.names,
        shard_rows=11,
    )
    parts = sorted((folder / "out").glob("counterfactuals/*"))
    table = pa.concat_tables(pq.read_table(part) for part in parts).drop_columns(["source", "row"])
    index = table.column_names.index("reason")
    reasons = [re.sub(r", row (7|29|4):", ":", reason) for reason in table["reason"].to_pylist()]
    return table.set_column(index, "reason", pa.array(reasons)).replace_schema_metadata()


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_any_batches_give_the_rows_of_a_batch_job(
    recipe: ModuleType, model: str, rows: pd.DataFrame, batch: pa.Table, cuts: list[int]
) -> None:
    batches = (rows[start:end] for start, end in pairwise(cuts))
    schema = recipe.columns(cp.load(model), REQUEST, IDS)
    tables = [
        pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata()
        for frame in recipe.explained(batches, model, REQUEST, IDS)
    ]
    assert len(tables) == len(cuts) - 1, "one table for every batch, also for those without rows"
    assert pa.concat_tables(tables).equals(batch)


def test_rows_that_cannot_be_explained_are_among_them(batch: pa.Table) -> None:
    reasons = batch.filter(pa.compute.equal(batch["plan"], 1))["reason"].to_pylist()
    assert reasons[7].startswith("column 'debt': nan is a missing value")
    assert "(column 'city': 'never seen' is not a known category" in reasons[4]


def test_every_batch_has_the_same_columns_and_dtypes(recipe: ModuleType, model: str, rows: pd.DataFrame) -> None:
    few = {"target_class": "low", "method": "nearest"}
    empty, gap, plain = recipe.explained(iter([rows[:0], rows[7:8], rows[8:9]]), model, few, IDS)
    assert empty.dtypes.to_dict() == gap.dtypes.to_dict() == plain.dtypes.to_dict()
    assert list(plain) == recipe.columns(cp.load(model), few, IDS).names


def test_names_and_types_are_those_of_spark(recipe: ModuleType) -> None:
    schema = pa.schema([("a-b", pa.string()), ("c`d", pa.int64()), ("e", pa.float64()), ("f", pa.bool_())])
    assert recipe.ddl(schema) == "`a-b` string, `c``d` bigint, `e` double, `f` boolean"
    binding = pa.schema([("binding", STATUS_TYPES["binding"]), ("imputed", STATUS_TYPES["imputed"])])
    constraint = "struct<kind: string, feature: string, reach: double>"
    assert recipe.ddl(binding) == f"`binding` array<{constraint}>, `imputed` array<string>"
    with pytest.raises(InputError, match=r"'day' is of type date32.*cast it to one of: string, bigint"):
        recipe.ddl(pa.schema([("day", pa.date32())]))

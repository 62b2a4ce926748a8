"""Rows in Spark: a function for `DataFrame.mapInPandas`, which needs no Spark to be tried.

    python examples/spark.py                                  the function on batches of pandas, as Spark calls it
    spark-submit examples/spark.py MODEL ROWS.parquet OUT applicant      the same in Spark

`counterpath batch` reads files and writes files. Where rows are in Spark already, Spark cuts them into batches, starts
the workers and tries again what fails; all that is left to do is to explain a batch, exactly as a batch job does. A row
has no number there, so name a column by which to know it again. The model directory must be readable under the same
path on every machine, and Counterpath be installed there.
"""

import functools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import torch

import counterpath as cp
from counterpath.batch.results import ORIGIN, counterfactuals_schema, explain_rows
from counterpath.utils.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_TYPES = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
PANDAS_TYPES = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
"""Types that can hold a gap: without them, one gap in a batch makes floating-point numbers of whole ones."""

NUMBER = r"(?<='), row \d+:"
"""How a reason names a row that cannot be used: by its number, which here is that in its batch and means nothing."""


def loaded(model: str) -> cp.Explainer:
    """The model in a directory, with one thread, because Spark starts a Python process for every core."""
    torch.set_num_threads(1)
    return cp.Explainer.load(model, device="cpu").set_params(progress=False)


def explained(
    batches: Iterator[pd.DataFrame], model: str, request: Mapping[str, Any], ids: pa.Schema
) -> Iterator[pd.DataFrame]:
    """Explain batch after batch; a row's result does not depend on which others are in its batch.

    Args:
        batches: Tables with the features of the model and the columns of `ids`.
        model: The model directory.
        request: The request, as arguments of `Explainer.explain`.
        ids: Columns that are copied to the results, with their types.

    Yields:
        Tables with the columns that `columns` names, one row a row, or one for each row and plan.
    """
    explainer = loaded(model)  # once a task; a cache of ours would not do, because Spark sends functions anew with each
    for batch in batches:
        rows = batch.reset_index(drop=True)
        copied = pa.Table.from_pandas(rows[ids.names], ids, preserve_index=False).replace_schema_metadata()
        found = explain_rows(explainer, {**request, "paths": "end"}, rows[list(explainer.schema_.names)], copied)
        table = found.counterfactuals.drop_columns(list(ORIGIN)).to_pandas(types_mapper=PANDAS_TYPES.get)
        table["reason"] = table["reason"].str.replace(NUMBER, ":", regex=True)
        yield table


def columns(explainer: cp.Explainer, request: Mapping[str, Any], ids: pa.Schema) -> pa.Schema:
    """The columns of what `explained` yields: those of a batch job, but for the file and the row number."""
    schema = counterfactuals_schema(explainer.schema_, explainer.classes_, ids, request.get("plans", 1))
    return pa.schema([field for field in schema if field.name not in ORIGIN])


def ddl(schema: pa.Schema) -> str:
    """The same columns in Spark's own form: `age` bigint, and so on."""
    names = {field.name: field.name.replace("`", "``") for field in schema}
    return ", ".join(f"`{names[field.name]}` {_spark_type(field.type, field.name)}" for field in schema)


def _spark_type(kind: pa.DataType, column: str) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type, column)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_spark_type(field.type, column)}' for field in kind)}>"
    if kind not in SPARK_TYPES:
        known = ", ".join(SPARK_TYPES.values())
        raise InputError(f"column {column!r} is of type {kind}; cast it to one of: {known}")
    return SPARK_TYPES[kind]


def in_spark(people: "DataFrame", model: str, request: Mapping[str, Any], ids: Sequence[str]) -> "DataFrame":
    """The rows of a Spark table explained, as a Spark table; nothing is computed before its rows are needed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    explainer = loaded(model)
    copied = to_arrow_schema(people.select(*(f"`{name}`" for name in ids)).schema)
    needed = people.select(*(f"`{name}`" for name in (*ids, *explainer.schema_.names)))
    explain = functools.partial(explained, model=model, request=request, ids=copied)
    return needed.mapInPandas(explain, ddl(columns(explainer, request, copied)))


def main() -> None:
    """Without Spark: explain the same people in two ways to cut them into batches, and compare."""
    data = cp.datasets.load("adult-carla")
    explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=40, seed=0, progress=False)
    explainer.fit(data.train.sample(2000, random_state=0), target=data.target, schema=data.schema)
    people = data.test.drop(columns=data.target).head(60).reset_index(drop=True)
    people.insert(0, "applicant", [f"a{number:05d}" for number in range(len(people))])
    request, ids = {"target_class": 1, "confidence": 0.6}, pa.schema([("applicant", pa.string())])
    print("The columns in Spark:", ddl(columns(explainer, request, ids)), "\n")

    with tempfile.TemporaryDirectory() as folder:
        model = str(explainer.save(Path(folder) / "model"))
        uneven = (people[start:end] for start, end in ((0, 1), (1, 40), (40, 40), (40, 60)))
        found = pd.concat(explained(uneven, model, request, ids), ignore_index=True)
        whole = pd.concat(explained(iter([people]), model, request, ids), ignore_index=True)
    print(found[["applicant", "status", "education-num", "hours-per-week", "probability_after"]].head(5), "\n")
    print(found["status"].value_counts().to_dict())
    print("Other batches give the same results:", found.equals(whole))


def submitted(model: str, rows: str, out: str, *ids: str) -> None:
    """With Spark: from Parquet to Parquet."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("counterpath").getOrCreate()
    results = in_spark(spark.read.parquet(rows), model, {"target_class": 1, "method": "nearest"}, ids)
    results.write.mode("overwrite").parquet(out)
    spark.read.parquet(out).groupBy("status").count().orderBy("status").show()


if __name__ == "__main__":
    submitted(*sys.argv[1:]) if len(sys.argv) > 1 else main()

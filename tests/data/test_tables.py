import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from counterpath.data import Encoder, Schema
from counterpath.data.schema import Feature
from counterpath.data.tables import READERS, UNKNOWN, read_table, to_numbers, to_pandas
from counterpath.utils.errors import InputError

FRAME = pd.DataFrame({"age": [20, 60, 35], "city": ["Rome", "Oslo", "Bonn"], "height": [1.5, 1.75, 2.0]})
WRITERS = {
    ".csv": lambda path: FRAME.to_csv(path, index=False),
    ".csv.gz": lambda path: FRAME.to_csv(path, index=False),
    ".tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    ".tsv.gz": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda path: FRAME.to_parquet(path),
    ".json": lambda path: FRAME.to_json(path, orient="records"),
    ".jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
}


def polars_table():
    polars = pytest.importorskip("polars", reason="polars is not installed; the extra dev has it")
    return polars.from_arrow(pa.Table.from_pandas(FRAME))


@pytest.mark.parametrize("make", [lambda: FRAME, lambda: pa.Table.from_pandas(FRAME), polars_table])
def test_tables_of_every_library_are_welcome(make):
    table = make()
    frame = to_pandas(table)
    pd.testing.assert_frame_equal(frame, FRAME)
    assert Schema.infer(table) == Schema.infer(FRAME)
    fitted = Encoder.fit(frame, Schema.infer(table))
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(frame)), FRAME)


def test_a_pandas_table_is_not_copied():
    assert to_pandas(FRAME) is FRAME


def test_gaps_in_polars_tables_are_missing_values():
    polars = pytest.importorskip("polars", reason="polars is not installed; the extra dev has it")
    table = polars.DataFrame({"n": [1, None, 3, 4], "b": [True, None, False, True], "t": ["a", None, "b", "c"]})
    assert [feature.kind for feature in Schema.infer(table)] == ["integer", "boolean", "categorical"]


@pytest.mark.parametrize("table", [[[1, 2]], {"a": [1]}, None, FRAME["age"], FRAME.to_numpy()])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(InputError, match=r"a table was expected.*was given; try pandas.DataFrame"):
        to_pandas(table)


def test_a_lazy_table_must_be_collected():
    with pytest.raises(InputError, match=r"LazyFrame was given.*\.collect\(\)"):
        to_pandas(polars_table().lazy())


@pytest.mark.parametrize("suffix", READERS)
def test_files_of_every_kind_are_read(tmp_path, suffix):
    path = tmp_path / f"people.of.2020{suffix}"
    WRITERS[suffix](path)
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    pd.testing.assert_frame_equal(read_table(str(path)), FRAME)


def test_suffixes_in_capitals_are_the_same(tmp_path):
    (tmp_path / "PEOPLE.CSV").write_text("a\n1\n")
    assert read_table(tmp_path / "PEOPLE.CSV")["a"].tolist() == [1]


def test_json_may_be_an_object_of_columns_and_text_stays_text(tmp_path):
    path = tmp_path / "people.json"
    path.write_text(json.dumps({"code": ["01", "02"], "updated_at": [1, 2]}))
    assert read_table(path).to_dict("list") == {"code": ["01", "02"], "updated_at": [1, 2]}


def test_standard_input_is_csv(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfage,city\n3,Rome\n")))
    assert read_table("-").to_dict("list") == {"age": [3], "city": ["Rome"]}
    with pytest.raises(InputError, match="standard input is empty; expected a header and rows"):
        read_table("-")


@pytest.mark.parametrize("suffix", READERS)
def test_an_empty_file_is_named(tmp_path, suffix):
    path = tmp_path / f"none{suffix}"
    path.write_bytes(gzip.compress(b"") if suffix.endswith(".gz") else b"")
    with pytest.raises(InputError, match=rf"none\{suffix} is empty; expected a header and rows"):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"\xff\xfe\x00"),
        ("a.csv", b"x,y\n1,2,3\n"),
        ("a.csv", b"x,y\n1,2\n1,2,3\n"),
        ("a.csv", b'x,y\n1,"2\n'),
        ("a.csv.gz", b"x,y\n1,2\n"),
        ("a.csv.gz", gzip.compress(b"x,y\n" + bytes(range(48, 58)) * 999, mtime=0)[:-12]),
        ("a.parquet", b"PAR1 and then nothing"),
        ("a.json", b'[{"a": 1}, {"a"'),
        ("a.json", b"3"),
        ("a.json", b'{"a": 1}'),
        ("a.jsonl", b'{"a": 1}\n{"a"'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} cannot be read as a table, it is damaged or of another kind: ."):
        read_table(tmp_path / name)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv cannot be read: No such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"folder\.csv cannot be read: Is a directory"):
        read_table(tmp_path / "folder.csv")


def test_an_unknown_kind_of_file_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"'people.xlsx'\) '.xlsx'; choose one of: .csv, .csv.gz, .tsv"):
        read_table("people.xlsx")


# Columns as numbers


TEXTS = Feature("x", "categorical", categories=("b", "a", "1"))
NUMBERS = Feature("x", "categorical", categories=(3, 1, 2.5))
TRUTHS = Feature("x", "boolean")
COLUMNS: list[tuple[pd.Series, Feature, list[int]]] = [
    (pd.Series(["a", "b", "a", "c", "1"], dtype=object), TEXTS, [1, 0, 1, -1, 2]),
    (pd.Series(["a", "b", "a", "c", "1"], dtype="str"), TEXTS, [1, 0, 1, -1, 2]),
    (pd.Series(["a", "b", "a", "c"], dtype="string[pyarrow]"), TEXTS, [1, 0, 1, -1]),
    (pd.Series(pd.Categorical(["a", "b", "a"], categories=["z", "a", "b"])), TEXTS, [1, 0, 1]),
    (pd.Series([1, "1", True, 1.0], dtype=object), TEXTS, [-1, 2, -1, -1]),
    (pd.Series([1, 3, 2, 1]), NUMBERS, [1, 0, -1, 1]),
    (pd.Series([1.0, 2.5, -0.0]), NUMBERS, [1, 2, -1]),
    (pd.Series([True, 1, "1", 3.0, np.int64(3), (1, 2)], dtype=object), NUMBERS, [1, 1, -1, 0, 0, -1]),
    (pd.Series([True, False, True]), TRUTHS, [1, 0, 1]),
    (pd.Series([True, 0, 1.0, "True"], dtype=object), TRUTHS, [1, 0, 1, -1]),
    (pd.Series([False, True], dtype="boolean"), TRUTHS, [0, 1]),
    (pd.Series(["a", ["a"], {"b": 1}, "b"], dtype=object), TEXTS, [1, -1, -1, 0]),
    (pd.Series([], dtype=object), TEXTS, []),
]


@pytest.mark.parametrize(("column", "feature", "codes"), COLUMNS)
def test_a_value_is_the_category_that_it_equals(column: pd.Series, feature: Feature, codes: list[int]) -> None:
    numbers = to_numbers(column.rename("x"), feature)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == codes
    one_by_one = [dict(zip(feature.categories, range(9), strict=False)).get(_key(value), UNKNOWN) for value in column]
    assert numbers.tolist() == one_by_one


def _key(value: Any) -> Any:
    """The value, or one that is no category where it cannot be looked up."""
    return object() if isinstance(value, list | dict) else value


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_category_is_an_error_that_names_the_row(missing: Any) -> None:
    with pytest.raises(InputError, match=r"column 'x', row 1: .* is a missing value"):
        to_numbers(pd.Series(["a", missing], dtype=object, name="x"), TEXTS)


def test_of_a_large_parquet_file_some_rows_are_drawn_without_reading_the_rest_at_once(tmp_path: Path) -> None:
    rows = 200_000
    table = pd.DataFrame({"a": np.arange(rows), "b": pd.Categorical(np.array(["x", "y"])[np.arange(rows) % 2])})
    file = tmp_path / "large.parquet"
    table.to_parquet(file)
    drawn = read_table(file, most=1000, seed=3)
    assert len(drawn) == drawn["a"].nunique() == 1000
    assert drawn["a"].is_monotonic_increasing
    assert 90_000 < drawn["a"].mean() < 110_000
    assert drawn["b"].dtype == table["b"].dtype
    assert drawn["a"].equals(read_table(file, most=1000, seed=3)["a"])
    assert not drawn["a"].equals(read_table(file, most=1000, seed=4)["a"])
    pd.testing.assert_frame_equal(read_table(file, most=rows), table)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"bad\.parquet cannot be read as a table"):
        read_table(tmp_path / "bad.parquet", most=10)

"""Files of rows: which they are, where they are cut, and what is read from them."""

import csv
import io
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath.batch import sources
from counterpath.batch.sources import (
    Shard,
    Source,
    check_unchanged,
    find_files,
    inspect_files,
    read_shard,
    scan_csv,
    shards_of,
)
from counterpath.utils.errors import InputError


def test_a_folder_has_its_files_in_numerical_order_at_any_depth(rows: Path) -> None:
    (rows / "more").mkdir()
    (rows / "more" / "x.parquet").write_bytes((rows / "part-2.parquet").read_bytes())
    (rows / "_temporary").mkdir()
    (rows / "_temporary" / "y.parquet").touch()
    (rows / ".hidden.csv").touch()
    (rows / "notes.txt").touch()
    assert [name for name, _ in find_files(str(rows))] == [
        "more/x.parquet",
        "part-2.parquet",
        "part-10.parquet",
        "part-11.csv",
    ]


def test_a_pattern_has_what_it_matches_and_a_file_is_itself(rows: Path) -> None:
    assert [name for name, _ in find_files(str(rows / "*.parquet"))] == ["part-2.parquet", "part-10.parquet"]
    assert find_files(str(rows / "part-11.csv")) == [("part-11.csv", rows / "part-11.csv")]


@pytest.mark.parametrize("pattern", ["nothing-*.csv", "nowhere", "."])
def test_where_there_are_no_rows_it_says_so(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no rows to read"):
        find_files(pattern)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").touch()
    with pytest.raises(InputError, match=r"kind of table.*choose one of: \.parquet, \.csv"):
        find_files(str(tmp_path / "rows.xlsx"))


def test_shards_cover_every_row_once(rows: Path, applicants: pd.DataFrame) -> None:
    found = inspect_files(find_files(str(rows)), ["age"], 16)
    assert [source.rows for source in found] == [40, 30, 20]
    assert not any(source.problem for source in found)
    shards = shards_of(found, 16)
    covered = [(shard.source, row) for shard in shards for row in range(shard.first, shard.first + shard.rows)]
    assert covered == [(index, row) for index, source in enumerate(found) for row in range(source.rows)]
    assert sorted(shard.name for shard in shards) == [shard.name for shard in shards]


def test_what_cannot_be_read_is_a_problem_of_that_file_alone(rows: Path) -> None:
    good = (rows / "part-2.parquet").read_bytes()
    (rows / "part-3.parquet").write_bytes(good[: len(good) // 2])
    (rows / "part-4.csv").write_text("age,job\n1,boss\n")
    (rows / "part-5.csv").write_text("age,job,age,sex\n1,boss,2,f\n")
    found = {source.name: source for source in inspect_files(find_files(str(rows)), ["age", "sex"], 16)}
    assert "damaged" in found["part-3.parquet"].problem
    assert found["part-4.csv"].problem == "it has no column sex; it has: age, job"
    assert "several columns age" in found["part-5.csv"].problem
    assert [name for name, source in found.items() if source.rows] == [
        "part-2.parquet",
        "part-10.parquet",
        "part-11.csv",
    ]
    assert {shard.source for shard in shards_of(list(found.values()), 16)} == {0, 4, 5}


def test_a_file_that_changes_while_the_job_runs_is_noticed(rows: Path) -> None:
    (source,) = inspect_files(find_files(str(rows / "part-11.csv")), ["age"], 16)
    check_unchanged(source)
    os.utime(source.path, ns=(1, 1))
    with pytest.raises(InputError, match=r"part-11\.csv has changed while the job ran"):
        check_unchanged(source)


def test_names_of_shards_are_in_the_order_of_rows() -> None:
    assert Shard(3, 12, 0, 1).name == "00003-000012"


CELLS = st.text(st.sampled_from('ab,"\n\r 1'), max_size=6)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=12),
    shard=st.integers(1, 5),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    piece=st.sampled_from([1, 3, 7, 1 << 20]),
)
@settings(deadline=None)
def test_every_shard_has_the_rows_that_pandas_reads_there(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    shard: int,
    ending: str,
    last: bool,
    piece: int,
) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    text = stream.getvalue() if last or not rows else stream.getvalue()[: -len(ending)]
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(text.encode())
    before, sources._CHUNK_BYTES = sources._CHUNK_BYTES, piece
    try:
        count, cuts, names = scan_csv(path, shard)
    finally:
        sources._CHUNK_BYTES = before
    assert (count, names) == (len(rows), ["x", "y"])
    assert len(cuts) == -(-len(rows) // shard) + 1
    content = path.read_bytes()
    pieces = [content[start:end] for start, end in pairwise(cuts)]
    read = [pd.read_csv(io.BytesIO(b"x,y\n" + part), dtype=str, keep_default_na=False) for part in pieces]
    whole = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    assert [len(part) for part in read[:-1]] == [shard] * (len(pieces) - 1 if pieces else 0)
    if read:
        pd.testing.assert_frame_equal(pd.concat(read, ignore_index=True), whole)


def test_blank_lines_are_no_rows_and_a_mark_of_the_encoding_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("\ufeffname,age\r\n\r\n\r\nann,1\r\n\nbob,2\r\n\r\n".encode())
    count, cuts, names = scan_csv(path, 1)
    assert (count, names) == (2, ["name", "age"])
    assert [path.read_bytes()[start:].split(b",")[0] for start in cuts[:-1]] == [b"ann", b"bob"]


def test_a_header_may_have_line_breaks_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('"first\nname",age\nann,1\n')
    assert scan_csv(path, 10)[::2] == (1, ["first\nname", "age"])


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_without_a_header_there_is_no_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="expected a header"):
        scan_csv(path, 10)


def test_a_quote_that_nothing_closes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('name,age\n"ann,1\nbob,2\n')
    with pytest.raises(InputError, match="nothing closes"):
        scan_csv(path, 10)


SCHEMA = cp.Schema(
    (
        cp.Feature("age", "integer"),
        cp.Feature("income", "continuous"),
        cp.Feature("code", "categorical", categories=(1, 2, 10)),
        cp.Feature("name", "categorical", categories=("1", "2", "x")),
        cp.Feature("owner", "boolean"),
    )
)


def read_all(source: Source, shard_rows: int, ids: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pa.Table]:
    parts = [read_shard(source, shard, SCHEMA, ids) for shard in shards_of([source], shard_rows)]
    return pd.concat([frame for frame, _ in parts]), pa.concat_tables([copied for _, copied in parts])


def inspect_and_read(path: Path, shard_rows: int, ids: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pa.Table]:
    (source,) = inspect_files(find_files(str(path)), [*ids, *SCHEMA.names], shard_rows)
    assert not source.problem
    return read_all(source, shard_rows, ids)


def test_values_mean_the_same_in_every_shard(tmp_path: Path) -> None:
    """Text that is all digits in one shard, a gap or a word among numbers in another."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "who,age,income,code,name,owner,extra\n"
        "007,30,1.5,1,1,True,a\n"
        "NA,31,,2.0,2,false,b\n"
        "x,abc,1e3,7,x,TRUE,c\n"
        '"a\nb",33,inf,10,01,maybe,d\n'
    )
    for shard_rows in (1, 2, 3, 10):
        frame, copied = inspect_and_read(path, shard_rows, ("who",))
        assert frame["age"].tolist() == [30, 31, "abc", 33]
        assert frame["income"].fillna(-1).tolist() == [1.5, -1, 1000, np.inf]
        assert frame["code"].tolist() == [1, 2, "7", 10]
        assert frame["name"].tolist() == ["1", "2", "x", "01"]
        assert frame["owner"].tolist() == [True, False, True, "maybe"]
        assert frame.index.tolist() == [0, 1, 2, 3]
        assert copied["who"].to_pylist() == ["007", "NA", "x", "a\nb"]


def test_numbers_are_read_to_the_last_digit(tmp_path: Path) -> None:
    written = ["0.1", "1e-320", "179769313486231570000000000000000000000", "3.0000000000000004", "1_000"]
    lines = [f"1,{number},1,1,True" for number in written]
    (tmp_path / "rows.csv").write_text("\n".join(["age,income,code,name,owner", *lines]))
    frame, _ = inspect_and_read(tmp_path / "rows.csv", 10)
    assert frame["income"].tolist() == [float(number) for number in written[:-1]] + ["1_000"]


@pytest.mark.parametrize("shard_rows", [1, 4, 7, 100])
@pytest.mark.parametrize("group", [1, 3, 100])
def test_parquet_is_read_across_row_groups(tmp_path: Path, shard_rows: int, group: int) -> None:
    count = 23
    frame = pd.DataFrame(
        {
            "who": pd.array([None, *range(2**60, 2**60 + count - 1)], dtype="Int64"),
            "age": range(count),
            "income": np.arange(count) / 3,
            "code": 1,
            "name": "x",
            "owner": False,
            "extra": "not read",
        }
    )
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path, row_group_size=group)
    read_back, copied = inspect_and_read(path, shard_rows, ("who",))
    pd.testing.assert_frame_equal(read_back, frame[list(SCHEMA.names)], check_dtype=False)
    assert copied["who"].to_pylist() == [None, *range(2**60, 2**60 + count - 1)]


def test_quotes_that_cannot_be_followed_are_an_error_and_not_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('age,income,code,name,owner\n1,2,1,5" pipe,True\n1,2,1,6" pipe,True\n1,2,1,x,True\n')
    with pytest.raises(InputError, match=r"rows\.csv.*(counted|cannot be read)"):
        inspect_and_read(path, 1)


def test_rows_with_more_fields_than_the_header_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,income,code,name,owner\n1,2,1,x,True,7\n")
    with pytest.raises(InputError, match=r"rows\.csv"):
        inspect_and_read(path, 1)


def test_gaps_are_what_pandas_takes_for_gaps() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(sources._GAPS) == set(STR_NA_VALUES)


def test_a_file_that_changes_after_it_was_inspected_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,income,code,name,owner\n30,1.5,1,1,True\n")
    (source,) = inspect_files(find_files(str(path)), SCHEMA.names, 5)
    read_all(source, 5)
    path.write_text("age,income,code,name,owner\n310,1.5,1,1,True\n")
    with pytest.raises(InputError, match=r"rows\.csv has changed while the job ran"):
        read_all(source, 5)

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import counterpath as cp
from counterpath.batch import sources
from counterpath.batch.sources import Source, find, read, shards_of, survey
from counterpath.utils.errors import InputError

SCHEMA = cp.Schema(
    (
        cp.Feature("age", "integer"),
        cp.Feature("income", "continuous"),
        cp.Feature("code", "categorical", categories=(1, 2, 10)),
        cp.Feature("name", "categorical", categories=("1", "2", "x")),
        cp.Feature("owner", "boolean"),
    )
)


def whole(source: Source, shard_rows: int, ids: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pa.Table]:
    parts = [read(source, shard, SCHEMA, ids) for shard in shards_of([source], shard_rows)]
    return pd.concat([frame for frame, _ in parts]), pa.concat_tables([carried for _, carried in parts])


def looked_at(path: Path, shard_rows: int, ids: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pa.Table]:
    (source,) = survey(find(str(path)), [*ids, *SCHEMA.names], shard_rows)
    assert not source.problem
    return whole(source, shard_rows, ids)


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
        frame, carried = looked_at(path, shard_rows, ("who",))
        assert frame["age"].tolist() == [30, 31, "abc", 33]
        assert frame["income"].fillna(-1).tolist() == [1.5, -1, 1000, np.inf]
        assert frame["code"].tolist() == [1, 2, "7", 10]
        assert frame["name"].tolist() == ["1", "2", "x", "01"]
        assert frame["owner"].tolist() == [True, False, True, "maybe"]
        assert frame.index.tolist() == [0, 1, 2, 3]
        assert carried["who"].to_pylist() == ["007", "NA", "x", "a\nb"]


def test_numbers_are_read_to_the_last_digit(tmp_path: Path) -> None:
    written = ["0.1", "1e-320", "179769313486231570000000000000000000000", "3.0000000000000004", "1_000"]
    lines = [f"1,{number},1,1,True" for number in written]
    (tmp_path / "rows.csv").write_text("\n".join(["age,income,code,name,owner", *lines]))
    frame, _ = looked_at(tmp_path / "rows.csv", 10)
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
    read_back, carried = looked_at(path, shard_rows, ("who",))
    pd.testing.assert_frame_equal(read_back, frame[list(SCHEMA.names)], check_dtype=False)
    assert carried["who"].to_pylist() == [None, *range(2**60, 2**60 + count - 1)]


def test_quotes_that_cannot_be_followed_are_an_error_and_not_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('age,income,code,name,owner\n1,2,1,5" pipe,True\n1,2,1,6" pipe,True\n1,2,1,x,True\n')
    with pytest.raises(InputError, match=r"rows\.csv.*(counted|cannot be read)"):
        looked_at(path, 1)


def test_rows_with_more_fields_than_the_header_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,income,code,name,owner\n1,2,1,x,True,7\n")
    with pytest.raises(InputError, match=r"rows\.csv"):
        looked_at(path, 1)


def test_gaps_are_what_pandas_takes_for_gaps() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(sources._GAPS) == set(STR_NA_VALUES)


def test_a_file_that_changes_after_it_was_looked_at_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,income,code,name,owner\n30,1.5,1,1,True\n")
    (source,) = survey(find(str(path)), SCHEMA.names, 5)
    whole(source, 5)
    path.write_text("age,income,code,name,owner\n310,1.5,1,1,True\n")
    with pytest.raises(InputError, match=r"rows\.csv has changed while the job ran"):
        whole(source, 5)

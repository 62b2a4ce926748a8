import os
from pathlib import Path

import pandas as pd
import pytest

from counterpath.batch.sources import Shard, find, insist_unchanged, shards_of, survey
from counterpath.utils.errors import InputError


def test_a_folder_has_its_files_in_numerical_order_at_any_depth(rows: Path) -> None:
    (rows / "more").mkdir()
    (rows / "more" / "x.parquet").write_bytes((rows / "part-2.parquet").read_bytes())
    (rows / "_temporary").mkdir()
    (rows / "_temporary" / "y.parquet").touch()
    (rows / ".hidden.csv").touch()
    (rows / "notes.txt").touch()
    assert [name for name, _ in find(str(rows))] == [
        "more/x.parquet",
        "part-2.parquet",
        "part-10.parquet",
        "part-11.csv",
    ]


def test_a_pattern_has_what_it_matches_and_a_file_is_itself(rows: Path) -> None:
    assert [name for name, _ in find(str(rows / "*.parquet"))] == ["part-2.parquet", "part-10.parquet"]
    assert find(str(rows / "part-11.csv")) == [("part-11.csv", rows / "part-11.csv")]


@pytest.mark.parametrize("given", ["nothing-*.csv", "nowhere", "."])
def test_where_there_are_no_rows_it_says_so(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no rows to read"):
        find(given)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").touch()
    with pytest.raises(InputError, match=r"kind of table.*choose one of: \.parquet, \.csv"):
        find(str(tmp_path / "rows.xlsx"))


def test_shards_cover_every_row_once(rows: Path, applicants: pd.DataFrame) -> None:
    sources = survey(find(str(rows)), ["age"], 16)
    assert [source.rows for source in sources] == [40, 30, 20]
    assert not any(source.problem for source in sources)
    shards = shards_of(sources, 16)
    covered = [(shard.source, row) for shard in shards for row in range(shard.first, shard.first + shard.rows)]
    assert covered == [(place, row) for place, source in enumerate(sources) for row in range(source.rows)]
    assert sorted(shard.name for shard in shards) == [shard.name for shard in shards]


def test_what_cannot_be_read_is_a_problem_of_that_file_alone(rows: Path) -> None:
    good = (rows / "part-2.parquet").read_bytes()
    (rows / "part-3.parquet").write_bytes(good[: len(good) // 2])
    (rows / "part-4.csv").write_text("age,job\n1,boss\n")
    (rows / "part-5.csv").write_text("age,job,age,sex\n1,boss,2,f\n")
    sources = {source.name: source for source in survey(find(str(rows)), ["age", "sex"], 16)}
    assert "damaged" in sources["part-3.parquet"].problem
    assert sources["part-4.csv"].problem == "it has no column sex; it has: age, job"
    assert "several columns age" in sources["part-5.csv"].problem
    assert [name for name, source in sources.items() if source.rows] == [
        "part-2.parquet",
        "part-10.parquet",
        "part-11.csv",
    ]
    assert {shard.source for shard in shards_of(list(sources.values()), 16)} == {0, 4, 5}


def test_a_file_that_changes_while_the_job_runs_is_noticed(rows: Path) -> None:
    (source,) = survey(find(str(rows / "part-11.csv")), ["age"], 16)
    insist_unchanged(source)
    os.utime(source.path, ns=(1, 1))
    with pytest.raises(InputError, match=r"part-11\.csv has changed while the job ran"):
        insist_unchanged(source)


def test_names_of_shards_are_in_the_order_of_rows() -> None:
    assert Shard(3, 12, 0, 1).name == "00003-000012"

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from counterpath.batch import Progress
from counterpath.batch.sources import Shard
from counterpath.explainer.explainer import Explainer
from counterpath.utils.errors import BatchError, InputError

from .conftest import REQUEST, Runs
from .inline import Inline, content, results

pytestmark = pytest.mark.whole


def test_every_row_is_there_once_in_order_with_its_identifier(
    explained: Runs, rows: Path, applicants: pd.DataFrame, tmp_path: Path, fitted: Explainer
) -> None:
    summary = explained(rows, tmp_path / "out", ids=["id"])
    found = results(tmp_path / "out")
    assert found["id"].tolist() == applicants["id"].tolist()
    assert found["source"].tolist() == ["part-2.parquet"] * 40 + ["part-10.parquet"] * 30 + ["part-11.csv"] * 20
    assert found["row"].tolist() == [*range(40), *range(30), *range(20)]
    expected = fitted.explain(applicants[list(fitted.schema_.names)], **REQUEST)
    assert found["status"].tolist() == expected.status["status"].tolist()
    for name in fitted.schema_.names:
        assert found[name].tolist() == expected.counterfactuals[name].tolist()
    assert summary["rows"] == 90
    assert summary["found"] == (found["status"] == "found").sum()
    assert summary["measures"]["l1"]["mean"] == pytest.approx(found.loc[found["status"] == "found", "l1"].mean())
    assert summary["measures"]["l1"]["std"] == pytest.approx(found.loc[found["status"] == "found", "l1"].std(ddof=0))
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert not list((tmp_path / "out").rglob(".*.parquet"))


def test_the_summary_counts_the_rows_that_each_constraint_stands_in_the_way_of(
    explained: Runs, rows: Path, tmp_path: Path
) -> None:
    summary = explained(rows, tmp_path / "out", REQUEST | {"lock": ["job", "income", "owner"], "max_changes": 1})
    found = results(tmp_path / "out")
    constraints = [f"{one['kind']}: {one['feature']}" for row in found["binding"] for one in row]
    assert len(constraints) > 0
    assert summary["binding"] == dict(sorted(Counter(constraints).items(), key=lambda one: (-one[1], one[0])))
    assert found.loc[found["status"] == "found", "binding"].map(len).sum() == 0


@pytest.mark.parametrize("shard_rows", [7, 1000])
def test_results_do_not_depend_on_shards_nor_on_the_order_in_which_they_are_done(
    explained: Runs, rows: Path, tmp_path: Path, shard_rows: int
) -> None:
    def shuffled(shards: Sequence[Shard]) -> Sequence[Shard]:
        return Random(0).sample(shards, len(shards))

    request = REQUEST | {"paths": "milestones", "plans": 2}
    one = explained(rows, tmp_path / "one", request)
    other = explained(rows, tmp_path / "other", request, shard_rows=shard_rows, engine=Inline(shuffled))
    for name in ("counterfactuals", "milestones"):
        assert pq.read_table(tmp_path / "one" / name).equals(pq.read_table(tmp_path / "other" / name))
    measured = {"seconds", "busy_seconds", "shards"}
    assert {k: v for k, v in one.items() if k not in measured} == {k: v for k, v in other.items() if k not in measured}


def test_a_job_that_was_cut_off_goes_on_with_what_is_missing(explained: Runs, rows: Path, tmp_path: Path) -> None:
    explained(rows, tmp_path / "whole")

    def interrupt(count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    broken = Inline(before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        explained(rows, tmp_path / "out", engine=broken)
    assert broken.stopped
    messages: list[str] = []
    going_on = Inline()
    # What the engine reported before it was interrupted was not recorded: it did all within `start`.
    summary = explained(rows, tmp_path / "out", engine=going_on, say=messages.append)
    assert summary["rows"] == 90
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    again = Inline()
    explained(rows, tmp_path / "out", engine=again, say=messages.append)
    assert again.done == []
    assert messages == ["7 of 7 shards are done already"]


def test_files_that_are_gone_or_cut_are_made_again(explained: Runs, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    explained(rows, out)
    before = content(out)
    (out / "counterfactuals" / "00000-000001.parquet").unlink()
    (out / "counterfactuals" / "00002-000000.parquet").write_bytes(b"PAR1")
    (out / "counterfactuals" / ".00000-000000-x.parquet").write_bytes(b"left over")
    going_on = Inline()
    explained(rows, out, engine=going_on)
    assert going_on.done == ["00000-000001", "00002-000000"]
    assert content(out) == before


def test_another_job_is_refused_and_nothing_of_the_first_is_lost(
    explained: Runs, rows: Path, applicants: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    explained(rows, out)
    before = content(out)
    with pytest.raises(InputError, match=r"another job: confidence is 0\.7 and was None\..*--restart"):
        explained(rows, out, REQUEST | {"confidence": 0.7})
    applicants[:30].to_parquet(rows / "part-10.parquet")
    with pytest.raises(InputError, match=r"the input part-10\.parquet has changed"):
        explained(rows, out)
    assert content(out) == before
    assert explained(rows, out, restart=True)["rows"] == 90
    assert content(out) != before


def test_a_folder_with_something_else_is_left_alone(explained: Runs, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    for restart in (False, True):
        with pytest.raises(InputError, match=r"holds thesis\.tex; choose a new or empty folder"):
            explained(rows, tmp_path / "out", restart=restart)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        explained(rows, tmp_path / "file")


def test_results_within_the_folder_of_the_input_are_no_input(explained: Runs, rows: Path) -> None:
    for _ in range(2):
        assert explained(rows, rows / "out")["rows"] == 90


def test_two_jobs_cannot_write_to_one_folder(explained: Runs, rows: Path, tmp_path: Path) -> None:
    def second(count: int) -> None:
        with pytest.raises(InputError, match="another job is writing"):
            explained(rows, tmp_path / "out")

    assert explained(rows, tmp_path / "out", engine=Inline(before=second))["rows"] == 90


def test_a_damaged_file_is_left_out_and_can_be_repaired(explained: Runs, rows: Path, tmp_path: Path) -> None:
    explained(rows, tmp_path / "whole")
    good = (rows / "part-10.parquet").read_bytes()
    (rows / "part-10.parquet").write_bytes(good[:-9])
    messages: list[str] = []
    summary = explained(rows, tmp_path / "out", say=messages.append)
    assert summary["rows"] == 60
    assert summary["shards"] == {"done": 5, "quarantined": 1}
    (failure,) = summary["quarantine"]
    assert failure["source"] == "part-10.parquet"
    assert "damaged" in failure["problem"]
    assert json.loads((tmp_path / "out" / "quarantine" / "00001.json").read_text())["source"] == "part-10.parquet"
    assert messages == [f"shard 00001 (part-10.parquet) is in quarantine: {failure['problem']}"]
    (rows / "part-10.parquet").write_bytes(good)
    assert explained(rows, tmp_path / "out")["quarantine"] == []
    assert not (tmp_path / "out" / "quarantine").exists()
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_pages_that_do_not_decode_spoil_their_shards_alone(explained: Runs, rows: Path, tmp_path: Path) -> None:
    explained(rows, tmp_path / "whole")
    damaged = bytearray((rows / "part-2.parquet").read_bytes())
    age = pq.ParquetFile(rows / "part-2.parquet").metadata.row_group(0).column(1)
    assert age.path_in_schema == "age"
    damaged[age.dictionary_page_offset : age.dictionary_page_offset + age.total_compressed_size] = b"\xff" * (
        age.total_compressed_size
    )
    (rows / "part-2.parquet").write_bytes(damaged)
    summary = explained(rows, tmp_path / "out")
    assert [one["shard"] for one in summary["quarantine"]] == ["00000-000000"]
    assert summary["rows"] == 90 - 16
    left, right = content(tmp_path / "out"), content(tmp_path / "whole")
    assert left == {name: right[name] for name in right if "00000-000000" not in name}


def test_a_job_of_which_nothing_can_be_done_is_given_up(explained: Runs, rows: Path, tmp_path: Path) -> None:
    for path in rows.iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] + b"," * 9 if path.suffix == ".csv" else content)
    (rows / "part-2.parquet").unlink()
    (rows / "part-10.parquet").unlink()
    with pytest.raises(BatchError, match=r"part-11\.csv"):
        explained(rows, tmp_path / "out")


def test_a_job_that_stalls_is_ended(explained: Runs, rows: Path, tmp_path: Path) -> None:
    class Asleep(Inline):
        def start(self, task: Any, shards: Any, report: Any) -> None:
            pass

    engine = Asleep()
    with pytest.raises(BatchError, match=r"stalled: its 1 inline workers finished no shard within 0\.2 seconds"):
        explained(rows, tmp_path / "out", engine=engine, stall=0.2)
    assert engine.stopped


def test_progress_is_reported_with_rate_and_remaining_time(explained: Runs, rows: Path, tmp_path: Path) -> None:
    reports: list[Progress] = []
    explained(rows, tmp_path / "out", report=reports.append)
    assert [one.rows for one in reports] == [16, 32, 40, 56, 70, 86, 90]
    assert {one.total for one in reports} == {90}
    assert all(one.rate > 0 for one in reports)
    assert reports[-1].remaining == 0
    assert Progress(10, 30, 5.0, 0).remaining == 4


@pytest.mark.parametrize(
    ("ids", "problem"),
    [(["age"], "a feature of the model"), (["status"], "a column of the result"), (["id", "id"], "twice")],
)
def test_an_identifier_needs_a_name_of_its_own(
    explained: Runs, rows: Path, tmp_path: Path, ids: list[str], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        explained(rows, tmp_path / "out", ids=ids)
    assert not (tmp_path / "out").exists()


def test_a_wrong_request_is_refused_before_anything_begins(explained: Runs, rows: Path, tmp_path: Path) -> None:
    for request in (
        {"target_class": "maybe"},
        REQUEST | {"lock": ["shoes"]},
        REQUEST | {"confidence": 2.0},
        REQUEST | {"time_limit": 9},
    ):
        with pytest.raises(InputError):
            explained(rows, tmp_path / "out", request)
    assert not (tmp_path / "out").exists()


def test_no_rows_are_no_work(explained: Runs, applicants: pd.DataFrame, tmp_path: Path) -> None:
    applicants[:0].to_parquet(tmp_path / "none.parquet")
    summary = explained(tmp_path / "none.parquet", tmp_path / "out")
    assert (summary["rows"], summary["found"], summary["flip_ratio"]) == (0, 0, None)

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterpath.batch.engine import Job, ShardResult
from counterpath.batch.folder import Journal, Manifest
from counterpath.batch.sources import Source
from counterpath.utils.errors import InputError

REQUEST = {"method": "nearest", "target_class": "yes", "lock": ["age"], "model": "a classifier"}


def job(model_folder: Path, **options: Any) -> Job:
    return Job.of(model_folder, REQUEST | options.pop("request", {}), **{"shard_rows": 5, "device": "cpu", **options})


def source(name: str, sha256: str = "a", problem: str = "") -> Source:
    return Source(name, f"/{name}", 1, 2, sha256, 3, (), problem)


def result(shard: str) -> ShardResult:
    return ShardResult(shard, "x", 0, 2, "a", {"f": 7}, {"found": 2}, {"lock: age": 1}, {"l1": (2, 0.5, 0.25)}, 1.5)


def test_a_manifest_comes_back_as_it_was(model_folder: Path, tmp_path: Path) -> None:
    written = Manifest.of(job(model_folder, ids=("id",)), [source("x"), source("y", problem="bad")])
    assert Manifest.read(tmp_path) is None
    written.write(tmp_path)
    read = Manifest.read(tmp_path)
    assert read == written
    assert read is not None
    assert read.differences(job(model_folder, ids=("id",)), [source("x"), source("y")]) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"request": {"target_class": "no"}}, ["target class is 'no' and was 'yes'"]),
        ({"request": {"lock": []}}, ["lock is [] and was ['age']"]),
        ({"request": {"plans": 2}}, ["plans is 2 and was None"]),
        ({"shard_rows": 6}, ["shard rows is 6 and was 5"]),
        ({"ids": ("id",)}, ["ids is ['id'] and was []"]),
        ({"device": "cuda"}, ["device is 'cuda' and was 'cpu'"]),
        ({"user_model": "a:b"}, ["user model is 'a:b' and was None"]),
    ],
)
def test_what_differs_is_named(model_folder: Path, options: dict[str, Any], expected: list[str]) -> None:
    before = Manifest.of(job(model_folder), [source("x")])
    assert before.differences(job(model_folder, **options), [source("x")]) == expected


def test_another_model_or_version_is_another_job(model_folder: Path) -> None:
    before = Manifest.of(job(model_folder), [])
    other = replace(job(model_folder), fingerprint="b", versions={**before.job.versions, "torch": "0"})
    first, second = before.differences(other, [])
    assert first == "the model is another one, or was fitted again"
    assert second.startswith("version of torch is '0' and was ")


def test_another_input_is_another_job_unless_it_could_not_be_read(model_folder: Path) -> None:
    before = Manifest.of(job(model_folder), [source("x"), source("y"), source("z", problem="damaged")])
    now = [source("x", "b"), source("w"), source("z", "b")]
    assert before.differences(job(model_folder), now) == [
        "the input x has changed",
        "the input w is new",
        "the input y is gone",
    ]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "other"}', '{"format": "counterpath-batch", "version": 1}']
)
def test_another_file_of_that_name_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="no manifest of a batch job, or damaged"):
        Manifest.read(tmp_path)


def test_a_manifest_of_the_future_is_refused(model_folder: Path, tmp_path: Path) -> None:
    Manifest.of(job(model_folder), []).write(tmp_path)
    value = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(value | {"version": 99}))
    with pytest.raises(InputError, match="version 99"):
        Manifest.read(tmp_path)


def test_a_journal_grows_and_half_a_line_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "shards.jsonl")
    assert journal.read() == {}
    journal.add(result("a"))
    journal.add(result("b"))
    whole = journal.path.read_bytes()
    for cut in range(1, len(whole) // 2):
        journal.path.write_bytes(whole[:-cut])
        assert list(journal.read()) == ["a"]
        journal.add(result("c"))
        assert journal.read() == {"a": result("a"), "c": result("c")}


def test_a_journal_that_is_damaged_elsewhere_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "shards.jsonl")
    journal.add(result("a"))
    journal.path.write_bytes(b"\0\0\n" + journal.path.read_bytes())
    with pytest.raises(InputError, match=r"damaged.*--restart"):
        journal.read()

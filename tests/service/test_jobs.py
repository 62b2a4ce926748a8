"""Jobs: taken on at once, seen as they grow, cancelled, forgotten, and gone on with by the next process."""

import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

import counterpath as cp
from counterpath.service import jobs
from counterpath.service.schemas import ExplainResponse, JobCard, JobRows, json_records
from counterpath.service.settings import Settings
from tests.tables import features

from .conftest import service

EXPLAIN = "/v1/models/people:explain"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> list[dict[str, Any]]:
    return json_records(features(people).head(8))


def _start(client: httpx.Client, rows: list[dict[str, Any]], **asked: Any) -> str:
    response = client.post(EXPLAIN, params={"async": "true"}, json={"rows": rows, "target_class": "low", **asked})
    assert response.status_code == 202, response.text
    card = JobCard.model_validate(response.json())
    assert response.headers["location"] == f"/v1/jobs/{card.id}"
    return card.id


def _wait(client: httpx.Client, name: str, *, until: str = "done") -> JobCard:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        card = JobCard.model_validate(client.get(f"/v1/jobs/{name}").json())
        if card.status == until:
            return card
        time.sleep(0.05)
    raise AssertionError(f"the job is {card.status}, with {card.done} of {card.rows} rows")


def test_a_job_answers_as_the_request_does(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    own: list[Any] = [None] * len(rows)
    own[-1] = {"lock": ["debt"]}
    asked = {"plans": 2, "row_constraints": own, "time_limit": 0.1}  # which says nothing of a job
    with service({"people": explainer}, Settings()) as client:
        name = _start(client, rows, **asked)
        card = _wait(client, name)
        answer = client.get(f"/v1/jobs/{name}/rows")
        found = answer.json()
        some = client.get(f"/v1/jobs/{name}/rows", params={"first": 5, "count": 2}).json()["rows"]
        whole = client.post(EXPLAIN, json={"rows": rows, "target_class": "low", "plans": 2, "row_constraints": own})
    ExplainResponse.model_validate(whole.json())
    assert (card.done, card.rows, card.problem) == (8, 8, None)
    assert card.expires is not None
    assert card.model_digest == whole.headers["counterpath-model-digest"]
    assert card.data_digest == whole.headers["counterpath-data-digest"]
    for header in ("counterpath-model-digest", "counterpath-data-digest", "counterpath-version"):
        assert answer.headers[header] == whole.headers[header]
    JobRows.model_validate(found)
    assert found["rows"] == whole.json()["rows"]
    assert some == whole.json()["rows"][5:7]


def test_a_job_is_cancelled_and_then_there_is_none(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    with service({"people": explainer}, Settings()) as client:
        name = _start(client, rows, plans=9, confidence=0.9)
        assert client.delete(f"/v1/jobs/{name}").status_code == 204
        for path in (f"/v1/jobs/{name}", f"/v1/jobs/{name}/rows", f"/v1/jobs/{'x' * 32}"):
            assert client.get(path).status_code == 404
        assert client.get("/v1/jobs/x").status_code == 422
        deadline = time.monotonic() + PATIENCE
        while 'counterpath_queue_length{kind="explain"} 0.0' not in client.get("/metrics").text:
            assert time.monotonic() < deadline
        assert client.post(EXPLAIN, json={"rows": rows[:1], "target_class": "low"}).status_code == 200


def test_what_cannot_be_is_refused_before_it_is_a_job(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    with service({"people": explainer}, Settings()) as client:
        body = {"rows": rows[:1], "ranges": {"debt": [9, 1]}}
        assert client.post(EXPLAIN, params={"async": "true"}, json=body).status_code == 422


def test_a_job_survives_its_process(explainer: cp.Explainer, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = Settings(jobs=tmp_path / "jobs")
    with service({"people": explainer}, settings) as client:
        name = _start(client, rows, plans=3, confidence=0.8)
        deadline = time.monotonic() + PATIENCE
        while client.get(f"/v1/jobs/{name}").json()["done"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # who asks more often than the limit allows is refused
    before = sorted((tmp_path / "jobs" / name).glob("rows-*.json"))
    assert before
    assert not (tmp_path / "jobs" / name / "end.json").exists(), "it was not done when the service was stopped"
    stamps = [each.stat().st_mtime_ns for each in before]
    with service({"people": explainer}, settings) as client:
        assert _wait(client, name).done == 8
    assert [each.stat().st_mtime_ns for each in before] == stamps, "what was found is not looked for again"
    assert os.stat(tmp_path / "jobs").st_mode & 0o077 == 0


def test_a_job_is_not_finished_by_another_model(
    explainer: cp.Explainer, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    settings = Settings(jobs=tmp_path)
    with service({"people": explainer}, settings) as client:
        name = _start(client, rows[:2])
        _wait(client, name)
    (tmp_path / name / "end.json").unlink()
    request = json.loads((tmp_path / name / "request.json").read_text())
    (tmp_path / name / "request.json").write_text(json.dumps(request | {"digest": "sha256:another"}))
    with service({"people": explainer}, settings) as client:
        card = _wait(client, name, until="failed")
    assert card.problem is not None
    assert "another one than that which was asked" in card.problem.detail


def test_a_job_whose_end_cannot_be_written_has_ended_all_the_same(
    explainer: cp.Explainer, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, full = jobs.write_text, True

    def write(path: Path, text: str) -> None:
        if full and path.name != "request.json":
            tried.append(path.name)
            raise OSError(28, "No space left on device")
        written(path, text)

    tried: list[str] = []
    monkeypatch.setattr(jobs, "write_text", write)
    monkeypatch.setattr(jobs, "_SWEEP_SECONDS", 0.1)
    with service({"people": explainer}, Settings(jobs=tmp_path)) as client:
        name = _start(client, rows[:2])
        card = _wait(client, name, until="failed")
        assert card.problem is not None
        assert "No space left" in card.problem.detail
        time.sleep(1)
        assert tried.count("rows-0.json") == 1, "it is not computed again and again"
        full = False
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / name / "end.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _wait(client, name, until="failed").problem == card.problem


def test_full_means_full_and_jobs_expire(explainer: cp.Explainer, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    ask = {"params": {"async": "true"}, "json": {"rows": rows[:1], "target_class": "low"}}
    for settings, said in ((Settings(job_bytes=10), "bytes, of 10"), (Settings(job_count=1), "there are 1 jobs")):
        with service({"people": explainer}, settings) as client:
            name = _start(client, rows[:1])
            refused = client.post(EXPLAIN, **ask)  # type: ignore[arg-type]
            assert refused.status_code == 507
            assert refused.json()["code"] == "jobs_full"
            assert said in refused.json()["detail"]
            assert _wait(client, name, until="failed" if "bytes" in said else "done").rows == 1
    with service({"people": explainer}, Settings(job_seconds=0.1, jobs=tmp_path)) as client:
        name = _start(client, rows[:1])
        deadline = time.monotonic() + PATIENCE
        while (tmp_path / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert client.get(f"/v1/jobs/{name}").status_code == 404

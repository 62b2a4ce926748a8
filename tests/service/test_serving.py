"""`counterpath serve` as a process: how it starts, what it withstands, how it stops, and what a browser sees of it."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

import counterpath
from counterpath.cli import main
from counterpath.service.schemas import json_records
from counterpath.utils.files import write_json
from tests.browsing import chromium

MIB = 1 << 20


@dataclass
class Service:
    """A service that runs, and what it has said so far."""

    process: "subprocess.Popen[str]"
    address: str
    said: list[str] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """The most memory that the process ever had, in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", text)[1])  # type: ignore[index]


@contextlib.contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[Service]:
    command = [sys.executable, "-m", "counterpath.cli", "serve", f"loans={folder}", "--port", "0", *options]
    source = {"PYTHONPATH": os.pathsep.join([str(Path(counterpath.__file__).parents[1]), *sys.path])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | source | environment)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"serving loans at (http://\S+)", line):
                break
        else:
            pytest.fail("".join(said))
        service = Service(process, found[1], said)
        reader = threading.Thread(target=lambda: service.said.extend(process.stderr or ()))
        reader.start()
        yield service
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


@pytest.fixture(scope="module")
def running(model_folder: Path) -> Iterator[Service]:
    with serving(model_folder) as service:
        yield service


@pytest.fixture(scope="module")
def rows(loans: pd.DataFrame) -> list[dict[str, Any]]:
    return json_records(loans.drop(columns="loan").head(100))


def test_huge_bodies_are_refused_and_never_held(running: Service) -> None:
    before = running.peak
    kind = {"Content-Type": "application/json"}
    address = f"{running.address}/v1/models/loans:explain"
    said = httpx.post(address, content=b"[" * (60 * MIB), headers=kind, timeout=60)
    pieces = httpx.post(address, content=(b"[" * 65536 for _ in range(960)), headers=kind, timeout=60)
    wrong = httpx.post(address, content=b"x" * (60 * MIB), headers={"Content-Type": "text/plain"}, timeout=60)
    assert [said.status_code, pieces.status_code, wrong.status_code] == [413, 413, 415]
    assert httpx.post(address, content=b"[" * (MIB - 1), headers=kind, timeout=60).status_code == 422
    assert running.peak - before < 16 * MIB


def test_many_clients_are_answered_together_and_health_at_once(running: Service, rows: list[dict[str, Any]]) -> None:
    taken = []

    def post(row: int) -> list[int]:
        with httpx.Client(base_url=running.address, timeout=60) as client:
            request = {"rows": [rows[row]], "target_class": "yes"}
            return [client.post("/v1/models/loans:explain", json=request).status_code for _ in range(4)]

    with ThreadPoolExecutor(8) as clients, httpx.Client(base_url=running.address) as client:
        posting = [clients.submit(post, row) for row in range(8)]
        while not all(each.done() for each in posting):
            started = time.monotonic()
            assert client.get("/healthz").status_code == 200
            taken.append(time.monotonic() - started)
            time.sleep(0.01)
        statuses = [status for each in posting for status in each.result()]
    assert statuses == [200] * 32
    assert sorted(taken)[len(taken) // 2] < 0.1
    text = httpx.get(f"{running.address}/metrics").text
    requests = float(re.search(r'batch_requests_sum{kind="explain"} (\S+)', text)[1])  # type: ignore[index]
    batches = float(re.search(r'batch_requests_count{kind="explain"} (\S+)', text)[1])  # type: ignore[index]
    assert requests / batches > 1.5


@pytest.mark.slow
def test_the_benchmark_measures_and_judges(model_folder: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "service.py"
    spec = importlib.util.spec_from_file_location("service_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    figures = benchmark.load(model_folder, write_json(tmp_path / "people.json", rows), 4, 2.0)
    assert figures["statuses"].keys() == {"200"}
    assert figures["health_p50"] < 0.1
    assert figures["requests_per_batch"] > 1
    judged = benchmark.verdicts(figures, figures, figures)
    assert judged["no 5xx but 503"]
    assert not judged["at least 5 times the throughput of one client"]  # it is compared with itself


def test_the_documentation_loads_from_the_service_alone(running: Service) -> None:
    loaded: list[str] = []
    problems: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: loaded.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"{running.address}/docs")
        page.get_by_text("What would have to change for another decision of loans").click()
        page.get_by_role("button", name="Execute").click()
        page.locator(".responses-table.live-responses-table .response-col_status").get_by_text("200").wait_for()
    assert problems == []
    assert [url for url in loaded if url.startswith(f"{running.address}/v1/models/loans:explain")]
    assert [url for url in loaded if not url.startswith((running.address, "data:", "blob:"))] == []


def test_it_finishes_what_it_has_before_it_stops(model_folder: Path, rows: list[dict[str, Any]]) -> None:
    with serving(model_folder) as service, ThreadPoolExecutor(1) as others:
        request = {"rows": rows[:60], "target_class": "yes", "confidence": 0.8, "plans": 2}
        explanation = others.submit(httpx.post, f"{service.address}/v1/models/loans:explain", json=request, timeout=100)
        time.sleep(0.5)
        service.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(httpx.TransportError):  # it may be gone already
            while httpx.get(f"{service.address}/readyz").status_code != 503:
                time.sleep(0.01)
        assert explanation.result().status_code == 200
        assert service.process.wait(30) == 0
    assert "Traceback" not in "".join(service.said)


@pytest.mark.slow
def test_it_does_not_wait_for_longer_than_its_grace(model_folder: Path, rows: list[dict[str, Any]]) -> None:
    with serving(model_folder, "--grace", "0.2") as service, ThreadPoolExecutor(1) as others:
        request = {"rows": rows, "target_class": "yes", "confidence": 0.99, "plans": 9, "method": "rsgd"}
        explanation = others.submit(httpx.post, f"{service.address}/v1/models/loans:explain", json=request, timeout=100)
        time.sleep(0.7)
        service.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert service.process.wait(30) == 0
        assert time.monotonic() - started < 15
        response = explanation.result()
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    said = "".join(service.said)
    assert "some requests were not answered within 0.2 seconds, and are cancelled" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_ctrl_c_and_a_token_from_the_environment(model_folder: Path) -> None:
    with serving(model_folder, "--host", "0.0.0.0", COUNTERPATH_TOKEN="a-token-of-32-Letters-and-digits") as service:
        address = service.address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{address}/v1/models").status_code == 401
        assert (
            httpx.get(
                f"{address}/v1/models", headers={"Authorization": "Bearer a-token-of-32-Letters-and-digits"}
            ).status_code
            == 200
        )
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(30) == 130


def test_models_are_read_again_on_sighup_and_jobs_outlive_the_process(
    model_folder: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    with serving(folder, "--jobs", str(tmp_path / "jobs")) as service:
        before = httpx.get(f"{service.address}/v1/models/loans").json()["digest"]
        explainer = counterpath.load(folder)
        explainer.max_steps += 1
        explainer.save(folder)
        service.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while (after := httpx.get(f"{service.address}/v1/models/loans").json()["digest"]) == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        answer = httpx.post(f"{service.address}/v1/models/loans:predict", json={"rows": rows[:1]})
        assert answer.headers["counterpath-model-digest"] == after
        (folder / "manifest.json").write_text("{}")  # what tells models apart is in there
        service.process.send_signal(signal.SIGHUP)
        while not any("cannot be loaded again" in line for line in service.said):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert httpx.get(f"{service.address}/v1/models/loans").json()["digest"] == after
        logged = [json.loads(line) for line in service.said if '"counterpath.access"' in line]
        assert {line["path"] for line in logged} == {"/v1/models/loans", "/v1/models/loans:predict"}


@pytest.mark.slow
def test_several_workers_answer_behind_one_port(model_folder: Path, rows: list[dict[str, Any]]) -> None:
    with serving(model_folder, "--workers", "2") as service:
        deadline = time.monotonic() + 120
        children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
        workers = [int(number) for number in children.read_text().split()]
        assert len(workers) == 2

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{service.address}/readyz", timeout=60).status_code == 200
            return False

        while not answers():
            assert time.monotonic() < deadline
        started = httpx.post(
            f"{service.address}/v1/models/loans:explain?async=true", json={"rows": rows[:3]}, timeout=60
        )
        job = f"{service.address}{started.headers['location']}"
        while httpx.get(job, timeout=60).json()["status"] != "done":  # whichever of them is asked
            assert time.monotonic() < deadline
        time.sleep(10)  # a worker that ends at once would not be started again
        os.kill(workers[0], signal.SIGKILL)
        while str(workers[0]) in children.read_text().split() or len(children.read_text().split()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        while not answers():
            assert time.monotonic() < deadline
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0


MISTAKES = [
    (("gone",), "gone"),
    (("x=a", "x=b"), "two models are called 'x'"),
    (("a/b=MODEL",), "cannot be part of an address"),
    (("MODEL", "--host", "0.0.0.0"), "there is no --token"),
    (("MODEL", "--port", "70000"), "expected a whole number from 0 to 65535"),
    (("MODEL", "--queue", "0"), "--queue must be a positive number"),
    (("MODEL", "--time-limit", "400"), "--time-limit 400 is more than --longest 300"),
    (("MODEL", "b=MODEL", "--model", "json:loads"), "--model is the model of one MODEL"),
    (("MODEL", "--token", "x"), "the token has 1 characters"),
    (("MODEL", "--log", "xml"), "--log"),
    (("MODEL", "--rate", "-1"), "--rate is -1"),
    (("MODEL", "--device", "abacus"), "unknown device 'abacus'"),
    (
        ("MODEL", "--host", "203.0.113.1", "--token", "a-token-of-32-Letters-and-digits"),
        "cannot listen at http://203.0.113.1:8000",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_mistakes_are_reported_in_a_line(
    model_folder: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *(argument.replace("MODEL", str(model_folder)) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_port_that_is_taken(model_folder: Path, running: Service, capsys: pytest.CaptureFixture[str]) -> None:
    port = running.address.rpartition(":")[2]
    assert main(["serve", str(model_folder), "--port", port]) == 2
    assert "Address already in use; try another --port" in capsys.readouterr().err

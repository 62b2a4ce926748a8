"""The client against a real service."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import pandas as pd
import pytest

import counterpath as cp
from counterpath.client import Client, ServiceError
from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.schemas import json_records
from counterpath.service.settings import Settings
from tests.service.conftest import served
from tests.tables import features

TOKEN = "a-token-of-32-Letters-and-digits"


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> list[dict[str, Any]]:
    return json_records(features(people).head(4))


@pytest.fixture(scope="module")
def client(explainer: cp.Explainer) -> Iterator[Client]:
    settings = Settings(token=TOKEN)
    app = create(Dispatcher({"people": explainer}, settings), settings)
    with served(app) as address, Client(address, TOKEN) as found:
        yield found


def test_it_asks_all_that_there_is(client: Client, rows: list[dict[str, Any]], explainer: cp.Explainer) -> None:
    assert [each["name"] for each in client.models()] == ["people"]
    card = client.model("people")
    answer = client.explain("people", rows, target_class="low", lock=["sex"])
    assert answer.model_digest == card["digest"]
    assert answer.data_digest == card["data_digest"]
    assert answer.version == card["version"]
    assert answer.request_id
    wanted = explainer.explain(pd.DataFrame(rows), "low", lock=["sex"])
    assert [row["plans"][0]["sentence"] for row in answer.rows] == wanted.sentences.tolist()
    predicted = client.predict("people", rows)
    assert list(predicted.classes) == list(explainer.classes_)
    assert [row["class"] for row in predicted.rows] == explainer.predict(pd.DataFrame(rows)).tolist()
    job = client.start("people", rows, target_class="low", lock=["sex"])
    assert client.job(job.id).wait(120).status == "done"
    assert list(job.rows()) == list(answer.rows)
    assert list(job.rows(3)) == list(answer.rows[3:])
    job.cancel()
    with pytest.raises(ServiceError, match="there is no such job") as gone:
        _ = job.card
    assert gone.value.status == 404


def test_failures_say_what_is_wrong(client: Client, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ServiceError) as failed:
        client.explain("people", [rows[0] | {"debt": "much"}])
    assert (failed.value.status, failed.value.code) == (422, "invalid")
    assert failed.value.errors[0]["location"].startswith("rows[0].debt")
    with pytest.raises(ServiceError, match="There is nothing"):
        client.predict("nobody", rows)
    with pytest.raises(ValueError, match="expected one such as"):
        Client("localhost:8000")


def test_a_busy_service_is_asked_again_when_it_says() -> None:
    statuses = [503, 429, 200]

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.send_header("Retry-After", "0")
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"models": []}')

        def log_message(self, *said: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with Client(f"http://127.0.0.1:{server.server_port}") as client:
                assert client.models() == []
        finally:
            server.shutdown()
            thread.join()
    assert statuses == []


def test_a_connection_that_went_or_took_too_long_is_not_used_again() -> None:
    """A service closes what is idle; and what comes late is the answer to another request."""
    slow = threading.Event()

    class Leaving(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.endswith("/slow"):
                slow.wait(10)
            self.send_response(200)
            text = b'{"models": [], "id": "1"}'
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(text)
            self.close_connection = True  # without a word, as when it was idle for too long

        do_GET = do_POST = do_DELETE = answer  # noqa: N815  # as they are called

        def log_message(self, *said: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Leaving) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with Client(f"http://127.0.0.1:{server.server_port}", timeout=0.3) as client:
                assert client.models() == []
                job = client.start("people", [])
                assert job.id == "1"
                job.cancel()
                with pytest.raises(TimeoutError):
                    client.model("slow")
                slow.set()
                assert client.models() == []
        finally:
            slow.set()
            server.shutdown()
            thread.join()

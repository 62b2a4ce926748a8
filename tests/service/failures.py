"""Every failure that a service returns, provoked: its description shows them as they were returned.

`python -m tests.service.failures` writes what `tests/service/test_examples.py` compares.
"""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

import counterpath as cp
from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.schemas import json_records
from counterpath.service.settings import Settings
from counterpath.utils.files import write_json
from tests.service.conftest import served
from tests.tables import LABEL, mixed, small

EXAMPLES = Path(__file__).parents[2] / "src" / "counterpath" / "service" / "examples.json"
TOKEN = "a-token-of-32-Letters-and-digits"
EXPLAIN, PREDICT = "/v1/models/people:explain", "/v1/models/people:predict"


def explainer() -> tuple[cp.Explainer, list[dict[str, Any]]]:
    """A model that is fitted in a moment, and rows."""
    few = mixed()[["city", "size", "children", "debt", LABEL]].head(200)
    return small(method="nearest", epochs=5).fit(few, LABEL), json_records(few.drop(columns=LABEL).head(50))


def provoke() -> dict[str, dict[str, Any]]:
    """By its code each failure that can be had without waiting for half a minute; of a fault of ours without its id."""
    model, rows = explainer()
    answers = [*_plain(model, rows), *_guarded(model), *_busy(model, rows)]
    found = {each["code"]: each for each in answers}
    found["internal"] |= {"id": "0123456789ab", "detail": found["internal"]["detail"][:-12] + "0123456789ab"}
    return dict(sorted(found.items()))


@contextlib.contextmanager
def _service(model: cp.Explainer, **given: Any) -> Iterator[tuple[httpx.Client, Dispatcher, Any]]:
    settings = Settings(**{"rate": None, **given})
    dispatcher = Dispatcher({"people": model}, settings)
    app = create(dispatcher, settings)
    with served(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client, dispatcher, app


def _plain(model: cp.Explainer, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    with _service(model, rows=10, body=20_000) as (client, dispatcher, app):

        @app.get("/broken")
        async def broken() -> None:
            raise RuntimeError("a fault")

        json_ = {"Content-Type": "application/json"}
        yield client.get("/v1/models/nobody").json()
        yield client.get(EXPLAIN).json()
        yield client.get("/v1/models", headers={"Host": "evil.example"}).json()
        yield client.post(PREDICT, json={}, headers={"Origin": "http://evil.example"}).json()
        yield client.post(PREDICT, content=b"{}", headers={"Content-Type": "text/plain"}).json()
        yield client.post(PREDICT, content=b"[" * 30_000, headers=json_).json()
        yield client.post(PREDICT, json={"rows": rows[:11]}).json()
        yield client.post(PREDICT, content=b'{"rows": [{"debt": NaN}]}', headers=json_).json()
        yield client.post(PREDICT, json={"rows": [rows[0] | {"debt": "much"}]}).json()
        yield client.post(EXPLAIN, json={"rows": rows[:1], "ranges": {"debt": [9, 1]}}).json()
        yield client.get("/v1/models", headers={"X-Large": "a" * 40_000}).json()
        yield client.get("/broken").json()
        yield _without_host(str(client.base_url))
        dispatcher.stopping = True
        yield client.get("/readyz").json()
    with _service(model, job_count=0) as (client, _, _):
        yield client.post(EXPLAIN, params={"async": "true"}, json={"rows": rows[:1]}).json()


def _guarded(model: cp.Explainer) -> Iterator[dict[str, Any]]:
    with _service(model, token=TOKEN, tries=1) as (client, _, _):
        yield client.get("/v1/models").json()
        wrong = {"Authorization": "Bearer wrong"}
        client.get("/v1/models", headers=wrong)
        yield client.get("/v1/models", headers=wrong).json()
    with _service(model, rate=1) as (client, _, _):
        yield [client.get("/v1/models") for _ in range(6)][-1].json()


def _busy(model: cp.Explainer, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    long = {"rows": rows, "plans": 9, "confidence": 0.9, "method": "rsgd"}
    with _service(model, queue=1) as (client, _, _), ThreadPoolExecutor() as others:
        yield client.post(EXPLAIN, json=long | {"time_limit": 0.2}).json()
        for paths in ("all", "end"):  # the first is computed, and the second waits
            body = long | {"time_limit": 4, "paths": paths}
            others.submit(httpx.post, f"{client.base_url}{EXPLAIN}", json=body, timeout=60)
            time.sleep(0.7)
        yield client.post(EXPLAIN, json={"rows": rows[:1]}).json()


def _without_host(address: str) -> dict[str, Any]:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=20) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        text = b""
        while part := connection.recv(4096):
            text += part
    value: dict[str, Any] = json.loads(text.partition(b"\r\n\r\n")[2])
    return value


if __name__ == "__main__":
    write_json(EXAMPLES, provoke())

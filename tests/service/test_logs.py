"""What is known of a request: its id, its line in the log, who answered, and its trace."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pandas as pd
import pytest

import counterpath as cp
from counterpath import __version__
from counterpath.service import logs
from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.identity import Identity
from counterpath.service.schemas import json_records
from counterpath.service.tracing import Tracing
from tests.tables import features

from .conftest import served


@pytest.fixture(scope="module")
def address(explainer: cp.Explainer) -> Iterator[str]:
    with served(create(Dispatcher({"people": explainer}))) as found:
        yield found


def _lines(caplog: pytest.LogCaptureFixture, number: int) -> list[dict[str, Any]]:
    """What was logged, once there are so many lines: a line is written after its answer was sent."""
    end = time.monotonic() + 30
    while sum(each.name == logs.ACCESS.name for each in caplog.records) < number and time.monotonic() < end:
        time.sleep(0.01)
    return [json.loads(logs.JsonFormatter().format(each)) for each in caplog.records if each.name == logs.ACCESS.name]


def test_every_request_is_a_line_of_json_and_has_an_id(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logs.ACCESS.name)
    mine = httpx.get(f"{address}/v1/models?token=secret", headers={"X-Request-ID": "mine-12345"})
    other = httpx.get(f"{address}/v1/jobs/{'A' * 32}", headers={"X-Request-ID": "no good id!"})
    assert mine.headers["x-request-id"] == "mine-12345"
    assert len(other.headers["x-request-id"]) == 16
    first, second = _lines(caplog, 2)
    assert first["path"] == "/v1/models"
    assert (first["method"], first["status"], first["route"]) == ("GET", 200, "/v1/models")
    assert first["bytes"] == len(mine.content)
    assert first["seconds"] >= 0
    assert second["path"] == "/v1/jobs/AAAAAA…", "whoever knows the whole id may see the job"
    assert "secret" not in caplog.text


def test_every_answer_says_which_model_it_is_of(address: str, explainer: cp.Explainer, people: pd.DataFrame) -> None:
    identity = Identity.of(explainer)
    body = {"rows": json_records(features(people).head(1))}
    answers = [
        httpx.get(f"{address}/v1/models/people"),
        httpx.post(f"{address}/v1/models/people:predict", json=body),
        httpx.post(f"{address}/v1/models/people:predict", json={}),
    ]
    for answer in answers:
        assert answer.headers["counterpath-model-digest"] == identity.model
        assert answer.headers["counterpath-data-digest"] == identity.data
        assert answer.headers["counterpath-version"] == __version__
    assert [answer.status_code for answer in answers] == [200, 200, 422]
    card = answers[0].json()
    assert (card["digest"], card["data_digest"], card["version"]) == (identity.model, identity.data, __version__)


def test_an_answer_names_the_model_that_gave_it_though_another_has_taken_its_place(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    dispatcher = Dispatcher({"people": explainer})
    before, later = dispatcher.identify("people"), Identity("sha256:later", "sha256:later")
    predict = explainer.probabilities

    class Replaced(type(explainer)):  # type: ignore[misc]  # it is an Explainer
        def probabilities(self, table: pd.DataFrame) -> pd.DataFrame:
            dispatcher.replace("people", explainer, later)
            return predict(table)

    first = Replaced(**explainer.get_params(deep=False))
    vars(first).update(vars(explainer))
    dispatcher.replace("people", first, before)
    body = {"rows": json_records(features(people).head(1))}
    with served(create(dispatcher)) as found:
        answers = [httpx.post(f"{found}/v1/models/people:predict", json=body, timeout=60) for _ in range(2)]
    assert [each.headers["counterpath-model-digest"] for each in answers] == [before.model, later.model]


def test_a_digest_is_of_what_was_fitted(explainer: cp.Explainer, model_folder: Any) -> None:
    loaded = cp.load(model_folder)
    own, again = Identity.of(explainer), Identity.of(explainer)
    assert own == again
    assert Identity.of(loaded, model_folder) == Identity.of(cp.load(model_folder), model_folder)
    assert Identity.of(loaded).data != own.data
    assert Identity.of(loaded).model != own.model


def test_problems_are_logged_with_their_traceback_on_one_line() -> None:
    try:
        raise RuntimeError("oops")
    except RuntimeError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "it %s", ("failed",), (type(error), error, None))
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "it failed"
    assert "RuntimeError: oops" in json.loads(line)["exception"]


def test_traces_have_a_span_for_every_request(explainer: cp.Explainer) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with served(Tracing(create(Dispatcher({"people": explainer})), provider)) as address:
        httpx.get(f"{address}/v1/models/people", headers={"traceparent": caller})
        httpx.get(f"{address}/v1/jobs/{'A' * 32}")
    span, of_job = exporter.get_finished_spans()
    assert span.name == "GET /v1/models/people"
    assert span.attributes["http.response.status_code"] == 200
    assert format(span.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert of_job.name == "GET /v1/jobs/{id}"
    assert of_job.attributes["url.path"] == "/v1/jobs/AAAAAA…", "whoever knows the whole id may see the job"

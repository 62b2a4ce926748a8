"""What Prometheus is told: requests, their duration, what waits, what was computed together, and memory."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath.service.dispatcher import Desk
from counterpath.service.problems import unexpected
from counterpath.service.queue import Call

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GONE = 499
"""The status of a request whose client went away before it was answered; nobody is told."""


class Meter:
    """Counts requests and calls, in a registry of its own."""

    def __init__(self, desk: Desk) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Waiting(desk))
        self._requests = Counter(
            "counterpath_requests", "Requests.", ("route", "method", "status"), registry=self.registry
        )
        self._latency = Histogram(
            "counterpath_request_seconds",
            "From a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "counterpath_batch_questions",
            "Questions that were answered by one call.",
            ("kind",),
            buckets=_SIZES,
            registry=self.registry,
        )
        self._calls = Histogram(
            "counterpath_call_seconds", "How long a call took.", ("kind",), buckets=_SECONDS, registry=self.registry
        )
        self._rows = Counter("counterpath_rows", "Rows that were answered.", ("kind",), registry=self.registry)
        desk.watch(self.call)

    def call(self, kind: str, call: Call) -> None:
        """Count one call."""
        self._batches.labels(kind).observe(call.questions)
        self._calls.labels(kind).observe(call.seconds)
        self._rows.labels(kind).inc(call.rows)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request."""
        route = getattr(scope.get("route"), "path", None) or "other"
        self._requests.labels(route, _method(scope["method"]), str(status)).inc()
        self._latency.labels(route).observe(seconds)


class Metered:
    """ASGI middleware that counts requests, and answers those whose handling failed in an unexpected way."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), GONE

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        except Exception as error:
            answer = unexpected(error)
            if status == GONE:  # else half of an answer is out, and the connection breaks
                await answer(scope, receive, seen)
        finally:
            self._meter.request(scope, status, time.perf_counter() - started)


class _Waiting(Collector):
    """How many questions wait, whenever it is asked."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily("counterpath_queue_length", "Questions that wait.", labels=["kind"])
        for kind, count in self._desk.waiting.items():
            gauge.add_metric([kind], count)
        yield gauge


def _method(name: str) -> str:
    """A method, or "other": whoever makes up names must not make the metrics grow."""
    return name if name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE") else "other"

"""Metrics for Prometheus: requests, their duration, what waits, what was computed together, and memory."""

import time
from collections.abc import Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath.service.dispatcher import BatchStats, Dispatcher
from counterpath.service.problems import unexpected

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Prometheus's usual buckets, and beyond them up to the longest time limit."""
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Powers of two, up to more jobs than can wait by default."""
CLIENT_DISCONNECTED = 499
"""The status of a request whose client disconnected before it was answered, as nginx has it; it is only counted."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class Metrics(Collector):
    """Counts requests and batches, in a registry of its own."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(self)
        self._requests = Counter("counterpath_requests", "Requests.", ("route", "method", "status"), registry=registry)
        histogram = partial(Histogram, registry=registry)
        latency, together = "From a request to the end of its response.", "Requests that were computed together."
        self._latency = histogram("counterpath_request_seconds", latency, ("route",), buckets=_SECONDS)
        self._batches = histogram("counterpath_batch_requests", together, ("kind",), buckets=_SIZES)
        self._batch_seconds = histogram(
            "counterpath_call_seconds", "How long a batch took.", ("kind",), buckets=_SECONDS
        )
        self._rows = Counter("counterpath_rows", "Rows that were computed.", ("kind",), registry=registry)
        dispatcher.on_batch = self.count_batch

    def count_batch(self, kind: str, stats: BatchStats) -> None:
        """Count one batch."""
        self._batches.labels(kind).observe(stats.jobs)
        self._batch_seconds.labels(kind).observe(stats.seconds)
        self._rows.labels(kind).inc(stats.rows)

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request."""
        route = getattr(scope.get("route"), "path", None) or "other"
        # Clients that make up methods must not make the metrics grow.
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """How many requests wait, whenever Prometheus reads it."""
        gauge = GaugeMetricFamily("counterpath_queue_length", "Requests that wait.", labels=["kind"])
        for kind, count in self._dispatcher.waiting.items():
            gauge.add_metric([kind], count)
        yield gauge


class MetricsMiddleware:
    """ASGI middleware that counts requests, and answers those whose handling failed in an unexpected way."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_DISCONNECTED

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, record_status)
        except Exception as error:
            response = unexpected(error)
            if status == CLIENT_DISCONNECTED:  # else half of a response is out, and the connection breaks
                await response(scope, receive, record_status)
        finally:
            self._metrics.count_request(scope, status, time.perf_counter() - started)

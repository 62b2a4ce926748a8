"""Traces for OpenTelemetry: a span for every request, and within it what was computed. It needs the extra `otel`."""

from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath import __version__
from counterpath.service.logs import shown_path
from counterpath.utils.errors import require

_SERVER_ERROR = 500


def configure() -> None:
    """Send traces to where the usual variables say, such as OTEL_EXPORTER_OTLP_ENDPOINT.

    Raises:
        InputError: The extra `otel` is not installed.
    """
    what = "tracing"
    trace = require("opentelemetry.trace", "otel", what)
    resources = require("opentelemetry.sdk.resources", "otel", what)
    sdk = require("opentelemetry.sdk.trace", "otel", what)
    export = require("opentelemetry.sdk.trace.export", "otel", what)
    otlp = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel", what)
    resource = resources.Resource.create({"service.name": "counterpath", "service.version": __version__})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


class Tracing:
    """ASGI middleware with a span for every request, a child of the one that its caller names.

    Args:
        app: What answers.
        provider: Makes spans; by default the global one.
    """

    def __init__(self, app: ASGIApp, provider: Any = None) -> None:
        self._app = app
        self._trace = require("opentelemetry.trace", "otel", "tracing")
        self._propagate = require("opentelemetry.propagate", "otel", "tracing")
        self._tracer = self._trace.get_tracer("counterpath", __version__, provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within a span."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = self._propagate.extract(dict(Headers(scope=scope)))
        given = {"http.request.method": scope["method"], "url.path": shown_path(scope)}
        kind = self._trace.SpanKind.SERVER
        with self._tracer.start_as_current_span(scope["method"], caller, kind=kind, attributes=given) as span:

            async def seen(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= _SERVER_ERROR:
                        span.set_status(self._trace.StatusCode.ERROR)
                await send(message)

            try:
                await self._app(scope, receive, seen)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route:
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attribute("http.route", route)

"""The HTTP API: addresses, and what is answered there."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pandas as pd
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect

from counterpath import __version__
from counterpath.explainer.explainer import Explainer
from counterpath.search.methods import resolve_method
from counterpath.service import schemas
from counterpath.service.dispatcher import RETRY_WHEN_STOPPED, Dispatcher
from counterpath.service.guard import HEALTH, Guard
from counterpath.service.metrics import CLIENT_DISCONNECTED, Metrics, MetricsMiddleware
from counterpath.service.problems import MEANINGS, TooManyRowsError, documented, failure, handle_failures, parse
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError, choose, require

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of models: what needs no escape in an address, and at most as much as fits into a line of a log."""
_MAX_INLINE_BYTES = 1 << 14
"""Bytes of a body that are parsed on the event loop itself, which takes less than a millisecond. Longer bodies, which
would hold it up, are parsed by a thread."""
_ALWAYS = (400, 401, 421, 500)  # the failures that any request may get, by the guard or by a fault of ours
_WITH_BODY = (*_ALWAYS, 403, 408, 413, 415, 422, 503, 504)  # and one whose body is checked, and waits for a model
_DESCRIPTION = """What would have to change for another decision, and by which realistic path?

A counterfactual explains a model. It promises nothing about the world: whether a change is possible or advisable,
or has the effect in life that it has on the model, it does not know.
"""
_PROMETHEUS: dict[str, Any] = {
    "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}},
    "description": "Text for Prometheus.",
}


def create(dispatcher: Dispatcher, settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application, on which others may mount pages of their own.

    Args:
        dispatcher: Runs the models. It is closed with the application.
        settings: Whom to answer, and how much to take on.
    """
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        dispatcher.close()

    # A FastAPI application whose documentation page loads nothing from elsewhere.
    offline = require("fastapi_offline", "app", "the documentation page of the service")
    app: FastAPI = offline.FastAPIOffline(
        title="Counterpath",
        version=__version__,
        description=_DESCRIPTION,
        redoc_url=None,
        static_url="/docs-files",
        # Its own check of descriptions would send them to a server elsewhere.
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
        lifespan=lifespan,
        openapi_tags=[{"name": "models"}, {"name": "service"}],
        separate_input_output_schemas=False,
    )
    app.router.redirect_slashes = False
    app.state.dispatcher, app.state.settings, app.state.turn = dispatcher, settings, asyncio.Lock()
    metrics = Metrics(dispatcher)
    handle_failures(app)
    _add_service(app, dispatcher, metrics)
    for name in dispatcher.models:
        publish(app, name)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=metrics)
    return app


def publish(app: FastAPI, name: str) -> None:
    """Offer a model of the dispatcher under its name; those that it had when the service was created are there.

    Raises:
        InputError: The dispatcher has no such model, or its name cannot be part of an address.
    """
    dispatcher: Dispatcher = app.state.dispatcher
    explainer = choose("model", name, dispatcher.models)
    if not NAME.fullmatch(name):
        raise InputError(
            f"the model's name {name!r} cannot be part of an address; expected letters, digits, '.', '_' and '-'"
        )
    router = APIRouter(route_class=_strict_route(app.state.settings.rows, app.state.turn), tags=["models"])
    _add_model(router, dispatcher, name, explainer, app.state.settings)
    # Before what others may have mounted at "/", which takes every address.
    app.router.routes[:0] = router.routes
    app.openapi_schema = None


def _add_service(app: FastAPI, dispatcher: Dispatcher, metrics: Metrics) -> None:
    tags: list[Any] = ["service"]

    @app.get("/v1/models", tags=["models"], responses=documented(*_ALWAYS), summary="All models")
    async def list_models() -> schemas.ModelList:
        return schemas.ModelList(
            models=[
                schemas.ModelSummary(name=name, target=explainer.target_, features=len(explainer.schema_))
                for name, explainer in dispatcher.models.items()
            ]
        )

    @app.get(HEALTH, tags=tags, responses=documented(400, 421, 500), summary="Whether the service lives")
    async def healthz() -> schemas.Health:
        return schemas.Health(status="ok")

    @app.get(
        "/readyz",
        tags=tags,
        response_model=schemas.Health,
        responses=documented(*_ALWAYS, 503),
        summary="Whether the service takes requests",
    )
    async def readyz() -> Any:
        if dispatcher.ready:
            return schemas.Health(status="ready")
        return failure(503, "not_ready", MEANINGS[503], headers={"Retry-After": str(RETRY_WHEN_STOPPED)})

    @app.get(
        "/metrics",
        tags=tags,
        response_class=Response,
        responses={**documented(*_ALWAYS), 200: _PROMETHEUS},
        summary="Metrics for Prometheus",
    )
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _add_model(router: APIRouter, dispatcher: Dispatcher, name: str, explainer: Explainer, settings: Settings) -> None:
    explain_type, predict_type = schemas.request_types(name, explainer, settings)
    columns, diagnostics = list(explainer.schema_.names), explainer.diagnostics()
    card = schemas.ModelCard(
        name=name,
        target=explainer.target_,
        classes=[schemas.json_value(label) for label in explainer.classes_],
        method=resolve_method(explainer.method).name,
        methods=schemas.methods(explainer),
        class_labels=dict(explainer.schema_.class_labels),
        features=[schemas.FeatureCard(**feature) for feature in explainer.schema_.to_json()["features"]],
        verdict=diagnostics.verdict,
        diagnostics=str(diagnostics),
    )
    example = {"rows": [schemas.example_row(explainer)]}

    def post(action: str, response: type[Any], summary: str, body: Mapping[str, Any]) -> Callable[[Any], Any]:
        return router.post(
            f"/v1/models/{name}:{action}",
            response_model=response,
            responses=documented(*_WITH_BODY),
            operation_id=f"{action} {name}",
            summary=summary,
            openapi_extra={"requestBody": {"content": {"application/json": {"example": body}}}},
        )

    @router.get(
        f"/v1/models/{name}",
        responses=documented(*_ALWAYS),
        operation_id=f"describe {name}",
        summary=f"Description of {name}",
    )
    async def describe() -> schemas.ModelCard:
        return card

    what = f"What would have to change for another decision of {name}"

    @post("explain", schemas.ExplainResponse, what, example | {"paths": "milestones"})
    async def explain(body: explain_type, connection: Request) -> Response:  # type: ignore[valid-type]
        rows = pd.DataFrame(body.rows, columns=columns)  # type: ignore[attr-defined]
        texts = await _unless_disconnected(connection, dispatcher.explain_json(name, rows, schemas.read_request(body)))
        content = f'{{"model": {json.dumps(name)}, "rows": [{", ".join(texts)}]}}'
        return Response(content, media_type="application/json")

    @post("predict", schemas.PredictResponse, f"What {name} predicts", example)
    async def predict(body: predict_type, connection: Request) -> Response:  # type: ignore[valid-type]
        rows = pd.DataFrame(body.rows, columns=columns)  # type: ignore[attr-defined]
        prediction = dispatcher.predict(name, rows, time_limit=body.time_limit)  # type: ignore[attr-defined]
        probabilities = await _unless_disconnected(connection, prediction)
        labels = [schemas.json_value(label) for label in explainer.decide(probabilities)]
        each = zip(labels, probabilities.to_numpy().tolist(), strict=True)
        numbers = explainer.models_.explained.numbers
        predicted = [
            {"class": label, "probabilities": None if label is None or numbers else row} for label, row in each
        ]
        return JSONResponse({"model": name, "classes": card.classes, "rows": predicted})


def _strict_route(max_rows: int, turn: asyncio.Lock) -> type[APIRoute]:
    """Routes whose bodies are strict JSON with no more than so many rows, and which are read and answered in turns."""

    class StrictRequest(Request):
        """A request whose body was parsed already."""

        value: Any = None

        async def json(self) -> Any:
            return self.value

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def strict(request: Request) -> Response:
                parsed = StrictRequest(request.scope, request.receive)
                body = await parsed.body()
                await _take_turn(turn)
                if len(body) > _MAX_INLINE_BYTES:
                    parsed.value = await asyncio.to_thread(_parse_rows, body, max_rows)
                elif body:
                    parsed.value = _parse_rows(body, max_rows)
                try:
                    response = await handle(parsed)
                except ClientDisconnect:
                    return Response(status_code=CLIENT_DISCONNECTED)
                await _take_turn(turn)
                return response

            return strict

    return StrictRoute


async def _take_turn(turn: asyncio.Lock) -> None:
    """Return when it is the caller's turn, one caller after another, and all other tasks in between.

    Clients that are answered together send their next requests together. Dozens of requests that are read, or answered,
    in one go would hold up the event loop for so long that health checks fail.
    """
    async with turn:
        await asyncio.sleep(0)


def _parse_rows(body: bytes, max_rows: int) -> Any:
    value = parse(body)
    rows = value.get("rows") if isinstance(value, Mapping) else None
    if isinstance(rows, list) and len(rows) > max_rows:
        raise TooManyRowsError(
            f"the request has {len(rows):,} rows; expected at most {max_rows:,}: send them in several requests"
        )
    return value


async def _unless_disconnected(connection: Request, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, unless the client disconnects first: then it is cancelled.

    Raises:
        ClientDisconnect: The client disconnected.
    """

    async def wait_for_disconnect() -> None:
        while (await connection.receive())["type"] != "http.disconnect":
            pass

    task, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, disconnected):
            each.cancel()
        await asyncio.gather(task, disconnected, return_exceptions=True)

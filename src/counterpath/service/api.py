"""The HTTP API: addresses, and what is answered there."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import pandas as pd
from fastapi import APIRouter, FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect

from counterpath import __version__
from counterpath.explainer.explainer import Explainer
from counterpath.service import schemas
from counterpath.service.dispatcher import RETRY_WHEN_STOPPED, Dispatcher
from counterpath.service.guard import HEALTH, READY, Guard
from counterpath.service.identity import Identity
from counterpath.service.jobs import ID, MAX_ROW, Jobs
from counterpath.service.logs import RequestLog
from counterpath.service.metrics import CLIENT_DISCONNECTED, Metrics, MetricsMiddleware
from counterpath.service.pages import PageLimit
from counterpath.service.problems import (
    MEANINGS,
    PROBLEM,
    TooManyRowsError,
    documented,
    examples,
    failure,
    handle_failures,
    parse,
)
from counterpath.service.settings import Settings
from counterpath.service.tracing import Tracing
from counterpath.utils.errors import InputError, choose, require

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of models: what needs no escape in an address, and at most as much as fits into a line of a log."""
_MAX_INLINE_BYTES = 1 << 14
"""Bytes of a body that are parsed on the event loop itself, which takes less than a millisecond. Longer bodies, which
would hold it up, are parsed by a thread."""
_ALWAYS = (400, 401, 421, 429, 431, 500)  # the failures that any request may get, by the guard or by a fault of ours
_WITH_BODY = (*_ALWAYS, 403, 408, 413, 415, 422, 503, 504)  # and one whose body is checked, and waits for a model
_OF_JOB = (*_ALWAYS, 404, 422)
_ROWS_AT_ONCE = 100  # of a job's results by default: a response of some hundred kilobytes
_TAGS = [
    {"name": "models", "description": "What would have to change, and what a model predicts."},
    {"name": "jobs", "description": "Explanations that take longer than anybody holds a connection open."},
    {"name": "service", "description": "Whether it lives, takes requests, and how busy it is."},
]
_BY_WHOM = {
    "x-request-id": "Under which the request is logged: the one that it brought, or a new one.",
    "counterpath-version": "The version of the service.",
}
_BY_WHICH = {
    "counterpath-model-digest": "The SHA-256 that tells this model from every other one.",
    "counterpath-data-digest": "That of the rows that it was fitted to.",
}
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
    jobs = Jobs(dispatcher, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await jobs.start()
        yield
        await jobs.stop()
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
        openapi_tags=_TAGS,
        license_info={"name": "MIT", "identifier": "MIT"},
        servers=[{"url": "/", "description": "This service."}],
        separate_input_output_schemas=False,
    )
    _describe(app, settings)
    app.router.redirect_slashes = False
    app.state.dispatcher, app.state.settings, app.state.turn = dispatcher, settings, asyncio.Lock()
    app.state.jobs = jobs
    metrics = Metrics(dispatcher)
    handle_failures(app)
    _add_service(app, dispatcher, metrics)
    _add_jobs(app, jobs)
    for name in dispatcher.models:
        publish(app, name)
    app.add_middleware(PageLimit, settings=settings)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=metrics)
    if settings.traces:
        app.add_middleware(Tracing)
    app.add_middleware(RequestLog, dispatcher=dispatcher)
    return app


def publish(app: FastAPI, name: str) -> None:
    """Offer a model of the dispatcher under its name; those that it had when the service was created are there.

    A model that was offered under that name before is offered no more.

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
    identity = dispatcher.identify(name)
    _add_model(router, dispatcher, name, explainer, identity, app.state.settings, app.state.jobs)
    before = {getattr(route, "path", "") for route in router.routes}
    app.router.routes[:] = [each for each in app.router.routes if getattr(each, "path", None) not in before]
    # Before what others may have mounted at "/", which takes every address.
    app.router.routes[:0] = router.routes
    app.openapi_schema = None


def _add_service(app: FastAPI, dispatcher: Dispatcher, metrics: Metrics) -> None:
    tags: list[Any] = ["service"]

    said: dict[int | str, dict[str, Any]] = {200: {"headers": _headers(_BY_WHOM)}}

    @app.get(
        "/v1/models",
        tags=["models"],
        responses=said | documented(*_ALWAYS),
        operation_id="list-models",
        summary="All models",
    )
    async def list_models() -> schemas.ModelList:
        return schemas.ModelList(
            models=[
                schemas.ModelSummary(name=name, target=explainer.target_, features=len(explainer.schema_))
                for name, explainer in dispatcher.models.items()
            ]
        )

    @app.get(
        HEALTH,
        tags=tags,
        responses=said | documented(400, 421, 431, 500),
        operation_id="health",
        summary="Whether the service lives",
        openapi_extra={"security": []},
    )
    async def healthz() -> schemas.Health:
        return schemas.Health(status="ok")

    @app.get(
        READY,
        tags=tags,
        response_model=schemas.Health,
        responses=said | documented(*_ALWAYS, 503),
        operation_id="readiness",
        summary="Whether the service takes requests",
        openapi_extra={"security": []},
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
        operation_id="metrics",
        summary="Metrics for Prometheus",
    )
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _add_jobs(app: FastAPI, jobs: Jobs) -> None:
    tags: list[Any] = ["jobs"]
    name = Path(description="The id that the job was given.", pattern=ID.pattern)
    said: dict[int | str, dict[str, Any]] = {200: {"headers": _headers(_BY_WHOM | _BY_WHICH)}}

    @app.get(
        "/v1/jobs/{id}",
        tags=tags,
        responses=said | documented(*_OF_JOB),
        operation_id="show-job",
        summary="How far a job is",
    )
    async def show(id: Annotated[str, name]) -> schemas.JobCard:  # noqa: A002
        return await jobs.show(id)

    @app.get(
        "/v1/jobs/{id}/rows",
        tags=tags,
        response_model=schemas.JobRows,
        responses=said | documented(*_OF_JOB),
        operation_id="list-job-rows",
        summary="What a job has found so far",
    )
    async def list_rows(
        id: Annotated[str, name],  # noqa: A002
        first: Annotated[int, Query(ge=0, le=MAX_ROW, description="From which row on.")] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_ROW, description="How many rows at most.")] = _ROWS_AT_ONCE,
    ) -> Response:
        card, texts = await jobs.rows(id, first, count)
        content = f'{{"job": {card.model_dump_json()}, "first": {first}, "rows": [{", ".join(texts)}]}}'
        return Response(content, media_type="application/json")

    @app.delete(
        "/v1/jobs/{id}",
        tags=tags,
        status_code=204,
        responses={204: {"headers": _headers(_BY_WHOM)}, **documented(*_OF_JOB, 403)},
        operation_id="cancel-job",
        summary="Cancel a job, and forget what it has found",
    )
    async def cancel(id: Annotated[str, name]) -> None:  # noqa: A002
        await jobs.cancel(id)


def _add_model(
    router: APIRouter,
    dispatcher: Dispatcher,
    name: str,
    explainer: Explainer,
    identity: Identity,
    settings: Settings,
    jobs: Jobs,
) -> None:
    explain_type, predict_type = schemas.request_types(name, explainer, settings)
    columns, card = list(explainer.schema_.names), schemas.model_card(name, explainer, identity)
    example = {"rows": [schemas.example_row(explainer)]}

    headers = _headers(_BY_WHOM | _BY_WHICH)
    said: dict[int | str, dict[str, Any]] = {200: {"headers": headers}}

    def post(
        action: str,
        response: type[Any],
        summary: str,
        body: Mapping[str, Any],
        *others: int,
        more: Mapping[Any, Any] | None = None,
    ) -> Callable[[Any], Any]:
        return router.post(
            f"/v1/models/{name}:{action}",
            response_model=response,
            responses={**said, **documented(*_WITH_BODY, *others), **(more or {})},
            operation_id=f"{action}-{name}",
            summary=summary,
            openapi_extra={"requestBody": {"content": {"application/json": {"example": body}}}},
        )

    @router.get(
        f"/v1/models/{name}",
        responses=said | documented(*_ALWAYS),
        operation_id=f"describe-{name}",
        summary=f"Description of {name}",
    )
    async def describe() -> schemas.ModelCard:
        return card

    what = f"What would have to change for another decision of {name}"

    accepted: dict[Any, Any] = {
        202: {
            "description": "It is a job now, if `async` was true; the header Location says where it is.",
            "model": schemas.JobCard,
            "headers": headers | {"Location": {"description": "Of the job.", "schema": {"type": "string"}}},
        }
    }

    @post("explain", schemas.ExplainResponse, what, example | {"paths": "milestones"}, 507, more=accepted)
    async def explain(
        body: explain_type,  # type: ignore[valid-type]
        connection: Request,
        asynchronous: Annotated[
            bool,
            Query(alias="async", description="Return at once, with the id of a job; its time_limit is of no account."),
        ] = False,
    ) -> Response:
        rows = pd.DataFrame(body.rows, columns=columns)  # type: ignore[attr-defined]
        if asynchronous:
            await asyncio.to_thread(dispatcher.check, name, rows, schemas.read_request(body))
            job = await jobs.create(name, await connection.json())
            return Response(
                job.model_dump_json(), 202, headers={"Location": f"/v1/jobs/{job.id}"}, media_type="application/json"
            )
        texts = await _unless_disconnected(connection, dispatcher.explain_json(name, rows, schemas.read_request(body)))
        content = f'{{"model": {json.dumps(name)}, "rows": [{", ".join(texts)}]}}'
        return Response(content, media_type="application/json")

    @post("predict", schemas.PredictResponse, f"What {name} predicts", example)
    async def predict(body: predict_type, connection: Request) -> Response:  # type: ignore[valid-type]
        rows = pd.DataFrame(body.rows, columns=columns)  # type: ignore[attr-defined]
        prediction = dispatcher.predict(name, rows, time_limit=body.time_limit)  # type: ignore[attr-defined]
        probabilities = await _unless_disconnected(connection, prediction)
        reasons = await asyncio.to_thread(schemas.unknown_values, explainer, rows, probabilities)
        return JSONResponse(schemas.prediction(name, explainer, probabilities, reasons))


def _headers(described: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": words, "schema": {"type": "string"}} for name, words in described.items()}


def _describe(app: FastAPI, settings: Settings) -> None:
    """Have the description say what FastAPI does not know: how failures look, and what a request must present."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            parts = found.setdefault("components", {})
            own = schemas.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            found_schemas = parts.setdefault("schemas", {})
            found_schemas |= own.pop("$defs", {}) | {"Problem": own}
            for unused in ("HTTPValidationError", "ValidationError"):
                found_schemas.pop(unused, None)
            token = {"type": "http", "scheme": "bearer", "description": "The token that the service was started with."}
            parts["securitySchemes"] = {"token": token}
            found["security"] = [{}, {"token": []}] if settings.token is None else [{"token": []}]
            # Here, because FastAPI would leave out all that is null.
            for path, operations in found["paths"].items():
                for operation in operations.values():
                    _put_examples(path, operation["responses"], app.state.dispatcher.examples)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _put_examples(path: str, responses: dict[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Put in what was really returned: failures, and what models answered to the example of a request."""
    for status, response in responses.items():
        failed = response.get("content", {}).get(PROBLEM)
        if failed is not None and (known := examples(int(status))):
            failed["examples"] = known
    model, _, action = path.removeprefix("/v1/models/").partition(":")
    if action in answers.get(model, {}):
        responses["200"]["content"]["application/json"]["example"] = answers[model][action]


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

"""The service: models over HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from counterpath import __version__
from counterpath.explainer.explainer import Explainer
from counterpath.search.methods import resolve_method
from counterpath.service import schemas
from counterpath.service.dispatcher import Desk
from counterpath.service.guard import HEALTH, Guard
from counterpath.service.metrics import GONE, Meter, Metered
from counterpath.service.problems import MEANINGS, TooManyRowsError, documented, failure, handle_failures, parse
from counterpath.service.schemas import example_row, forms, methods, plain
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError, choose, require

PAGE = "/docs"
FILES = "/docs-files"


def add_documentation(app: FastAPI) -> None:
    """Serve the page, and what it needs."""
    package = require("fastapi_offline", "app", "the documentation page of the service")
    assert package.__file__ is not None
    app.mount(FILES, StaticFiles(directory=Path(package.__file__).parent / "static"), name="documentation")

    @app.get(PAGE, include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=f"{app.title}: the service",
            swagger_js_url=f"{FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{FILES}/swagger-ui.css",
            swagger_favicon_url=f"{FILES}/favicon.png",
            # Its own check of descriptions asks a server elsewhere.
            swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
        )


T = TypeVar("T")
_SHORT = 1 << 14
"""Bytes that are parsed on the event loop itself."""


class Turns:
    """Lets those who wait go on one at a time, and all else in between.

    Clients that are answered together come and go together. Dozens of requests that are read, or answered, in one go
    would hold up the event loop for so long that whoever asks for health thinks the service dead.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when it is the caller's turn, which ends when the caller next waits for anything."""
        async with self._turn:
            await asyncio.sleep(0)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, unless the client goes away first: then it is cancelled.

    Raises:
        ClientGoneError: The client went away.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


class ClientGoneError(Exception):
    """Nobody is there any more to be answered."""


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def strict_route(most_rows: int, turns: Turns) -> type[APIRoute]:
    """Routes whose bodies are strict JSON with no more than so many rows, and which are read and answered in turns."""

    class StrictRequest(Request):
        """A request whose body was parsed already."""

        parsed: Any = None

        async def json(self) -> Any:
            return self.parsed

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def strict(request: Request) -> Response:
                given = StrictRequest(request.scope, request.receive)
                body = await given.body()
                await turns.wait()
                if len(body) > _SHORT:  # which would hold up the event loop
                    given.parsed = await asyncio.to_thread(_parsed, body, most_rows)
                elif body:
                    given.parsed = _parsed(body, most_rows)
                try:
                    answer = await handle(given)
                except ClientGoneError:
                    return Response(status_code=GONE)
                await turns.wait()
                return answer

            return strict

    return StrictRoute


def _parsed(body: bytes, most_rows: int) -> Any:
    value = parse(body)
    rows = value.get("rows") if isinstance(value, Mapping) else None
    if isinstance(rows, list) and len(rows) > most_rows:
        raise TooManyRowsError(
            f"the question has {len(rows):,} rows; expected at most {most_rows:,}: ask in several parts"
        )
    return value


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALWAYS = (400, 401, 421, 500)
_ASKED = (*_ALWAYS, 403, 408, 413, 415, 422, 503, 504)
_DESCRIPTION = """What would have to change for another decision, and by which realistic path?

A counterfactual explains a model. It promises nothing about the world: whether a change is possible or advisable,
or has the effect in life that it has on the model, it does not know.
"""


_PROMETHEUS: dict[str, Any] = {
    "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}},
    "description": "Text for Prometheus.",
}


def create(desk: Desk, settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application, on which others may mount pages of their own.

    Args:
        desk: Answers the questions. It is closed with the application.
        settings: Whom to answer, and how much to take on.
    """
    given = settings or Settings()
    app = FastAPI(
        title="Counterpath",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(desk),
        openapi_tags=[{"name": "models"}, {"name": "service"}],
        separate_input_output_schemas=False,
    )
    app.router.redirect_slashes = False
    app.state.desk, app.state.settings, app.state.turns = desk, given, Turns()
    meter = Meter(desk)
    handle_failures(app)
    _add_service(app, desk, meter)
    add_documentation(app)
    for name in desk.models:
        publish(app, name)
    app.add_middleware(Guard, settings=given)
    app.add_middleware(Metered, meter=meter)
    return app


def publish(app: FastAPI, name: str) -> None:
    """Offer a model of the desk under its name; those that the desk had when the service was created are there.

    Raises:
        InputError: The desk has no such model, or its name cannot be part of an address.
    """
    desk: Desk = app.state.desk
    explainer = choose("model", name, desk.models)
    if not NAME.fullmatch(name):
        raise InputError(
            f"the model's name {name!r} cannot be part of an address; expected letters, digits, '.', '_' and '-'"
        )
    router = APIRouter(route_class=strict_route(app.state.settings.rows, app.state.turns), tags=["models"])
    _add_model(router, desk, name, explainer, app.state.settings)
    before = len(app.router.routes)
    app.include_router(router)
    # Before what others may have mounted at "/", which takes every address.
    added = app.router.routes[before:]
    del app.router.routes[before:]
    app.router.routes[:0] = added
    app.openapi_schema = None


def _lifespan(desk: Desk) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    return lifespan


def _add_service(app: FastAPI, desk: Desk, meter: Meter) -> None:
    tags: list[Any] = ["service"]

    @app.get("/v1/models", tags=["models"], responses=documented(*_ALWAYS), summary="All models")
    async def list_models() -> schemas.ModelList:
        return schemas.ModelList(
            models=[
                schemas.ModelName(name=name, target=explainer.target_, features=len(explainer.schema_))
                for name, explainer in desk.models.items()
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
        summary="Whether the service takes questions",
    )
    async def readyz() -> Any:
        if desk.ready:
            return schemas.Health(status="ready")
        return failure(503, "not_ready", MEANINGS[503], headers={"Retry-After": "5"})

    @app.get(
        "/metrics",
        tags=tags,
        response_class=Response,
        responses={**documented(*_ALWAYS), 200: _PROMETHEUS},
        summary="Figures for Prometheus",
    )
    async def metrics() -> Response:
        return Response(generate_latest(meter.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _add_model(router: APIRouter, desk: Desk, name: str, explainer: Explainer, settings: Settings) -> None:
    form, described, key = forms(name, explainer, settings), card(name, explainer), json.dumps(name)
    explain_form, predict_form = form.explain, form.predict
    classes = json.dumps(described.classes)
    example = {"rows": [example_row(explainer)]}

    @router.get(
        f"/v1/models/{name}",
        responses=documented(*_ALWAYS),
        operation_id=f"describe {name}",
        summary=f"What there is to know about {name}",
    )
    async def describe() -> schemas.ModelCard:
        return described

    @router.post(
        f"/v1/models/{name}:explain",
        response_model=schemas.ExplainAnswer,
        responses=documented(*_ASKED),
        operation_id=f"explain {name}",
        summary=f"What would have to change for another decision of {name}",
        openapi_extra=_example(example | {"paths": "milestones"}),
    )
    async def explain(question: explain_form, request: Request) -> Response:  # type: ignore[valid-type]
        asked: Any = question
        table = form.table(asked)
        texts = await unless_gone(request, desk.tell(name, table, form.asked(asked), time_limit=asked.time_limit))
        return _json(f'{{"model": {key}, "rows": [{", ".join(texts)}]}}')

    @router.post(
        f"/v1/models/{name}:predict",
        response_model=schemas.PredictAnswer,
        responses=documented(*_ASKED),
        operation_id=f"predict {name}",
        summary=f"What {name} predicts",
        openapi_extra=_example(example),
    )
    async def predict(question: predict_form, request: Request) -> Response:  # type: ignore[valid-type]
        asked: Any = question
        answer = await unless_gone(request, desk.predict(name, form.table(asked), time_limit=asked.time_limit))
        numbers = answer.to_numpy()
        rows = [
            {"class": described.classes[place], "probabilities": row}
            for place, row in zip(numbers.argmax(1).tolist() if len(numbers) else [], numbers.tolist(), strict=True)
        ]
        return _json(f'{{"model": {key}, "classes": {classes}, "rows": {json.dumps(rows, allow_nan=False)}}}')


def card(name: str, explainer: Explainer) -> schemas.ModelCard:
    """What there is to know about a model."""
    features = explainer.schema_.to_json()["features"]
    diagnostics = explainer.diagnostics()
    return schemas.ModelCard(
        name=name,
        target=explainer.target_,
        classes=[plain(label) for label in explainer.classes_],
        method=resolve_method(explainer.method).name,
        methods=methods(explainer),
        features=[schemas.FeatureCard(**feature) for feature in features],
        verdict=diagnostics.verdict,
        diagnostics=str(diagnostics),
    )


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _example(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"example": body}}}}

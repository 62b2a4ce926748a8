"""The page that documents the service, from files that are installed with it: it loads without a network."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from counterpath.errors import require

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

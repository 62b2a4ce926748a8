"""`counterpath app`."""

import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from counterpath.cli import options
from counterpath.cli.demo import DATA, fitted
from counterpath.cli.output import say
from counterpath.cli.serve import TOKEN, leave
from counterpath.utils.errors import require

if TYPE_CHECKING:
    from counterpath.explainer.explainer import Explainer

DEMO = "adult"
"""What the page calls the model of the demo."""


def app(
    model_folder: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A model directory, written by fit; without one, that of the demo."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="A table of people to pick from; by default test or training rows.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to bind to; another than this one needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to bind to; 0 for any free one.")] = 8080,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN, help="What a browser must present once, as ?token=… Others see it here: set the variable."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name by which browsers call the page. May be repeated.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    drop: options.Columns = "",
    model: options.UserModel = None,
    device: options.Device = "auto",
) -> None:
    """Open a page on which to explore what could change a decision.

    Without MODEL it is the model of `counterpath demo`, fitted at the first start and kept.
    """
    options.check_port(port)
    for library in ("fastapi", "fastapi_offline", "nicegui", "prometheus_client", "uvicorn"):
        require(library, "app", "the explorer")
    import logging

    from counterpath.explainer.explainer import Explainer
    from counterpath.explorer import page
    from counterpath.service import guard
    from counterpath.service.settings import Settings
    from counterpath.utils.devices import resolve_device

    settings = Settings(host=host, port=port, token=token, hosts=tuple(allow_host or ()))
    guard.check_address(settings)
    resolve_device(device)
    table = None if rows is None else options.table(rows, drop)
    if model_folder is None:
        title, load = DEMO, lambda: _load_demo(device, table)
    else:
        explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
        explainer.progress = False
        title, load = model_folder.resolve().name, lambda: (explainer, table)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    stopped_by, is_busy = page.serve(title, load, settings, partial(_announce, token=token, no_open=no_open))
    leave(130 if stopped_by == signal.SIGINT else 0, is_busy=is_busy)


def _load_demo(device: str, table: Any) -> "tuple[Explainer, Any]":
    from counterpath.data import datasets

    data = datasets.load(DATA)
    explainer = fitted(data, device)
    explainer.progress = False
    return explainer, data.test if table is None else table


def _announce(url: str, *, token: str | None, no_open: bool) -> None:
    say(f"the explorer is at {url} (Ctrl-C stops it)")
    if not no_open:
        typer.launch(url if token is None else f"{url}/?token={quote(token)}")

"""`counterpath serve`."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from counterpath.cli import options
from counterpath.cli.output import say
from counterpath.utils.errors import InputError, require

TOKEN = "COUNTERPATH_TOKEN"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Model directories, each as DIR or NAME=DIR; the name is DIR's else."),
    ],
    host: Annotated[str, typer.Option(help="Address to bind to; another than this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to bind to; 0 for any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar=TOKEN, help="What every request must present. Other users see it here: set the variable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name by which clients call the service. May be repeated.")
    ] = None,
    queue: Annotated[int, typer.Option(help="How many requests may wait.")] = 256,
    batch: Annotated[int, typer.Option(help="How many rows of several requests are explained together.")] = 128,
    rows: Annotated[int, typer.Option(help="How many rows a request may have.")] = 1000,
    body: Annotated[int, typer.Option(help="How many bytes a request may have.")] = 1 << 20,
    time_limit: Annotated[float, typer.Option(help="How many seconds a request may take that does not say.")] = 60.0,
    longest: Annotated[float, typer.Option(help="How many seconds a request may ask for.")] = 300.0,
    grace: Annotated[float, typer.Option(help="How long requests may still take when the service is stopped.")] = 30.0,
    model: options.UserModel = None,
    device: options.Device = "auto",
) -> None:
    """Offer explanations and predictions over HTTP, as JSON. They are described at /docs.

    It stops on SIGTERM or Ctrl-C: requests that were taken are answered, others get the status 503.
    """
    options.check_positive(queue=queue, batch=batch, rows=rows, body=body, time_limit=time_limit, longest=longest)
    options.check_port(port)
    if time_limit > longest:
        raise InputError(
            f"--time-limit {time_limit:g} is more than --longest {longest:g}, the most that a request may ask for"
        )
    for library in ("fastapi", "uvicorn", "prometheus_client", "fastapi_offline"):
        require(library, "app", "the service")
    import logging

    from counterpath.explainer.explainer import Explainer
    from counterpath.service import api, guard, server
    from counterpath.service.dispatcher import Dispatcher
    from counterpath.service.settings import Settings
    from counterpath.utils.devices import resolve_device

    settings = Settings(
        host=host,
        port=port,
        token=token,
        hosts=tuple(allow_host or ()),
        queue=queue,
        batch=batch,
        body=body,
        rows=rows,
        time_limit=time_limit,
        longest=longest,
        grace=grace,
    )
    guard.check_address(settings)
    resolve_device(device)
    folders, user_model = folders_by_name(models), options.user_model(model)
    if user_model is not None and len(folders) > 1:
        raise InputError("--model is the model of one MODEL; several were given")
    explainers = {name: Explainer.load(folder, model=user_model, device=device) for name, folder in folders.items()}
    for explainer in explainers.values():
        explainer.progress = False
    dispatcher = Dispatcher(explainers, settings)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    stopped_by = server.run(
        api.create(dispatcher, settings),
        dispatcher,
        settings,
        lambda address: say(f"serving {', '.join(folders)} at {address} (see {address}/docs)"),
    )
    leave(130 if stopped_by == signal.SIGINT else 0, is_busy=dispatcher.busy)


def leave(code: int, *, is_busy: bool) -> NoReturn:
    """End with an exit code, whether or not something still runs that would not stop."""
    if is_busy:
        say("stopped before all was done")
        # A process that ends in the usual way would wait for it, or break in it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)


def folders_by_name(texts: list[str]) -> dict[str, Path]:
    """Model directories by their names: `NAME=DIR`, or the name of the directory itself."""
    found: dict[str, Path] = {}
    for text in texts:
        name, is_named, folder = text.partition("=")
        path = Path(folder if is_named else text)
        name = name if is_named else path.resolve().name
        if name in found:
            raise InputError(f"two models are called {name!r}: {found[name]} and {path}; try NAME=DIR for one of them")
        found[name] = path
    return found

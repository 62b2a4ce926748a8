"""`counterpath serve`."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from counterpath.cli import options
from counterpath.cli.output import say
from counterpath.utils.errors import InputError, choose, require

if TYPE_CHECKING:
    from counterpath.explainer.explainer import Explainer
    from counterpath.service.dispatcher import Dispatcher
    from counterpath.service.identity import Identity
    from counterpath.service.settings import Settings

Loaded: TypeAlias = "tuple[Explainer, Identity, Mapping[str, Any]]"
LOGS = ("json", "text", "none")
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
    jobs: Annotated[Path | None, typer.Option(help="Folder of jobs, which outlive the process there.")] = None,
    jobs_size: Annotated[int, typer.Option(help="How many bytes jobs may take together.")] = 1 << 30,
    jobs_kept: Annotated[float, typer.Option(help="How many seconds a job is kept after it has ended.")] = 3600.0,
    connections: Annotated[int, typer.Option(help="How many connections may be open.")] = 512,
    rate: Annotated[
        float, typer.Option(help="How many requests a second a client may send on average; 0 for any number.")
    ] = 100.0,
    workers: Annotated[int, typer.Option(help="How many processes answer behind the one port.")] = 1,
    log: Annotated[str, typer.Option(help="How to log to standard error: json, text, or none for problems only.")] = (
        "json"
    ),
    traces: Annotated[
        bool, typer.Option("--traces", help="Send traces to OpenTelemetry, where OTEL_EXPORTER_OTLP_ENDPOINT says.")
    ] = False,
    model: options.UserModel = None,
    device: options.Device = "auto",
) -> None:
    """Offer explanations and predictions over HTTP, as JSON. They are described at /docs.

    It stops on SIGTERM or Ctrl-C: requests that were taken are answered, others get the status 503. On SIGHUP it reads
    its models again.
    """
    options.check_port(port)
    _check(
        {
            "queue": queue,
            "batch": batch,
            "rows": rows,
            "body": body,
            "jobs_size": jobs_size,
            "workers": workers,
            "connections": connections,
            "jobs_kept": jobs_kept,
            "time_limit": time_limit,
            "longest": longest,
        },
        rate,
        log,
    )
    from counterpath.service import guard, logs, tracing
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
        jobs=jobs,
        job_bytes=jobs_size,
        job_seconds=jobs_kept,
        connections=connections,
        rate=rate or None,
        traces=traces,
    )
    guard.check_address(settings)
    resolve_device(device)
    folders, user_model = folders_by_name(models), options.user_model(model)
    if user_model is not None and len(folders) > 1:
        raise InputError("--model is the model of one MODEL; several were given")
    logs.configure("text" if log == "none" else log, access=log != "none")
    if traces:
        tracing.configure()
    loading = Loading(folders, user_model, device)
    code, is_busy = _look_after(workers, settings, folders) if workers > 1 else _serve(settings, loading)
    leave(code, is_busy=is_busy)


def _check(positive: dict[str, float], rate: float, log: str) -> None:
    """Raise an error unless numbers and words are what they may be, and what it takes is installed."""
    options.check_positive(**positive)
    if positive["time_limit"] > positive["longest"]:
        raise InputError(
            f"--time-limit {positive['time_limit']:g} is more than --longest {positive['longest']:g}, the most that a "
            "request may ask for"
        )
    choose("--log", log, dict.fromkeys(LOGS))
    if rate < 0:
        raise InputError(f"--rate is {rate:g}; expected requests a second, or 0 for any number")
    for library in ("fastapi", "uvicorn", "prometheus_client", "fastapi_offline"):
        require(library, "app", "the service")


def _serve(settings: "Settings", loading: "Loading") -> tuple[int, bool]:
    """Serve in this process; its exit code, and whether something still runs."""
    from counterpath.service import api, server, workers
    from counterpath.service.dispatcher import Dispatcher

    dispatcher = Dispatcher({}, settings)
    loading.put_into(dispatcher, loading.read())
    app, listening = api.create(dispatcher, settings), workers.inherited()

    def reload() -> Callable[[], None]:
        found = loading.read()

        def put_in() -> None:
            loading.put_into(dispatcher, found)
            for name in found:
                api.publish(app, name)

        return put_in

    def announce(address: str) -> None:
        if listening is None:
            say(f"serving {', '.join(loading.folders)} at {address} (see {address}/docs)")

    stopped_by = server.run(app, dispatcher, settings, announce, reload=reload, listening=listening)
    return (130 if stopped_by == signal.SIGINT else 0), dispatcher.busy


def _look_after(count: int, settings: "Settings", folders: dict[str, Path]) -> tuple[int, bool]:
    """Have several processes serve, and share a folder of jobs; as `_serve`."""
    from counterpath.service import server, workers

    listening = server.listen(settings)
    address = server.address(settings.host, listening.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="counterpath-jobs-") as folder:
        own = [] if settings.jobs is not None else ["--jobs", folder]
        stopped_by = workers.look_after(
            count,
            listening,
            [*sys.argv[1:], "--workers", "1", *own],
            settings.grace,
            lambda: say(f"serving {', '.join(folders)} at {address} (see {address}/docs)"),
        )
    return (130 if stopped_by == signal.SIGINT else 0), False


@dataclass
class Loading:
    """Reads model directories, those that have changed since they were read before.

    Attributes:
        folders: By name.
        model: The explained model, if it is the user's.
        device: Where to compute.
        known: What tells those from others that were read, by name.
    """

    folders: dict[str, Path]
    model: Any
    device: str
    known: dict[str, str] = field(default_factory=dict)

    def read(self) -> "dict[str, Loaded]":
        """What has changed: the explainers, which they are, and what each answers to the example of its description."""
        from counterpath.explainer.explainer import Explainer
        from counterpath.fitting.persistence import fingerprint
        from counterpath.service.answers import example_answers
        from counterpath.service.identity import Identity

        found: dict[str, Loaded] = {}
        for name, folder in self.folders.items():
            digest = fingerprint(folder)
            if self.known.get(name) == digest:
                continue
            explainer = Explainer.load(folder, model=self.model, device=self.device)
            explainer.progress = False
            found[name] = explainer, Identity.of(explainer, folder), example_answers(name, explainer)
        self.known |= {name: identity.model.removeprefix("sha256:") for name, (_, identity, _) in found.items()}
        return found

    def put_into(self, dispatcher: "Dispatcher", found: "dict[str, Loaded]") -> None:
        """Have them answer."""
        for name, (explainer, identity, answers) in found.items():
            dispatcher.replace(name, explainer, identity)
            dispatcher.examples[name] = answers


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

"""`counterpath batch`."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpath.cli import options
from counterpath.cli.output import say, show
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:
    from counterpath.batch import Progress
    from counterpath.batch.engine import Engine

QUARANTINED = 4  # see `counterpath.cli.EXIT_CODES`
ENGINES = {"local": "processes of this machine", "ray": "Ray Data, here or on a cluster"}
_SECONDS_BETWEEN_LINES = 30.0
"""Often enough to see that a job is alive, and a log of a night has a thousand lines and not a million."""


@options.expand(omit=("time_limit", "paths"))
def batch(
    model_folder: options.ModelFolder,
    rows: Annotated[
        str, typer.Argument(metavar="IN", help="A Parquet or CSV file, a folder of them, or a pattern in quotes.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder for the results; new, or of the same job.")],
    given: options.RequestOptions,
    milestones: Annotated[bool, typer.Option("--milestones", help="Write the milestones of each path, too.")] = False,
    ids: Annotated[
        str,
        typer.Option("--id", help="Columns to copy to the results, separated by commas, for instance an identifier."),
    ] = "",
    constraints: Annotated[
        str,
        typer.Option(
            "--constraints",
            help="Columns with constraints of each row's own, separated by commas: age.lock, income.low …",
        ),
    ] = "",
    model: options.UserModel = None,
    engine: Annotated[str, typer.Option(metavar="|".join(ENGINES), help="What does the work.")] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="A Ray cluster, for instance auto or HOST:6379; by default one is started here."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="How many; by default what suits the cores or GPUs.")] = None,
    device: options.Device = "auto",
    shard_rows: Annotated[
        int | None,
        typer.Option(
            help="The most rows that are read, explained and written at a time.",
            show_default="5000, on a GPU 100000",
        ),
    ] = None,
    stall: Annotated[float, typer.Option(help="Give up if no shard is finished within so many seconds.")] = 900.0,
    restart: Annotated[bool, typer.Option("--restart", help="Delete what is in OUT and start over.")] = False,
) -> None:
    """Explain the rows of many files, from Parquet or CSV to Parquet. What was cut off goes on where it was.

    OUT has counterfactuals/ (one row a row, in order: source, row, id columns, features, status, reason, measures),
    milestones/ if asked for, summary.json, and quarantine/ with what could not be done. The summary is printed, too.
    Exit codes: 0 all shards are done; 4 done, but some are in quarantine; 2 wrong input, or the job cannot go on; 1
    anything unexpected.
    """
    from counterpath.batch import run
    from counterpath.explainer.explainer import Explainer
    from counterpath.explanation.tables import END, MILESTONES

    options.check_positive(workers=workers, shard_rows=shard_rows, stall=stall)
    chosen, device_kind = _engine(engine, address, workers, device)
    explainer = Explainer.load(model_folder, model=options.user_model(model), device="cpu")
    paths = MILESTONES if milestones else END
    summary = run(
        model_folder,
        rows,
        out,
        chosen,
        (given.recorded or given.request(explainer).to_json()) | {"paths": paths},
        user_model=model,
        ids=options.names(ids),
        constraints=options.names(constraints),
        shard_rows=shard_rows,
        device=device_kind,
        restart=restart,
        stall=stall,
        explainer=explainer,
        report=_ProgressLines(),
        say=say,
    )
    show(json.dumps(summary, indent=2, ensure_ascii=False))
    if summary["quarantine"]:
        raise typer.Exit(QUARANTINED)


def _engine(name: str, address: str | None, workers: int | None, device: str) -> "tuple[Engine, str]":
    """The engine, and on what kind of device its workers compute."""
    from counterpath.batch.local import Local
    from counterpath.utils.devices import resolve_device

    choose("engine", name, ENGINES)
    if name == "ray":
        from counterpath.batch.ray import Ray

        ray = Ray(address, workers, device)
        return ray, ray.device
    if address is not None:
        raise InputError("--address is where a Ray cluster is; add --engine ray, or leave it out")
    here = resolve_device(device)
    return Local(workers, str(here)), here.type


class _ProgressLines:
    """A line about the progress now and then, where there is no terminal to show a bar."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        if sys.stderr.isatty() or time.monotonic() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        failed = f", {progress.failed} shards failed" if progress.failed else ""
        say(
            f"{progress.rows:,} of {progress.total:,} rows, {progress.rate:,.0f} rows/s, "
            f"{progress.remaining / 60:,.1f} min left{failed}"
        )

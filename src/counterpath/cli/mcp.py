"""`counterpath mcp`."""

from pathlib import Path
from typing import Annotated

import typer

from counterpath.cli import options
from counterpath.cli.output import say
from counterpath.utils.errors import InputError, require


def mcp(
    model_folder: options.ModelFolder,
    rows: Annotated[
        str | None, typer.Option(help="A table of people for audits; without one each audit brings its own.")
    ] = None,
    most_rows: Annotated[int, typer.Option(help="How many rows a request may have.")] = 200,
    time_limit: Annotated[float, typer.Option(help="How many seconds a request may take that does not say.")] = 60.0,
    longest: Annotated[float, typer.Option(help="How many seconds a request may ask for.")] = 300.0,
    drop: options.Columns = "",
    model: options.UserModel = None,
    device: options.Device = "auto",
) -> None:
    """Offer describe, predict, explain, what_if and audit to an assistant, by the Model Context Protocol.

    The assistant's program starts it and talks to it over standard input and output; it listens at no port.
    """
    options.check_positive(most_rows=most_rows, time_limit=time_limit, longest=longest)
    if time_limit > longest:
        raise InputError(
            f"--time-limit {time_limit:g} is more than --longest {longest:g}, the most that a request may ask for"
        )
    for library in ("mcp", "pydantic", "anyio"):
        require(library, "mcp", "the tools for assistants")
    import logging

    from counterpath.explainer.explainer import Explainer
    from counterpath.service import mcp as protocol
    from counterpath.service.settings import Settings

    explainer = Explainer.load(model_folder, model=options.user_model(model), device=device)
    explainer.progress = False
    table = None if rows is None else options.table(rows, drop)
    settings = Settings(rows=most_rows, time_limit=time_limit, longest=longest)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    name = Path(model_folder).resolve().name
    say(f"{name} waits for an assistant on standard input (Ctrl-C stops it)")
    protocol.run(name, explainer, settings, table)

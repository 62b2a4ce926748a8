"""The command line: `counterpath COMMAND`.

Data and tables go to standard output, messages to standard error. What a command returns is in `EXIT_CODES`. Commands
import libraries when they run, so that `--help` is shown at once.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from counterpath import __version__
from counterpath.cli import (
    app,
    audit,
    batch,
    bench,
    datasets,
    demo,
    doctor,
    evaluate,
    explain,
    fit,
    leaderboard,
    mcp,
    recheck,
    reproduce,
    schema,
    serve,
)
from counterpath.cli.output import fail, say
from counterpath.utils.errors import CounterpathError

# 0 to 2 as every program has them, 130 as a shell says it of Ctrl-C; what lies between is ours.
EXIT_CODES = {
    0: "done; every row has its counterfactual, or had the decision from the start",
    1: "something unexpected happened, in Counterpath or in your model",
    2: "the input, an option or the model cannot be used; the message says why",
    3: "done, but some rows have no counterfactual, or an answer has expired; their status says why",
    4: "a batch is done but for some shards, which are in quarantine; the summary names them",
    130: "stopped by Ctrl-C",
}
"""2 is what command lines commonly return for wrong usage, and 130 for SIGINT; 3 and 4 are free."""
_HELP = "Counterfactual explanations with realistic paths.\n\nExit codes:\n\n" + "\n\n".join(
    f"{code}: {meaning}." for code, meaning in EXIT_CODES.items()
)
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "datasets": datasets.datasets,
    "schema": schema.schema,
    "fit": fit.fit,
    "explain": explain.explain,
    "evaluate": evaluate.evaluate,
    "batch": batch.batch,
    "recheck": recheck.recheck,
    "audit": audit.audit,
    "reproduce": reproduce.reproduce,
    "bench": bench.bench,
    "leaderboard": leaderboard.leaderboard,
    "serve": serve.serve,
    "app": app.app,
    "mcp": mcp.mcp,
    "doctor": doctor.doctor,
}
_commands = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Boxes are for a terminal. Elsewhere plain text is easier to search, and is there in half the time.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)
for _name, _function in COMMANDS.items():
    _commands.command(_name)(_function)


@_commands.callback(invoke_without_command=True, help=_HELP)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors of the user's making are one line, not a traceback."""
    try:
        code = int(_commands(args=None if arguments is None else list(arguments), standalone_mode=False) or 0)
    except (CounterpathError, OSError) as error:
        return fail(str(error))
    except Exception as error:
        # Typer has click inside or beside it, depending on its version: its usage errors are known by what they do.
        if not hasattr(error, "format_message"):
            raise
        return fail(f"{error.format_message()} (counterpath --help, counterpath COMMAND --help)")
    if code == 130:
        say("stopped")
    return code

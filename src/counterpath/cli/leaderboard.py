"""`counterpath leaderboard`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from counterpath.cli import options
from counterpath.cli.output import say
from counterpath.utils.errors import InputError


def leaderboard(
    suite: Annotated[
        str, typer.Option(help="Whose rules, separated by commas: ours, recoursebench, carla, cel, genre.")
    ] = "ours",
    data: Annotated[str, typer.Option(help="Data sets, separated by commas; by default those of the preset.")] = "",
    models: Annotated[str, typer.Option(help="Models, separated by commas; by default those of the suite.")] = "",
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; by default all.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas; by default those of the preset.")] = "",
    preset: Annotated[str, typer.Option(help="How large: quick or full.")] = "quick",
    seconds: Annotated[
        float | None, typer.Option(help="Begin no further cell after so many seconds; run it again to go on.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Do cells again that failed.")] = False,
    flow: Annotated[
        bool, typer.Option(help="Also methods that need a flow, whose training and search are the longest of all.")
    ] = True,
    device: options.Device = "auto",
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the results, one line a cell; what is done there is not done again. Any number of "
            "processes may work on one."
        ),
    ] = Path("out/leaderboard"),
    page: Annotated[
        bool, typer.Option("--page", help="Only make the page and its figures from what is done already.")
    ] = False,
) -> None:
    """Compare methods, ours and those of the literature, by our rules and by those of others."""
    from counterpath.experiments.leaderboard.page import write_page
    from counterpath.experiments.leaderboard.run import plan, read_cells, run
    from counterpath.experiments.leaderboard.suites import PRESETS
    from counterpath.search.methods import METHODS
    from counterpath.utils.errors import choose

    size = replace(choose("preset", preset, PRESETS), device=device)
    if not all(each.strip().isdigit() for each in options.names(seeds)):
        raise InputError(f"--seeds {seeds} are not whole numbers, separated by commas")
    named = options.names(methods)
    if not flow:
        named = [name for name in named or METHODS if name not in METHODS or not METHODS[name].needs]
        size = replace(size, flow=False)
    chosen = {
        "data": options.names(data),
        "models": options.names(models),
        "methods": named,
        "seeds": [int(each) for each in options.names(seeds)],
    }
    keys = [key for name in options.names(suite) for key in plan(name, preset, **chosen)]  # type: ignore[arg-type]
    for cell in [] if page else run(keys, out, size, seconds=seconds, retry=retry):
        where = f"{cell['suite']} · {cell['data']} · {cell['model']} · seed {cell['seed']} · {cell['method']}"
        if cell["status"] != "done":
            say(f"{where}: {cell['status']}, {cell['reason']}")
        elif "within" in cell:
            say(f"{where}: {cell['row']} is {'' if cell['within'] else 'not '}within its tolerance")
        else:
            shown = ", ".join(f"{name} {value:.3g}" for name, value in cell["means"].items() if value is not None)
            say(f"{where}: valid {cell['valid']:.2f}, {shown}, {cell['seconds']:.1f} s")
    cells = read_cells(out)
    if not cells:
        raise InputError(f"there are no results in {out}; run it without --page first")
    say(f"wrote {write_page(cells, out)}")

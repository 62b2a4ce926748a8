"""The command line."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from counterpath import __version__
from counterpath.errors import CounterpathError, InputError, choose
from counterpath.experiments import surface
from counterpath.methods import METHODS

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
EXPERIMENTS = {"surface": surface.reproduce}


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Counterfactual explanations with realistic paths."""
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"One of: {', '.join(EXPERIMENTS)}.")],
    preset: Annotated[str, typer.Option(help="quick (minutes on 2 cores) or paper.")] = "quick",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = ",".join(METHODS),
    damping: Annotated[float, typer.Option(help="Added to the diagonal of every metric.")] = 1e-6,
    out: Annotated[Path | None, typer.Option(help="Folder for results.json and the figures.")] = None,
) -> None:
    """Run an experiment of the paper; a run that was cut off goes on where it was."""
    run = choose("experiment", experiment, EXPERIMENTS)
    folder = out or Path("out") / f"{experiment}-{preset}"
    names = [name.strip() for name in methods.split(",")]
    results = run(preset=preset, seeds=_numbers(seeds), device=device, out=folder, methods=names, damping=damping)
    _print_surface(results, folder)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/demo")) -> None:
    """The main job on shipped data: fit, search with every method, compare, draw."""
    _print_surface(surface.reproduce(preset="quick", seeds=[0], out=out), out)


def main() -> None:
    """Run the command line; errors of the user's making are one message, not a traceback."""
    try:
        app()
    except CounterpathError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"seeds are whole numbers separated by commas, for instance 0,1,2; given {text!r}") from None


def _print_surface(results: dict[str, Any], folder: Path) -> None:
    console = Console()
    protocol, uncertainty = results["protocol"], results["uncertainty"]
    table = Table(
        title=f"Surface with a hole: {protocol['factuals']:.0f} rejected points, {protocol['steps']:.0f} steps"
    )
    for heading in (
        "method",
        "flip ratio",
        "enters hole",
        "from behind",
        "LD² end",
        "LD² max",
        "instability",
        "turning",
    ):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    keys = ("flip_ratio", "hole_share", "hole_share_behind", "ld_end_sq", "path_ld_max_sq", "instability", "turning")
    for name, figures in results["methods"].items():
        table.add_row(name, *("–" if figures[key] is None else f"{figures[key]:.3g}" for key in keys))
    console.print(table)
    seeds = len(results["seeds"])
    console.print(
        f"Median over {seeds} seed{'s' * (seeds > 1)}. LD² (squared distance to the nearest training point) and "
        f"turning (radians) over each method's valid rows; hole shares over all rows.\n"
        f"Uncertainty: σ {uncertainty['sigma_on']:.3g} on the data, {uncertainty['sigma_off']:.3g} off them, "
        f"AUC {uncertainty['auc']:.3f}; share of σ in tr(M) {uncertainty['sigma_share']:.3f}.",
        highlight=False,
    )
    console.print(f"Results: {folder / 'results.json'}", highlight=False, soft_wrap=True)
    for path in sorted((folder / "figures").glob("*.png")):
        console.print(f"Figure:  {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()

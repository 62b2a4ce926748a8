"""The command line."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from counterpath import __version__
from counterpath.errors import CounterpathError, InputError, choose
from counterpath.experiments import surface, tables, tabular

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
EXPERIMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "surface": surface.reproduce,
    "adult": partial(tabular.reproduce, "adult"),
    "gmc": partial(tabular.reproduce, "gmc"),
}


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
    damping: Annotated[float | None, typer.Option(help="Added to the diagonal of every metric.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results.json, tables and figures.")] = None,
) -> None:
    """Run an experiment of the paper; a run that was cut off goes on where it was."""
    run = choose("experiment", experiment, EXPERIMENTS)
    folder = out or Path("out") / f"{experiment}-{preset}"
    options = {} if damping is None else {"damping": damping}
    results = run(preset=preset, seeds=_numbers(seeds), device=device, out=folder, **options)
    _print_surface(results) if experiment == "surface" else _print_tabular(results)
    _print_files(folder)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/demo")) -> None:
    """The main job on shipped data: fit, search with every method, compare, draw."""
    _print_surface(surface.reproduce(preset="quick", seeds=[0], out=out))
    _print_files(out)


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


def _print_surface(results: dict[str, Any]) -> None:
    protocol, uncertainty, seeds = results["protocol"], results["uncertainty"], len(results["seeds"])
    columns = {
        "flip ratio": "flip_ratio",
        "enters hole": "hole_share",
        "from behind": "hole_share_behind",
        "LD² end": "ld_end_sq",
        "LD² max": "path_ld_max_sq",
        "instability": "instability",
        "turning": "turning",
    }
    rows = [
        {"method": name} | {title: _short(figures[key]) for title, key in columns.items()}
        for name, figures in results["methods"].items()
    ]
    _print_table(f"Surface with a hole: {protocol['factuals']:.0f} rejected points, 150 steps", rows)
    Console().print(
        f"Median over {seeds} seed{'s' * (seeds > 1)}. LD² (squared distance to the nearest training point) and "
        f"turning (radians) over each method's valid rows; hole shares over all rows.\n"
        f"Uncertainty: σ {uncertainty['sigma_on']:.3g} on the data, {uncertainty['sigma_off']:.3g} off them, "
        f"AUC {uncertainty['auc']:.3f}; share of σ in tr(M) {uncertainty['sigma_share']:.3f}.",
        highlight=False,
    )


def _print_tabular(results: dict[str, Any]) -> None:
    shown = tables.sections(results)
    title, content = next(iter(shown.items()))
    wanted = ["steps", "fidelity", "method", "LD²", "L1", "L2²", "confidence", "flip ratio"]
    _print_table(f"{tables.TITLES[results['dataset']]}. {title}", content[wanted].to_dict("records"))
    Console().print(tables.caption(results), highlight=False)


def _print_table(title: str, rows: Sequence[Mapping[Any, Any]]) -> None:
    table = Table(title=title)
    for index, heading in enumerate(rows[0]):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)


def _print_files(folder: Path) -> None:
    for path in sorted([*folder.glob("*.*"), *(folder / "figures").glob("*.png")]):
        Console().print(f"wrote {path}", highlight=False, soft_wrap=True)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()

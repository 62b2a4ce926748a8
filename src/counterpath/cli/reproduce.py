"""`counterpath reproduce`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from counterpath.cli import options
from counterpath.cli.output import format_value, show, show_table
from counterpath.utils.errors import InputError, choose

EXPERIMENTS = ("surface", "adult", "gmc", "digits")


def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"One of: {', '.join(EXPERIMENTS)}.")],
    preset: Annotated[str, typer.Option(help="quick (minutes on 2 cores) or paper.")] = "quick",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    device: options.Device = "auto",
    damping: Annotated[float | None, typer.Option(help="Added to the diagonal of every metric.")] = None,
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Adult and GMC: the settings of the paper's appendix to the letter.")
    ] = False,
    methods: Annotated[
        str | None, typer.Option(help="Surface: only these methods, separated by commas; by default all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results.json, tables and figures.")] = None,
) -> None:
    """Run an experiment of the paper, or digits. A run that was cut off goes on where it was."""
    from counterpath.experiments import digits, surface, tabular

    choose("experiment", experiment, dict.fromkeys(EXPERIMENTS))
    folder = out or Path("out") / f"{experiment}-{preset}"
    settings: dict[str, Any] = {"preset": preset, "seeds": options.numbers("seeds", seeds), "device": device}
    settings |= {"out": folder} | ({} if damping is None else {"damping": damping})
    if as_printed and experiment not in tabular.EXPERIMENTS:
        raise InputError(f"--as-printed is for {' and '.join(tabular.EXPERIMENTS)}: the appendix has no others")
    settings |= {"as_printed": True} if as_printed else {}
    if methods is not None and experiment != "surface":
        raise InputError("--methods is for surface: the tables of the others have all their methods")
    settings |= {} if methods is None else {"methods": tuple(methods.split(","))}
    if damping is not None and experiment == "digits":
        raise InputError("--damping is for surface, adult and gmc: the digits are explained as a user's table is")
    if experiment == "surface":
        _show_surface(surface.reproduce(**settings))
    elif experiment == "digits":
        _show_digits(digits.reproduce(**settings))
    else:
        _show_tabular(tabular.reproduce(experiment, **settings))
    for path in sorted([*folder.glob("*.*"), *(folder / "figures").glob("*.png")]):
        show(f"wrote {path}")


def _show_surface(results: dict[str, Any]) -> None:
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
        {"method": name} | {title: format_value(figures[key]) for title, key in columns.items()}
        for name, figures in results["methods"].items()
    ]
    show_table(f"Surface with a hole: {protocol['factuals']:.0f} rejected points, 150 steps", rows)
    show(
        f"Median over {seeds} seed{'s' * (seeds > 1)}. LD² (squared distance to the nearest training point) and "
        f"turning (radians) over each method's valid rows; hole shares over all rows. sgd, rsgd and rsgd-c begin at "
        f"what the VAE makes of a point, all others at the point itself; global methods stop where they are accepted.\n"
        f"Uncertainty: σ {uncertainty['sigma_on']:.3g} on the data, {uncertainty['sigma_off']:.3g} off them, "
        f"AUC {uncertainty['auc']:.3f}; share of σ in tr(M) {uncertainty['sigma_share']:.3f}."
    )


def _show_tabular(results: dict[str, Any]) -> None:
    from counterpath.experiments import tables

    title, content = next(iter(tables.sections(results).items()))
    columns = ["steps", "fidelity", "method", "LD²", "L1", "L2²", "confidence", "flip ratio"]
    show_table(f"{tables.TITLES[results['dataset']]}. {title}", content[columns].to_dict("records"))
    show(tables.caption(results))


def _show_digits(results: dict[str, Any]) -> None:
    from counterpath.experiments import digits

    rows = digits.frame(results).to_dict("records")
    shown = [{str(title): format_value(value) for title, value in row.items()} for row in rows]
    show_table("Digits: from one to another, in 64 pixels", shown)
    show(digits.caption(results))

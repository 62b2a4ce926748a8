"""`counterpath bench`."""

from pathlib import Path
from typing import Annotated

import typer

from counterpath.cli import options
from counterpath.cli.output import say, show, show_table
from counterpath.utils.errors import InputError


def bench(
    what: Annotated[
        str,
        typer.Option(
            help="What to measure, separated by commas: step, growth, search, runs, sweep, memory, tf32, peers, fit."
        ),
    ] = "step,growth,search,memory",
    rows: Annotated[int, typer.Option(help="Rows that take a step together.")] = 1024,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the checkpoints of `reproduce adult`, for instance "
            "out/adult-paper/checkpoints/paper/seed-0. Without it steps are timed on random models of the same sizes, "
            "and models for the search are fitted first."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small models and few rounds: seconds, not minutes.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads on the CPU; by default torch's choice.")] = None,
    seed: Annotated[int, typer.Option(help="Of random models and of the order in which variants take turns.")] = 0,
    device: options.Device = "auto",
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let all variants round the factors of products to TF32.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .json file for all figures, or a .md file for the tables.")
    ] = None,
) -> None:
    """Time steps and searches beside other implementations of them."""
    import torch

    from counterpath.experiments.bench import report
    from counterpath.experiments.bench.run import FULL, PARTS, QUICK, Bench, measure
    from counterpath.utils.devices import resolve_device
    from counterpath.utils.files import write_json, write_text

    options.check_positive(rows=rows, threads=threads)
    parts = options.names(what)
    if not parts:
        raise InputError(f"--what names nothing to measure; choose some of: {', '.join(PARTS)}")
    if out is not None and out.suffix not in (".json", ".md"):
        raise InputError(f"--out {out} ends in neither .json nor .md")
    if models is not None and not models.is_dir():
        raise InputError(
            f"--models {models} is not a folder; give one with checkpoints of `counterpath reproduce adult`"
        )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads or before)
        results = measure(Bench(resolve_device(device), rows, seed, models, QUICK if quick else FULL, tf32), parts)
    finally:
        torch.set_num_threads(before)
    for title, table in report.tables(results).items():
        show_table(title, table)
    show(report.caption(results))
    if out is not None:
        write_json(out, results) if out.suffix == ".json" else write_text(out, report.markdown(results))
        say(f"wrote {out}")

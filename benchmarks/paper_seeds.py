"""The paper's optimisers over many seeds: settings are chosen on validation rows, frozen, and reported on test rows.

    python benchmarks/paper_seeds.py choose --data adult --seeds 100,101 --out out/choose.jsonl
    python benchmarks/paper_seeds.py report --data adult --seeds 0,1,2,3,4,5,6,7,8,9 --out out/report.jsonl
    python benchmarks/paper_seeds.py table --data adult --seeds 0,1,2,3,4,5,6,7,8,9 --out out/report.jsonl

`choose` compares candidates on a quarter of the training rows, with seeds from 100 on; `report` runs the settings as
they are frozen in `experiments.tabular`, the same with one departure from the appendix taken back at a time, with other
dampings, which is the trade-off between flips and distances, and the appendix to the letter. Each seed and setting is
one line of JSON, and what is in the file already is not run again. Under one seed encoder, mean and classifier are
trained once for all settings that share them, so that a line differs from the frozen one by what it names. `table`
prints medians and ranges over these seeds of a file, and draws them.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import torch

from counterpath.data.datasets import load
from counterpath.experiments.tabular import (
    AS_PRINTED,
    EXPERIMENTS,
    SETTINGS,
    Preset,
    Settings,
    Study,
    build,
    describe_rbf,
    measure_optimizers,
    timed,
    with_settings,
)
from counterpath.models.calibration import calibrate
from counterpath.models.training import Run
from counterpath.utils.devices import resolve_device

ROWS = 128
"""People that are explained with each seed on a CPU: a flip ratio of 0.95 is then known to 0.02, that of ten seeds to
0.006. On a GPU it is everybody."""
DAMPINGS = (1e-6, 1e-3, 5e-3, 1e-2, 2e-2, 5e-2)
"""Those of the trade-off curve: from none to what makes RSGD nearly plain SGD."""


def candidates(settings: Settings) -> dict[str, Settings]:
    """What `choose` compares."""
    return {
        f"latent {width}, damping {damping:g}": replace(settings, latent_dim=width, damping=damping)
        for width in (4, 5)
        for damping in DAMPINGS
    }


def departures(settings: Settings, printed: Settings) -> dict[str, Settings]:
    """The frozen settings; with each departure from the appendix taken back, one at a time; and the appendix."""
    groups = {
        "bandwidth, weights and noise": ("bandwidth", "tied", "noise"),
        "classifier": ("classifier_learning_rate", "positive_weight"),
        "centers": ("centers",),
        "bandwidth": ("bandwidth",),
        "weights": ("tied",),
        "noise": ("noise",),
    }
    named = {"frozen": settings}
    for name, fields in groups.items():
        taken_back = replace(settings, **{each: getattr(printed, each) for each in fields})
        if taken_back != settings:
            named[f"{name} as printed"] = taken_back
    curve = {f"damping {each:g}": replace(settings, damping=each) for each in DAMPINGS if each != settings.damping}
    return {**named, "as printed": printed, **curve}


def lines(
    data: str, seed: int, size: Preset, mode: str, done: set[tuple[str, int]], only: str | None, device: torch.device
) -> Iterator[dict]:
    """Measure one seed with every setting that has not been."""
    dataset, run = load(EXPERIMENTS[data]), Run(seed=seed, progress=False)
    frozen, printed = SETTINGS[dataset.name], AS_PRINTED[dataset.name]
    named = candidates(frozen) if mode == "choose" else departures(frozen, printed)
    bases: dict[int, tuple[Settings, Study, float]] = {}
    built: dict[Settings, tuple[Study, float]] = {}
    for name, settings in named.items():
        if (name, seed) in done or (only is not None and name not in only.split(";")):
            continue
        if settings.latent_dim not in bases:
            base = replace(frozen, latent_dim=settings.latent_dim)
            bases[settings.latent_dim] = (
                base,
                *timed(build, dataset, size, run, device, base, validation=mode == "choose"),
            )
        base, study, seconds = bases[settings.latent_dim]
        undamped = replace(settings, damping=base.damping)
        if undamped != base:
            if undamped not in built:
                built[undamped] = timed(with_settings, study, undamped, base, size, run)
            study, seconds = built[undamped]
        figures, searched = timed(measure_optimizers, study, settings.damping)
        calibration = calibrate(study.vae, study.data.train, study.data.test[:1000])
        yield {
            "data": data,
            "mode": mode,
            "setting": name,
            "seed": seed,
            "rows": len(study.factual),
            "epochs": size.mean_epochs,
            "anneal": size.anneal,
            "seconds_fit": round(seconds, 1),
            "seconds_search": round(searched, 1),
            "uncertainty": asdict(calibration) | describe_rbf(study.vae),
            "figures": figures,
        }


def table(known: list[dict], data: str) -> str:
    """Medians and ranges over seeds, in Markdown: flip ratios, and LD², L1 and L2² over those of SGD."""
    settings = list(dict.fromkeys(line["setting"] for line in known if line["data"] == data))
    text = [
        "| setting | seeds | SGD flips | RSGD flips | RSGD-C flips | RSGD LD² / SGD | RSGD-C LD² / SGD "
        "| RSGD L1 / SGD | RSGD-C L1 / SGD | RSGD L2² / SGD | RSGD-C L2² / SGD |",
        "|" + "---|" * 11,
    ]
    for setting in settings:
        some = [line["figures"] for line in known if line["data"] == data and line["setting"] == setting]
        cells = [[each[name]["flip_ratio"] for each in some] for name in ("sgd", "rsgd", "rsgd-c")] + [
            [each[name][measure] / each["sgd"][measure] for each in some]
            for measure in ("ld_sq", "l1", "l2_sq")
            for name in ("rsgd", "rsgd-c")
        ]
        shown = [f"{median(cell):.2f} ({min(cell):.2f}–{max(cell):.2f})" for cell in cells]
        text.append(f"| {setting} | {len(some)} | {' | '.join(shown)} |")
    return "\n".join(text)


def draw(known: list[dict], data: str, path: Path) -> None:
    """Flips and distance to the data by setting: medians over seeds, and lines from the lowest to the highest seed."""
    from counterpath.explanation.plots.style import COLORS, figure

    there = list(dict.fromkeys(line["setting"] for line in known if line["data"] == data))
    damping = {name: float(name.split()[-1]) for name in there if name.startswith("damping")}
    damping["frozen"] = SETTINGS[EXPERIMENTS[data]].damping
    names = [*sorted(damping, key=damping.__getitem__), *(name for name in there if name not in damping)]
    with figure(path, 10, 0.4 + 0.3 * len(names)) as drawing:
        panels = drawing.subplots(1, 2, sharey=True)
        for number, name in enumerate(names):
            some = [line["figures"] for line in known if line["data"] == data and line["setting"] == name]
            for method, shift in (("rsgd", -0.15), ("rsgd-c", 0.15)):
                flips = [each[method]["flip_ratio"] for each in some]
                distances = [each[method]["ld_sq"] / each["sgd"]["ld_sq"] for each in some]
                for axes, values in zip(panels, (flips, distances), strict=True):
                    at, style = number + shift, {"color": COLORS[method], "label": None if number else method}
                    axes.plot((min(values), max(values)), (at, at), color=COLORS[method], linewidth=1)
                    axes.plot(median(values), at, "o", markersize=5, **style)
        panels[0].set_yticks(
            range(len(names)), [f"frozen (damping {damping[name]:g})" if name == "frozen" else name for name in names]
        )
        panels[0].invert_yaxis()
        panels[0].legend(loc="upper left")
        for axes, title in zip(panels, ("flip ratio after 150 steps", "LD² relative to SGD's"), strict=True):
            axes.set_title(title)
            axes.grid(axis="x", linewidth=0.3)
        panels[1].axvline(1, color="0.6", linewidth=0.8, linestyle=":")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("choose", "report", "table"))
    parser.add_argument("--data", choices=tuple(EXPERIMENTS), required=True)
    parser.add_argument("--seeds", required=True)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rows", type=int, help="people to explain with each seed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--anneal", action="store_true", help="fewer epochs with a rate that falls to nothing")
    parser.add_argument("--settings", help="only these, separated by semicolons")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device, seeds = resolve_device(asked.device), [int(seed) for seed in asked.seeds.split(",")]
    rows = asked.rows or (ROWS if device.type == "cpu" else None)
    size = Preset(asked.epochs, 3 * asked.epochs, 0, rows, 0, asked.anneal)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    if asked.mode == "table":
        chosen = [line for line in known if line["seed"] in seeds]
        print(table(chosen, asked.data))
        if any(line["setting"] == "as printed" for line in chosen if line["data"] == asked.data):
            draw(chosen, asked.data, asked.out.parent / f"trade-off-{asked.data}")
        return
    done = {(line["setting"], line["seed"]) for line in known if line["data"] == asked.data}
    for seed in seeds:
        for line in lines(asked.data, seed, size, asked.mode, done, asked.settings, device):
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

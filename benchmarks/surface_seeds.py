"""The surface with a hole over many seeds: which share of the paths enters the hole, by method.

    python benchmarks/surface_seeds.py --seeds 0,1,2,3,4,5,6,7,8,9 --out docs/results/surface/seeds.jsonl
    python benchmarks/surface_seeds.py table --out docs/results/surface/seeds.jsonl

As `counterpath reproduce surface --preset quick`, without the flow, and a line of JSON a seed: what is in the file
already is not run again. `table` prints medians and ranges.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import torch

from counterpath.experiments import surface
from counterpath.models.training import Run

METHODS = ("wachter", "ambient", "sgd", "rsgd", "rsgd-c", "geodesic", "face")
SHOWN = {
    "flip_ratio": "flip ratio",
    "hole_share": "enter the hole",
    "hole_share_behind": "… from behind",
    "hole_distance_behind": "nearest to its centre, from behind",
    "path_ld_max_sq": "highest LD²",
}


def measure(seed: int, preset: str, methods: tuple[str, ...]) -> dict[str, object]:
    """All figures of one seed."""
    run, size = Run(seed=seed, progress=False), surface.PRESETS[preset]
    scene = surface.build(size, run, torch.device("cpu"), with_flow=False)
    paths = {name: surface.search(scene, name, damping=1e-6, progress=False) for name in methods}
    return surface.measure(scene, paths, damping=1e-6)


def table(lines: list[dict]) -> str:
    """Medians over the seeds, and in brackets ranges, in Markdown."""
    text = [f"| method | seeds | {' | '.join(SHOWN.values())} |", "|" + "---|" * (len(SHOWN) + 2)]
    for method in lines[0]["methods"]:
        some = [line["methods"][method] for line in lines if method in line["methods"]]
        cells = []
        for name in SHOWN:
            values = [each[name] for each in some if each[name] is not None]
            cells.append(f"{median(values):.3g} ({min(values):.3g}–{max(values):.3g})")
        text.append(f"| `{method}` | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--preset", choices=tuple(surface.PRESETS), default="quick")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    known = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    if asked.mode == "table":
        print(table(known))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["preset"], line["seed"]) for line in known}
    for seed in map(int, asked.seeds.split(",")):
        if (asked.preset, seed) not in done:
            found = measure(seed, asked.preset, tuple(asked.methods.split(",")))
            line = {"preset": asked.preset, "seed": seed} | found
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

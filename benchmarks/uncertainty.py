"""The three estimates of a decoder's uncertainty side by side: surface, German Credit, Adult and digits.

    python benchmarks/uncertainty.py surface --seeds 100 --out docs/results/uncertainty/results.jsonl
    python benchmarks/uncertainty.py german --seeds 100 --out docs/results/uncertainty/results.jsonl
    python benchmarks/uncertainty.py adult --seeds 100 --out docs/results/uncertainty/results.jsonl
    python benchmarks/uncertainty.py digits --seeds 100 --out docs/results/uncertainty/results.jsonl
    python benchmarks/uncertainty.py table --out docs/results/uncertainty/results.jsonl

One line of JSON for each estimate and seed: how well σ tells data from empty space (AUC), its share of tr(M), and by
method the flip ratio, LD² and, on the surface, the share of paths through the hole. Costs are seconds of CPU time: of
the generative model's fit, and of a thousand linearisations with their metric. A default follows from this, so what is
explained are validation rows, a quarter of the training rows, and seeds are from 100 on; the explained classifier of a
seed is the same for all estimates. `table` prints medians over seeds and draws them.
"""

import argparse
import copy
import functools
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

import counterpath as cp
from counterpath.experiments import digits, surface
from counterpath.experiments.tabular import FIRST_VALIDATION_SEED
from counterpath.fitting.train import Sizes, fit_generator
from counterpath.geometry.metric import pullback
from counterpath.models.calibration import calibrate
from counterpath.models.latent import LatentModel, context_for
from counterpath.models.training import Run
from counterpath.models.uncertainty import UNCERTAINTIES
from counterpath.search.roadmap import Landmarks
from counterpath.utils.errors import CounterpathWarning

METHODS = ("rsgd", "rsgd-c", "geodesic")
"""Those whose paths the uncertainty changes."""
PEOPLE = 40
WANTED = {"german": "good", "adult": ">50K"}
ROWS, EPOCHS = {"adult": 5000}, {"german": 60, "adult": 30, "digits": 60}
"""Of Adult's training rows so many; epochs are a tenth to all of what the Explainer would take."""
SIZE = digits.Preset((), (), 8, 3, 4, 0, 0)
"""Three pairs of digits, four images each."""
T = TypeVar("T")


def cpu_timed(job: Callable[[], T]) -> tuple[T, float]:
    """A result and the CPU time that it took: other work on the machine does not count."""
    started = time.process_time()
    return job(), time.process_time() - started


def step_cost(model: LatentModel, x: torch.Tensor) -> float:
    """CPU seconds of a thousand linearisations with their metric."""
    z, context = model.encode(x[:512]), context_for(model, x[:512])
    times = [cpu_timed(lambda: pullback(model.linearize(z, context)))[1] for _ in range(7)]
    return 1000 * median(times) / len(z)


def on_surface(kind: str, seed: int) -> dict[str, Any]:
    """The paper's first experiment, with a decoder of this uncertainty."""
    run, size = Run(seed=seed, progress=False), surface.PRESETS["quick"]
    build = lambda: surface.build(size, run, torch.device("cpu"), with_flow=False, uncertainty=kind)  # noqa: E731
    scene, seconds = cpu_timed(build)
    paths = {method: surface.search(scene, method, damping=1e-6, progress=False) for method in METHODS}
    measured = surface.measure(scene, paths, damping=1e-6)["methods"]
    kept = "flip_ratio", "hole_share", "hole_share_behind", "ld_end_sq", "path_ld_max_sq"
    figures = {
        method: {("ld_sq" if key == "ld_end_sq" else key): measured[method][key] for key in kept} for method in METHODS
    }
    cost = {"seconds_fit": seconds, "seconds_step": step_cost(scene.vae, scene.train.x)}
    return cost | asdict(scene.calibration) | {"methods": figures}


def with_uncertainty(fitted: cp.Explainer, kind: str, epochs: int) -> tuple[cp.Explainer, dict[str, Any]]:
    """The explainer with another generative model, and what that costs and how it is calibrated."""
    fitted = copy.copy(fitted)
    models, run = fitted.models_, Run(seed=fitted.seed, progress=False)
    index = (~models.held_out).nonzero()[:, 0]
    widths = fitted.latent_dim, tuple(fitted.hidden), fitted.n_centers
    sizes = Sizes(*widths, epochs, fitted.numeric_output, kind, fitted.ordered_metric)
    generator, seconds = cpu_timed(lambda: fit_generator(models.rows, index, models.encoder, sizes, run))
    models = replace(models, generator=generator, landmarks=None, states={})
    drawn = models.latent, models.encoder.round, models.rows, models.probabilities, models.predict_proba
    fitted.models_ = replace(models, landmarks=Landmarks.of(*drawn, fitted.seed))
    train, held_out = models.rows[index], models.rows[models.held_out]
    measured = asdict(calibrate(models.latent, train, held_out))
    return fitted, measured | {"seconds_fit": seconds, "seconds_step": step_cost(models.latent, train)}


@functools.cache
def plain_explainer(data: str, seed: int) -> tuple[cp.Explainer, Any]:
    """An explainer whose classifier is trained and whose VAE is to be replaced, and what is to be explained."""
    if data == "digits":
        images = digits.Digits.load(seed)
        plain = digits.explainer_of_images(SIZE.compared, seed=seed, epochs=1, progress=False)
        return plain.fit(images.train, target="digit", schema=digits.schema()), images
    dataset = cp.datasets.load(data)
    table = dataset.train.sample(frac=1, random_state=seed)[: ROWS.get(data)]
    validation, train = table[: len(table) // 4], table[len(table) // 4 :]
    plain = cp.Explainer(fallback=False, epochs=1, seed=seed, progress=False)
    plain.fit(train, target=dataset.target, schema=dataset.schema)
    return plain, validation[(plain.predict(validation) != WANTED[data]).to_numpy()].head(PEOPLE)


def on_table(data: str) -> Callable[[str, int], dict[str, Any]]:
    """A table through the Explainer, as a user has it; local methods without their fallback."""

    def measure(kind: str, seed: int) -> dict[str, Any]:
        plain, people = plain_explainer(data, seed)
        explainer, figures = with_uncertainty(plain, kind, EPOCHS[data])
        methods = {}
        for method in METHODS:
            measures = explainer.explain(people, target_class=WANTED[data], method=method).measures()
            valid = measures["valid"] > 0
            ld_sq, l1 = (float(measures.loc[valid, name].mean()) for name in ("ld_sq", "l1"))
            methods[method] = {"flip_ratio": float(valid.mean()), "ld_sq": ld_sq, "l1": l1}
        return figures | {"people": len(people), "methods": methods}

    return measure


def on_digits(kind: str, seed: int) -> dict[str, Any]:
    """Digits, eight latent directions, as in `counterpath reproduce digits`."""
    plain, images = plain_explainer("digits", seed)
    judges = digits.Judges.fit(images.train, seed)
    explainer, figures = with_uncertainty(plain, kind, EPOCHS["digits"])
    rows, _ = digits.explain(explainer, images, judges, SIZE, methods=METHODS)
    methods = {
        row["method"]: {"flip_ratio": row["flip_ratio"], "judged": row.get("judged"), "ld_sq": row.get("ld_sq")}
        for row in rows
    }
    return figures | {"people": rows[0]["n"], "methods": methods}


EXPERIMENTS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "surface": on_surface,
    "german": on_table("german"),
    "adult": on_table("adult"),
    "digits": on_digits,
}


def table(lines: list[dict[str, Any]]) -> str:
    """Medians over seeds, in Markdown; flips, LD² and holes in the order of `METHODS`."""
    heading = "data", "uncertainty", "seeds", "AUC", "σ share", "flips", "LD²", "through the hole", "fit, s", "step, ms"
    text = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    for data in dict.fromkeys(line["data"] for line in lines):
        for kind in UNCERTAINTIES:
            some = [line for line in lines if (line["data"], line["uncertainty"]) == (data, kind)]

            def over(name: str, digits: int, some: list[dict[str, Any]] = some) -> str:
                found = [[line["methods"][method].get(name) for line in some] for method in METHODS]
                if any(None in each for each in found):
                    return "–"
                return " · ".join(f"{median(each):.{digits}f}" for each in found)

            cells = [f"{median(line[name] for line in some):.3f}" for name in ("auc", "sigma_share")]
            cells += [over("flip_ratio", 2), over("ld_sq", 3), over("hole_share", 2)]
            cells += [f"{median(line['seconds_fit'] for line in some):.1f}"]
            cells += [f"{median(line['seconds_step'] for line in some):.3f}"]
            text.append(f"| {data} | {kind} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(text)


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Bars of the medians: calibration, share of the metric, and what a step costs."""
    from counterpath.explanation.plots.style import PALETTE, figure

    panels = {"auc": "AUC of σ", "sigma_share": "σ's share of tr(M)", "seconds_step": "ms a step"}
    names = list(dict.fromkeys(line["data"] for line in lines))
    with figure(path, 3.2 * len(panels), 2.8) as drawing:
        for axes, (name, title) in zip(drawing.subplots(1, len(panels)), panels.items(), strict=True):
            for place, kind in enumerate(UNCERTAINTIES):
                heights = [
                    median(line[name] for line in lines if (line["data"], line["uncertainty"]) == (data, kind))
                    for data in names
                ]
                where = [number + 0.27 * (place - 1) for number in range(len(names))]
                axes.bar(where, heights, width=0.25, label=kind, color=PALETTE[place])
            axes.set_xticks(range(len(names)), names)
            axes.set_title(title)
            if name == "auc":
                axes.set_ylim(0.5, 1.0)  # from guessing to knowing
        drawing.axes[1].legend(loc="upper right")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=(*EXPERIMENTS, "table"))
    parser.add_argument("--seeds", default="100")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.data == "table":
        lines = [json.loads(line) for line in asked.out.read_text().splitlines()]
        draw(lines, asked.out.parent / "estimates")
        print(table(lines))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", CounterpathWarning)  # of models that are trained for one epoch, to be replaced
    for seed in map(int, asked.seeds.split(",")):
        if seed < FIRST_VALIDATION_SEED:
            raise SystemExit(f"a default is chosen with seeds from {FIRST_VALIDATION_SEED} on; given {seed}")
        for kind in UNCERTAINTIES:
            line = {"data": asked.data, "uncertainty": kind, "seed": seed, **EXPERIMENTS[asked.data](kind, seed)}
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

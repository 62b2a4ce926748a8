"""The paper's second experiment: the optimisers on Adult and Give Me Some Credit, by the protocol of its section 4.2.

Every optimiser takes 150 steps once without and once with the fidelity term; all tables and figures are read off those
paths. What is measured for a row is kept in one file a run, so an experiment that was cut off goes on from there.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterpath.data.datasets import load
from counterpath.experiments import tables
from counterpath.experiments.study import (
    AT_CONFIDENCE,
    EXPERIMENTS,
    FIDELITY,
    OPTIMIZERS,
    PRESETS,
    SETTINGS,
    STEPS,
    THRESHOLDS,
    Preset,
    Study,
    build,
    local_search,
    vae_of,
)
from counterpath.geometry.curve import metric_field
from counterpath.geometry.graph import Neighbours
from counterpath.geometry.metric import pullback
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.classifier import balanced_accuracy
from counterpath.models.layers import RBFPrecision
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_uncertainty
from counterpath.search.face import FaceGraph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import RoutePoints, refined_routes
from counterpath.search.measures import MEASURES, Case, path_distance_to_data, path_length, turning
from counterpath.search.method import SearchModels
from counterpath.search.nearest import nearest_accepted
from counterpath.search.objective import Target
from counterpath.search.paths import plausible_points
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import CostField, Landmarks, Roadmap, representatives
from counterpath.search.traverse import Trajectory
from counterpath.search.validity import Plausibility
from counterpath.utils.devices import map_blocks, resolve_device
from counterpath.utils.errors import choose
from counterpath.utils.files import atomic, write_json, write_text

Measured = dict[str, Tensor]
"""What was measured of a run: by measure and step or confidence, one number a row."""

EVERY = 5
"""LD along a path is measured at every fifth step, for a fifth of the time: steps are short, so little is missed."""
DAMPINGS = (1e-6, 1e-4, 1e-3, 1e-2)
"""Of the trade-off table: from what only keeps a metric invertible to what outweighs its smallest eigenvalues."""
BANDWIDTHS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the trade-off curve: from the paper's λ to several times the one that follows the spread of the codes."""
_CALIBRATION_ROWS = 4000
"""Test rows on which the uncertainty is checked: enough for three digits of its AUC."""
_HELD_OUT = 1000
"""Training rows whose distance to the others says how far real rows are apart: a small part of either data set."""


def reproduce(
    dataset: str,
    *,
    preset: str = "quick",
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    out: Path,
    damping: float | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run the experiment for every seed and write results, tables, figures and the report to `out`."""
    from counterpath.experiments.tabular_figures import draw_all
    from counterpath.explanation.report import write_report

    size, where = choose("preset", preset, PRESETS), resolve_device(device)
    data = load(choose("experiment", dataset, EXPERIMENTS))
    damping = SETTINGS[data.name].damping if damping is None else damping
    summaries, measured = [], []
    for seed in seeds:
        run = Run(seed=seed, checkpoint=out / "checkpoints" / preset / f"seed-{seed}", progress=progress)
        study = build(data, size, run, where)
        folder = out / "parts" / f"{preset}-seed-{seed}-{fingerprint(study, damping)}"
        measured.append(measure_runs(study, folder, damping, progress))
        summaries.append(summarize(study, size, run, folder, damping))
    results = tables.collect(dataset, preset, seeds, summaries, measured)
    write_json(out / "results.json", results)
    write_text(out / "table.md", tables.markdown(results))
    tables.frame(results).to_csv(out / "table.csv", index=False)
    draw_all(results, out / "figures")
    write_report(
        out / "report.html",
        f"Counterpath: {tables.TITLES[dataset]}",
        tables.sections(results),
        sorted((out / "figures").glob("*.svg")),
        lead=tables.caption(results),
    )
    return results


def fingerprint(study: Study, damping: float) -> str:
    """What the measured numbers depend on: models, factuals and damping; and which numbers they are."""
    digest = hashlib.sha256(repr((damping, STEPS, FIDELITY, THRESHOLDS, AT_CONFIDENCE)).encode())
    for tensor in (study.factual, *study.classifier.state_dict().values(), *study.vae.state_dict().values()):
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def measure_runs(study: Study, folder: Path, damping: float, progress: bool | None) -> dict[str, Measured]:
    """What was measured of every run, by its name: an optimiser and whether the fidelity term was on; baselines."""
    runs: dict[str, Callable[[], Measured]] = {}
    for constraint, fidelity in (("no", 0.0), ("yes", FIDELITY)):
        for name in (*OPTIMIZERS, *(tables.IN_DATA_SPACE if constraint == "no" else ())):
            runs[f"{name} {constraint}"] = partial(measure_local, study, name, fidelity, damping, progress)
    runs |= {name: partial(measure_baseline, study, name) for name in tables.BASELINES}
    runs |= {"geodesic": partial(measure_geodesic, study, progress), "face": partial(measure_face, study)}
    return {name: _cached(folder / f"{name.replace(' ', '-')}.safetensors", run) for name, run in runs.items()}


def _cached(path: Path, compute: Callable[[], Measured]) -> Measured:
    """The tensors in `path`, which are computed if the file is not there yet."""
    if not path.exists():
        computed = {key: value.cpu().contiguous() for key, value in compute().items()}
        with atomic(path) as temporary:
            save_file(computed, temporary)
    return load_file(path)


# Local methods: gradient steps, all of them taken.


def measure_local(study: Study, name: str, fidelity: float, damping: float, progress: bool | None) -> Measured:
    """What is measured of the paths of a local method, and how long the search took."""
    options: dict[str, Any] = {"steps": STEPS[-1], "damping": damping, "fidelity": fidelity, "progress": progress}
    label = f"{name}{' with fidelity' if fidelity else ''}"
    started = time.perf_counter()
    paths = local_search(study.models, name, study.factual, name=label, **options)
    seconds = torch.tensor(time.perf_counter() - started)
    measured = measure_steps(study, paths) | {"seconds": seconds}
    if name in OPTIMIZERS:
        measured["riemannian_length"] = _riemannian_length(study.vae, paths.z)
    return measured


def measure_steps(study: Study, paths: Trajectory) -> Measured:
    """One number a row for every measure at 50, 100 and 150 steps and at every confidence, and LD along the path."""
    legal = torch.stack([study.encoder.round(x) for x in paths.x])
    probability = torch.stack([map_blocks(study.classifier.probability, x) for x in legal])
    ld = path_distance_to_data(legal[::EVERY], study.neighbours)
    measured = {"path_ld": ld, "path_valid": (probability[::EVERY] >= 0.5).float()}
    for steps in STEPS:
        measured |= _measure(study.case(legal[steps]), MEASURES, steps)
        measured[f"path_ld_max@{steps}"] = ld[: steps // EVERY + 1].amax(0)
        measured |= _measure_path(study, legal[: steps + 1], steps)
    rows = torch.arange(len(study.factual), device=legal.device)
    for threshold in THRESHOLDS:
        reached = probability >= threshold
        first = torch.where(reached.any(0), reached.int().argmax(0), -1)
        measured[f"first@{threshold}"] = first.float()
        measured |= _measure(study.case(legal[first.clamp_min(0), rows], threshold), AT_CONFIDENCE, threshold)
        before = ld.masked_fill(EVERY * torch.arange(len(ld), device=ld.device)[:, None] > first, 0).amax(0)
        measured[f"path_ld_max@{threshold}"] = before.maximum(measured[f"ld@{threshold}"])
    return measured


def _measure(case: Case, names: Iterable[str], at: float) -> Measured:
    return {f"{name}@{at}": MEASURES[name](case) for name in names}


def _measure_path(study: Study, x: Float[Tensor, "t n D"], at: float) -> Measured:
    path = x * study.encoder.weights.to(x)
    return {f"path_length@{at}": path_length(path), f"turning@{at}": turning(path)}


def _riemannian_length(vae: VAE, z: Tensor) -> Tensor:
    """Σ √(δᵀMδ) over the steps, with the pull-back metric at the middle of each."""
    field = metric_field(vae.linearize, pullback)
    total = torch.zeros(z.shape[1], dtype=torch.float64, device=z.device)
    for before, after in itertools.pairwise(z):
        step = (after - before).double()
        metric = map_blocks(field, 0.5 * (before + after))
        total += (step[:, None] @ metric @ step[..., None])[:, 0, 0].clamp_min(0).sqrt()
    return total.float()


# Baselines: one row each, no path.


def measure_baseline(study: Study, name: str) -> Measured:
    """What is measured of a nearest accepted training row, or of what the VAE makes of the factual."""
    exists = torch.ones(len(study.factual), dtype=torch.bool, device=study.factual.device)
    if name == "reconstruction":
        end = map_blocks(study.vae.decode, map_blocks(study.vae.encode, study.factual))
    else:
        encoder, train = study.encoder, study.data.train
        accepted = map_blocks(study.classifier, train) > 0
        same = encoder.columns(*encoder.schema.immutable) if name == "nearest same" else None
        end, exists = nearest_accepted(study.factual, train, accepted, same, encoder.weights)
    measured = _measure(study.case(end), MEASURES, 0)
    measured["valid@0"] = measured["valid@0"] * exists
    measured["path_ld_max@0"] = measured["ld@0"].clone()
    return measured


# Global methods: shortest paths over a graph, which stop where the requested confidence is reached.


def measure_geodesic(study: Study, progress: bool | None) -> Measured:
    """What is measured of the paths over the roadmap, and how long building, searching and refining took.

    `leaping_ld_max@0` is the greatest LD over the points of a path that `geodesic` returns: those on the data.
    """
    times = [time.perf_counter()]
    roadmap = build_roadmap(study)
    times.append(time.perf_counter())
    roadmap.shortest_paths(roadmap.conditional(None), Target(1))
    times.append(time.perf_counter())
    data, feasible = _held_out_distances(study), FeasibleSet.of(study.encoder, study.factual, immutable=False)
    decoder = ResidualDecoder.of(study.vae, feasible, generative=True, keep_residual=False)

    def search(confidence: float, *, refine: bool = True) -> RoutePoints:
        target = Target(1, confidence=confidence)

        def is_valid(x: Tensor) -> Tensor:
            return target.is_reached(study.predict_proba(x))

        return refined_routes(
            roadmap, decoder, target, study.predict_proba, is_valid, data, refine=refine, progress=progress
        )

    times.append(time.perf_counter())
    search(THRESHOLDS[0], refine=False)
    times.append(time.perf_counter())
    measured: Measured = {}
    for threshold in THRESHOLDS:
        paths = search(threshold)
        if threshold == THRESHOLDS[0]:
            times.append(time.perf_counter())
            graph, routing, _, unrefined, refined = (after - before for before, after in itertools.pairwise(times))
            ld = data.distance(paths.x)
            returned = plausible_points(paths.row, ld, data.typical)
            measured |= {
                "gap@0": paths.gap.float(),
                "leaping_ld_max@0": path_max(paths.row[returned], ld[returned], len(study.factual)),
                "nodes": torch.tensor(len(roadmap.landmarks.z)),
                "edges": torch.tensor(0 if roadmap.graph is None else len(roadmap.graph.weight)),
                "bridges": torch.tensor(0 if roadmap.graph is None else int(roadmap.graph.bridge.sum())),
                "seconds_graph": torch.tensor(graph),
                "seconds_routes": torch.tensor(routing + unrefined),
                "seconds_refinement": torch.tensor(max(0.0, refined - unrefined)),
            }
        measured |= measure_at_confidence(study, paths.row, paths.x, threshold)
    return measured


def measure_face(study: Study) -> Measured:
    """What is measured of the paths over training rows."""
    train = study.data.train
    probabilities = study.predict_proba(train)
    nodes = representatives(train, probabilities, 0)
    graph = FaceGraph.build(train[nodes], probabilities[nodes], study.encoder.weights.to(train))
    feasible = FeasibleSet.of(study.encoder, study.factual, immutable=False)
    measured: Measured = {}
    for threshold in THRESHOLDS:
        row, x, *_ = graph.shortest_chains(feasible, Target(1, confidence=threshold))
        measured |= measure_at_confidence(study, row, x, threshold)
    return measured


def build_roadmap(study: Study) -> Roadmap:
    """The roadmap on the codes of training rows."""
    train, predict_proba = study.data.train, study.predict_proba
    landmarks = Landmarks.of(study.vae, study.encoder.round, train, predict_proba(train), predict_proba, 0)
    return Roadmap.build(CostField.of(study.vae, pullback, landmarks.z, None), landmarks, None, 0)


def _held_out_distances(study: Study) -> Plausibility:
    """The training rows, and how far some of them are from the others."""
    some, others = study.data.train[:_HELD_OUT], study.data.train[_HELD_OUT:]
    ld = Neighbours(others, study.neighbours.weights).nearest(some)[0][:, 0]
    return Plausibility(study.neighbours, float(ld.quantile(0.95)), float(ld.square().mean().sqrt()))


def measure_at_confidence(
    study: Study, row: Int[Tensor, "p"], x: Float[Tensor, "p D"], confidence: float
) -> dict[str, Tensor]:
    """One number a row for the measures of paths that stop at a confidence; at the least of them, for all measures.

    Args:
        study: The factuals that the paths start from, and the models.
        row: The factual of each point, in ascending order; each has at least one point.
        x: The points, as legal rows.
        confidence: The requested confidence.
    """
    count = len(study.factual)
    last = torch.bincount(row, minlength=count).cumsum(0) - 1
    case, ld = study.case(x[last], confidence), study.neighbours.nearest(x)[0][:, 0]
    ld_max = path_max(row, ld, count)
    measured = _measure(case, AT_CONFIDENCE, confidence)
    measured[f"path_ld_max@{confidence}"] = ld_max
    measured[f"first@{confidence}"] = torch.where(MEASURES["valid"](case) > 0, 0.0, -1.0)
    if confidence == THRESHOLDS[0]:
        measured |= _measure(case, MEASURES, 0) | _measure_path(study, pad_paths(row, x, count), 0)
        measured["path_ld_max@0"] = ld_max.clone()
    return measured


def path_max(row: Int[Tensor, "p"], values: Float[Tensor, "p"], count: int) -> Float[Tensor, "n"]:
    """The greatest of the values, none of them negative, along each path."""
    return torch.zeros(count, dtype=values.dtype, device=values.device).scatter_reduce(0, row, values, "amax")


def pad_paths(row: Int[Tensor, "p"], x: Float[Tensor, "p D"], count: int) -> Float[Tensor, "t n D"]:
    """Paths of one length: a shorter one repeats its last point."""
    points = torch.bincount(row, minlength=count)
    index = torch.arange(int(points.max()), device=row.device)[:, None].minimum(points - 1)
    return x[index + points.cumsum(0) - points]


# What is one number a seed: protocol, models, and two trade-offs.


def summarize(study: Study, size: Preset, run: Run, folder: Path, damping: float) -> dict[str, Any]:
    """Everything about a seed that is not one number a row."""
    data, classifier = study.data, study.classifier

    def trade_off(name: str, compute: Callable[..., Measured], *arguments: Any) -> dict[str, float]:
        return _flip_and_distance(_cached(folder / f"{name}.safetensors", partial(compute, *arguments)))

    return {
        "protocol": {
            "train_rows": len(data.train),
            "test_rows": len(data.test),
            "test_negatives": int((data.test_labels == 0).sum()),
            "factuals": len(study.factual),
            "damping": damping,
        },
        "classifier": {
            "balanced_accuracy_train": balanced_accuracy(classifier, data.train, data.train_labels),
            "balanced_accuracy_test": balanced_accuracy(classifier, data.test, data.test_labels),
            "correct_negatives": len(data.correctly_rejected(classifier)),
        },
        "uncertainty": {
            **asdict(_calibrate(study, study.vae)),
            "bandwidth": float(study.vae.precision.bandwidth[0]),
            "centers": len(study.vae.precision.centers),
            "zeta": study.vae.precision.zeta,
        },
        "curve": [
            {"bandwidth": value} | trade_off(f"bandwidth-{value}", _measure_bandwidth, study, size, run, value, damping)
            for value in BANDWIDTHS
        ],
        "dampings": [
            {"damping": value}
            | trade_off(f"damping-{value:g}", _measure_ends, study, study.vae, size.curve_factuals, value)
            for value in DAMPINGS
        ],
    }


def _calibrate(study: Study, vae: VAE) -> Calibration:
    return calibrate(vae, study.data.train, study.data.test[:_CALIBRATION_ROWS])


def _measure_bandwidth(study: Study, size: Preset, run: Run, bandwidth: float, damping: float) -> Measured:
    """Validity and squared LD after 150 steps, with the uncertainty fitted anew at a bandwidth."""
    vae, train = vae_of(study.models.folded()), study.data.train
    old = vae.precision
    vae.precision = RBFPrecision(vae.latent, train.shape[-1], len(old.centers), zeta=old.zeta).to(train)
    training = VAETraining(std_epochs=size.curve_epochs, std_learning_rate=0.01, bandwidth=bandwidth)
    fit_uncertainty(vae, train, training=training, run=replace(run, checkpoint=None))
    sigma_share = torch.tensor(_calibrate(study, vae).sigma_share)
    return _measure_ends(study, vae, size.curve_factuals, damping) | {"sigma_share": sigma_share}


def _measure_ends(study: Study, vae: VAE, count: int, damping: float) -> Measured:
    """Validity and squared LD after 150 steps for the first factuals."""
    factual, models = study.factual[:count], SearchModels(study.classifier, vae)
    measured: Measured = {}
    for name in tables.RIEMANNIAN:
        end = local_search(models, name, factual, steps=STEPS[-1], damping=damping).end
        case = study.case(end, factual=factual)
        measured |= {f"{measure} {name}": MEASURES[measure](case) for measure in ("valid", "ld_sq")}
    return measured


def _flip_and_distance(measured: Measured) -> dict[str, float]:
    """Flip ratio and mean squared LD of either method, and the share of σ in tr(M) where it was measured."""
    figures = {"sigma_share": float(measured["sigma_share"])} if "sigma_share" in measured else {}
    for name in tables.RIEMANNIAN:
        valid = measured[f"valid {name}"] > 0
        figures[f"flip_ratio {name}"] = float(valid.float().mean())
        figures[f"ld_sq {name}"] = float(measured[f"ld_sq {name}"][valid].mean()) if bool(valid.any()) else 0.0
    return figures

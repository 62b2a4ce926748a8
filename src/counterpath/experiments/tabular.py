"""The paper's second experiment: the optimisers on Adult and Give Me Some Credit, by the protocol of its section 4.2.

Every optimiser walks 150 steps once without and once with the fidelity term; all tables and figures are read off those
paths. What is measured for a row is kept in one file a run, so an experiment that was cut off goes on from there.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterpath.data.datasets import load
from counterpath.experiments import tables
from counterpath.experiments.study import AT_CONFIDENCE, PRESETS, SETTINGS, THRESHOLDS, Preset, Study, build
from counterpath.experiments.tabular_figures import draw_all
from counterpath.explanation.report import write_report
from counterpath.geometry.curve import metric_field
from counterpath.geometry.metric import pullback
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.classifier import balanced_accuracy
from counterpath.models.precision import RBFPrecision
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_uncertainty
from counterpath.search.cost_field import CostField
from counterpath.search.face import FaceGraph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.geodesic import RoutePoints, refined_routes
from counterpath.search.measures import MEASURES, path_distance_to_data, path_length, turning
from counterpath.search.methods import geometry_of
from counterpath.search.nearest import nearest_accepted
from counterpath.search.objective import Objective, Target
from counterpath.search.paths import plausible_points
from counterpath.search.plausibility import Plausibility
from counterpath.search.problem import SearchModels
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import Landmarks, Roadmap, representatives
from counterpath.search.traverse import Trajectory, traverse
from counterpath.utils.blocks import map_blocks
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import choose
from counterpath.utils.files import atomic, write_json, write_text

_HELD_OUT = 1000


def geodesic(study: Study, progress: bool | None) -> dict[str, Tensor]:
    """What is measured of the ways over the network, and how long laying, finding and refining them took.

    `leaping_ld_max@0` is the greatest LD over the points that `geodesic` returns of a way: those on the data.
    """
    started = time.perf_counter()
    network = lay(study)
    laid = time.perf_counter()
    network.shortest_paths(network.conditional(None), Target(1))
    looked = time.perf_counter()
    data, scope = data_of(study), FeasibleSet.of(study.encoder, study.factual, immutable=False)
    journey = ResidualDecoder.of(study.vae, scope, generative=True, keep_residual=False)
    prepared = time.perf_counter()
    _travel(study, network, journey, data, THRESHOLDS[0], progress, refine=False)
    routed = time.perf_counter()
    measured: dict[str, Tensor] = {}
    for threshold in THRESHOLDS:
        found = _travel(study, network, journey, data, threshold, progress)
        if threshold == THRESHOLDS[0]:
            refined = time.perf_counter()
            measured |= {
                "gap@0": found.gap.float(),
                "leaping_ld_max@0": _leaping(study, data, found),
                "nodes": torch.tensor(len(network.landmarks.z)),
                "edges": torch.tensor(0 if network.graph is None else len(network.graph.weight)),
                "bridges": torch.tensor(0 if network.graph is None else int(network.graph.bridge.sum())),
                "seconds_graph": torch.tensor(laid - started),
                "seconds_routes": torch.tensor(looked - laid + routed - prepared),
                "seconds_refinement": torch.tensor(max(0.0, refined - routed - (routed - prepared))),
            }
        measured |= measure(study, found.row, found.x, threshold)
    return measured


def face(study: Study, progress: bool | None) -> dict[str, Tensor]:
    """What is measured of the chains of training rows."""
    answers = study.answers(study.train)
    rows = representatives(study.train, answers, 0)
    chains = FaceGraph.build(study.train[rows], answers[rows], study.encoder.weights.to(study.train))
    scope = FeasibleSet.of(study.encoder, study.factual, immutable=False)
    measured: dict[str, Tensor] = {}
    for threshold in THRESHOLDS:
        row, x, *_ = chains.shortest_chains(scope, Target(1, confidence=threshold))
        measured |= measure(study, row, x, threshold)
    return measured


def lay(study: Study) -> Roadmap:
    """The network on the codes of training rows."""
    answers = study.answers(study.train)
    landmarks = Landmarks.of(study.vae, study.encoder.round, study.train, answers, study.answers, 0)
    return Roadmap.build(CostField.of(study.vae, pullback, landmarks.z, None), landmarks, None, 0)


def data_of(study: Study) -> Plausibility:
    """The training rows, and how far some of them are from the others."""
    some, others = study.train[:_HELD_OUT], study.train[_HELD_OUT:]
    apart = Neighbours(others, study.neighbours.weights).nearest(some)[0][:, 0]
    return Plausibility(study.neighbours, float(apart.quantile(0.95)), float(apart.square().mean().sqrt()))


def _travel(
    study: Study,
    network: Roadmap,
    journey: ResidualDecoder,
    data: Plausibility,
    confidence: float,
    progress: bool | None,
    *,
    refine: bool = True,
) -> RoutePoints:
    wanted = Target(1, confidence=confidence)
    return refined_routes(
        network,
        journey,
        wanted,
        study.answers,
        lambda x: wanted.is_reached(study.answers(x)),
        data,
        refine=refine,
        progress=progress,
    )


def measure(study: Study, row: Int[Tensor, "p"], x: Float[Tensor, "p D"], confidence: float) -> dict[str, Tensor]:
    """One number a person for every measure of paths that stop at a confidence; at the least of them, of all measures.

    Args:
        study: Whose factuals they are.
        row: Whose point it is, in ascending order; everybody has one.
        x: The points, as legal rows.
        confidence: What was asked for.
    """
    count = len(study.factual)
    last = torch.bincount(row, minlength=count).cumsum(0) - 1
    case, ld = study.case(x[last], confidence), study.neighbours.nearest(x)[0][:, 0]
    highest = greatest(row, ld, count)
    measured = {f"{name}@{confidence}": MEASURES[name](case) for name in AT_CONFIDENCE}
    measured[f"path_ld_max@{confidence}"] = highest
    measured[f"first@{confidence}"] = torch.where(MEASURES["valid"](case) > 0, 0.0, -1.0)
    if confidence == THRESHOLDS[0]:
        path = dense(row, x, count) * study.encoder.weights.to(x)
        measured |= {f"{name}@0": function(case) for name, function in MEASURES.items()}
        measured |= {"path_ld_max@0": highest.clone(), "path_length@0": path_length(path), "turning@0": turning(path)}
    return measured


def greatest(row: Int[Tensor, "p"], values: Float[Tensor, "p"], count: int) -> Float[Tensor, "n"]:
    """The greatest of the values, none of them negative, along each path."""
    return torch.zeros(count, dtype=values.dtype, device=values.device).scatter_reduce(0, row, values, "amax")


def dense(row: Int[Tensor, "p"], x: Float[Tensor, "p D"], count: int) -> Float[Tensor, "t n D"]:
    """Paths of one length: who is at the end of theirs waits there."""
    points = torch.bincount(row, minlength=count)
    place = torch.arange(int(points.max()), device=row.device)[:, None].minimum(points - 1)
    return x[place + points.cumsum(0) - points]


def _leaping(study: Study, data: Plausibility, found: RoutePoints) -> Tensor:
    ld = data.distance(found.x)
    kept = plausible_points(found.row, ld, data.typical)
    return greatest(found.row[kept], ld[kept], len(study.factual))


ROADS: dict[str, Callable[[Study, bool | None], dict[str, Tensor]]] = {"geodesic": geodesic, "face": face}


STEPS = (50, 100, 150)
EVERY = 5
"""LD along a path is measured at every fifth step."""
OPTIMIZERS = ("sgd", "rsgd", "rsgd-c")
FIDELITY = 0.1
DAMPINGS = (1e-6, 1e-4, 1e-3, 1e-2)
BANDWIDTHS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


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
    size, target = choose("preset", preset, PRESETS), resolve_device(device)
    data = load(dataset)
    damping = SETTINGS[dataset].damping if damping is None else damping
    by_seed, parts_by_seed = [], []
    for seed in seeds:
        run = Run(seed=seed, checkpoint=out / "checkpoints" / preset / f"seed-{seed}", progress=progress)
        study = build(data, size, run, target)
        folder = out / "parts" / f"{preset}-seed-{seed}-{fingerprint(study, damping)}"
        parts_by_seed.append(runs(study, folder, damping, progress))
        by_seed.append(summary(study, size, run, folder, damping))
    results = tables.collect(dataset, preset, seeds, by_seed, parts_by_seed)
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


def runs(study: Study, folder: Path, damping: float, progress: bool | None) -> dict[str, dict[str, Tensor]]:
    """What was measured of every run, by its name: an optimiser and whether the fidelity term was on; baselines."""
    jobs: dict[str, Callable[[], dict[str, Tensor]]] = {}
    for constraint in ("no", "yes"):
        for name in (*OPTIMIZERS, *(("wachter", "ambient") if constraint == "no" else ())):
            jobs[f"{name} {constraint}"] = lambda name=name, constraint=constraint: _walk(  # type: ignore[misc]
                study, name, FIDELITY * (constraint == "yes"), damping, progress
            )
    jobs |= {name: lambda name=name: _baseline(study, name) for name in tables.BASELINES}  # type: ignore[misc]
    jobs |= {name: lambda find=find: find(study, progress) for name, find in ROADS.items()}  # type: ignore[misc]
    return {name: _kept(folder / f"{name.replace(' ', '-')}.safetensors", job) for name, job in jobs.items()}


def _kept(path: Path, job: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors in `path`, which `job` makes if the file is not there yet."""
    if not path.exists():
        made = {key: value.cpu().contiguous() for key, value in job().items()}
        with atomic(path) as temporary:
            save_file(made, temporary)
    return load_file(path)


def _walk(study: Study, name: str, fidelity: float, damping: float, progress: bool | None) -> dict[str, Tensor]:
    model, metric = geometry_of(name, SearchModels(study.classifier, study.vae))
    started = time.perf_counter()
    found = traverse(
        model,
        metric,
        Objective(study.classifier, fidelity=fidelity),
        study.factual,
        steps=STEPS[-1],
        damping=damping,
        progress=progress,
        name=f"{name}{' with fidelity' if fidelity else ''}",
    )
    seconds = torch.tensor(time.perf_counter() - started)
    measured = measure_paths(study, found) | {"seconds": seconds}
    if model is study.vae:
        measured["riemannian_length"] = _riemannian_length(study.vae, found.z)
    return measured


def measure_paths(study: Study, found: Trajectory) -> dict[str, Tensor]:
    """One number a row for every measure at 50, 100 and 150 steps and at every confidence, and LD along the path."""
    legal = torch.stack([study.encoder.round(x) for x in found.x])
    probability = torch.stack([map_blocks(study.classifier.probability, x) for x in legal])
    ld = path_distance_to_data(legal[::EVERY], study.neighbours)
    measured = {"path_ld": ld, "path_valid": (probability[::EVERY] >= 0.5).float()}
    for steps in STEPS:
        case = study.case(legal[steps])
        values = {name: function(case) for name, function in MEASURES.items()}
        path = legal[: steps + 1] * study.encoder.weights.to(legal)
        values |= {"path_ld_max": ld[: steps // EVERY + 1].amax(0), "path_length": path_length(path)}
        values["turning"] = turning(path)
        measured |= {f"{name}@{steps}": value for name, value in values.items()}
    rows = torch.arange(len(study.factual), device=legal.device)
    for threshold in THRESHOLDS:
        reached = probability >= threshold
        first = torch.where(reached.any(0), reached.int().argmax(0), -1)
        case = study.case(legal[first.clamp_min(0), rows], threshold)
        measured[f"first@{threshold}"] = first.float()
        measured |= {f"{name}@{threshold}": MEASURES[name](case) for name in AT_CONFIDENCE}
        before = ld.masked_fill(EVERY * torch.arange(len(ld), device=ld.device)[:, None] > first, 0).amax(0)
        measured[f"path_ld_max@{threshold}"] = before.maximum(measured[f"ld@{threshold}"])
    return measured


def _riemannian_length(vae: VAE, z: Tensor) -> Tensor:
    """Σ √(δᵀMδ) over the steps, with the pull-back metric at the middle of each."""
    field = metric_field(vae.linearize, pullback)
    total = torch.zeros(z.shape[1], dtype=torch.float64, device=z.device)
    for before, after in itertools.pairwise(z):
        step = (after - before).double()
        metric = map_blocks(field, 0.5 * (before + after))
        total += (step[:, None] @ metric @ step[..., None])[:, 0, 0].clamp_min(0).sqrt()
    return total.float()


def _baseline(study: Study, name: str) -> dict[str, Tensor]:
    accepted = map_blocks(study.classifier, study.train) > 0
    exists = torch.ones(len(study.factual), dtype=torch.bool, device=study.factual.device)
    if name == "reconstruction":
        end = map_blocks(study.vae.decode, map_blocks(study.vae.encode, study.factual))
    else:
        encoder = study.encoder
        same = encoder.columns(*encoder.schema.immutable) if name == "nearest same" else None
        end, exists = nearest_accepted(study.factual, study.train, accepted, same, encoder.weights)
    case = study.case(end)
    measured = {f"{measure}@0": function(case) for measure, function in MEASURES.items()}
    measured["valid@0"] = measured["valid@0"] * exists
    measured["path_ld_max@0"] = measured["ld@0"].clone()
    return measured


def summary(study: Study, size: Preset, run: Run, folder: Path, damping: float) -> dict[str, Any]:
    """Everything about a seed that is not one number a row."""
    negatives = int((study.test_labels == 0).sum())
    correct = int(((study.test_labels == 0) & (map_blocks(study.classifier, study.test) <= 0)).sum())
    return {
        "protocol": {
            "train_rows": len(study.train),
            "test_rows": len(study.test),
            "test_negatives": negatives,
            "factuals": len(study.factual),
            "damping": damping,
        },
        "classifier": {
            "balanced_accuracy_train": balanced_accuracy(study.classifier, study.train, study.train_labels),
            "balanced_accuracy_test": balanced_accuracy(study.classifier, study.test, study.test_labels),
            "correct_negatives": correct,
        },
        "uncertainty": {
            **asdict(_calibration(study, study.vae)),
            "bandwidth": float(study.vae.precision.bandwidth[0]),
            "centers": len(study.vae.precision.centers),
            "zeta": study.vae.precision.zeta,
        },
        "curve": [
            _trade_off(study, size, run, folder / f"bandwidth-{bandwidth}.safetensors", bandwidth, damping)
            for bandwidth in BANDWIDTHS
        ],
        "dampings": [
            {"damping": value}
            | _flip_and_distance(
                _kept(
                    folder / f"damping-{value:g}.safetensors",
                    lambda value=value: _ends(study, study.vae, size.curve_factuals, value),  # type: ignore[misc]
                )
            )
            for value in DAMPINGS
        ],
    }


def _calibration(study: Study, vae: VAE) -> Calibration:
    return calibrate(vae, study.train, study.test[:4000])


def _trade_off(study: Study, size: Preset, run: Run, path: Path, bandwidth: float, damping: float) -> dict[str, float]:
    """Squared LD and flip ratio after 150 steps, with the uncertainty fitted anew at a bandwidth."""

    def job() -> dict[str, Tensor]:
        vae = SearchModels(study.classifier, study.vae).folded().vae
        assert vae is not None
        old = vae.precision
        vae.precision = RBFPrecision(vae.latent, study.train.shape[-1], len(old.centers), zeta=old.zeta).to(study.train)
        training = VAETraining(std_epochs=size.curve_epochs, std_learning_rate=0.01, bandwidth=bandwidth)
        fit_uncertainty(vae, study.train, training=training, run=replace(run, checkpoint=None))
        share = torch.tensor(_calibration(study, vae).sigma_share)
        return _ends(study, vae, size.curve_factuals, damping) | {"sigma_share": share}

    kept = _kept(path, job)
    return {"bandwidth": bandwidth, "sigma_share": float(kept["sigma_share"]), **_flip_and_distance(kept)}


def _ends(study: Study, vae: VAE, count: int, damping: float) -> dict[str, Tensor]:
    """Validity and squared LD after 150 steps for the first factuals."""
    factual = study.factual[:count]
    measured: dict[str, Tensor] = {}
    for name in ("rsgd", "rsgd-c"):
        model, metric = geometry_of(name, SearchModels(study.classifier, vae))
        objective = Objective(study.classifier)
        end = traverse(model, metric, objective, factual, steps=STEPS[-1], damping=damping).end
        case = study.case(end, factual=factual)
        measured |= {f"valid {name}": MEASURES["valid"](case), f"ld_sq {name}": MEASURES["ld_sq"](case)}
    return measured


def _flip_and_distance(kept: dict[str, Tensor]) -> dict[str, float]:
    figures = {}
    for name in ("rsgd", "rsgd-c"):
        valid = kept[f"valid {name}"] > 0
        figures[f"flip_ratio {name}"] = float(valid.float().mean())
        figures[f"ld_sq {name}"] = float(kept[f"ld_sq {name}"][valid].mean()) if bool(valid.any()) else 0.0
    return figures

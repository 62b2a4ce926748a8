"""The paper's second experiment: the optimisers on Adult and Give Me Some Credit, by the protocol of its section 4.2.

Every optimiser takes 150 steps once without and once with the fidelity term; all tables and figures are read off those
paths. What is measured for a row is kept in one file a run, so an experiment that was cut off goes on from there.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterpath.data.datasets import Dataset, load
from counterpath.data.encoding import Encoder
from counterpath.experiments import tables
from counterpath.experiments.tables import OPTIMIZERS, STEPS, THRESHOLDS
from counterpath.geometry.graph import Neighbours
from counterpath.geometry.metric import DAMPING, pullback
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.classifier import Classifier, balanced_accuracy, fit_classifier, probabilities
from counterpath.models.layers import RBFPrecision
from counterpath.models.training import Run
from counterpath.models.uncertainty import RBF
from counterpath.models.vae import VAE, VAETraining, fit_uncertainty, fit_vae
from counterpath.search.face import FaceGraph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.measures import MEASURES, Case, path_distance_to_data, path_length, turning
from counterpath.search.method import SearchModels
from counterpath.search.methods import geometry_of
from counterpath.search.nearest import nearest_accepted
from counterpath.search.objective import Objective, Target
from counterpath.search.paths import plausible_points
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import CostField, Landmarks, Roadmap, representatives
from counterpath.search.routes import RoutePoints, refined_routes
from counterpath.search.traverse import Trajectory, traverse
from counterpath.search.validity import Plausibility, Validator
from counterpath.utils.devices import map_blocks, resolve_device
from counterpath.utils.errors import InputError, choose
from counterpath.utils.files import atomic, write_json, write_text

R = TypeVar("R")
Models = SearchModels[Classifier, VAE]
Measured = dict[str, Tensor]
"""What was measured of a run: by measure and step or confidence, one number a row."""

FIDELITY = 0.1
"""α, the weight of the fidelity term in the half of the runs that has it; the paper's."""
AT_CONFIDENCE = ("ld", "ld_sq", "l1", "l2", "l2_sq")
"""What is measured of the first point that reaches a confidence; LD along the path up to there, besides."""
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


@dataclass(frozen=True)
class Settings:
    """What differs between the data sets, and from the paper's appendix.

    Attributes:
        centers: RBF centres.
        std_learning_rate: Adam's, for an RBF network with one weight a feature and centre.
        positive_weight: How much an error on class 1 weighs; None weighs the classes alike.
        damping: Added to the metric's diagonal.
        latent_dim: Width of a code.
        bandwidth: λ of the RBF network, or "auto", which follows the codes.
        tied: One weight a feature in it, instead of one a feature and centre.
        noise: What rows are taken to carry when σ is fitted.
        classifier_learning_rate: RMSprop's.
        uncertainty: How σ is estimated (see `models.uncertainty`).
    """

    centers: int
    std_learning_rate: float
    positive_weight: float | None
    damping: float
    latent_dim: int = 5
    bandwidth: float | str = "auto"
    tied: bool = True
    noise: float = 0.1
    classifier_learning_rate: float = 1e-4
    uncertainty: str = "rbf"


EXPERIMENTS = {"adult": "adult-carla", "gmc": "gmc-carla"}
"""By experiment the data set that it is about: the tables of CARLA, as the paper has them."""
SETTINGS = {"adult-carla": Settings(500, 1e-3, 1.5, 5e-3), "gmc-carla": Settings(350, 1e-2, None, 5e-3)}
"""By data set. docs/results/README.md says where they depart from the appendix, and what each departure does."""
AS_PRINTED = {
    "adult-carla": Settings(200, 1e-3, 1.0, DAMPING, 5, 0.01, tied=False, noise=0.0, classifier_learning_rate=1e-5),
    "gmc-carla": Settings(350, 1e-2, 1.0, DAMPING, 5, 0.01, tied=False, noise=0.0, classifier_learning_rate=1e-5),
}
"""The appendix to the letter. It has no damping: this is what keeps a metric invertible."""


@dataclass(frozen=True)
class Preset:
    """How large the experiment is.

    Attributes:
        mean_epochs: For encoder and mean of the VAE.
        std_epochs: For its uncertainty.
        curve_epochs: For the uncertainty at each bandwidth of the trade-off curve.
        factuals: At most so many rows are explained; None for all.
        curve_factuals: The same, for the trade-off curve.
        anneal: Let the learning rate fall from twice the printed one to nothing, which takes a fraction of the epochs.
    """

    mean_epochs: int
    std_epochs: int
    curve_epochs: int
    factuals: int | None
    curve_factuals: int
    anneal: bool = False


PRESETS = {"quick": Preset(12, 4, 1, 1000, 300), "paper": Preset(100, 300, 6, None, 2000)}
"""`quick` takes minutes on two cores; `paper` trains as long as the paper's appendix says, and explains every row."""
FIRST_VALIDATION_SEED = 100
"""Settings are chosen with seeds from here on, and on validation rows; results are of seeds below, and test rows."""
_VALIDATION_SHARE = 0.25
"""Of the training rows, to choose settings by: as many as the test rows are of all."""


@dataclass(frozen=True)
class EncodedData:
    """The rows of a data set as tensors, with their labels, 0 or 1."""

    train: Float[Tensor, "m D"]
    test: Float[Tensor, "n D"]
    train_labels: Float[Tensor, "m"]
    test_labels: Float[Tensor, "n"]

    @classmethod
    def of(cls, data: Dataset, device: torch.device) -> "EncodedData":
        """Encode a data set."""
        encoder, names = data.encoder(), list(data.schema.names)
        train, test = (encoder.encode(frame[names]).to(device) for frame in (data.train, data.test))
        train_labels, test_labels = (
            torch.from_numpy(frame[data.target].to_numpy(np.float32)).to(device) for frame in (data.train, data.test)
        )
        return cls(train, test, train_labels, test_labels)

    def validation(self, seed: int) -> "EncodedData":
        """The training rows alone: a quarter of them, drawn by the seed, stands in for the test rows."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed)).to(self.train.device)
        held_out, rest = order.tensor_split([round(_VALIDATION_SHARE * len(order))])
        labels = self.train_labels
        return EncodedData(self.train[rest], self.train[held_out], labels[rest], labels[held_out])

    def correctly_rejected(self, classifier: Classifier) -> Float[Tensor, "k D"]:
        """The test rows of class 0 that the classifier rejects: those to be explained."""
        return self.test[(self.test_labels == 0) & (map_blocks(classifier, self.test) <= 0)]


def describe(data: EncodedData, classifier: Classifier, rejected: int, **protocol: float) -> dict[str, Any]:
    """How many rows there are, and how good the classifier is, which correctly rejects so many of them."""
    return {
        "protocol": {
            "train_rows": len(data.train),
            "test_rows": len(data.test),
            "test_negatives": int((data.test_labels == 0).sum()),
            **protocol,
        },
        "classifier": {
            "balanced_accuracy_train": balanced_accuracy(classifier, data.train, data.train_labels),
            "balanced_accuracy_test": balanced_accuracy(classifier, data.test, data.test_labels),
            "correct_negatives": rejected,
        },
    }


@dataclass(frozen=True)
class Study:
    """What one seed gives: encoded data, fitted models, and the factuals to be explained."""

    encoder: Encoder
    data: EncodedData
    models: Models
    factual: Tensor
    neighbours: Neighbours

    @property
    def classifier(self) -> Classifier:
        """The model under explanation."""
        return self.models.classifier

    @property
    def vae(self) -> VAE:
        """The generative model."""
        return vae_of(self.models)

    def case(self, counterfactual: Tensor, confidence: float = 0.5, factual: Tensor | None = None) -> Case:
        """Counterfactuals, rounded to legal rows, beside their factuals."""
        legal = self.encoder.round(counterfactual)
        factual = self.factual if factual is None else factual
        return Case(factual, legal, self.classifier.probability, self.encoder, self.neighbours, confidence)

    def predict_proba(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n 2"]:
        """The probability of either class."""
        return probabilities(map_blocks(self.classifier, x))


def build(
    data: Dataset,
    size: Preset,
    run: Run,
    device: torch.device,
    settings: Settings | None = None,
    *,
    validation: bool = False,
) -> Study:
    """Encode the data and fit classifier and VAE, by default with the settings of the data set.

    Args:
        data: The data set.
        size: Of the experiment.
        run: Seed, checkpoints and progress.
        device: Where to compute.
        settings: Others than those of the data set.
        validation: Measure on validation rows, cut from the training rows, instead of test rows.

    Raises:
        InputError: The seed is one that results are reported for, and the rows are validation rows.
    """
    if validation and run.seed < FIRST_VALIDATION_SEED:
        raise InputError(
            f"settings are chosen with seeds from {FIRST_VALIDATION_SEED} on; given {run.seed}, which results may be "
            "reported for"
        )
    rows = EncodedData.of(data, device)
    rows = rows.validation(run.seed) if validation else rows
    settings = SETTINGS[data.name] if settings is None else settings
    return assemble(data, rows, fit_models(rows, settings, size, run), size.factuals)


def assemble(data: Dataset, rows: EncodedData, fitted: Models, factuals: int | None = None) -> Study:
    """The study of models that were fitted before, with at most `factuals` rows to be explained, None for all."""
    encoder, models = data.encoder(), fitted.folded()
    neighbours = Neighbours(rows.train, encoder.weights.to(rows.train.device))
    return Study(encoder, rows, models, rows.correctly_rejected(models.classifier)[:factuals], neighbours)


def vae_of(models: Models) -> VAE:
    """The VAE of models that have one."""
    if models.vae is None:
        raise InputError("a latent step needs a VAE, and there is none: give models with one")
    return models.vae


def fit_models(rows: EncodedData, settings: Settings, size: Preset, run: Run) -> Models:
    """Classifier and VAE as training leaves them, with their BatchNorm layers."""
    vae = fit_vae(
        rows.train,
        settings.latent_dim,
        uncertainty=settings.uncertainty,
        centers=settings.centers,
        tied=settings.tied,
        training=_training(settings, size),
        run=run,
    )
    return SearchModels(fit_judged(rows, settings, run), vae)


def fit_judged(rows: EncodedData, settings: Settings, run: Run) -> Classifier:
    """The classifier of these settings: the model under explanation."""
    balance = float((rows.train_labels == 0).sum() / (rows.train_labels == 1).sum())
    return fit_classifier(
        rows.train,
        rows.train_labels,
        learning_rate=settings.classifier_learning_rate,
        class_weights=(1.0, balance if settings.positive_weight is None else settings.positive_weight),
        run=run,
    )


def _training(settings: Settings, size: Preset) -> VAETraining:
    return VAETraining(
        mean_epochs=size.mean_epochs,
        learning_rate=2e-3 if size.anneal else 1e-3,
        anneal=size.anneal,
        std_epochs=size.std_epochs,
        std_learning_rate=settings.std_learning_rate,
        bandwidth=settings.bandwidth,
        noise=settings.noise,
    )


def with_settings(study: Study, settings: Settings, known: Settings, size: Preset, run: Run) -> Study:
    """A study with other settings of the classifier or of σ: what they do not concern is kept as it was trained.

    Args:
        study: Fitted with the `known` settings.
        settings: Others, with codes as wide.
        known: Those of the study.
        size: Of the experiment.
        run: Seed and progress.
    """
    rows, vae, classifier = study.data, study.vae, study.classifier
    judged = "classifier_learning_rate", "positive_weight"
    if any(getattr(settings, name) != getattr(known, name) for name in judged):
        classifier = fit_judged(rows, settings, replace(run, checkpoint=None))
    sigma = "centers", "bandwidth", "tied", "noise", "std_learning_rate"
    if any(getattr(settings, name) != getattr(known, name) for name in sigma):
        training = _training(settings, size)
        vae = _with_sigma(
            study, RBF(vae.latent, rows.train.shape[-1], settings.centers, tied=settings.tied), training, run
        )
    models = SearchModels(classifier, vae).folded()
    return replace(study, models=models, factual=rows.correctly_rejected(models.classifier)[: size.factuals])


def _with_sigma(study: Study, precision: RBF, training: VAETraining, run: Run) -> VAE:
    """The study's VAE, its uncertainty fitted anew."""
    vae, train = vae_of(study.models.folded()), study.data.train
    vae.precision = precision.to(train)
    fit_uncertainty(vae, train, training=training, run=replace(run, checkpoint=None))
    return vae


def local_search(
    models: Models,
    method: str,
    factual: Float[Tensor, "n D"],
    *,
    fidelity: float = 0.0,
    **options: Any,
) -> Trajectory:
    """Search by gradient steps, as all experiments and benchmarks do.

    Args:
        models: The fitted models.
        method: A method that takes gradient steps.
        factual: The rows to start from.
        fidelity: α, the weight of the fidelity term; without it the term is left out.
        options: As of `traverse`.
    """
    model, metric = geometry_of(method, models)
    return traverse(model, metric, Objective(models.classifier, fidelity=fidelity), factual, **options)


def reproduce(
    dataset: str,
    *,
    preset: str = "quick",
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    out: Path,
    damping: float | None = None,
    as_printed: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run the experiment for every seed and write results, tables, figures and the report to `out`.

    Args:
        dataset: One of `EXPERIMENTS`.
        preset: One of `PRESETS`.
        seeds: Of everything that is random.
        device: Where to compute.
        out: Where to write.
        damping: Another than that of the settings.
        as_printed: Take the settings of the paper's appendix to the letter.
        progress: Show bars.
    """
    from counterpath.experiments.figures import draw_tabular
    from counterpath.explanation.report.build import write_report

    size, where = choose("preset", preset, PRESETS), resolve_device(device)
    data = load(choose("experiment", dataset, EXPERIMENTS))
    settings = (AS_PRINTED if as_printed else SETTINGS)[data.name]
    settings = settings if damping is None else replace(settings, damping=damping)
    damping = settings.damping
    summaries, measured = [], []
    for seed in seeds:
        run = Run(seed=seed, checkpoint=out / "checkpoints" / preset / f"seed-{seed}", progress=progress)
        study = build(data, size, run, where, settings)
        folder = out / "parts" / f"{preset}-seed-{seed}-{fingerprint(study, damping)}"
        measured.append(measure_runs(study, folder, damping, progress))
        summaries.append(summarize(study, size, run, folder, damping))
    results = tables.collect(dataset, preset, seeds, summaries, measured)
    results["settings"] = asdict(settings)
    write_json(out / "results.json", results)
    write_text(out / "table.md", tables.markdown(results))
    tables.frame(results).to_csv(out / "table.csv", index=False)
    draw_tabular(results, out / "figures")
    write_report(
        out / "report.html",
        f"Counterpath: {tables.TITLES[dataset]}",
        tables.sections(results),
        sorted((out / "figures").glob("*.svg")),
        lead=tables.caption(results),
    )
    return results


def timed(job: Callable[..., R], *arguments: Any, **options: Any) -> tuple[R, float]:
    """What a job returns, and how many seconds it took."""
    started = time.perf_counter()
    result = job(*arguments, **options)
    return result, time.perf_counter() - started


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
    paths, seconds = timed(partial(local_search, study.models, name, study.factual, name=label, **options))
    return measure_steps(study, paths) | {"seconds": torch.tensor(seconds)}


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
    roadmap, graph = timed(build_roadmap, study)
    _, routing = timed(lambda: roadmap.shortest_paths(Target(1)))
    some, others = study.data.train[:_HELD_OUT], study.data.train[_HELD_OUT:]
    apart = Neighbours(others, study.neighbours.weights).nearest(some)[0][:, 0]
    data = Plausibility(study.neighbours, float(apart.quantile(0.95)), float(apart.square().mean().sqrt()))
    feasible = FeasibleSet.of(study.encoder, study.factual, immutable=False)
    decoder = ResidualDecoder.of(study.vae, feasible, generative=True, keep_residual=False)

    def search(confidence: float, *, refine: bool = True) -> RoutePoints:
        target = Target(1, confidence=confidence)
        validator = Validator(study.predict_proba, study.vae, target, data)
        return refined_routes(roadmap, decoder, target, validator, refine=refine)

    _, unrefined = timed(search, THRESHOLDS[0], refine=False)
    measured: Measured = {}
    for threshold in THRESHOLDS:
        paths, refined = timed(search, threshold)
        if threshold == THRESHOLDS[0]:
            ld = data.distance(paths.x)
            returned = plausible_points(paths.row, ld, data.typical)
            measured |= {
                "gap@0": paths.gap.float(),
                "leaping_ld_max@0": path_max(paths.row[returned], ld[returned], len(study.factual)),
                "nodes": torch.tensor(len(roadmap.landmarks.z)),
                "edges": torch.tensor(len(roadmap.graph.weight)),
                "bridges": torch.tensor(int(roadmap.graph.bridge.sum())),
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
    return Roadmap.build(CostField.of(study.vae, pullback, landmarks.z, None), landmarks, 0)


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
    rejected = len(data.correctly_rejected(classifier))

    def trade_off(name: str, compute: Callable[..., Measured], *arguments: Any) -> dict[str, float]:
        return _flip_and_distance(_cached(folder / f"{name}.safetensors", partial(compute, *arguments)))

    return {
        **describe(data, classifier, rejected, factuals=len(study.factual), damping=damping),
        "uncertainty": asdict(_calibrate(study, study.vae)) | describe_rbf(study.vae),
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


def describe_rbf(vae: VAE) -> dict[str, float]:
    """Bandwidth, centres and floor of an RBF network; nothing of another uncertainty."""
    if not isinstance(vae.precision, RBFPrecision):
        return {}
    precision = vae.precision
    return {
        "bandwidth": float(precision.bandwidth[0]),
        "centers": len(precision.centers),
        "zeta": precision.zeta,
    }


def _calibrate(study: Study, vae: VAE) -> Calibration:
    return calibrate(vae, study.data.train, study.data.test[:_CALIBRATION_ROWS])


def _measure_bandwidth(study: Study, size: Preset, run: Run, bandwidth: float, damping: float) -> Measured:
    """Validity and squared LD after 150 steps, with the uncertainty fitted anew at a bandwidth."""
    old = study.vae.precision
    precision = RBF(study.vae.latent, study.data.train.shape[-1], len(old.centers), zeta=old.zeta)
    training = VAETraining(std_epochs=size.curve_epochs, std_learning_rate=0.01, bandwidth=bandwidth)
    vae = _with_sigma(study, precision, training, run)
    sigma_share = torch.tensor(_calibrate(study, vae).sigma_share)
    return _measure_ends(study, vae, size.curve_factuals, damping) | {"sigma_share": sigma_share}


def _measure_ends(study: Study, vae: VAE, count: int, damping: float) -> Measured:
    """Validity and squared LD after 150 steps for the first factuals."""
    factual, models = study.factual[:count], SearchModels(study.classifier, vae)
    measured: Measured = {}
    for name in tables.RIEMANNIAN:
        case = study.case(_end(models, name, factual, damping), factual=factual)
        measured |= {f"{measure} {name}": MEASURES[measure](case) for measure in ("valid", "ld_sq")}
    return measured


def _end(models: Models, name: str, factual: Tensor, damping: float) -> Tensor:
    return local_search(models, name, factual, steps=STEPS[-1], damping=damping, keep="end").end


def measure_optimizers(study: Study, damping: float) -> dict[str, dict[str, float]]:
    """By optimiser of the paper the flip ratio after 150 steps, and means of distances over the rows that flipped."""
    figures = {}
    for name in OPTIMIZERS:
        case = study.case(_end(study.models, name, study.factual, damping))
        valid = MEASURES["valid"](case) > 0
        means = {measure: float(MEASURES[measure](case)[valid].mean()) for measure in ("ld_sq", "l1", "l2_sq")}
        figures[name] = {"flip_ratio": float(valid.float().mean()), **means}
    return figures


def _flip_and_distance(measured: Measured) -> dict[str, float]:
    """Flip ratio and mean squared LD of either method, and the share of σ in tr(M) where it was measured."""
    figures = {"sigma_share": float(measured["sigma_share"])} if "sigma_share" in measured else {}
    for name in tables.RIEMANNIAN:
        valid = measured[f"valid {name}"] > 0
        figures[f"flip_ratio {name}"] = float(valid.float().mean())
        figures[f"ld_sq {name}"] = float(measured[f"ld_sq {name}"][valid].mean()) if bool(valid.any()) else 0.0
    return figures

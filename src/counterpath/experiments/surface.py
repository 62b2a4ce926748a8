"""The paper's first experiment: do the paths go round the hole?"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.surface import ENTERED, NOISE, SCALE, Surface, chart_of, hole_distance, sample_surface
from counterpath.experiments.tables import mean_or_none, over_seeds
from counterpath.experiments.tabular import EncodedData, Models, describe, describe_rbf, local_search, vae_of
from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Neighbours
from counterpath.geometry.metric import jacobian, pullback, scaled_by_uncertainty
from counterpath.models.calibration import Calibration, calibrate
from counterpath.models.classifier import Classifier, fit_classifier, probabilities
from counterpath.models.flow import fit_flow
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_vae
from counterpath.search.face import FaceGraph
from counterpath.search.measures import instability, path_distance_to_data, turning
from counterpath.search.method import SearchModels
from counterpath.search.methods import LITERATURE, METHODS, NEAREST
from counterpath.search.nearest import nearest_accepted, straight_path
from counterpath.search.objective import Target
from counterpath.search.roadmap import CostField, Landmarks, Roadmap, connect
from counterpath.utils.devices import map_blocks, resolve_device
from counterpath.utils.errors import choose
from counterpath.utils.files import write_json

LogOdds = Callable[[Tensor], Tensor]
"""A classifier: rows to the log odds of being accepted."""
SEARCHED = tuple(name for name in METHODS if name not in (NEAREST, *LITERATURE))
"""The methods of the experiment; the nearest accepted row is measured beside them."""
STEPS = 150
"""The paper's longest run, which shows where a path goes after the decision has flipped."""
_TARGET = Target(1)  # all factuals are rejected, class 0
_GOALS = 4
"""Nearest accepted nodes to which a row may go straight; as many as in `geodesic` itself."""
_SEGMENTS, _RELAXATION_STEPS = 16, 5
"""Of the relaxed curves: chosen among four settings on the seeds 0 to 4, by the paths that enter the hole."""
_DENSE_NEIGHBOURS, _DENSE_SHARE = 60, 0.6
"""Nodes of the roadmap are the share of the rows with the nearest 60th neighbours; with fewer neighbours it is chance
which these are. Chosen on the seeds 100 to 102, as the third power of the uncertainty is that steps cost."""


@dataclass(frozen=True)
class Preset:
    """How large the experiment is."""

    train_rows: int
    test_rows: int
    classifier_epochs: int
    mean_epochs: int
    std_epochs: int
    flow_epochs: int
    centers: int


PRESETS = {
    "quick": Preset(2000, 1000, 80, 120, 30, 60, 120),
    "paper": Preset(4000, 2000, 60, 150, 100, 150, 200),
}
"""`quick` takes minutes on two cores. The paper gives no sizes: those of `paper` were picked in trial runs."""


@dataclass(frozen=True)
class Scene:
    """What one seed gives: data, fitted models, and the factuals to be explained."""

    train: Surface
    test: Surface
    models: Models
    calibration: Calibration
    factual: Tensor
    chart: Tensor

    @property
    def vae(self) -> VAE:
        """The generative model."""
        return vae_of(self.models)

    @property
    def perturbed(self) -> Tensor:
        """The factuals, each moved by a draw of the data's own noise."""
        noise = torch.randn(self.factual.shape, generator=torch.Generator().manual_seed(0)) * NOISE / SCALE
        return self.factual + noise.to(self.factual)

    @property
    def behind(self) -> Tensor:
        """Which factuals have the hole right between them and the other class."""
        return (self.chart[:, 0].abs() <= 0.2) & (self.chart[:, 1] >= -0.6) & (self.chart[:, 1] <= -0.2)

    @property
    def inside(self) -> Tensor:
        """Which factuals lie within the hole themselves, as noise has moved them."""
        distance: Tensor = chart_of(self.factual).norm(dim=-1)
        return distance < ENTERED


@dataclass(frozen=True)
class Paths:
    """The paths of one method: latent points, decoded rows, and the ends of those from the perturbed factuals."""

    z: Tensor | None
    x: Tensor
    perturbed_end: Tensor


def reproduce(
    *,
    preset: str = "quick",
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    out: Path,
    methods: Sequence[str] = SEARCHED,
    damping: float = 1e-6,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run the experiment for every seed, write `results.json` and the figures to `out`, and return the results."""
    from counterpath.experiments.figures import draw_surface

    size = choose("preset", preset, PRESETS)
    for method in methods:
        choose("method", method, dict.fromkeys(SEARCHED))
    target = resolve_device(device)
    by_seed = []
    for seed in seeds:
        run = Run(seed=seed, checkpoint=out / "checkpoints" / preset / f"seed-{seed}", progress=progress)
        scene = build(size, run, target, with_flow="flow" in methods)
        paths = {name: search(scene, name, damping=damping, progress=progress) for name in methods}
        by_seed.append(measure(scene, paths, damping=damping))
        if seed == seeds[0]:
            draw_surface(scene, paths, out / "figures")
    results = {
        "dataset": "surface",
        "preset": preset,
        "seeds": list(seeds),
        **over_seeds(by_seed, median),
        "by_seed": by_seed,
    }
    write_json(out / "results.json", results)
    return results


def build(size: Preset, run: Run, device: torch.device, *, with_flow: bool = True, uncertainty: str = "rbf") -> Scene:
    """Draw the data and fit classifier, VAE, with one of the estimates of its uncertainty, and flow."""
    train = _sample(size.train_rows, 2 * run.seed, device)
    test = _sample(size.test_rows, 2 * run.seed + 1, device)
    classifier = fit_classifier(
        train.x,
        train.y,
        width=32,
        epochs=size.classifier_epochs,
        batch_size=128,
        learning_rate=1e-3,
        weight_decay=0.02,
        class_weights=(1.0, float((train.y == 0).sum() / (train.y == 1).sum())),
        run=run,
    )
    training = VAETraining(
        mean_epochs=size.mean_epochs, std_epochs=size.std_epochs, batch_size=128, per_center=True, noise=0.0
    )
    vae = fit_vae(
        train.x,
        2,
        hidden=(64, 64),
        output="linear",
        uncertainty=uncertainty,
        centers=size.centers,
        tied=False,
        training=training,
        run=run,
    )
    flow = fit_flow(train.x, epochs=size.flow_epochs, batch_size=256, run=run) if with_flow else None
    correct = (test.y == 0) & (classifier(test.x) <= 0)
    calibration = calibrate(vae, train.x, test.x, seed=run.seed)
    models = SearchModels(classifier, vae, flow).folded()
    return Scene(train, test, models, calibration, test.x[correct], test.chart[correct])


def _sample(count: int, seed: int, device: torch.device) -> Surface:
    sample = sample_surface(count, seed=seed)
    return Surface(sample.x.to(device), sample.y.to(device), sample.chart.to(device))


def search(scene: Scene, method: str, *, damping: float, progress: bool | None) -> Paths:
    """Search with a method, once from the factuals and once from the perturbed ones."""
    classifier, count, both = scene.models.classifier, len(scene.factual), torch.cat([scene.factual, scene.perturbed])
    if method == "face":
        x = face_paths(build_face_graph(classifier, scene.train.x), both, STEPS)
        return Paths(None, x[:, :count], x[-1, count:])
    if method == "geodesic":
        roadmap = build_roadmap(scene.vae, classifier, scene.train.x)
        z, x = geodesic_paths(roadmap, scene.vae, classifier, both, STEPS)
        return Paths(z[:, :count], x[:, :count], x[-1, count:])
    paths, perturbed = (
        local_search(scene.models, method, x, steps=STEPS, damping=damping, progress=progress, name=label)
        for x, label in ((scene.factual, method), (scene.perturbed, f"{method}, perturbed"))
    )
    return Paths(paths.z, paths.x, perturbed.end)


# Global methods: shortest paths over a graph, which stop where the classifier accepts.


def build_roadmap(vae: VAE, classifier: LogOdds, rows: Float[Tensor, "m D"]) -> Roadmap:
    """The roadmap on the codes of training rows, each a goal if the classifier accepts what it is decoded as."""
    with torch.no_grad():
        z = map_blocks(vae.encode, rows)
        x = map_blocks(vae.decode, z)
        accepted = probabilities(map_blocks(classifier, x))
    return _roadmap(vae, x, z, accepted, _is_dense(x))


def _is_dense(x: Float[Tensor, "m D"]) -> Bool[Tensor, "m"]:
    """Which decoded rows lie where the data are dense: nodes at the rim of the hole would lead paths along it."""
    away = Neighbours(x).nearest(x, min(_DENSE_NEIGHBOURS, len(x)))[0][:, -1]
    return away <= away.quantile(_DENSE_SHARE)


def _roadmap(vae: VAE, x: Tensor, z: Tensor, accepted: Tensor, nodes: Bool[Tensor, "m"]) -> Roadmap:
    """The roadmap on some of the nodes. A step costs (1 + σ̄/σ₀)³ times its length, see `scaled_by_uncertainty`.

    With the first power it is worth the risk to cut along the rim, where σ̄ has hardly begun to rise.
    """
    level = float(map_blocks(vae.uncertainty, z[nodes]).mean())
    cost = scaled_by_uncertainty(scaled_by_uncertainty(pullback, level), level)  # the field itself has the third
    return Roadmap.build(
        CostField.of(vae, cost, z[nodes], None), Landmarks(x[nodes], z[nodes], accepted[nodes]), seed=0
    )


def across(scene: Scene, start: int, goal: int, steps: int) -> Float[Tensor, "t d"]:
    """The codes of the path of `geodesic` from a factual to one training row, as if nobody else were accepted."""
    with torch.no_grad():
        z = map_blocks(scene.vae.encode, scene.train.x)
        x = map_blocks(scene.vae.decode, z)
        code = scene.vae.encode(scene.factual[start : start + 1])
    is_goal = torch.arange(len(x), device=x.device) == goal
    only = torch.nn.functional.one_hot(is_goal.long(), 2).to(x)
    roadmap = _roadmap(scene.vae, x, z, only, _is_dense(x) | is_goal)
    routes = roadmap.shortest_paths(_TARGET)
    end = (routes.cost == 0).nonzero()[:1, 0]
    curves = resample(connect(roadmap, routes, code, end[None])[0], _SEGMENTS)
    return resample(roadmap.cost_field.relax(curves, None, steps=_RELAXATION_STEPS), steps)[0]


def geodesic_paths(
    roadmap: Roadmap, vae: VAE, classifier: LogOdds, rows: Float[Tensor, "n D"], steps: int
) -> tuple[Float[Tensor, "t n d"], Float[Tensor, "t n D"]]:
    """`geodesic`: relaxed shortest paths from rows to where they are accepted, as codes and as rows.

    A path begins at the row itself: x(t) = μ(z(t)) + (1 − t)(x − μ(z(0))). The residual, what the decoder does not
    reproduce of the row, decays along the path, so that its end is decoded alone, as the classifier saw the goal.
    """
    routes = roadmap.shortest_paths(_TARGET)
    goal = (routes.cost == 0).nonzero()[:, 0]
    ends = goal[Neighbours(roadmap.decoded.mean[goal]).nearest(rows, _GOALS)[1]]
    with torch.no_grad():
        start = map_blocks(vae.encode, rows)
        residual = (rows - map_blocks(vae.decode, start))[:, None]
    curves = resample(connect(roadmap, routes, start, ends)[0], _SEGMENTS)
    relaxed = resample(roadmap.cost_field.relax(curves, None, steps=_RELAXATION_STEPS), steps)
    weight = torch.linspace(1, 0, steps + 1, device=rows.device)[None, :, None]
    x = _decode_paths(vae, relaxed) + weight * residual
    accepted = (map_blocks(classifier, x.flatten(0, 1)) > 0).view(x.shape[:2])
    first = torch.where(accepted.any(1), accepted.int().argmax(1), steps)
    cut = torch.arange(steps + 1, device=rows.device).minimum(first[:, None])[..., None].expand_as(relaxed)
    z = resample(relaxed.gather(1, cut), steps)
    path = _decode_paths(vae, z) + (1 - (1 - weight) * first[:, None, None] / steps) * residual
    path[:, -1] = x[torch.arange(len(x), device=x.device), first]  # to the bit what the classifier has accepted
    return z.transpose(0, 1), path.transpose(0, 1)


def _decode_paths(vae: VAE, z: Float[Tensor, "n t d"]) -> Float[Tensor, "n t D"]:
    with torch.no_grad():
        return map_blocks(vae.decode, z.flatten(0, 1)).view(*z.shape[:2], -1)


def build_face_graph(classifier: LogOdds, rows: Float[Tensor, "m D"]) -> FaceGraph:
    """The graph of training rows."""
    return FaceGraph.build(rows, probabilities(map_blocks(classifier, rows)), torch.ones_like(rows[0]))


def face_paths(graph: FaceGraph, rows: Float[Tensor, "n D"], steps: int) -> Float[Tensor, "t n D"]:
    """`face`: straight from one training row to the next; a row without a path stays where it is."""
    nodes, exists = graph.chains(rows, _TARGET.is_reached(graph.probabilities))
    if not bool(exists.any()):
        return rows.expand(steps + 1, -1, -1)
    points = torch.cat([rows[:, None], graph.rows[nodes]], 1)
    return resample(torch.where(exists[:, None, None], points, rows[:, None]), steps).transpose(0, 1)


def _nearest(scene: Scene) -> Paths:
    """The baseline: straight to the nearest training row that the classifier accepts."""
    accepted = scene.models.classifier(scene.train.x) > 0
    end, perturbed_end = (nearest_accepted(x, scene.train.x, accepted)[0] for x in (scene.factual, scene.perturbed))
    return Paths(None, straight_path(scene.factual, end, STEPS), perturbed_end)


# Measures.


def measure(scene: Scene, paths: dict[str, Paths], *, damping: float) -> dict[str, Any]:
    """All figures of one seed."""
    paths = {**paths, NEAREST: _nearest(scene)}
    classifier, train, test = scene.models.classifier, scene.train, scene.test
    valid = {name: classifier(path.x[-1]) > 0 for name, path in paths.items()}
    common = torch.stack(list(valid.values())).all(0)
    return {
        **describe(
            EncodedData(train.x, test.x, train.y, test.y),
            classifier,
            len(scene.factual),
            factuals=len(scene.factual),
            factuals_behind=int(scene.behind.sum()),
            factuals_common=int(common.sum()),
            steps=STEPS,
            damping=damping,
        ),
        "uncertainty": asdict(scene.calibration) | describe_rbf(scene.vae),
        "boundary": boundary_metric(classifier, test.x),
        "methods": {name: _figures(scene, path, valid[name], common) for name, path in paths.items()},
    }


def _figures(scene: Scene, paths: Paths, valid: Tensor, common: Tensor) -> dict[str, float | None]:
    """The figures of one method: LD and turning over its valid rows, and over the rows that all methods solved."""
    ld = path_distance_to_data(paths.x, Neighbours(scene.train.x))
    highest, turns, nearest = ld.amax(0), turning(paths.x), hole_distance(paths.x)
    enters = nearest < ENTERED
    figures = {
        "flip_ratio": mean_or_none(valid),
        "hole_share": mean_or_none(enters),
        "hole_share_behind": mean_or_none(enters[scene.behind]),
        "hole_share_behind_outside": mean_or_none(enters[scene.behind & ~scene.inside]),
        "hole_distance_behind": float(nearest[scene.behind].median()) if bool(scene.behind.any()) else None,
        "instability": instability(paths.x[-1], paths.perturbed_end, scene.factual, scene.perturbed),
    }
    for suffix, rows in (("", valid), ("_common", common)):
        figures |= {
            f"ld_end{suffix}": mean_or_none(ld[-1][rows]),
            f"ld_end_sq{suffix}": mean_or_none(ld[-1][rows].square()),
            f"path_ld_max{suffix}": mean_or_none(highest[rows]),
            f"path_ld_max_sq{suffix}": mean_or_none(highest[rows].square()),
            f"turning{suffix}": mean_or_none(turns[rows]),
        }
    return figures


def metric_trace(classifier: Classifier, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """tr M_X = ‖J_h‖², the squared Frobenius norm of the representation's Jacobian."""
    return map_blocks(lambda rows: jacobian(classifier.representation, rows)[1].square().sum((1, 2)), x)


def boundary_metric(classifier: Classifier, x: Tensor) -> dict[str, float]:
    """The mean trace of M_X near the boundary (0.25 ≤ c ≤ 0.75) and far from it (c below 0.05 or above 0.95)."""
    trace, probability = metric_trace(classifier, x), classifier.probability(x)
    near = trace[(probability >= 0.25) & (probability <= 0.75)].mean()
    far = trace[(probability < 0.05) | (probability > 0.95)].mean()
    return {"trace_near": float(near), "trace_far": float(far), "ratio": float(near / far)}


def median(values: Sequence[float | None]) -> float | None:
    """The median of what is there."""
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None

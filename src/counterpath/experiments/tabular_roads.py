"""The global methods in the tabular experiment: ways over a graph of codes, and chains of training rows.

They have no number of steps: they are asked once for every confidence, and stop where it is reached. As for the walks,
nothing is kept of people and nothing is carried, so a way begins at what the VAE makes of them.
"""

import time
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.chains import Chains
from counterpath.experiments.study import AT_CONFIDENCE, THRESHOLDS, Study
from counterpath.geometry.metric import pullback
from counterpath.geometry.neighbours import Neighbours
from counterpath.journey import Data, Journey
from counterpath.measures import MEASURES, path_length, turning
from counterpath.network import Landmarks, Network, representatives
from counterpath.paths import stations
from counterpath.routing import Travelled, travel
from counterpath.scope import Scope
from counterpath.search.terrain import Terrain
from counterpath.search.wanted import Wanted

_HELD_OUT = 1000


def geodesic(study: Study, progress: bool | None) -> dict[str, Tensor]:
    """What is measured of the ways over the network, and how long laying, finding and refining them took.

    `leaping_ld_max@0` is the greatest LD over the points that `geodesic` returns of a way: those on the data.
    """
    started = time.perf_counter()
    network = lay(study)
    laid = time.perf_counter()
    network.ways(network.world(None), Wanted(1))
    looked = time.perf_counter()
    data, scope = data_of(study), Scope.of(study.encoder, study.factual, immutable=False)
    journey = Journey.of(study.vae, scope, generative=True, carry=False)
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
    chains = Chains.of(study.train[rows], answers[rows], study.encoder.weights.to(study.train))
    scope = Scope.of(study.encoder, study.factual, immutable=False)
    measured: dict[str, Tensor] = {}
    for threshold in THRESHOLDS:
        row, x, *_ = chains.follow(scope, Wanted(1, confidence=threshold))
        measured |= measure(study, row, x, threshold)
    return measured


def lay(study: Study) -> Network:
    """The network on the codes of training rows."""
    answers = study.answers(study.train)
    landmarks = Landmarks.of(study.vae, study.encoder.round, study.train, answers, study.answers, 0)
    return Network.laid(Terrain.of(study.vae, pullback, landmarks.z, None), landmarks, None, 0)


def data_of(study: Study) -> Data:
    """The training rows, and how far some of them are from the others."""
    some, others = study.train[:_HELD_OUT], study.train[_HELD_OUT:]
    apart = Neighbours(others, study.neighbours.weights).nearest(some)[0][:, 0]
    return Data(study.neighbours, float(apart.quantile(0.95)), float(apart.square().mean().sqrt()))


def _travel(
    study: Study,
    network: Network,
    journey: Journey,
    data: Data,
    confidence: float,
    progress: bool | None,
    *,
    refine: bool = True,
) -> Travelled:
    wanted = Wanted(1, confidence=confidence)
    return travel(
        network,
        journey,
        wanted,
        study.answers,
        lambda x: wanted.met(study.answers(x)),
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


def _leaping(study: Study, data: Data, found: Travelled) -> Tensor:
    ld = data.distance(found.x)
    kept = stations(found.row, ld, data.typical)
    return greatest(found.row[kept], ld[kept], len(study.factual))


ROADS: dict[str, Callable[[Study, bool | None], dict[str, Tensor]]] = {"geodesic": geodesic, "face": face}

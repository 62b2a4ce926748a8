"""Geodesics: the closest plausible counterfactual, and the way there over the data.

A local search sees the slope at one point, and stops where it happens to arrive. Here the end comes first: of many rows
that the model accepts the one that is closest to the factual row and plausible, see `ends`. The path to it is straight
in the latent space where that stays on the data. Where it does not, it follows the shortest path over a roadmap, whose
nodes are training rows as the generative model decodes them and whose edges cost what moving along them costs under the
metric; then it is relaxed towards a geodesic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Graph
from counterpath.geometry.metric import METRICS, Metric
from counterpath.models.latent import context_for
from counterpath.search.candidates import Sources
from counterpath.search.ends import Ends, closest_ends
from counterpath.search.feasible import residual
from counterpath.search.method import AnyModels, Method, Problem, SearchOptions, SearchSetup
from counterpath.search.paths import Paths, is_first
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import ROUTE_NODES, CostField, Landmarks, Roadmap
from counterpath.search.traverse import StopReason
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import NotFittedError, choose

_SEGMENTS, _COARSE_SEGMENTS = 24, 8
"""Of a path as it is looked at, and as it is relaxed, which costs time for every point."""
_RELAX_STEPS = 4  # a few take the kinks out of a path over nodes; each costs a pass over all points

AMBIENT_METRICS: dict[str, str] = {"data": "pullback", "classifier": "guided"}
"""What `geodesic` measures steps by, as a key of `METRICS`: rows as they are, or as the classifier represents them."""


@dataclass(frozen=True)
class GeodesicState:
    """What `geodesic` has fitted.

    Attributes:
        roadmap: Where paths go that cannot go straight.
        sources: What candidates for their ends are made from.
    """

    roadmap: Roadmap
    sources: Sources


class Geodesic(Method):
    """The closest plausible row that the model accepts, and a way there over the data, relaxed towards a geodesic."""

    name = "geodesic"
    description = "the closest plausible row that is accepted, and a realistic way there"
    settings = ("representation_layer", "ambient_metric", "uncertainty_cost")
    respects_limits = True
    row_by_row = True
    refines = True
    ends_first = True

    def metric(self, models: AnyModels, options: SearchOptions) -> Metric:
        """What steps are measured by, before uncertainty counts."""
        name = choose("ambient_metric", options.ambient_metric, AMBIENT_METRICS)
        return METRICS[name](models.classifier.representation)

    def fit(self, setup: SearchSetup, options: SearchOptions) -> GeodesicState:
        """The roadmap, and the sources of candidates."""
        cost_field, landmarks = self._cost_field(setup, options)
        return GeodesicState(Roadmap.build(cost_field, landmarks, setup.seed), _sources(setup))

    def _cost_field(self, setup: SearchSetup, options: SearchOptions) -> tuple[CostField, Landmarks]:
        """What moving through the latent space costs, and the nodes of the roadmap."""
        if setup.landmarks is None:
            raise NotFittedError("geodesic needs landmarks, which Explainer.fit chooses, and there are none")
        landmarks, metric = setup.landmarks.first(ROUTE_NODES), self.metric(setup.models, options)
        context = context_for(setup.latent, landmarks.x)
        cost = options.uncertainty_cost
        return CostField.of(setup.latent, metric, landmarks.z, context, uncertainty_cost=cost), landmarks

    def state_to_tensors(self, state: GeodesicState) -> dict[str, Tensor]:
        """The edges; landmarks and training rows are part of the model."""
        return state.roadmap.graph.to_tensors()

    def state_from_tensors(
        self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]
    ) -> GeodesicState:
        """The state with the edges."""
        cost_field, landmarks = self._cost_field(setup, options)
        graph = Graph.from_tensors(len(landmarks.z), tensors)
        return GeodesicState(Roadmap(cost_field, landmarks, graph), _sources(setup))

    def search(self, problem: Problem) -> Paths:
        """The ends, and the ways to them."""
        state: GeodesicState | None = problem.state
        if state is None:
            raise NotFittedError("geodesic needs the roadmap that Explainer.fit builds, and there is none")
        return ways(problem, state.roadmap, closest_ends(problem, state.sources))


def _sources(setup: SearchSetup) -> Sources:
    return Sources.of(setup.encoder, setup.rows, setup.probabilities)


def ways(problem: Problem, roadmap: Roadmap | None, ends: Ends) -> Paths:
    """Paths from the rows to given ends: straight in the latent space, or over the roadmap where that leaves the data.

    Args:
        problem: The rows.
        roadmap: The roadmap; None for straight paths only.
        ends: Where to go.
    """
    feasible, setup = problem.feasible, problem.setup
    moved = (ends.x != feasible.factual).any(-1)
    found = (ends.found | moved).nonzero()[:, 0]  # or what came closest
    within = feasible.at(found)
    decoder = ResidualDecoder.of(setup.latent, within, generative=True, keep_residual=True)
    end = ends.x[found]
    last = problem.validator.encode(end)
    off_data, gap = torch.zeros_like(found, dtype=torch.bool), torch.zeros_like(ends.found)
    if roadmap is not None:
        off_data = roadmap.leaves_data(decoder.start, last, decoder.context)
        gap[found[off_data]] = roadmap.crosses_gap(decoder.start[off_data], last[off_data])
    every = torch.arange(len(feasible), device=found.device)
    row, x, z = found[:0], end[:0], last[:0]
    walk = torch.full_like(off_data, not problem.options.ends_only)
    some = (walk if within.ways is None else walk & within.ways).nonzero()[:, 0]
    if len(some):
        of, x, z = _points(problem, roadmap, decoder.at(some), end[some], last[some], off_data[some])
        row = some[of]
    row, x = torch.cat([every, found[row], found]), torch.cat([feasible.factual, x, end])
    start = problem.validator.encode(feasible.factual)
    z = torch.cat([start, z, last])
    order = row.argsort(stable=True)
    missed = torch.where(ends.timed_out, StopReason.OUT_OF_TIME, StopReason.ALL_STEPS_TAKEN)
    reason = torch.where(ends.found, StopReason.CONFIDENCE_REACHED, missed)
    paths = problem.paths(row[order], x[order], reason, z[order])
    # A path ends at its first valid point, and a row that is valid as it has entered its bounds has no other.
    first, final = is_first(paths.row), torch.zeros_like(paths.valid).index_fill(0, paths.last, True)
    same = (paths.x == paths.x.roll(1, 0)).all(-1)
    keep = first | (final & moved[paths.row]) | (~first & ~final & ~paths.valid & ~same)
    return replace(paths.points(keep), gap=gap, implausible=ends.implausible)


def _points(
    problem: Problem,
    roadmap: Roadmap | None,
    decoder: ResidualDecoder,
    end: Float[Tensor, "n D"],
    last: Float[Tensor, "n d"],
    off_data: Bool[Tensor, "n"],
) -> tuple[Int[Tensor, "p"], Float[Tensor, "p D"], Float[Tensor, "p d"]]:
    """The points between the rows and their ends: to which row each belongs, the row it stands for and its code."""
    feasible = decoder.feasible
    curves = resample(torch.stack([decoder.start, last], 1), _SEGMENTS)
    rows = off_data.nonzero()[:, 0]
    if roadmap is not None and len(rows):
        over = resample(roadmap.route(decoder.start[rows], last[rows]), _COARSE_SEGMENTS)
        context = None if decoder.context is None else decoder.context[rows]
        over = (
            roadmap.cost_field.relax(over, context, steps=_RELAX_STEPS) if problem.options.refine is not False else over
        )
        curves[rows] = resample(over, _SEGMENTS)
    inner = curves[:, 1:-1]
    count = inner.shape[1]
    row = torch.arange(len(end), device=end.device).repeat_interleave(count)
    share = (torch.arange(1, count + 1, device=end.device) / (count + 1)).repeat(len(end))[:, None].to(end)
    z = inner.flatten(0, 1)
    x = _blended(problem, decoder, end, last, z, row, share)
    # What is the same at the end need not move on the way.
    changed = feasible.columns(feasible.features(end != feasible.factual))
    x = torch.where(changed[row], x, feasible.factual[row])
    return row, x, z


def _blended(
    problem: Problem,
    decoder: ResidualDecoder,
    end: Tensor,
    last: Tensor,
    z: Tensor,
    row: Int[Tensor, "p"],
    share: Float[Tensor, "p 1"],
) -> Float[Tensor, "p D"]:
    """The feasible rows that codes stand for, with the residual of the factual row on the way to that of the end."""
    model, context, constraints = decoder.model, decoder.context, decoder.step_constraints
    with torch.no_grad():
        decoded = map_blocks(model.decode, last, context)
        points = map_blocks(model.decode, z, None if context is None else context[row])
    lacking = residual(end, decoded, constraints.blocks, squashed=constraints.squashed)
    lacking = torch.where(decoder.feasible.fixed, 0, lacking)
    both = torch.lerp(constraints.residual[row], lacking[row], share)
    here = replace(constraints.at(row), residual=both)
    return decoder.feasible.legal(here.clip(here.add_residual(points)), row)

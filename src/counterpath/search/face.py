"""FACE: chains of training rows, each a neighbour of the one before, to one that the model accepts.

Nothing is generated: every point is a training row. It is the baseline of `geodesic`, on the same kind of graph but in
X, without longer edges and without bridges: a row without a chain has no counterfactual.

References:
    Poyiadzi et al., "FACE: feasible and actionable counterfactual explanations", AIES 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.graph import Graph, Neighbours, build_graph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchOptions, SearchSetup
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, is_first
from counterpath.search.roadmap import representatives
from counterpath.search.traverse import StopReason
from counterpath.utils.progress import ShouldStop, never_stop

NEIGHBOURS = 20
"""Of each row in the graph: enough to leave few rows without a chain, few enough to keep its steps short."""


@dataclass(frozen=True)
class FaceGraph:
    """Training rows, and the graph of which of them are neighbours.

    Attributes:
        rows: Different rows.
        probabilities: What the explained model says about them.
        graph: Edges between neighbours, by their distance.
        weights: Of the columns in distances.
    """

    rows: Float[Tensor, "m D"]
    probabilities: Float[Tensor, "m K"]
    graph: Graph
    weights: Float[Tensor, "D"]

    @classmethod
    def build(
        cls, rows: Float[Tensor, "m D"], probabilities: Float[Tensor, "m K"], weights: Float[Tensor, "D"]
    ) -> "FaceGraph":
        """The graph of rows."""
        points = rows * weights

        def lengths(ends: Int[Tensor, "e 2"]) -> tuple[Tensor, Tensor]:
            apart = (points[ends[:, 0]] - points[ends[:, 1]]).norm(dim=-1)
            return apart, torch.zeros_like(apart, dtype=torch.bool)

        return cls(rows, probabilities, build_graph(points, lengths, near=NEIGHBOURS, far=0, join=False), weights)

    def shortest_chains(
        self,
        feasible: FeasibleSet,
        target: Target,
        should_stop: ShouldStop = never_stop,
        accepted: Bool[Tensor, "m"] | None = None,
    ) -> tuple[Int[Tensor, "p"], Float[Tensor, "p D"], Bool[Tensor, "n"], Bool[Tensor, "n"]]:
        """The shortest chain of every row within its feasible set, until it is time to give up.

        The first point is the row itself; a row without a chain has no other.

        Args:
            feasible: What each row may become.
            target: What is to be predicted where chains end.
            should_stop: When to give up.
            accepted: The training rows where they may end; by default those that reach the target.

        Returns:
            To which row each point belongs, the points, which rows have a chain, and which timed out.
        """
        accepted = target.is_reached(self.probabilities) if accepted is None else accepted
        row, x = [torch.arange(len(feasible), device=feasible.factual.device)], [feasible.factual]
        exists = torch.zeros(len(feasible), dtype=torch.bool, device=feasible.factual.device)
        timed_out = ~exists
        rules, groups = feasible.rules, feasible.groups()
        if rules is not None and any(rule.needs_change for rule in rules.rules):
            groups = list(torch.arange(len(feasible), device=feasible.factual.device).split(1))
        for group in groups:
            if should_stop():
                break
            timed_out[group], first = False, group[0]
            allowed = ((self.rows >= feasible.lower[first]) & (self.rows <= feasible.upper[first])).all(-1)
            if rules is not None:
                allowed &= rules.hold(self.rows, feasible.origin[first].expand_as(self.rows))
            chains, exists[group] = self.chains(feasible.factual[group], accepted, allowed)
            chains, group = chains[exists[group]], group[exists[group]]
            if len(group) == 0:
                continue
            new = torch.ones_like(chains, dtype=torch.bool)
            new[:, 1:] = chains[:, 1:] != chains[:, :-1]
            new[:, 0] = (self.rows[chains[:, 0]] != feasible.factual[group]).any(-1)  # a row is not its own neighbour
            row.append(group[:, None].expand_as(chains)[new])
            x.append(self.rows[chains[new]])
        whole = torch.cat(row)
        order = whole.argsort(stable=True)
        return whole[order], torch.cat(x)[order], exists, timed_out

    def chains(
        self, start: Float[Tensor, "n D"], accepted: Bool[Tensor, "m"], allowed: Bool[Tensor, "m"] | None = None
    ) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n"]]:
        """The shortest chains from any rows: indices of training rows, and which rows have a chain.

        A chain that ends before the longest repeats its end; a row without one has the index where it would begin. If
        no training row may be touched, there are no indices.

        Args:
            start: Where the chains begin.
            accepted: The training rows where they may end.
            allowed: Those that they may touch; by default all.
        """
        shortest = self.graph.shortest_paths(accepted, allowed)
        nodes = torch.ones_like(accepted) if allowed is None else allowed
        nodes = nodes.nonzero()[:, 0]
        if len(nodes) == 0:
            nothing = torch.zeros(len(start), 0, dtype=torch.long, device=start.device)
            return nothing, torch.zeros_like(start[:, 0], dtype=torch.bool)
        apart, near = Neighbours(self.rows[nodes], self.weights).nearest(start, NEIGHBOURS)
        entry = nodes[near]
        cost, best = (apart + shortest.cost[entry]).min(1)
        return shortest.follow(entry.gather(1, best[:, None])[:, 0]), cost.isfinite()


class Face(Method):
    """The shortest chain of training rows to one that the model accepts."""

    name = "face"
    description = "from one training row to the next, until one is accepted"
    returns_training_rows = True
    chooses_features = False

    def fit(self, setup: SearchSetup, options: SearchOptions) -> FaceGraph:
        """The graph of training rows."""
        rows = representatives(setup.rows, setup.probabilities, 0)
        return FaceGraph.build(setup.rows[rows], setup.probabilities[rows], setup.weights)

    def state_to_tensors(self, state: FaceGraph) -> dict[str, Tensor]:
        """The edges; the rows are those of the model."""
        return state.graph.to_tensors()

    def state_from_tensors(
        self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]
    ) -> FaceGraph:
        """The graph with its edges."""
        rows = representatives(setup.rows, setup.probabilities, 0)
        graph = Graph.from_tensors(len(rows), tensors)
        return FaceGraph(setup.rows[rows], setup.probabilities[rows], graph, setup.weights)

    def search(self, problem: Problem) -> Paths:
        """The shortest chain of every row."""
        graph: FaceGraph = problem.state
        accepted = problem.accepted(graph.rows, graph.probabilities)
        row, x, exists, timed_out = graph.shortest_chains(
            problem.feasible, problem.target, problem.options.should_stop, accepted
        )
        missing = torch.where(timed_out, StopReason.OUT_OF_TIME, StopReason.NO_WAY_DOWN)
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, missing)
        paths = problem.paths(row, x, reason)
        return replace(paths, valid=paths.valid & ~is_first(paths.row)).truncate()  # to a training row, not less

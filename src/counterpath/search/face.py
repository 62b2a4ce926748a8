"""FACE: chains of training rows, each next to the one before, to one that the model accepts.

Nothing is generated: every point is somebody's own record. It is the baseline of `geodesic`, on the same kind of graph
but in X, without longer edges and without bridges: who has no chain has no counterfactual.

References:
    Poyiadzi et al., "FACE: feasible and actionable counterfactual explanations", AIES 2020.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.graph import Graph, build_graph
from counterpath.geometry.neighbours import Neighbours
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.utils.deadline import ShouldStop, never_stop

NEIGHBOURS = 20


@dataclass(frozen=True)
class FaceGraph:
    """Training rows, and the graph of which of them are neighbours.

    Attributes:
        rows: Different rows.
        answers: What the model says about them.
        graph: Edges between neighbours, by their distance.
        weights: Of the columns in distances.
    """

    rows: Float[Tensor, "m D"]
    answers: Float[Tensor, "m K"]
    graph: Graph
    weights: Float[Tensor, "D"]

    @classmethod
    def of(cls, rows: Float[Tensor, "m D"], answers: Float[Tensor, "m K"], weights: Float[Tensor, "D"]) -> "FaceGraph":
        """The graph of rows."""
        points = rows * weights

        def pricing(ends: Int[Tensor, "e 2"]) -> tuple[Tensor, Tensor]:
            apart = (points[ends[:, 0]] - points[ends[:, 1]]).norm(dim=-1)
            return apart, torch.zeros_like(apart, dtype=torch.bool)

        return cls(rows, answers, build_graph(points, pricing, near=NEIGHBOURS, far=0, join=False), weights)

    def follow(
        self, scope: FeasibleSet, wanted: Target, over: ShouldStop = never_stop
    ) -> tuple[Int[Tensor, "p"], Float[Tensor, "p D"], Bool[Tensor, "n"], Bool[Tensor, "n"]]:
        """The shortest chain from every person within their scope, until it is time to give up.

        The first point is the person; those without a chain have no other.

        Returns:
            Whose point it is, the points, who has a chain, and for whom there was no time.
        """
        accepted = wanted.met(self.answers)
        row, x = [torch.arange(len(scope), device=scope.factual.device)], [scope.factual]
        exists = torch.zeros(len(scope), dtype=torch.bool, device=scope.factual.device)
        late = ~exists
        for people in scope.alike():
            if over():
                break
            late[people], first = False, people[0]
            allowed = ((self.rows >= scope.lower[first]) & (self.rows <= scope.upper[first])).all(-1)
            ways, exists[people] = self.ways(scope.factual[people], accepted, allowed)
            ways, people = ways[exists[people]], people[exists[people]]
            if len(people) == 0:
                continue
            new = torch.ones_like(ways, dtype=torch.bool)
            new[:, 1:] = ways[:, 1:] != ways[:, :-1]
            new[:, 0] = (self.rows[ways[:, 0]] != scope.factual[people]).any(-1)  # nobody is their own neighbour
            row.append(people[:, None].expand_as(ways)[new])
            x.append(self.rows[ways[new]])
        whole = torch.cat(row)
        order = whole.argsort(stable=True)
        return whole[order], torch.cat(x)[order], exists, late

    def ways(
        self, start: Float[Tensor, "n D"], accepted: Bool[Tensor, "m"], allowed: Bool[Tensor, "m"] | None = None
    ) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n"]]:
        """The shortest chains from any rows: training rows by their places, and which rows have a chain.

        Who is at the end of theirs waits there for the longest, and who has none where they would begin. If no training
        row may be touched, there are no places.

        Args:
            start: Where the chains begin.
            accepted: The training rows where they may end.
            allowed: Those that they may touch; by default all.
        """
        field = self.graph.field(accepted, allowed)
        places = torch.ones_like(accepted) if allowed is None else allowed
        places = places.nonzero()[:, 0]
        if len(places) == 0:
            nowhere = torch.zeros(len(start), 0, dtype=torch.long, device=start.device)
            return nowhere, torch.zeros_like(start[:, 0], dtype=torch.bool)
        apart, near = Neighbours(self.rows[places], self.weights).nearest(start, NEIGHBOURS)
        entry = places[near]
        cost, best = (apart + field.cost[entry]).min(1)
        return field.ways(entry.gather(1, best[:, None])[:, 0]), cost.isfinite()

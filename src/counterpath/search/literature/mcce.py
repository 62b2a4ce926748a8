"""MCCE: many rows drawn from a model of the accepted ones, of which the closest is taken.

Three steps. Model: the features of rows that the explained model accepts, one after another, each by a tree given all
before it, p(x) = Π p(x_j | x_1 … x_{j−1}). Generate: K rows for each row to explain; what it may not change is as it
is, and of every other feature the value of a training row is drawn from the leaf that the row falls into.
Post-process: keep what is valid, and of it the row with the fewest changes, then the closest one.

Immutable features come first, so that all others are drawn given them. A feature that is fixed by a request alone is
put in at its place, and what comes before it is drawn without knowing it.

References:
    Redelmeier et al., "MCCE: Monte Carlo sampling of valid and realistic counterfactual explanations for tabular data",
    Data Mining and Knowledge Discovery 2024.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.search.literature.ends import Best
from counterpath.search.method import Method, Problem, SearchOptions, SearchSetup
from counterpath.search.paths import Paths

DRAWS = 300  # K: the paper draws 1,000 and shows that from some hundred on little is gained
LEAF = 5  # rows of a leaf at least, the rule of its trees
_MOST_ROWS = 10_000  # accepted rows that trees are fitted to, evenly spaced: enough for leaves of 5 to be local
_AT_ONCE = 1 << 16  # draws that are held at once


@dataclass(frozen=True)
class Trees:
    """p(x_j | those before) of every feature, as a tree and the training rows in its leaves.

    Attributes:
        order: The features, the first first.
        layout: The columns of each.
        rows: The training rows.
        trees: One a feature; None for the first, of which all rows are drawn.
        members: For each feature the rows sorted by leaf, and where each leaf begins and how many rows it has, by node.
    """

    order: tuple[int, ...]
    layout: tuple[slice, ...]
    rows: Float[Tensor, "m D"]
    trees: tuple[Any, ...]
    members: tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], ...]

    @classmethod
    def fit(cls, encoder: Encoder, rows: Float[Tensor, "m D"], seed: int) -> "Trees":
        """Fit them to rows."""
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        immutable = [encoder.schema.index(name) for name in encoder.schema.immutable]
        order = (*immutable, *(each for each in range(len(encoder.layout)) if each not in immutable))
        table, trees, members = rows.double().cpu().numpy(), [], []
        for number, feature in enumerate(order):
            before = _columns(encoder.layout, order[:number])
            own = table[:, encoder.layout[feature]]
            if not before:
                tree, leaf = None, np.zeros(len(table), dtype=np.int64)
            else:
                if own.shape[1] > 1:
                    tree = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=seed)
                    tree.fit(table[:, before], own.argmax(1))
                else:
                    tree = DecisionTreeRegressor(min_samples_leaf=LEAF, random_state=seed)
                    tree.fit(table[:, before], own[:, 0])
                leaf = tree.apply(table[:, before])
            trees.append(tree)
            count = np.bincount(leaf)
            members.append((np.argsort(leaf, kind="stable"), np.cumsum(count) - count, count))
        return cls(order, encoder.layout, rows, tuple(trees), tuple(members))

    def draw(
        self, factual: Float[Tensor, "p D"], fixed: Bool[Tensor, "p f"], chance: NDArray[np.float64]
    ) -> Float[Tensor, "p D"]:
        """A row for each row, with fixed features as they are.

        Args:
            factual: The rows.
            fixed: Which of their features stay.
            chance: One number from 0 to 1 for each draw and feature, by which rows of leaves are drawn.
        """
        x, held = factual.double().cpu().numpy().copy(), fixed.cpu().numpy()
        table = self.rows.double().cpu().numpy()
        for number, feature in enumerate(self.order):
            drawn = np.flatnonzero(~held[:, feature])
            if len(drawn) == 0:
                continue
            before, tree = _columns(self.layout, self.order[:number]), self.trees[number]
            leaf = np.zeros(len(drawn), dtype=np.int64) if tree is None else tree.apply(x[drawn][:, before])
            rows, first, count = self.members[number]
            donor = rows[first[leaf] + (chance[drawn, number] * count[leaf]).astype(np.int64)]
            x[drawn, self.layout[feature]] = table[donor, self.layout[feature]]
        return torch.from_numpy(x).to(factual)


def _columns(layout: tuple[slice, ...], features: tuple[int, ...]) -> list[int]:
    return [column for each in features for column in range(layout[each].start, layout[each].stop)]


class Mcce(Method):
    """MCCE.

    Args:
        draws: K, how many rows are drawn for each.
    """

    name = "mcce"
    description = "the closest of many rows drawn like accepted ones (MCCE)"

    def __init__(self, draws: int = DRAWS) -> None:
        self.draws = draws

    def fit(self, setup: SearchSetup, options: SearchOptions) -> dict[Any, Trees]:
        """Nothing yet: the trees of each target, when it is first asked for."""
        return {}

    def search(self, problem: Problem) -> Paths:
        """Of many rows that are drawn the valid one with the fewest changes, then the closest."""
        setup, feasible, best = problem.setup, problem.feasible, Best.of(problem)
        trees = self._trees(problem)
        if trees is None:
            return best.paths()
        chance = np.random.default_rng(setup.seed).random((self.draws, len(trees.order)))
        held = feasible.features(feasible.fixed)
        for rows in (~best.valid).nonzero()[:, 0].split(max(1, _AT_ONCE // self.draws)):
            if best.should_stop or len(rows) == 0:
                break
            row = rows.repeat_interleave(self.draws)
            drawn = trees.draw(feasible.factual[row], held[row], np.tile(chance, (len(rows), 1)))
            x = feasible.legal(drawn, row)
            good = problem.validator.is_valid(x, feasible.origin[row])
            changes = feasible.actions(x, row).sum(-1)
            # Costs of one change are at most its weight, and of all at most as many as there are features.
            cost = changes * (1 + feasible.costs_of_features.sum()) + feasible.cost(x, row)
            least, index = cost.masked_fill(~good, torch.inf).view(len(rows), -1).min(1)
            found = least < torch.inf
            chosen = x.view(len(rows), self.draws, -1)[torch.arange(len(rows)), index]
            best.offer(chosen[found], least[found], rows[found])
        return best.paths()

    def _trees(self, problem: Problem) -> Trees | None:
        """The trees of the target; None where fewer rows are accepted than a leaf has."""
        setup = problem.setup
        known: dict[Any, Trees] = problem.state
        if problem.target not in known:
            rows = setup.rows[problem.target.is_reached(setup.probabilities)]
            if len(rows) < LEAF:
                return None
            rows = rows[:: -(-len(rows) // _MOST_ROWS)]
            known[problem.target] = Trees.fit(setup.encoder, rows, setup.seed)
        return known[problem.target]

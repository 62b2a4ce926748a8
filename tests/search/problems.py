"""Problems without a fit: a table of every kind of column, models that are a formula, and nothing in between."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.data import Encoder, Feature, Schema
from counterpath.data.constraints import Constraints
from counterpath.geometry.graph import Neighbours
from counterpath.models.classifier import Classifier
from counterpath.models.latent import IdentityModel
from counterpath.search.candidates import Admissible, Candidates, Sources
from counterpath.search.combinations import Combinations
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem, SearchModels, SearchOptions, SearchSetup
from counterpath.search.objective import Target
from counterpath.search.validity import Plausibility

Model = Callable[[Tensor], Tensor]
"""From encoded rows to the probabilities of two classes."""

SCHEMA = Schema(
    (
        Feature("job", "categorical", categories=("boss", "clerk", "cook", "none")),
        Feature("size", "ordinal", categories=("S", "M", "L", "XL")),
        Feature("owner", "boolean"),
        Feature("hours", "integer"),
        Feature("income", "continuous"),
        Feature("delay", "integer", codes={-7: "never"}, missing=True),
        Feature("sex", "binary", categories=("f", "m"), immutable=True),
    )
)
TARGET = Target(1)


def table(count: int = 120, seed: int = 0) -> pd.DataFrame:
    """People whose columns hang together a little."""
    random = np.random.default_rng(seed)
    wealth = random.random(count)
    near = (wealth + random.normal(0, 0.2, count)).clip(0, 0.999)
    delay = random.integers(0, 30, count).astype(float)
    delay[random.random(count) < 0.2] = -7
    delay[random.random(count) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "job": random.choice(SCHEMA["job"].categories, count),
            "size": np.array(SCHEMA["size"].categories)[(4 * near).astype(int)],
            "owner": random.random(count) < wealth,
            "hours": random.integers(0, 60, count),
            "income": (5000 * near).round(2),
            "delay": delay,
            "sex": random.choice(["f", "m"], count),
        }
    )


def encoder_of(frame: pd.DataFrame, schema: Schema = SCHEMA) -> Encoder:
    return Encoder.fit(frame, schema)


def linear(slope: Tensor, offset: float) -> Model:
    """A model that is linear in the encoded columns, computed row by row: whoever else is asked about."""

    def predict_proba(x: Tensor) -> Tensor:
        p = torch.sigmoid((x.double() * slope.double()).sum(-1) + offset).float()  # the last digit of a double is noise
        return torch.stack([1 - p, p], 1)

    return predict_proba


def any_linear(encoder: Encoder, rows: Tensor, seed: int, share: float = 0.4, scale: float = 4.0) -> Model:
    """A random linear model that accepts this share of some rows."""
    slope = scale * torch.randn(encoder.width, generator=torch.Generator().manual_seed(seed))
    score = (rows.double() * slope.double()).sum(-1)
    return linear(slope, -float(score.quantile(1 - share)))


def problem_of(
    encoder: Encoder,
    rows: Tensor,
    model: Model,
    factual: Tensor | None = None,
    *,
    target: Target = TARGET,
    share: float | None = 0.95,
    seen_pairs: bool = False,
    max_changes: int | None = None,
    options: Mapping[str, Any] | None = None,
    constraints: Mapping[str, Any] | None = None,
) -> Problem:
    """A problem for rows that the model rejects: by default all of the training rows.

    Args:
        encoder: Of the table.
        rows: Training rows, encoded.
        model: The explained model.
        factual: The rows to explain.
        target: What is asked for.
        share: Of the training rows' distances to one another that is plausible; None: all that is valid is as good.
        seen_pairs: Whether pairs of values have to be in the training rows.
        max_changes: How many features may change.
        options: Of the search.
        constraints: Of the request.
    """
    if factual is None:
        factual = rows[~target.is_reached(model(rows))]
    plausibility = None
    if share is not None:
        weights = encoder.weights.to(rows)
        apart = Neighbours(rows, weights).nearest(rows, 2)[0][:, -1]
        limits = float(apart.quantile(share)), float(apart.square().mean().sqrt())
        plausibility = Plausibility(Neighbours(rows, weights), *limits, distances=apart)
    wishes = Constraints.of(encoder.schema, **(constraints or {}))
    bounds = wishes.bounds(encoder, encoder.decode(factual), factual) if constraints else None
    feasible = FeasibleSet.of(encoder, factual, bounds, wishes.weights(encoder))
    setup = SearchSetup(
        encoder,
        SearchModels(Classifier(encoder.width, 2), IdentityModel()),
        model,
        exact=True,
        rows=rows,
        probabilities=model(rows),
        plausibility=plausibility,
        combinations=Combinations.fit(encoder, rows) if seen_pairs else None,
    )
    return Problem(setup, feasible, target, SearchOptions(**(options or {})), max_changes=max_changes)


def sources_of(problem: Problem) -> Sources:
    setup = problem.setup
    return Sources.of(setup.encoder, setup.rows, setup.probabilities)


SLACK = 1e-6
"""There are two ways to compute a distance in float32: so much may lie between them."""


def is_admissible(problem: Problem, x: Tensor, row: Tensor, slack: float = SLACK) -> Tensor:
    """Which rows may be counterfactuals, by the promises alone: nothing of `Admissible` is used.

    Args:
        problem: What is asked for.
        x: The rows.
        row: Of which row each may be the counterfactual.
        slack: By how much more than it may a row be away; less than 0 to say that it surely is admissible.
    """
    feasible, setup, options = problem.feasible, problem.setup, problem.options
    good = feasible.contains(x, row) & (feasible.legal(x, row) == x).all(-1)
    good &= problem.target.is_reached(setup.predict_proba(x))
    if problem.max_changes is not None:
        good &= setup.encoder.changed(feasible.origin[row], x).sum(-1) <= problem.max_changes
    if setup.combinations is not None:
        good &= setup.combinations.allowed(x, feasible.origin[row])
    if setup.plausibility is not None:
        reach = setup.plausibility.distance(feasible.origin).clamp_min(setup.plausibility.at(options.plausibility))
        good &= setup.plausibility.distance(x) <= reach[row] + slack
    return good


def pasted(problem: Problem) -> tuple[Tensor, Tensor]:
    """Every accepted training row as every row may become it: which row, and what it becomes."""
    setup, feasible = problem.setup, problem.feasible
    accepted = setup.rows[problem.target.is_reached(setup.probabilities)]
    row = torch.arange(len(feasible)).repeat_interleave(len(accepted))
    return row, feasible.legal(accepted.repeat(len(feasible), 1), row)


def cheapest_of(problem: Problem, row: Tensor, x: Tensor, slack: float = 1e-6) -> Tensor:
    """For every row what the cheapest admissible one of these costs; infinite for none."""
    good = is_admissible(problem, x, row, slack)
    cost = problem.feasible.cost(x[good], row[good])
    best = torch.full((len(problem),), torch.inf, dtype=cost.dtype)
    return best.scatter_reduce(0, row[good], cost, "amin")


def candidates_of(problem: Problem, count: int, seed: int = 0) -> tuple[Admissible, Candidates]:
    """What says which rows are admissible, and some that are: accepted training rows, as rows may become them."""
    admissible = Admissible.of(problem)
    row, x = pasted(problem)
    good = is_admissible(problem, x, row).nonzero()[:, 0]
    chosen = good[torch.randperm(len(good), generator=torch.Generator().manual_seed(seed))[:count]].sort().values
    accepted = problem.setup.rows[problem.target.is_reached(problem.setup.probabilities)]
    near = accepted.repeat(len(problem), 1)[chosen]
    return admissible, Candidates(row[chosen], x[chosen], near)

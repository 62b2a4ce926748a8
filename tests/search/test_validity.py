from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from counterpath.fitting.fitted import FittedModels
from counterpath.search.descent import Descent
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS, geometry_of
from counterpath.search.objective import Objective, Target
from counterpath.search.residual import ResidualDecoder
from counterpath.search.step import Slope, slope
from counterpath.search.validity import AtLegalRow

TARGET = Target(1, confidence=0.6)
WAITS = {"_local_scalar_dense", "nonzero", "lift_fresh", "masked_select", "unique_dim", "_unique2"}
"""What waits for a device, or copies to it from what is none of its memory."""


@pytest.fixture(scope="module")
def feasible(models: FittedModels) -> FeasibleSet:
    return FeasibleSet.of(models.encoder, models.rows[:50])


@pytest.fixture(scope="module")
def here(models: FittedModels, feasible: FeasibleSet) -> Slope:
    """Where a search begins."""
    model, metric = geometry_of("rsgd", models.search_models)
    decoder = ResidualDecoder.of(model, feasible, generative=True, keep_residual=True)
    with torch.no_grad():
        objective = Objective(models.search_models.classifier, TARGET.index, TARGET.other)
        factual, context, constraints = feasible.factual, decoder.context, decoder.step_constraints
        return slope(model, metric, objective, decoder.start, factual, context, 5e-3, constraints)


def _rules(models: FittedModels, feasible: FeasibleSet, options: SearchOptions, **changes: Any) -> list[AtLegalRow]:
    method = METHODS["rsgd"]
    assert isinstance(method, Descent)
    problem = models.problem(method, feasible, TARGET, options)
    problem = replace(problem, setup=replace(problem.setup, **changes))
    rules = [rule for rule, _ in method.attempts(problem)]
    assert all(isinstance(rule, AtLegalRow) for rule in rules)
    return rules  # type: ignore[return-value]


def test_it_stops_where_the_model_says_yes_to_the_legal_row(
    models: FittedModels, feasible: FeasibleSet, here: Slope
) -> None:
    done = _rules(models, feasible, SearchOptions())[0](here)
    assert torch.equal(done, TARGET.is_reached(models.explained.predict_proba(feasible.legal(here.x))))
    assert 0 < done.sum() < len(done)


def test_only_what_asks_our_own_classifier_says_that_it_never_waits(
    models: FittedModels, feasible: FeasibleSet
) -> None:
    assert all(rule.never_waits for rule in _rules(models, feasible, SearchOptions()))
    assert all(rule.never_waits for rule in _rules(models, feasible, SearchOptions(), exact=False)), (
        "a surrogate is ours"
    )
    assert not any(rule.never_waits for rule in _rules(models, feasible, SearchOptions(allow_copies=False))), (
        "it looks for neighbours"
    )
    users = models.explained.predict_proba.__call__
    assert not any(
        rule.never_waits for rule in _rules(models, feasible, SearchOptions(), predict_proba=lambda x: users(x))
    )


class _Watched(TorchDispatchMode):
    """What is done to tensors, by name; indexing by a mask counts as `nonzero`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        places = args[1] if name in ("index", "index_put_", "index_put") else ()
        masked = any(isinstance(place, Tensor) and place.dtype == torch.bool for place in places)
        self.seen |= {name, *(["nonzero"] if masked else [])}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("exact", [True, False])
def test_a_rule_that_never_waits_does_nothing_that_would(
    models: FittedModels, feasible: FeasibleSet, here: Slope, exact: bool
) -> None:
    for rule in _rules(models, feasible, SearchOptions(), exact=exact):
        rule(here)  # what is made once is there from now on
        with torch.no_grad(), _Watched() as watched:
            rule(here)
        assert "index_select" in watched.seen
        assert not watched.seen & WAITS


def test_a_rule_that_waits_is_seen_to(models: FittedModels, feasible: FeasibleSet, here: Slope) -> None:
    rule = AtLegalRow(feasible.encoder, lambda x, _: torch.full((len(x),), bool(x.sum() > 0)))
    with torch.no_grad(), _Watched() as watched:
        rule(here)
    assert watched.seen & WAITS

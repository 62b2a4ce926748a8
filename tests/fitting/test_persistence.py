import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.persistence import fitting_together, pack, unpack
from counterpath.models.flow import FlowModel
from counterpath.models.latent import context_for
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchOptions, SearchSetup
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.utils.errors import InputError, StoreError
from tests.tables import LABEL, features, small

CPU = torch.device("cpu")


def through_json(models: FittedModels) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config, tensors = pack(models)
    return json.loads(json.dumps(config)), tensors


def _unpack(config: dict[str, Any], tensors: dict[str, Tensor], method: Method = METHODS["geodesic"]) -> FittedModels:
    return unpack(config, tensors, model=None, generator=None, method=method, options=SearchOptions(), device=CPU)


def test_what_was_fitted_survives_json_and_tensors(models: FittedModels) -> None:
    config, tensors = through_json(models)
    again = _unpack(config, tensors)
    x = models.rows[:9]
    assert again.encoder == models.encoder
    assert again.explained.classes == models.explained.classes
    assert torch.equal(again.explained.predict_proba(x), models.explained.predict_proba(x))
    assert torch.equal(again.latent.encode(x), models.latent.encode(x))
    z, context = models.latent.encode(x), context_for(models.latent, x)
    for name in ("mean", "mean_jac", "std", "std_jac", "category"):
        one, other = (getattr(model.latent.linearize(z, context), name) for model in (again, models))
        assert torch.equal(one, other), name
    assert torch.equal(again.held_out, models.held_out)
    assert again.held_out.dtype == torch.bool
    assert not any(parameter.requires_grad for parameter in again.generator.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_has_fitted_survives(name: str, models: FittedModels) -> None:
    method, options = METHODS[name], SearchOptions(max_steps=15)
    if method.needs:
        return
    state = method.fit(models.setup, options)
    tensors = {key: value.clone() for key, value in method.state_to_tensors(state).items()}
    again = method.state_from_tensors(models.setup, options, tensors)
    target = Target(1, confidence=0.6)
    feasible = FeasibleSet.of(models.encoder, models.rows[~target.is_reached(models.probabilities)][:12])
    one, other = (method.search(Problem(models.setup, feasible, target, options, kept)) for kept in (state, again))
    for field in ("row", "x", "z", "probability", "reason", "gap"):
        assert torch.equal(getattr(one, field), getattr(other, field)), field


class Halfway(Method):
    """A method of the user's own, with a state."""

    name = "halfway"

    def fit(self, setup: SearchSetup, options: SearchOptions) -> Tensor:
        return setup.rows.mean(0)

    def state_to_tensors(self, state: Tensor) -> dict[str, Tensor]:
        return {"mean": state}

    def state_from_tensors(self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors["mean"]

    def search(self, problem: Problem) -> Paths:
        assert problem.state.shape == problem.setup.rows[0].shape
        return METHODS["nearest"].search(problem)


@pytest.mark.filterwarnings("ignore:The generative model:counterpath.utils.errors.CounterpathWarning")
def test_a_method_of_the_user_s_own_is_named_and_asked_for(people: pd.DataFrame, tmp_path: Path) -> None:
    explainer = small(epochs=3, method=Halfway()).fit(people, LABEL)
    rows = features(people).head(20)
    before = explainer.explain(rows, "low")
    assert before.request["method"] == "halfway"
    folder = explainer.save(tmp_path / "model")
    with pytest.raises(
        InputError, match=r"a method of yours, .*Halfway, which is not stored with it: load\(…, method=…\)"
    ):
        cp.load(folder)
    with pytest.raises(InputError, match=r"not counterpath\.search\.nearest\.Nearest"):
        cp.load(folder, method=METHODS["nearest"])
    again = cp.load(folder, method=Halfway())
    assert torch.equal(again.models_.states["halfway"][1], explainer.models_.states["halfway"][1])
    pd.testing.assert_frame_equal(again.explain(rows, "low").counterfactuals, before.counterfactuals, check_exact=True)
    built_in = small(epochs=3, method=METHODS["nearest"]).fit(people, LABEL)
    assert cp.load(built_in.save(tmp_path / "other")).method == "nearest"
    with pytest.raises(InputError, match="fitted with method 'nearest'; load it without method="):
        cp.load(tmp_path / "other", method=Halfway())
    built_in.explain(rows, "low", method=Halfway())
    assert list(cp.load(built_in.save(tmp_path / "used")).models_.states) == ["nearest"], (
        "what was used once is no part"
    )


def test_a_flow_is_packed_where_there_is_one(models: FittedModels) -> None:
    flow = FlowModel(models.encoder.width).eval()
    config, tensors = through_json(replace(models, flow=flow))
    again = _unpack(config, tensors)
    assert again.flow is not None
    assert torch.equal(again.flow.encode(models.rows[:5]), flow.encode(models.rows[:5]))
    assert not any(name.startswith("flow") for name in pack(models)[1])


def test_tensors_that_do_not_fit_are_told(models: FittedModels) -> None:
    config, tensors = through_json(models)
    for broken in (
        {name: tensor for name, tensor in tensors.items() if name != "rows"},
        {name: tensor for name, tensor in tensors.items() if not name.startswith("generator.decoder")},
        {**tensors, "classifier.head.bias": torch.zeros(17)},
    ):
        with pytest.raises(StoreError, match="do not fit together"):
            _unpack(config, broken)


def test_an_error_of_the_user_s_input_stays_one() -> None:
    with pytest.raises(InputError, match="as it was"), fitting_together():
        raise InputError("as it was")


@pytest.mark.filterwarnings("ignore:The generative model:counterpath.utils.errors.CounterpathWarning")
def test_class_weights_by_label_survive(people: pd.DataFrame, tmp_path: Path) -> None:
    explainer = small(epochs=3, class_weight={"low": 2.0, "mid": 1.0}).fit(people, LABEL)
    again = cp.load(explainer.save(tmp_path / "model"))
    assert again.class_weight == {"low": 2.0, "mid": 1.0}
    rows = features(people).head(5)
    pd.testing.assert_frame_equal(again.predict_proba(rows), explainer.predict_proba(rows), check_exact=True)

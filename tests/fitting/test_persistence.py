import json
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
from counterpath.utils.errors import InputError, StoreError
from tests.tables import LABEL, features, small

CPU = torch.device("cpu")


def through_json(models: FittedModels) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config, tensors = pack(models)
    return json.loads(json.dumps(config)), tensors


def test_what_was_learned_survives_json_and_tensors(models: FittedModels) -> None:
    config, tensors = through_json(models)
    again = unpack(config, tensors, model=None, generator=None, device=CPU)
    x = models.rows[:9]
    assert again.encoder == models.encoder
    assert again.explained.classes == models.explained.classes
    assert torch.equal(again.explained.predict_proba(x), models.explained.predict_proba(x))
    assert torch.equal(again.space.encode(x), models.latent.encode(x))
    z, told = models.latent.encode(x), context_for(models.latent, x)
    for name in ("mean", "mean_jac", "std", "std_jac", "category"):
        one, other = (getattr(model.space.linearize(z, told), name) for model in (again, models))
        assert torch.equal(one, other), name
    assert torch.equal(again.held_out, models.held_out)
    assert again.held_out.dtype == torch.bool
    assert not any(parameter.requires_grad for parameter in again.generator.parameters())


def test_a_flow_is_packed_where_there_is_one(models: FittedModels) -> None:
    flow = FlowModel(models.encoder.width).eval()
    config, tensors = through_json(replace(models, flow=flow))
    again = unpack(config, tensors, model=None, generator=None, device=CPU)
    assert again.flow is not None
    assert torch.equal(again.flow.encode(models.rows[:5]), flow.encode(models.rows[:5]))
    assert not any(name.startswith("flow") for name in pack(models)[1])


def test_tensors_that_do_not_fit_are_told(models: FittedModels) -> None:
    config, tensors = through_json(models)
    for broken in (
        {name: tensor for name, tensor in tensors.items() if name != "rows"},
        {name: tensor for name, tensor in tensors.items() if not name.startswith("space.decoder")},
        {**tensors, "classifier.head.bias": torch.zeros(17)},
    ):
        with pytest.raises(StoreError, match="do not fit together"):
            unpack(config, broken, model=None, generator=None, device=CPU)


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

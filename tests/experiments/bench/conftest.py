"""A small study of real people that is fitted in seconds."""

import pytest
import torch

from counterpath.data.datasets import Dataset, load
from counterpath.experiments import tabular
from counterpath.experiments.tabular import Preset, Settings, Study, build
from counterpath.models.training import Run

SMALL = Preset(mean_epochs=15, std_epochs=2, curve_epochs=0, factuals=40, curve_factuals=0)


@pytest.fixture(scope="session")
def study() -> Study:
    whole = load("adult-carla")
    data = Dataset(whole.name, whole.train[:3000], whole.test[:800], whole.target, whole.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tabular.SETTINGS, "adult-carla", Settings(50, 1e-2, 1.5, 5e-3))
        return build(data, SMALL, Run(seed=0, progress=False), torch.device("cpu"))

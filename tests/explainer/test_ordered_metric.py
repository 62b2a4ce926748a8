"""The Explainer with binary, boolean and ordinal features measured by Fisher and Rao."""

from pathlib import Path

import pandas as pd
import pytest
import torch

import counterpath as cp
from counterpath.utils.errors import InputError
from tests.tables import LABEL, features, mixed, small


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
def test_ordered_features_are_measured_searched_and_kept(tmp_path: Path) -> None:
    options = {"ordered_metric": "fisher-rao", "method": "rsgd", "epochs": 5, "max_steps": 8, "fallback": False}
    explainer = small(**options).fit(mixed(220), LABEL)
    encoder = explainer.models_.encoder
    ordered = explainer.models_.latent.ordered
    assert [encoder.schema.names[encoder.layout.index(slice(c, c + 1))] for c, _ in encoder.levels] == [
        "size",
        "member",
        "sex",
    ]
    assert ordered.columns.tolist() == [column for column, _ in encoder.levels]
    rows = features(mixed(6, seed=1))
    answer = explainer.explain(rows)
    loaded = cp.load(explainer.save(tmp_path / "model"))
    assert loaded.ordered_metric == "fisher-rao"
    assert torch.equal(loaded.models_.latent.ordered.thresholds, ordered.thresholds)
    pd.testing.assert_frame_equal(loaded.explain(rows).counterfactuals, answer.counterfactuals)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ordered_metric": "manhattan"}, "manhattan"),
        ({"ordered_metric": "fisher-rao", "numeric_output": "linear"}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_trained(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**options).fit(mixed(60), LABEL)

"""The Explainer with every estimate of its decoder's uncertainty."""

from pathlib import Path

import pandas as pd
import pytest

import counterpath as cp
from counterpath.models.uncertainty import UNCERTAINTIES
from counterpath.utils.errors import InputError
from tests.tables import LABEL, features, mixed, small

OTHERS = [kind for kind in UNCERTAINTIES if kind != "rbf"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
@pytest.mark.parametrize("kind", OTHERS)
def test_every_estimate_is_fitted_diagnosed_searched_and_kept(kind: str, tmp_path: Path) -> None:
    explainer = small(uncertainty=kind, epochs=5, max_steps=8, fallback=False).fit(mixed(220), LABEL)
    assert explainer.diagnostics_.calibration is not None
    rows = features(mixed(6, seed=1))
    answers = {method: explainer.explain(rows, method=method) for method in ("rsgd", "rsgd-c", "geodesic")}
    loaded = cp.load(explainer.save(tmp_path / "model"))
    assert loaded.uncertainty == kind
    for method, answer in answers.items():
        again = loaded.explain(rows, method=method)
        pd.testing.assert_frame_equal(again.counterfactuals, answer.counterfactuals)


def test_an_unknown_estimate_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(InputError, match="guess"):
        small(uncertainty="guess").fit(mixed(60), LABEL)

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from counterpath.explainer.explainer import Explainer
from counterpath.fitting.diagnostics import Diagnostics, Quality, _reconstruction, diagnose
from tests.explainer.conftest import shorten_surrogate
from tests.tables import LABEL, mixed, small

HALVES = torch.tensor([0.5, 0.5])


def _noise(rows: int, classes: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=rows)
    proba = random.dirichlet(np.ones(classes), rows) + 0.3 * np.eye(classes)[y]
    return torch.from_numpy(proba / proba.sum(1, keepdims=True)), torch.from_numpy(y)


@pytest.mark.parametrize("classes", [2, 4])
def test_quality_is_scikit_learn_s(classes: int) -> None:
    proba, y = _noise(500, classes)
    shares = torch.full((classes,), 1 / classes)
    quality = Quality.of(proba, y, shares, unseen=True)
    score = proba[:, 1] if classes == 2 else proba
    assert quality.auc == pytest.approx(roc_auc_score(y, score, multi_class="ovr"))
    assert quality.log_loss == pytest.approx(log_loss(y, proba))
    assert quality.guessing == pytest.approx(np.log(classes))
    assert quality.auc_interval[0] < quality.auc < quality.auc_interval[1]


def test_intervals_cover_the_truth_and_are_wide_where_rows_are_few() -> None:
    truth = Quality.of(*_noise(50_000), HALVES, unseen=True)
    few = [Quality.of(*_noise(40, seed=seed), HALVES, unseen=True) for seed in range(1, 101)]
    for inside in (
        [q.auc_interval[0] <= truth.auc <= q.auc_interval[1] for q in few],
        [q.gain_interval[0] <= truth.guessing - truth.log_loss <= q.gain_interval[1] for q in few],
    ):
        assert 88 <= sum(inside) <= 100
    y = torch.arange(20) % 2
    perfect = Quality.of(torch.nn.functional.one_hot(y, 2).double(), y, HALVES, unseen=True)
    assert perfect.auc == 1
    assert 0.7 < perfect.auc_interval[0] < 0.95  # twenty rows do not show that it is never wrong


def _coins(rows: int) -> pd.DataFrame:
    """A table whose labels hang on nothing."""
    table = mixed(rows)
    return table.assign(**{LABEL: np.random.default_rng(0).permutation(np.array(["no", "yes"])[np.arange(rows) % 2])})


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
def test_a_table_too_small_to_keep_rows_aside_is_never_good_and_says_why() -> None:
    told = small().fit(_coins(80), LABEL).diagnostics()
    assert told.verdict != "good"
    assert told.accuracy is None
    assert "there are none that no model saw" in str(told)


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
def test_labels_that_hang_on_nothing_are_not_said_to_be_known() -> None:
    told = small().fit(_coins(1200), LABEL).diagnostics()
    assert (told.rows, told.verdict) == (120, "bad")
    assert any("Nothing shows that the model" in finding.text for finding in told.findings)


def test_a_model_of_the_user_s_may_have_seen_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_surrogate(monkeypatch, 100, rows=40)
    table = mixed(300)
    table[LABEL] = table[LABEL] == "low"
    numbers = ["debt", "score", "children"]
    model = LogisticRegression(max_iter=2000).fit(table[numbers], table[LABEL])
    told = small().fit(table, LABEL, model=lambda frame: model.predict_proba(frame[numbers])).diagnostics()
    assert told.quality is not None
    assert not told.quality.unseen
    assert "The model may have been trained on these rows" in str(told)
    assert "AUC" in str(told)
    again = Diagnostics.from_json(json.loads(json.dumps(told.to_json())))
    assert (again.quality, again.findings) == (told.quality, told.findings)
    older = {key: value for key, value in told.to_json().items() if key != "quality"}  # as version 0.1 wrote it
    assert Diagnostics.from_json(older).quality is None


def test_what_is_decided_is_decided_by_the_threshold(fitted: Explainer) -> None:
    models = fitted.models_
    told = diagnose(models, labels=models.labels, thresholds=(0.8, 0.2))
    granted = models.probabilities[:, 1] >= 0.2
    assert told.coverage["share"].tolist() == pytest.approx(
        [1 - float(granted.double().mean()), float(granted.double().mean())]
    )
    assert told.coverage["share"].tolist() != pytest.approx(fitted.diagnostics().coverage["share"].tolist())
    assert told.quality is not None
    measured, labels = models.held_out, models.labels
    assert labels is not None
    assert told.quality.accuracy == pytest.approx(float((granted == labels.bool())[measured].double().mean()))
    right = [float((granted == labels.bool())[measured & (labels == index)].double().mean()) for index in (0, 1)]
    assert told.accuracy == pytest.approx(sum(right) / 2)


@pytest.mark.filterwarnings("ignore:The generative model keeps less:counterpath.utils.errors.CounterpathWarning")
@pytest.mark.parametrize("dtype", ["boolean", "string", "object", "category"])
def test_a_gap_in_a_category_is_a_value_that_is_kept_or_not(dtype: str) -> None:
    random = np.random.default_rng(0)
    age = random.integers(18, 80, 120)
    words = np.array([True, False])[age % 2] if dtype == "boolean" else np.array(["a", "b"])[age % 2]
    column = pd.Series(words).astype(dtype).where(np.arange(120) % 20 == 0)  # hardly anybody has it
    frame = pd.DataFrame({"age": age, "word": column, "granted": np.where(age > 45, "yes", "no")})
    explainer = small(epochs=2).fit(frame, "granted")
    rows = explainer.models_.rows
    (line,) = _reconstruction(explainer.models_, rows, rows).query("feature == 'word'").to_dict("records")
    assert line["kept"] == 1
    assert line["guessing"] == 114 / 120, "nothing is the commonest value"

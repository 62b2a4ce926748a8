import numpy as np
import pandas as pd
import torch

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.experiments.bench.peers import ScaledClassifier, TableClassifier, encode_text
from counterpath.experiments.study import Study
from counterpath.models.classifier import Classifier
from tests.conftest import random_classifier


def _scaled(encoder: Encoder, frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers min-max scaled and categories one-hot, numbers first, as DiCE does it."""
    numbers = {
        feature.name: (frame[feature.name] - low) / (high - low)
        for feature, low, high in zip(encoder.schema, encoder.low, encoder.high, strict=True)
        if not feature.categories
    }
    categories = {
        f"{feature.name}_{value}": (frame[feature.name] == value).astype(float)
        for feature in encoder.schema
        for value in sorted(feature.categories)
    }
    return pd.DataFrame(numbers | categories)


def _kinds() -> tuple[pd.DataFrame, Encoder]:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "job": random.choice(["boss", "clerk", "none"], 50),
            "age": random.integers(18, 80, 50),
            "school": random.choice(["low", "middle", "high"], 50),
            "gain": random.exponential(1000.0, 50).round(2),
        }
    )
    schema = Schema(
        (
            Feature("job", "categorical", categories=("none", "clerk", "boss")),
            Feature("age", "integer"),
            Feature("school", "ordinal", categories=("low", "middle", "high")),
            Feature("gain", "continuous", transform="log1p"),
        )
    )
    return frame, Encoder.fit(frame, schema)


def test_scaled_rows_of_every_kind_are_encoded_as_the_encoder_does() -> None:
    frame, encoder = _kinds()
    scaled = _scaled(encoder, frame)
    model = ScaledClassifier(random_classifier(encoder.width).float(), encoder, list(scaled.columns))
    rows = torch.tensor(scaled.to_numpy(np.float32))
    torch.testing.assert_close(model.encode(rows), encoder.encode(frame), atol=1e-5, rtol=1e-5)


def test_rows_and_a_single_row_have_the_same_probability(study: Study) -> None:
    frame = study.encoder.decode(study.train[:20])
    scaled = _scaled(study.encoder, frame)
    model = ScaledClassifier(study.classifier, study.encoder, list(scaled.columns))
    rows = torch.tensor(scaled.to_numpy(np.float32))
    expected = study.classifier.probability(study.train[:20])
    torch.testing.assert_close(model(rows), expected[:, None], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model(rows[3]), expected[3:4], atol=1e-5, rtol=1e-4)


def test_the_gradient_goes_through_the_translation() -> None:
    frame, encoder = _kinds()
    scaled = _scaled(encoder, frame)
    classifier: Classifier = random_classifier(encoder.width)
    model = ScaledClassifier(classifier, encoder, list(scaled.columns)).double()
    # Inside the ranges: at the ends the steps of the check would leave the domain of the transform.
    rows = torch.tensor(scaled.to_numpy(np.float64)[:4]).clamp(0.1, 0.9).requires_grad_()
    assert torch.autograd.gradcheck(model, rows)


def test_tables_as_text_are_encoded_as_the_encoder_does() -> None:
    frame, encoder = _kinds()
    text = frame.astype(object).assign(other=1)[["gain", "other", "job", "school", "age"]]
    assert torch.equal(encode_text(encoder, text), encoder.encode(frame))


def test_a_table_s_probabilities_are_those_of_the_classifier(study: Study) -> None:
    model = TableClassifier(study.classifier, study.encoder)
    frame, expected = study.encoder.decode(study.train[:20]), study.classifier.probability(study.train[:20])
    answer = model.predict_proba(frame)
    np.testing.assert_allclose(answer[:, 1], expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(answer.sum(1), 1, rtol=1e-6)
    assert model.predict(frame).tolist() == (expected > 0.5).long().tolist()

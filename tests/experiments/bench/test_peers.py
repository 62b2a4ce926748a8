import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.experiments.bench import peers
from counterpath.experiments.bench.peers import (
    DICE_METHODS,
    DISTANCE_WEIGHT,
    LEARNING_RATE,
    OURS,
    PEERS,
    Counterfactuals,
    ScaledClassifier,
    TableClassifier,
    binary_columns,
    compare,
    encode_text,
    prepare_dice,
    prepare_ours,
    prepare_revise,
    revise,
)
from counterpath.experiments.tabular import Study
from counterpath.models.classifier import Classifier
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import InputError, MissingExtraError
from counterpath.utils.files import write_json
from counterpath.utils.progress import Advance, track
from tests.conftest import random_classifier

SHORT = {"gradient": {"min_iter": 30, "max_iter": 30, "posthoc_sparsity_param": None}}
"""DiCE's gradient method takes seconds a row by default."""


def _silent(amount: int = 1, note: str = "") -> None:
    pass


def _nothing(study: Study):  # type: ignore[no-untyped-def]
    """A peer that fails on every row."""

    def search(factual: Tensor, advance: Advance) -> Counterfactuals:
        return Counterfactuals(factual, torch.zeros(len(factual), dtype=torch.bool), {"gave up": len(factual)})

    return search


@pytest.fixture(scope="module")
def compared(study: Study) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(peers.PEERS, "revise", partial(prepare_revise, iterations=60))
        return compare(study, methods=(*OURS, "revise"), rows=20, limits={"revise": 8}, repeats=2, progress=False)


def test_ours_search_all_rows_in_one_batch_towards_the_target(study: Study) -> None:
    factual = study.factual[:20]
    start = study.classifier.probability(study.vae.decode(study.vae.encode(factual)))
    for name in OURS:
        found = prepare_ours(study, name)(factual, _silent)
        end = study.classifier.probability(found.rows)
        assert bool(found.exists.all())
        assert bool((end >= start - 1e-6).all())  # a row whose decoded code is accepted already takes no step
        assert bool((end >= 0.5).any())


def test_the_figures_of_a_method_agree_with_each_other(compared: list[dict[str, Any]]) -> None:
    assert [one["method"] for one in compared] == [*OURS, "revise"]
    assert [one["rows"] for one in compared] == [20, 20, 20, 8]
    for one in compared:
        assert 0 < one["valid"] <= one["found"] <= one["rows"]
        assert one["validity"] == one["valid"] / one["rows"]
        assert one["seconds_per_row"] * one["rows"] == pytest.approx(one["seconds"])
        assert one["seconds_per_valid"] * one["valid"] == pytest.approx(one["seconds"])
        assert one["ratio"] == pytest.approx(one["seconds_per_valid"] / compared[0]["seconds_per_valid"])
    assert compared[0]["ratio"] == 1
    assert [one["common"] is None for one in compared] == [False, False, False, True]
    assert len({one["common"] for one in compared[:3]}) == 1
    assert compared[0]["common"] <= min(one["valid"] for one in compared[:3])
    assert set(compared[3]["common_distances"].values()) == {None}


def test_validity_and_distances_are_those_of_the_legal_rows(study: Study, compared: list[dict[str, Any]]) -> None:
    found = prepare_ours(study, "sgd")(study.factual[:20], _silent)
    case = study.case(found.rows, factual=study.factual[:20])
    valid = MEASURES["valid"](case) > 0
    (sgd,) = (one for one in compared if one["method"] == "sgd")
    assert sgd["valid"] == int(valid.sum())
    for name, value in sgd["distances"].items():
        assert value == pytest.approx(float(MEASURES[name](case)[valid].mean()), rel=1e-5)


def test_a_method_that_finds_nothing_has_no_seconds_per_valid_row(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(peers.PEERS, "nothing", _nothing)
    ours, nothing = compare(study, methods=("sgd", "nothing"), rows=5, repeats=1, progress=False)
    assert [nothing[key] for key in ("found", "valid", "seconds_per_valid", "ratio")] == [0, 0, None, None]
    assert set(nothing["distances"].values()) == {None}
    assert ours["common"] == 0
    assert ours["valid"] > 0
    assert [ours["failures"], nothing["failures"]] == [{}, {"gave up": 5}]


def test_the_result_is_json(compared: list[dict[str, Any]], tmp_path: Path) -> None:
    path = write_json(tmp_path / "peers.json", compared)
    assert json.loads(path.read_text(encoding="utf-8")) == compared


def test_dice_stands_beside_ours(study: Study) -> None:
    pytest.importorskip("dice_ml", reason="dice-ml is not installed; the extra bench has it, and so has `make test`")
    names = ("rsgd", "dice-random", "dice-kdtree")
    results = compare(study, methods=names, rows=4, limits={"dice-kdtree": 2}, repeats=1, progress=False)
    assert [(one["method"], one["rows"]) for one in results] == list(zip(names, (4, 4, 2), strict=True))
    # What the tree holds are training rows that the classifier accepts; DiCE moves them a little towards the factual.
    assert results[2]["validity"] == 1
    assert results[2]["distances"]["ld"] < 0.1


def test_what_cannot_be_compared_is_said_before_anything_runs(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'rsgd'"):
        compare(study, methods=("rsg",))
    with pytest.raises(InputError, match="at least 1"):
        compare(study, rows=0)
    with pytest.raises(InputError, match="no factuals"):
        compare(replace(study, factual=study.factual[:0]))
    monkeypatch.setitem(sys.modules, "dice_ml", None)
    monkeypatch.setitem(peers.PEERS, "rsgd", lambda study: lambda *given: pytest.fail("it ran"))
    with pytest.raises(MissingExtraError, match=r"counterpath\[bench\]"):
        compare(study, methods=tuple(PEERS))


# Peers: DiCE.


@pytest.fixture
def dice() -> None:
    pytest.importorskip("dice_ml", reason="dice-ml is not installed; the extra bench has it, and so has `make test`")


@pytest.mark.parametrize("method", DICE_METHODS)
@pytest.mark.usefixtures("dice")
def test_every_method_finds_rows_that_the_classifier_accepts(study: Study, method: str) -> None:
    search = prepare_dice(study, method, settings=SHORT.get(method))
    found = search(study.factual[:3], _silent)
    assert bool(found.exists.any())
    assert sum(found.failures.values()) == int((~found.exists).sum())
    assert bool((study.classifier.probability(found.rows[found.exists]) >= 0.5 - 1e-3).all())
    assert torch.equal(found.rows[~found.exists], study.factual[:3][~found.exists])


@pytest.mark.usefixtures("dice")
def test_a_seed_gives_the_same_rows_and_the_caller_s_generators_are_left_alone(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw() -> tuple[float, float]:  # not from Python's own generator: the checker of types draws from it, too
        return float(np.random.random()), float(torch.rand(()))  # noqa: NPY002

    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    expected = draw()
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    one = prepare_dice(study, "random", seed=3)(study.factual[:2], _silent)
    assert draw() == expected
    other = prepare_dice(study, "random", seed=3)(study.factual[:2], _silent)
    assert torch.equal(one.rows, other.rows)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("dice")
def test_a_row_on_which_it_fails_counts_as_not_found(study: Study) -> None:
    done = []
    search = prepare_dice(study, "random", settings={"features_to_vary": []})
    found = search(study.factual[:2], lambda amount=1, note="": done.append(amount))
    assert not found.exists.any()
    assert list(found.failures.values()) == [2]
    assert "UserConfigValidationException" in next(iter(found.failures))
    assert done == [1, 1]


def test_an_unknown_method_lists_the_known_ones(study: Study) -> None:
    with pytest.raises(InputError, match="gradient, random, genetic, kdtree"):
        prepare_dice(study, "guess")


def test_without_dice_the_error_names_the_extra(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dice_ml", None)
    with pytest.raises(MissingExtraError, match=r"counterpath\[bench\]"):
        prepare_dice(study, "random")


@pytest.mark.usefixtures("dice")
def test_the_bar_is_seen_while_dice_is_silenced(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    search = prepare_dice(study, "random")
    with track("DiCE", 2, shown=True) as advance:
        search(study.factual[:2], advance)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert "it/s" not in shown.err  # that would be DiCE's own


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
    frame = study.encoder.decode(study.data.train[:20])
    scaled = _scaled(study.encoder, frame)
    model = ScaledClassifier(study.classifier, study.encoder, list(scaled.columns))
    rows = torch.tensor(scaled.to_numpy(np.float32))
    expected = study.classifier.probability(study.data.train[:20])
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
    frame, expected = study.encoder.decode(study.data.train[:20]), study.classifier.probability(study.data.train[:20])
    answer = model.predict_proba(frame)
    np.testing.assert_allclose(answer[:, 1], expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(answer.sum(1), 1, rtol=1e-6)
    assert model.predict(frame).tolist() == (expected > 0.5).long().tolist()


# Peers: REVISE.


def test_the_columns_of_two_categories_are_binary(study: Study) -> None:
    names = [name for name, two in zip(study.encoder.schema.names, binary_columns(study.encoder), strict=True) if two]
    assert names == [feature.name for feature in study.encoder.schema if feature.kind == "binary"]


def _accepted(study: Study, factual: Tensor, steps: int) -> list[tuple[float, Tensor]]:
    """Loss and row of every accepted step of the same descent, written out by hand."""
    binary, z = binary_columns(study.encoder), study.vae.encode(factual).clone().requires_grad_()
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    accepted = []
    for step in range(1, steps + 1):
        decoded = study.vae.decode(z)
        x = torch.where(binary, decoded.round(), decoded)
        probability = study.classifier.probability(x)
        loss = -probability.log().sum() + DISTANCE_WEIGHT * torch.linalg.vector_norm(x - factual, 1)
        if probability > 0.5:
            accepted.append((float(loss.detach()), x.detach()))
        (gradient,) = torch.autograd.grad(loss, z)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient.square()
        moved = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        z = (z - LEARNING_RATE * moved).detach().requires_grad_()
    return accepted


def test_it_returns_the_accepted_step_with_the_smallest_loss(study: Study) -> None:
    solved = 0
    for row in range(4):
        factual = study.factual[row : row + 1]
        accepted = _accepted(study, factual, 60)
        found = revise(study.vae, study.classifier, factual, binary_columns(study.encoder), iterations=60)
        assert (found is None) == (not accepted)
        if found is not None:
            solved += 1
            torch.testing.assert_close(found, min(accepted, key=lambda pair: pair[0])[1], atol=1e-3, rtol=1e-3)
    assert solved


def test_what_it_finds_is_accepted_and_binary_and_no_row_sees_another(study: Study) -> None:
    search = prepare_revise(study, iterations=60)
    found, alone = search(study.factual[:4], _silent), search(study.factual[2:3], _silent)
    assert bool(found.exists.any())
    assert bool((study.classifier(found.rows[found.exists]) > 0).all())
    columns = found.rows[found.exists][:, binary_columns(study.encoder)]
    assert bool(((columns == 0) | (columns == 1)).all())
    assert torch.equal(found.rows[2], alone.rows[0])


def test_where_no_step_is_accepted_there_is_nothing(study: Study) -> None:
    found = prepare_revise(study, iterations=0)(study.factual[:3], _silent)
    assert not found.exists.any()
    assert torch.equal(found.rows, study.factual[:3])
    assert dict(found.failures) == {"no step was accepted": 3}

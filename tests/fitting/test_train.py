import inspect
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.data import Schema
from counterpath.data.encoding import Encoder
from counterpath.explainer import explainer
from counterpath.fitting import train
from counterpath.fitting.train import check_class_labels, class_weights, hold_out, schedule
from counterpath.utils.errors import CounterpathWarning, InputError
from counterpath.utils.progress import listen
from tests.tables import LABEL, mixed, small


@given(st.integers(10, 10**7), st.integers(10**5, 10**7))
def test_a_schedule_is_bounded_by_the_rows_that_are_seen_whatever_the_table(rows: int, budget: int) -> None:
    batch, epochs = schedule(rows, budget)
    assert 16 <= batch <= 512
    assert 1 <= epochs <= max(60, rows / 16 + 1)
    assert epochs * min(rows, 100_000) <= max(budget, 100_000)


def test_small_tables_are_seen_often_and_large_ones_not_at_all_times() -> None:
    assert [schedule(rows, 2_000_000) for rows in (160, 700, 1900, 10_000, 500_000, 5_000_000)] == [
        (16, 60),
        (43, 60),
        (118, 119),
        (512, 200),
        (512, 20),
        (512, 20),
    ]


def test_a_fit_says_what_it_does_and_how_long_all_of_it_takes() -> None:
    seen: dict[str, str] = {}
    with (
        listen(lambda name, done, total, note: seen.update({name: note})),
        pytest.warns(CounterpathWarning, match="keeps less than half"),
    ):
        small(epochs=2).fit(mixed(60), LABEL)
    parts = ["training vae mean", "training vae uncertainty", "choosing the classifier", "training classifier"]
    shown = [name for name in seen if name in (*parts, "fitting the method")]
    assert shown == [*parts, "fitting the method"]
    assert all("in all" in seen[name] for name in (*parts[:3], "fitting the method"))
    assert seen["fitting the method"] == "in all 0 s to go"


@given(st.integers(0, 60_000), st.integers(0, 5))
def test_a_tenth_is_held_out(count: int, seed: int) -> None:
    held_out = hold_out(count, seed)
    assert len(held_out) == count
    assert int(held_out.sum()) == (0 if count < 200 else min(4000, count // 10))
    assert torch.equal(held_out, hold_out(count, seed))


def test_another_seed_holds_out_others() -> None:
    assert not torch.equal(hold_out(1000, 0), hold_out(1000, 1))


def test_a_label_for_a_class_that_does_not_exist_is_refused() -> None:
    table = mixed(60)
    schema = replace(Schema.infer(table, target=LABEL), class_labels={"low": "granted", "maybe": "perhaps"})
    with pytest.raises(InputError, match="class_labels has 'maybe'; the classes are 'high', 'low', 'mid'"):
        small().fit(table, LABEL, schema=schema)
    check_class_labels(replace(schema, class_labels={"1": "granted"}), (0, 1))


def test_class_weights_are_scikit_learn_s() -> None:
    labels = np.array([0, 0, 0, 1])
    assert class_weights(None, ("a", "b"), labels) == (1.0, 1.0)
    assert class_weights("balanced", ("a", "b"), labels) == pytest.approx((4 / 6, 2.0))
    assert class_weights({"b": 5.0}, ("a", "b"), labels) == (1.0, 5.0)
    for bad in ("equal", {"c": 1.0}):
        with pytest.raises(InputError, match="expected None, 'balanced' or weights for"):
            class_weights(bad, ("a", "b"), labels)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"latent_dim": 0}, "latent_dim is 0; expected a whole number from 1, or 'auto'"),
        ({"epochs": "fast"}, "epochs is 'fast'"),
        ({"n_centers": -3}, "n_centers is -3"),
        ({"hidden": ()}, "expected widths of layers"),
        ({"numeric_output": "sigmoud"}, "unknown way to decode numbers 'sigmoud'"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**sizes).fit(mixed(30), LABEL)


def test_classes_of_a_few_rows_are_not_held_out() -> None:
    labels = np.array([0] * 300 + [1] * 5)
    assert not hold_out(305, 0, labels)[300:].any()
    assert hold_out(305, 0, labels)[:300].any()


def test_of_too_many_rows_some_are_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "MOST_ROWS", 150)
    with pytest.warns(CounterpathWarning, match="the table has 600 rows; the models are fitted to 150 of them"):
        prepared = train.prepare_training(mixed(), LABEL, None, None, missing="error", seed=1)
    assert prepared.labels is not None
    assert list(prepared.labels.index) == list(prepared.features.index)
    assert len(prepared.features) == 150
    assert prepared.features.index.is_unique


def test_rows_are_encoded_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_SOME_ROWS", 70)
    table = mixed().drop(columns=LABEL)
    encoder = Encoder.fit(table, Schema.infer(table))
    torch.testing.assert_close(train.encode_rows(encoder, table), encoder.encode(table), rtol=0, atol=0)
    assert len(train.some(torch.zeros(600, 2))) <= 70


def test_a_table_that_nobody_else_holds_is_given_up_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [mixed(40)]
    table, seen = weakref.ref(tables[0]), []

    def fit_models(*arguments: Any) -> None:
        seen.append(table() is None)
        raise InterruptedError

    monkeypatch.setattr(explainer, "fit_models", fit_models)
    with pytest.raises(InterruptedError):
        inspect.unwrap(explainer.Explainer.fit)(small(), tables.pop(), LABEL)  # what checks shapes holds arguments
    assert seen == [True]


def test_searches_that_teach_a_surrogate_start_where_the_threshold_says() -> None:
    said = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]])
    refused, granted = train._away(said, (0.8, 0.2))
    assert refused[0].tolist() == [True, False, False]
    assert granted[0].tolist() == [False, True, True]
    assert granted[1].is_reached(torch.tensor([[0.75, 0.25], [0.85, 0.15]])).tolist() == [False, True]
    assert [member.tolist() for member, _ in train._away(said)] == [[True, True, False], [False, False, True]]

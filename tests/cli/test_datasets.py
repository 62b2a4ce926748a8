"""`counterpath datasets`."""

import json

import pytest

from counterpath import Schema
from counterpath.cli import main
from counterpath.data.datasets import DATASETS, Card


def test_all_data_sets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text  # nothing is cut off
    for name in DATASETS:
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
        assert f"{Card.of(name).rows:,}" in line
    assert "≤50K, >50K" in text
    assert "a number (MPa)" in text


@pytest.mark.parametrize("name", DATASETS)
def test_one_is_shown_with_its_features(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    card = Card.of(name)
    assert main(["datasets", name]) == 0
    text = capsys.readouterr().out
    for fact in (card.title, card.licence, card.source, card.sha256):
        assert fact in text
    for feature in Schema.from_json(card.schema):
        assert f"\n{feature.name}: {feature.kind}" in text
        assert feature.description in text


def test_a_feature_says_what_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "adult"]) == 0
    text = capsys.readouterr().out
    assert "\nfnlwgt: integer (12,285 to 1,490,400), people, immutable\n" in text
    assert "\ncapital-loss: integer (0 to 4,356 as observed), dollars\n" in text
    assert "Wife), locked unless a request unlocks it\n" in text
    assert main(["datasets", "concrete"]) == 0
    assert "\nfly-ash: continuous (0 to 200.1 in steps of 0.1), kg/m³\n" in capsys.readouterr().out


def test_both_are_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(DATASETS)
    assert listed[0]["features"] == 13
    assert main(["datasets", "german", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert Schema.from_json(shown["schema"]) == Schema.from_json(Card.of("german").schema)


def test_an_unknown_one_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "germany"]) == 2
    assert "did you mean 'german'?" in capsys.readouterr().err

import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from counterpath.experiments.bench import peers
from counterpath.experiments.bench.peers import (
    OURS,
    PEERS,
    Found,
    Standing,
    compare,
    frame,
    prepare_ours,
    prepare_revise,
)
from counterpath.experiments.study import Study
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import InputError, MissingExtraError
from counterpath.utils.files import write_json
from counterpath.utils.progress import Advance


def _silent(amount: int = 1, note: str = "") -> None:
    pass


def _nothing(study: Study):  # type: ignore[no-untyped-def]
    """A peer that fails on every row."""

    def find(factual: torch.Tensor, advance: Advance) -> Found:
        return Found(factual, torch.zeros(len(factual), dtype=torch.bool), {"gave up": len(factual)})

    return find


@pytest.fixture(scope="module")
def standings(study: Study) -> list[Standing]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(peers.PEERS, "revise", partial(prepare_revise, iterations=60))
        return compare(study, methods=(*OURS, "revise"), rows=20, limits={"revise": 8}, repeats=2, progress=False)


def test_ours_walk_all_rows_in_one_batch_towards_the_wanted_class(study: Study) -> None:
    factual = study.factual[:20]
    start = study.classifier.probability(study.vae.decode(study.vae.encode(factual)))
    for name in OURS:
        found = prepare_ours(study, name)(factual, _silent)
        end = study.classifier.probability(found.rows)
        assert bool(found.exists.all())
        assert bool((end >= start - 1e-6).all())  # a row whose decoded code is accepted already takes no step
        assert bool((end >= 0.5).any())


def test_the_figures_of_a_method_agree_with_each_other(standings: list[Standing]) -> None:
    assert [one.method for one in standings] == [*OURS, "revise"]
    assert [one.rows for one in standings] == [20, 20, 20, 8]
    for one in standings:
        assert 0 < one.valid <= one.found <= one.rows
        assert one.validity == one.valid / one.rows
        assert one.seconds_per_row * one.rows == pytest.approx(one.seconds)
        assert one.seconds_per_valid is not None
        assert one.seconds_per_valid * one.valid == pytest.approx(one.seconds)
        assert one.ratio == pytest.approx(one.seconds_per_valid / standings[0].seconds_per_valid)
    assert standings[0].ratio == 1
    assert [one.common is None for one in standings] == [False, False, False, True]
    assert len({one.common for one in standings[:3]}) == 1
    assert (standings[0].common or 0) <= min(one.valid for one in standings[:3])
    assert set(standings[3].common_distances.values()) == {None}


def test_validity_and_distances_are_those_of_the_legal_rows(study: Study, standings: list[Standing]) -> None:
    found = prepare_ours(study, "sgd")(study.factual[:20], _silent)
    case = study.case(found.rows, factual=study.factual[:20])
    valid = MEASURES["valid"](case) > 0
    (sgd,) = (one for one in standings if one.method == "sgd")
    assert sgd.valid == int(valid.sum())
    for name, value in sgd.distances.items():
        assert value == pytest.approx(float(MEASURES[name](case)[valid].mean()), rel=1e-5)


def test_a_method_that_finds_nothing_has_no_seconds_per_valid_row(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(peers.PEERS, "nothing", _nothing)
    ours, nothing = compare(study, methods=("sgd", "nothing"), rows=5, repeats=1, against="sgd", progress=False)
    assert (nothing.found, nothing.valid, nothing.seconds_per_valid, nothing.ratio) == (0, 0, None, None)
    assert set(nothing.distances.values()) == {None}
    assert ours.common == 0
    assert ours.valid > 0
    assert frame([ours, nothing])["failures"].tolist() == ["", "5 × gave up"]


def test_the_result_is_a_table_and_json(standings: list[Standing], tmp_path: Path) -> None:
    path = write_json(tmp_path / "peers.json", [asdict(one) for one in standings])
    assert json.loads(path.read_text(encoding="utf-8"))[0]["method"] == "rsgd"
    table = frame(standings)
    assert len(table) == len(standings)
    assert {"method", "validity", "seconds_per_valid", "ratio", "l1", "ld", "ld_sq", "ld_sq_common"} <= set(table)


def test_dice_stands_beside_ours(study: Study) -> None:
    pytest.importorskip("dice_ml", reason="dice-ml is not installed; the extra bench has it, and so has `make test`")
    names = ("rsgd", "dice-random", "dice-kdtree")
    standings = compare(study, methods=names, rows=4, limits={"dice-kdtree": 2}, repeats=1, progress=False)
    assert [(one.method, one.rows) for one in standings] == list(zip(names, (4, 4, 2), strict=True))
    # What the tree holds are training rows that the classifier accepts; DiCE moves them a little towards the factual.
    assert standings[2].validity == 1
    assert standings[2].distances["ld"] is not None
    assert standings[2].distances["ld"] < 0.1


def test_what_cannot_be_compared_is_said_before_anything_runs(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'rsgd'"):
        compare(study, methods=("rsg",))
    with pytest.raises(InputError, match="method to compare with"):
        compare(study, methods=("sgd",))
    with pytest.raises(InputError, match="at least 1"):
        compare(study, rows=0)
    with pytest.raises(InputError, match="no factuals"):
        compare(replace(study, factual=study.factual[:0]))
    monkeypatch.setitem(sys.modules, "dice_ml", None)
    monkeypatch.setitem(peers.PEERS, "rsgd", lambda study: lambda *given: pytest.fail("it ran"))
    with pytest.raises(MissingExtraError, match=r"counterpath\[bench\]"):
        compare(study, methods=tuple(PEERS))

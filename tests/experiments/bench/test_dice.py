import sys

import numpy as np
import pytest
import torch

from counterpath.experiments.bench.peers import DICE_METHODS, prepare_dice
from counterpath.experiments.study import Study
from counterpath.utils.errors import InputError, MissingExtraError
from counterpath.utils.progress import track

SHORT = {"gradient": {"min_iter": 30, "max_iter": 30, "posthoc_sparsity_param": None}}
"""DiCE's gradient method takes seconds a row by default."""


def _silent(amount: int = 1, note: str = "") -> None:
    pass


@pytest.fixture
def dice() -> None:
    pytest.importorskip("dice_ml", reason="dice-ml is not installed; the extra bench has it, and so has `make test`")


@pytest.mark.parametrize("method", DICE_METHODS)
@pytest.mark.usefixtures("dice")
def test_every_method_finds_rows_that_the_classifier_accepts(study: Study, method: str) -> None:
    find = prepare_dice(study, method, settings=SHORT.get(method))
    found = find(study.factual[:3], _silent)
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
    find = prepare_dice(study, "random", settings={"features_to_vary": []})
    found = find(study.factual[:2], lambda amount=1, note="": done.append(amount))
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
    find = prepare_dice(study, "random")
    with track("DiCE", 2, shown=True) as advance:
        find(study.factual[:2], advance)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert "it/s" not in shown.err  # that would be DiCE's own

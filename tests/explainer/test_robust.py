"""Answers that last: every method, constraints, what is refused, what is shown, and when answers expire."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import counterpath as cp
from counterpath import Explanation, StatusCode
from counterpath.cli import main
from counterpath.models.family import models_needed
from counterpath.search.methods import METHODS
from counterpath.search.stability import Stability
from counterpath.utils.errors import InputError, NotFittedError

from .asking import fit
from .conftest import shorten_surrogate

ASKED: dict[str, Any] = {"target_class": "yes"}
SMALL_FAMILY = {"size": 80, "held_out": 20}


@pytest.fixture(scope="module")
def lasting(fitted: cp.Explainer) -> cp.Explainer:
    """The explainer of loans with a family of its own."""
    mine = copy.copy(fitted)
    mine.progress = False
    return mine.fit_family(**SMALL_FAMILY)


@pytest.fixture(scope="module")
def rejected(fitted: cp.Explainer, loans: pd.DataFrame) -> pd.DataFrame:
    return loans[(fitted.predict(loans) == "no").to_numpy()].head(12).drop(columns="loan")


def _share(explainer: cp.Explainer, result: Explanation) -> np.ndarray[Any, Any]:
    """How many of the family's models accept what was returned, asked one by one."""
    members = explainer.models_.family.members
    x = explainer.encoder_.encode(result.counterfactuals)
    return (members.predict_proba(x)[..., 1] >= 0.5).double().mean(0).numpy()


def test_plain_answers_are_fragile_and_robust_ones_are_not(lasting: cp.Explainer, rejected: pd.DataFrame) -> None:
    plain, robust = lasting.explain(rejected, **ASKED), lasting.explain(rejected, **ASKED, robust=0.9)
    found = robust.status["status"].isin(["found", "implausible", "crosses_gap"]).to_numpy()
    assert found.mean() > 0.7
    assert _share(lasting, plain).mean() < 0.75
    assert (_share(lasting, robust)[found] >= 78 / 80).all()
    assert np.allclose(robust.status["share"], _share(lasting, robust))
    after = robust.measures()["valid_after"].to_numpy()
    assert after[found].mean() > 0.93 > plain.measures()["valid_after"].mean()
    assert (robust.measures()["l1"][found].to_numpy() >= plain.measures()["l1"][found].to_numpy() - 1e-6).all()


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.needs])
def test_every_method_returns_what_lasts_or_says_fragile(
    lasting: cp.Explainer, rejected: pd.DataFrame, method: str
) -> None:
    result = lasting.explain(rejected.head(5), **ASKED, robust=0.8, method=method, paths="end")
    status, share = result.status["status"], _share(lasting, result)
    found = status.isin(["found", "implausible", "crosses_gap"]).to_numpy()
    assert (share[found] >= 0.85).all()
    assert status.isin(["found", "implausible", "crosses_gap", "fragile", "not_found"]).all()
    weak = (status == StatusCode.FRAGILE).to_numpy()
    assert np.allclose(result.status["share"][weak], share[weak])


def test_constraints_and_plans_hold_beside(lasting: cp.Explainer, rejected: pd.DataFrame) -> None:
    few = rejected.head(4)
    asked: dict[str, Any] = {"lock": ["job"], "directions": {"age": "up"}, "rules": ["age up => income up"], "plans": 2}
    result = lasting.explain(few, **ASKED, robust=0.8, **asked)
    found = result.status["status"].isin(["found", "implausible", "crosses_gap"]).to_numpy()
    assert found.any()
    before, after = result.factuals[found], result.counterfactuals[found]
    assert (before["job"] == after["job"]).all()
    assert (after["age"] >= before["age"]).all()
    assert (after["income"] > before["income"])[after["age"] > before["age"]].all()
    assert (_share(lasting, result)[found] >= 0.85).all()


def test_what_cannot_last_is_fragile_and_says_which_share_accepts(
    lasting: cp.Explainer, rejected: pd.DataFrame
) -> None:
    narrow = lasting.explain(rejected, **ASKED, robust=0.9, lock=["age", "job", "owner"], confidence=0.5)
    weak = narrow.status["status"] == StatusCode.FRAGILE
    plain = lasting.explain(rejected, **ASKED, lock=["age", "job", "owner"], confidence=0.5)
    if not weak.any():  # with so much locked some have nothing that lasts, though the model accepts something
        capped = {"income": (None, float(plain.counterfactuals["income"].median()))}
        narrow = lasting.explain(rejected, **ASKED, robust=0.9, lock=["age", "job", "owner"], ranges=capped)
        weak = narrow.status["status"] == StatusCode.FRAGILE
    assert weak.any()
    row = narrow.status[weak].iloc[0]
    assert 0 <= row["share"] < 1
    assert "accept it" in row["reason"]
    assert narrow.valid[weak].all()
    assert "Nothing that lasts was found" in narrow.sentences[weak].iloc[0]


def test_a_higher_confidence_is_the_simpler_cure(lasting: cp.Explainer, rejected: pd.DataFrame) -> None:
    confidence = lasting.lasting_confidence(0.9, "yes")
    assert 0.5 < confidence < 1
    assert lasting.lasting_confidence(0.8, "yes") <= confidence
    surer, plain = (lasting.explain(rejected, **ASKED, confidence=each) for each in (confidence, None))
    assert surer.measures()["valid_after"].mean() > plain.measures()["valid_after"].mean() + 0.1


def test_noise_is_kept_in_the_search(fitted: cp.Explainer, rejected: pd.DataFrame) -> None:
    plain, steady = fitted.explain(rejected, **ASKED), fitted.explain(rejected, **ASKED, noise=0.95)
    found = steady.status["status"].isin(["found", "implausible", "crosses_gap"]).to_numpy()
    assert found.mean() > 0.7
    assert (steady.measures()["valid_noise"][found] >= 0.95).all()
    assert plain.measures()["valid_noise"].mean() < 0.9


def test_sentences_tables_and_files_say_how_many_retrained_models_accept(
    lasting: cp.Explainer, rejected: pd.DataFrame, tmp_path: Path
) -> None:
    result = lasting.explain(rejected.head(3), **ASKED)
    accepting, count = result.status["retrained"].iloc[0]
    assert count == 20
    assert f"still be accepted by {accepting} of 20 retrained models" in result.sentences.iloc[0]
    assert result.measures()["valid_after"].iloc[0] == pytest.approx(accepting / 20)
    assert {"valid_after", "valid_noise"} <= set(result.summary().columns)
    assert {"valid_after"} <= set(result.summary(by="sex").columns)
    back = Explanation.from_json(result.to_json())
    pd.testing.assert_frame_equal(back.status, result.status)
    result.to_parquet(tmp_path / "rows.parquet")
    assert "valid after" in Path(result.to_html(tmp_path / "report.html")).read_text()


def test_shared_plans_last_as_they_are_returned(fitted: cp.Explainer, loans: pd.DataFrame) -> None:
    small = copy.copy(fitted).fit_family(size=40, held_out=5)
    plans = small.shared_plans(loans, k=2, **ASKED, robust=0.9)
    before, after = (small.encoder_.encode(table) for table in (plans.factuals, plans.counterfactuals))
    agree = (small.models_.family.members.predict_proba(after)[..., 1] >= 0.5).sum(0)
    columns = small.encoder_.layout
    changes = sum((before[:, each] != after[:, each]).any(1).long() for each in columns)
    assert len(after) > 10
    assert (agree >= 39).all()
    assert models_needed(0.9, changes=int(changes.max())) <= 40


def test_without_a_family_nothing_is_said_of_it(fitted: cp.Explainer, rejected: pd.DataFrame) -> None:
    result = fitted.explain(rejected.head(2), **ASKED)
    assert result.status["share"].isna().all()
    assert not any(result.status["retrained"])
    assert "retrained" not in result.sentences.iloc[0]
    assert "valid_after" not in result.summary().columns


def test_our_own_family_comes_back_and_gives_the_same_answers(
    lasting: cp.Explainer, rejected: pd.DataFrame, tmp_path: Path
) -> None:
    lasting.save(tmp_path / "model")
    back = cp.load(tmp_path / "model", device="cpu")
    first, second = (each.explain(rejected.head(4), **ASKED, robust=0.9) for each in (lasting, back))
    pd.testing.assert_frame_equal(first.counterfactuals, second.counterfactuals)
    pd.testing.assert_frame_equal(first.status, second.status)
    again = back.repeat(first)
    pd.testing.assert_frame_equal(first.counterfactuals, again.counterfactuals)


def test_other_order_and_other_batch_give_the_same_answers(lasting: cp.Explainer, rejected: pd.DataFrame) -> None:
    whole = lasting.explain(rejected.head(6), **ASKED, robust=0.8)
    part = lasting.explain(rejected.head(6).iloc[[4, 1]], **ASKED, robust=0.8)
    pd.testing.assert_frame_equal(part.counterfactuals, whole.counterfactuals.loc[part.counterfactuals.index])


@pytest.mark.parametrize(("option", "value"), [("robust", 1), ("robust", 0), ("robust", True), ("noise", 1.5)])
def test_shares_that_make_no_sense_are_refused(fitted: cp.Explainer, rejected: pd.DataFrame, option: str, value: Any):
    with pytest.raises(InputError, match=f"{option} is a share of"):
        fitted.explain(rejected, **ASKED, **{option: value})


def test_a_family_too_small_for_a_share_says_how_many_it_takes(lasting: cp.Explainer, rejected: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"robust=0.95 asks too much of a family of 80 models .* at least 84 models"):
        lasting.explain(rejected, **ASKED, robust=0.95)


@pytest.mark.filterwarnings("ignore:The generative model")
def test_a_model_of_the_users_needs_to_say_how_it_is_trained(
    loans: pd.DataFrame, rejected: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_surrogate(monkeypatch, 200, 50)
    table = loans[["age", "income", "loan"]]

    class Logs(LogisticRegression):
        def fit(self, x: Any, y: Any) -> Any:
            return super().fit(np.log(x), y)

        def predict_proba(self, x: Any) -> Any:
            return super().predict_proba(np.log(x))

    model = Logs(max_iter=1000).fit(table[["age", "income"]], table["loan"])
    explainer = fit(table, "loan", model)
    rows = rejected[["age", "income"]].head(5)
    with pytest.raises(NotFittedError, match=r"fit_family\(alternatives=\[…\]\)"):
        explainer.explain(rows, **ASKED, robust=0.8)
    with pytest.raises(InputError, match="say how it is trained"):
        explainer.fit_family()
    explainer.fit_family(retrain=model, size=30, held_out=10)
    result = explainer.explain(rows, **ASKED, robust=0.8)
    found = result.status["status"].isin(["found", "implausible", "crosses_gap"])
    assert found.any()
    assert (result.status["share"][found] >= 0.9).all()
    forests = [
        RandomForestClassifier(5, random_state=seed).fit(table[["age", "income"]], table["loan"]) for seed in range(4)
    ]
    assert len(explainer.fit_family(alternatives=forests).models_.family) == 3


def test_recheck_says_what_holds_what_does_not_and_by_how_much(fitted: cp.Explainer, rejected: pd.DataFrame) -> None:
    result = fitted.explain(rejected, **ASKED)
    same = fitted.recheck(result)
    assert (same["answer"] == "holds").all()
    assert (same["lacks"] == 0).all()

    def stricter(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
        probability = fitted.predict_proba(frame)["yes"].to_numpy()
        return probability - 0.2 * (frame["sex"] == "f").to_numpy() * (probability > 0.2)

    now = fitted.recheck(result, model=stricter)
    women = (result.counterfactuals["sex"] == "f").to_numpy()
    assert women.any()
    assert not women.all()
    assert (now["answer"].to_numpy()[~women] == "holds").all()
    gone = (now["answer"] == "expired").to_numpy()
    assert gone[women].any()
    assert now["lacks"][gone].tolist() == pytest.approx((0.5 - now["now"][gone]).tolist())
    assert (now["decided"][gone] == "no").all()
    assert (fitted.recheck(result, model=fitted)["answer"] == "holds").all()
    with pytest.raises(InputError, match="has the classes"):
        fitted.recheck(result, model=lambda frame: np.full((len(frame), 3), 1 / 3))


def test_recheck_from_the_command_line(
    fitted: cp.Explainer,
    rejected: pd.DataFrame,
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = fitted.explain(rejected, **ASKED)
    result.to_json(tmp_path / "then.json")
    arguments = ["recheck", str(model_folder), str(tmp_path / "then.json"), "--out", str(tmp_path / "now.csv")]
    assert main(arguments) == 0
    assert "12 of 12 answers still hold" in capsys.readouterr().out
    assert list(pd.read_csv(tmp_path / "now.csv")["answer"]) == ["holds"] * 12
    rejected.to_csv(tmp_path / "rows.csv", index=False)
    batch = ["batch", str(model_folder), str(tmp_path / "rows.csv"), str(tmp_path / "out"), "--target-class", "yes"]
    assert main([*batch, "--workers", "1", "--device", "cpu", "--noise", "0.5"]) == 0
    capsys.readouterr()
    assert main(["recheck", str(model_folder), str(tmp_path / "out")]) == 0
    assert "answers still hold" in capsys.readouterr().out
    assert main(["recheck", str(model_folder), str(tmp_path / "rows.csv")]) == 2


def test_a_family_for_single_changes_alone_is_asked_about_nothing_else(
    fitted: cp.Explainer, rejected: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = copy.copy(fitted).fit_family(size=40, held_out=5)
    assert models_needed(0.9) <= 40 < models_needed(0.9, changes=2)
    limits: list[int | None] = []
    problem = type(small.models_).problem

    def noted(*arguments: Any) -> Any:
        limits.append(arguments[5] if len(arguments) > 5 else None)
        return problem(*arguments)

    monkeypatch.setattr(type(small.models_), "problem", noted)
    result = small.explain(rejected, **ASKED, robust=0.9)
    found = result.status["status"].isin(["found", "implausible", "crosses_gap"]).to_numpy()
    weak = (result.status["status"] == StatusCode.FRAGILE).to_numpy()
    assert limits[0] == 1
    assert found.any()
    assert (found | weak).all()
    assert (result.measures()["l0"][found] == 1).all()
    assert (_share(small, result)[found] == 1).all()
    assert np.allclose(result.status["share"][weak], _share(small, result)[weak])
    monkeypatch.setattr(Stability, "one_change", False)  # what is searched for otherwise, and takes longer
    wide = small.explain(rejected, **ASKED, robust=0.9)
    theirs = wide.status["status"].isin(["found", "implausible", "crosses_gap"]).to_numpy()
    assert not (theirs & ~found).any()  # nothing is missed, and some are found that are missed there
    both = theirs & found
    costs, others = (each.measures()["l1"].to_numpy()[both] for each in (result, wide))
    assert np.allclose(costs, others, rtol=0.02)

"""Plans that many people share, from a table to what each of them becomes."""

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath.explanation.shared import SharedPlans


@pytest.fixture(scope="module")
def shared(fitted: cp.Explainer, loans: pd.DataFrame) -> SharedPlans:
    return fitted.shared_plans(loans, k=3, by="sex", target_class="yes")


def test_everybody_who_is_served_gets_the_outcome_and_keeps_what_is_fixed(
    shared: SharedPlans, fitted: cp.Explainer
) -> None:
    assert shared.coverage > 0.5
    assert (fitted.predict(shared.counterfactuals) == "yes").all()
    assert (shared.counterfactuals["sex"] == shared.factuals["sex"]).all()
    served = shared.people["plan"].notna()
    assert shared.people.index[served].tolist() == shared.factuals.index.tolist()
    assert served.mean() == pytest.approx(shared.coverage)


def test_each_changes_only_what_the_plan_names_and_no_farther(shared: SharedPlans) -> None:
    plan = shared.people["plan"].dropna().astype(int)
    for number in range(1, len(shared) + 1):
        named = shared.changes[shared.changes["plan"] == number].set_index("feature")
        rows = plan.index[plan == number]
        old, new = shared.factuals.loc[rows], shared.counterfactuals.loc[rows]
        for name in old:
            if name not in named.index:
                assert (old[name] == new[name]).all()
            elif named.loc[name, "change"] == "at least":
                assert (new[name] <= np.maximum(old[name], named.loc[name, "value"])).all()
                assert (new[name] >= old[name]).all()
            elif named.loc[name, "change"] == "by":
                assert ((new[name] - old[name]).abs() <= abs(named.loc[name, "value"]) * 1.001 + 1e-6).all()


def test_the_plan_that_is_taken_is_the_cheapest(shared: SharedPlans) -> None:
    costs = shared.people[[f"plan {number}" for number in range(1, len(shared) + 1)]]
    served = costs.notna().any(axis=1)
    assert np.allclose(costs[served].min(axis=1), shared.people["cost"][served])


def test_more_plans_serve_no_fewer_and_are_good_for_certain(shared: SharedPlans) -> None:
    assert shared.curve["coverage"].is_monotonic_increasing
    assert shared.curve["of the best"].between(1 - 1 / np.e, 1 + 1e-9).all()


def test_groups_are_served_no_better_by_the_shared_plans_than_their_worth(shared: SharedPlans) -> None:
    assert shared.groups is not None
    assert shared.groups["n"].sum() == len(shared.people)
    assert shared.groups.index.tolist() == ["f", "m"]


def test_an_explanation_gives_its_own_plans(fitted: cp.Explainer, loans: pd.DataFrame) -> None:
    result = fitted.explain(loans.head(60), "yes", paths="end", lock=["age"])
    found = fitted.shared_plans(result, k=2)
    assert "age" not in set(found.changes["feature"])
    assert found.request["lock"] == ["age"]
    with pytest.raises(cp.InputError, match="leave out lock"):
        fitted.shared_plans(result, lock=["age"])


def test_rules_and_directions_hold_for_everybody_after_their_plan(fitted: cp.Explainer, loans: pd.DataFrame) -> None:
    rejected = loans[(fitted.predict(loans) == "no").to_numpy()].drop(columns="loan")
    rule = "age up => income up"
    found = fitted.shared_plans(rejected, k=3, target_class="yes", rules=[rule], directions={"age": "up"})
    old, new = found.factuals, found.counterfactuals
    assert len(new) > 20
    assert not ((new["age"] > old["age"]) & ~(new["income"] > old["income"])).any()
    assert (new["age"] >= old["age"]).all()


@pytest.mark.parametrize("share", [0.2, 0.95])
def test_nobody_ends_farther_from_the_data_than_asked_or_than_they_are(
    fitted: cp.Explainer, loans: pd.DataFrame, share: float
) -> None:
    rejected = loans[(fitted.predict(loans) == "no").to_numpy()].drop(columns="loan")
    found = fitted.shared_plans(rejected, k=3, target_class="yes", plausibility=share)
    nearest, encode = fitted.models_.plausibility, fitted.encoder_.encode
    before, after = (nearest.distance(encode(each)) for each in (found.factuals, found.counterfactuals))
    assert len(after) > 5
    assert (after <= before.clamp_min(nearest.at(share)) + 1e-5).all()
    assert (after > before).any()


def test_what_is_asked_must_make_sense(fitted: cp.Explainer, loans: pd.DataFrame) -> None:
    with pytest.raises(cp.InputError, match="k is 0"):
        fitted.shared_plans(loans, k=0)


def test_sentences_and_report(shared: SharedPlans, tmp_path) -> None:
    assert shared.sentences.iloc[0].startswith("Plan 1: ")
    page = shared.to_html(tmp_path / "plans.html").read_text(encoding="utf-8")
    assert "63 %" in page
    assert "<script" not in page

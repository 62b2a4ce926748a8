"""Differences between groups: their tests on made-up burdens, and in words."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, ttest_ind

import counterpath as cp
from counterpath.explanation.audit import (
    Audit,
    _words,
    audit,
    benjamini_hochberg,
    bootstrap_interval,
    holm,
    permutation_test,
)
from counterpath.explanation.matching import match_pairs, numbers_of

SCHEMA = cp.Schema.infer(
    pd.DataFrame(
        {"sex": ["f", "m"] * 40, "region": ["n", "s", "e", "w"] * 20, "age": np.arange(80), "pay": np.arange(80.0) / 7}
    )
)


def people(count: int, seed: int, shift: float = 0.0, where: str = "sex") -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], count),
            "region": rng.choice(list("nesw"), count),
            "age": rng.integers(18, 80, count),
            "pay": rng.normal(10, 2, count),
        }
    )
    hit = (table["sex"] == "f") & ((table["region"] == "s") if where == "both" else True)
    cost = rng.gamma(4, 0.25, count) + shift * hit
    found = rng.random(count) < 0.95
    burden = pd.DataFrame({"found": found.astype(float), "l1": np.where(found, cost, np.nan)})
    return table, burden


def quick(table: pd.DataFrame, burden: pd.DataFrame, **options: object) -> Audit:
    return audit(table, burden, options.pop("by", ["sex"]), SCHEMA, permutations=999, resamples=200, **options)


def test_the_permutation_test_agrees_with_welch_on_plain_samples() -> None:
    rng = np.random.default_rng(0)
    values, member = rng.normal(size=(400, 1)), rng.random(400) < 0.4
    values[member] += 0.2
    p = permutation_test(values, member, 4999, rng)[0]
    assert p == pytest.approx(ttest_ind(values[member, 0], values[~member, 0], equal_var=False).pvalue, abs=0.02)


def test_missing_values_count_in_neither_group() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 1))
    member = np.arange(300) < 150
    values[:20] = np.nan
    low, high = bootstrap_interval(values, member, 500, rng)
    difference = np.nanmean(values[member]) - values[~member].mean()
    assert low[0] < difference < high[0]
    assert 0 < permutation_test(values, member, 199, rng)[0] <= 1


def test_corrections_are_those_of_the_books() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))


def test_a_planted_difference_is_shown_and_none_where_there_is_none() -> None:
    shown = quick(*people(600, 1, shift=0.3)).shown
    assert "l1" in set(shown["measure"])
    alarms = [len(quick(*people(200, seed)).shown) > 0 for seed in range(2, 22)]
    assert np.mean(alarms) <= 0.2  # at 5 %: more than four of twenty has a probability of 0.3 %


def test_words_say_what_was_tested_and_no_more() -> None:
    text = repr(quick(*people(600, 1, shift=0.3)))
    assert "worse off" in text or "better off" in text
    assert "after Holm's correction over 3" in text
    quiet = repr(quick(*people(200, 3)))
    assert "no difference was shown" in quiet
    assert "not to say that there is none" in quiet


def test_all_that_was_shown_comes_first() -> None:
    table, burden = people(600, 2)
    burden["l0"] = 1.0 + (table["sex"] == "f") * (np.random.default_rng(0).random(600) < 0.5)
    found = quick(table, burden)
    assert found.shown["measure"].tolist() == ["l0"]
    assert "features changed is" in found.findings[0]
    assert all("features changed" not in text for text in found.findings[1:])
    line = found.differences.set_index("measure").loc["l0"]
    if line["pairs"] >= 20:
        assert f"{line['matched_p']:.3f}" in found.findings[0] or "p under 0.001" in found.findings[0]


def test_pairs_take_away_what_another_feature_explains() -> None:
    table, burden = people(1500, 4)
    table["pay"] += 3.0 * (table["sex"] == "f") * (np.random.default_rng(0).random(1500) < 0.7)
    burden["l1"] += 0.2 * (table["pay"] - 10)  # by pay alone, which differs by sex
    line = quick(table, burden).differences.set_index("measure").loc["l1"]
    assert line["p_holm"] < 0.05
    assert abs(line["matched"]) < abs(line["difference"]) / 2


def test_nobody_is_in_two_pairs_and_all_are_near() -> None:
    rng = np.random.default_rng(0)
    numbers, member = rng.normal(size=(200, 2)), rng.random(200) < 0.4
    one, other = match_pairs(numbers, member, rng)
    assert len(set(one)) == len(one)
    assert len(set(other)) == len(other)
    assert member[one].all()
    assert not member[other].any()


def test_the_tree_finds_a_group_of_two_conditions() -> None:
    table, burden = people(2000, 5, shift=0.8, where="both")
    found = quick(table, burden, by=[], find=["sex", "region"]).found
    worse = found[(found["measure"] == "l1") & (found["p_holm"] < 0.05) & (found["difference"] > 0)]
    assert [set(text.split(" and ")) for text in worse["group"]] == [{"sex is f", "region is s"}]


def test_equal_effort_and_what_would_close_the_gap() -> None:
    got = quick(*people(800, 6, shift=0.5))
    share = got.effort.pivot_table(index="effort", columns="group", values="share")
    assert (share["f"] <= share["m"] + 0.05).all()
    line = got.closing.iloc[0]
    assert abs(line["difference"]) > 0.2


def test_the_report_and_the_json_have_it_all(tmp_path: Path) -> None:
    got = quick(*people(300, 7, shift=0.4), by=["sex", "region", ("sex", "region")])
    page = got.to_html(tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "proves no" in page
    assert "<script" not in page
    assert "sex × region" in page
    assert '"differences"' in got.to_json(tmp_path / "audit.json").read_text(encoding="utf-8")


def test_small_groups_are_not_compared() -> None:
    table, burden = people(100, 8)
    table["sex"] = ["f"] * 10 + ["m"] * 90
    assert len(quick(table, burden).differences) == 0


def test_dates_as_text_are_compared_in_their_own_format_and_said_as_dates() -> None:
    """03.12. is in December: read as March, neighbours and groups would be wrong, and without a word."""
    schema = cp.Schema((cp.Feature("opened", "date", format="%d.%m.%Y", missing=True),))
    rows = pd.DataFrame({"opened": ["03.12.2025", "04.12.2025", None, "13.12.2025"]})
    days = numbers_of(rows, schema, scaled=False)[:, 0]
    assert np.isnan(days[2])
    assert (days[[1, 3]] - days[0]).tolist() == [1, 10]
    assert _words([(0, days[0], True), (0, days[1], False)], [(schema["opened"], None)]) == [
        "opened is over 2025-12-03 and up to 2025-12-04"
    ]

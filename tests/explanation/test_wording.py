import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpath.data import Feature
from counterpath.data.status import BindingConstraint, Cause, Status
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.wording import (
    Change,
    Person,
    Row,
    amount,
    binding_text,
    change,
    condition,
    counted,
    group_by_person,
    grouped,
    legal,
    listed,
    percent,
    probability,
    reason,
    rounded,
    shown,
    value,
)
from counterpath.search.measures import MEASURES
from tests.explanation.conftest import make, make_plans

KINDS = ("immutable", "lock", "not_actionable", "up", "down", "range", "max_changes")
ROW = Row(
    label="7",
    status=StatusCode.NOT_FOUND,
    reason="Because.",
    before="0",
    after="0",
    p_before=0.05,
    p_after=0.41,
    changes=(Change("age", "39", "40"),),
    target="1",
    confidence=0.5,
)


def test_sentences_say_what_would_have_to_change(explanation: Explanation) -> None:
    found, already, fell, missed, unknown = explanation.sentences
    assert found == (
        "The model predicts 0 (17 % for 1). It would predict 1 (52 %) if education-num were 11.4 instead of 9, "
        "hours-per-week were 46.2345678 instead of 40, and marital-status were Married instead of Non-Married."
    )
    assert already == "The model already predicts 1 (83 %): nothing has to change."
    assert "if hours-per-week were 36 instead of 40 and owner were True instead of False." in fell
    assert missed == (
        "The model predicts 0 (5 % for 1). No counterfactual was found: the closest came to 41 %, "
        "where 50 % was asked, if hours-per-week were 60 instead of 38.5."
    )
    assert unknown.startswith("This row is not explained. marital-status is 'Complicated'")


def test_any_other_outcome_reads_well() -> None:
    made = make(target="other")
    assert made.sentences.iloc[0].startswith(
        "The model predicts 0 (83 %). It would predict 1 (52 % for another outcome)"
    )
    assert "wanted another outcome" in str(made)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"status": StatusCode.OUT_OF_TIME},
            "The time ran out before a counterfactual was found: the closest came to 41 %",
        ),
        ({"binding": "sex is locked"}, "40 instead of 39. What stands in the way: sex is locked."),
        ({"status": StatusCode.OUT_OF_TIME, "binding": "x is locked"}, "of 39. What stands in the way: x is locked."),
        ({"changes": ()}, "nothing that was tried came closer than the row itself."),
        ({"p_after": 0.4996}, "came to 49.96 %, where 50.00 % was asked"),
        ({"p_after": 0.55, "after": "2"}, "came to 55 %, but the model predicts 2 there"),
        ({"status": StatusCode.FOUND, "changes": ()}, "after changes too small to list."),
        (
            {"status": StatusCode.CROSSES_GAP, "p_after": 0.6, "after": "1"},
            "It would predict 1 (60 %) if age were 40 instead of 39. But no chain of people leads there: the path",
        ),
    ],
)
def test_rare_cases_read_well_too(changes: dict[str, object], expected: str) -> None:
    assert expected in dataclasses.replace(ROW, **changes).sentence


LOCK, UP = BindingConstraint("lock", "sex", 0.75), BindingConstraint("up", "age", 0.6)
FEW = BindingConstraint("max_changes", "1", 0.55)
MISSED = Status(StatusCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("status", "probability_after", "expected"),
    [
        (Status(StatusCode.FOUND), 0.6, StatusCode.FOUND.text),
        (Status(StatusCode.CROSSES_GAP), 0.6, StatusCode.CROSSES_GAP.text),
        (Status(StatusCode.FOUND, fallback=True), 0.6, "The local search got stuck; this path leads straight"),
        (
            Status(StatusCode.UNKNOWN_CATEGORY, detail="job is 'elf'."),
            np.nan,
            "never seen in training, or no value at all, so it is",
        ),
        (Status(StatusCode.UNKNOWN_CATEGORY, detail="job is 'elf'."), np.nan, "with rows that have it. job is 'elf'."),
        (MISSED, 0.4, StatusCode.NOT_FOUND.text),
        (Status(StatusCode.NOT_FOUND, Cause.STEPS), 0.4, "No point within the allowed steps has the asked confidence."),
        (Status(StatusCode.NOT_FOUND, Cause.INVALID, detail="It is empty."), 0.4, "be a counterfactual. It is empty."),
        (
            Status(StatusCode.NOT_FOUND, Cause.STEPS, binding=(LOCK,)),
            0.41,
            "Within what may change the search came to a probability of 41 %, where 50 % was asked. "
            "In the way: sex is locked (would reach 75 % if unlocked).",
        ),
        (
            Status(StatusCode.NOT_FOUND, binding=(LOCK,)),
            0.55,
            "came to a probability of 55 %, but another class is more probable there. In the way: sex is locked",
        ),
        (
            Status(StatusCode.NOT_FOUND, Cause.NO_TRAINING_ROW, binding=(UP, FEW)),
            0.1,
            "with the asked confidence. In the way: age may only go up (would reach 60 % if it could go down); only "
            "one feature may change (would reach 55 % with more changes).",
        ),
        (
            Status(StatusCode.OUT_OF_TIME, binding=(LOCK, UP, BindingConstraint("max_changes", "3", 1.0), FEW, LOCK)),
            0.4999,
            "49.99 %, where 50.00 % was asked. In the way: sex is locked (would reach 75 % if unlocked); age may only "
            "go up (would reach 60 % if it could go down); at most 3 features may change (would reach 100 % with more "
            "changes); and 2 more.",
        ),
    ],
)
def test_a_reason_says_what_became_of_a_row_and_what_stands_in_the_way(
    status: Status, probability_after: float, expected: str
) -> None:
    assert expected in reason(status, probability_after, confidence=0.5)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_sentence(cause: Cause) -> None:
    text = reason(Status(StatusCode.NOT_FOUND, cause), 0.4, 0.5)
    assert text.endswith(".")
    assert (text == StatusCode.NOT_FOUND.text) == (cause is Cause.NONE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_constraint_reads_well_and_has_a_short_form(kind: str) -> None:
    constraint = BindingConstraint(kind, "2", 0.75)
    assert re.search(
        r"In the way: .*\b2\b.* \(would reach 75 % \w+.*\)",
        reason(Status(StatusCode.NOT_FOUND, binding=(constraint,)), 0.1, 0.5),
    )
    assert binding_text([constraint.to_json(), LOCK.to_json()]) == f"{kind}: 2; lock: sex"
    assert binding_text([]) == ""


def test_a_line_says_what_stands_in_the_way() -> None:
    (line,) = Person((dataclasses.replace(ROW, binding="sex is locked"),)).lines
    assert line == "7: not_found p 0.05 → 0.41 | age 39 → 40 | in the way: sex is locked"


def test_a_line_with_many_changes_is_cut() -> None:
    many = tuple(Change(f"f{number}", "0", "1") for number in range(9))
    assert dataclasses.replace(ROW, changes=many).brief.endswith("f5 0 → 1; and 3 more")


@pytest.mark.parametrize(
    ("given_value", "text"),
    [
        (9.0, "9"),
        (np.int64(12), "12"),
        (46.2345678, "46.2345678"),
        (np.float32(46.2345678), "46.23457"),
        (12345.6, "12345.6"),
        (1234567.0, "1234567"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.00012345, "0.00012345"),
        (1e-9, "1e-09"),
        (2.5e20, "2.5e+20"),
        (-0.5, "-0.5"),
        (True, "True"),
        (np.bool_(False), "False"),
        ("a b", "a b"),
        (None, "–"),
        (float("nan"), "–"),
        (pd.NA, "–"),
        (float("inf"), "inf"),
        (10**20, "1" + "0" * 20),
    ],
)
def test_values_read_as_people_write_them(given_value: object, text: str) -> None:
    assert value(given_value) == text


@given(st.floats(allow_nan=False))
def test_a_number_that_is_shown_can_be_typed_in_again(number: float) -> None:
    assert float(value(number)) == number
    assert "." not in value(number) or not value(number).endswith(".0")


@given(st.floats(allow_nan=False, width=32))
def test_so_can_one_of_single_precision(number: float) -> None:
    assert np.float32(value(np.float32(number))) == np.float32(number)


def test_measures_are_rounded() -> None:
    assert [rounded(each) for each in (0.123456, 12.0, 12345.6, np.float64(1.5), 7)] == [
        "0.123",
        "12",
        "12346",
        "1.5",
        "7",
    ]
    assert [rounded(each) for each in (float("nan"), float("inf"), None)] == ["–", "inf", "–"]


HOURS = Feature("hpw", "integer", label="hours per week", unit="hours")
WORK = dataclasses.replace(HOURS, phrase="you worked {new} instead of {old} hours a week")
DEGREE = Feature(
    "edu",
    "ordinal",
    categories=(9, 13),
    phrase="you had {new}",
    category_labels={"9": "school", "13": "a Bachelor's degree"},
)
OWNER = Feature(
    "own", "boolean", label="home owner", unit="never shown", category_labels={"True": "yes", "False": "no"}
)


@pytest.mark.parametrize(
    ("feature", "old", "new", "clause", "entry"),
    [
        (Feature("x", "continuous"), 1.0, 2.5, "x were 2.5 instead of 1", "x: 1 → 2.5"),
        (HOURS, 20, 45, "hours per week were 45 instead of 20 hours", "hours per week: 20 → 45 hours"),
        (WORK, 20, 45, "you worked 45 instead of 20 hours a week", "hours per week: 20 → 45 hours"),
        (DEGREE, 9, np.int64(13), "you had a Bachelor's degree", "edu: school → a Bachelor's degree"),
        (OWNER, np.bool_(False), True, "home owner were yes instead of no", "home owner: no → yes"),
        (
            dataclasses.replace(WORK, phrase="{new}{x}{old}%"),
            "{old}",
            4,
            "4{x}{old}%",
            "hours per week: {old} → 4 hours",
        ),
    ],
)
def test_a_change_reads_as_people_say_it(feature: Feature, old: object, new: object, clause: str, entry: str) -> None:
    described = change(feature, old, new)
    assert (described.clause, described.entry, described.feature) == (clause, entry, feature.name)


def test_who_is_meant_is_said_once() -> None:
    said = condition(["you worked 45 hours", "you had a degree", "pay were 5", "you moved"])
    assert said == "you worked 45 hours, had a degree, pay were 5, and you moved"
    assert condition([]) == ""


def test_a_hint_says_which_numbers_may_be() -> None:
    bounded = Feature("x", "continuous", lower=0, upper=100)
    assert legal(Feature("x", "continuous"), 3.5, 9.0) == "Training range 3.5–9"
    assert legal(bounded, 0.0, 100.0) == "0–100"
    assert legal(dataclasses.replace(bounded, step=0.5), 0.0, 100.0) == "0–100 in steps of 0.5"


def test_long_numbers_have_separators_of_thousands_and_years_none() -> None:
    assert grouped("99999") == "99,999"
    assert grouped("from 1234567.5 to -20000 in 2013-08-14") == "from 1,234,567.5 to -20,000 in 2013-08-14"
    assert grouped("2013, A12345, 1e20, 0.123456") == "2013, A12345, 1e20, 0.123456"
    gain = Feature("gain", "integer", unit="dollars")
    assert amount(gain, 15024) == "15,024 dollars"
    assert change(gain, 0, 15024).entry == "gain: 0 → 15,024 dollars"


def test_a_category_without_a_label_is_itself() -> None:
    assert [shown(DEGREE, each) for each in (9, 13.0, 10, None)] == ["school", "13", "10", "–"]


@pytest.mark.parametrize(
    ("changes", "now", "then"),
    [
        ({"classes": 2}, "The model predicts 0 (95 %).", "It would predict 1 (60 %) if"),
        ({"classes": 3}, "The model predicts 0 (5 % for 1).", "It would predict 1 (60 %) if"),
        ({"classes": 3, "target": "other"}, "The model predicts 0 (95 %).", "predict 1 (60 % for another outcome) if"),
        ({"classes": 2, "target": "other"}, "The model predicts 0 (95 %).", "It would predict 1 (60 %) if"),
        (
            {"before": "1", "p_before": 0.55, "p_after": 0.999, "confidence": 0.9},
            "The model predicts 1 already (55 %).",
            "It would be surer (over 99 %) if",
        ),
    ],
)
def test_a_percentage_is_of_the_class_that_stands_before_it(changes: dict[str, object], now: str, then: str) -> None:
    row = dataclasses.replace(dataclasses.replace(ROW, status=StatusCode.FOUND, p_after=0.6, after="1"), **changes)
    assert row.now == now
    assert then in row.claim


@pytest.mark.parametrize(
    ("given_value", "text"),
    [(0.0, "0.00"), (0.001, "<0.01"), (0.5, "0.50"), (0.999, ">0.99"), (1.0, "1.00"), (float("nan"), "–")],
)
def test_a_probability_is_only_0_or_1_if_it_is(given_value: float, text: str) -> None:
    assert probability(given_value) == text


def test_lists_counts_and_shares() -> None:
    assert [counted(number, "person", "people") for number in (0, 1, 2)] == ["0 people", "1 person", "2 people"]
    assert counted(2, "row") == "2 rows"
    assert [listed(list("abc")[:count]) for count in range(4)] == ["", "a", "a and b", "a, b, and c"]
    assert [percent(0.666), percent(float("nan"))] == ["67 %", "–"]
    assert [percent(share) for share in (0.0, 0.001, 0.995, 1.0)] == ["0 %", "under 1 %", "over 99 %", "100 %"]


FOUND = dataclasses.replace(ROW, status=StatusCode.FOUND, p_after=0.6, after="1", plans=4)
NONE = dataclasses.replace(ROW, status=StatusCode.NO_OTHER_PLAN, changes=(), p_after=0.05, plans=4)


def person(*rows: StatusCode) -> Person:
    kinds = {StatusCode.FOUND: FOUND, StatusCode.NO_OTHER_PLAN: NONE}
    numbered = (
        dataclasses.replace(kinds.get(status, FOUND), status=status, plan=number)
        for number, status in enumerate(rows, start=1)
    )
    return Person(tuple(numbered))


def test_rows_are_gathered_by_person() -> None:
    people = group_by_person([FOUND, NONE, FOUND], [0, 0, 3])
    assert [each.rows for each in people] == [(FOUND, NONE), (FOUND,)]


@pytest.mark.parametrize(
    ("statuses", "result", "shown", "missing"),
    [
        (["found"] * 4, "4 plans found", [1, 2, 3, 4], []),
        (["found", "found", "no_other_plan", "no_other_plan"], "2 of 4 plans found", [1, 2], [3, 4]),
        (["found", "out_of_time", "out_of_time"], "1 of 3 plans found", [1, 2, 3], []),
        (["found"], "1 plan found", [1], []),
        (["found", "crosses_gap", "no_other_plan"], "2 of 3 plans found, 1 of them across a gap", [1, 2], [3]),
        (["crosses_gap", "not_found"], "1 of 2 plans found, 1 of them across a gap", [1, 2], []),
        (["already", "no_other_plan"], "already", [1], []),
        (["unknown_category", "unknown_category"], "unknown category", [1], []),
        (["not_found", "no_other_plan"], "not found", [1], []),
        (["no_other_plan"], "no other plan", [1], []),
    ],
)
def test_only_what_is_new_is_shown(statuses: list[str], result: str, shown: list[int], missing: list[int]) -> None:
    made = person(*map(StatusCode, statuses))
    assert made.result == result
    assert [row.plan for row in made.shown] == shown
    assert [row.plan for row in made.missing] == missing


def test_missing_plans_share_a_line() -> None:
    lines = person(StatusCode.FOUND, *[StatusCode.NO_OTHER_PLAN] * 3).lines
    assert lines == [
        "7, plan 1 of 4: found p 0.05 → 0.60 | age 39 → 40",
        "   plans 2, 3, and 4 of 4: no_other_plan",
    ]


def test_steps_stand_below_the_plan_they_belong_to(plans: Explanation) -> None:
    lines = plans.to_text(steps=True).splitlines()
    assert [line.split(" |")[0] for line in lines[1:6]] == [
        "ann, plan 1 of 3: found p 0.17 → 0.52",
        "       1. education-num: 9 → 9.96; hours-per-week: 40 → 42.49382712 (p 0.31)",
        "       2. education-num: 9.96 → 10.44; hours-per-week: 42.49382712 → 43.74074068; marital-status: "
        "Non-Married → Married (p 0.38)",
        "       3. education-num: 10.44 → 11.4; hours-per-week: 43.74074068 → 46.2345678 (p 0.52)",
        "     plan 2 of 3: found p 0.17 → 0.52",
    ]
    assert [line for line in lines if not line.startswith("       ")] == str(plans).splitlines()


def test_a_persons_plans_are_together_in_a_terminal(plans: Explanation) -> None:
    header, *lines = str(plans).splitlines()
    assert header == (
        "Explanation of 5 people, up to 3 plans each: 5 plans found for 2 people, 1 fewer than asked for; 1 already, "
        "1 not found, 1 unknown category (method rsgd-c, wanted 1, confidence 0.5)"
    )
    assert [line.split(" |")[0] for line in lines] == [
        "ann, plan 1 of 3: found p 0.17 → 0.52",
        "     plan 2 of 3: found p 0.17 → 0.52",
        "     plan 3 of 3: found p 0.17 → 0.52",
        "cem, plan 1 of 3: found p 0.30 → 0.61",
        "     plan 2 of 3: found p 0.30 → 0.61",
        "     plan 3 of 3: no_other_plan",
        "dee: not_found p 0.05 → 0.41",
        "… and 2 more",
    ]
    missed = str(plans.select("dee")).splitlines()[1]
    assert missed.endswith("| hours-per-week 38.5 → 60 | in the way: age is locked; hours-per-week may only go up")


def test_a_person_is_not_cut_in_two_even_if_there_are_more_plans_than_lines() -> None:
    lines = str(make_plans(plans=14)).splitlines()
    assert len(lines) == 1 + 14 + 1
    assert lines[-1] == "… and 4 more"


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ("ann", "1 person, up to 3 plans each: 3 plans found for 1 person ("),
        (["bob", "dee"], "2 people, up to 3 plans each: 0 plans found; 1 already, 1 not found ("),
        (("cem", 3), "1 person, up to 3 plans each: 0 plans found; 1 no other plan ("),
        (("cem", 1), "1 person, up to 3 plans each: 1 plan found for 1 person ("),
        ([("ann", 1), ("cem", 1), ("ann", 2)], "2 people, up to 3 plans each: 3 plans found for 2 people ("),
    ],
)
def test_the_headline_counts_people_and_plans(plans: Explanation, rows: object, counts: str) -> None:
    assert str(plans.select(rows)).startswith(f"Explanation of {counts}")


def test_the_headline_says_how_many_plans_cross_a_gap(plans: Explanation) -> None:
    status = plans.status.copy()
    status.loc[[("ann", 2), ("cem", 2)], "status"] = str(StatusCode.CROSSES_GAP)
    across = "5 plans found for 2 people (2 of them across a gap in the data), 1 fewer than asked for"
    assert f"{across}; 1 already, 1 not found" in str(make_plans(status=status))


def test_sentences_say_which_plan_they_are(plans: Explanation) -> None:
    sentences = plans.sentences
    assert sentences[("ann", 2)].startswith(
        "Plan 2 of 3: The model predicts 0 (17 % for 1). It would predict 1 (52 %) if"
    )
    assert sentences[("cem", 3)] == "Plan 3 of 3: No further plan that differs from the ones before was found."
    assert sentences[("bob", 1)] == "The model already predicts 1 (83 %): nothing has to change."
    assert sentences[("dee", 1)].startswith("The model predicts 0 (5 % for 1). No counterfactual was found")
    assert sentences[("dee", 1)].endswith("What stands in the way: age is locked; hours-per-week may only go up.")
    assert sentences[("eva", 1)].startswith("This row is not explained.")


def test_people_with_equal_labels_are_not_mixed_up() -> None:
    lines = str(make_plans(labels=["a"] * 5, plans=2)).splitlines()
    assert lines[0].startswith("Explanation of 5 people, up to 2 plans each: 3 plans found for 2 people")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "a, plan 1 of 2",
        "   plan 2 of 2",
        "a, plan 1 of 2",
        "   plan 2 of 2",
        "a",
        "a",
        "a",
    ]


def test_units_name_what_counts_on_a_log_scale() -> None:
    plain = make().schema
    logs = plain.replace("hours-per-week", transform="log1p", label="Hours")
    assert "log" not in " ".join(wording.units(plain).values())
    assert wording.units(logs)["l1"] == "1 is the whole range of one feature, or another category; Hours on a log scale"
    assert wording.units(logs)["l1_mad"] == wording.units(plain)["l1_mad"]
    assert wording.meanings(logs)["ld"].text.endswith("; Hours on a log scale")
    assert make(schema=logs).units()["ld_sq"].endswith("Hours on a log scale")
    assert set(MEASURES) <= set(wording.UNITS)


def test_who_has_the_decision_already_would_be_surer(explanation: Explanation) -> None:
    (ann,) = explanation._describe([0])
    surer = dataclasses.replace(ann, before="1", after="1", p_before=0.75, p_after=0.91, confidence=0.9, classes=2)
    assert surer.sentence.startswith("The model predicts 1 already (75 %). It would be surer (91 %) if ")
    moved = dataclasses.replace(surer, confidence=0.5)  # a range is what is asked for, and no confidence
    assert moved.sentence.startswith("The model predicts 1 already (75 %). It would still do so (91 %) if ")
    less = dataclasses.replace(moved, p_after=0.7)  # a range leads away from what the model likes most
    assert less.sentence.startswith("The model predicts 1 already (75 %). It would still do so (70 %) if ")

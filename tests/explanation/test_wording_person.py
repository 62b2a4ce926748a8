import dataclasses

import pytest

from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.wording import Person, gather
from tests.explanation.conftest import make_plans
from tests.explanation.test_wording import ROW

FOUND = dataclasses.replace(ROW, status=StatusCode.FOUND, p_after=0.6, after="1", plans=4)
NONE = dataclasses.replace(ROW, status=StatusCode.NO_OTHER_PLAN, changes=(), p_after=0.05, plans=4)


def person(*rows: StatusCode) -> Person:
    kinds = {StatusCode.FOUND: FOUND, StatusCode.NO_OTHER_PLAN: NONE}
    numbered = (
        dataclasses.replace(kinds.get(status, FOUND), status=status, plan=place + 1)
        for place, status in enumerate(rows)
    )
    return Person(tuple(numbered))


def test_rows_are_gathered_by_person() -> None:
    people = gather([FOUND, NONE, FOUND], [0, 0, 3])
    assert [each.rows for each in people] == [(FOUND, NONE), (FOUND,)]


@pytest.mark.parametrize(
    ("statuses", "result", "told", "missing"),
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
def test_only_what_is_news_is_told(statuses: list[str], result: str, told: list[int], missing: list[int]) -> None:
    made = person(*map(StatusCode, statuses))
    assert made.result == result
    assert [row.plan for row in made.told] == told
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
        "       1. education-num: 9 → 9.96; hours-per-week: 40 → 42.49 (p 0.31)",
        "       2. education-num: 9.96 → 10.44; hours-per-week: 42.49 → 43.74; marital-status: Non-Married → Married "
        "(p 0.38)",
        "       3. education-num: 10.44 → 11.4; hours-per-week: 43.74 → 46.23 (p 0.52)",
        "     plan 2 of 3: found p 0.17 → 0.52",
    ]
    assert [line for line in lines if not line.startswith("       ")] == str(plans).splitlines()


def test_a_persons_plans_are_together_in_a_terminal(plans: Explanation) -> None:
    header, *lines = str(plans).splitlines()
    assert header == (
        "Explanation of 5 people, up to 3 plans each: 5 plans found for 2 people, 1 no other plan; 1 already, "
        "1 not found, 1 unknown category (method rsgd-c, wanted 1, confidence 0.5)"
    )
    assert [line.split(" |")[0] for line in lines] == [
        "ann, plan 1 of 3: found p 0.17 → 0.52",
        "     plan 2 of 3: found p 0.17 → 0.52",
        "     plan 3 of 3: found p 0.17 → 0.52",
        "bob: already p 0.83 → 0.83",
        "cem, plan 1 of 3: found p 0.30 → 0.61",
        "     plan 2 of 3: found p 0.30 → 0.61",
        "     plan 3 of 3: no_other_plan",
        "… and 2 more",
    ]
    missed = str(plans.select("dee")).splitlines()[1]
    assert missed.endswith("| hours-per-week 38.5 → 60 | in the way: lock: age; up: hours-per-week")


def test_nobody_is_cut_in_two_even_if_there_are_more_plans_than_lines() -> None:
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
    told = "5 plans found for 2 people (2 of them across a gap in the data), 1 no other plan; 1 already, 1 not found"
    assert told in str(make_plans(status=status))


def test_sentences_say_which_plan_they_are(plans: Explanation) -> None:
    told = plans.sentences
    assert told[("ann", 2)].startswith(
        "Plan 2 of 3: The model says 0 (probability of 1: 0.17). It would say 1 (0.52) if"
    )
    assert told[("cem", 3)] == "Plan 3 of 3: No further plan that differs from the ones before was found."
    assert told[("bob", 1)] == "The model already says 1 (0.83): nothing has to change."
    assert told[("dee", 1)].startswith("The model says 0 (probability of 1: 0.05). No counterfactual was found")
    assert told[("dee", 1)].endswith("What stands in the way: lock: age; up: hours-per-week.")
    assert told[("eva", 1)].startswith("This row is not explained.")


def test_people_with_equal_labels_are_not_mixed_up() -> None:
    lines = str(make_plans(labels=["a"] * 5, plans=2)).splitlines()
    assert lines[0].startswith("Explanation of 5 people, up to 2 plans each: 3 plans found for 2 people")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "a, plan 1 of 2",
        "   plan 2 of 2",
        "a",
        "a, plan 1 of 2",
        "   plan 2 of 2",
        "a",
        "a",
    ]

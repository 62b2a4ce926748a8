"""Rules: the language, what each kind says by hand, and which rules cannot be."""

import json
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data.constraints import Constraints
from counterpath.data.rules.checks import FrameValues, check_shares, suggest_rules
from counterpath.data.rules.kinds import Moves, Rule, Transition
from counterpath.data.rules.language import parse_rule, parse_rules
from counterpath.data.schema import Feature, Schema
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.sizes import examples

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=18, upper=90),
        Feature("income", "continuous", lower=0, upper=10_000),
        Feature("rent", "continuous", codes={-1: "owner"}, missing=True),
        Feature("ratio", "continuous"),
        Feature("education", "ordinal", categories=("school", "college", "doctor")),
        Feature("capital-gain", "integer"),
        Feature("job", "categorical", categories=("Sales", "Tech", "none")),
        Feature("member", "boolean"),
        Feature("opened", "date", format="%Y-%m-%d"),
    )
)
ROW: dict[str, Any] = {
    "age": 40,
    "income": 2000.0,
    "rent": 500.0,
    "ratio": 0.25,
    "education": "college",
    "capital-gain": 0,
    "job": "Sales",
    "member": True,
    "opened": "2013-08-14",
}


def holds(text: str, changed: dict[str, Any] | None = None, before: dict[str, Any] | None = None) -> bool:
    """Whether a rule holds for a row, given what is different from `ROW`."""
    rule = parse_rules(SCHEMA, text)[0]
    bound = Moves.of(SCHEMA[rule.feature], [rule]) if isinstance(rule, Transition) else rule
    rows = [pd.DataFrame([ROW | (before or {}) | (each or {})]) for each in (changed, None)]
    row, origin = (FrameValues(SCHEMA, frame) for frame in rows)
    return bool(bound.holds(row, origin))  # type: ignore[attr-defined]


def test_a_relation_compares_sums_in_original_units():
    assert holds("rent <= income")
    assert not holds("rent + 1600 <= income")
    assert holds("2 * rent + 1000 == income")
    assert not holds("rent > 500")
    assert holds("rent != 501")
    assert holds("rent / 2 < 250.1")
    assert holds("income - rent >= 1500")
    assert holds("rent + ratio <= income", {"rent": 0.1, "ratio": 0.2, "income": 0.3})  # not so for floats
    assert holds('opened >= "2013-08-14"')
    assert not holds('opened < "2013-08-14"')


def test_an_implication_asks_nothing_of_others():
    rule = 'education == "doctor" and member == true => age >= 45 and job in ["Tech"]'
    assert holds(rule)
    assert not holds(rule, {"education": "doctor"})
    assert holds(rule, {"education": "doctor", "age": 45, "job": "Tech"})
    assert holds(rule, {"education": "doctor", "member": False})
    assert not holds('education >= "college" => age > 40')
    assert holds('job not in ["Sales"] => age > 40')


def test_a_change_implies_another_by_so_much_a_level():
    rule = "education up => age up by 2 per level"
    before = {"education": "school"}
    assert holds(rule, {"education": "school"}, before)
    assert not holds(rule, {"education": "doctor", "age": 43}, before)
    assert holds(rule, {"education": "doctor", "age": 44}, before)
    assert holds(rule, {"education": "school"}, {"education": "doctor"})  # down asks nothing
    assert not holds("income down => rent down", {"income": 1999.0})
    assert holds("income down => rent down", {"income": 1999.0, "rent": 499.0})
    assert not holds("job changes => age changes", {"job": "Tech"})


def test_transitions_are_forbidden_or_all_but_the_allowed_ones_are():
    assert not holds('job: "Sales" -> "none" forbidden', {"job": "none"})
    assert holds('job: "Sales" -> "none" forbidden', {"job": "Tech"})
    assert holds('job: * -> "Tech" forbidden', {"job": "Tech"}, {"job": "Tech"})  # who has it keeps it
    assert not holds('job: "Sales" -> "none" allowed', {"job": "Tech"})
    assert holds('job: "Sales" -> "none" allowed', {"job": "Sales"}, {"job": "Tech"})


def test_a_derived_feature_is_what_it_follows_from():
    assert holds("ratio = rent / income")
    assert not holds("ratio = rent / income", {"rent": 501.0})
    assert not holds("ratio = rent / income", {"income": 0.0})  # nobody gets there
    assert holds("ratio = rent / income", {"income": 0.0, "ratio": 3.0}, {"income": 0.0, "ratio": 3.0})
    assert not holds("ratio = rent / income", {"income": 0.0, "rent": 1.0}, {"income": 0.0})
    assert holds("`capital-gain` = code(education) - 1")
    assert holds("capital-gain = code(education) - 1")
    assert holds("ratio = 1 - sqrt(exp(log(rent / income)) + abs(-0.3125))")


@pytest.mark.parametrize("rent", [-1, None], ids=["code", "gap"])
def test_a_rule_about_a_code_or_a_gap_does_not_apply(rent: float | None):
    assert holds("rent > 5000", {"rent": rent})
    assert holds("ratio = rent / income", {"rent": rent, "ratio": 7.0})
    assert holds("rent <= 0 => age > 50", {"rent": rent})
    assert holds("age >= 18 => rent > 5000", {"rent": rent})
    assert holds("age up => rent up", {"rent": rent, "age": 41})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age <= hight", "unknown feature in the rule 'age <= hight': 'hight'"),
        ('job == "Slaes"', "category of feature 'job' in the rule .* 'Slaes' \\(did you mean 'Sales'"),
        ('job >= "Sales"', "its categories have no order"),
        ("job + 1 <= age", "write code\\(job\\)"),
        ("code(age) <= 3", "a number already"),
        ("age * income <= 3", "is not linear"),
        ("age <= ", "cannot be read: it ends"),
        ("age <= 3 <= 4", "at character 10, where the rule to end was expected"),
        ("age <= 3 years", "at character 10, where the rule to end was expected"),  # units are the feature's own
        ("3 <= 4", "says nothing about any feature"),
        ("age up => age down", "is about one feature only"),
        ("job up => age up", "its categories have no order"),
        ("income: 1 -> 2 forbidden", "has no categories"),
        ("ratio = ratio + 1", "from itself"),
        ("ratio = income / 0", "divides by zero"),
        ("ratio = job", "write code\\(job\\)"),
        ('age == "old"', "expected a number"),
        ('opened > "soon"', "expected a date"),
        ("__import__('os')", "cannot be read"),
        ("age <= " + "(" * 50 + "1" + ")" * 50, "brackets in each other"),
        ("a" * 3000, "3000 characters"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_said_is_an_error_that_quotes_it(text: str, message: str):
    with pytest.raises(InputError, match=message):
        parse_rules(SCHEMA, [text])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["age >= 95"], "the rule 'age >= 95' can never be met"),
        (["age + income <= 17"], "can never be met"),
        (["income > rent", "rent >= income"], "'income > rent' and 'rent >= income' contradict each other"),
        (["rent <= 10", "rent >= 5", "income <= 1", "income >= 3 + rent"], "'rent >= 5' and .* contradict|can never"),
        (['job in ["Tech"]', 'job == "Sales"'], "contradict"),
        (
            ['education == "doctor" => age >= 30', 'education == "doctor" => age <= 20'],
            "contradict each other for whom",
        ),
        (['education == "doctor" => age >= 95'], "can never be met for whom"),
        (['job: "Tech" -> "Sales" allowed', 'job: "Tech" -> * forbidden'], "contradict"),
        (["ratio = rent / income", "ratio = income"], "derive the same feature"),
        (["ratio = rent + 1", "rent = income + 1", "income = ratio + 1"], "in a circle, ratio → rent → income → ratio"),
    ],
)
def test_rules_that_contradict_each_other_are_an_error(rules: list[str], message: str):
    with pytest.raises(InputError, match=message):
        Schema(SCHEMA.features, rules=rules)


def test_rules_that_agree_are_kept_as_text_and_come_back():
    rules = ("rent <= income", 'education == "doctor" => age >= 27', "ratio = rent / income", "rent<=income")
    schema = Schema(SCHEMA.features, rules=rules)
    assert schema.rules == ("rent <= income", 'education == "doctor" => age >= 27', "ratio = rent / income")
    plain = Schema(schema.features[:2], rules=["income >= 10 * age"])
    assert Schema.from_json(json.loads(json.dumps(plain.to_json()))) == plain
    assert Schema(SCHEMA.features, rules=[parse_rule("rent <= income")]).rules == ("rent <= income",)
    with pytest.raises(InputError, match="derives 'ratio', which is immutable, from rent, income"):
        schema.with_immutable("ratio")


def test_rules_that_training_rows_break_are_warned_of_or_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_shares({"a <= b": 0.01})
    with pytest.warns(CounterpathWarning, match="'a <= b' is broken by 8.1 % of the training rows"):
        check_shares({"a <= b": 0.081})
    with pytest.raises(InputError, match="broken by 60 % of the training rows, so it is no rule of these data"):
        check_shares({"a <= b": 0.6})


def test_parts_of_a_whole_and_codes_are_suggested_and_nothing_else():
    random = np.random.default_rng(0)
    total = random.integers(1, 40, 2000)
    opened = random.binomial(total, 0.5)
    level = random.integers(0, 4, 2000)
    frame = pd.DataFrame(
        {
            "total": total,
            "open": opened,
            "recent": random.binomial(opened, 0.5),
            "age": random.integers(18, 90, 2000),
            "grade": np.array(["a", "b", "c", "d"])[level],
            "number": level + 3,
        }
    )
    schema = Schema.infer(frame)
    suggested = schema.suggest_rules(frame)
    assert {each.rule for each in suggested} == {"number = code(grade) + 3", "open <= total", "recent <= open"}
    assert all(each.holds == 1 and each.rows == 2000 for each in suggested)
    wrong = frame.assign(open=np.where(np.arange(2000) < 100, total + 1, opened))
    assert "open <= total" not in {each.rule for each in suggest_rules(schema, wrong)}


NAMES = st.sampled_from(["age", "rent", "capital-gain", "up", "a b", "x`y", "größe"])
NUMBERS = st.one_of(st.integers(-100, 100), st.floats(-1e6, 1e6).map(lambda number: round(number, 6)))
TEXTS = st.text(max_size=8)


@st.composite
def expressions(draw: Any, depth: int = 2) -> str:
    name = draw(NAMES)
    quoted = "`" + name.replace("`", "\\`") + "`"
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([quoted, f"code({quoted})", repr(abs(draw(NUMBERS)))]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return draw(st.sampled_from([f"({left}) {sign} ({right})" for sign in "+-*/"] + [f"-{left}", f"exp({left})"]))


@st.composite
def rule_texts(draw: Any) -> str:
    name = "`" + draw(NAMES).replace("`", "\\`") + "`"
    text = json.dumps(draw(TEXTS), ensure_ascii=False) if draw(st.booleans()) else "'x'"
    text = '"' + draw(TEXTS).replace("\\", "\\\\").replace('"', '\\"') + '"'
    sign = draw(st.sampled_from(["<=", ">=", "<", ">", "==", "!="]))
    conditions = [
        f"{draw(expressions())} {sign} {draw(expressions())}",
        f"{name} {sign} {text}",
        f"{name} in [{text}, {draw(NUMBERS)}, true]",
        f"{name} not in [{text}]",
    ]
    return draw(
        st.sampled_from(
            [
                *conditions,
                f"{conditions[0]} and {conditions[2]} => {conditions[1]} and {conditions[3]}",
                f"{name} up => {name} down by {abs(draw(NUMBERS)) or 1} per {abs(draw(NUMBERS)) or 1}",
                f"{name} changes => {name} up",
                f"{name}: {text}|{text} -> * forbidden",
                f"{name}: * -> {text} allowed",
                f"{name} = {draw(expressions())}",
            ]
        )
    )


@given(rule_texts())
@settings(max_examples=examples(1000, 20))
def test_a_rule_reads_as_it_is_written(text: str):
    rule = parse_rule(text)
    assert isinstance(rule, Rule)
    assert parse_rule(str(rule)) == rule


ALPHABET = [
    *"abc_ 019.+-*/()=<>!:,|[]\"`'\\\n→≤",
    "=>",
    "->",
    "age",
    " up ",
    "code(",
    "and",
    " in ",
    "1e9",
    "exp(",
    "é",
    "🙂",
]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(ALPHABET), max_size=40).map("".join), rule_texts()))
@settings(max_examples=examples(10_000, 20))
def test_no_text_crashes_the_language(text: str):
    for cut in {text, text[1:], text[: len(text) // 2], text + text}:
        with suppress(InputError):  # and nothing else
            assert isinstance(parse_rule(cut, ["capital-gain", "a b", "(", "=>"]), Rule)


def test_rules_are_part_of_a_request():
    with pytest.raises(InputError, match="contradict each other"):
        Constraints.of(Schema(SCHEMA.features, rules=["rent <= 10"]), rules=["rent >= 11"])
    with pytest.raises(InputError, match="lock has 'ratio', which follows from others"):
        Constraints.of(SCHEMA, rules=["ratio = rent / income"], lock=["ratio"])

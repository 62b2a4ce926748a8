"""Rules, consequences and constraints of each row's own, from the question to the answer."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath.utils.errors import CounterpathWarning, InputError, RowsError
from tests.conftest import Once
from tests.sizes import examples
from tests.tables import CITIES, LABEL, SIZES, mixed, small

STEP = 0.1
"""Of the derived feature: it is the nearest multiple to what it follows from."""
METHODS = ("geodesic", "rsgd", "wachter", "nearest", "face")
FOUND = ("found", "crosses_gap", "implausible")
Row = dict[str, Any]
Check = Callable[[Row, Row], bool]
"""Whether a row keeps to a rule, given it and what it was: told apart from what the library computes."""


@pytest.fixture(scope="module")
def tables(people: pd.DataFrame) -> list[pd.DataFrame]:
    """Three tables: one as it is, one with a derived feature and codes, and one with gaps."""
    ratio = people.assign(share=(people["debt"] / (people["score"] + 10)))
    random = np.random.default_rng(7)
    coded = ratio.assign(months=np.where(random.random(len(ratio)) < 0.2, -9, random.integers(0, 60, len(ratio))))
    gaps = mixed(seed=1).assign(extra=random.normal(5, 2, len(people)).round(1))
    gaps.loc[random.random(len(gaps)) < 0.15, "extra"] = np.nan
    return [people, coded, gaps]


@pytest.fixture(scope="module")
def explainers(tables: list[pd.DataFrame], explainer: cp.Explainer, once: Once) -> list[cp.Explainer]:
    """One for each table."""
    fitted = [explainer]
    for number, table in enumerate(tables[1:], start=1):
        codes = {"months": {"codes": {-9: "none"}}, "share": {"step": STEP}} if "months" in table else {}
        schema = cp.Schema.infer(table, target=LABEL, overrides=codes)
        fit = partial(small().fit, table, LABEL, schema=schema)
        fitted.append(once(f"ruled{number}", fit, cp.Explainer.save, cp.load))
    return fitted


def known(row: Row, *names: str) -> bool:
    """Whether none of these values is a code or a gap."""
    return not any(row[name] != row[name] or (name == "months" and row[name] == -9) for name in names)


NUMBERS = ("debt", "score", "children")


@st.composite
def ruled(draw: Any) -> tuple[str, Check]:
    """A rule and what it means."""
    kind = draw(st.sampled_from(["relation", "bound", "implication", "change", "transition", "derived", "code"]))
    one, other = draw(st.permutations(NUMBERS))[:2]
    factor, shift = draw(st.integers(1, 50)), draw(st.integers(-200, 4000))
    if kind == "relation":
        return f"{one} <= {factor} * {other} + {shift}", lambda row, _: row[one] <= factor * row[other] + shift
    if kind == "bound":
        return f"{one} >= {-shift}", lambda row, _: row[one] >= -shift
    if kind == "implication":
        city, size = draw(st.sampled_from(CITIES)), draw(st.sampled_from(SIZES[1:]))
        level = draw(st.integers(0, 7))
        sizes = SIZES[: SIZES.index(size)]
        return (
            f'city == "{city}" and size < "{size}" => children >= {level}',
            lambda row, _: not (row["city"] == city and row["size"] in sizes) or row["children"] >= level,
        )
    if kind == "change":
        by = draw(st.integers(1, 2))

        def changed(row: Row, origin: Row) -> bool:
            levels = SIZES.index(row["size"]) - SIZES.index(origin["size"])
            return levels <= 0 or row["children"] - origin["children"] >= by * levels

        return f"size up => children up by {by} per level", changed
    if kind == "transition":
        before, after = draw(st.permutations(CITIES))[:2]
        return (
            f'city: "{before}" -> "{after}" forbidden',
            lambda row, origin: not (origin["city"] == before and row["city"] == after),
        )
    if kind == "derived":
        return (
            "share = debt / (score + 10)",
            lambda row, _: (
                "share" not in row
                or abs(row["share"] - row["debt"] / (row["score"] + 10))
                <= STEP / 2 + 1e-3 * max(1.0, abs(row["share"]))  # next to a tie the others' last digits decide
            ),
        )
    level = draw(st.integers(5, 40))
    name = draw(st.sampled_from(["months", "extra"]))
    return f"{name} <= {level}", lambda row, _: name not in row or not known(row, name) or row[name] <= level


@pytest.mark.timeout(3600)  # a thousand explanations take ten minutes of a core
@given(
    number=st.integers(0, 2),
    rules=st.lists(ruled(), min_size=1, max_size=4),
    start=st.integers(0, 560),
    method=st.sampled_from(METHODS),
    plans=st.integers(1, 2),
)
@settings(max_examples=examples(1000, 50), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_broken_in_any_row_of_any_path(
    tables: list[pd.DataFrame],
    explainers: list[cp.Explainer],
    number: int,
    rules: list[tuple[str, Check]],
    start: int,
    method: str,
    plans: int,
):
    explainer, frame = explainers[number], tables[number].drop(columns=LABEL)
    usable = [
        (text, check)
        for text, check in rules
        if not (text.startswith("share") and number != 1)
        and not (text.startswith("months") and number != 1)
        and not (text.startswith("extra") and number != 2)
    ]
    rows = frame.iloc[start : start + 3]
    asked = partial(explainer.explain, rows, method=method, rules=[text for text, _ in usable], plans=plans)
    result = _answer(asked)
    if result is None:
        return
    factuals = result.factuals.to_dict("records")
    for position, (code, end) in enumerate(
        zip(result.status["status"], result.counterfactuals.to_dict("records"), strict=True)
    ):
        own = factuals[position]
        lawful = [check(own, own) for _, check in usable]
        assert code in FOUND or code in ("already", "not_found", "outside", "no_other_plan"), code
        if code == "already":
            assert all(lawful)
        if code in FOUND:
            assert all(check(end, own) for _, check in usable), (code, end, own, usable)
        if code in FOUND and not all(lawful):
            assert "breaks the rule" in result.status["reason"].iloc[position]
    names = [column for column in result.paths.columns if column in frame.columns]
    for row, points in result.paths.groupby("row"):
        own = factuals[int(row)]
        for point in points[names].to_dict("records")[1:]:
            broken = [text for text, check in usable if not check({**own, **point}, own)]
            assert not broken, f"{broken} by {point} of {own}"


def _answer(asked: Callable[[], cp.Explanation]) -> cp.Explanation | None:
    """The answer, without warnings of rules that some rows break; None if the rules are refused, as they may be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpathWarning)
        try:
            return asked()
        except InputError as error:
            refused = ("contradict", "can never be met", "is no rule of these data")
            if not any(words in str(error) for words in refused):
                raise
            return None


def test_a_rule_that_stands_in_the_way_is_named(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(4)
    rules = ["debt up => children down", "debt down => children down", "score changes => children down"]
    lock = ["children", "city", "member", "sex", "size"]
    result = explainer.explain(rows, "low", rules=rules, lock=lock)
    assert (result.status["status"] == "not_found").all()
    kinds = {each["kind"] for binding in result.status["binding"] for each in binding}
    assert "rule" in kinds
    assert result.status["reason"].str.contains("the rule “").any()


def test_a_change_whose_consequence_is_locked_is_not_made(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(6)
    free = explainer.explain(rows, "low", lock=["children"])
    held = explainer.explain(rows, "low", lock=["children"], rules=["debt down => children down"])
    assert (free.counterfactuals["debt"] < rows["debt"]).any()
    assert held.status["status"].isin(FOUND).any()
    assert not (held.counterfactuals["debt"] < rows["debt"]).any()


def test_who_breaks_a_rule_already_is_told_so_and_ends_lawfully(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(5)
    least = float(rows["score"].max()) + 0.5
    with pytest.warns(CounterpathWarning, match="is broken by"):
        result = explainer.explain(rows, "low", rules=[f"children > 5 => score >= {least}"])
    broken = (rows["children"] > 5).to_numpy()
    assert broken.any()
    reasons = result.status["reason"][broken]
    assert reasons.str.contains(r"breaks the rule “children > 5 => score >=").all()
    ends = result.counterfactuals[result.status["status"].isin(FOUND)]
    assert ((ends["children"] <= 5) | (ends["score"] >= least)).all()


def test_requests_with_rules_are_recorded_and_asked_again(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people.head(5)
    first = explainer.explain(rows, "low", rules=["children <= 7"], causes=["score -> debt"])
    assert first.request["rules"] == ["children <= 7"]
    assert first.request["causes"] == ["score -> debt"]
    pd.testing.assert_frame_equal(explainer.repeat(first).counterfactuals, first.counterfactuals)


def test_consequences_follow_and_cost_nothing(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(6)
    result = explainer.explain(rows, "low", causes=["debt = 4000 - 200 * score"])
    ends, start = result.counterfactuals, result.factuals
    for row, follows in enumerate(result.status["follows"]):
        if "debt" in follows:
            expected = start["debt"].iloc[row] - 200 * (ends["score"].iloc[row] - start["score"].iloc[row])
            axis = explainer.encoder_.axes[explainer.schema_.index("debt")]
            low, high = axis.lower, axis.upper  # type: ignore[union-attr]
            step = explainer.schema_["debt"].step  # what follows is a legal value, too
            assert ends["debt"].iloc[row] == pytest.approx(min(max(expected, low), high), abs=step / 2)
            assert "from that would follow debt" in result.sentences.iloc[row]
    assert any("debt" in follows for follows in result.status["follows"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rules": ["score <= nothing"]}, "unknown feature in the rule 'score <= nothing'"),
        ({"rules": ["score >= 4", "score <= 3"]}, "contradict each other"),
        ({"rules": ["debt < score"]}, "broken by .* % of the training rows, so it is no rule"),
        ({"causes": [("debt", "score"), ("score", "debt")]}, "causes has a circle"),
        ({"causes": [("debt", "city")]}, "whose categories have no order"),
        ({"causes": [("debt", "scor")]}, "unknown feature in causes: 'scor' \\(did you mean 'score'"),
        ({"causes": ["debt = score / 0"]}, "divides by zero"),
        ({"target_range": (1, 2)}, "predicts classes"),
        ({"confidence": (0.8, 0.6)}, "low above high"),
        ({"constraints": pd.DataFrame({"score.lock": [True]}, index=["nobody"])}, "row 'nobody', which is not among"),
        ({"constraints": pd.DataFrame({"scor.low": [1]}, index=["p0"])}, "unknown feature in the table of constraints"),
        ({"constraints": pd.DataFrame({"what": [1]}, index=["p0"])}, "has the column 'what'; expected are FEATURE"),
        ({"constraints": pd.DataFrame({"score.low": ["x"]}, index=["p0"])}, "the constraints of row 'p0'"),
    ],
)
def test_what_cannot_be_is_an_error(explainer: cp.Explainer, people: pd.DataFrame, asked: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        explainer.explain(people.head(3), **asked)


def test_each_row_has_constraints_of_its_own(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(4)
    own = pd.DataFrame(
        {
            "score.lock": [True, None, None, None],
            "debt.direction": [None, "down", None, None],
            "children.high": [None, None, 3, None],
            "target_class": [None, None, None, "mid"],
            "confidence": [None, None, None, 0.6],
        },
        index=rows.index,
    )
    result = explainer.explain(rows, "low", constraints=own)
    start, end = result.factuals, result.counterfactuals
    assert start["score"].iloc[0] == end["score"].iloc[0]
    assert end["debt"].iloc[1] <= start["debt"].iloc[1]
    if result.status["status"].iloc[2] in FOUND:
        assert end["children"].iloc[2] <= 3
    if result.status["status"].iloc[3] in FOUND:
        assert result.outcome["class_after"].iloc[3] == "mid"
        assert result.outcome["probability_after"].iloc[3] >= 0.6
    with pytest.raises(RowsError, match=r"the constraints of row .*: the target class 'none' does not exist") as error:
        explainer.explain(rows, "low", constraints=own.assign(target_class=[None, "none", None, "none"]))
    assert list(error.value.reasons) == rows.index[[1, 3]].tolist()
    with pytest.raises(InputError, match="has the row -1, which is not among the 4 rows"):
        explainer.explain(rows, "low", constraints=own.set_axis([*rows.index[:3], -1]))
    again = explainer.repeat(result)
    pd.testing.assert_frame_equal(again.counterfactuals, result.counterfactuals)
    assert "mid" in result.select([rows.index[3]]).sentences.iloc[0]


def test_a_probability_can_be_asked_to_lie_in_a_range(explainer: cp.Explainer, people: pd.DataFrame):
    rows = people[(explainer.predict(people) == "high").to_numpy()].head(6)
    result = explainer.explain(rows, "low", confidence=(0.4, 0.6))
    found = result.status["status"].isin(FOUND)
    assert found.any()
    assert result.outcome["probability_after"][found].between(0.4, 0.6).all()


def test_who_has_nothing_to_divide_by_is_answered_and_nobody_gets_there(people: pd.DataFrame):
    random = np.random.default_rng(4)
    table = pd.DataFrame({"rooms": random.integers(1, 9, 400), "years": random.integers(0, 12, 400)})
    table["ratio"] = (table["rooms"] / table["years"].where(table["years"] > 0)).fillna(0).round(1)
    table["sold"] = np.where(table["rooms"] + random.normal(0, 0.3, 400) > 5, "yes", "no")
    schema = cp.Schema.infer(table, target="sold", overrides={"ratio": {"step": STEP}})
    explainer = small().fit(table, "sold", schema=schema)
    new = table[(table["years"] == 0) & (table["rooms"] < 5)].head(8)
    rows = new[(explainer.predict(new) == "no").to_numpy()]
    assert len(rows) >= 3
    result = explainer.explain(rows, "yes", rules=["ratio = rooms / years"])
    assert result.status["status"].isin(FOUND).all(), result.status["reason"].to_list()
    for path in (result.path(row) for row in rows.index):
        for row in path.iloc[1:].to_dict("records"):
            assert row["years"] > 0
            assert abs(row["ratio"] - row["rooms"] / row["years"]) <= STEP / 2 + 1e-6
    older = table[(table["years"] > 0) & (table["rooms"] < 5)].head(30)
    asked = explainer.explain(older, "yes", rules=["ratio = rooms / years"])
    assert (asked.counterfactuals["years"] > 0).all()

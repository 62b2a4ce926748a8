"""What may change in a request: every constraint is parsed by name, and bounds are legal points around the factuals."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Bounds, Constraints, Encoder, Feature, Schema
from counterpath.utils.errors import InputError
from tests.sizes import examples

SIZES = ("small", "medium", "large", "huge")
SCHEMA = Schema(
    (
        Feature("age", "integer"),
        Feature("income", "continuous"),
        Feature("debt", "continuous", transform="log1p"),
        Feature("short", "continuous"),
        Feature("size", "ordinal", categories=SIZES),
        Feature("job", "categorical", categories=("boss", "clerk", "none", "pilot")),
        Feature("owner", "boolean"),
        Feature("grade", "binary", categories=(1, 2)),
        Feature("sex", "binary", categories=("f", "m"), immutable=True),
    )
)
TRAIN = pd.DataFrame(
    {
        "age": [18, 79, 40, 33],
        "income": [18.61, 62345.67, 2226.9, 844.75],
        "debt": [0.0, 99999.5, 17.25, 3000.0],
        "short": np.array([0.1, 0.7, 0.3, 0.5], dtype=np.float32),
        "size": ["small", "huge", "large", "small"],
        "job": ["boss", "clerk", "none", "clerk"],
        "owner": [True, False, True, False],
        "grade": [1, 2, 2, 1],
        "sex": ["f", "m", "f", "m"],
    },
    index=["a", "b", "c", "d"],
)
ENCODER = Encoder.fit(TRAIN, SCHEMA)
ONE = TRAIN.loc[["c"]]


def of(**options: Any) -> Constraints:
    return Constraints.of(SCHEMA, **options)


def bounds(frame: pd.DataFrame = ONE, **options: Any) -> Bounds:
    return of(**options).bounds(ENCODER, frame, ENCODER.encode(frame))


def ends(name: str, frame: pd.DataFrame = ONE, **options: Any) -> tuple[Any, Any]:
    """The bounds of one feature of the first row, decoded; None where nothing binds."""
    found, x = bounds(frame, **options), ENCODER.encode(frame)
    columns, decoded = ENCODER.columns(name), []
    for end in (found.lower, found.upper):
        row = x.clone()
        row[:, columns] = end[:, columns]
        bound = bool(end[0, columns].isfinite().all())
        decoded.append(ENCODER.decode(row)[name].iloc[0] if bound else None)
    return decoded[0], decoded[1]


# Parsing


def test_constraints_are_parsed_to_plain_values_in_one_order():
    parsed = of(
        lock=np.array(["sex", "job", "sex"]),
        directions={"size": "up", "age": "down"},
        ranges={"income": [np.float32(20), None], "age": (np.int64(20), 60.5), "job": {"none", "boss"}, "grade": ["2"]},
        max_changes=np.int64(99),
        feature_costs={"size": np.float64(3), "age": 2},
    )
    assert parsed.lock == ("job", "sex")
    assert list(parsed.ranges.items()) == [
        ("age", (20, 60.5)),
        ("grade", (2,)),
        ("income", (20.0, None)),
        ("job", ("boss", "none")),
    ]
    assert parsed.bounded
    assert Constraints.from_json(json.loads(json.dumps(parsed.to_json()))) == parsed
    kinds = ["feature_costs", "directions", "lock", "unlock", "max_changes", "ranges", "stay_within", "rules", "causes"]
    assert list(parsed.to_json()) == kinds
    assert list(parsed.to_json()["directions"]) == ["age", "size"]
    assert Constraints.of(SCHEMA, **parsed.to_json()) == parsed


def test_there_are_no_constraints_by_default():
    assert of() == Constraints() == Constraints.from_json({})
    assert not of().bounded
    assert not of(max_changes=2, feature_costs={"age": 2}).bounded
    assert of(lock="age").lock == ("age",)
    assert of(ranges={"job": "boss"}).ranges == {"job": ("boss",)}
    assert of(ranges={"owner": ["True"]}).ranges == of(ranges={"owner": [np.True_]}).ranges == {"owner": (True,)}


MISTAKES = [
    ({"lock": "aeg"}, r"unknown feature in lock: 'aeg' \(did you mean 'age'\?\); choose one of: age, income"),
    ({"lock": 3}, r"lock is 3; expected names of features, for instance lock=\['age'\]"),
    ({"lock": [3]}, "lock has 3; expected the name of a feature, one of: age, income"),
    ({"lock": {"age": 1}}, "lock is {'age': 1}; expected names"),
    ({"lock": [*SCHEMA.names][:-1]}, "leaves nothing that could change, and these are immutable: sex; leave a feature"),
    ({"directions": {"aeg": "up"}}, r"unknown feature in directions: 'aeg' \(did you mean 'age'\?\)"),
    ({"directions": ["age"]}, r"directions is \['age'\]; expected a mapping"),
    (
        {"directions": {"age": "upp"}},
        r"direction of feature 'age': 'upp' \(did you mean 'up'\?\); choose one of: up, d",
    ),
    ({"directions": {"age": 1}}, "unknown direction of feature 'age': '1'; choose one of: up, down"),
    ({"directions": {"job": "up"}}, "'job' .kind 'categorical'., whose categories have no order; try ranges={'job': "),
    ({"ranges": {"aeg": (1, 2)}}, "unknown feature in ranges: 'aeg'"),
    ({"ranges": {"age": (60, 20)}}, "range of feature 'age' has low=60 above high=20; swap them"),
    ({"ranges": {"size": ("huge", "small")}}, "'size' has low='huge' above high='small'; swap them"),
    ({"ranges": {"age": (1.2, 1.8)}}, "'age', from 1.2 to 1.8, has no whole number"),
    ({"ranges": {"age": (20,)}}, r"'age' \(kind 'integer'\) is \(20,\); expected a pair \(low, high\)"),
    ({"ranges": {"age": 20}}, r"'age' .* is 20; expected a pair"),
    ({"ranges": {"age": "20:60"}}, r"'age' .* is '20:60'; expected a pair"),
    ({"ranges": {"age": {20, 60}}}, r"'age' .*expected a pair"),
    ({"ranges": {"age": (math.nan, 60)}}, r"'age' .* is \(nan, 60\); expected a pair \(low, high\) of finite numbers"),
    ({"ranges": {"income": (0, math.inf)}}, r"'income' .* is \(0, inf\); expected .* or None for an open end"),
    ({"ranges": {"income": (0, 10**400)}}, r"'income' .*expected a pair \(low, high\) of finite numbers"),
    (
        {"ranges": {"income": ("low", 3)}},
        r"'income' .* is \('low', 3\); expected a pair \(low, high\) of finite numbers",
    ),
    ({"ranges": {"income": (True, 3)}}, r"'income' .*expected a pair \(low, high\) of finite numbers"),
    ({"ranges": {"size": ("small", "tiny")}}, "unknown category in the range of feature 'size': 'tiny'; choose one of"),
    ({"ranges": {"size": ["small", "large", "huge"]}}, r"'size' \(kind 'ordinal'\) is .*expected a pair \(low, high\)"),
    (
        {"ranges": {"job": (1, 5)}},
        "category in the range of feature 'job': '1'; choose one of: boss, clerk, none, pilot",
    ),
    ({"ranges": {"job": ["bos"]}}, r"category in the range of feature 'job': 'bos' \(did you mean 'boss'\?\)"),
    ({"ranges": {"job": []}}, r"'job' \(kind 'categorical'\) is \[\]; expected the allowed ones of: 'boss', 'clerk'"),
    ({"ranges": {"job": None}}, "'job' .* is None; expected the allowed ones of"),
    ({"ranges": {"job": [["boss"]]}}, "unknown category in the range of feature 'job'"),
    ({"ranges": {"owner": [2]}}, "category in the range of feature 'owner': '2'; choose one of: False, True"),
    ({"max_changes": 0}, "max_changes is 0; expected a whole number from 1"),
    ({"max_changes": 1.5}, "max_changes is 1.5; expected a whole number from 1"),
    ({"max_changes": True}, "max_changes is True; expected a whole number from 1"),
    ({"max_changes": "2"}, "max_changes is '2'; expected a whole number from 1"),
    ({"feature_costs": {"aeg": 2}}, "unknown feature in feature_costs: 'aeg'"),
    ({"feature_costs": 3}, "feature_costs is 3; expected a mapping"),
    *(
        ({"feature_costs": {"age": hard}}, "feature_costs has .* for feature 'age'; expected a positive number")
        for hard in (0, -1, math.nan, math.inf, "3", True, None)
    ),
    (
        {"feature_costs": {"age": 1e7}},
        r"'age' costs 1e\+07 to change and 'income' 1, .*lock the feature: lock=\['age'\]",
    ),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_a_mistake_is_named_with_what_was_expected(options: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        of(**options)


@pytest.mark.parametrize("value", [[], {"lokc": []}, {"lock": "age"}, {"directions": []}, {"ranges": {"age": "x"}}])
def test_json_of_another_form_is_refused(value: Any):
    with pytest.raises(InputError, match=r"in JSON"):
        Constraints.from_json(value)


# Bounds


def test_without_constraints_nothing_binds_and_immutable_features_are_locked():
    found = bounds(TRAIN, max_changes=2, feature_costs={"age": 3})
    assert found.lower.shape == found.upper.shape == found.locked.shape == (4, ENCODER.width)
    assert (found.lower == -math.inf).all()
    assert (found.upper == math.inf).all()
    assert found.locked.any(0).nonzero()[:, 0].tolist() == ENCODER.columns("sex")
    assert found.locked.dtype == torch.bool


def test_bounds_are_the_outermost_legal_values():
    assert ends("age", ranges={"age": (20.5, 60.2)}) == (21, 60)
    assert ends("age", ranges={"age": (20.5, None)}) == (21, None)
    assert ends("age", ranges={"age": (None, 200)}) == (None, 79)
    assert ends("age", ranges={"age": (-5, 200)}) == (18, 79)
    assert ends("income", ranges={"income": (1000, 2226.9)}) == (1000, 2226.9)
    assert ends("debt", ranges={"debt": (-3, 19.99)}) == (0.0, 19.99)
    assert ends("short", ranges={"short": (0.2, 0.6)}) == (np.float32(0.2), np.float32(0.6))
    assert ends("size", ranges={"size": ("medium", None)}) == ("large", None)
    assert ends("size", ranges={"size": ("medium", "large")}) == ("large", "large")
    assert ends("grade", ranges={"grade": (2,)}) == (2, 2)
    assert ends("grade", ranges={"grade": (2, 1)}) == (1, 2)
    assert ends("owner", ranges={"owner": [True]}) == (True, True)


def test_a_bound_with_many_digits_is_never_passed():
    low, high = 1234.567890123456, 2300.987654321
    first, last = ends("income", ranges={"income": (low, high)})
    step = 62345.67 / 2**23
    assert low <= first < low + 2 * step
    assert high - 2 * step < last <= high


def test_only_allowed_categories_are_open():
    found = bounds(ranges={"job": ["none", "boss", "pilot"]})
    columns = ENCODER.columns("job")
    assert found.lower[0, columns].tolist() == [0.0] * 4
    assert found.upper[0, columns].tolist() == [1.0, 0.0, 1.0, 0.0]  # no training row is a pilot


def test_directions_are_relative_to_the_factual():
    assert ends("age", directions={"age": "up"}) == (40, None)
    assert ends("income", directions={"income": "down"}) == (None, 2226.9)
    assert ends("size", directions={"size": "down"}) == (None, "large")
    assert ends("owner", directions={"owner": "up"}) == (True, None)
    assert ends("grade", directions={"grade": "down"}) == (None, 2)
    assert ends("age", directions={"age": "up"}, ranges={"age": (20, 60)}) == (40, 60)


def test_what_is_locked_has_no_room():
    options = {"lock": ["age", "job"], "directions": {"age": "up"}, "ranges": {"age": (20, 60)}}
    found, x = bounds(TRAIN.iloc[2:], **options), ENCODER.encode(TRAIN.iloc[2:])
    locked = ENCODER.columns("age", "job")
    assert torch.equal(found.lower[:, locked], x[:, locked])
    assert torch.equal(found.upper[:, locked], x[:, locked])
    assert found.locked.all(0).nonzero()[:, 0].tolist() == sorted([*locked, *ENCODER.columns("sex")])
    rest = [column for column in range(ENCODER.width) if column not in locked]
    assert not found.lower[:, rest].isfinite().any()


def test_outside_the_training_range_the_factual_is_its_own_bound():
    row = ONE.assign(age=95, income=1e6)
    assert ends("age", row, ranges={"age": (90, 100)}) == (95, 95)
    assert ends("age", row, ranges={"age": (70, 100)}) == (70, 95)
    assert ends("age", row, ranges={"age": (None, 100)}) == (None, 95)
    assert ends("age", row, directions={"age": "down"}) == (None, 95)
    assert ends("income", row, ranges={"income": (5e5, None)}) == (1e6, None)
    narrow = (2226.90000001, 2226.90000002)  # between two points of the grid
    assert ends("income", ONE.assign(income=2226.900000015), ranges={"income": narrow}) == (2226.9, 2226.9)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"age": (20, 35)}, "age is 79, outside of where it must stay, from 20 to 35."),
        ({"income": (2000, None)}, "income is 844.75, outside of where it must stay, at least 2000."),
        ({"income": (None, 2226)}, "income is 62345.67, outside of where it must stay, at most 2226."),
        ({"size": ("large", "huge")}, "size is 'small', outside of where it must stay, from 'large' to 'huge'."),
        ({"job": ["none", "clerk"]}, None),
        ({"job": ["boss", "none"]}, "job is 'clerk', outside of where it must stay, 'boss' or 'none'."),
        ({"owner": [True]}, "owner is False, outside of where it must stay, True."),
    ],
)
def test_who_is_outside_of_where_to_stay_is_hopeless_and_who_is_outside_a_range_enters_it(
    wanted: dict[str, Any], message: str | None
):
    rows = TRAIN.iloc[1:]
    stay, end = bounds(rows, stay_within=wanted), bounds(rows, ranges=wanted)
    assert torch.equal(stay.lower, end.lower)
    assert torch.equal(stay.upper, end.upper)
    assert end.hopeless == {}
    assert set(stay.hopeless) == set((~end.hold(ENCODER.encode(rows))).nonzero()[:, 0].tolist())
    assert (message in stay.hopeless.values()) if message else not stay.hopeless


@pytest.mark.parametrize("kind", ["ranges", "stay_within"])
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"job": ["pilot"]},
            "feature 'job' must be 'pilot', which no training row is; these are: 'boss', 'clerk', 'none'",
        ),
        ({"size": ("medium", "medium")}, "feature 'size' must be from 'medium' to 'medium', which no training row is"),
    ],
)
def test_a_range_that_nobody_is_in_is_refused(kind: str, wanted: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        bounds(TRAIN.iloc[1:], **{kind: wanted})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lock": ["age"]}, "age is 40, and must become at most 30, but is locked."),
        ({"directions": {"age": "up"}}, "age is 40, and must become at most 30, but may only go up."),
        ({"max_changes": 1, "ranges": {"job": ["none"]}}, "more of age, job have to change than max_changes=1 allows."),
        ({"stay_within": {"age": (35, None)}}, "age is 40, and must become at most 30, but nothing that it may become"),
        ({"directions": {"age": "down"}}, None),
        ({"max_changes": 1}, None),
    ],
)
def test_who_cannot_enter_a_range_is_hopeless(options: dict[str, Any], message: str | None):
    found = bounds(ONE.assign(job="boss"), **options | {"ranges": {"age": (None, 30)} | options.get("ranges", {})})
    assert list(found.hopeless) == ([] if message is None else [0])
    assert message is None or found.hopeless[0].startswith(message)


def test_an_immutable_feature_cannot_enter_a_range():
    found = bounds(ONE.assign(sex="f"), ranges={"sex": ["m"]})
    assert found.hopeless == {0: "sex is 'f', and must become 'm', but is immutable."}


def test_short_floats_are_compared_as_they_are_stored():
    for dtype in ("float32", "float64"):
        row = ONE.assign(short=pd.Series([0.3], index=ONE.index, dtype=dtype))
        assert ends("short", row, ranges={"short": (0.3, 0.5)}) == (np.float32(0.3), np.float32(0.5))
        assert ends("short", row, ranges={"short": (0.2, 0.3)}) == (np.float32(0.2), np.float32(0.3))


def test_no_rows_have_no_bounds_and_a_few_can_be_taken():
    options = {"ranges": {"age": (18, 79), "job": ["boss", "clerk", "none"]}, "lock": ["size"]}
    assert bounds(TRAIN.head(0), **options).lower.shape == (0, ENCODER.width)
    whole, some = bounds(TRAIN, **options), bounds(TRAIN.iloc[[1, 3]], **options)
    for part in (whole.at(torch.tensor([1, 3])), whole.at(torch.tensor([False, True, False, True]))):
        assert all(torch.equal(getattr(part, name), getattr(some, name)) for name in ("lower", "upper", "locked"))


def test_weights_are_by_column_and_the_least_is_one():
    weights = of(feature_costs={"job": 3, "age": 0.5}).weights(ENCODER)
    assert weights.shape == (ENCODER.width,)
    assert weights[ENCODER.columns("age")].tolist() == [1.0]
    assert weights[ENCODER.columns("job")].tolist() == [6.0] * 4
    assert weights[ENCODER.columns("income", "sex")].tolist() == [2.0] * 2
    assert (of().weights(ENCODER) == 1).all()
    every = dict.fromkeys(SCHEMA.names, 7)
    assert (of(feature_costs=every).weights(ENCODER) == 1).all()


# Properties

numbers = {
    "age": st.integers(18, 79),
    "income": st.floats(18.61, 62345.67),
    "debt": st.floats(0, 99999.5),
    "short": st.floats(np.float32(0.1).item(), np.float32(0.7).item(), width=32),
}
names = list(SCHEMA.names)  # the shape checker draws at random, which a strategy must not
seen = {"size": ["small", "large", "huge"], "job": ["boss", "clerk", "none"], "owner": [False, True], "grade": [1, 2]}
rows = st.fixed_dictionaries(
    numbers | {name: st.sampled_from(values) for name, values in seen.items()} | {"sex": st.sampled_from(["f", "m"])}
)


@st.composite
def consistent_constraints(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A legal row, and constraints that it does not contradict."""
    row, ranges = draw(rows), {}
    for name in draw(st.sets(st.sampled_from(list(numbers)))):
        below, above = draw(st.floats(0, 1e5)), draw(st.floats(0, 1e5))
        low, high = row[name] - below, row[name] + above
        ranges[name] = (draw(st.sampled_from([low, None])), draw(st.sampled_from([high, None])))
    if draw(st.booleans()):
        index = SIZES.index(row["size"])
        ranges["size"] = (draw(st.sampled_from([*SIZES[: index + 1], None])), draw(st.sampled_from(SIZES[index:])))
    for name in draw(st.sets(st.sampled_from(["job", "owner", "grade"]))):
        ranges[name] = [row[name], *draw(st.lists(st.sampled_from(seen[name])))]
    directions = draw(
        st.dictionaries(st.sampled_from(["age", "income", "debt", "size", "owner"]), st.sampled_from(["up", "down"]))
    )
    lock = draw(st.sets(st.sampled_from(names), max_size=3))
    return row, {"ranges": ranges, "directions": directions, "lock": lock}


@settings(max_examples=examples(150), deadline=None)
@given(consistent_constraints(), st.lists(st.floats(-1, 2, width=32), min_size=ENCODER.width, max_size=ENCODER.width))
def test_the_box_holds_the_factual_and_legal_rows_that_satisfy_the_constraints(drawn, values):
    factual, options = drawn
    frame = pd.DataFrame([factual]).astype({"short": "float32"})
    x, found = ENCODER.encode(frame), bounds(frame, **options)
    assert (found.lower <= x).all()
    assert (x <= found.upper).all()
    tried = torch.tensor([values])
    tried[:, ENCODER.categorical] = tried[:, ENCODER.categorical].clamp_min(1e-6)  # as a softmax has it
    tried = tried.maximum(found.lower).minimum(found.upper)
    legal = ENCODER.round(tried)
    assert (found.lower <= legal).all(), (legal, found)
    assert (legal <= found.upper).all(), (legal, found)
    row, before = ENCODER.decode(legal).iloc[0], frame.iloc[0]
    for name in SCHEMA.names:
        columns = ENCODER.columns(name)
        if torch.equal(legal[:, columns], x[:, columns]):
            continue  # the factual's own value
        assert name not in options["lock"]
        low, high = (*options["ranges"].get(name, ()), None, None)[:2] if name in numbers else (None, None)
        if name == "short":
            low, high = (end if end is None else np.float32(end) for end in (low, high))
        assert low is None or row[name] >= low
        assert high is None or row[name] <= high
        if name in ("job", "owner", "grade") and name in options["ranges"]:
            assert row[name] in options["ranges"][name]
        if name in options["directions"] and name in numbers:
            assert (row[name] > before[name]) == (options["directions"][name] == "up")


ranged = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@settings(max_examples=examples(150), deadline=None)
@given(
    ranged,
    st.sampled_from([0.0, 0.1, 1e4, 1.7e9]),
    st.floats(1e-3, 1e7),
    st.sampled_from(["identity", "log1p"]),
    st.sampled_from(["float64", "float32", "int64"]),
    st.booleans(),
)
def test_the_first_and_last_point_are_legal_and_as_far_out_as_can_be(share, offset, span, transform, dtype, whole):
    kind = "integer" if whole else "continuous"
    values = pd.Series([offset, offset + span])
    values = (values.round() if whole or dtype == "int64" else values).astype(dtype)
    encoder = Encoder.fit(values.to_frame("x"), Schema((Feature("x", kind, transform=transform),)))
    (least,), (most,) = encoder.low, encoder.high
    low, high = (least + part * (most - least) for part in share)
    if dtype == "float32":
        low, high = float(np.float32(low)), float(np.float32(high))
    first, last = encoder.axes[0].between(low, high)
    if first > last:
        assert (first, last) == (math.inf, -math.inf)
        assert high - low < 1 if whole else high - low < (most - least) * 2**-18
        return
    points = torch.tensor([[first], [last]])
    assert torch.equal(encoder.round(points), points)
    decoded = encoder.decode(points)["x"].astype(float)
    assert (decoded >= low).all()
    assert (decoded <= high).all()
    outside = encoder.round(points + torch.tensor([[-1.0], [1.0]]) / 2**23)
    beyond = encoder.decode(outside)["x"].astype(float).tolist()
    assert first == outside[0] or beyond[0] < low
    assert last == outside[1] or beyond[1] > high

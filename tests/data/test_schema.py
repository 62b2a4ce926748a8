import json

import numpy as np
import pytest
import torch

from counterpath.data import Feature, Schema
from counterpath.data.schema import KINDS, TRANSFORMS
from counterpath.utils.errors import InputError

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0, upper=120, immutable=True),
        Feature("gain", "continuous", lower=0.0, transform="log1p"),
        Feature("member", "binary", categories=("no", "yes")),
    )
)


def test_lookups():
    assert SCHEMA.names == ("age", "gain", "member")
    assert SCHEMA.immutable == ("age",)
    assert len(SCHEMA) == 3
    assert [feature.name for feature in SCHEMA] == list(SCHEMA.names)
    assert SCHEMA["gain"].transform == "log1p"
    assert SCHEMA.index("member") == 2
    with pytest.raises(InputError, match=r"unknown column 'agee' \(did you mean 'age'\?\).*age, gain, member"):
        SCHEMA["agee"]


def test_changed_copies_leave_the_original_as_it_was():
    assert SCHEMA.with_immutable("gain", "member").immutable == ("age", "gain", "member")
    assert SCHEMA.replace("age", immutable=False, upper=90)["age"] == Feature("age", "integer", lower=0, upper=90)
    assert SCHEMA.immutable == ("age",)
    with pytest.raises(InputError, match="unknown column 'income'"):
        SCHEMA.with_immutable("income")
    with pytest.raises(InputError, match="a feature has no maximum; choose from: actionable, categories"):
        SCHEMA.replace("age", maximum=3)


def test_json_round_trip(tmp_path):
    assert Schema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA
    assert Schema.load(SCHEMA.save(tmp_path / "schema.json")) == SCHEMA


def test_numpy_categories_have_a_json_form():
    feature = Feature("flag", "binary", categories=tuple(np.array([0, 1])))
    assert json.dumps(Schema((feature,)).to_json()["features"][0]["categories"]) == "[0, 1]"


def test_a_hand_written_schema_may_leave_out_defaults():
    value = {"features": [{"name": "age", "kind": "integer"}]}
    assert Schema.from_json(value) == Schema((Feature("age", "integer"),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "a schema in JSON looks like"),
        ({"features": {"age": "integer"}}, "a schema in JSON looks like"),
        ({"features": []}, "at least one feature"),
        ({"features": ["age"]}, "has a name and a kind.*given was 'age'"),
        ({"features": [{"name": "age"}]}, "has a name and a kind"),
        ({"features": [{"name": "age", "kind": "integer", "min": 3}]}, "has a name and a kind"),
        ({"features": [{"name": "age", "kind": ["integer"]}]}, r"'age' has kind=\['integer'\]; expected str"),
        ({"features": [{"name": "age", "kind": "integer", "categories": 2}]}, "'age' has categories=2; expected list"),
        ({"features": [{"name": "age", "kind": "integer", "immutable": 1}]}, "'age' has immutable=1"),
        (
            {"features": [{"name": "age", "kind": "integer", "lower": "low"}]},
            "lower='low'; expected int or float or NoneType",
        ),
    ],
)
def test_bad_json_is_explained(value, message):
    with pytest.raises(InputError, match=message):
        Schema.from_json(value)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]"])
def test_a_bad_file_is_named(tmp_path, content):
    path = tmp_path / "schema.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"schema\.json cannot be used"):
        Schema.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.json cannot be read: No such file"):
        Schema.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "interger"}, r"unknown kind of feature 'a': 'interger' \(did you mean 'integer'\?\)"),
        ({"kind": "continuous", "transform": "log"}, "unknown transform of feature 'a': 'log'.*identity, log1p"),
        ({"kind": "continuous", "lower": 2.0, "upper": 1.0}, "lower=2.0 above upper=1.0"),
        ({"kind": "continuous", "lower": float("nan")}, "lower=nan; expected a finite number"),
        ({"kind": "integer", "lower": 0.5}, "lower=0.5; expected a whole number"),
        ({"kind": "continuous", "lower": -1.0, "transform": "log1p"}, "log1p needs values above -1"),
        (
            {"kind": "continuous", "categories": ("a", "b")},
            "only these kinds have them: binary, boolean, ordinal, categorical",
        ),
        ({"kind": "boolean", "categories": (0, 1)}, r"expected \(False, True\), or none; the kind 'binary' takes any"),
        ({"kind": "ordinal", "categories": ("a",)}, "expected at least 2 different values"),
        ({"kind": "categorical"}, "expected at least 1 different values"),
        ({"kind": "categorical", "categories": ("a", "b", "a")}, r"\['a', 'b', 'a'\]; expected at least 1 different"),
        ({"kind": "binary"}, "expected 2 different values"),
        ({"kind": "binary", "categories": ("a", "a")}, "expected 2 different values"),
        ({"kind": "binary", "categories": ("a", "b", "c")}, "expected 2 different values"),
        ({"kind": "binary", "categories": ("a", None)}, "the category None; expected text"),
        ({"kind": "binary", "categories": (0, 1), "lower": 0}, "takes neither"),
    ],
)
def test_bad_features_are_explained(arguments, message):
    with pytest.raises(InputError, match=message):
        Feature(**{"name": "a", **arguments})


def test_a_boolean_feature_need_not_list_its_categories():
    assert Feature("a", "boolean").categories == (False, True)
    assert Feature("a", "boolean", categories=tuple(np.array([False, True]))) == Feature("a", "boolean")


def test_equal_bounds_are_a_constant():
    assert Feature("a", "continuous", lower=1.0, upper=1.0).lower == 1.0


def test_duplicate_names_are_refused():
    with pytest.raises(InputError, match="more than once: a;"):
        Schema((Feature("a", "integer"), Feature("b", "integer"), Feature("a", "continuous")))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_increase_and_invert(name):
    transform = TRANSFORMS[name]
    values = torch.linspace(max(-5.0, transform.above + 0.1), 50.0, 100, dtype=torch.float64)
    for origin in (0.0, 7.5, 1e6):
        difference = transform.forward(values, origin)
        assert (difference.diff() > 0).all()
        torch.testing.assert_close(transform.inverse(difference, origin), values, rtol=0, atol=1e-9)
        assert transform.forward(torch.tensor(origin), origin) == 0


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_makes_a_feature(name):
    kind = KINDS[name]
    categories = kind.values or tuple("abcdefgh"[: kind.categories[0] if kind.categories else 0])
    feature = Feature("a", name, categories=categories)
    assert feature.categories == categories
    assert Schema.from_json(json.loads(json.dumps(Schema((feature,)).to_json()))) == Schema((feature,))


def test_columns_may_be_ignored():
    features = (Feature("age", "integer"),)
    schema = Schema(features, ignored={"id": "identifies rows"})
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert Schema.from_json({"features": [{"name": "age", "kind": "integer"}], "ignored": ["id"]}).ignored == {"id": ""}
    for wrong in ("id", ["age"]):
        with pytest.raises(InputError, match=r"ignored .*; expected"):
            Schema(features, ignored=wrong)
    with pytest.raises(InputError, match="ignored has names of columns"):
        Schema.from_json({"features": [{"name": "age", "kind": "integer"}], "ignored": "id"})

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpath.service.problems import NotJsonError, parse

TEXT = st.text(st.characters(codec="utf-8"))  # half of a surrogate pair is no character
LEAVES = st.none() | st.booleans() | st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_json_is_read_as_it_is(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


REFUSED = [
    (b'{"rows": [{"age": 1}, {"age": NaN}]}', "rows[1].age", "NaN is no number in JSON"),
    (b"[Infinity]", "[0]", "Infinity is no number"),
    (b'{"a": -Infinity}', "a", "-Infinity is no number"),
    (b'{"a": 1e999}', "a", "1e999 is too large"),
    (b'{"a": -1e999}', "a", "too large"),
    (b'{"a": 1' + b"0" * 400 + b"}", "a", "a number of 401 digits is too large"),
    (b'{"a": 1' + b"0" * 309 + b"}", "a", "too large"),
    (b'{"a": {"b": 1, "b": 1}}', "a", "the key 'b' is there twice"),
    (b'{"a": "\\ud800"}', "a", "half of a surrogate pair"),
    (b'{"\\udfff": 1}', "the body", "half of a surrogate pair"),
    (b"{", "line 1, column 2", "not JSON"),
    (b"{}\n{}", "line 2, column 1", "Extra data"),
    (b"\xff\xfe", "byte 0", "not UTF-8"),
    (b"[" * 200_000, "the body", "nested too deeply"),
]


@pytest.mark.parametrize(("body", "location", "why"), REFUSED)
def test_what_is_not_json_is_refused_with_its_location(body: bytes, location: str, why: str) -> None:
    with pytest.raises(NotJsonError) as found:
        parse(body)
    assert found.value.location == location
    assert why in found.value.why

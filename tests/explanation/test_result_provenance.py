from dataclasses import fields

from counterpath.data import Feature, Schema
from counterpath.explainer.request import _SETTINGS, Request
from counterpath.explanation.result import LIBRARIES, provenance
from counterpath.explanation.tables import PLAN
from counterpath.explanation.wording import REQUEST_MEANINGS, describe_provenance, describe_request


def test_every_part_of_a_request_has_a_meaning() -> None:
    assert set(REQUEST_MEANINGS) == {*(field.name for field in fields(Request)), *_SETTINGS, PLAN}


def test_a_request_is_described_by_what_was_asked_for_and_not_by_what_was_left_open() -> None:
    request = {"method": "rsgd", "lock": ["a", "b"], "ranges": {"c": [1, None]}, "sparsify": True, "max_changes": None}
    schema = Schema(
        (
            Feature("a", "integer"),
            Feature("b", "integer", label="pay"),
            Feature("c", "ordinal", label="job", categories=(1, 2), category_labels={"1": "clerk"}),
        ),
        class_labels={"0": "refused"},
    )
    assert describe_request(request | {"own": 1.5, "directions": {}, "target_class": 0}, schema) == [
        ("method", "rsgd", "how to search"),
        ("lock", "a, pay", REQUEST_MEANINGS["lock"]),
        ("ranges", "job: clerk, –", REQUEST_MEANINGS["ranges"]),
        ("sparsify", "yes", REQUEST_MEANINGS["sparsify"]),
        ("own", "1.5", ""),
        ("target_class", "refused", REQUEST_MEANINGS["target_class"]),
    ]


def test_what_is_recorded_says_when_with_what_and_how_fast() -> None:
    recorded = provenance(0.0)
    assert list(recorded["versions"]) == ["counterpath", "python", *LIBRARIES]
    assert recorded["date"].endswith("+00:00")
    assert recorded["seconds"] > 0


def test_only_what_is_known_of_the_provenance_is_described() -> None:
    recorded = {"date": "2026-01-01", "seconds": 1.5, "versions": {"torch": "2", "numpy": "1"}}
    assert describe_provenance(recorded) == [
        ("date", "2026-01-01"),
        ("seconds", "1.5"),
        ("versions", "torch 2, numpy 1"),
    ]
    assert describe_provenance({"seconds": 2.0}) == [("seconds", "2.0")]
    assert describe_provenance({}) == []

"""The examples of the description are what the service returns."""

import json
import re
from typing import Any

import jsonschema
import pytest

from counterpath.service.answers import example_answers
from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.problems import MEANINGS
from counterpath.service.schemas import Problem
from counterpath.service.settings import Settings

from . import failures


def _as_written(value: dict[str, Any]) -> str:
    """Without how many there happen to be."""
    return re.sub(r"\d+ requests are waiting", "N requests are waiting", json.dumps(value, sort_keys=True))


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
def test_failures_are_those_of_the_description() -> None:
    found, written = failures.provoke(), json.loads(failures.EXAMPLES.read_text())
    again = "they are other ones now: python -m tests.service.failures"
    assert {code: _as_written(value) for code, value in found.items()} == {
        code: _as_written(value) for code, value in written.items()
    }, again
    for value in found.values():
        Problem.model_validate(value)
    assert {value["status"] for value in found.values()} == MEANINGS.keys() - {408}, "which takes half a minute"


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
def test_the_description_is_whole() -> None:
    model, _ = failures.explainer()
    dispatcher = Dispatcher({"people": model})
    dispatcher.examples["people"] = example_answers("people", model)
    found = create(dispatcher, Settings(token=failures.TOKEN)).openapi()
    dispatcher.close()
    assert found["openapi"].startswith("3.1")
    assert found["security"] == [{"token": []}]
    assert found["info"]["license"]["identifier"] == "MIT"
    assert found["servers"]
    operations = [each for path in found["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names) == 10
    tags = {each["name"] for each in found["tags"]}
    for operation in operations:
        assert set(operation["tags"]) <= tags
        assert operation["summary"]
        statuses = operation["responses"]
        assert any(status.startswith("4") for status in statuses)
        for status, response in statuses.items():
            if int(status) >= 400:
                (kind,) = response["content"]
                assert kind == "application/problem+json"
                assert response["content"][kind].get("examples") or status == "408", status
    parts = {"components": found["components"]}
    for action in ("explain", "predict"):
        content = found["paths"][f"/v1/models/people:{action}"]["post"]["responses"]["200"]["content"]
        described = content["application/json"]
        jsonschema.validate(described["example"], parts | described["schema"])
    text = json.dumps(found)
    for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert reference in found["components"]["schemas"]

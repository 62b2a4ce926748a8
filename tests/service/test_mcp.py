"""The tools of an assistant, asked by the protocol's own client over standard input and output, as programs do."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pandas as pd
import pytest
from mcp import Client, StdioServerParameters, stdio_client

import counterpath
from counterpath.explainer.explainer import Explainer

ROOT = Path(counterpath.__file__).parents[1]


def talk(folder: Path, rows: Path, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a conversation with a process of its own returns."""
    words = ["-m", "counterpath.cli", "mcp", str(folder), "--rows", str(rows), "--device", "cpu", "--most-rows", "50"]
    started = StdioServerParameters(command=sys.executable, args=words, env=os.environ | {"PYTHONPATH": str(ROOT)})

    async def main() -> Any:
        async with Client(stdio_client(started)) as client:
            return await ask(client)

    return anyio.run(main)


@pytest.fixture(scope="module")
def people(loans: pd.DataFrame, fitted: Explainer) -> pd.DataFrame:
    """Rejected people."""
    features = loans.drop(columns="loan")
    return features[(fitted.predict(features) == "no").to_numpy()].head(80)


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "people.csv"
    people.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def answers(model_folder: Path, rows: Path, people: pd.DataFrame) -> dict[str, Any]:
    """All that is asked in one conversation."""
    person = people.head(1).to_dict("records")[0]
    richer = person["income"] * 50

    async def ask(client: Client) -> dict[str, Any]:
        listed = (await client.list_tools()).tools
        call = client.call_tool
        return {
            "instructions": client.instructions,
            "tools": {tool.name: tool for tool in listed},
            "describe": await call("describe", {}),
            "predict": await call("predict", {"rows": [person]}),
            "explain": await call("explain", {"rows": [person], "target_class": "yes", "lock": ["job"], "plans": 2}),
            "what_if": await call("what_if", {"row": person, "changes": {"income": richer, "sex": person["sex"]}}),
            "audit": await call("audit", {"by": ["sex"], "target_class": "yes"}),
            "misspelled": await call("explain", {"rows": [person], "lock": ["agee"], "plans": 0}),
            "unusable": await call("explain", {"rows": [person], "lock": list(person)[:4], "unlock": ["age"]}),
            "late": await call("explain", {"rows": [person], "time_limit": 1e6}),
            "unknown": await call("explode", {}),
            "person": person,
        }

    return talk(model_folder, rows, ask)  # type: ignore[no-any-return]


def test_the_tools_have_schemas_of_the_models_own_features(answers: dict[str, Any]) -> None:
    tools = answers["tools"]
    assert list(tools) == ["describe", "predict", "explain", "what_if", "audit"]
    for tool in tools.values():
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
        assert tool.annotations.read_only_hint
    locked = tools["explain"].input_schema["properties"]["lock"]
    assert locked["items"]["enum"] == ["age", "income", "job", "owner", "sex"]
    assert "promises nothing about the world" in answers["instructions"]


def test_answers_fit_their_schemas_and_say_what_the_library_says(
    answers: dict[str, Any], fitted: Explainer, people: pd.DataFrame
) -> None:
    for name, tool in answers["tools"].items():
        assert not answers[name].is_error, answers[name].content
        jsonschema.validate(answers[name].structured_content, tool.output_schema)
    row = pd.DataFrame([answers["person"]])
    expected = fitted.explain(row, "yes", lock=["job"], plans=2)
    plans = answers["explain"].structured_content["rows"][0]["plans"]
    assert [plan["sentence"] for plan in plans] == expected.sentences.tolist()
    assert plans[0]["counterfactual"]["job"] == answers["person"]["job"]
    assert answers["predict"].structured_content["rows"][0]["class"] == "no"
    assert answers["describe"].structured_content["rows_at_hand"] == len(people)


def test_what_if_asks_the_model_about_the_changed_row(answers: dict[str, Any], fitted: Explainer) -> None:
    said, person = answers["what_if"].structured_content, answers["person"]
    richer = pd.DataFrame([person | {"income": person["income"] * 50}])
    assert said["changed"] == ["income"]
    assert said["held"] == []
    assert said["class_before"] == "no"
    assert said["probabilities_after"] == pytest.approx(fitted.predict_proba(richer).iloc[0].tolist())


def test_an_audit_is_of_the_rows_that_the_command_was_started_with(answers: dict[str, Any]) -> None:
    said = answers["audit"].structured_content
    assert "1 comparison" in said["headline"]
    assert {line["by"] for line in said["differences"]} == {"sex"}


def test_what_cannot_be_done_is_an_answer_that_says_why(answers: dict[str, Any]) -> None:
    said = {name: answers[name].content[0].text for name in ("misspelled", "unusable", "late", "unknown")}
    assert all(answers[name].is_error for name in said)
    assert "lock.0: Value error, expected one of: 'age'" in said["misspelled"]
    assert "plans: Input should be greater than or equal to 1" in said["misspelled"]
    assert "age" in said["unusable"]
    assert said["late"] == "time_limit: Input should be less than or equal to 300"
    assert said["unknown"] == "there is no tool 'explode'; there are: describe, predict, explain, what_if, audit"

"""The Model Context Protocol over standard input and output: a model's explanations as tools of an assistant.

Five tools, each with a JSON schema of the model's own features and classes: describe, predict, explain, what_if, audit.
The process is started by the assistant's program, listens at no port, opens no file that a request names, and sends
nothing anywhere: what leaves this machine is what the assistant does with the answers.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import pandas as pd
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, Field, ValidationError, create_model

from counterpath import __version__
from counterpath.explainer.explainer import Explainer
from counterpath.explanation.importance import held_features
from counterpath.service import schemas
from counterpath.service.identity import Identity
from counterpath.service.settings import Settings
from counterpath.utils.errors import CounterpathError, InputError
from counterpath.utils.progress import ShouldStop

_LOG = logging.getLogger("counterpath.service")
_PERMUTATIONS, _RESAMPLES = 999, 500
"""Of an audit while somebody waits: p-values from 0.001 on, and a tenth of the time that a report takes."""
_MOST_LISTED = 10
"""Of what is wrong with arguments: more than an assistant corrects at once."""
INSTRUCTIONS = """What would have to change for a model to decide otherwise, and by which realistic path?
Call describe first: it says which columns a row has, which values they take and which classes there are. A
counterfactual explains the model. It promises nothing about the world: whether a change is possible, advisable, or has
the effect in life that it has on the model. Say so to whoever asks, and never present it as advice."""


@dataclass(frozen=True)
class ToolOf:
    """A tool of one model.

    Attributes:
        description: What it does, for an assistant.
        arguments: The type of its arguments.
        answer: The type of its answer.
        run: From checked arguments, and whether to give up, to the answer as a JSON value.
    """

    description: str
    arguments: type[BaseModel]
    answer: type[BaseModel]
    run: Callable[[Any, ShouldStop], dict[str, Any]]


class Described(schemas.ModelCard):
    """Description of the model."""

    example: dict[str, schemas.Value] = Field(description="The average row. It is nobody's.")
    rows_at_hand: int = Field(description="How many rows `audit` takes where it is given none.")


class Tried(schemas.Response):
    """What becomes of a row if some values are changed."""

    class_before: schemas.Value = Field(description="What the model decides for the row.")
    class_after: schemas.Value = Field(description="What it decides for the changed row.")
    probabilities_before: list[float] | None = Field(description="Of the classes; null for a regressor.")
    probabilities_after: list[float] | None
    classes: list[schemas.Value]
    changed: list[str] = Field(description="Which features differ.")
    held: list[str] = Field(description="Those of them that no plan changes: immutable, or not actionable.")


class Audited(schemas.Response):
    """Whether the way to the wanted decision is equally long for everyone."""

    headline: str
    sentences: list[str] = Field(description="For every comparison what was shown and what was not.")
    differences: list[dict[str, Any]] = Field(description="The same as numbers, with intervals and corrected p-values.")


def tools(name: str, explainer: Explainer, settings: Settings, rows: pd.DataFrame | None = None) -> dict[str, ToolOf]:
    """The tools of a model.

    Args:
        name: What the model is called.
        explainer: The fitted explainer.
        settings: How many rows a request may have, and how long it may take.
        rows: What `audit` takes where it is given no rows.
    """
    explain_type, predict_type = schemas.request_types(name, explainer, settings)
    columns, schema = list(explainer.schema_.names), explainer.schema_

    def describe(_: Any, __: ShouldStop) -> dict[str, Any]:
        card = schemas.model_card(name, explainer, Identity.of(explainer)).model_dump(mode="json")
        return card | {"example": schemas.example_row(explainer), "rows_at_hand": 0 if rows is None else len(rows)}

    def answer(table: pd.DataFrame) -> dict[str, Any]:
        probabilities = explainer.probabilities(table)
        return schemas.prediction(
            name, explainer, probabilities, schemas.unknown_values(explainer, table, probabilities)
        )

    def predict(asked: Any, _: ShouldStop) -> dict[str, Any]:
        return answer(pd.DataFrame(asked.rows, columns=columns))

    def explain(asked: Any, should_stop: ShouldStop) -> dict[str, Any]:
        table = pd.DataFrame(asked.rows, columns=columns)
        found = explainer.solve(table, schemas.read_request(asked), should_stop=should_stop)
        return {"model": name, "rows": [json.loads(text) for text in schemas.BatchResult(found).row_texts]}

    def what_if(asked: Any, _: ShouldStop) -> dict[str, Any]:
        changed = {key: value for key, value in asked.changes.items() if asked.row.get(key) != value}
        table = pd.DataFrame([asked.row, asked.row | changed], columns=columns)
        said = answer(table)
        before, after = said["rows"]
        held = held_features(schema, {})
        return {
            **{f"class_{when}": each["class"] for when, each in (("before", before), ("after", after))},
            **{f"probabilities_{when}": each["probabilities"] for when, each in (("before", before), ("after", after))},
            "classes": said["classes"],
            "changed": list(changed),
            "held": [key for key in changed if key in held],
        }

    def audit(asked: Any, should_stop: ShouldStop) -> dict[str, Any]:
        if not asked.rows and rows is None:
            raise InputError("there are no rows to audit: give `rows`, or start the command with --rows TABLE")
        table = pd.DataFrame(asked.rows, columns=columns) if asked.rows else rows
        result = explainer.solve(table, schemas.read_request(asked), should_stop=should_stop)
        options: dict[str, Any] = {"permutations": _PERMUTATIONS, "resamples": _RESAMPLES}
        found = explainer.audit(result, asked.by, find=not asked.by, **options)
        records = schemas.json_records(found.differences)
        return {"headline": found.headline, "sentences": list(found.sentences), "differences": records}

    row_type = schemas.row_type(name, explainer)
    listed: Any = list[schemas.one_of(columns)]  # type: ignore[misc]
    return {
        "describe": ToolOf(
            "The model: the columns of a row, their values and meaning, the classes, and how good the models are.",
            _arguments("Nothing"),
            Described,
            describe,
        ),
        "predict": ToolOf("What the model decides for rows.", predict_type, schemas.PredictResponse, predict),
        "explain": ToolOf(
            "What would have to change for another decision on each row: plans with status, changes, sentence and "
            "measures, under what may change. Every plan was checked by the model itself.",
            explain_type,
            schemas.ExplainResponse,
            explain,
        ),
        "what_if": ToolOf(
            "What the model decides if some values of a row are changed.",
            _arguments("WhatIf", row=(row_type, ...), changes=(schemas.row_type(name, explainer, total=False), ...)),
            Tried,
            what_if,
        ),
        "audit": ToolOf(
            "Whether the way to the wanted decision is equally long for groups of people, with intervals and tests.",
            create_model(
                "Audit",
                __base__=explain_type,
                rows=(
                    Annotated[list[row_type], Field(max_length=settings.rows)],  # type: ignore[valid-type]
                    Field([], description="The people; by default those that the command was started with."),
                ),
                by=(
                    listed,
                    Field([], description="Columns whose groups are compared; by default groups are looked for."),
                ),
            ),
            Audited,
            audit,
        ),
    }


def server(name: str, explainer: Explainer, settings: Settings, rows: pd.DataFrame | None = None) -> Server[Any]:
    """A server of the Model Context Protocol with the tools of a model; what it takes is as of `tools`."""
    offered = tools(name, explainer, settings, rows)
    listed = [
        types.Tool(
            name=key,
            description=tool.description,
            input_schema=tool.arguments.model_json_schema(),
            output_schema=tool.answer.model_json_schema(mode="serialization"),
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for key, tool in offered.items()
    ]
    turn = anyio.CapacityLimiter(1)  # a search takes all cores: a second one would make both late

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        tool, cancelled = offered.get(asked.name), threading.Event()
        if tool is None:
            return _failed(f"there is no tool {asked.name!r}; there are: {', '.join(offered)}")
        try:
            arguments = tool.arguments.model_validate(asked.arguments or {})
            answer = await anyio.to_thread.run_sync(
                tool.run, arguments, cancelled.is_set, limiter=turn, abandon_on_cancel=True
            )
        except ValidationError as error:
            return _failed(_wrong(error))
        except CounterpathError as error:
            return _failed(str(error))
        except Exception as error:  # also what a user's model does: the assistant hears of it, and the log has the rest
            _LOG.exception("the tool %s failed", asked.name)
            return _failed(f"something unexpected happened: {type(error).__name__}: {error}")
        finally:
            cancelled.set()
        return types.CallToolResult(content=[_text(json.dumps(answer, ensure_ascii=False))], structured_content=answer)

    return Server(
        "counterpath",
        version=__version__,
        title=f"Counterpath: {name}",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def run(name: str, explainer: Explainer, settings: Settings, rows: pd.DataFrame | None = None) -> None:
    """Serve on standard input and output until the input ends."""
    made = server(name, explainer, settings, rows)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    anyio.run(serve)


def _arguments(title: str, **fields: Any) -> type[BaseModel]:
    return create_model(title, __config__=schemas.STRICT, **fields)


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _failed(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(why)], is_error=True)


def _wrong(error: ValidationError) -> str:
    """What is wrong with arguments, each thing at its place."""
    listed: Sequence[Mapping[str, Any]] = error.errors()[:_MOST_LISTED]
    texts = [f"{'.'.join(map(str, each['loc'])) or 'the arguments'}: {each['msg']}" for each in listed]
    more = error.error_count() - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")

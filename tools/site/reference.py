"""The reference, from what it describes: docstrings, the commands of the command line, the OpenAPI definition."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import counterpath as cp

EXTENDING = {
    "Problem": "counterpath.search.method",
    "Paths": "counterpath.search.paths",
    "Descent": "counterpath.search.descent",
    "metric": "counterpath.geometry",
    "measures": "counterpath.search",
}
"""What a method, a metric or a measure of one's own is made of: by name, where it is."""
BESIDE = {
    "Client": "counterpath.client",
    "Job": "counterpath.client",
    "ServiceError": "counterpath.client",
    "run": "counterpath.batch.running",
    "Local": "counterpath.batch.local",
    "Ray": "counterpath.batch.ray",
    "log_explainer": "counterpath.explainer.tracking",
    "load_explainer": "counterpath.explainer.tracking",
    "log_explanation": "counterpath.explainer.tracking",
    "load_explanation": "counterpath.explainer.tracking",
    "dice_ml": "counterpath.explainer.adapters",
    "alibi": "counterpath.explainer.adapters",
}
"""What goes with other programs: by name, where it is."""
ELSEWHERE = {**EXTENDING, **BESIDE}
KINDS = {
    "To explain": ("Explainer", "load", "compare", "Comparison", "Request"),
    "Answers": ("Explanation", "Status", "StatusCode"),
    "Tables": ("Schema", "Feature", "Encoder", "datasets"),
    "Methods of your own": ("Method", *EXTENDING),
    "Other programs": tuple(BESIDE),
    "Errors": ("CounterpathError", "InputError", "CounterpathWarning"),
}
"""The order in which names are listed; a public name that is not here comes last."""


def python_nav() -> list[dict[str, Any]]:
    """The Python part of the navigation: every public name, by kind."""
    names = _public()
    listed = [name for each in KINDS.values() for name in each]
    kinds = {**KINDS, "Further names": tuple(name for name in names if name not in listed)}
    return [
        {kind: [{name: f"reference/python/{name}.md"} for name in members]}
        for kind, members in kinds.items()
        if members
    ]


def pages() -> dict[str, str]:
    """All pages of the reference that are made, by their place in the site."""
    made = {f"reference/python/{name}.md": _python_page(name) for name in (*_public(), *ELSEWHERE)}
    return {**made, "reference/cli.md": command_line(), "reference/http.md": http()}


def _public() -> list[str]:
    return [name for name in cp.__all__ if not name.startswith("_")]


def _python_page(name: str) -> str:
    if name in ELSEWHERE:
        path = f"{ELSEWHERE[name]}.{name}"
    elif name == "load":
        path = "counterpath.explainer.explainer.Explainer.load"
    elif name == "datasets":
        path = "counterpath.data.datasets"
    else:
        path = f"{cp._LAZY[name]}.{name}"
    is_public = name in cp.__all__
    said = f"`counterpath.{name}`" if is_public else f"`from {path.rpartition('.')[0]} import {name}`"
    return (
        f"---\ntitle: {name}\n---\n\n# {name}\n\n{said}\n\n::: {path}\n    options:\n      show_root_heading: false\n"
    )


def command_line() -> str:
    """Every command with its arguments and options, from the commands themselves."""
    import typer

    from counterpath.cli import EXIT_CODES, _commands

    group = typer.main.get_command(_commands)
    lines = [
        "# Command line: reference",
        "",
        "Made from the commands themselves, when this site is built. [The how-to](../cli.md) has examples.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {_cell(meaning)} |" for code, meaning in EXIT_CODES.items()),
    ]
    for name, command in group.commands.items():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
        usage = " ".join(each.metavar or each.name.upper() for each in arguments)
        lines += ["", f"## counterpath {name}", "", "```", f"counterpath {name} {usage} [OPTIONS]".replace("  ", " ")]
        lines += ["```", "", _paragraphs(command.help or "")]
        if arguments:
            lines += ["", "| argument | meaning |", "|---|---|"]
            lines += [
                f"| `{_cell(each.metavar or each.name.upper())}` | {_cell(each.help or '')} |" for each in arguments
            ]
        if options:
            context = command.make_context(name, [], resilient_parsing=True)
            records = [each.get_help_record(context) for each in options]
            lines += ["", "| option | meaning |", "|---|---|"]
            lines += [f"| `{_plain(spelled)}` | {_cell(meaning)} |" for spelled, meaning in records]
    return "\n".join(lines) + "\n"


def http() -> str:
    """Every address of the service, from its OpenAPI definition, for a small model called "loans"."""
    definition = _definition()
    schemas = definition["components"]["schemas"]
    lines = [
        "# HTTP: reference",
        "",
        "Made from the OpenAPI definition of the service, when this site is built, for a small model called `loans`",
        "with the features `age`, `income` and `job`. A service of yours shows the same of its models at `/docs`, and",
        "the definition itself at `/openapi.json`. [The how-to](../service.md) explains it.",
    ]
    for address, actions in definition["paths"].items():
        for verb, action in actions.items():
            lines += ["", f"## {verb.upper()} {address}", "", _cell(action.get("summary", "")) + "."]
            if action.get("description"):
                lines += ["", action["description"]]
            body = action.get("requestBody", {}).get("content", {}).get("application/json", {})
            if body:
                lines += ["", f"Request: {_type(body['schema'])}"]
                if "example" in body:
                    import json

                    lines += ["", "```json", json.dumps(body["example"], indent=2, ensure_ascii=False), "```"]
            lines += ["", "| status | meaning | content |", "|---|---|---|"]
            for status, response in action["responses"].items():
                content = next(iter(response.get("content", {}).values()), {}).get(
                    "schema"
                )  # of failures it is a problem
                lines += [f"| {status} | {_cell(response['description'])} | {_type(content) if content else ''} |"]
    lines += ["", "## Objects"]
    for name, schema in sorted(schemas.items()):
        lines += ["", f"### {name}", "", *_schema_lines(schema)]
    return "\n".join(lines) + "\n"


def _definition() -> Mapping[str, Any]:
    """What the service says of itself, with one small model, fitted in a moment: nobody asks it anything."""
    import numpy as np
    import pandas as pd

    from counterpath.service import api
    from counterpath.service.dispatcher import Dispatcher

    rng = np.random.default_rng(0)
    age, income = rng.integers(20, 70, 300), rng.normal(30_000, 8_000, 300).round(-2)
    table = pd.DataFrame({"age": age, "income": income, "job": rng.choice(["clerk", "nurse", "sales"], 300)})
    table["loan"] = np.where(income + 200 * age > 38_000, "granted", "refused")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cp.CounterpathWarning)  # it is a bad model, and nobody asks it anything
        explainer = cp.Explainer(epochs=1, hidden=(8,), n_centers=5, seed=0, progress=False).fit(table, target="loan")
    dispatcher = Dispatcher({"loans": explainer})
    try:
        return api.create(dispatcher).openapi()
    finally:
        dispatcher.close()


def _schema_lines(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("description"):
        yield _paragraphs(schema["description"])
        yield ""
    if "enum" in schema:
        yield "One of: " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
    if schema.get("properties"):
        required = set(schema.get("required", ()))
        yield "| field | type | default | meaning |"
        yield "|---|---|---|---|"
        for name, each in schema["properties"].items():
            default = "required" if name in required else f"`{each['default']}`" if "default" in each else ""
            yield f"| `{name}` | {_type(each)} | {_cell(default)} | {_cell(each.get('description', ''))} |"


def _type(schema: Mapping[str, Any] | None) -> str:
    """A type of the definition in words, with links to the objects that it names."""
    if not schema:
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[joined]))
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return _type(schema["allOf"][0])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items'))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(kind)


def _cell(text: str) -> str:
    """A text in one cell of a table."""
    return _plain(text).replace("<", "&lt;")


def _plain(text: str) -> str:
    """Code in one cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").strip()


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: its lines joined into paragraphs."""
    return "\n\n".join(re.sub(r"\s+", " ", part) for part in re.split(r"\n\s*\n", text.replace("\b", "").strip()))

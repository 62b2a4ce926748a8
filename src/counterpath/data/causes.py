"""Which features follow from which: a graph of causes, with equations where they are known.

    education -> income                      an edge: income is an effect of education
    income = 2000 * code(education) + 10 * age   a structural equation, as `data.rules` has expressions

An equation says how an effect changes with its causes; what it leaves of a person's own value stays as it is, as noise
that is added. Where there is none, `models.effects` fits one. A graph has no circles.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpath.data.rules.expressions import Expression, quoted
from counterpath.data.rules.kinds import Derived
from counterpath.data.rules.language import parse_rule
from counterpath.data.schema import KINDS, Schema
from counterpath.utils.errors import InputError, choose

_EXAMPLE = "[('education', 'income')], or texts: ['education -> income', 'income = 2 * hours']"


@dataclass(frozen=True)
class Causes:
    """A graph of causes over features.

    Attributes:
        parents: By effect its causes, in the order in which effects can be computed one after another.
        equations: By effect what it is of them, where that is known.
    """

    parents: Mapping[str, tuple[str, ...]]
    equations: Mapping[str, Expression]

    @property
    def texts(self) -> tuple[str, ...]:
        """The graph as texts, which `parse_causes` turns back."""
        edges = [
            f"{quoted(cause)} -> {quoted(effect)}"
            for effect, causes in self.parents.items()
            for cause in causes
            if effect not in self.equations
        ]
        return (*edges, *(f"{quoted(effect)} = {equation}" for effect, equation in self.equations.items()))


def parse_causes(schema: Schema, given: Any) -> Causes | None:
    """The graph that a user gives; None for none.

    Args:
        schema: What the features are.
        given: Edges, as pairs (cause, effect) or texts "cause -> effect"; a graph with `edges`, as networkx has them;
            a mapping {"edges": …, "equations": {effect: text}}; and among texts equations "effect = …".

    Raises:
        InputError: A feature does not exist or cannot be an effect, or there is a circle; the message names them.
    """
    if given is None or given == () or given == [] or given == {}:
        return None
    if isinstance(given, Causes):
        return given
    edges, equations = _parts(schema, given)
    found = _parents(schema, edges)
    for effect, rule in equations.items():
        rule.bind(schema)  # which checks its features
        beyond = [name for name in found.get(effect, []) if name not in rule.expression.features]
        if beyond:
            raise InputError(
                f"causes has the edge {beyond[0]!r} -> {effect!r}, and the equation {str(rule)!r} without "
                f"{beyond[0]!r}; add it there, or leave the edge out"
            )
        found[effect] = list(rule.expression.features)
    for effect in found:
        if KINDS[schema[effect].kind].one_hot:
            raise InputError(
                f"causes has the effect {effect!r} (kind {schema[effect].kind!r}), whose categories have no order: "
                "what follows is added to a number; declare it ordinal, or leave the edge out"
            )
    order = _in_order(found)
    return Causes(
        {effect: tuple(found[effect]) for effect in order if effect in found},
        {effect: rule.expression for effect, rule in equations.items()},
    )


def _parents(schema: Schema, edges: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """By effect its causes, each once."""
    found: dict[str, list[str]] = {}
    for cause, effect in edges:
        for name in (cause, effect):
            choose("feature in causes:", name, {each.name: each for each in schema})
        if cause == effect:
            raise InputError(f"causes has {cause!r} as a cause of itself; leave that edge out")
        if cause not in found.setdefault(effect, []):
            found[effect].append(cause)
    return found


def _parts(schema: Schema, given: Any) -> tuple[list[tuple[str, str]], dict[str, Derived]]:
    """The edges and the equations of what a user gives."""
    named: Mapping[str, Any] = {}
    texts: Iterable[Any]
    if isinstance(given, Mapping):
        if not given.keys() <= {"edges", "equations"}:
            raise InputError(f"causes is {given!r}; expected 'edges' and 'equations', or {_EXAMPLE}")
        texts, named = given.get("edges", ()), given.get("equations", {})
    else:
        texts = _listed(given)
    edges: list[tuple[str, str]] = []
    equations: dict[str, Derived] = {}
    for each in texts:
        if isinstance(each, str) and "->" in each:
            cause, _, effect = each.partition("->")
            edges.append((_name(cause), _name(effect)))
        elif isinstance(each, str):
            _add(equations, each, schema)
        elif isinstance(each, Sequence) and len(each) >= 2 and all(isinstance(name, str) for name in each[:2]):
            edges.append((each[0], each[1]))
        else:
            raise InputError(f"causes has {each!r}; expected a pair (cause, effect) or a text, as in {_EXAMPLE}")
    for effect, text in named.items():
        _add(equations, f"{quoted(str(effect))} = {text}", schema)
    return edges, equations


def _listed(given: Any) -> Iterable[Any]:
    """Edges and texts one after another, of a list, of one text, or of a graph of networkx or one like it."""
    if isinstance(given, str):
        return [given]
    if hasattr(given, "edges"):
        if getattr(given, "is_directed", lambda: True)() is False:
            raise InputError("causes is a graph without directions; expected a directed one, such as networkx.DiGraph")
        return list(given.edges() if callable(given.edges) else given.edges)
    if not isinstance(given, Iterable):
        raise InputError(f"causes is {given!r}; expected edges such as {_EXAMPLE}")
    return given


def _add(equations: dict[str, Derived], text: str, schema: Schema) -> None:
    rule = parse_rule(text, schema.names)
    if not isinstance(rule, Derived):
        raise InputError(f"causes has {text!r}; expected an edge 'cause -> effect' or an equation 'effect = …'")
    if rule.feature in equations:
        raise InputError(f"causes has two equations of {rule.feature!r}; leave one of them")
    equations[rule.feature] = rule


def _name(text: str) -> str:
    """The name of a feature, without the backquotes that may be around it."""
    plain = text.strip()
    if plain.startswith("`") and plain.endswith("`") and len(plain) > 1:
        plain = plain[1:-1].replace("\\`", "`").replace("\\\\", "\\")
    return plain


def _in_order(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Features, each after all of its causes."""
    ordered: list[str] = []
    waiting: list[str] = []

    def visit(name: str) -> None:
        if name in ordered:
            return
        if name in waiting:
            circle = [*waiting[waiting.index(name) :], name]
            raise InputError(f"causes has a circle: {' ← '.join(circle)}; leave out one of these edges")
        waiting.append(name)
        for cause in parents.get(name, ()):
            visit(cause)
        waiting.pop()
        ordered.append(name)

    for name in parents:
        visit(name)
    return ordered

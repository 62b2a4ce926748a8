"""The language of rules: a text to a rule, by recursive descent; nothing in it is ever evaluated as code."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from counterpath.data.rules.expressions import FUNCTIONS, WORDS, Call, Constant, Expression, Literal, Name, Operation
from counterpath.data.rules.kinds import (
    ANYTHING,
    COMPARISONS,
    ChangeImplies,
    Comparison,
    Condition,
    Derived,
    Implication,
    Membership,
    Relation,
    Rule,
    Transition,
)
from counterpath.data.schema import Schema
from counterpath.utils.errors import InputError

_LONGEST = 2000  # characters of a rule: what is longer nobody reads, and its parts can be rules of their own
_DEEPEST = 40  # nested brackets: far below where Python's own stack ends

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<name>`(?:[^`\\]|\\.)+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>=>|->|<=|>=|==|!=|[-+*/()=<>:,|\[\]])
    )""",
    re.VERBOSE,
)
_DIRECTIONS = frozenset(("up", "down", "changes"))
_ALIASES = {"≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "⇒": "=>"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str, names: Sequence[str]) -> Iterator[_Token]:
    """The tokens of a rule; of several names that begin somewhere the longest is taken."""
    ordered = sorted((name for name in names if not re.fullmatch(r"[^\W\d]\w*", name)), key=len, reverse=True)
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        known = next((name for name in ordered if text.startswith(name, at) and _ends(text, at + len(name))), None)
        if known is not None and known.strip() == known:
            yield _Token("name", known, at)
            at += len(known)
            continue
        if text[at] in _ALIASES:
            yield _Token("sign", _ALIASES[text[at]], at)
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise InputError(
                f"the rule {_short(text)!r} has {text[at]!r} at character {at + 1}, which is not understood"
            )
        kind = str(match.lastgroup)
        found = match.group(kind)
        if kind in ("text", "name"):
            found = re.sub(r"\\(.)", r"\1", found[1:-1], flags=re.DOTALL)
        yield _Token(kind, found, at)
        at = match.end()


def _ends(text: str, at: int) -> bool:
    """Whether a name ends here: nothing that belongs to a word follows."""
    return at >= len(text) or not (text[at].isalnum() or text[at] == "_")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}…"


_FORMS = (
    'a <= b + c, job in ["Sales", "Tech"], education == "Doctorate" => age >= 27, education up => age up by 2 per '
    'level, status: "A" -> "B" forbidden, or ratio = debt / income'
)


class _Parser:
    """Recursive descent over the tokens of one rule."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text, self.depth = text, 0
        self.tokens = list(_tokens(text, names))
        self.at = 0

    def rule(self) -> Rule:
        if not self.tokens:
            raise InputError(f"a rule is empty; expected something like {_FORMS}")
        found = self._rule()
        if self.at < len(self.tokens):
            raise self.error("the rule to end")
        return found

    def _rule(self) -> Rule:
        first, second = self.peek(), self.peek(1)
        if self.is_name(first) and second is not None:
            if second.text == ":" and second.kind == "sign":
                return self.transition()
            if second.text == "=" and second.kind == "sign":
                name = self.name()
                self.take("=")
                return Derived(name, self.sum())
            if second.kind == "word" and second.text in _DIRECTIONS:
                return self.change()
        left = self.conditions()
        if self.accept("=>"):
            return Implication(left, self.conditions())
        if len(left) > 1:
            raise InputError(f"the rule {_short(self.text)!r} joins conditions by and; make each of them a rule")
        return left[0]

    def transition(self) -> Transition:
        name = self.name()
        self.take(":")
        before = self.alternatives()
        self.take("->")
        after = self.alternatives()
        word = self.next("forbidden or allowed")
        if word.kind != "word" or word.text not in ("forbidden", "allowed"):
            self.at -= 1
            raise self.error("forbidden or allowed")
        return Transition(name, before, after, word.text == "allowed")

    def alternatives(self) -> tuple[Literal, ...]:
        if self.accept(ANYTHING):
            return ()
        found = [self.literal()]
        while self.accept("|"):
            found.append(self.literal())
        return tuple(found)

    def change(self) -> ChangeImplies:
        name, direction = self.name(), self.direction()
        self.take("=>")
        other, other_direction = self.name(), self.direction()
        by: int | float = 0
        per: int | float | None = None
        if self.accept_word("by"):
            by = self.number()
            if self.accept_word("per"):
                word = self.peek()
                if word is not None and word.kind == "word" and word.text in ("level", "levels", "unit", "units"):
                    self.at, per = self.at + 1, 1
                else:
                    per = self.number()
        if self.peek() is not None:
            raise self.error("by, per, or the rule to end")
        if by == 0 and per is not None:
            raise InputError(f"the rule {_short(self.text)!r} says by 0; expected a positive number")
        return ChangeImplies(name, direction, other, other_direction, by, per)

    def direction(self) -> str:
        token = self.next("up, down or changes")
        if token.kind != "word" or token.text not in _DIRECTIONS:
            self.at -= 1
            raise self.error("up, down or changes")
        return token.text

    def conditions(self) -> tuple[Condition, ...]:
        found = [self.condition()]
        while self.accept_word("and"):
            found.append(self.condition())
        return tuple(found)

    def condition(self) -> Condition:
        first, second, third = self.peek(), self.peek(1), self.peek(2)
        if self.is_name(first) and second is not None:
            if second.kind == "word" and second.text in ("in", "not"):
                return self.membership()
            literal = third is not None and (third.kind == "text" or self.is_truth(third))
            if second.text in COMPARISONS and second.kind == "sign" and literal:
                name, sign = self.name(), self.next("").text
                return Comparison(name, sign, self.literal())
        left = self.sum()
        token = self.next("one of <= >= < > == !=")
        if token.kind != "sign" or token.text not in COMPARISONS:
            self.at -= 1
            raise self.error("one of <= >= < > == !=")
        return Relation(left, token.text, self.sum())

    def membership(self) -> Membership:
        name = self.name()
        negated = self.accept_word("not")
        if not self.accept_word("in"):
            raise self.error("in")
        self.take("[")
        found = [self.literal()]
        while self.accept(","):
            found.append(self.literal())
        self.take("]")
        return Membership(name, tuple(found), negated)

    def sum(self) -> Expression:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise InputError(f"the rule {_short(self.text)!r} has more than {_DEEPEST} brackets in each other")
        found = self.product()
        while (token := self.peek()) is not None and token.kind == "sign" and token.text in "+-":
            self.at += 1
            found = Operation(token.text, found, self.product())
        self.depth -= 1
        return found

    def product(self) -> Expression:
        found = self.factor()
        while (token := self.peek()) is not None and token.kind == "sign" and token.text in "*/":
            self.at += 1
            found = Operation(token.text, found, self.factor())
        return found

    def factor(self) -> Expression:
        signs = 0
        while (token := self.peek()) is not None and token.kind == "sign" and token.text in "+-":
            signs, self.at = signs + (token.text == "-"), self.at + 1
        found = self.atom()
        if signs % 2 == 0:
            return found
        if isinstance(found, Constant):
            return Constant(-found.value)
        return Operation("*", Constant(-1), found)

    def atom(self) -> Expression:
        token = self.next("a number or a feature")
        if token.kind == "number":
            return Constant(self._plain(token))
        if token.kind == "sign" and token.text == "(":
            found = self.sum()
            self.take(")")
            return found
        if token.kind == "word" and token.text == "code":
            self.take("(")
            name = self.name()
            self.take(")")
            return Name(name, coded=True)
        if token.kind == "word" and token.text in FUNCTIONS and self.accept("("):
            argument = self.sum()
            self.take(")")
            return Call(token.text, argument)
        self.at -= 1
        if self.is_name(token):
            return Name(self.name())
        raise self.error("a number or a feature")

    def number(self) -> int | float:
        negative = self.accept("-")
        token = self.next("a number")
        if token.kind != "number":
            self.at -= 1
            raise self.error("a number")
        return -self._plain(token) if negative else self._plain(token)

    def _plain(self, token: _Token) -> int | float:
        value = float(token.text)
        if not math.isfinite(value):
            raise InputError(f"the rule {_short(self.text)!r} has the number {_short(token.text)}, which is too large")
        whole = token.text.isdigit() and abs(value) < 2**53
        return int(token.text) if whole else value

    def literal(self) -> Literal:
        token = self.peek()
        if token is not None and (token.kind == "text" or self.is_truth(token)):
            self.at += 1
            return token.text if token.kind == "text" else token.text == "true"
        return self.number()

    def name(self) -> str:
        token = self.next("a feature")
        if not self.is_name(token):
            self.at -= 1
            raise self.error("a feature")
        return token.text

    @staticmethod
    def is_truth(token: _Token) -> bool:
        return token.kind == "word" and token.text in ("true", "false")

    @staticmethod
    def is_name(token: _Token | None) -> bool:
        return token is not None and (token.kind == "name" or (token.kind == "word" and token.text not in WORDS))

    def peek(self, ahead: int = 0) -> _Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def next(self, expected: str) -> _Token:
        token = self.peek()
        if token is None:
            raise self.error(expected)
        self.at += 1
        return token

    def accept(self, sign: str) -> bool:
        token = self.peek()
        found = token is not None and token.kind == "sign" and token.text == sign
        self.at += int(found)
        return found

    def accept_word(self, word: str) -> bool:
        token = self.peek()
        found = token is not None and token.kind == "word" and token.text == word
        self.at += int(found)
        return found

    def take(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(repr(sign))

    def error(self, expected: str) -> InputError:
        token = self.peek()
        found = "it ends" if token is None else f"there is {_short(token.text)!r} at character {token.at + 1}"
        return InputError(
            f"the rule {_short(self.text)!r} cannot be read: {found}, where {expected} was expected; a rule is like "
            f"{_FORMS}; a name that is no word stands in backquotes"
        )


def parse_rule(text: str | Rule, names: Sequence[str] = ()) -> Rule:
    """The rule that a text says; an object is returned as it is.

    Args:
        text: The rule.
        names: Features whose names are known though they are no words.

    Raises:
        InputError: It cannot be read; the message says where, and what was expected.

    Example:
        >>> str(parse_rule("rent+savings<=income"))
        'rent + savings <= income'
    """
    if isinstance(text, Rule):
        return text
    if not isinstance(text, str):
        raise InputError(f"a rule is {text!r}; expected a text such as {_FORMS}")
    if len(text) > _LONGEST:
        raise InputError(f"a rule has {len(text)} characters, more than {_LONGEST}: {_short(text)!r}; make it several")
    return _parsed(text, tuple(names))


@lru_cache(maxsize=1024)  # a request reads its rules several times over, and services are asked the same ones anew
def _parsed(text: str, names: tuple[str, ...]) -> Rule:
    return _Parser(text, names).rule()


def parse_rules(schema: Schema, given: Any, option: str = "rules") -> tuple[Rule, ...]:
    """Rules of a user, bound to a schema, each once; one alone will do.

    Raises:
        InputError: One of them cannot be read, or is about something that the schema does not have.
    """
    if given is None:
        return ()
    if isinstance(given, str | Rule):
        given = (given,)
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{option} is {given!r}; expected a list of rules such as {_FORMS}")
    found = [parse_rule(each, schema.names).bind(schema) for each in given]
    return tuple({str(each): each for each in found}.values())

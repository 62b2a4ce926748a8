"""Arithmetic on features, as rules and structural equations have it."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Literal: TypeAlias = str | bool | int | float
DIGITS = 1e-12  # by this share sums of decimals may be off in float64: 0.1 + 0.2 is 0.3 for people

WORDS = frozenset(("up", "down", "changes", "and", "in", "not", "code", "true", "false"))
"""Words of the language; a feature of such a name is put in backquotes."""


@runtime_checkable
class Values(Protocol):
    """The values of n rows, as numbers in original units; the number of a category is its index."""

    def number(self, feature: str) -> Float[Tensor, "n"]:
        """The numbers of a feature, in float64."""
        ...

    def known(self, feature: str) -> Bool[Tensor, "n"]:
        """Where it is neither a code nor a gap."""
        ...

    def slack(self, feature: str) -> Float[Tensor, "n"]:
        """By how much the number that is displayed may differ from this one."""
        ...

    def rounding(self, feature: str) -> Float[Tensor, "n"]:
        """How far the nearest legal number of the feature may be from any number."""
        ...

    def changed(self, feature: str) -> Bool[Tensor, "n"]:
        """Where it is not as it was before anything changed."""
        ...


class Expression(ABC):
    """Arithmetic on features."""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The features in it."""

    @abstractmethod
    def compute(self, values: Values) -> Float[Tensor, "n"]:
        """Its value; not finite where it divides by zero."""

    @abstractmethod
    def affine(self) -> tuple[dict[str, float], float] | None:
        """Its coefficients by feature and its constant; None if it is not linear."""

    precedence = 3


@dataclass(frozen=True)
class Constant(Expression):
    """A number."""

    value: int | float

    @property
    def features(self) -> tuple[str, ...]:
        """None."""
        return ()

    def compute(self, values: Values) -> Tensor:
        """The number."""
        return torch.tensor(float(self.value), dtype=torch.float64)

    def affine(self) -> tuple[dict[str, float], float]:
        """A constant."""
        return {}, float(self.value)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Name(Expression):
    """The value of a feature, or with `coded` the number of its category, counted from 0."""

    feature: str
    coded: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The feature."""
        return (self.feature,)

    def compute(self, values: Values) -> Tensor:
        """Its numbers."""
        return values.number(self.feature)

    def affine(self) -> tuple[dict[str, float], float]:
        """The feature once."""
        return {self.feature: 1.0}, 0.0

    def __str__(self) -> str:
        return f"code({quoted(self.feature)})" if self.coded else quoted(self.feature)


@dataclass(frozen=True)
class Operation(Expression):
    """Two expressions, and one of + - * / between them."""

    sign: str
    left: Expression
    right: Expression

    @property
    def precedence(self) -> int:  # type: ignore[override]
        """How tightly it binds: products before sums."""
        return 1 if self.sign in "+-" else 2

    @property
    def features(self) -> tuple[str, ...]:
        """Those of both."""
        return tuple(dict.fromkeys((*self.left.features, *self.right.features)))

    def compute(self, values: Values) -> Tensor:
        """Of both values; a division by zero is not finite."""
        return _ARITHMETIC[self.sign](self.left.compute(values), self.right.compute(values))

    def affine(self) -> tuple[dict[str, float], float] | None:
        """Sums of linear parts, and their multiples."""
        left, right = self.left.affine(), self.right.affine()
        if left is None or right is None:
            return None
        (first, one), (second, other) = left, right
        if self.sign in "+-":
            sign = 1.0 if self.sign == "+" else -1.0
            both = {name: _sum(first.get(name, 0.0), sign * second.get(name, 0.0)) for name in (*first, *second)}
            return both, one + sign * other
        if self.sign == "*" and not first:
            return {name: one * factor for name, factor in second.items()}, one * other
        if second or (self.sign == "/" and other == 0):
            return None
        factor = other if self.sign == "*" else 1 / other
        return {name: factor * of for name, of in first.items()}, factor * one

    def __str__(self) -> str:
        left = _bracketed(self.left, self.precedence)
        return f"{left} {self.sign} {_bracketed(self.right, self.precedence + 1)}"


@dataclass(frozen=True)
class Call(Expression):
    """One of a few functions of an expression."""

    function: str
    argument: Expression

    @property
    def features(self) -> tuple[str, ...]:
        """Those of the argument."""
        return self.argument.features

    def compute(self, values: Values) -> Tensor:
        """Of its value; not finite where it is not defined."""
        return FUNCTIONS[self.function](self.argument.compute(values))

    def affine(self) -> None:
        """It is not linear."""
        return

    def __str__(self) -> str:
        return f"{self.function}({self.argument})"


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
}
"""The functions that an expression may call, by name."""


def _sum(one: float, other: float) -> float:
    """Of two coefficients; 0 where that is all but for rounding: 0.1 + 0.2 − 0.3 is 0 for people."""
    total = one + other
    return 0.0 if abs(total) <= DIGITS * max(abs(one), abs(other)) else total


_ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
}


def _bracketed(part: Expression, precedence: int) -> str:
    return str(part) if part.precedence >= precedence else f"({part})"


def quoted(name: str) -> str:
    """The name of a feature as a rule has it: in backquotes unless it is a word, and none of the language's."""
    plain = re.fullmatch(r"[^\W\d]\w*", name) is not None and name not in WORDS
    return name if plain else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal_text(value: Literal) -> str:
    """A value as a rule has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

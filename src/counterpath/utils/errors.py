"""Errors that say what was given, what was expected, and what to try."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


class CounterpathError(Exception):
    """Base of every error that Counterpath raises on purpose."""


class CounterpathWarning(UserWarning):
    """Something that works, but probably not as well as it should."""


class InputError(CounterpathError, ValueError):
    """The caller's data or arguments cannot be used as they are."""


class RowsError(InputError):
    """Some rows cannot be used as they are, and the others can.

    Attributes:
        reasons: By the index label of every row that cannot be used, why not.
    """

    def __init__(self, reasons: Mapping[Any, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = dict(reasons)


class NotFittedError(CounterpathError, RuntimeError):
    """A model was used before it was fitted."""


class TrainingError(CounterpathError, RuntimeError):
    """Training cannot go on."""


class CheckpointError(TrainingError):
    """A checkpoint is damaged, or belongs to another training; without it training can start over."""


class GeometryError(CounterpathError, ArithmeticError):
    """A metric is not positive definite, or a curve cannot be found."""


class MethodError(CounterpathError, RuntimeError):
    """A search method returned what is no answer: an illegal, invalid or foreign row."""


class StoreError(CounterpathError, ValueError):
    """A model directory is missing, foreign, damaged, or of a newer version."""


class BatchError(CounterpathError, RuntimeError):
    """A batch job cannot go on; what was done is kept, and the same command goes on from there."""


class MissingExtraError(CounterpathError, ImportError):
    """An optional library is needed and not installed."""


def choose(kind: str, name: str, options: Mapping[str, T]) -> T:
    """Return `options[name]`, or raise an error that lists the valid names."""
    if name in options:
        return options[name]
    raise InputError(f"unknown {kind} {name!r}{_suggestion(name, options)}; choose one of: {', '.join(options)}")


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional `module`, or raise an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        message = f"{purpose} needs the library {module!r}: install it with  pip install 'counterpath[{extra}]'"
        raise MissingExtraError(message) from error


def _suggestion(name: str, options: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(options), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

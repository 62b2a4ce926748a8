"""Objects of a user's own modules, imported by name."""

import importlib
from typing import Any

from counterpath.utils.errors import InputError


def import_object(text: str) -> Any:
    """The object that `module:attribute` names.

    Raises:
        InputError: The text is not of that form, or the module cannot be imported, or has no such attribute.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise InputError(f"--model {text!r} is not module:attribute, for instance scoring:pipeline for scoring.py")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever a user's module does when it is imported
        raise InputError(f"--model {text!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found

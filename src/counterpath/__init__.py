"""Counterfactual explanations with realistic paths.

Names are imported when they are first used: neither `import counterpath` nor `counterpath --help` loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import counterpath.utils.threads  # noqa: F401  # it sets a variable of the environment that torch reads when imported

if TYPE_CHECKING:  # for type checkers and editors; at run time: see `_LAZY`
    from counterpath.data import Encoder, Feature, Schema, datasets
    from counterpath.data.status import Status, StatusCode
    from counterpath.explainer import Comparison, Explainer, compare
    from counterpath.explainer.request import Request
    from counterpath.explanation import Explanation
    from counterpath.search.method import Method
    from counterpath.utils.errors import CounterpathError, CounterpathWarning, InputError

    load = Explainer.load

__version__ = "0.1.0.dev0"

_LAZY = {
    "Comparison": "counterpath.explainer.compare",
    "CounterpathError": "counterpath.utils.errors",
    "CounterpathWarning": "counterpath.utils.errors",
    "Encoder": "counterpath.data.encoding",
    "Explainer": "counterpath.explainer.explainer",
    "Explanation": "counterpath.explanation.result",
    "Feature": "counterpath.data.schema",
    "InputError": "counterpath.utils.errors",
    "Method": "counterpath.search.method",
    "Request": "counterpath.explainer.request",
    "Schema": "counterpath.data.schema",
    "Status": "counterpath.data.status",
    "StatusCode": "counterpath.data.status",
    "compare": "counterpath.explainer.compare",
}
"""Where each public name is defined."""

__all__ = [
    "Comparison",
    "CounterpathError",
    "CounterpathWarning",
    "Encoder",
    "Explainer",
    "Explanation",
    "Feature",
    "InputError",
    "Method",
    "Request",
    "Schema",
    "Status",
    "StatusCode",
    "__version__",
    "compare",
    "datasets",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        value: Any = import_module("counterpath.data.datasets")
    elif name == "load":
        value = import_module(_LAZY["Explainer"]).Explainer.load
    elif name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next time it is found without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

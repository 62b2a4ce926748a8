"""A question about people, as a value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from counterpath.answering import OTHER
from counterpath.data.schema import Number
from counterpath.explanation.keeping import ALL


@dataclass(frozen=True)
class Asked:
    """What is asked for, beside the rows: the arguments of `Explainer.explain`, which says what each means."""

    target_class: Any = OTHER
    confidence: float = 0.5
    method: str | None = None
    keep: str = ALL
    lock: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Any] = field(default_factory=dict)
    max_changes: int | None = None
    difficulty: Mapping[str, Number] = field(default_factory=dict)
    plans: int = 1

    @property
    def key(self) -> str:
        """Equal for equal questions: those can be answered together. It tells 1 from True and from 1.0."""
        return json.dumps(vars(self), sort_keys=True, default=repr)

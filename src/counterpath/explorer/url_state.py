"""What stands on the page as one value, which fits an address: to share it, to reload it, and to undo a change.

It is the fragment of the address, after `#`, which a browser keeps to itself: no request, no log and no other site has
it. It holds what was entered, and nothing by which anybody is let in.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from counterpath.data.schema import Schema
from counterpath.data.times import value_text
from counterpath.explorer.state import FeatureConstraint
from counterpath.utils.errors import InputError

LONGEST = 20_000
"""Characters of a link that is read: many times what the largest form needs, and quickly parsed."""
_MOST_UNDONE = 200
"""States that are kept for undoing: an hour of work."""
_UNREADABLE = "This link cannot be read: {}. The page shows the first person instead."


@dataclass(frozen=True)
class PageState:
    """All that was entered on the tab of one person.

    Attributes:
        row: The position of the person in the table of the page; None for somebody from another table.
        values: By feature the value, as its field has it.
        constraints: By feature what may become of it.
        rules: What must hold between features.
        asked: By name what the fields of the request hold.
    """

    row: int | None
    values: Mapping[str, Any]
    constraints: Mapping[str, FeatureConstraint]
    rules: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, defaults: "PageState") -> dict[str, Any]:
        """As a value of JSON: only what differs from the defaults, which are of the same person as in the table."""
        plain = {name: _plain(value) for name, value in self.values.items()}
        before = {name: _plain(value) for name, value in defaults.values.items()}
        limits = {
            name: _changed_fields(constraint, defaults.constraints[name])
            for name, constraint in self.constraints.items()
            if constraint != defaults.constraints[name]
        }
        parts = {
            "row": self.row,
            "values": {name: value for name, value in plain.items() if value != before.get(name) or self.row is None},
            "limits": limits,
            "rules": list(self.rules),
            "asked": {name: each for name, each in self.asked.items() if each != defaults.asked.get(name)},
        }
        return {name: part for name, part in parts.items() if part not in ({}, [], None)}


def _changed_fields(constraint: FeatureConstraint, default: FeatureConstraint) -> dict[str, Any]:
    before, after = dataclasses.asdict(default), dataclasses.asdict(constraint)
    return {name: _plain(value) for name, value in after.items() if value != before[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    return value if value is None or isinstance(value, str | int | float | bool) else value_text(value)


def to_fragment(parts: Mapping[str, Any]) -> str:
    """The fragment of an address that says so, with its `#`."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return "#" + quote(text, safe='{}":,[]') if parts else "#"


def from_fragment(fragment: str) -> dict[str, Any]:
    """What a fragment says; nothing if it is empty.

    Raises:
        InputError: It is not one that `to_fragment` wrote.
    """
    text = unquote(fragment.removeprefix("#"))
    if not text:
        return {}
    if len(text) > LONGEST:
        raise InputError(_UNREADABLE.format("it is too long"))
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(_UNREADABLE.format("it is damaged")) from error
    expected = {"row": int, "values": dict, "limits": dict, "rules": list, "asked": dict, "plans": bool}
    if not isinstance(parts, dict) or not all(
        name in expected and type(part) is expected[name] for name, part in parts.items()
    ):
        raise InputError(_UNREADABLE.format("it is not a link of this page"))
    return parts


def from_parts(parts: Mapping[str, Any], defaults: PageState, schema: Schema) -> PageState:
    """The state that the parts of a link say, where they say nothing the defaults.

    Raises:
        InputError: A part is not of this model.
    """
    values, limits, asked = (parts.get(name, {}) for name in ("values", "limits", "asked"))
    unknown = sorted({*values, *limits} - {*schema.names}) + sorted(set(asked) - set(defaults.asked))
    if unknown:
        raise InputError(_UNREADABLE.format(f"this model has no {unknown[0]}"))
    if not all(isinstance(rule, str) for rule in parts.get("rules", [])):
        raise InputError(_UNREADABLE.format("a rule in it is no text"))
    constraints = dict(defaults.constraints)
    for name, changed in limits.items():
        constraints[name] = _constraint(changed, constraints[name])
    return PageState(
        parts.get("row"),
        {**defaults.values, **values},
        constraints,
        tuple(parts.get("rules", ())),
        {**defaults.asked, **asked},
    )


_NUMBER: tuple[type, ...] = (int, float, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    "locked": (bool,),
    "direction": (str,),
    "low": (str, bool, *_NUMBER),
    "high": (str, bool, *_NUMBER),
    "allowed": (list,),
    "stays": (bool,),
    "cost": _NUMBER,
}


def _constraint(changed: Any, default: FeatureConstraint) -> FeatureConstraint:
    if not isinstance(changed, dict) or not all(
        name in _TYPES and type(value) in _TYPES[name] for name, value in changed.items()
    ):
        raise InputError(_UNREADABLE.format("a limit in it is damaged"))
    made = {**changed, "allowed": tuple(changed["allowed"])} if "allowed" in changed else changed
    return dataclasses.replace(default, **made)


class History:
    """The states that the page had, to go back and forth between them."""

    def __init__(self) -> None:
        self._past: list[PageState] = []
        self._future: list[PageState] = []
        self._now: PageState | None = None

    @property
    def can_undo(self) -> bool:
        """Whether there is a state before this one."""
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        """Whether a state was undone."""
        return bool(self._future)

    def record(self, state: PageState, *, same_edit: bool = False) -> None:
        """Note what stands on the page now.

        Args:
            state: What stands there.
            same_edit: Whether it goes on with the edit before, as the next digit of a number does.
        """
        if state == self._now:
            return
        if self._now is not None and not same_edit:
            self._past = [*self._past, self._now][-_MOST_UNDONE:]
        self._now, self._future = state, []

    def undo(self) -> PageState:
        """The state before."""
        assert self._now is not None
        self._future.append(self._now)
        self._now = self._past.pop()
        return self._now

    def redo(self) -> PageState:
        """The state that was undone last."""
        assert self._now is not None
        self._past.append(self._now)
        self._now = self._future.pop()
        return self._now

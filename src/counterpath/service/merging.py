"""Requests as one search: what rows may ask for by themselves, and what all rows of a search must have in common."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation.tables import ALL, END, MILESTONES
from counterpath.search.methods import resolve_method

Own = tuple[Mapping[str, Any], ...]
"""What each row of a request asks for by itself, as `Request.row_constraints`."""
_BY_NAMES, _BY_FEATURE = ("lock", "unlock"), ("directions", "ranges")
_BY_LENGTH = (END, MILESTONES, ALL)
"""What may be kept of paths, the least first."""
_NOTHING = object()


def split(request: Request, explainer: Explainer, count: int) -> tuple[Request, Own | None]:
    """What a request has in common with others, and what each of its rows asks for by itself.

    Where the method searches row by row, rows bring their target, confidence and bounds along, how many plans they
    want, and how much of the paths; all else that is asked for, and with other methods all of it, must be the same for
    all rows of a search.

    Args:
        request: The request.
        explainer: Whose model it is for.
        count: How many rows it has.

    Returns:
        What all rows of a search must have in common; and what each row brings along, or None if that is nothing.
    """
    untimed = replace(request, time_limit=None)  # the deadlines of the jobs of a batch count instead
    if not searches_together(request, explainer):
        return untimed, None
    rows = request.row_constraints or ({},) * count
    emptied: dict[str, Any] = {"lock": (), "unlock": (), "directions": {}, "ranges": {}}
    answers: dict[str, Any] = {"plans": request.plans, "paths": request.paths}
    common = replace(untimed, row_constraints=(), plans=1, paths=END, **emptied)
    if explainer.models_.explained.numbers:  # of a regressor the numbers that are wanted are the same for all rows
        return common, tuple(answers | _own(request, row) for row in rows)
    common = replace(common, target_class=OTHER, confidence=None)
    return common, tuple(answers | _targets(request) | _own(request, row) for row in rows)


def searches_together(request: Request, explainer: Explainer) -> bool:
    """Whether the method searches row by row, so that requests need not be equal to be one search."""
    return resolve_method(explainer.method if request.method is None else request.method).row_by_row


def joined(common: Request, rows: Own) -> Request:
    """The request for rows that bring along what they ask for: what all of them ask for is asked for together."""
    plans = max((row.get("plans", common.plans) for row in rows), default=common.plans)
    paths = max((row.get("paths", common.paths) for row in rows), default=common.paths, key=_BY_LENGTH.index)
    whole: dict[str, Any] = {"plans": plans, "paths": paths}
    kept = tuple({name: asked for name, asked in row.items() if whole.get(name, _NOTHING) != asked} for row in rows)
    return replace(common, **whole, row_constraints=kept if any(kept) else ())


def _targets(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {} if request.target_class == OTHER else {"target_class": request.target_class}
    return found if request.confidence is None else found | {"confidence": request.confidence}


def _own(request: Request, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's own constraints with those of its request beside them: where both say something, the row's count."""
    found = dict(row)
    for name in _BY_NAMES:
        if names := (*getattr(request, name), *row.get(name, ())):
            found[name] = list(dict.fromkeys(names))
    for name in _BY_FEATURE:
        if values := {**getattr(request, name), **row.get(name, {})}:
            found[name] = values
    return found

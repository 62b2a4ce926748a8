"""From the tables of an explanation to rows that can be told."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.plans import PLAN, PLANS, own_labels, plan_numbers, plans_held
from counterpath.explanation.status import FOUND, Status


def amounts(schema: Schema, frame: pd.DataFrame) -> frozenset[str]:
    """The features that are numbers, so that it makes sense to say by how much they changed."""
    names = (feature.name for feature in schema if not feature.categories)
    return frozenset(name for name in names if is_numeric_dtype(frame[name]) and not is_bool_dtype(frame[name]))


def ranges(old: pd.DataFrame, new: pd.DataFrame, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """From where to where each number goes in the rows as asked and as returned."""
    low, high = (
        {name: [float(getattr(frame[name].astype(float), end)()) for frame in (old, new)] for name in names}
        for end in ("min", "max")
    )
    return {name: (min(low[name]), max(high[name])) for name in sorted(names)}


def headline(statuses: Sequence[str], request: Mapping[str, Any], people: Sequence[int]) -> str:
    """One line about all rows, given the number of each one's person."""
    rows, told = _rows(len(statuses)), _counted(statuses)
    if plans_held(request) > 1:
        count = len(set(people))
        rows = f"{count} {'person' if count == 1 else 'people'}, up to {request[PLANS]} plans each"
        told = _plans_counted(statuses, people)
    elif request.get(PLAN) is not None:
        rows = f"{rows}, plan {request[PLAN]} of {request[PLANS]}"
    wanted = wording.outcome(wording.value(request["target_class"]))
    asked = f"method {request['method']}, wanted {wanted}, confidence {wording.value(request['confidence'])}"
    return f"Explanation of {rows}: {told} ({asked})"


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _counted(statuses: Sequence[str]) -> str:
    found = sum(status in FOUND for status in statuses)
    return ", ".join([f"{found} found{_across(statuses)}", *_others(statuses)])


def _others(statuses: Sequence[str]) -> list[str]:
    """What became of the rows without a counterfactual, each with their number."""
    counts = {kind: statuses.count(kind) for kind in Status if not kind.found}
    return [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count]


def _across(statuses: Sequence[str]) -> str:
    count = statuses.count(Status.CROSSES_GAP)
    return f" ({count} of them across a gap in the data)" if count else ""


def _plans_counted(statuses: Sequence[str], people: Sequence[int]) -> str:
    """How many plans those have who have any; then what became of the other people, of whom the first row tells."""
    lucky = {person for status, person in zip(statuses, people, strict=True) if status in FOUND}
    theirs = [status for status, person in zip(statuses, people, strict=True) if person in lucky]
    first = {person: status for status, person in zip(reversed(statuses), reversed(people), strict=True)}
    others = [status for person, status in first.items() if person not in lucky]
    found = sum(status in FOUND for status in theirs)
    plans = f"{found} plan{'' if found == 1 else 's'} found"
    for_whom = f"{plans} for {len(lucky)} {'person' if len(lucky) == 1 else 'people'}" if lucky else plans
    with_plans = ", ".join([for_whom + _across(theirs), *_others(theirs)])
    return "; ".join([with_plans, *([", ".join(_others(others))] if others else [])])


def changed_places(changed: pd.DataFrame, features: Sequence[str]) -> list[tuple[int, str]]:
    """Which feature changed in which row, by position, row after row."""
    rows, places = np.nonzero(changed[list(features)].to_numpy(bool))
    return [(row, features[place]) for row, place in zip(rows.tolist(), places.tolist(), strict=True)]


def list_changes(frames: Mapping[str, pd.DataFrame], features: Sequence[str], amounts: Collection[str]) -> pd.DataFrame:
    """One row a changed feature, under the label of its row; see `Explanation.changes` for the columns.

    Args:
        frames: `factuals`, `counterfactuals` and `changed`.
        features: The features, in the order in which their changes are told.
        amounts: Those that are numbers, and have a difference.
    """
    places = changed_places(frames["changed"], features)
    old, new = _values(frames, features)
    columns = {
        "feature": [name for _, name in places],
        "from": [old[name][row] for row, name in places],
        "to": [new[name][row] for row, name in places],
        "change": [new[name][row] - old[name][row] if name in amounts else "" for row, name in places],
    }
    index = frames["factuals"].index[[row for row, _ in places]]
    return pd.DataFrame(columns, index=index, dtype=object).astype({"feature": str})


def tell(
    frames: Mapping[str, pd.DataFrame], features: Sequence[str], amounts: Collection[str], request: Mapping[str, Any]
) -> list[wording.Row]:
    """Describe rows.

    Args:
        frames: `factuals`, `counterfactuals`, `status`, `outcome` and `changed` of these rows.
        features: The features, in the order in which their changes are told.
        amounts: Those that are numbers and rise or fall; others change.
        request: What was asked for.
    """
    old, new = _values(frames, features)
    changes: dict[int, list[wording.Change]] = defaultdict(list)
    for row, name in changed_places(frames["changed"], features):
        changes[row].append(wording.change(name, old[name][row], new[name][row], ordered=name in amounts))
    told = pd.concat([frames["status"], frames["outcome"]], axis=1).to_dict("records")
    index, plans = frames["factuals"].index, plans_held(request)
    rows = zip(own_labels(index, plans).tolist(), plan_numbers(index, plans).tolist(), told, strict=True)
    return [
        _row(label, plan, record, tuple(changes[place]), request) for place, (label, plan, record) in enumerate(rows)
    ]


def _values(frames: Mapping[str, pd.DataFrame], features: Sequence[str]) -> tuple[dict[str, list[Any]], ...]:
    """The values of every feature, as asked and as returned."""
    return tuple({name: frames[key][name].tolist() for name in features} for key in ("factuals", "counterfactuals"))


def _row(
    label: Any, plan: int, told: dict[Any, Any], changes: tuple[wording.Change, ...], request: Mapping[str, Any]
) -> wording.Row:
    return wording.Row(
        label=wording.value(label),
        status=Status(told["status"]),
        reason=told["reason"],
        binding=told["binding"],
        before=wording.value(told["class_before"]),
        after=wording.value(told["class_after"]),
        p_before=_float(told["probability_before"]),
        p_after=_float(told["probability_after"]),
        changes=changes,
        wanted=wording.value(request["target_class"]),
        confidence=float(request["confidence"]),
        plan=plan,
        plans=plans_held(request),
    )


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)

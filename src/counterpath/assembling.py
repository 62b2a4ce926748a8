"""What was found, as an `Explanation`: tables in original units."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.answering import Found, Group, Request
from counterpath.data.encoding import Encoder
from counterpath.explanation import Explanation, Status, plan_index
from counterpath.explanation.made import made_since
from counterpath.learned import Learned
from counterpath.measures import MEASURES, Case
from counterpath.path_tables import decoded_rows, interleaved, join_tables, table_of
from counterpath.paths import Paths

_LANDSCAPE = 1500
_ON_THE_GRID = (
    "The model decides otherwise for this row than for one that differs in the eighth digit of a feature, which was "
    "the counterfactual: it stands on an edge of the model. Ask for a higher confidence."
)


def assemble(
    learned: Learned,
    factuals: pd.DataFrame,
    imputed: Sequence[str],
    unknown: Sequence[str],
    found: Iterable[Found],
    request: Request,
    described: dict[str, Any],
    diagnostics: str,
    quality: Mapping[str, Any],
    started: float,
) -> Explanation:
    """The answer as tables in original units.

    Args:
        learned: The models.
        factuals: The rows that were asked about.
        imputed: For each the names of columns that were filled in.
        unknown: For each which category is unknown, in words; empty if none is.
        found: What was found, group by group. Of the paths of a group only what is asked for outlives it.
        request: What was asked for.
        described: The request as it is told and stored.
        diagnostics: What is known about the models, in words.
        quality: The same as numbers.
        started: When the request came, by `time.monotonic`.
    """
    plans, classes = request.plans, learned.subject.classes
    index = plan_index(factuals.index, plans)
    factuals = factuals.iloc[np.repeat(np.arange(len(factuals)), plans)].set_axis(index)
    count = len(factuals)
    # The variable of a loop would hold the paths of one group while the next one is searched for.
    kept = list(starmap(partial(_kept, learned, factuals, request.keep), found))
    told = pd.DataFrame(
        {
            "status": _skipped(plans) * len(unknown),
            "reason": [reason for why in unknown for reason in _skipped_reasons(why, plans)],
            "imputed": np.repeat(np.array(imputed, dtype=object), plans),
            "binding": "",
        },
        index=index,
        dtype=object,
    )
    outcome = {
        "class_before": np.full(count, None, dtype=object),
        "probability_before": np.full(count, np.nan),
        "class_after": np.full(count, None, dtype=object),
        "probability_after": np.full(count, np.nan),
    }
    changed = np.zeros((count, len(learned.encoder.schema)), dtype=bool)
    counterfactuals = _counterfactuals(learned.encoder, factuals, [group for group, _ in kept])
    returned = [_as_returned(learned, group, counterfactuals) for group, _ in kept]
    for group, after in returned:
        place = group.place.cpu().numpy()
        told.iloc[place, 0] = [status.value for status in group.status]
        told.iloc[place, 1] = list(group.reason)
        told.iloc[place, 3] = list(group.binding)
        outcome["class_before"][place] = [classes[i] for i in group.before.argmax(-1).tolist()]
        outcome["class_after"][place] = [classes[i] for i in after.argmax(-1).tolist()]
        outcome["probability_before"][place] = group.wanted.probability(group.before).cpu().numpy()
        outcome["probability_after"][place] = group.wanted.probability(after).cpu().numpy()
        changed[place] = learned.encoder.changed(group.factual, group.counterfactual).cpu().numpy()
    return Explanation(
        factuals=factuals,
        counterfactuals=counterfactuals,
        status=told,
        outcome=pd.DataFrame({name: pd.Series(given, index, given.dtype) for name, given in outcome.items()}),
        changed=pd.DataFrame(changed, index=index, columns=list(learned.encoder.schema.names)),
        paths=join_tables([table for _, table in kept], learned.encoder.schema, factuals, outcome["probability_after"]),
        schema=learned.encoder.schema,
        request=described,
        landscape=learned.landscape(_LANDSCAPE),
        note=learned.view.note,
        diagnostics=diagnostics,
        quality=quality,
        made=made_since(started),
        compute_measures=partial(_measures, learned, tuple(group for group, _ in returned), index),
    )


def _kept(
    learned: Learned, factuals: pd.DataFrame, keep: str, group: Group, paths: Paths
) -> tuple[Group, pd.DataFrame | None]:
    """A group, and as much of its paths as is kept."""
    return group, table_of(learned, group, paths, factuals, keep)


def _skipped(plans: int) -> list[str]:
    """What becomes of a row with an unknown category."""
    return [Status.UNKNOWN_CATEGORY.value, *[Status.NO_OTHER_PLAN.value] * (plans - 1)]


def _skipped_reasons(why: str, plans: int) -> list[str]:
    return [f"{Status.UNKNOWN_CATEGORY.text} {why}".strip(), *[Status.NO_OTHER_PLAN.text] * (plans - 1)]


def _as_returned(learned: Learned, group: Group, counterfactuals: pd.DataFrame) -> tuple[Group, Tensor]:
    """What the model says about the rows exactly as they are returned, and the group, whose status keeps to it.

    A feature that is as it was is returned as it was given; what it is decoded as differs in the eighth digit.
    """
    rows = counterfactuals.iloc[group.place.cpu().numpy()]
    after = torch.where(group.moved[:, None], learned.subject.about(rows, group.counterfactual), group.before)
    status, reason = list(group.status), list(group.reason)
    for place in (~group.wanted.met(after)).nonzero()[:, 0].tolist():
        if status[place].found:
            status[place], reason[place] = Status.NOT_FOUND, _ON_THE_GRID
    return replace(group, status=tuple(status), reason=tuple(reason)), after


def _counterfactuals(encoder: Encoder, factuals: pd.DataFrame, groups: Sequence[Group]) -> pd.DataFrame:
    """The returned rows of all groups, and everybody else's own, in the order of the rows that were asked about."""
    if not any(bool(group.moved.any()) for group in groups):
        return factuals.copy()
    before = torch.cat([group.factual[group.moved] for group in groups])
    returned = torch.cat([group.counterfactual[group.moved] for group in groups])
    moved = torch.cat([group.place[group.moved] for group in groups]).cpu().numpy()
    decoded = decoded_rows(encoder, returned, before, factuals.iloc[moved])[list(factuals.columns)]
    rest = np.setdiff1d(np.arange(len(factuals)), moved)
    return interleaved(decoded, moved, factuals.iloc[rest], rest).set_axis(factuals.index)


def _measures(learned: Learned, groups: Sequence[Group], index: pd.Index) -> pd.DataFrame:
    """Every measure of every row; those that were not explained have none."""
    values = {name: np.full(len(index), np.nan) for name in (*MEASURES, "steps")}
    for group in groups:
        place = group.place.cpu().numpy()
        case = Case(
            group.factual,
            group.counterfactual,
            lambda x, wanted=group.wanted: wanted.probability(learned.ask(x)).to(x.dtype),  # type: ignore[misc]
            learned.encoder,
            learned.neighbours,
            group.wanted.confidence,
            decided=lambda x, wanted=group.wanted: wanted.decided(learned.ask(x)),  # type: ignore[misc]
        )
        for name, measure in MEASURES.items():
            values[name][place] = measure(case).double().cpu().numpy()
        values["steps"][place] = group.steps.double().cpu().numpy()
    return pd.DataFrame(values, index=index)

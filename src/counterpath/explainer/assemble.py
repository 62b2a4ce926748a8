"""What was found, as an `Explanation`: tables in original units."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.data.returned import decoded_rows, interleaved
from counterpath.data.schema import Schema
from counterpath.data.status import Cause, Status, StatusCode
from counterpath.explainer.request import Request
from counterpath.explainer.solve import Group
from counterpath.explanation import Explanation, path_columns, plan_index, wording
from counterpath.explanation.milestones import only_milestones
from counterpath.explanation.result import provenance
from counterpath.explanation.tables import END, MILESTONES, numeric_features
from counterpath.fitting.fitted import FittedModels
from counterpath.models.classifier import Thresholds, decide
from counterpath.search.measures import MEASURES, Case
from counterpath.search.paths import Paths, is_first
from counterpath.search.stability import share_of
from counterpath.utils.replay import no_collection

_PATHS_AT_ONCE = 4096
"""Of how many paths all points are a table at the same time: it bounds memory where few of them are kept."""


def table_of(
    models: FittedModels, group: Group, paths: Paths, factuals: pd.DataFrame, keep: str, some: Tensor | None = None
) -> pd.DataFrame | None:
    """As much of the paths of a group as is kept, in the columns of `Explanation.paths`; None if that is nothing.

    Args:
        models: The models.
        group: Whose paths they are.
        paths: Every point of them.
        factuals: All rows that were asked about.
        keep: A key of `KEEPS`.
        some: Of which rows of the group; by default of all.
    """
    if keep == END:
        return None
    every = torch.arange(len(group.steps), device=group.steps.device) if some is None else some
    schema = models.encoder.schema
    numbers, tables = numeric_features(schema, factuals), []
    for rows in every.split(_PATHS_AT_ONCE):
        table = _points(models, paths.select(rows), group.index[rows], group.factual[rows], factuals)
        tables.append(only_milestones(table, schema, numbers) if keep == MILESTONES else table)
    return pd.concat(tables, ignore_index=True)


def join_tables(
    tables: Sequence[pd.DataFrame | None], schema: Schema, factuals: pd.DataFrame, after: NDArray[np.float64]
) -> pd.DataFrame:
    """The paths of all groups, row after row.

    Args:
        tables: Those of each group.
        schema: What the features are.
        factuals: All rows that were asked about.
        after: The probability of the target for each of them as it is returned, which is where its path ends.
    """
    there = [table for table in tables if table is not None]
    if not there:
        return _empty(schema, factuals)
    whole = pd.concat(there, ignore_index=True).sort_values(["row", "step"], kind="stable", ignore_index=True)
    last = ~whole["row"].duplicated(keep="last").to_numpy()
    probability = whole["probability"].to_numpy(copy=True)
    probability[last] = after[whole["row"].to_numpy()[last]]
    return whole.assign(probability=probability)


def _points(models: FittedModels, paths: Paths, index: Tensor, factual: Tensor, factuals: pd.DataFrame) -> pd.DataFrame:
    """All points of paths in original units, row after row."""
    schema, first = models.encoder.schema, is_first(paths.row)
    moved = ((paths.x[1:] - paths.x[:-1]) * models.encoder.weights.to(paths.x)).norm(dim=-1)
    moved = torch.cat([moved.new_zeros(1), moved]).masked_fill(first, 0)
    total = moved.double().cumsum(0)
    starts = first.nonzero()[:, 0]
    step = torch.arange(len(paths.row), device=paths.row.device) - starts[paths.row]
    where = models.latent_map.project(paths.z)
    extra = {
        "probability": paths.probability,
        "uncertainty": paths.sigma,
        "length": total - total[starts[paths.row]],
        "map_x": where[:, 0],
        "map_y": where[:, 1],
    }
    names = list(schema.names)
    original = factuals[names].iloc[index.cpu().numpy()]
    row = paths.row[~first]
    decoded = decoded_rows(models.encoder, paths.x[~first], factual[row], original.iloc[row.cpu().numpy()])
    decoded = decoded[names]
    frame = interleaved(decoded, (~first).nonzero()[:, 0].cpu().numpy(), original, starts.cpu().numpy())
    points = pd.DataFrame({"row": index[paths.row].cpu().numpy(), "step": step.cpu().numpy()})
    ends = pd.DataFrame({name: values.double().cpu().numpy() for name, values in extra.items()})
    return pd.concat([points, frame, ends], axis=1).set_axis(path_columns(schema.names), axis=1)


def _empty(schema: Schema, factuals: pd.DataFrame) -> pd.DataFrame:
    numbers = pd.DataFrame(np.zeros((0, 5)))
    places = pd.DataFrame(np.zeros((0, 2), dtype=np.int64))
    features = factuals[list(schema.names)].iloc[:0].reset_index(drop=True)
    return pd.concat([places, features, numbers], axis=1).set_axis(path_columns(schema.names), axis=1)


_LANDSCAPE = 1500  # training rows on the map behind paths: a cloud that can be seen, in a file that stays small


def assemble(
    models: FittedModels,
    factuals: pd.DataFrame,
    imputed: Sequence[Sequence[str]],
    unknown: Sequence[str],
    found: Iterable[tuple[Group, Paths]],
    request: Request,
    described: dict[str, Any],
    thresholds: Thresholds | None,
    diagnostics: str,
    quality: Mapping[str, Any],
    started: float,
) -> Explanation:
    """The answer as tables in original units.

    Args:
        models: The models.
        factuals: The rows that were asked about.
        imputed: For each the names of columns that were filled in.
        unknown: For each which category is unknown, in words; empty if none is.
        found: What was found, group by group. Of the paths of a group only what is asked for outlives it.
        request: What was asked for.
        described: The request as it is recorded.
        thresholds: How the model decides.
        diagnostics: What is known about the models, in words.
        quality: The same as numbers.
        started: When the request came, by `time.monotonic`.
    """
    plans, classes = request.plans, models.explained.classes
    index = plan_index(factuals.index, plans)
    factuals = factuals.iloc[np.repeat(np.arange(len(factuals)), plans)].set_axis(index)
    count = len(factuals)
    # The variable of a loop would hold the paths of one group while the next one is searched for.
    kept = list(starmap(partial(_kept, models, factuals, request), found))
    status = [
        Status(StatusCode.UNKNOWN_CATEGORY if plan == 0 else StatusCode.NO_OTHER_PLAN, detail=why if plan == 0 else "")
        for why in unknown
        for plan in range(plans)
    ]
    outcome = {
        "class_before": np.full(count, None, dtype=object),
        "probability_before": np.full(count, np.nan),
        "class_after": np.full(count, None, dtype=object),
        "probability_after": np.full(count, np.nan),
    }
    levels, changed = np.full(count, np.nan), np.zeros((count, len(models.encoder.schema)), dtype=bool)
    counterfactuals = _counterfactuals(models.encoder, factuals, [group for group, _ in kept])
    returned = [_as_returned(models, group, counterfactuals) for group, _ in kept]
    for group, after in returned:
        where = group.index.cpu().numpy()
        for row, its_status in zip(where.tolist(), group.status, strict=True):
            status[row] = its_status
        for name, said in (("class_before", group.before), ("class_after", after)):
            outcome[name][where] = (
                said[:, 0].tolist()
                if models.explained.numbers
                else [classes[i] for i in decide(said, group.target.thresholds).tolist()]
            )
        known = group.target.confidence is not None or len(classes) == 2 or models.explained.numbers
        levels[where] = group.target.level if known else np.nan
        outcome["probability_before"][where] = group.target.probability(group.before).cpu().numpy()
        outcome["probability_after"][where] = group.target.probability(after).cpu().numpy()
        changed[where] = models.encoder.changed(group.factual, group.counterfactual).cpu().numpy()
    with no_collection():
        told = _status_table(status, imputed, outcome, levels, request, index, models.encoder.schema)
    return Explanation(
        factuals=factuals,
        counterfactuals=counterfactuals,
        status=told,
        outcome=pd.DataFrame({name: pd.Series(given, index, given.dtype) for name, given in outcome.items()}),
        changed=pd.DataFrame(changed, index=index, columns=list(models.encoder.schema.names)),
        paths=join_tables(
            [table for _, tables in kept for table in tables],
            models.encoder.schema,
            factuals,
            outcome["probability_after"],
        ),
        schema=models.encoder.schema,
        request=described,
        landscape=models.landscape(_LANDSCAPE, thresholds),
        note=models.latent_map.note,
        diagnostics=diagnostics,
        quality=quality,
        provenance=provenance(started),
        compute_measures=partial(_measures, models, tuple(group for group, _ in returned), index),
    )


def _kept(
    models: FittedModels, factuals: pd.DataFrame, request: Request, group: Group, paths: Paths
) -> tuple[Group, list[pd.DataFrame | None]]:
    """A group, and as much of its paths as is asked for."""
    if not request.row_constraints:
        return group, [table_of(models, group, paths, factuals, request.paths)]
    rows: dict[str, list[int]] = {}
    for position, row in enumerate(group.index.tolist()):
        rows.setdefault(request.of_row("paths", row // request.plans), []).append(position)
    device = group.index.device
    each = ((keep, torch.tensor(some, device=device)) for keep, some in rows.items())
    return group, [table_of(models, group, paths, factuals, keep, some) for keep, some in each]


def _status_table(
    status: Sequence[Status],
    imputed: Sequence[Sequence[str]],
    outcome: Mapping[str, NDArray[Any]],
    levels: NDArray[np.float64],
    request: Request,
    index: pd.Index,
    schema: Schema,
) -> pd.DataFrame:
    """One line a row and plan, with the reason as a sentence."""
    numbers_wanted = request.target_range is not None or any("target_range" in row for row in request.row_constraints)
    numbers = [wording.predicted(schema, each) if numbers_wanted else "" for each in outcome["class_after"]]
    each = zip(status, outcome["probability_after"].tolist(), levels.tolist(), numbers, strict=True)
    # Most rows share one status, and what is said of a row that is found depends on nothing else.
    known: dict[int, str] = {}
    reasons = [
        known.get(id(one)) or known.setdefault(id(one), wording.reason(one, p, level, schema, number))
        if one.code.found
        else wording.reason(one, p, level, schema, number)
        for one, p, level, number in each
    ]
    columns = {
        "status": [one.code.value for one in status],
        "reason": reasons,
        "fallback": [one.fallback for one in status],
        "binding": [[constraint.to_json() for constraint in one.binding] for one in status],
        "unseen": [[f"{one} × {other}" for one, other in each.unseen_pairs] for each in status],
        "follows": [list(each.follows) for each in status],
        "share": [math.nan if each.share is None else each.share for each in status],
        "retrained": [list(each.retrained or ()) for each in status],
        "imputed": [list(imputed[where // request.plans]) for where in range(len(status))],
    }
    kinds = {"fallback": bool, "share": float}
    return pd.DataFrame({name: pd.Series(values, index, kinds.get(name, object)) for name, values in columns.items()})


def _as_returned(models: FittedModels, group: Group, counterfactuals: pd.DataFrame) -> tuple[Group, Tensor]:
    """What the model says about the rows exactly as they are returned, and the group, whose status keeps to it.

    A feature that is as it was is returned as it was given; what it is decoded as differs in the eighth digit.
    """
    rows = counterfactuals.iloc[group.index.cpu().numpy()]
    after = torch.where(
        group.moved[:, None], models.explained.predict_proba_table(rows, group.counterfactual), group.before
    )
    status = list(group.status)
    for where in (~group.target.is_reached(after)).nonzero()[:, 0].tolist():
        if status[where].code.found or status[where].code is StatusCode.FRAGILE:
            status[where] = Status(StatusCode.NOT_FOUND, Cause.EDGE)
    if models.family is not None:
        share, count = share_of(models.family.held_out, group.counterfactual, group.target), len(models.family.held_out)
        kept = (share * count).round().long().tolist()
        status = [
            replace(one, retrained=(some, count)) if one.code.valid else one
            for one, some in zip(status, kept, strict=True)
        ]
    return replace(group, status=tuple(status)), after


def _counterfactuals(encoder: Encoder, factuals: pd.DataFrame, groups: Sequence[Group]) -> pd.DataFrame:
    """The returned rows of all groups, and everybody else's own, in the order of the rows that were asked about."""
    if not any(bool(group.moved.any()) for group in groups):
        return factuals.copy()
    before = torch.cat([group.factual[group.moved] for group in groups])
    returned = torch.cat([group.counterfactual[group.moved] for group in groups])
    moved = torch.cat([group.index[group.moved] for group in groups]).cpu().numpy()
    decoded = decoded_rows(encoder, returned, before, factuals.iloc[moved])[list(factuals.columns)]
    rest = np.setdiff1d(np.arange(len(factuals)), moved)
    return interleaved(decoded, moved, factuals.iloc[rest], rest).set_axis(factuals.index)


def _measures(models: FittedModels, groups: Sequence[Group], index: pd.Index) -> pd.DataFrame:
    """Every measure of every row; those that were not explained have none."""
    values, family = {name: np.full(len(index), np.nan) for name in (*MEASURES, "steps")}, models.family
    for group in groups:
        where = group.index.cpu().numpy()
        target, ranged = group.target, models.explained.numbers or group.target.interval is not None
        case = Case(
            group.factual,
            group.counterfactual,
            lambda x, target=target: target.probability(models.predict_proba(x)).to(x.dtype),  # type: ignore[misc]
            models.encoder,
            models.neighbours,
            None if ranged or isinstance(target.confidence, tuple) else target.confidence,
            is_predicted=lambda x, met=target.is_reached if ranged else target.is_predicted: met(  # type: ignore[misc]
                models.predict_proba(x)
            ),
            combinations=models.combinations,
            spreads=models.spreads,
            share_after=None if family is None else partial(share_of, family.held_out, target=target),
        )
        for name, measure in MEASURES.items():
            values[name][where] = measure(case).double().cpu().numpy()
        known = group.steps_known.cpu().numpy()
        values["steps"][where[known]] = group.steps.double().cpu().numpy()[known]
    return pd.DataFrame(values, index=index)

"""From a request to an `Explanation`: who is searched for, what came of it, and in which words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.columns import alike
from counterpath.data.schema import Schema
from counterpath.errors import choose
from counterpath.explanation import Explanation, Status, path_columns
from counterpath.learned import Learned
from counterpath.measures import MEASURES, Case
from counterpath.methods import METHODS
from counterpath.paths import Paths
from counterpath.pursuit import Walk
from counterpath.search.traverse import StopReason
from counterpath.search.wanted import Wanted

OTHER = "other"
"""The target class of a request for any class but the one that a row is in now."""
NEAREST = "nearest"
_LANDSCAPE = 1500
LED = (
    "The local search got stuck; this path leads straight through the latent space to the nearest place that the model "
    "accepts, decoded from a training row."
)
"""The reason of a row that was found only by being led."""
_BEST = "The best point on the way is returned. Try a lower confidence, more steps or another method."
_NOT_FOUND = {
    StopReason.ALL_STEPS_TAKEN: f"No point within the allowed steps has the asked confidence. {_BEST}",
    StopReason.NO_WAY_DOWN: f"The search came to a place where the model is flat. {_BEST}",
    StopReason.NOT_FINITE: f"The search ran into numbers that are not finite. {_BEST}",
}


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        target: The place of the wanted class; None for any class but the present one.
        confidence: What the probability of the wanted outcome must reach.
        method: A key of `METHODS`, or "nearest".
        walk: How to search.
        paths: Keep the paths.
    """

    target: int | None
    confidence: float
    method: str
    walk: Walk
    paths: bool = True

    def __post_init__(self) -> None:
        choose("method", self.method, {**METHODS, NEAREST: None})
        self.wanted(0)

    def wanted(self, now: int) -> Wanted:
        """What a row wants that is in class `now`."""
        if self.target is None:
            return Wanted(now, other=True, confidence=self.confidence)
        return Wanted(self.target, confidence=self.confidence)


@dataclass(frozen=True)
class Group:
    """Rows that want the same, and the paths that were found for them.

    Attributes:
        wanted: What they want.
        place: Their places among all rows that were asked about.
        factual: Their encoded rows.
        before: What the model answers for them.
        paths: The way from each of them; the last point is what is returned.
        status: What came of each.
        reason: The same in words.
    """

    wanted: Wanted
    place: Tensor
    factual: Tensor
    before: Tensor
    paths: Paths
    status: tuple[Status, ...]
    reason: tuple[str, ...]

    @property
    def moved(self) -> Tensor:
        """Which rows are not returned as they were: their paths have more than one point."""
        return torch.bincount(self.paths.row, minlength=len(self.factual)) > 1

    @property
    def counterfactual(self) -> Tensor:
        """The rows to return, encoded."""
        return self.paths.x[self.paths.last]


def answer(learned: Learned, x: Tensor, answers: Tensor, place: Tensor, request: Request) -> list[Group]:
    """Search for every row, in groups that want the same.

    Args:
        learned: The models.
        x: Encoded rows.
        answers: What the model says about them, as they were given.
        place: Their places among all rows that were asked about.
        request: What is asked for.
    """
    now = answers.argmax(-1)
    groups = []
    for target in [0] if request.target is not None else now.unique().tolist():
        wanted = request.wanted(target)
        member = torch.ones_like(now, dtype=torch.bool) if request.target is not None else now == target
        already = wanted.met(answers)
        for rows, searched in ((member & already, False), (member & ~already, True)):
            if bool(rows.any()):
                groups.append(_group(learned, x[rows], answers[rows], place[rows], wanted, request, searched))
    return groups


def _group(
    learned: Learned, x: Tensor, before: Tensor, place: Tensor, wanted: Wanted, request: Request, searched: bool
) -> Group:
    quest = learned.quest(request.walk)
    if not searched:
        paths = quest.stay(x, wanted)
        text = Status.ALREADY.text
        return Group(wanted, place, x, before, paths, (Status.ALREADY,) * len(x), (text,) * len(x))
    if request.method == NEAREST:
        paths = quest.line(x, learned.rows, learned.answers, wanted)
    else:
        paths = quest.pursue(METHODS[request.method](learned.parts), x, wanted)
    told = [_told(paths, row, request) for row in range(len(x))]
    return Group(wanted, place, x, before, paths, tuple(t[0] for t in told), tuple(t[1] for t in told))


def _told(paths: Paths, row: int, request: Request) -> tuple[Status, str]:
    """What came of a row, and why, in a sentence."""
    reason = StopReason(int(paths.reason[row]))
    if reason is StopReason.CONFIDENCE_REACHED:
        return Status.FOUND, LED if bool(paths.led[row]) else Status.FOUND.text
    if reason is StopReason.OUT_OF_TIME:
        return Status.OUT_OF_TIME, Status.OUT_OF_TIME.text
    if request.method == NEAREST:
        return Status.NOT_FOUND, "The model gives no training row the wanted outcome with the asked confidence."
    return Status.NOT_FOUND, _NOT_FOUND[reason]


def assemble(
    learned: Learned,
    factuals: pd.DataFrame,
    imputed: Sequence[str],
    unknown: Sequence[str],
    groups: Sequence[Group],
    request: Request,
    described: dict[str, Any],
    diagnostics: str,
) -> Explanation:
    """The answer as tables in original units.

    Args:
        learned: The models.
        factuals: The rows that were asked about.
        imputed: For each the names of columns that were filled in.
        unknown: For each which category is unknown, in words; empty if none is.
        groups: What was found.
        request: What was asked for.
        described: The request as it is told and stored.
        diagnostics: What is known about the models, in words.
    """
    count, classes = len(factuals), learned.subject.classes
    status = np.array([Status.UNKNOWN_CATEGORY.value] * count, dtype=object)
    reason = np.array([f"{Status.UNKNOWN_CATEGORY.text} {why}".strip() for why in unknown], dtype=object)
    outcome = {
        "class_before": np.full(count, None, dtype=object),
        "probability_before": np.full(count, np.nan),
        "class_after": np.full(count, None, dtype=object),
        "probability_after": np.full(count, np.nan),
    }
    changed = np.zeros((count, len(learned.encoder.schema)), dtype=bool)
    for group in groups:
        place = group.place.cpu().numpy()
        status[place], reason[place] = [s.value for s in group.status], group.reason
        after = torch.where(group.moved[:, None], learned.subject.answers(group.counterfactual), group.before)
        outcome["class_before"][place] = [classes[i] for i in group.before.argmax(-1).tolist()]
        outcome["class_after"][place] = [classes[i] for i in after.argmax(-1).tolist()]
        outcome["probability_before"][place] = group.wanted.probability(group.before).cpu().numpy()
        outcome["probability_after"][place] = group.wanted.probability(after).cpu().numpy()
        changed[place] = learned.encoder.changed(group.factual, group.counterfactual).cpu().numpy()
    index, names = factuals.index, list(learned.encoder.schema.names)
    return Explanation(
        factuals=factuals,
        counterfactuals=_counterfactuals(learned, factuals, groups),
        status=pd.DataFrame(
            {"status": status, "reason": reason, "imputed": list(imputed), "binding": ""}, index=index, dtype=object
        ),
        outcome=pd.DataFrame({name: pd.Series(given, index, given.dtype) for name, given in outcome.items()}),
        changed=pd.DataFrame(changed, index=index, columns=names),
        paths=_paths(learned, groups if request.paths else (), factuals),
        schema=learned.encoder.schema,
        request=described,
        landscape=learned.landscape(_LANDSCAPE),
        note=learned.view.note,
        diagnostics=diagnostics,
        compute_measures=partial(_measures, learned, tuple(groups), index),
    )


def _counterfactuals(learned: Learned, factuals: pd.DataFrame, groups: Sequence[Group]) -> pd.DataFrame:
    """The returned rows of all groups, and everybody else's own, in the order of the rows that were asked about."""
    if not any(bool(group.moved.any()) for group in groups):
        return factuals.copy()
    returned = torch.cat([group.counterfactual[group.moved] for group in groups])
    moved = torch.cat([group.place[group.moved] for group in groups]).cpu().numpy()
    decoded = learned.encoder.decode(returned)[list(factuals.columns)]
    rest = np.setdiff1d(np.arange(len(factuals)), moved)
    return _interleaved(decoded, moved, factuals.iloc[rest], rest).set_axis(factuals.index)


def _paths(learned: Learned, groups: Sequence[Group], factuals: pd.DataFrame) -> pd.DataFrame:
    """All points of all paths in original units, row after row."""
    schema = learned.encoder.schema
    if not groups:
        return _empty_paths(schema, factuals)
    weights = learned.encoder.weights.to(learned.rows)
    frames = []
    for group in groups:
        paths = group.paths
        first = torch.ones_like(paths.row, dtype=torch.bool)
        first[1:] = paths.row[1:] != paths.row[:-1]
        moved = ((paths.x[1:] - paths.x[:-1]) * weights).norm(dim=-1)
        moved = torch.cat([moved.new_zeros(1), moved]).masked_fill(first, 0)
        total = moved.double().cumsum(0)
        starts = first.nonzero()[:, 0]
        step = torch.arange(len(paths.row), device=paths.row.device) - starts[paths.row]
        where = learned.view.show(paths.z)
        extra = {
            "probability": paths.probability,
            "uncertainty": paths.sigma,
            "length": total - total[starts[paths.row]],
            "map_x": where[:, 0],
            "map_y": where[:, 1],
        }
        names = list(schema.names)
        decoded = learned.encoder.decode(paths.x[~first])[names]
        asked = factuals[names].iloc[group.place.cpu().numpy()]
        frame = _interleaved(decoded, (~first).nonzero()[:, 0].cpu().numpy(), asked, starts.cpu().numpy())
        points = pd.DataFrame({"row": group.place[paths.row].cpu().numpy(), "step": step.cpu().numpy()})
        ends = pd.DataFrame({name: values.double().cpu().numpy() for name, values in extra.items()})
        frames.append(pd.concat([points, frame, ends], axis=1).set_axis(path_columns(schema.names), axis=1))
    whole = pd.concat(frames, ignore_index=True)
    return whole.sort_values(["row", "step"], kind="stable", ignore_index=True)


def _interleaved(
    decoded: pd.DataFrame, places: NDArray[np.int64], given: pd.DataFrame, given_places: NDArray[np.int64]
) -> pd.DataFrame:
    """Decoded rows, and rows exactly as they were given, each at its place.

    Decoding is exact to 6e-8 of a range only. The dtype is that of decoded rows wherever it holds what was given.
    """
    fitting = {name: alike(given[name], decoded[name].dtype) for name in decoded.columns}
    whole = pd.concat([decoded, pd.DataFrame(fitting, index=given.index)], ignore_index=True)
    return whole.iloc[np.argsort(np.concatenate([places, given_places]))].reset_index(drop=True)


def _empty_paths(schema: Schema, factuals: pd.DataFrame) -> pd.DataFrame:
    numbers = pd.DataFrame(np.zeros((0, 5)))
    places = pd.DataFrame(np.zeros((0, 2), dtype=np.int64))
    features = factuals[list(schema.names)].iloc[:0].reset_index(drop=True)
    return pd.concat([places, features, numbers], axis=1).set_axis(path_columns(schema.names), axis=1)


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
        points = torch.bincount(group.paths.row, minlength=len(group.factual))
        values["steps"][place] = (points - 1).double().cpu().numpy()
    return pd.DataFrame(values, index=index)

"""Plans that many rows share: candidates from their own plans and from single features, screened, and the best chosen.

Candidates are tried on some of the rows first, and the best of them on all. `search.shared` says what an action is,
whom it serves, and how good the choice is.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.data.axes import MixedAxes, NumberAxis
from counterpath.data.encoding import Encoder
from counterpath.data.returned import decoded_rows
from counterpath.data.status import FOUND
from counterpath.explainer.request import Request
from counterpath.explainer.solve import Solver
from counterpath.explanation import Explanation
from counterpath.explanation.result import provenance
from counterpath.explanation.shared import SharedPlans
from counterpath.explanation.summary import By, keys_of
from counterpath.explanation.tables import END
from counterpath.search.candidates import Admissible
from counterpath.search.method import Problem
from counterpath.search.shared import (
    AT_LEAST,
    AT_MOST,
    BY,
    TO,
    Actions,
    Chosen,
    Layout,
    act,
    actions_of_plans,
    choose_actions,
    served_matrix,
    single_actions,
    united,
)
from counterpath.utils.errors import InputError

SCREENED = 400
"""Rows on which candidates are tried first: the coverage of one is known to within 5 % then."""
SHORTLIST = 10
"""Candidates that are tried on all rows, or three times as many as plans are asked for: the best on the sample, in the
order in which they would be chosen there. It is most of the time for many rows."""
_WAYS = 60  # of changing that own plans have, the commonest: together with single features some hundred candidates
_MORE_WAYS = 30  # of those whom nothing serves yet
_UNITED = 14  # of the best candidates all pairs are tried: 91 at most
_ROUNDS = 2  # of joining pairs: sets of up to four single changes
_COARSE = {"levels": 4, "halvings": 0}
"""How finely shares are tried while candidates are screened: it decides on costs, hardly on coverage."""
_DEAREST = 2.0  # to be left without a plan counts this many times as much as the dearest plan: coverage comes first
KINDS = {TO: "to", BY: "by", AT_LEAST: "at least", AT_MOST: "at most"}
"""What is done to a feature, as tables name it."""


@dataclass(frozen=True)
class _People:
    """Rows that are to be served, in parts that share a problem.

    Attributes:
        index: Their indices among all rows that were asked about.
        part: To which part each belongs.
        local: Its number there.
        problems: The problem of each part.
        admissible: What its rows may become.
    """

    index: Tensor
    part: Tensor
    local: Tensor
    problems: Sequence[Problem]
    admissible: Sequence[Admissible]

    @classmethod
    def of(cls, parts: Sequence[tuple[Tensor, Problem | None]], device: torch.device) -> "_People":
        """Of the problems of a solver, without rows that cannot get where they must end."""
        there = [(index, problem) for index, problem in parts if problem is not None]
        nothing = torch.zeros(0, dtype=torch.long, device=device)
        each = [torch.full_like(index, number) for number, (index, _) in enumerate(there)]
        local = [torch.arange(len(index), device=device) for index, _ in there]
        problems = [problem for _, problem in there]
        return cls(
            torch.cat([nothing, *(index for index, _ in there)]),
            torch.cat([nothing, *each]),
            torch.cat([nothing, *local]),
            problems,
            [Admissible.of(problem) for problem in problems],
        )

    def __len__(self) -> int:
        return len(self.index)

    def costs(self, actions: Actions, rows: Tensor, **how: int) -> tuple[Tensor, Tensor]:
        """What every action costs some of them, infinite where it does not serve, and how much of it they need."""
        device = rows.device
        cost = torch.full((len(rows), len(actions)), torch.inf, dtype=torch.float64, device=device)
        share = torch.ones_like(cost)
        for number, admissible in enumerate(self.admissible):
            some = (self.part[rows] == number).nonzero()[:, 0]
            if len(some) and len(actions):
                found = served_matrix(admissible, actions, self.local[rows[some]], **how)
                cost[some], share[some] = (each.double() for each in found)
        return cost, share

    def become(self, actions: Actions, layout: Layout, rows: Tensor, action: Tensor, share: Tensor) -> Tensor:
        """What rows become by a share of an action each."""
        x = torch.empty(len(rows), actions.value.shape[1], dtype=actions.value.dtype, device=rows.device)
        for number, problem in enumerate(self.problems):
            some = (self.part[rows] == number).nonzero()[:, 0]
            local = self.local[rows[some]]
            x[some] = act(actions, layout, problem.feasible, local, action[some], share[some])[0]
        return x

    def reached(self, frame: pd.DataFrame, x: Tensor, rows: Tensor, solver: Solver) -> Tensor:
        """Which rows the model decides as asked, exactly as they are returned, and which last as asked."""
        said = solver.models.explained.predict_proba_table(frame, x)
        good = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        for number, problem in enumerate(self.problems):
            some = (self.part[rows] == number).nonzero()[:, 0]
            some = some[problem.target.is_reached(said[some])]
            good[some] = problem.validator.lasts(x[some], problem.feasible.origin[self.local[rows[some]]])
        return good


def find_shared_plans(
    solver: Solver,
    frame: pd.DataFrame,
    own: Explanation | None,
    described: dict[str, Any],
    *,
    k: int,
    by: By | None,
    most_changes: int,
    unserved: float | None,
    seed: int,
) -> SharedPlans:
    """The plans that serve most rows at the least cost; see `Explainer.shared_plans`."""
    started = time.monotonic()
    models = solver.models
    encoder, device = models.encoder, models.rows.device
    known = encoder.known(frame).to_numpy()
    index = torch.from_numpy(np.flatnonzero(known)).to(device)
    parts = list(solver.problems(frame[known], index))
    hopeless = torch.cat([index[:0], *(some for some, problem in parts if problem is None)])
    people = _People.of(parts, device)
    draw = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed)).to(device)
    sample = draw[:SCREENED].sort().values
    searched = time.monotonic()
    before, after, whose = _own_plans(solver, frame, people, sample, own)
    planned = time.monotonic() - searched
    pool = _candidates(people, before, after, whose, sample, k, most_changes, solver)
    cost, share = people.costs(pool, torch.arange(len(people), device=device))
    price = _unserved(cost, unserved)
    chosen = choose_actions(cost, k, price)
    cost, rows, taken = _returned(people, pool, chosen, cost, share, frame, solver)
    picked = torch.tensor(chosen.order, dtype=torch.long, device=device)
    everyone = torch.cat([people.index, hopeless]).cpu().numpy()
    costs = torch.cat([cost, torch.full((len(hopeless), len(pool)), torch.inf, dtype=cost.dtype, device=device)])
    table = _people_table(costs[:, picked], frame.index[everyone])
    position = people.index.cpu().numpy()[taken]
    return SharedPlans(
        changes=_changes(encoder, models.rows, pool.at(picked)),
        curve=_curve(costs, chosen),
        people=table,
        factuals=frame.iloc[position],
        counterfactuals=rows.set_axis(frame.index[position]),
        groups=None if by is None else _groups(costs, chosen, keys_of(frame, by), everyone, k, price),
        schema=encoder.schema,
        request=described,
        settings={
            "candidates": len(pool),
            "screened": len(sample),
            "unserved": price,
            "most_changes": most_changes,
            "seconds_of_own_plans": round(planned, 3),
        },
        provenance=provenance(started),
    )


def _own_plans(
    solver: Solver, frame: pd.DataFrame, people: _People, sample: Tensor, own: Explanation | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Plans of single rows: as they are, what they become, and their number among the people; -1 for others."""
    encoder, device = solver.models.encoder, people.index.device
    number = torch.full((len(frame),), -1, dtype=torch.long, device=device)
    number[people.index] = torch.arange(len(people), device=device)
    if own is not None:
        was = own.status["status"].isin(FOUND).to_numpy()
        names = list(encoder.schema.names)
        pair = (encoder.encode(table[was][names]).to(device) for table in (own.factuals, own.counterfactuals))
        before, after = pair
        return before, after, number[torch.from_numpy(own._person[was]).to(device)]
    quick = replace(solver, request=replace(solver.request, plans=1, paths=END))
    some = people.index[sample]
    nothing = solver.models.rows[:0]
    kept: list[tuple[Tensor, Tensor, Tensor]] = [(nothing, nothing, number[:0])]
    for group, _ in quick.solve(frame.iloc[some.cpu().numpy()], some):
        good = torch.tensor([one.code.found for one in group.status], device=device)
        kept.append((group.factual[good], group.counterfactual[good], number[group.index[good]]))
    before, after, whose = (torch.cat(each) for each in zip(*kept, strict=True))
    return before, after, whose


def _candidates(
    people: _People,
    before: Tensor,
    after: Tensor,
    whose: Tensor,
    sample: Tensor,
    k: int,
    most_changes: int,
    solver: Solver,
) -> Actions:
    """The actions that are worth trying on everybody: the best on a sample, from several sources."""
    models = solver.models
    encoder = models.encoder
    limits = [most_changes, len(encoder.layout)]
    limits += [problem.max_changes for problem in people.problems if problem.max_changes is not None]
    limit = min(limits)
    pool = actions_of_plans(encoder, before, after, most=_WAYS, most_changes=limit)
    for problem in people.problems:
        free = problem.feasible.features(problem.feasible.upper > problem.feasible.lower).any(0)
        accepted = models.rows[problem.accepted(models.rows, models.probabilities)]
        pool = pool.join(single_actions(encoder, accepted, free & ~problem.feasible.followers))
    cost, _ = people.costs(pool, sample, **_COARSE)
    for _ in range(_ROUNDS):
        price = _unserved(cost, None)
        chosen = choose_actions(cost, max(k, _UNITED), price)
        served = cost[:, list(chosen.order)].isfinite().any(1)
        lacking = torch.isin(whose, sample[~served])
        worth = torch.where(cost.isfinite(), price - cost, 0).sum(0)
        top = [*chosen.order, *worth.argsort(descending=True, stable=True).tolist()]
        best = list(dict.fromkeys(top))[:_UNITED]
        new = united(pool, best, limit).join(
            actions_of_plans(encoder, before[lacking], after[lacking], most=_MORE_WAYS, most_changes=limit)
        )
        pool = Actions(torch.cat([pool.kind, new.kind]), torch.cat([pool.value, new.value]))
        cost = torch.cat([cost, people.costs(new, sample, **_COARSE)[0]], 1)
    price = _unserved(cost, None)
    count = max(SHORTLIST, 3 * k)
    chosen = choose_actions(cost, count, price)
    worth = torch.where(cost.isfinite(), price - cost, 0).sum(0)
    top = [*chosen.order, *worth.argsort(descending=True, stable=True).tolist()]
    short = list(dict.fromkeys(top))[:count]
    return pool.at(torch.tensor(short, dtype=torch.long, device=sample.device))


def _unserved(cost: Tensor, given: float | None) -> float:
    """What it counts to be left without a plan."""
    if given is not None:
        return given
    finite = cost[cost.isfinite()]
    return _DEAREST * float(finite.max()) if len(finite) else 1.0


def _returned(
    people: _People, pool: Actions, chosen: Chosen, cost: Tensor, share: Tensor, frame: pd.DataFrame, solver: Solver
) -> tuple[Tensor, pd.DataFrame, Any]:
    """The costs without what the model does not decide as asked on the row as it is returned, and these rows.

    What is decoded may differ in the eighth digit from what was asked about. Rows whose cheapest plan falls through are
    asked about the next one.
    """
    encoder, cost = solver.models.encoder, cost.clone()
    picked, layout = torch.tensor(chosen.order, dtype=torch.long, device=cost.device), Layout.of(encoder, cost.device)
    names = list(encoder.schema.names)
    for _ in range(len(picked) + 1):
        best = cost[:, picked].min(1) if len(picked) else None
        rows = (cost.new_zeros(len(cost)) > 0) if best is None else best.values.isfinite()
        some = rows.nonzero()[:, 0]
        which = picked[best.indices[some]] if best is not None else some
        x = people.become(pool, layout, some, which, share[some, which])
        original = frame.iloc[people.index[some].cpu().numpy()][names]
        factual = encoder.encode(original).to(cost.device) if len(some) else x
        table = decoded_rows(encoder, x, factual, original) if len(some) else original
        bad = ~people.reached(table, x, some, solver) if len(some) else rows[:0]
        if not bool(bad.any()):
            break
        cost[some[bad], which[bad]] = torch.inf
    return cost, table, some.cpu().numpy()


def _people_table(cost: Tensor, index: pd.Index) -> pd.DataFrame:
    """For everybody who was to be served the plan, from 1, and its cost; missing where no plan serves."""
    if cost.shape[1] == 0:
        return pd.DataFrame({"plan": pd.array([pd.NA] * len(index), "Int64"), "cost": np.nan}, index=index)
    best = cost.min(1)
    served = best.values.isfinite().cpu().numpy()
    plan = pd.array(best.indices.cpu().numpy() + 1, "Int64")
    plan[~served] = pd.NA
    frame = pd.DataFrame({"plan": plan, "cost": best.values.cpu().numpy()}, index=index)
    could = {f"plan {number + 1}": cost[:, number].cpu().numpy() for number in range(cost.shape[1])}
    return frame.assign(**could).replace(np.inf, np.nan)


def _curve(cost: Tensor, chosen: Chosen) -> pd.DataFrame:
    """Coverage and cost of the first plan, of the first two, and so on."""
    lines = []
    for count in range(1, len(chosen.order) + 1):
        best = cost[:, list(chosen.order[:count])].amin(1)
        served = best.isfinite()
        lines.append(
            {
                "k": count,
                "coverage": float(served.double().mean()),
                "mean cost": float(best[served].mean()) if bool(served.any()) else np.nan,
                "median cost": float(best[served].median()) if bool(served.any()) else np.nan,
                "of the best": chosen.worth[count - 1] / chosen.bound[count - 1] if chosen.bound[count - 1] else 1.0,
            }
        )
    columns = ["k", "coverage", "mean cost", "median cost", "of the best"]
    return pd.DataFrame(lines, columns=columns).set_index("k")


def _groups(cost: Tensor, chosen: Chosen, keys: list[pd.Series], rows: Any, k: int, price: float) -> pd.DataFrame:
    """For each group what the shared plans come to, and what the best plans for it alone would."""
    keys = [key.iloc[rows].reset_index(drop=True) for key in keys]
    grouped = keys[0].groupby(keys if len(keys) > 1 else keys[0], observed=True, dropna=False)
    lines = []
    for label, some in grouped.indices.items():
        own = cost[torch.from_numpy(some).to(cost.device)]
        alone = choose_actions(own, k, price)
        line: dict[str, Any] = {"group": label, "n": len(some)}
        for name, order in (("", chosen.order), ("alone ", alone.order)):
            best = own[:, list(order)].amin(1) if order else own.new_full((len(own),), torch.inf)
            served = best.isfinite()
            line[f"{name}coverage"] = float(served.double().mean())
            line[f"{name}mean cost"] = float(best[served].mean()) if bool(served.any()) else np.nan
        lines.append(line)
    table = pd.DataFrame(lines)
    labels = table.pop("group").tolist()
    names = [str(key.name) for key in keys]
    index = pd.MultiIndex.from_tuples(labels, names=names) if len(keys) > 1 else pd.Index(labels, name=names[0])
    return table.set_axis(index, axis=0)


def _changes(encoder: Encoder, rows: Tensor, actions: Actions) -> pd.DataFrame:
    """What each action does to each of its features, in original units."""
    lines = []
    for plan, (kinds, value) in enumerate(zip(actions.kind, actions.value, strict=True), start=1):
        row = rows[:1].clone()
        for index in kinds.nonzero()[:, 0].tolist():
            columns, kind = encoder.layout[index], int(kinds[index])
            row[0, columns] = value[columns]
            axis = encoder.axes[index]
            if isinstance(axis, MixedAxes) and kind != TO:
                row[0, columns.start + 1 : columns.stop] = 0
                row[0, columns.start + 1] = 1
        decoded = encoder.decode(encoder.round(row)) if len(row) else None
        for index in kinds.nonzero()[:, 0].tolist():
            name, kind, axis = encoder.schema.names[index], int(kinds[index]), encoder.axes[index]
            inner = axis.value if isinstance(axis, MixedAxes) else axis
            amount: Any = None if decoded is None else decoded[name].iloc[0]
            if kind == BY:
                assert isinstance(inner, NumberAxis)
                amount = float(value[encoder.layout[index].start]) * inner.span
                amount = round(amount) if inner.whole else float(f"{amount:.6g}")
            lines.append({"plan": plan, "feature": name, "change": KINDS[kind], "value": amount})
    return pd.DataFrame(lines, columns=["plan", "feature", "change", "value"]).astype({"value": object})


def check_k(k: Any, name: str = "k") -> int:
    """A number of plans, or an error."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"{name} is {k!r}; expected a whole number from 1, for instance 3")
    return k


def request_of(asked: Explanation | None, given: dict[str, Any], recorded: Request | None) -> Request:
    """The request for which plans are shared: that of an explanation, or as `explain` is asked."""
    if asked is None:
        return Request(**given)
    if given:
        raise InputError(
            f"an explanation was given, whose request says all that is asked for; leave out {', '.join(given)}"
        )
    assert recorded is not None
    return replace(recorded, plans=1)

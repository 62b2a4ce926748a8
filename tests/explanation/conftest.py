"""An explanation made by hand: every status, every dtype, with and without paths, with one plan each and several."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from counterpath.data import Feature, Schema
from counterpath.data.status import BindingConstraint
from counterpath.explanation import Explanation, StatusCode, path_columns, plan_index
from counterpath.explanation.milestones import only_milestones
from counterpath.explanation.tables import numeric_features

SCHEMA = Schema(
    (
        Feature("age", "integer", immutable=True),
        Feature("education-num", "continuous"),
        Feature("hours-per-week", "continuous"),
        Feature("marital-status", "binary", categories=("Non-Married", "Married")),
        Feature("owner", "binary", categories=(False, True)),
        Feature("sex", "binary", categories=("Female", "Male"), immutable=True),
    )
)
FACTUALS = {
    "age": [39, 50, 38, 53, 28],
    "education-num": [9.0, 13.0, 9.0, 7.0, 10.0],
    "hours-per-week": [40.0, 13.0, 40.0, 38.5, 40.0],
    "marital-status": pd.Categorical(["Non-Married", "Married", "Non-Married", "Non-Married", "Complicated"]),
    "owner": [False, True, False, False, True],
    "sex": ["Male", "Female", "Male", "Female", "Female"],
}
STATUSES = [StatusCode.FOUND, StatusCode.ALREADY, StatusCode.FOUND, StatusCode.NOT_FOUND, StatusCode.UNKNOWN_CATEGORY]
LABELS = ["ann", "bob", "cem", "dee", "eva"]
FOUND = (3, 0, 2, 0, 0)
"""How many plans there are for each of them, if three are asked for."""


LOCKED = BindingConstraint("lock", "age", 0.7).to_json()
ONLY_UP = BindingConstraint("up", "hours-per-week", 0.6).to_json()


def lists(*values: list[Any], index: Any = None) -> pd.Series:
    """A column of lists, which pandas would else take for something of two dimensions."""
    return pd.Series(list(values), index=index, dtype=object)


def make_status(codes: Sequence[StatusCode], reasons: Sequence[str], index: pd.Index) -> pd.DataFrame:
    """The table of statuses, in which no constraint binds and nothing was imputed."""
    columns = {"status": [str(code) for code in codes], "reason": list(reasons)}
    names = ("binding", "unseen", "follows", "retrained", "imputed")
    empty = {name: lists(*([] for _ in codes), index=index) for name in names}
    return pd.DataFrame(columns, index=index, dtype=object).assign(fallback=False, share=np.nan, **empty)


def make_paths(
    factuals: pd.DataFrame,
    counterfactuals: pd.DataFrame,
    outcome: pd.DataFrame,
    statuses: Sequence[StatusCode],
    steps: int = 6,
) -> Any:
    """Paths on straight lines, in which categories jump half-way."""
    rows = []
    for row in range(len(factuals)):
        if statuses[row] is StatusCode.UNKNOWN_CATEGORY:
            continue
        length = 1 if statuses[row] in (StatusCode.ALREADY, StatusCode.NO_OTHER_PLAN) else steps
        for step in range(length):
            share = step / max(length - 1, 1)
            old, new = factuals.iloc[row], counterfactuals.iloc[row]
            values = [
                old[name] + share * (new[name] - old[name])
                if name in ("age", "education-num", "hours-per-week")
                else (new[name] if share > 0.5 else old[name])
                for name in SCHEMA.names
            ]
            before, after = outcome["probability_before"].iloc[row], outcome["probability_after"].iloc[row]
            measured = [
                before + share * (after - before),
                0.1 + 0.05 * share**2,
                1.3 * share,
                row - 2 + share,
                share**2 - 1,
            ]
            rows.append([row, step, *values, *measured])
    return pd.DataFrame(rows, columns=path_columns(SCHEMA.names)).astype({"age": "int64"})


def make_landscape(classes: int = 2, volume: bool = False) -> pd.DataFrame:
    points = np.random.default_rng(0).normal(size=(300, 2))
    predicted = np.digitize(points[:, 0], np.linspace(-0.7, 0.7, classes - 1)) if classes > 1 else np.zeros(300, int)
    frame = pd.DataFrame({"map_x": points[:, 0], "map_y": points[:, 1], "predicted": predicted})
    return frame.assign(volume=np.hypot(*points.T)) if volume else frame


def make(target: Any = 1, keep: str = "all", labels: Any = LABELS, **other: Any) -> Explanation:
    """The explanation of five rows; `other` replaces fields."""
    index = pd.Index(labels, name="person")
    factuals = pd.DataFrame(FACTUALS, index=index)
    counterfactuals = factuals.copy()
    counterfactuals["education-num"] = [11.4, 13.0, 9.0, 7.0, 10.0]
    counterfactuals["hours-per-week"] = [46.2345678, 13.0, 36.0, 60.0, 40.0]
    counterfactuals.iloc[0, 3] = "Married"
    counterfactuals.iloc[2, 4] = True
    reasons = [status.text for status in STATUSES[:4]]
    reasons.append("marital-status is 'Complicated', which was never seen in training; correct it or fit again.")
    outcome = pd.DataFrame(
        {
            "class_before": pd.Series([0, 1, 0, 0, None], dtype=object).to_numpy(),
            "probability_before": [0.17, 0.83, 0.3, 0.05, np.nan],
            "class_after": pd.Series([1, 1, 1, 0, None], dtype=object).to_numpy(),
            "probability_after": [0.52, 0.83, 0.61, 0.41, np.nan],
        },
        index=index,
    )
    paths = make_paths(factuals, counterfactuals, outcome, STATUSES)
    measures = pd.DataFrame(
        {
            "valid": [1.0, 1.0, 1.0, 0.0, np.nan],
            "l0": [3.0, 0.0, 2.0, 1.0, np.nan],
            "l1": [1.2, 0.0, 0.8, 0.2, np.nan],
            "l2_sq": [1.0, 0.0, 0.5, 0.1, np.nan],
            "ld_sq": [0.01, 0.0, 0.03, 0.1, np.nan],
            "copy": [0.0, 1.0, 0.0, 0.0, np.nan],
            "violation": [0.0, 0.0, 0.0, 0.0, np.nan],
        }
    )
    fields: dict[str, Any] = {
        "factuals": factuals,
        "counterfactuals": counterfactuals,
        "status": make_status(STATUSES, reasons, index),
        "outcome": outcome,
        "changed": factuals.ne(counterfactuals),
        "paths": _kept(paths, factuals, keep),
        "schema": SCHEMA,
        "request": {"method": "rsgd-c", "target_class": target, "confidence": 0.5, "seed": np.int64(0)}
        | _requested(keep),
        "landscape": make_landscape(),
        "note": "2 of 5 latent dimensions (principal components, 71 % of the variance)",
        "compute_measures": lambda: measures,
        "diagnostics": "accuracy 0.81\nσ-share 0.3",
    }
    return Explanation(**(fields | other))


def _kept(paths: pd.DataFrame, factuals: pd.DataFrame, keep: str) -> pd.DataFrame:
    if keep == "milestones":
        return only_milestones(paths, SCHEMA, numeric_features(SCHEMA, factuals))
    return paths if keep == "all" else paths.iloc[:0]


def _requested(keep: str) -> dict[str, str]:
    """Requests from before it could be said are like those for all."""
    return {} if keep == "all" else {"paths": keep}


def across(*labels: str) -> Explanation:
    """The same, but the counterfactuals of some lie across a gap in the data."""
    status = make().status
    status.loc[list(labels), ["status", "reason"]] = [str(StatusCode.CROSSES_GAP), StatusCode.CROSSES_GAP.text]
    return make(status=status)


def bound(made: Explanation) -> pd.DataFrame:
    """The statuses of an explanation, with the constraints that keep dee from a counterfactual."""
    return made.status.assign(binding=lists([], [], [], [LOCKED, ONLY_UP], [], index=made.status.index))


def make_plans(plans: int = 3, labels: Any = LABELS, keep: str = "all", **other: Any) -> Explanation:
    """The same five people with several plans: all for ann, one fewer for cem, and none for the others."""
    one = make()
    own = labels if isinstance(labels, pd.Index) else pd.Index(labels, name="person")
    index, person = plan_index(own, plans), np.repeat(np.arange(5), plans)
    factuals, new, status, outcome, changed, measures = (
        frame.iloc[person].set_axis(index)
        for frame in (one.factuals, one.counterfactuals, one.status, one.outcome, one.changed, one.measures())
    )
    number = np.tile(np.arange(1, plans + 1), 5)
    further = (person == 0) | (person == 2)
    new["hours-per-week"] = new["hours-per-week"].where(~further, new["hours-per-week"] + 2 * (number - 1))
    missing = np.where(further, number > np.where(person == 0, plans, plans - 1), number > 1)
    new = new.assign(**{name: new[name].where(~missing, factuals[name]) for name in new})
    kinds = status["status"].where(~missing, str(StatusCode.NO_OTHER_PLAN))
    status = status.assign(
        status=kinds,
        reason=status["reason"].where(~missing, StatusCode.NO_OTHER_PLAN.text),
        binding=lists(*([LOCKED, ONLY_UP] if kind == StatusCode.NOT_FOUND else [] for kind in kinds), index=index),
    )
    for what in ("class", "probability"):
        outcome[f"{what}_after"] = outcome[f"{what}_after"].where(~missing, outcome[f"{what}_before"])
    paths = make_paths(factuals, new, outcome, [StatusCode(kind) for kind in kinds])
    measures[missing] = 0.0
    fields: dict[str, Any] = {
        "factuals": factuals,
        "counterfactuals": new,
        "status": status,
        "outcome": outcome,
        "changed": changed & ~missing[:, None],
        "paths": _kept(paths, factuals, keep),
        "request": one.request | {"plans": plans} | _requested(keep),
        "compute_measures": lambda: measures,
    }
    return make(**(fields | other))


def make_empty() -> Explanation:
    """No rows, but every column and dtype."""
    full = make()
    by_row = ("factuals", "counterfactuals", "status", "outcome", "changed")
    empty = {name: getattr(full, name).iloc[:0] for name in (*by_row, "paths")}
    return make(**empty, compute_measures=full.measures().iloc[:0])


@pytest.fixture
def explanation() -> Explanation:
    return make()


@pytest.fixture
def plans() -> Explanation:
    return make_plans()


@pytest.fixture
def empty() -> Explanation:
    return make_empty()

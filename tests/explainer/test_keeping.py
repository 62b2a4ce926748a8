"""However much of the paths is kept, the answer is the same; and what is not kept does not outlive its group."""

import copy
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath import Explanation
from counterpath.explainer.assemble import assemble
from counterpath.explainer.compare import compare
from counterpath.explainer.request import Request
from counterpath.explainer.solve import Group, Solver
from counterpath.fitting.fitted import FittedModels
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS, ROWS_AT_ONCE
from counterpath.search.paths import Paths
from counterpath.utils.errors import InputError
from tests.tables import features, mixed

pytestmark = pytest.mark.whole

FRAMES = ("factuals", "counterfactuals", "status", "outcome", "changed")
ASKED: dict[str, dict[str, Any]] = {
    "rsgd": {"method": "rsgd"},
    "geodesic": {"method": "geodesic"},
    "plans": {"method": "geodesic", "plans": 2},
    "wishes": {"method": "rsgd", "target_class": "low", "max_changes": 2, "lock": ["sex"]},
}
KEEPS = ("all", "milestones", "end")


@pytest.fixture(scope="module")
def quick(explainer: cp.Explainer) -> cp.Explainer:
    return copy.copy(explainer).set_params(max_steps=15)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return features(mixed(9, seed=1))


@pytest.fixture(scope="module")
def answers(quick: cp.Explainer, rows: pd.DataFrame) -> dict[str, dict[str, Explanation]]:
    return {name: {keep: quick.explain(rows, **asked, paths=keep) for keep in KEEPS} for name, asked in ASKED.items()}


@pytest.mark.parametrize("asked", ASKED)
def test_the_answer_is_the_same(answers: dict[str, dict[str, Explanation]], asked: str) -> None:
    whole, kept, left = (answers[asked][keep] for keep in KEEPS)
    for other in (kept, left):
        for name in FRAMES:
            pd.testing.assert_frame_equal(getattr(other, name), getattr(whole, name), check_exact=True)
        known = [] if other is kept or ASKED[asked]["method"] == "rsgd" else ["steps"]  # of a way nobody looked for
        tables = (each.measures() for each in (other, whole))
        pd.testing.assert_frame_equal(*(table.drop(columns=known) for table in tables), check_exact=True)
        assert other.measures()[known].isna().all(axis=None)
        summaries = (each.summary() for each in (other, whole))
        pd.testing.assert_frame_equal(*(table.drop(columns=known) for table in summaries), check_exact=True)
        assert other.to_text() == whole.to_text()
        assert (other.paths.dtypes == whole.paths.dtypes).all()
    assert kept.to_text(steps=True) == whole.to_text(steps=True)
    for plan in range(1, whole.plans + 1):
        for label in kept.plan(plan).factuals.index:
            given, stops = kept.milestones(label, plan=plan), whole.milestones(label, plan=plan)
            pd.testing.assert_frame_equal(given, stops, check_exact=True)
            pd.testing.assert_frame_equal(kept.path(label, plan), stops.drop(columns="changes"), check_exact=True)


def test_milestones_are_few_and_an_end_is_no_path(answers: dict[str, dict[str, Explanation]]) -> None:
    whole, kept, left = (answers["rsgd"][keep].paths for keep in KEEPS)
    assert (whole.groupby("row").size() > 5).any()
    assert kept.groupby("row").size().max() <= 5
    assert kept["row"].nunique() == whole["row"].nunique()
    assert len(left) == 0
    assert list(left.columns) == list(whole.columns)
    label = answers["rsgd"]["end"].factuals.index[0]
    with pytest.raises(InputError, match="was not kept; call explain"):
        answers["rsgd"]["end"].path(label)


def test_paths_end_with_the_probability_of_the_row_as_returned(answers: dict[str, dict[str, Explanation]]) -> None:
    for result in (answers["plans"]["all"], answers["plans"]["milestones"]):
        last = result.paths.groupby("row").tail(1)
        assert (last["probability"].to_numpy() == result.outcome["probability_after"].iloc[last["row"]]).all()


@pytest.mark.parametrize("asked", ASKED)
def test_rows_are_answered_in_parts_with_the_same_result(
    quick: cp.Explainer,
    rows: pd.DataFrame,
    answers: dict[str, dict[str, Explanation]],
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ROWS_AT_ONCE, "cpu", 4)
    monkeypatch.setattr(sys.modules["counterpath.explainer.assemble"], "_PATHS_AT_ONCE", 3)
    parts, whole = quick.explain(rows, **ASKED[asked], paths="milestones"), answers[asked]["milestones"]
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(parts, name), getattr(whole, name), check_exact=True)
    pd.testing.assert_frame_equal(parts.paths, whole.paths, rtol=0, atol=1e-12)
    pd.testing.assert_frame_equal(parts.measures(), whole.measures(), check_exact=True)


@pytest.mark.parametrize("keep", ["paths", ""])
def test_what_cannot_be_kept_is_refused_before_anything_is_searched(
    quick: cp.Explainer, rows: pd.DataFrame, keep: str
) -> None:
    with pytest.raises(InputError, match=r"unknown way to keep paths .*; choose one of: all, milestones, end"):
        quick.explain(rows, paths=keep)


def test_methods_are_compared_by_their_milestones(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    whole, kept = (compare(quick, rows, "low", methods=["rsgd"], paths=keep) for keep in ("all", "milestones"))
    for common in (False, True):
        tables = [each.table(common).drop(columns="seconds") for each in (whole, kept)]
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    label = whole.results["rsgd"].factuals.index[whole.results["rsgd"].measures()["steps"].argmax()]
    step = kept.results["rsgd"].path(label)["step"]
    first = kept.plot(label).subfigs[1].axes[0]
    assert first.lines[0].get_xdata().tolist() == (step / step.iloc[-1]).tolist()
    assert first.get_title() == whole.plot(label).subfigs[1].axes[0].get_title()


# Memory


def stored(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor's numbers lie, and how many bytes: none for sparse ones and for wrappers of other tensors."""
    try:
        storage = tensor.untyped_storage()
    except NotImplementedError:
        return 0, 0
    return storage.data_ptr(), storage.nbytes()


def living() -> int:
    """The bytes of all tensors that are held anywhere, also by a view of them."""
    return sum(dict(stored(thing) for thing in gc.get_objects() if issubclass(type(thing), Tensor)).values())


def own(value: Group | Paths) -> int:
    return sum(part.nbytes for part in vars(value).values() if isinstance(part, Tensor))


class Watched:
    """Groups as they are asked for: what is held when the next one is, and how large each is."""

    def __init__(self, groups: Iterator[tuple[Group, Paths]]) -> None:
        self.groups = groups
        self.held: list[int] = []
        self.group: list[int] = []
        self.paths: list[int] = []

    def __iter__(self) -> "Watched":
        return self

    def __next__(self) -> tuple[Group, Paths]:
        self.held.append(living())
        group, paths = next(self.groups)
        self.group.append(own(group))
        self.paths.append(own(paths))
        return group, paths


@pytest.mark.parametrize("keep", KEEPS)
def test_the_paths_of_a_group_do_not_outlive_it(
    models: FittedModels, keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROWS_AT_ONCE, "cpu", 10)
    rows = features(mixed(55, seed=3))
    request = Request("low", method="rsgd", paths=keep)
    solver = Solver(
        models,
        request,
        METHODS["rsgd"],
        SearchOptions(max_steps=15, staged=False),
        request.constraints(models.encoder.schema),
    )
    for _ in solver.solve(rows.head(10), torch.arange(10)):
        pass  # what is computed once is there from now on
    watched = Watched(solver.solve(rows, torch.arange(len(rows))))
    described = {"method": "rsgd", "target_class": "low", "confidence": 0.5, "paths": keep}
    result = assemble(models, rows, [[]] * len(rows), [""] * len(rows), watched, request, described, None, "", {}, 0.0)
    groups, paths = sum(watched.group[1:]), sum(watched.paths[1:])
    assert len(watched.group) >= 5
    assert paths > 4 * groups
    assert watched.held[-1] - watched.held[1] < 1.5 * groups
    sizes = {"all": 1.0, "milestones": 0.5, "end": 0.0}
    assert len(result.paths) <= sizes[keep] * (result.measures()["steps"] + 1).sum()

"""Paths that are found globally: on the data, from the person to a new row, and told where they cross a gap."""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import counterpath as cp
from counterpath import StatusCode
from counterpath.fitting.fitted import FittedModels
from counterpath.utils.errors import InputError
from tests.tables import LABEL, features, mixed, small

pytestmark = pytest.mark.filterwarnings("ignore:The generative model:counterpath.utils.errors.CounterpathWarning")


@pytest.fixture(scope="module")
def rows(explainer: cp.Explainer) -> pd.DataFrame:
    table = features(mixed(80, seed=3))
    return table[explainer.predict(table) != "low"].head(30)


@pytest.fixture(scope="module")
def islands() -> pd.DataFrame:
    """Two groups of people far from each other; only those of one of them are accepted."""
    random = np.random.default_rng(0)
    where = np.repeat([0.0, 10.0], 150)
    frame = pd.DataFrame({name: where + random.normal(0, 0.4, 300) for name in ("a", "b", "c")})
    return frame.assign(yes=(where > 5).astype(int))


def test_it_is_the_default(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    assert cp.Explainer().method == "geodesic"
    assert explainer.explain(rows.head(2), "low").request["method"] == "geodesic"


def test_everybody_is_found_and_the_path_leads_from_the_person_to_the_row(
    explainer: cp.Explainer, rows: pd.DataFrame
) -> None:
    found = explainer.explain(rows, "low", confidence=0.7, method="geodesic")
    assert found.valid.all()
    assert (found.outcome["probability_after"] >= 0.7).all()
    names = list(found.schema.names)
    for label in rows.index:
        path = found.path(label)
        pd.testing.assert_series_equal(
            path[names].iloc[0], rows.loc[label, names], check_names=False, check_dtype=False
        )
        end = found.counterfactuals.loc[label, names]
        pd.testing.assert_series_equal(path[names].iloc[-1], end, check_names=False, check_dtype=False)
        assert (path["probability"].iloc[1:-1] < 0.7).all()  # it ends at the first row that has what was asked for


def test_every_point_is_as_close_to_the_data_as_the_ends_or_as_real_rows(
    explainer: cp.Explainer, rows: pd.DataFrame
) -> None:
    models: FittedModels = explainer.models_
    found = explainer.explain(rows, "low")
    away = models.plausibility.distance(models.encoder.encode(found.paths[list(found.schema.names)])).numpy()
    for _, steps in found.paths.assign(away=away).groupby("row"):
        ends = max(steps["away"].iloc[0], steps["away"].iloc[-1], models.plausibility.limit)
        assert (steps["away"] <= ends + 1e-5).all()


def test_refinement_costs_nobody_more(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    plain = copy.copy(explainer).set_params(sparsify=False)
    rough, smooth = (plain.set_params(refine=refine).explain(rows, "low") for refine in (False, True))
    assert rough.valid.all()
    assert smooth.valid.all()
    l1 = [result.measures()["l1"] for result in (rough, smooth)]
    assert l1[1].mean() < l1[0].mean()


@pytest.mark.parametrize("method", ["rsgd", "wachter", "nearest"])
def test_the_answers_of_other_methods_are_made_closer_on_request(
    explainer: cp.Explainer, rows: pd.DataFrame, method: str
) -> None:
    plain, refined = (
        copy.copy(explainer).set_params(refine=refine).explain(rows, "low", confidence=0.6, method=method, lock=["sex"])
        for refine in (None, True)
    )
    assert refined.valid.equals(plain.valid)
    some = plain.valid.to_numpy()
    before, after = plain.measures()[some], refined.measures()[some]
    assert (after["l1"] <= before["l1"] + 1e-6).all()
    assert after["l1"].mean() < 0.98 * before["l1"].mean()
    models: FittedModels = explainer.models_
    away = models.plausibility.distance(models.encoder.encode(rows[some])).clamp_min(models.plausibility.limit)
    assert (after["ld"] <= before["ld"].clip(lower=away.numpy()) + 1e-5).all()
    for label in rows.index[some]:
        path = refined.path(label)
        assert (path["sex"] == rows.loc[label, "sex"]).all()
        names = list(refined.schema.names)
        ends = refined.counterfactuals.loc[label, names]
        pd.testing.assert_series_equal(path[names].iloc[-1], ends, check_names=False, check_dtype=False)
        assert (path["probability"].iloc[1:-1] < 0.6).all()


def test_no_copies_where_they_are_forbidden(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    """Asked about training rows with one value changed, the nearest way back is to become a training row."""
    private = copy.copy(explainer).set_params(allow_copies=False)
    rows = features(people)[explainer.predict(features(people)) != "low"].head(25)
    for method in ("geodesic", "rsgd"):
        assert not private.explain(rows, "low", method=method).measures()["copy"].any()
    for method in ("face", "nearest"):
        assert explainer.explain(rows, "low", method=method).measures()["copy"].all()
        with pytest.raises(InputError, match=f"method '{method}' returns training rows.*copies=False"):
            private.explain(rows, "low", method=method)


def test_a_gap_is_told_and_counted(islands: pd.DataFrame) -> None:
    explainer = small(latent_dim=2, seed=0).fit(islands, "yes")
    rejected = islands[explainer.predict(islands) == 0].head(12)
    found = explainer.explain(rejected.drop(columns="yes"), 1)
    assert found.valid.all()
    assert set(found.status["status"]) == {StatusCode.CROSSES_GAP}
    assert found.status["reason"].str.contains("gap in the data").all()
    assert found.summary()["gaps"].item() == 1.0
    chains = explainer.explain(rejected.drop(columns="yes"), 1, method="face")
    assert not chains.valid.any()  # no chain of people leads there
    assert (chains.counterfactuals[["a", "b", "c"]].to_numpy() == rejected[["a", "b", "c"]].to_numpy()).all()


def test_face_goes_from_training_row_to_training_row(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    found = explainer.explain(rows, "low", method="face")
    models: FittedModels = explainer.models_
    later = found.paths[found.paths["step"] > 0]
    assert len(later)
    assert models.plausibility.is_copy(models.encoder.encode(later[list(found.schema.names)])).all()


@pytest.fixture(scope="module")
def usual(people: pd.DataFrame) -> cp.Explainer:
    return small(epochs=8).fit(people, LABEL)


@pytest.mark.parametrize("options", [{"ambient_metric": "classifier"}, {"uncertainty_cost": False}])
def test_other_prices_lead_other_ways_and_are_kept(
    usual: cp.Explainer, people: pd.DataFrame, options: dict[str, object], tmp_path: Path
) -> None:
    other = small(epochs=8, **options).fit(people, LABEL)
    rows = features(mixed(20, seed=5))
    first, second = usual.explain(rows, "low"), other.explain(rows, "low")
    assert second.valid.mean() > 0.9
    # Ends do not depend on what steps cost, ways do.
    pd.testing.assert_frame_equal(first.counterfactuals, second.counterfactuals, check_exact=True)
    again = cp.load(other.save(tmp_path / "model"))
    costs = [_edge_costs(explainer) for explainer in (usual, other, again)]
    assert costs[0].shape != costs[1].shape or not torch.allclose(costs[0], costs[1], rtol=0.01)
    assert torch.equal(costs[1], costs[2])
    pd.testing.assert_frame_equal(again.explain(rows, "low").counterfactuals, second.counterfactuals, check_exact=True)
    with pytest.raises(InputError, match=r"made with (ambient_metric|uncertainty_cost)"):
        usual.repeat(second)


def _edge_costs(explainer: cp.Explainer) -> torch.Tensor:
    """What the edges of an explainer's roadmap cost."""
    _, state = explainer.models_.states["geodesic"]
    costs: torch.Tensor = state.roadmap.graph.weight
    return costs


def test_an_unknown_ambient_is_refused(people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"unknown ambient_metric 'model'.*data.*classifier"):
        small(ambient_metric="model").fit(people, LABEL)

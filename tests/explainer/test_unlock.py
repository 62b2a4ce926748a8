"""What people cannot change is locked in every request that does not unlock it, without another fit."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath import Explanation
from counterpath.cli import main
from counterpath.data.constraints import Constraints
from counterpath.data.status import BindingConstraint, Cause, Status, StatusCode
from counterpath.explainer.request import Request
from counterpath.explanation.wording import reason
from counterpath.search.conflicts import binding_constraints
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from tests.service.conftest import service
from tests.tables import features

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def rows(gridded: cp.Explainer, gridded_people: pd.DataFrame) -> pd.DataFrame:
    table = features(gridded_people)
    return table[gridded.predict(table) == "high"].head(8)


def test_it_is_locked_until_it_is_unlocked(gridded: cp.Explainer, rows: pd.DataFrame) -> None:
    held = gridded.explain(rows, "low", feature_costs={"city": 0.01})
    assert not held.changed["city"].any()
    own = rows["city"].iloc[held.paths["row"]].to_numpy()
    assert (held.paths["city"] == own).all()
    free = gridded.explain(rows, "low", unlock=["city"], feature_costs={"city": 0.01})
    assert free.changed["city"].any()
    assert free.request["unlock"] == ["city"]
    locked = gridded.explain(rows, "low", unlock=["city"], lock=["city"], feature_costs={"city": 0.01})
    pd.testing.assert_frame_equal(locked.counterfactuals, held.counterfactuals, check_exact=True)
    stored = gridded.repeat(Explanation.from_json(free.to_json()))
    pd.testing.assert_frame_equal(stored.counterfactuals, free.counterfactuals, check_exact=True)


def test_whoever_is_stuck_by_it_is_told(gridded: cp.Explainer, rows: pd.DataFrame) -> None:
    """By a model that looks at nothing but the city."""
    encoder = gridded.encoder_
    x, constraints = encoder.encode(rows), Constraints.of(gridded.schema_)
    there = encoder.columns("city")[0]
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, rows, x))

    def lives_there(tried: Tensor) -> Tensor:
        return torch.stack([1 - tried[:, there], tried[:, there]], 1)

    binding = binding_constraints(feasible, x, lives_there, Target(1), constraints)
    expected = [BindingConstraint("not_actionable", "city", 1.0)]
    assert binding == [[] if lives else expected for lives in (x[:, there] == 1).tolist()]
    assert expected in binding
    told = reason(Status(StatusCode.NOT_FOUND, Cause.STEPS, binding=tuple(expected)), 0.2, 0.5)
    assert "city is not something that people can change" in told


def test_what_may_not_be_unlocked_is_named(gridded: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="unlock has 'sex', which is immutable: fit again with a schema"):
        gridded.explain(rows, unlock=["sex"])
    with pytest.raises(InputError, match=r"unknown feature in unlock: 'citty' \(did you mean 'city'"):
        gridded.explain(rows, unlock=["citty"])
    with pytest.raises(InputError, match=r"unlock is 3; expected names of features"):
        Constraints.of(gridded.schema_, unlock=3)
    rest = [name for name in rows if name not in ("city", "sex")]
    with pytest.raises(InputError, match=r"nothing is left that could change.*city; try unlock=\['city'\]"):
        gridded.explain(rows, lock=rest)
    assert gridded.explain(rows.head(2), lock=rest, unlock=["city"]).changed.drop(columns="city").sum().sum() == 0


def test_a_request_knows_it(gridded: cp.Explainer) -> None:
    request = Request(unlock="city")
    assert request.unlock == ("city",)
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert gridded.schema_.not_actionable == ("city",)
    assert Constraints.of(gridded.schema_, unlock=["city"]).not_actionable(gridded.schema_) == ()


@pytest.fixture(scope="module")
def cities(gridded: cp.Explainer, rows: pd.DataFrame) -> dict[tuple[str, ...], list[str]]:
    """The cities of three counterfactuals, by what is unlocked."""
    asked = {"target_class": "low", "feature_costs": {"city": 0.01}}
    found = {unlock: gridded.explain(rows.head(3), unlock=unlock, **asked) for unlock in ((), ("city",))}
    return {unlock: each.counterfactuals["city"].tolist() for unlock, each in found.items()}


def test_the_command_line_knows_it(
    gridded: cp.Explainer, rows: pd.DataFrame, cities: dict[tuple[str, ...], list[str]], tmp_path: Path
) -> None:
    gridded.save(tmp_path / "model")
    rows.head(3).to_csv(tmp_path / "rows.csv", index=False)
    for unlock, expected in cities.items():
        out = tmp_path / f"found{len(unlock)}.csv"
        told = ["--unlock", "city"] if unlock else []
        given = ["explain", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--target-class", "low", *told]
        assert main([*given, "--feature-cost", "city=0.01", "--out", str(out)]) == 0
        assert pd.read_csv(out)["city"].tolist()[:3] == expected


def test_the_service_knows_it(
    gridded: cp.Explainer, rows: pd.DataFrame, cities: dict[tuple[str, ...], list[str]]
) -> None:
    records = json.loads(rows.head(3).to_json(orient="records"))
    with service({"people": gridded}, Settings()) as client:
        for unlock, expected in cities.items():
            body = {"rows": records, "target_class": "low", "unlock": unlock, "feature_costs": {"city": 0.01}}
            answer = client.post("/v1/models/people:explain", json=body)
            assert answer.status_code == 200, answer.text
            assert [row["plans"][0]["counterfactual"]["city"] for row in answer.json()["rows"]] == expected
        wrong = client.post("/v1/models/people:explain", json={"rows": records, "unlock": ["sex"]})
        assert wrong.status_code == 422
        assert "unlock" in wrong.text
        assert "sex" in wrong.text

"""Numbers as targets over HTTP."""

from collections.abc import Iterator

import httpx
import pandas as pd
import pytest

import counterpath as cp
from counterpath.service.schemas import json_records
from counterpath.service.settings import Settings

from .conftest import service

EXPLAIN, PREDICT = "/v1/models/prices:explain", "/v1/models/prices:predict"


@pytest.fixture(scope="module")
def prices(priced: cp.Explainer) -> Iterator[httpx.Client]:
    with service({"prices": priced}, Settings(rows=50)) as client:
        yield client


@pytest.fixture(scope="module")
def cheap(priced: cp.Explainer, houses: pd.DataFrame) -> pd.DataFrame:
    return houses.drop(columns="price")[(priced.predict(houses) < 60).to_numpy()].head(6)


def test_answers_lie_in_the_range(prices: httpx.Client, priced: cp.Explainer, cheap: pd.DataFrame) -> None:
    response = prices.post(EXPLAIN, json={"rows": json_records(cheap), "target_range": [90, None], "plans": 2})
    assert response.status_code == 200
    wanted = priced.explain(cheap, target_range=(90, None), plans=2)
    plans = [plan for row in response.json()["rows"] for plan in row["plans"]]
    assert [plan["status"] for plan in plans] == wanted.status["status"].tolist()
    assert [plan["sentence"] for plan in plans] == wanted.sentences.tolist()
    assert plans[0]["sentence"].startswith("Plan 1 of 2: The model predicts ")
    assert "It would predict at least 90 k€" in plans[0]["sentence"]
    found = [plan["counterfactual"] for plan in plans if plan["status"] == "found"]
    assert len(found) > 6
    assert (priced.predict(pd.DataFrame(found)) >= 90).all()


def test_every_row_may_have_a_range_of_its_own(prices: httpx.Client, priced: cp.Explainer, cheap: pd.DataFrame) -> None:
    own = [{"target_range": [80, 90]}, None]
    asked = {"rows": json_records(cheap.head(2)), "target_range": [None, 20], "row_constraints": own}
    response = prices.post(EXPLAIN, json=asked)
    assert response.status_code == 200, response.text
    rows = [row["plans"][0]["counterfactual"] for row in response.json()["rows"]]
    said = priced.predict(pd.DataFrame(rows))
    assert 80 <= said.iloc[0] <= 90
    assert said.iloc[1] <= 20


def test_what_cannot_be_asked_of_a_regressor_is_said(prices: httpx.Client, cheap: pd.DataFrame) -> None:
    rows = json_records(cheap.head(1))
    for asked, word in (({}, "target_range"), ({"target_range": [90, 80]}, "90"), ({"confidence": 0.8}, "confidence")):
        response = prices.post(EXPLAIN, json={"rows": rows, **asked})
        assert response.status_code == 422
        assert word in response.text


def test_it_predicts_numbers(prices: httpx.Client, priced: cp.Explainer, cheap: pd.DataFrame) -> None:
    response = prices.post(PREDICT, json={"rows": json_records(cheap)})
    assert response.status_code == 200
    assert [row["class"] for row in response.json()["rows"]] == pytest.approx(priced.predict(cheap).tolist())

"""The responses of the service, by a real server."""

import copy
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pandas as pd
import pytest

import counterpath as cp
from counterpath.service.api import create, publish
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.schemas import ExplainResponse, ModelCard, Problem, json_records
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from tests.tables import CITIES, CLASSES, LABEL, described, features

from .conftest import served, service

EXPLAIN, PREDICT = "/v1/models/people:explain", "/v1/models/people:predict"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> list[dict[str, Any]]:
    return json_records(features(people).head(60))


def test_a_response_has_all_that_the_explanation_has(
    client: httpx.Client, explainer: cp.Explainer, people: pd.DataFrame, rows: list[dict[str, Any]]
) -> None:
    request = {"target_class": "low", "confidence": 0.6, "plans": 2, "paths": "milestones", "lock": ["sex"]}
    response = client.post(EXPLAIN, json={"rows": rows[:4], **request})
    assert response.status_code == 200
    ExplainResponse.model_validate(response.json())
    wanted = explainer.explain(features(people).head(4), **request)
    got = response.json()["rows"]
    plans = [plan for row in got for plan in row["plans"]]
    assert [plan["status"] for plan in plans] == wanted.status["status"].tolist()
    assert [plan["reason"] for plan in plans] == wanted.status["reason"].tolist()
    assert [plan["fallback"] for plan in plans] == wanted.status["fallback"].tolist()
    assert [plan["binding"] for plan in plans] == wanted.status["binding"].tolist()
    assert [row["imputed"] for row in got] == wanted.status["imputed"].tolist()[::2]
    assert [plan["sentence"] for plan in plans] == wanted.sentences.tolist()
    assert [row["class_before"] for row in got] == wanted.outcome["class_before"].tolist()[::2]
    assert [plan["probability_after"] for plan in plans] == wanted.outcome["probability_after"].tolist()
    assert pd.DataFrame([plan["counterfactual"] for plan in plans])["debt"].tolist() == pytest.approx(
        wanted.counterfactuals["debt"].tolist(), abs=0
    )
    assert [plan["measures"]["l1"] for plan in plans] == wanted.measures()["l1"].tolist()
    changed = [(change["feature"], change["from"], change["to"]) for plan in plans for change in plan["changes"]]
    assert changed == list(wanted.changes[["feature", "from", "to"]].itertuples(index=False, name=None))
    assert plans[0]["milestones"][-1]["features"] == plans[0]["counterfactual"]
    assert [point["changes"] for point in plans[0]["milestones"]] == wanted.milestones("p0", plan=1)["changes"].tolist()
    assert any(change["difference"] is None for plan in plans for change in plan["changes"])


def test_rows_have_constraints_of_their_own(
    client: httpx.Client, explainer: cp.Explainer, people: pd.DataFrame, rows: list[dict[str, Any]]
) -> None:
    where = [number for number, label in enumerate(explainer.predict(people.head(60))) if label == "high"][:4]
    asked = [rows[number] for number in where]
    own: list[Any] = [
        {"lock": ["score"], "directions": {"debt": "down"}},
        {"ranges": {"children": [None, 3]}},
        None,
        {"target_class": "mid", "confidence": 0.6},
    ]
    body = {"rows": asked, "target_class": "low", "row_constraints": own}
    with ThreadPoolExecutor() as clients:  # those that wait together have their own, too
        both = [*clients.map(lambda body: client.post(EXPLAIN, json=body), [body, body])]
    assert [response.status_code for response in both] == [200, 200]
    assert both[0].json() == both[1].json()
    plans = [row["plans"][0] for row in both[0].json()["rows"]]
    table = pd.DataFrame(
        {
            "lock": ["score", None, None, None],
            "debt.direction": ["down", None, None, None],
            "children.high": [None, 3, None, None],
            "target_class": [None, None, None, "mid"],
            "confidence": [None, None, None, 0.6],
        }
    )
    wanted = explainer.explain(features(people).iloc[where], "low", constraints=table)
    assert [plan["sentence"] for plan in plans] == wanted.sentences.tolist()
    assert {"score"} & {change["feature"] for change in plans[0]["changes"]} == set()
    assert plans[1]["counterfactual"]["children"] <= 3
    assert plans[3]["class_after"] == "mid"
    plain = client.post(EXPLAIN, json={**body, "row_constraints": []}).json()["rows"]
    assert plain[2]["plans"] == [plans[2]], "who has none is answered as if nobody had"
    assert plain[3]["plans"][0]["class_after"] == "low"


def test_rules_of_a_request_hold(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    asked = {"rows": rows[:6], "target_class": "low", "rules": ["debt changes => children changes"], "paths": "all"}
    answer = client.post(EXPLAIN, json=asked).json()["rows"]
    moved = 0
    for row, own in zip(answer, rows, strict=False):
        for point in row["plans"][0]["path"][1:]:
            moved += point["features"]["debt"] != own["debt"]
            assert point["features"]["debt"] == own["debt"] or point["features"]["children"] != own["children"]
    assert moved


def test_a_family_that_is_not_there_is_not_trained_while_people_wait(
    client: httpx.Client, rows: list[dict[str, Any]]
) -> None:
    refused = client.post(EXPLAIN, json={"rows": rows[:1], "target_class": "low", "robust": 0.8})
    assert refused.status_code == 422
    assert refused.json()["code"] == "unusable"
    assert "counterpath fit --family" in refused.json()["detail"]


def test_answers_that_last_over_http_are_those_of_python(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    lasting = copy.copy(explainer).fit_family(size=40, held_out=5)
    asked = {"target_class": "low", "robust": 0.8}
    with service({"people": lasting}, Settings()) as client:
        answer = client.post(EXPLAIN, json={"rows": rows[:3], **asked}).json()["rows"]
        refused = client.post(EXPLAIN, json={"rows": rows[:1], "target_class": "low", "robust": 0.95})
    wanted = lasting.explain(pd.DataFrame(rows[:3]), **asked)
    plans = [row["plans"][0] for row in answer]
    assert [plan["status"] for plan in plans] == wanted.status["status"].tolist()
    shares = pd.Series([plan["share"] for plan in plans], dtype=float)
    after = pd.Series([plan["measures"]["valid_after"] for plan in plans], dtype=float)
    assert shares.notna().any()
    assert shares.tolist() == pytest.approx(wanted.status["share"].astype(float).tolist(), nan_ok=True)
    assert after.tolist() == pytest.approx(wanted.measures()["valid_after"].tolist(), nan_ok=True)
    assert refused.status_code == 422
    assert "at least 84 models are needed" in refused.json()["detail"]


def test_the_description_says_what_people_call_things(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    named = copy.copy(explainer)
    named.schema_ = described(explainer.schema_)
    with service({"people": named}, Settings()) as client:
        parts = client.get("/openapi.json").json()["components"]["schemas"]
        words = {name: field["description"] for name, field in parts["PeopleRow"]["properties"].items()}
        card = ModelCard.model_validate(client.get("/v1/models/people").json())
        answer = client.post(PREDICT, json={"rows": rows[:1]}).json()
    assert words["city"].startswith("Home town. One of: A (City A), B (City B)")
    assert words["size"].endswith("huge (very large). No plan changes it unless it is in `unlock`.")
    assert words["children"].startswith("How many children live in the household. From 0 to ")
    assert " euros in the training rows." in words["debt"]
    assert words["score"].startswith("From ")
    assert card.class_labels == {"high": "refused", "low": "granted"}
    assert {each.name: (each.label, each.unit) for each in card.features}["debt"] == ("Debt", "euros")
    assert answer["rows"][0]["class"] in CLASSES, "machines read classes as they are"


def test_as_much_of_the_path_comes_as_is_asked_for(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    plan = client.post(EXPLAIN, json={"rows": rows[:1], "target_class": "low"}).json()["rows"][0]["plans"][0]
    assert "path" not in plan
    assert "milestones" not in plan
    request = {"rows": rows[:1], "target_class": "low", "paths": "all"}
    plan = client.post(EXPLAIN, json=request).json()["rows"][0]["plans"][0]
    assert [point["step"] for point in plan["path"]] == list(range(len(plan["path"])))
    assert plan["path"][-1]["features"] == plan["counterfactual"]
    assert plan["path"][-1]["probability"] == plan["probability_after"]


def test_a_prediction_is_the_explainers(
    client: httpx.Client, explainer: cp.Explainer, people: pd.DataFrame, rows: list[dict[str, Any]]
) -> None:
    response = client.post(PREDICT, json={"rows": rows[:3]}).json()
    assert response["classes"] == list(CLASSES)
    assert [row["class"] for row in response["rows"]] == explainer.predict(features(people).head(3)).tolist()
    given = explainer.predict_proba(features(people).head(3)).to_numpy().tolist()
    assert [row["probabilities"] for row in response["rows"]] == given


def test_no_rows_give_an_empty_response(client: httpx.Client) -> None:
    assert client.post(EXPLAIN, json={"rows": []}).json() == {"model": "people", "rows": []}
    assert client.post(PREDICT, json={"rows": []}).json()["rows"] == []


def test_a_category_that_was_never_seen_is_that_rows_own_matter(
    client: httpx.Client, rows: list[dict[str, Any]]
) -> None:
    request = {"rows": [rows[0] | {"city": "Atlantis <img src=x>"}, rows[1]], "target_class": "low"}
    strange, usual = client.post(EXPLAIN, json=request).json()["rows"]
    assert strange["plans"][0]["status"] == "unknown_category"
    assert "Atlantis <img src=x>" in strange["plans"][0]["reason"]
    assert strange["class_before"] is None
    assert usual["plans"][0]["status"] in ("found", "already", "crosses_gap")
    response = client.post(PREDICT, json={"rows": request["rows"]})
    assert response.status_code == 200
    strange, usual = response.json()["rows"]
    why = strange.pop("reason")
    assert why.startswith("column 'city', row 0: 'Atlantis <img src=x>' is not a known category")
    assert strange == {"class": None, "probabilities": None}
    assert usual["reason"] == ""
    assert usual["class"] in response.json()["classes"]


def test_a_model_describes_itself(client: httpx.Client, explainer: cp.Explainer) -> None:
    assert client.get("/v1/models").json() == {"models": [{"name": "people", "target": LABEL, "features": 7}]}
    card = ModelCard.model_validate(client.get("/v1/models/people").json())
    assert card.target == LABEL
    assert card.classes == list(CLASSES)
    assert [feature.name for feature in card.features] == list(explainer.schema_.names)
    assert card.features[0].categories == list(CITIES)
    assert "geodesic" in card.methods
    assert "flow" not in card.methods  # it needs a flow, and none was fitted
    assert card.diagnostics == str(explainer.diagnostics())


WRONG = [
    ({"rows": [{}]}, "invalid", "rows[0].city: Field required (and 6 more)"),
    ({"rows": [{"debt": "much"}]}, "invalid", "rows[0].debt"),
    ({"rows": [{"debt": True}]}, "invalid", "rows[0].debt"),
    ({"rows": [{"debt": None}]}, "invalid", "rows[0].debt"),
    ({"rows": [{"debt": [1]}]}, "invalid", "rows[0].debt"),
    ({"rows": [{"children": 1.5}]}, "invalid", "rows[0].children"),
    ({"rows": [{"member": 1}]}, "invalid", "rows[0].member"),
    ({"rows": [{"city": 3}]}, "invalid", "rows[0].city"),
    ({"rows": [{"height": 3}]}, "invalid", "rows[0].height"),
    ({"rows": [{"score": 1e300}]}, "unusable", "column 'score', row 0: 1e+300 is too far from the training rows"),
    ({"rows": {}}, "invalid", "rows"),
    ({"rows": "x"}, "invalid", "rows"),
    ([], "invalid", "the body"),
    ({"target_class": "poor"}, "invalid", "target_class: Value error, expected one of: 'high', 'low', 'mid', 'other'"),
    ({"confidence": 1}, "invalid", "confidence"),
    ({"confidence": "0.5"}, "invalid", "confidence"),
    ({"method": "magic"}, "invalid", "method"),
    ({"method": "flow"}, "invalid", "method"),
    ({"paths": "some"}, "invalid", "paths"),
    ({"plans": 0}, "invalid", "plans"),
    ({"plans": 10**9}, "invalid", "plans"),
    ({"lock": ["height"]}, "invalid", "lock[0]"),
    (
        {"lock": ["city", "size", "children", "member", "sex", "debt", "score"]},
        "unusable",
        "leaves nothing that could change",
    ),
    ({"directions": {"city": "up"}}, "invalid", "directions.city"),
    ({"directions": {"debt": "sideways"}}, "invalid", "directions.debt"),
    ({"ranges": {"debt": [9, 1]}}, "unusable", "low=9.0 above high=1.0; swap them?"),
    ({"ranges": {"debt": [1]}}, "invalid", "ranges.debt"),
    ({"ranges": {"city": ["Z"]}}, "invalid", "ranges.city[0]"),
    ({"feature_costs": {"debt": 0}}, "invalid", "feature_costs.debt"),
    ({"rules": ["debt <= nothing"]}, "unusable", "unknown feature in the rule 'debt <= nothing'"),
    ({"row_constraints": [{"lock": ["height"]}]}, "invalid", "row_constraints[0].lock[0]"),
    ({"row_constraints": [{"max_changes": 2}]}, "invalid", "row_constraints[0].max_changes"),
    (
        {"row_constraints": [{"ranges": {"debt": [9, 1]}}]},
        "unusable",
        "the constraints of row 0: the range of feature 'debt'",
    ),
    ({"row_constraints": [{"lock": ["debt"]}, None]}, "unusable", "constraints of 2 rows for 1 rows"),
    ({"time_limit": 0}, "invalid", "time_limit"),
    ({"time_limit": 1e6}, "invalid", "time_limit"),
    ({"colour": "red"}, "invalid", "colour: Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("change", "code", "said"), WRONG)
def test_what_is_wrong_is_named(
    client: httpx.Client, rows: list[dict[str, Any]], change: Any, code: str, said: str
) -> None:
    body = change
    if isinstance(change, dict):
        body = {"rows": rows[:1]} | change
        if isinstance(body["rows"], list) and body["rows"][0]:
            body["rows"] = [rows[0] | body["rows"][0]]
    response = client.post(EXPLAIN, json=body)
    assert response.status_code == 422
    error = Problem.model_validate(response.json())
    assert error.code == code
    assert said in error.detail


def test_not_a_number_is_not_json(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    for text in ("NaN", "Infinity", "-Infinity", "1e999"):
        body = json.dumps({"rows": [rows[0], rows[1] | {"debt": "X"}]}).replace('"X"', text)
        response = client.post(EXPLAIN, content=body, headers=JSON)
        assert response.status_code == 422
        assert response.json()["code"] == "not_json"
        assert response.json()["errors"][0]["location"] == "rows[1].debt"


def test_an_empty_body_is_no_request(client: httpx.Client) -> None:
    assert client.post(EXPLAIN, content=b"", headers=JSON).status_code == 422


def test_too_many_rows(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    response = client.post(PREDICT, json={"rows": rows[:51]})
    assert response.status_code == 413
    assert "51 rows; expected at most 50" in response.json()["detail"]
    assert client.post(PREDICT, json={"rows": rows[:50]}).status_code == 200


@pytest.mark.parametrize(
    "name", ["nobody", "../people", "..%2f..%2fetc%2fpasswd", "people%00", "%2e%2e", "", "a" * 5000, "people:"]
)
def test_there_is_no_other_model(client: httpx.Client, name: str) -> None:
    for response in (
        client.get(f"/v1/models/{name}" if name else "/v1/models/"),
        client.post(f"/v1/models/{name}:explain", content=b"{}", headers=JSON),
    ):
        assert response.status_code == 404
        assert Problem.model_validate(response.json()).code == "not_found"


def test_a_method_that_an_address_does_not_have(client: httpx.Client) -> None:
    response = client.get(EXPLAIN)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


def test_health_readiness_and_metrics(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    client.post(PREDICT, json={"rows": rows[:7]})
    client.get("/nowhere/at/all")
    text = client.get("/metrics").text
    assert f'counterpath_requests_total{{method="POST",route="{PREDICT}",status="200"}}' in text
    assert 'counterpath_requests_total{method="GET",route="other",status="404"}' in text
    assert 'counterpath_queue_length{kind="explain"} 0.0' in text
    assert 'counterpath_batch_requests_bucket{kind="predict",le="1.0"}' in text
    assert "counterpath_request_seconds_bucket" in text
    assert "process_resident_memory_bytes" in text


def test_a_request_has_so_long_and_no_longer(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    with service({"people": explainer}, Settings()) as client:
        request = {"rows": rows, "target_class": "low", "plans": 9, "confidence": 0.9, "method": "rsgd"}
        started = time.monotonic()
        response = client.post(EXPLAIN, json=request | {"time_limit": 0.3})
        assert response.status_code == 504
        assert response.json()["code"] == "out_of_time"
        assert time.monotonic() - started < 5
        assert client.post(PREDICT, json={"rows": rows[:1]}).status_code == 200


def test_a_request_is_cancelled_when_its_client_goes_away(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    with service({"people": explainer}, Settings()) as client:
        address = str(client.base_url)
        for paths in ("all", "end"):  # the second waits for the first
            request = {
                "rows": rows[:50],
                "plans": 9,
                "confidence": 0.9,
                "method": "rsgd",
                "paths": paths,
                "time_limit": 5,
            }
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{address}{EXPLAIN}", json=request, timeout=0.7)
        until = time.monotonic() + 10
        both = f'counterpath_requests_total{{method="POST",route="{EXPLAIN}",status="499"}} 2.0'
        while both not in (text := client.get("/metrics").text) and time.monotonic() < until:
            time.sleep(0.05)
        assert both in text
        assert 'counterpath_queue_length{kind="explain"} 0.0' in text


def test_a_full_queue_says_when_to_try_again(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    with service({"people": explainer}, Settings(queue=1)) as client:
        address = f"{client.base_url}{EXPLAIN}"
        with ThreadPoolExecutor() as others:
            for paths in ("all", "end"):  # the first is being computed, and the second waits
                request = {
                    "rows": rows[:50],
                    "plans": 9,
                    "confidence": 0.9,
                    "method": "rsgd",
                    "paths": paths,
                    "time_limit": 3,
                }
                others.submit(httpx.post, address, json=request, timeout=60)
                time.sleep(0.7)
            response = client.post(EXPLAIN, json={"rows": rows[:1], "method": "rsgd"})
            assert client.get("/healthz").status_code == 200
        assert response.status_code == 503
        assert response.json()["code"] == "busy"
        assert 1 <= int(response.headers["retry-after"]) <= 60


def test_a_service_that_stops_is_not_ready(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    dispatcher = Dispatcher({"people": explainer})
    with served(create(dispatcher)) as address:
        dispatcher.stopping = True
        assert httpx.get(f"{address}/readyz").status_code == 503
        assert httpx.get(f"{address}/healthz").status_code == 200
        response = httpx.post(f"{address}{EXPLAIN}", json={"rows": rows[:1]})
        assert response.status_code == 503
        assert "retry-after" in response.headers


def test_a_fault_of_ours_has_an_id_and_no_traceback(
    explainer: cp.Explainer, rows: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    app = create(Dispatcher({"people": explainer}))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("secret words")

    with served(app) as address:
        response = httpx.get(f"{address}/broken")
    assert response.status_code == 500
    error = Problem.model_validate(response.json())
    assert error.id is not None
    assert "secret words" not in response.text
    assert "Traceback" not in response.text
    assert error.id in caplog.text
    assert "secret words" in caplog.text


def test_a_model_that_comes_later_is_offered_too(explainer: cp.Explainer, rows: list[dict[str, Any]]) -> None:
    dispatcher = Dispatcher({})
    app = create(dispatcher)
    with served(app) as address:
        assert httpx.get(f"{address}/readyz").status_code == 503
        assert httpx.post(f"{address}{PREDICT}", json={"rows": rows[:1]}).status_code == 404
        dispatcher.models["people"] = explainer
        publish(app, "people")
        assert httpx.post(f"{address}{PREDICT}", json={"rows": rows[:1]}).status_code == 200
        assert PREDICT in httpx.get(f"{address}/openapi.json").json()["paths"]
    dispatcher.models["a/b"] = explainer
    with pytest.raises(InputError, match="cannot be part of an address"):
        publish(app, "a/b")


def test_the_example_of_the_description_is_no_training_row_and_works(
    client: httpx.Client, people: pd.DataFrame
) -> None:
    described = client.get("/openapi.json").json()["paths"][EXPLAIN]["post"]["requestBody"]
    example = described["content"]["application/json"]["example"]
    assert client.post(EXPLAIN, json=example).status_code == 200
    assert not (features(people)["debt"] == example["rows"][0]["debt"]).any()

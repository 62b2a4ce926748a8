"""Dates and durations, from a table to its answers."""

import datetime
import io
import os
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath.batch.results import explain_rows
from counterpath.data import datasets
from counterpath.explainer.request import Request
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.tables import small

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning"),
]
UNLOCKED = {"opened": {"immutable": False}, "seen": {"immutable": False}}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """An account that was opened early, and a short delay, are what is wanted."""
    random = np.random.default_rng(0)
    opened, seen, delay = random.integers(0, 3000, 300), random.random(300) * 900, random.integers(0, 60, 300)
    return pd.DataFrame(
        {
            "id": np.arange(300),
            "opened": (pd.Timestamp("2010-01-01") + pd.to_timedelta(opened, unit="D")).strftime("%d.%m.%Y"),
            "seen": pd.Timestamp("2019-01-01") + pd.to_timedelta((seen * 86400).astype(int), unit="s"),
            "born": [datetime.date(1980, 1, 1) + datetime.timedelta(int(days)) for days in opened],
            "delay": pd.to_timedelta(delay, unit="D"),
            "good": np.where(opened / 3000 + delay / 60 + seen / 900 < 1.5, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def explainer(table: pd.DataFrame) -> cp.Explainer:
    schema = cp.Schema.infer(table, target="good", overrides=UNLOCKED)
    return small(epochs=30).fit(table, "good", schema=schema)


@pytest.fixture(scope="module")
def rows(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["good"] == "no"].head(8).drop(columns="good")


@pytest.fixture(scope="module")
def answer(explainer: cp.Explainer, rows: pd.DataFrame) -> cp.Explanation:
    return explainer.explain(rows, "yes")


@pytest.mark.slow
def test_raw_compas_goes_through_in_one_run() -> None:
    file = (
        Path(os.environ.get(datasets.VARIABLE) or Path(__file__).parents[3] / "shared" / "data") / "compas_raw.csv.gz"
    )
    if not file.is_file():
        pytest.skip(f"{file} is not there: it must not be shipped")
    frame = pd.read_csv(file).head(200)
    with pytest.warns(
        CounterpathWarning, match=r"left out: 'id' .*'violent_recid' .*are dates.*'c_jail_in' \(%Y-%m-%d %H"
    ):
        explainer = small(epochs=2).fit(frame, "two_year_recid")
    assert sum(feature.kind == "date" for feature in explainer.schema_) == 13
    answer = explainer.explain(frame.head(3))
    assert answer.counterfactuals["c_jail_in"].tolist() == frame["c_jail_in"].head(3).tolist()


def test_dates_change_as_dates_and_stay_to_the_bit(answer: cp.Explanation, rows: pd.DataFrame) -> None:
    after, changed = answer.counterfactuals, answer.changed
    assert (answer.status["status"] == "found").any()
    assert changed[["opened", "seen", "delay"]].any().any()
    assert not changed["born"].any()
    pd.testing.assert_series_equal(after.dtypes, rows.drop(columns="id").dtypes)
    for name in changed.columns:
        same = ~changed[name]
        assert after[name][same].tolist() == rows[name][same].tolist()
    assert pd.to_datetime(after["opened"], format="%d.%m.%Y").notna().all()
    assert (after["delay"] == after["delay"].dt.floor("D")).all()
    words = " ".join(answer.sentences)
    opened = rows.index[changed["opened"]]
    assert all(f" instead of {rows['opened'][row]}" in words for row in opened)
    assert any(" days instead of " in words for _ in [0]) or not changed["delay"].any()
    assert "00:00:00" not in words


def test_an_answer_with_dates_can_be_kept(answer: cp.Explanation, tmp_path: Path) -> None:
    again = cp.Explanation.from_json(answer.to_json())
    pd.testing.assert_frame_equal(again.counterfactuals, answer.counterfactuals)
    pd.testing.assert_frame_equal(again.paths, answer.paths)
    assert again.sentences.tolist() == answer.sentences.tolist()
    answer.to_parquet(tmp_path / "answer.parquet")
    read = pd.read_parquet(tmp_path / "answer.parquet")
    assert read["seen"].tolist() == answer.counterfactuals["seen"].tolist()
    answer.to_csv(tmp_path / "answer.csv")
    assert str(answer.counterfactuals["opened"].iloc[0]) in (tmp_path / "answer.csv").read_text()
    answer.to_html(tmp_path / "report.html")
    for row in answer.factuals.index[:2]:
        answer.plot_path(row, tmp_path / "path.svg")
    answer.plot_changes(tmp_path / "changes.svg")


def test_a_model_with_dates_can_be_kept(explainer: cp.Explainer, rows: pd.DataFrame, tmp_path: Path) -> None:
    again = cp.Explainer.load(explainer.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(again.predict_proba(rows), explainer.predict_proba(rows))


def test_rows_as_text_are_the_same_rows(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    text = pd.read_csv(io.StringIO(rows.to_csv(index=False))).set_axis(rows.index)
    pd.testing.assert_frame_equal(explainer.predict_proba(text), explainer.predict_proba(rows))
    with pytest.raises(InputError, match=r"column 'seen', row \d+: 'soon' is not a date; expected one such as"):
        explainer.predict_proba(text.assign(seen="soon"))


def test_requests_may_bound_dates(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    free = explainer.explain(rows, "yes", ranges={"seen": (None, "2021-12-31")}, directions={"opened": "down"})
    before, after = (pd.to_datetime(each["opened"], format="%d.%m.%Y") for each in (rows, free.counterfactuals))
    assert (after <= before).all()


def test_a_batch_writes_dates(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    features = rows.drop(columns="id").reset_index(drop=True)
    written = features.astype({"seen": str, "delay": str, "born": str})
    written.loc[1, "seen"] = "soon"
    request = explainer.explain(features.head(1), "yes", paths="end").request
    result = explain_rows(explainer, request, written).counterfactuals
    assert str(result.schema.field("seen").type) == "timestamp[us]"
    assert "'soon' is not a date" in result["reason"][1].as_py()
    assert result["delay"][0].as_py() <= datetime.timedelta(days=60)


def test_the_service_takes_and_gives_dates(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    from counterpath.service.settings import Settings
    from tests.service.conftest import service

    body: dict[str, Any] = {"rows": [{"opened": "01.02.2017", "seen": "2021-05-01 10:00:00", "born": "1987-02-01"}]}
    body["rows"][0] |= {"delay": "50 days", "id": 7}
    with service({"accounts": explainer}, Settings(rows=5)) as client:
        card = client.get("/v1/models/accounts").json()
        answer: httpx.Response = client.post("/v1/models/accounts:explain", json=body)
    assert answer.status_code == 200, answer.text
    plan = answer.json()["rows"][0]["plans"][0]
    assert plan["counterfactual"]["born"] == "1987-02-01"
    assert {feature["name"]: feature["kind"] for feature in card["features"]}["delay"] == "duration"


def test_a_page_asks_for_dates_as_text(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    from counterpath.explorer.state import single_row

    values = {"opened": "01.02.2017", "seen": "2021-05-01", "born": "1987-02-01", "delay": "50 days"}
    row = single_row(explainer, values)
    assert row["seen"].tolist() == [pd.Timestamp("2021-05-01")]
    assert explainer.solve(row, Request(target_class="yes")).status["status"].notna().all()

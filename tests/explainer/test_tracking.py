"""MLflow with a store of its own: a SQLite file and a folder, as a laptop has them."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import counterpath as cp
from counterpath.utils.errors import InputError
from tests.tables import LABEL

mlflow = pytest.importorskip("mlflow")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:mlflow"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/store.db")
    mlflow.create_experiment("loans", artifact_location=(folder / "artefacts").as_uri())
    mlflow.set_experiment("loans")
    yield folder
    mlflow.set_tracking_uri(before)


def test_an_explainer_and_an_explanation_go_into_a_run_and_come_back(
    store: Path, explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    from counterpath.explainer.tracking import load_explainer, load_explanation, log_explainer, log_explanation

    rows = people.drop(columns=LABEL).head(6)
    result = explainer.explain(rows, paths="milestones")
    with mlflow.start_run() as run:
        model = log_explainer(explainer, registered_model_name="loans", tags={"stage": "test"})
        answers = log_explanation(result)
    for uri in (model, "models:/loans/1"):
        again = load_explainer(uri, device="cpu").explain(rows, paths="milestones")
        pd.testing.assert_frame_equal(again.counterfactuals, result.counterfactuals)
    assert load_explanation(answers).to_json() == result.to_json()
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert metrics["explanation.valid"] == result.valid.mean()
    assert metrics["explanation.rows"] == 6
    written = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id, "explanation")}
    assert written == {f"explanation/{name}" for name in ("explanation.json", "counterfactuals.parquet", "report.html")}


def test_what_cannot_be_logged_or_loaded_is_named(store: Path, explainer: cp.Explainer, people: pd.DataFrame) -> None:
    from counterpath.explainer.tracking import load_explainer, log_explanation

    result = explainer.explain(people.drop(columns=LABEL).head(1), paths="end")
    with pytest.raises(InputError, match=r"there is no active run to log to; write  with mlflow\.start_run"):
        log_explanation(result)
    with mlflow.start_run():
        address = log_explanation(result, "answers", report=False)
    with pytest.raises(InputError, match="is no explainer: its flavors are none"):
        load_explainer(address)

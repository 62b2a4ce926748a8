"""MLflow: explainers as models of a run, and explanations as its artefacts.

An explainer is logged as an MLflow model of the flavor `counterpath`: its model directory, an `MLmodel` file that names
the versions, and what it was fitted with as parameters. Nothing is pickled. A model of the user's own is not in it, as
it is not in a model directory; `load_explainer` takes it.
"""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from counterpath.data.status import FOUND
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.result import versions
from counterpath.utils.errors import InputError, require

FLAVOR = "counterpath"
"""As the file `MLmodel` names it."""
_FOLDER, _RESULT = "explainer", "explanation.json"
_LONGEST = 500
"""Characters of a parameter: as many as every store of MLflow takes."""


def log_explainer(
    explainer: Explainer,
    name: str = "explainer",
    *,
    registered_model_name: str | None = None,
    tags: Mapping[str, Any] | None = None,
) -> str:
    """Log a fitted explainer as a model of the active run, or of a run of its own.

    Args:
        explainer: A fitted explainer.
        name: What the model is called.
        registered_model_name: Under which it is registered as well.
        tags: Tags of the model.

    Returns:
        The address from which `load_explainer` reads it.
    """
    mlflow = _mlflow()
    options: dict[str, Any] = {"registered_model_name": registered_model_name, "tags": dict(tags or {})}
    made = {"method": str(explainer.get_params(deep=False)["method"]), "target": explainer.target_, **_model(explainer)}
    logged = mlflow.models.Model.log(
        artifact_path=None, name=name, flavor=_Flavor, params=_short(made), explainer=explainer, **options
    )
    return str(logged.model_uri)


def load_explainer(uri: str, *, model: Any = None, device: str = "auto", **own: Any) -> Explainer:
    """The explainer under an address of MLflow: of a logged model, a run or the registry.

    Args:
        uri: What `log_explainer` returned, or "models:/NAME/VERSION".
        model: The explained model, if it is not our own.
        device: Where to compute.
        **own: Further arguments of `Explainer.load`.

    Raises:
        InputError: There is another kind of model under the address.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=temporary))
        flavors = mlflow.models.Model.load(str(folder)).flavors if (folder / "MLmodel").exists() else {}
        if FLAVOR not in flavors:
            there = ", ".join(flavors) or "none"
            raise InputError(f"{uri} is no explainer: its flavors are {there}; expected what log_explainer returned")
        return Explainer.load(folder / flavors[FLAVOR]["data"], model=model, device=device, **own)


def log_explanation(result: Explanation, name: str = "explanation", *, report: bool = True) -> str:
    """Log an explanation to the active run: as JSON, as a table, as a report, and its figures as metrics.

    Metrics are named `NAME.valid`, the share that is valid, `NAME.found`, and after each measure its mean over the rows
    that were found. What was asked for is in the JSON.

    Args:
        result: What `explain` returned.
        name: The folder of the artefacts.
        report: Whether to write the report, too.

    Returns:
        The address from which `load_explanation` reads it.

    Raises:
        InputError: There is no active run.
    """
    mlflow = _mlflow()
    run = mlflow.active_run()
    if run is None:
        raise InputError("there is no active run to log to; write  with mlflow.start_run(): log_explanation(result)")
    plain = result.pandas
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plain.to_json(folder / _RESULT)
        plain.to_parquet(folder / "counterfactuals.parquet")
        if report:
            plain.to_html(folder / "report.html")
        mlflow.log_artifacts(temporary, artifact_path=name)
    mlflow.log_metrics({f"{name}.{key}": value for key, value in _metrics(plain).items()})
    return f"runs:/{run.info.run_id}/{name}"


def load_explanation(uri: str) -> Explanation:
    """The explanation under an address that `log_explanation` returned."""
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as temporary:
        path = mlflow.artifacts.download_artifacts(artifact_uri=f"{uri}/{_RESULT}", dst_path=temporary)
        return Explanation.from_json(Path(path))


class _Flavor:
    """What MLflow calls to write a model."""

    @staticmethod
    def save_model(path: str, mlflow_model: Any, explainer: Explainer, **_: Any) -> None:
        """Write the model directory, and beside it the file that says what it is."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        explainer.save(folder / _FOLDER)
        mlflow_model.add_flavor(FLAVOR, data=_FOLDER, **versions(), **_model(explainer))
        mlflow_model.save(str(folder / "MLmodel"))


def _mlflow() -> ModuleType:
    require("sqlalchemy", "mlflow", "a local store of MLflow")
    require("mlflow.artifacts", "mlflow", "tracking")
    require("mlflow.models", "mlflow", "tracking")
    return require("mlflow", "mlflow", "tracking")


def _model(explainer: Explainer) -> dict[str, Any]:
    """What is explained, in words."""
    models = explainer.models_
    return {"explained": models.explained.name, "features": len(explainer.schema_), "rows": len(models.rows)}


def _short(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value)[:_LONGEST] for name, value in params.items()}


def _metrics(result: Explanation) -> dict[str, float]:
    """Shares and means that are numbers."""
    found = result.status["status"].isin(FOUND).to_numpy()
    means = {str(key): float(mean) for key, mean in result.measures()[found].astype(float).mean().items()}
    shares = {"valid": float(result.valid.mean()), "found": float(found.mean()), "rows": float(len(result))}
    return {key: value for key, value in (means | shares).items() if math.isfinite(value)}

"""Which answers of a batch job still hold for another model."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from counterpath.batch.folder import COUNTERFACTUALS, Manifest
from counterpath.batch.results import ORIGIN, RESERVED
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.recheck import recheck_rows
from counterpath.explanation.tables import PLAN, feature_columns
from counterpath.utils.errors import InputError


def recheck_folder(explainer: Explainer, folder: Path, model: Any = None) -> pd.DataFrame:
    """One line for each answer in a folder of results, with where it is from; see `Explainer.recheck`.

    Args:
        explainer: With the schema and the classes of the job.
        folder: What `counterpath batch` wrote.
        model: The new model; by default that of the explainer.

    Raises:
        InputError: The folder holds no results.
    """
    manifest, files = Manifest.read(folder), sorted((folder / COUNTERFACTUALS).glob("*.parquet"))
    if manifest is None or not files:
        raise InputError(f"{folder} holds no results of a batch job; expected what counterpath batch wrote")
    found = [_recheck_file(explainer, file, dict(manifest.job.request), model) for file in files]
    return pd.concat(found, ignore_index=True)


def _recheck_file(explainer: Explainer, file: Path, request: dict[str, Any], model: Any) -> pd.DataFrame:
    table = pq.read_table(file).to_pandas()
    columns = feature_columns(explainer.schema_.names, RESERVED)
    answers = table[list(columns.values())].set_axis(list(columns), axis=1)
    known = explainer.encoder_.known(answers).to_numpy()
    table, answers = table[known].reset_index(drop=True), answers[known].reset_index(drop=True)
    models, thresholds = explainer.models_, explainer._thresholds()
    checked = recheck_rows(models, thresholds, answers, table["status"].tolist(), table, request, model=model)
    where = [name for name in (*ORIGIN, PLAN) if name in table]
    whole: pd.DataFrame = pd.concat([table[where], checked], axis=1)
    return whole

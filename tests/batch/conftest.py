"""Rows to explain in files, and the job of explaining them in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from counterpath.batch import run
from counterpath.explainer.explainer import Explainer

from .inline import Inline

Runs = Callable[..., dict[str, Any]]
REQUEST = {"target_class": "yes", "method": "nearest", "paths": "end"}


@pytest.fixture(scope="session")
def applicants(loans: pd.DataFrame) -> pd.DataFrame:
    """Rows with an identifier, and with a label that is not read."""
    drawn = loans.sample(90, random_state=1, replace=True).reset_index(drop=True)
    drawn.insert(0, "id", [f"{row:04d}" for row in range(len(drawn))])
    return drawn


@pytest.fixture
def rows(applicants: pd.DataFrame, tmp_path: Path) -> Path:
    """A folder with two Parquet files and one of comma-separated values."""
    folder = tmp_path / "in"
    folder.mkdir()
    applicants[:40].to_parquet(folder / "part-2.parquet", row_group_size=7)
    applicants[40:70].to_parquet(folder / "part-10.parquet")
    applicants[70:].to_csv(folder / "part-11.csv", index=False)
    return folder


@pytest.fixture
def explained(model_folder: Path, fitted: Explainer) -> Runs:
    """Runs a job in this process: `explained(rows, out, **options of run)`."""

    def job(rows: Any, out: Path, request: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        given = {"shard_rows": 16, "engine": Inline(), "explainer": fitted, **options}
        engine = given.pop("engine")
        return run(model_folder, rows, out, engine, REQUEST if request is None else request, **given)

    return job

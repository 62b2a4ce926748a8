"""Rows to explain, in files."""

from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture
def few(loans: pd.DataFrame, tmp_path: Path) -> Path:
    """A file with a few rows, without the label."""
    path = tmp_path / "few.csv"
    loans.drop(columns="loan").head(12).to_csv(path, index=False)
    return path

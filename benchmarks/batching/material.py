"""What jobs are tried on: resampled rows of Adult, and a small model of it that is fitted in seconds."""

from pathlib import Path

import pandas as pd

import counterpath as cp

SMALL = {"hidden": (32, 16), "epochs": 10, "n_centers": 20, "progress": False, "device": "cpu"}
"""A fit of seconds, for jobs whose results need not be good."""
TRAINING_ROWS = 1000  # enough for a model that finds something, fitted in seconds
ID = "applicant"
OPTIONS = ("--target-class", "1", "--method", "nearest", "--id", ID, "--device", "cpu")


def small_model(folder: Path) -> Path:
    """A model directory of an explainer that is quick rather than good."""
    data = cp.datasets.load("adult-carla")
    train = data.train.sample(TRAINING_ROWS, random_state=0)
    return cp.Explainer(**SMALL).fit(train, data.target, schema=data.schema).save(folder)


def resampled(count: int, seed: int = 0) -> pd.DataFrame:
    """So many rows of Adult, drawn with replacement, each under an identifier of its own."""
    data = cp.datasets.load("adult-carla")
    everybody = pd.concat([data.train, data.test])
    rows = everybody.sample(count, replace=True, random_state=seed, ignore_index=True)
    rows.insert(0, ID, [f"a{row:08d}" for row in range(count)])
    return rows


def parquet_file(path: Path, count: int, *, row_group: int | None = None) -> Path:
    """So many rows in one file; by default with row groups as pandas makes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    resampled(count).to_parquet(path, index=False, row_group_size=row_group)
    return path


def folder_of(path: Path, files: int, count: int, suffix: str) -> Path:
    """A folder of files, Parquet or comma-separated values, with so many rows each."""
    path.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        rows, file = resampled(count, seed=number), path / f"part-{number}{suffix}"
        if suffix == ".csv":
            rows.to_csv(file, index=False)
        else:
            rows.to_parquet(file, index=False)
    return path

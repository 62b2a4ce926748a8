"""The two data sets of the paper, processed as the CARLA benchmark has them, and split as the paper did."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import pandas as pd
from sklearn.model_selection import train_test_split

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.data.source import Source, find, obtain, read_verified
from counterpath.errors import InputError, choose

ADULT_FILE = Path(__file__).with_name("adult.csv.gz")
ADULT_SHA256 = "e98ef37848b34919802d9e110718dd02ccbc8ec0369677f92bb1fd40b71eccdc"
GMC_SHA256 = "a79d610d1d3e1e8ee1906185cd958c671391fe4866a02f79c148ac6685a6dcb0"
GMC_URL = (
    "https://raw.githubusercontent.com/carla-recourse/cf-data/2d56677095bd11deba5d8e3731f8941b95e0a880/"
    "give_me_some_credit.csv"
)


@dataclass(frozen=True)
class Dataset:
    """A table with a label, split into training and test rows.

    Attributes:
        name: The name that `load` knows it by.
        train: Three quarters of the rows, features and label; the index is a row's place in the file.
        test: The others.
        target: The column of the label; 1 is the favourable decision.
        schema: What the features are.
    """

    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    schema: Schema

    def encoder(self, rows: Literal["train", "all"] = "train") -> Encoder:
        """An encoder for the features, fitted on the training rows; or on all rows, as CARLA does."""
        frames = choose("choice of rows", rows, {"train": [self.train], "all": [self.train, self.test]})
        return Encoder.fit(pd.concat(frames)[list(self.schema.names)], self.schema)


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Load a data set by its name: "adult" is in the package, "gmc" is downloaded once.

    Args:
        name: A key of `DATASETS`.
        path: A copy of its CSV file, compressed by gzip or not, or the folder that holds it. Without this, "gmc" is
            looked for where the environment variable COUNTERPATH_DATA says and in the cache, and then downloaded.

    Raises:
        InputError: There is no such data set, or its file cannot be had or is not the expected one.
    """
    make = choose("data set", name, DATASETS)
    if path is None:
        return make(None)
    file = find(name, Path(path))
    if file is None:
        raise InputError(f"path is {path}; expected the file {name}.csv or {name}.csv.gz, or a folder that holds one")
    return make(file)


def adult(file: Path | None) -> Dataset:
    """Adult: 48,832 people of the 1994 census, 13 features; label 1 is an income of over 50,000 dollars a year.

    B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository, 1996, https://doi.org/10.24432/C5XW20, under the
    licence CC BY 4.0; the NOTICE beside the file says what was changed. As in the paper, numbers are continuous,
    although all of them are whole, and of two categories the one that the paper's appendix names is encoded as 1.
    """
    schema = Schema(
        (
            Feature("age", "continuous", immutable=True),
            Feature("workclass", "binary", categories=("Non-Private", "Private")),
            Feature("fnlwgt", "continuous"),
            Feature("education-num", "continuous"),
            Feature("marital-status", "binary", categories=("Married", "Non-Married")),
            Feature("occupation", "binary", categories=("Managerial-Specialist", "Other")),
            Feature("relationship", "binary", categories=("Husband", "Non-Husband")),
            Feature("race", "binary", categories=("Non-White", "White"), immutable=True),
            Feature("sex", "binary", categories=("Female", "Male"), immutable=True),
            Feature("capital-gain", "continuous", transform="log1p"),
            Feature("capital-loss", "continuous", transform="log1p"),
            Feature("hours-per-week", "continuous"),
            Feature("native-country", "binary", categories=("Non-US", "US")),
        )
    )
    return _split("adult", file or ADULT_FILE, ADULT_SHA256, "income", schema)


def gmc(file: Path | None) -> Dataset:
    """Give Me Some Credit: 115,527 borrowers, 10 features; label 1 is no financial distress within two years.

    From the Kaggle competition of 2011. It has no clear licence and is therefore not shipped: without a copy at `file`
    it comes from the data repository of CARLA (https://github.com/carla-recourse/cf-data), at one pinned commit.
    """
    schema = Schema(
        (
            Feature("RevolvingUtilizationOfUnsecuredLines", "continuous"),
            Feature("age", "continuous", immutable=True),
            Feature("NumberOfTime30-59DaysPastDueNotWorse", "continuous"),
            Feature("DebtRatio", "continuous", transform="log1p"),
            Feature("MonthlyIncome", "continuous"),
            Feature("NumberOfOpenCreditLinesAndLoans", "continuous"),
            Feature("NumberOfTimes90DaysLate", "continuous"),
            Feature("NumberRealEstateLoansOrLines", "continuous"),
            Feature("NumberOfTime60-89DaysPastDueNotWorse", "continuous"),
            Feature("NumberOfDependents", "continuous"),
        )
    )
    file = file or obtain(Source("gmc", GMC_URL, GMC_SHA256))
    return _split("gmc", file, GMC_SHA256, "SeriousDlqin2yrs", schema)


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {"adult": adult, "gmc": gmc}


def _split(name: str, file: Path, sha256: str, target: str, schema: Schema) -> Dataset:
    """Read a verified file and split it as the paper did: its counts of test negatives come out exactly."""
    frame = pd.read_csv(BytesIO(read_verified(file, sha256)))
    train, test = train_test_split(frame, test_size=0.25, random_state=42)
    return Dataset(name, train, test, target, schema)

"""The two data sets of the paper, processed as the CARLA benchmark has them, and split as the paper did."""

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Literal

import pandas as pd

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.utils.errors import InputError, choose
from counterpath.utils.files import atomic
from counterpath.utils.progress import track

VARIABLE = "COUNTERPATH_DATA"
"""The environment variable that names a file, or a folder of files."""

TIMEOUT = 30.0
"""Seconds that a server may stay silent: a busy one answers within them, and nobody waits for much longer."""

_KIB = 1024  # progress is shown in KiB: in bytes the numbers would be too long to read
_GZIP_MAGIC = b"\x1f\x8b"


def find(name: str, path: Path) -> Path | None:
    """The file `path`, or in the folder `path` the file `name`.csv or `name`.csv.gz; None if there is none."""
    candidates = [path / f"{name}.csv", path / f"{name}.csv.gz"] if path.is_dir() else [path]
    return next((file for file in candidates if file.is_file()), None)


def obtain(name: str, url: str, sha256: str) -> Path:
    """A CSV file: where `VARIABLE` says, else in the cache, else downloaded into the cache.

    Args:
        name: What it is called on this machine: the file is `name`.csv or `name`.csv.gz.
        url: Where it is.
        sha256: The hash of its content.
    """
    configured = os.environ.get(VARIABLE)
    found = find(name, Path(configured)) if configured else None
    if found is not None:
        return found
    cached = cache_folder() / f"{name}.csv"
    if not cached.exists():
        _download(name, url, sha256, cached)
    return cached


def read_verified(file: Path, sha256: str) -> bytes:
    """The content of a file, unpacked if it is compressed by gzip, if its hash is `sha256`; an error otherwise."""
    try:
        content = file.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{file} is cut short or damaged ({error}); delete it and get it again") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(
            f"{file} is cut short or altered: its {len(content):,} bytes have the sha256 {found}, expected {sha256}; "
            "delete it and get it again"
        )
    return content


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "counterpath"


def _download(name: str, url: str, sha256: str, target: Path) -> None:
    """Put a file at `target`, whole and verified, or raise an error that says how else to provide it."""
    try:
        with atomic(target) as temporary:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as response, temporary.open("wb") as file:
                announced = int(response.headers.get("Content-Length") or 0)
                with track(f"Downloading {name} (KiB)", total=announced // _KIB) as advance:
                    while chunk := response.read(64 * _KIB):
                        file.write(chunk)
                        advance(len(chunk) // _KIB)
            size = temporary.stat().st_size
            if size < announced:
                raise HTTPException(f"only {size:,} of {announced:,} bytes came")
            read_verified(temporary, sha256)
    except (OSError, HTTPException, InputError) as error:
        raise InputError(
            f"{name} is not on this machine, and downloading it from {url} failed: {error}. Try again, or provide a "
            f"copy in one of three ways: load({name!r}, path=FILE); the environment variable {VARIABLE}, a file or a "
            f"folder that holds {name}.csv or {name}.csv.gz; or the file {target}"
        ) from error


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
        train: Three quarters of the rows, features and label; the index is a row's position in the file.
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
    file = file or obtain("gmc", GMC_URL, GMC_SHA256)
    return _split("gmc", file, GMC_SHA256, "SeriousDlqin2yrs", schema)


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {"adult": adult, "gmc": gmc}


def _split(name: str, file: Path, sha256: str, target: str, schema: Schema) -> Dataset:
    """Read a verified file and split it as the paper did: its counts of test negatives come out exactly."""
    from sklearn.model_selection import train_test_split

    frame = pd.read_csv(BytesIO(read_verified(file, sha256)))
    train, test = train_test_split(frame, test_size=0.25, random_state=42)
    return Dataset(name, train, test, target, schema)

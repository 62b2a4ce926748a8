"""Data sets that people know: shipped with the package, or downloaded once and verified; and where they come from.

What a data set is (source, licence, what its features mean) is in `sets/NAME.json`, its card. Shipped tables lie beside
it; tools/build_datasets.py makes them.
"""

import gzip
import hashlib
import json
import lzma
import os
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Schema
from counterpath.utils.errors import InputError, choose
from counterpath.utils.files import atomic
from counterpath.utils.progress import track

VARIABLE = "COUNTERPATH_DATA"
"""The environment variable that names a file, or a folder of files."""

TIMEOUT = 30.0
"""Seconds that a server may stay silent: a busy one answers within them, and nobody waits for much longer."""

_KIB = 1024  # progress is shown in KiB: in bytes the numbers would be too long to read
_SUFFIXES = (".csv", ".csv.gz", ".csv.xz")
_UNPACK: dict[bytes, Callable[[bytes], bytes]] = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ": lzma.decompress}
"""By the bytes that archives begin with, what unpacks them."""


def find(name: str, path: Path) -> Path | None:
    """The file `path`, or in the folder `path` the file `name`.csv, packed or not; None if there is none."""
    candidates = [path / f"{name}{suffix}" for suffix in _SUFFIXES] if path.is_dir() else [path]
    return next((file for file in candidates if file.is_file()), None)


def obtain(name: str, url: str, sha256: str, file_name: str = "") -> Path:
    """A CSV file: where `VARIABLE` says, else in the cache, else downloaded into the cache.

    Args:
        name: The name of the data set.
        url: Where it is; empty if only its owner may hand it out.
        sha256: The hash of its content.
        file_name: What the file is called on this machine, without .csv; by default as the data set.
    """
    file_name = file_name or name
    configured = os.environ.get(VARIABLE)
    found = find(file_name, Path(configured)) if configured else None
    if found is not None:
        return found
    cached = cache_folder() / f"{file_name}.csv"
    if not cached.exists():
        _download(name, url, sha256, cached)
    return cached


def read_verified(file: Path, sha256: str) -> bytes:
    """The content of a file, unpacked if it is compressed by gzip or xz, if its hash is `sha256`; else an error."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    unpack = next((unpack for magic, unpack in _UNPACK.items() if content.startswith(magic)), bytes)
    try:
        content = unpack(content)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{file} is cut short or damaged ({error}); delete it and get it again") from error
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
    ways = (
        f"provide a copy in one of three ways: load({name!r}, path=FILE); the environment variable {VARIABLE}, a file "
        f"or a folder that holds {target.name} or {target.name}.gz; or the file {target}"
    )
    if not url:
        raise InputError(
            f"{name} is not on this machine, and only its owner may hand it out: {Card.of(name).source}. Get it there, "
            f"and {ways}"
        )
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
            f"{name} is not on this machine, and downloading it from {url} failed: {error}. Try again, or {ways}"
        ) from error


SETS = Path(__file__).with_name("sets")
"""The folder of cards and shipped tables."""


@dataclass(frozen=True)
class Card:
    """What is known of a data set before it is read.

    Attributes:
        name: The name that `load` knows it by.
        title: What people call it.
        description: What its rows are, and what was changed.
        rows: How many there are.
        target: The column of the label.
        task: "classification" or "regression".
        classes: The values of the label.
        desired_class: The one that people wish for; None where that cannot be said.
        target_unit: What the numbers of a regression's label count.
        licence: Under which it may be used.
        source: Whom to cite, and where it is published.
        sha256: The hash of its table as CSV.
        shipped: Whether the package has it; otherwise it is downloaded once, or read from a folder.
        url: Where it is downloaded from; empty if it is shipped, or if only its owner may hand it out.
        file_name: What its file is called in a folder, without .csv.
        directions: By feature "up" or "down", where a person can go only one way: for requests, if they want it.
        schema: The schema of its features, in JSON.
    """

    name: str = ""
    title: str = ""
    description: str = ""
    rows: int = 0
    target: str = ""
    task: str = "classification"
    classes: Sequence[Any] = ()
    desired_class: Any = None
    target_unit: str = ""
    licence: str = ""
    source: str = ""
    sha256: str = ""
    shipped: bool = False
    url: str = ""
    file_name: str = ""
    directions: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> "Card":
        """The card of a data set."""
        choose("data set", name, DATASETS)
        content = json.loads((SETS / f"{name}.json").read_text(encoding="utf-8"))
        return cls(**{"name": name, "file_name": name} | content)


@dataclass(frozen=True)
class Dataset:
    """A table with a label, split into training and test rows.

    Attributes:
        name: The name that `load` knows it by.
        train: Three quarters of the rows, features and label; the index is a row's position in the file.
        test: The others.
        target: The column of the label.
        schema: What the features are.
        card: Where the table comes from, under which licence, and what is known of it beside its schema.
    """

    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    schema: Schema
    card: Card = field(default_factory=Card)

    @property
    def description(self) -> str:
        """What the rows are, and what was changed."""
        return self.card.description

    @property
    def licence(self) -> str:
        """Under which licence the table may be used."""
        return self.card.licence

    @property
    def source(self) -> str:
        """Whom to cite, and where it is published."""
        return self.card.source

    @property
    def sha256(self) -> str:
        """The hash of the table as CSV."""
        return self.card.sha256

    @property
    def directions(self) -> dict[str, str]:
        """Suggested directions: `explain(people, directions=data.directions)`."""
        return dict(self.card.directions)

    @property
    def desired_class(self) -> Any:
        """The class that people wish for."""
        return self.card.desired_class

    def encoder(self, rows: Literal["train", "all"] = "train") -> Encoder:
        """An encoder for the features, fitted on the training rows; or on all rows, as CARLA does."""
        frames = choose("choice of rows", rows, {"train": [self.train], "all": [self.train, self.test]})
        return Encoder.fit(pd.concat(frames)[list(self.schema.names)], self.schema)


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Load a data set by its name, split as the paper did: its counts of test negatives come out exactly.

    Args:
        name: A key of `DATASETS`; `counterpath datasets` lists them.
        path: A copy of its CSV file, compressed by gzip or xz or not, or the folder that holds it. Without this,
            what is not shipped is looked for where the environment variable COUNTERPATH_DATA says and in the cache, and
            then downloaded.

    Raises:
        InputError: There is no such data set, or its file cannot be had or is not the expected one.
    """
    read = choose("data set", name, DATASETS)
    card, file = Card.of(name), None
    if path is not None:
        file = find(card.file_name, Path(path))
        if file is None:
            kinds = " or ".join(f"{card.file_name}{suffix}" for suffix in _SUFFIXES[:2])
            raise InputError(f"path is {path}; expected the file {kinds}, or a folder that holds one")
    schema = replace(Schema.from_json(card.schema), target_unit=card.target_unit)
    train, test = split(read(card, file), schema)
    return Dataset(name, train, test, card.target, schema, card)


def split(frame: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows, three quarters and one, as the paper has them.

    A row with a category that no training row has (one person in Adult, from the Netherlands) joins the training rows:
    a model could say nothing about it.
    """
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(frame, test_size=0.25, random_state=42)
    known = pd.Series(True, index=test.index)
    for feature in schema:
        if feature.categories:
            known &= test[feature.name].isin(train[feature.name].unique())
    return (train, test) if known.all() else (pd.concat([train, test[~known]]), test[known])


def read_csv(card: Card, file: Path | None) -> pd.DataFrame:
    """The table as it is in its file, verified: the given one, the shipped one, or one that is obtained."""
    if file is None and card.shipped:
        file = SETS / f"{card.name}.csv.xz"
    file = file or obtain(card.name, card.url, card.sha256, card.file_name)
    return pd.read_csv(BytesIO(read_verified(file, card.sha256)), keep_default_na=False)


CARLA_GROUPS = {
    "workclass": ({"Private"}, "Private", "Non-Private"),
    "marital-status": ({"Married-civ-spouse", "Married-AF-spouse"}, "Married", "Non-Married"),
    "occupation": (
        {"Adm-clerical", "Exec-managerial", "Machine-op-inspct", "Prof-specialty"},
        "Managerial-Specialist",
        "Other",
    ),
    "relationship": ({"Husband"}, "Husband", "Non-Husband"),
    "race": ({"White"}, "White", "Non-White"),
    "native-country": ({"United-States"}, "US", "Non-US"),
}
"""How CARLA groups the categories of Adult, by column: which are kept together, their new name, the name of others."""


def adult_carla(card: Card, file: Path | None) -> pd.DataFrame:
    """CARLA's table of Adult, byte for byte if written as CSV; without a copy it is made from the shipped census rows.

    CARLA meant to drop rows with a "?", but its published file has the value of the row above in their place. No group
    of its work classes holds "Never-worked", so that these rows are lost.
    """
    if file is not None:
        return read_csv(card, file)
    census = Card.of("adult")
    raw = read_csv(census, None)
    levels = next(each for each in census.schema["features"] if each["name"] == "education")["categories"]
    number = raw["education"].map({level: i for i, level in enumerate(levels, start=1)})
    frame = raw.assign(education=number).rename(columns={"education": "education-num"})
    text = frame.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]
    frame[text] = frame[text].mask(frame[text] == "?").ffill()
    frame = frame[frame["workclass"] != "Never-worked"].reset_index(drop=True)
    grouped = {
        column: frame[column].where(frame[column].isin(members), others).mask(frame[column].isin(members), name)
        for column, (members, name, others) in CARLA_GROUPS.items()
    }
    return frame.assign(**grouped, income=(frame["income"] == ">50K").astype("int64"))


def heloc(card: Card, file: Path | None) -> pd.DataFrame:
    """FICO's table without the rows that have no record at all: every feature is −9 there."""
    frame = read_csv(card, file)
    return frame[~(frame.drop(columns=card.target) == _NO_RECORD).all(axis=1)]


_NO_RECORD = -9  # of FICO's codes: no bureau record, or no investigation

DATASETS: dict[str, Callable[[Card, Path | None], pd.DataFrame]] = {
    "adult": read_csv,
    "adult-carla": adult_carla,
    "german": read_csv,
    "gmc": read_csv,
    "gmc-carla": read_csv,
    "heloc": heloc,
    "heloc-carla": read_csv,
    "compas": read_csv,
    "concrete": read_csv,
}
"""By name what reads the table, from a copy of its file or, without one, from where it is."""

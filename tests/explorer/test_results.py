"""The files that can be downloaded."""

import json

import pandas as pd
import pytest

import counterpath as cp
from counterpath.explorer.elements import FORMATS, file_content
from tests.tables import features


@pytest.fixture(scope="module")
def result(explainer: cp.Explainer, people: pd.DataFrame) -> cp.Explanation:
    return explainer.explain(features(people).head(1), plans=2)


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_hold_the_explanation(result: cp.Explanation, suffix: str) -> None:
    text = file_content(result, suffix, {"Beside it": pd.DataFrame({"n": [3]})}).decode()
    match suffix:
        case "json":
            assert json.loads(text)["request"]["plans"] == 2
        case "csv":
            assert text.count("\n") == 3
        case "html":
            assert "Beside it" in text

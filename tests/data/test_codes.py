import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema, datasets
from counterpath.data.codes import shared_codes, suggest_codes
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.sizes import examples

REFERENCE = Path(os.environ.get(datasets.VARIABLE) or Path(__file__).parents[3] / "shared" / "data")
RANDOM = np.random.default_rng(0)
COUNTS = RANDOM.poisson(2, 500).astype(float)
CELSIUS = RANDOM.normal(8, 6, 500).round()
BALANCE = RANDOM.normal(500, 900, 500).round(2)


def _raw(name: str) -> pd.DataFrame:
    file = REFERENCE / f"{name}.csv.gz"
    if not file.is_file():
        pytest.skip(f"{file} is not there: it must not be shipped")
    return pd.read_csv(file)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*COUNTS, -9, -9], (-9,)),
        ([*COUNTS, -9, -8, -8, -7], (-9, -8, -7)),
        ([*COUNTS, 96, 98, 98], (96, 98)),
        ([*COUNTS, -9, -9, 999, 999], (-9, 999)),
        ([*np.arange(28.0), *[999.0] * 1000], (999,)),
        ([*CELSIUS, -999, -999], (-999,)),
        ([*BALANCE, 999999, 999999], (999999,)),
        ([*[0.0, 1.0] * 30, 99, 99], (99,)),
        ([*RANDOM.uniform(0, 1, 100), -99, -99, -99], (-99,)),
        ([*[-9.0] * 90, 1, 2], (-9,)),
    ],
)
def test_codes_are_suggested(values: list[float], codes: tuple[float, ...]) -> None:
    assert suggest_codes(np.array(values)) == codes


@pytest.mark.parametrize(
    "values",
    [
        COUNTS,
        CELSIUS,
        BALANCE,
        np.concatenate([COUNTS, [-9]]),  # once
        np.concatenate([COUNTS, [-1, -1, -2, -2]]),  # beside 0
        np.concatenate([COUNTS, [-9, -9, -4, -4]]),  # -4 is no code
        np.concatenate([COUNTS, [50, 50]]),  # far away, but not written like a code
        np.arange(1.0, 100.0),  # 96 to 99 are the end of a scale
        np.repeat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 20),
        np.exp(RANDOM.normal(8, 2, 500)).round(),
        np.concatenate([np.exp(RANDOM.normal(8, 1.5, 500)).round(), [99999.0, 99999.0]]),  # the top of a scale
        np.full(100, -9.0),
        np.repeat([-9.0, 3.0], 50),
        np.array([1.0, 2.0, 99.0, 99.0]),  # too few rows to say so
        np.zeros(0),
    ],
)
def test_measurements_are_not_codes(values: np.ndarray) -> None:
    assert suggest_codes(values) == ()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=60, max_size=90))
def test_what_is_suggested_has_no_measurement_beyond_it(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=float)
    codes = suggest_codes(values)
    rest = np.setdiff1d(values, codes)
    assert len(rest) >= min(2, len(np.unique(values)))
    assert all(code < rest.min() or code > rest.max() for code in codes)


def test_a_code_that_several_columns_share_may_be_in_one_row_of_each() -> None:
    late, later = (np.append(values, 98) for values in (COUNTS, COUNTS[::-1] // 2))
    assert suggest_codes(late) == ()
    assert shared_codes([late, BALANCE]) == frozenset()
    assert shared_codes([late, later, BALANCE]) == {98}
    table = pd.DataFrame({"late": late, "later": later, "age": np.append(CELSIUS + 40, 98)})
    with pytest.warns(CounterpathWarning, match=r"taken for codes.*: 'late' \(98\), 'later' \(98\)\. Say"):
        schema = Schema.infer(table)
    assert [tuple(feature.codes) for feature in schema] == [(98,), (98,), ()]  # an age of 98 is not far from others
    gapped = np.array([*np.arange(6.0)] * 10 + [14, 98, 98])
    assert suggest_codes(gapped) == ()
    assert suggest_codes(gapped, {98.0}) == (98,)  # because other columns have it


def test_a_suggestion_is_said_and_can_be_overruled() -> None:
    frame = pd.DataFrame({"inquiries": [*COUNTS, -9, -8, -8]})
    with pytest.warns(CounterpathWarning, match=r"taken for codes.*: 'inquiries' \(-9, -8\)\. Say .*overrides="):
        feature = Schema.infer(frame)["inquiries"]
    assert (feature.kind, dict(feature.codes)) == ("integer", {-9: "code -9", -8: "code -8"})
    assert not Schema.infer(frame, overrides={"inquiries": {"codes": {}}})["inquiries"].codes
    said = Schema.infer(frame, overrides={"inquiries": {"codes": {-9: "no record", -8: "none"}}})["inquiries"]
    assert said.codes == {-9: "no record", -8: "none"}
    assert Schema.infer(frame, overrides={"inquiries": {"kind": "ordinal"}})["inquiries"].categories[0] == -9
    skewed = pd.DataFrame({"income": [*np.exp(RANDOM.normal(8, 1.5, 500)).round(), -9, -9]})
    with pytest.warns(CounterpathWarning, match="taken for codes"):
        assert Schema.infer(skewed)["income"].transform == "log1p"  # of the measurements


def test_a_code_or_a_gap_that_no_training_row_has_concerns_its_row_only() -> None:
    schema = Schema(
        (Feature("late", "integer", codes={96: "refused", 98: "unknown"}, missing=True), Feature("age", "integer"))
    )
    fitted = Encoder.fit(pd.DataFrame({"late": [*COUNTS, 98.0], "age": np.arange(501)}), schema)
    rows = pd.DataFrame({"late": [2, 98, 96, np.nan], "age": [30, 40, 50, 60]})
    assert fitted.known(rows).tolist() == [True, True, False, False]
    assert fitted.decode(fitted.encode(rows.head(2)))["late"].tolist() == [2, 98]  # and 96 would be taken for a number
    with pytest.raises(
        InputError, match=r"column 'late', row 2: 96\.0 is a code or a gap that no training row has there"
    ):
        fitted.encode(rows)
    assert "'late', row 3: nan is a code or a gap" in fitted.unknown(rows)[1][3]


def test_the_codes_of_heloc_are_found() -> None:
    frame = _raw("heloc_raw")
    with pytest.warns(CounterpathWarning, match=r"'MSinceMostRecentDelq' \(-9, -8, -7\)"):
        schema = Schema.infer(frame, target="RiskPerformance")
    for feature in schema:
        assert set(feature.codes) == {int(value) for value in frame[feature.name].unique() if value < 0}
        assert feature.kind == "integer"
    fitted = Encoder.fit(frame[list(schema.names)], schema)
    rows = frame[list(schema.names)].head(200)
    assert fitted.decode(fitted.encode(rows)).equals(rows)


def test_the_codes_of_give_me_some_credit_are_found() -> None:
    with pytest.warns(CounterpathWarning, match=r"left out: 'Unnamed: 0'.*taken for codes"):
        schema = Schema.infer(_raw("gmc_raw"), target="SeriousDlqin2yrs")
    past_due = (
        "NumberOfTime30-59DaysPastDueNotWorse",
        "NumberOfTimes90DaysLate",
        "NumberOfTime60-89DaysPastDueNotWorse",
    )
    assert {feature.name: tuple(feature.codes) for feature in schema if feature.codes} == dict.fromkeys(
        past_due, (96, 98)
    )


@pytest.mark.parametrize("name", ["adult", "german", "concrete"])
def test_shipped_tables_have_no_codes(name: str) -> None:
    data = datasets.load(name)
    schema = Schema.infer(pd.concat([data.train, data.test]), target=data.target)
    assert not any(feature.codes for feature in schema)
    assert not schema.ignored

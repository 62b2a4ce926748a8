"""The schema that a table suggests."""

import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from counterpath.data.codes import shared_codes, suggest_codes
from counterpath.data.schema import ANY, KINDS, OBSERVED, PLACES, Feature, Number, Schema, check_attributes, with_days
from counterpath.data.tables import is_number, refuse, to_pandas
from counterpath.data.times import DATE, DURATION, is_text, kind_of, nearly_format, text_format, to_days
from counterpath.utils.errors import CounterpathWarning, InputError, choose

SKEWNESS = 2.0
"""That of the exponential distribution: numbers ≥ 0 with a heavier tail may be encoded by log1p."""
MOSTLY = 0.5
"""A number that more than half of the rows share is a state of its own, not a point of a scale: what lies between it
and the next one is often nothing that anybody has."""
DECIMALS = 4
"""The most decimals that a column is taken to be written with; more are the digits of a quotient."""
RESOLUTION = 0.01
"""Of the distance between the quartiles: smaller differences of a quotient mean nothing to anybody."""
FEW_VALUES = 20
"""Whole numbers with no more different values than this, each on average in as many rows, and gaps between them, are
numbers of something, such as branches 101, 102 and 310, or terms that are offered: what lies between does not exist."""
EVIDENCE = 20
"""So many rows are not all multiples of 2 by chance: 1 in a million."""
IDENTIFIERS = 20
"""Text with more different values than this, and another one in most rows, identifies rows; in a short table names of
few categories may all differ by chance."""
_NAMES = re.compile(r"(.* )?(id|uuid|guid|ssn|number|email|phone|iban|\w*name)|unnamed.*|index")
"""What columns that identify rows are called: "customer_id", "caseNumber", "surname"; "Unnamed: 0" and "index" are what
pandas calls row numbers. By itself a name says nothing: a few "region_id" for many rows are categories."""


def infer(
    table: Any,
    *,
    target: str | None = None,
    immutable: Sequence[str] = (),
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ignored: Sequence[str] = (),
    ignore_problems: bool = False,
) -> Schema:
    """Read off a table what its columns are; missing values are passed over.

    - Truth values are boolean, ordered categories of pandas ordinal in their own order.
    - Text and other categories are binary if there are exactly two, else categorical; both sorted.
    - Numbers stay numbers: whole ones are integer, whatever their dtype, 0 and 1 too; others are continuous. A new row
      may have a 2 where the table has 0 and 1.
    - Numbers of which most are one and the same, such as a capital gain of 0, may only have values that are observed;
      so may whole numbers of few values, of which less than half of those between the least and the greatest occur.
    - Whole numbers that all are multiples of one, such as amounts in hundreds, remain such multiples.
    - Continuous numbers have as many decimals as the column; where that is more than four, a hundredth of the middle
      half of the column is resolved.
    - Numbers ≥ 0 whose skewness E[(x − μ)³]/σ³ is above 2, and smaller after log1p, are transformed by it.
    - Dates and times are dates, in days, and immutable; so is text in which every value is one, in one format; where
      nearly every value is, the others are named in an error. Where they are all at midnight, or go over months, a
      date that changes is one at midnight. Timedeltas are durations.
    - Numbers that stand for something else than a measurement, such as -9 among counts, are codes; see `suggest_codes`.
    - Columns without values, and those that identify rows, are left out, and a warning says so: text with more than 20
      different values, or whole numbers or text under a name such as "customer_id", with another one in most rows.
      What `overrides` or `immutable` name is a feature.

    Args:
        table: A table of pandas, polars or Arrow.
        target: The column of the label, which is left out.
        immutable: Features that a counterfactual must leave as they are.
        overrides: For a column the attributes of its `Feature` that shall be others; a kind with categories that are
            not given has those of the column, sorted.
        ignored: Columns that are no features: tables may have them, and they are left out.
        ignore_problems: Ignore columns that cannot be features, too; else they are an error.

    Raises:
        InputError: Columns hold what is no feature, or overrides do not suit them: the message lists all of them. Or
            the arguments name columns or attributes that are not there.

    Example:
        >>> frame = pd.DataFrame({"age": [20, 60, 35], "job": ["no", "yes", "no"], "label": [0, 1, 1]})
        >>> [feature.kind for feature in infer(frame, target="label")]
        ['integer', 'binary']
    """
    frame, overrides = to_pandas(table), overrides or {}
    _check_table(frame)
    names = _check_arguments(frame, target, (*ignored, *immutable), overrides)
    wanted = [name for name in names if name not in ignored]
    features, left_out, problems = _read(frame[wanted], overrides, {*overrides, *immutable})
    if problems and not ignore_problems:
        raise InputError(_listed_problems(problems, len(names)))
    left_out |= problems
    if not features:
        found = "".join(f"\n- {name!r}: {why}" for name, why in left_out.items())
        raise InputError(f"a schema needs at least one feature, and the table has none{found}")
    if word := _word(left_out, features, overrides, immutable):
        warnings.warn(word, CounterpathWarning, stacklevel=3)
    schema = Schema(tuple(features), ignored=dict.fromkeys(ignored, "") | left_out)
    return schema.with_immutable(*immutable)


def _check_arguments(
    frame: pd.DataFrame, target: str | None, named: Sequence[str], overrides: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The columns without the label, if the arguments suit them."""
    if target is not None:
        choose("target", target, dict.fromkeys(frame.columns))
    names = [name for name in frame.columns if name != target]
    for name in (*overrides, *named):
        choose("column", name, dict.fromkeys(names))
    for name, attributes in overrides.items():
        check_attributes(attributes)
        if "name" in attributes:
            raise InputError(f"overrides give column {name!r} the name {attributes['name']!r}; rename it in the table")
    return names


def _read(
    frame: pd.DataFrame, overrides: Mapping[str, Mapping[str, Any]], kept: Set[str]
) -> tuple[list[Feature], dict[str, str], dict[str, str]]:
    """The features of a table, which columns are left out and which cannot be features, each with the reason.

    Args:
        frame: The columns.
        overrides: What is said about some of them.
        kept: Columns that are not left out.
    """
    features: list[Feature] = []
    left_out: dict[str, str] = {}
    problems: dict[str, str] = {}
    codes = shared_codes(_finite(frame[name]) for name in frame.columns if _is_number(frame[name]))
    for name in frame.columns:
        present = _plain(frame[name].dropna())
        try:
            if name not in overrides:
                _refuse_stray_texts(present)
            why = "" if name in kept else _no_feature(present)
            if why:
                left_out[name] = why
                continue
            features.append(_feature(present, overrides.get(name, {}), codes))
        except InputError as error:
            problems[name] = str(error)
    return features, left_out, problems


def _listed_problems(problems: Mapping[str, str], columns: int) -> str:
    """All that keeps columns from being features, and what to do about all of it."""
    listed = "".join(f"\n- {name!r}: {problem}" for name, problem in problems.items())
    return (
        f"{len(problems)} of {columns} columns cannot be features as they are:{listed}\nConvert them, correct the "
        f"overrides, or leave them out: Schema.infer(…, ignored={list(problems)!r}). The command `counterpath schema "
        "DATA --out schema.json` writes a schema to edit that leaves them out"
    )


def _word(
    left_out: Mapping[str, str],
    features: Sequence[Feature],
    overrides: Mapping[str, Mapping[str, Any]],
    immutable: Sequence[str],
) -> str:
    """What a user should look at, and how to say otherwise; nothing if there is nothing."""
    words = []
    guessed = [feature for feature in features if feature.name not in {*overrides, *immutable}]
    if left_out:
        listed = ", ".join(f"{name!r} ({why})" for name, why in left_out.items())
        words.append(
            f"These columns are left out: {listed}. Say ignored={list(left_out)!r} if they should be, or what they "
            f"are: overrides={{{next(iter(left_out))!r}: {{'kind': …}}}}."
        )
    if dates := {each.name: each.format or "dates" for each in guessed if each.kind == DATE}:
        listed = ", ".join(f"{name!r} ({form})" for name, form in dates.items())
        words.append(
            f"These columns are dates, which answers leave as they are: {listed}. Let one change, or say that it is no "
            f"date: overrides={{{next(iter(dates))!r}: {{'immutable': False}}}}, or {{'kind': 'categorical'}}."
        )
    if codes := {
        each.name: each.codes for each in features if each.codes and "codes" not in overrides.get(each.name, {})
    }:
        listed = ", ".join(f"{name!r} ({', '.join(map(str, found))})" for name, found in codes.items())
        name, found = next(iter(codes.items()))
        words.append(
            f"These numbers are taken for codes, not for measurements: {listed}. Say what they mean, or that they are "
            f"numbers: overrides={{{name!r}: {{'codes': {{{next(iter(found))}: '…'}}}}}}, or {{'codes': {{}}}}."
        )
    return " ".join(words)


def _check_table(frame: pd.DataFrame) -> None:
    strange = [name for name in frame.columns if not isinstance(name, str)]
    if strange:
        raise InputError(
            f"the table has a column named {strange[0]!r}, which is {type(strange[0]).__name__}; expected text; "
            "try frame.columns = frame.columns.map(str)"
        )
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(
            f"the table has columns that are there twice: {', '.join(twice.unique())}; rename or drop them"
        )
    if frame.empty:
        rows, columns = frame.shape
        raise InputError(f"a schema is inferred from rows, and the table has {rows} rows of {columns} columns")


def _no_feature(present: pd.Series) -> str:
    """Why a column is left out; nothing if it is a feature, or should be one."""
    if present.empty:
        return "only missing values"
    is_number = pd.api.types.is_any_real_numeric_dtype(present.dtype)
    if not is_number and not isinstance(present.iloc[0], str | UUID):
        return ""
    if not is_number and text_format(present):
        return ""
    different = present.nunique()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", str(present.name)).strip().lower()
    is_called_so = _NAMES.fullmatch(words) is not None
    suspect = is_called_so and _kind(present) == "integer" if is_number else is_called_so or different > IDENTIFIERS
    if not suspect or 2 * different <= len(present):
        return ""
    return f"identifies rows: {different} different values in {len(present)} rows"


def _refuse_stray_texts(present: pd.Series) -> None:
    """Raise an error where nearly all texts are dates in one format: what is none would make them categories."""
    if form := nearly_format(present):
        which = f"overrides={{{present.name!r}: {{'kind': 'categorical'}}}}"
        problem = f"is not a date in the format {form}, which nearly all others are; correct it, or say {which}"
        refuse(present, np.isnan(to_days(present, DATE, form)), problem)


def _feature(present: pd.Series, overrides: Mapping[str, Any], known: Collection[float]) -> Feature:
    """The feature that the values of a column suggest, with some attributes overridden; some codes may be known."""
    name = str(present.name)
    if present.empty:
        raise InputError("it has only missing values")
    kind = overrides["kind"] if "kind" in overrides else _kind(present)
    options = choose(f"kind of feature {name!r}:", kind, KINDS)
    overrides = with_days(kind, overrides)
    own: dict[str, Any]
    if options.times:
        own = _times(present, kind, overrides)
    elif options.categories is None:
        codes = overrides.get("codes", _codes(present, known))
        present = present[~present.isin(list(codes))] if codes else present
        own = {"codes": codes, "transform": _transform(present), **_legal_numbers(present, kind, overrides)}
    elif options.values and "categories" not in overrides:
        wrong = np.array([not isinstance(value, bool | np.bool_) for value in present], dtype=bool)
        refuse(present, wrong, f"is not True or False, which {kind} features need; try the kind 'binary'")
        own = {}
    else:
        own = {"categories": _categories(present)}
    return Feature(**{"name": name, "kind": kind, **own, **overrides})


def _times(present: pd.Series, kind: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What dates or durations suggest: how text is written, and whether answers have a time of day; dates stay."""
    known = kind == DURATION or kind_of(present) is not None
    form = overrides.get("format", "" if known else text_format(present) or nearly_format(present))
    days = to_days(present, kind, form)
    refuse(
        present, np.isnan(days), f"is not a {kind}; say how they are written: overrides={{…: {{'format': '%Y-%m-%d'}}}}"
    )
    low, high = np.quantile(days, [0.25, 0.75])
    by_day = bool((days == np.rint(days)).all()) or RESOLUTION * (high - low) >= 1
    free = overrides.get("values", ANY) == ANY
    return {"format": form, "immutable": kind == DATE, "step": 1 if by_day and free else None}


def _codes(present: pd.Series, known: Collection[float]) -> dict[float, str]:
    """Numbers of a column that are no measurements, as far as one can see, or as is known from other columns."""
    if not _is_number(present):
        return {}
    return {code: f"code {code:g}" for code in suggest_codes(_finite(present), known)}


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_any_real_numeric_dtype(column.dtype)


def _finite(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column that are there and finite."""
    values: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return values[np.isfinite(values)]


def _plain(present: pd.Series) -> pd.Series:
    """Values that a column holds as objects, in their own dtype; decimals are numbers."""
    dtype = present.dtype
    decimal = isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)
    if not pd.api.types.is_object_dtype(dtype) and not decimal:
        return present
    decimals = any(isinstance(value, Decimal) for value in present)
    return present.astype(np.float64) if decimals and all(map(is_number, present)) else present.infer_objects()


def _kind(present: pd.Series) -> str:
    """The kind that the values of a column suggest, which are all there."""
    dtype = present.dtype
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered and len(dtype.categories) > 1:
        return "ordinal"
    if pd.api.types.is_bool_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
        return "boolean"
    if times := kind_of(present) or (DATE if text_format(present) else None):
        return times
    if not pd.api.types.is_any_real_numeric_dtype(dtype):
        return _kind_of_text(present)
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]  # what is not finite is for the encoder to refuse, by row
    return "integer" if bool((values == np.rint(values)).all()) else "continuous"


def _kind_of_text(present: pd.Series) -> str:
    _refuse_strange(present)
    return "binary" if present.nunique() == 2 else "categorical"


def _refuse_strange(present: pd.Series) -> None:
    """Raise an error unless the values can be numbers or categories."""
    if is_text(present.dtype):
        return
    strange = np.array([not isinstance(value, str | bool | int | float | np.generic) for value in present], dtype=bool)
    if strange.any() or present.dtype.kind in "mMc":
        raise InputError(
            f"it has values like {present.iloc[int(strange.argmax())]!r} (dtype {present.dtype}); expected numbers, "
            "text, truth values, dates or durations: try .astype(str)"
        )


def _categories(present: pd.Series) -> tuple[Any, ...]:
    """The categories of pandas in their own order if they have one, else the values of the column, sorted."""
    if isinstance(present.dtype, pd.CategoricalDtype) and present.dtype.ordered:
        return tuple(present.dtype.categories.to_list())
    # Numbers and text cannot be compared; numbers come first.
    return tuple(sorted(set(present.to_list()), key=lambda value: (isinstance(value, str), value)))


def _transform(present: pd.Series) -> str:
    """Whether log1p makes numbers less skewed that are none of them negative."""
    if not pd.api.types.is_any_real_numeric_dtype(present.dtype):
        return "identity"  # whether they are numbers after all is for the encoder to say
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(np.unique(values)) <= 2 or values.min() < 0:  # two values are as skewed after any transform
        return "identity"
    before, after = _skewness(values), _skewness(np.log1p(values))
    return "log1p" if before > SKEWNESS and abs(after) < before else "identity"


def _legal_numbers(present: pd.Series, kind: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Which numbers are legal, as far as the column suggests it and nothing else is asked for."""
    asked = {"step", "values", "lower", "upper", "step_from"} & overrides.keys()
    if asked or not pd.api.types.is_any_real_numeric_dtype(present.dtype):
        return {}
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    different, counts = np.unique(values, return_counts=True)
    if len(different) > 2 and counts.max() > MOSTLY * len(values):
        return {"values": OBSERVED}
    if kind == "continuous":
        return {"step": _step(different, values)} if len(different) > 1 else {}
    return _legal_integers(different, len(values)) if len(different) > 2 else {}


def _legal_integers(different: NDArray[np.float64], count: int) -> dict[str, Any]:
    """Which whole numbers are legal, by the different ones that a column of so many values has."""
    if count < EVIDENCE or np.abs(different).max() >= 2.0**53:  # from there on floats are no longer exact
        return {}
    unit = int(np.gcd.reduce(different.astype(np.int64)))
    between = (different[-1] - different[0]) / unit + 1
    if len(different) <= FEW_VALUES and count >= FEW_VALUES * len(different) and 2 * len(different) < between:
        return {"values": OBSERVED}
    return {"step": unit} if unit > 1 else {}


def _step(different: NDArray[np.float64], values: NDArray[np.float64]) -> Number | None:
    """The unit of the last decimal that a column has, or that matters."""
    for places in range(DECIMALS + 1):
        if np.allclose(different, np.round(different, places), rtol=1e-12, atol=0):
            return float(10.0**-places) if places else 1
    low, high = np.quantile(values, [0.25, 0.75])
    spread = float(high - low) or float(values.std())
    exponent = math.floor(math.log10(RESOLUTION * spread))
    return float(f"1e{exponent}") if exponent >= -PLACES else None


def _skewness(values: NDArray[np.float64]) -> float:
    """E[(x − μ)³] / σ³; 0 for a constant, where scipy.stats.skew warns, and finite where its cubes overflow."""
    largest = np.abs(values).max()
    scaled = values / largest if largest > 0 else values
    centered = scaled - scaled.mean()
    deviation = float(np.sqrt(np.mean(centered**2)))
    return float(np.mean((centered / deviation) ** 3)) if deviation > 0 else 0.0

"""Tables as they come, with models that take them as they are: is every answer valid on the real model, and legal?

    python benchmarks/as_they_come.py [--data heloc,gmc,german,compas,adult,…] [--models own,hgb,xgboost,…] [--out FILE]
    python benchmarks/as_they_come.py --data gmc --people 100 --tested 75000 --out FILE

CatBoost is left out where it is not installed: with 275 MB it is part of the extra `bench`, and not of `dev`.

Raw tables: HELOC with its codes, Give Me Some Credit with its gaps, German Credit, ProPublica's COMPAS with dates, and
Adult with its "?" as gaps, and as the category that it is in the file ("adult-published"). `Schema.infer` reads each;
nothing is cleaned. Models that take gaps and categories themselves are asked about the rows as they are returned: found
is the share of rejected people with an answer, valid the share of these whom the real model accepts. Counted are values
between codes or fractions of whole numbers in any row of any path, gaps that appear, and gaps that are filled.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import counterpath as cp
from counterpath.data.schema import KINDS

SEED = 0
FOUND = ("found", "crosses_gap")


@dataclass(frozen=True)
class Raw:
    """A table as it comes: how it is read, its label, and the class that people want."""

    read: Callable[[Path], pd.DataFrame]
    target: str
    wanted: Any


def _heloc(folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(folder / "heloc_raw.csv.gz")
    return frame[(frame.drop(columns="RiskPerformance") != -9).any(axis=1)]  # 588 people without any record


def _compas(folder: Path) -> pd.DataFrame:
    """Without what gives the label away, which is known only later."""
    frame = pd.read_csv(folder / "compas_raw.csv.gz")
    later = [name for name in frame if name.startswith(("r_", "vr_")) or name in ("is_recid", "start", "end", "event")]
    return frame.drop(columns=[*later, "violent_recid", "is_violent_recid"])


def _adult_as_published(folder: Path) -> pd.DataFrame:
    data = cp.datasets.load("adult")
    return pd.concat([data.train, data.test])


def _adult(folder: Path) -> pd.DataFrame:
    frame = _adult_as_published(folder)
    return frame.mask(frame.astype(str) == "?")


def _german(folder: Path) -> pd.DataFrame:
    data = cp.datasets.load("german")
    return pd.concat([data.train, data.test])


TABLES: dict[str, Raw] = {
    "heloc": Raw(_heloc, "RiskPerformance", "Good"),
    "gmc": Raw(lambda folder: pd.read_csv(folder / "gmc_raw.csv.gz", index_col=0), "SeriousDlqin2yrs", 0),
    "german": Raw(_german, "credit-risk", "good"),
    "compas": Raw(_compas, "two_year_recid", 0),
    "adult": Raw(_adult, "income", ">50K"),
    "adult-published": Raw(_adult_as_published, "income", ">50K"),
}


def _pipeline(x: pd.DataFrame, y: pd.Series) -> Any:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (words, make_column_selector(dtype_include="category"))
    )
    return make_pipeline(columns, LogisticRegression(max_iter=2000)).fit(x, y)


def _hgb(x: pd.DataFrame, y: pd.Series) -> Any:
    """Without the texts of charges in COMPAS: scikit-learn takes at most 255 categories."""
    many = [name for name in x.select_dtypes("category") if len(x[name].cat.categories) > 255]
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=SEED)
    model.fit(x.drop(columns=many), y)
    return model if not many else lambda frame: model.predict_proba(frame.drop(columns=many))


def _xgboost(x: pd.DataFrame, y: pd.Series) -> Any:
    import xgboost

    return xgboost.XGBClassifier(n_estimators=100, max_depth=4, enable_categorical=True, random_state=SEED).fit(
        x, y.factorize(sort=True)[0]
    )


def _lightgbm(x: pd.DataFrame, y: pd.Series) -> Any:
    import lightgbm

    return lightgbm.LGBMClassifier(n_estimators=100, num_leaves=15, random_state=SEED, verbose=-1).fit(x, y)


def _catboost(x: pd.DataFrame, y: pd.Series) -> Any:
    import catboost

    words = [name for name in x if isinstance(x[name].dtype, pd.CategoricalDtype)]
    model = catboost.CatBoostClassifier(
        iterations=100, depth=5, random_seed=SEED, verbose=False, allow_writing_files=False, cat_features=words
    )
    if not x[words].isna().any(axis=None):
        return model.fit(x, y)

    def as_text(frame: pd.DataFrame) -> pd.DataFrame:
        """CatBoost takes gaps in numbers, and none in categories: there they become a category."""
        return frame.assign(**{name: frame[name].astype(object).fillna("missing").astype(str) for name in words})

    model.fit(as_text(x), y)
    return lambda frame: model.predict_proba(as_text(frame))


MODELS: dict[str, Callable[[pd.DataFrame, pd.Series], Any]] = {
    "own": lambda x, y: None,
    "hgb": _hgb,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "pipeline": _pipeline,
}


def illegal(table: pd.DataFrame, factuals: pd.DataFrame, explainer: cp.Explainer) -> int:
    """How many numbers are neither a person's own, nor a code, nor a legal number between the ends of the data."""
    count = 0
    for index, feature in enumerate(explainer.schema_):
        if feature.categories or not pd.api.types.is_numeric_dtype(table[feature.name]):
            continue
        values, own = (each[feature.name].to_numpy(float, na_value=np.nan) for each in (table, factuals))
        low, high = explainer.encoder_.low[index], explainer.encoder_.high[index]
        whole = (values == np.rint(values)) | (not KINDS[feature.kind].whole)
        good = (values == own) | np.isin(values, list(feature.codes)) | ((values >= low) & (values <= high) & whole)
        count += int((~good & ~np.isnan(values)).sum())
    return count


def one_case(name: str, kind: str, rows: int, people: int, tested: int | None, folder: Path) -> dict[str, Any]:
    """One table and one model."""
    raw = TABLES[name]
    frame = raw.read(folder)
    tested = tested or min(20 * people, len(frame) // 4)  # of Give Me Some Credit one row in twenty is rejected
    frame = frame.sample(min(len(frame), rows + tested), random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = cp.Schema.infer(frame.drop(columns=raw.target))
        words = [feature.name for feature in schema if feature.categories]
        kept = [*schema.names, raw.target]
        frame = frame[kept].astype(dict.fromkeys(words, "category"))
        test, train = frame.iloc[:tested], frame.iloc[tested:]
        dates = [feature.name for feature in schema if feature.kind in ("date", "duration")]
        x, y = train[list(schema.names)], train[raw.target]
        model = MODELS[kind](x.drop(columns=dates), y)
        if model is not None and dates:  # models of numbers and categories are not given dates
            ask = model.predict_proba if hasattr(model, "predict_proba") else model
            model = lambda table, ask=ask: ask(table.drop(columns=dates))  # noqa: E731
        begun = time.perf_counter()
        explainer = cp.Explainer(seed=SEED, progress=False)
        explainer.fit(train, raw.target, schema=schema, **({} if model is None else {"model": model}))
        fitted = time.perf_counter() - begun
        test = test[list(schema.names)]
        test = test[explainer.encoder_.known(test)]
        rejected = test[explainer.predict(test).astype(str).to_numpy() != str(raw.wanted)].head(people)
        begun = time.perf_counter()
        result = explainer.explain(rejected, target_class=raw.wanted)
        seconds = time.perf_counter() - begun
    found = result.status["status"].isin(FOUND).to_numpy()
    answers, position = (
        result.counterfactuals[found],
        list(explainer.classes_).index(next(label for label in explainer.classes_ if str(label) == str(raw.wanted))),
    )
    if model is None:
        probabilities = explainer.predict_proba(answers).to_numpy()
    else:
        ask = model.predict_proba if hasattr(model, "predict_proba") else model
        probabilities = np.asarray(ask(answers))
    paths = result.paths
    own = result.factuals.iloc[paths["row"].to_numpy()]
    before, after = result.factuals[found].isna(), answers.isna()
    row = {
        "data": name,
        "model": kind,
        "train": len(train),
        "tested": len(test),
        "gaps": int(x.isna().to_numpy().sum()),
        "codes": sum(len(feature.codes) for feature in schema),
        "people": len(rejected),
        "found": float(found.mean()) if len(found) else float("nan"),
        "valid": float((probabilities.argmax(1) == position).mean()) if found.any() else float("nan"),
        "illegal": illegal(answers, result.factuals[found], explainer) + illegal(paths, own, explainer),
        "gaps_created": int((after & ~before).to_numpy().sum()),
        "gaps_filled": int((before & ~after).to_numpy().sum()),
        "l0": float(result.measures().loc[found, "l0"].mean()),
        "fit_s": fitted,
        "s_per_person": seconds / max(len(rejected), 1),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Run all cases, and write them as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    installed = [kind for kind in MODELS if kind != "catboost" or find_spec("catboost")]
    options.add_argument("--data", default=",".join(TABLES))
    options.add_argument("--models", default=",".join(installed))
    options.add_argument("--rows", type=int, default=6000, help="training rows, at most")
    options.add_argument("--people", type=int, default=100, help="rejected people, at most")
    options.add_argument("--tested", type=int, help="test rows among which they are looked for")
    options.add_argument("--folder", type=Path, default=os.environ.get("COUNTERPATH_DATA", "."), help="of raw tables")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    sizes = given.rows, given.people, given.tested, given.folder
    rows = [one_case(name, kind, *sizes) for name in given.data.split(",") for kind in given.models.split(",")]
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

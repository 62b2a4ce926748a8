"""Valid as displayed: whoever types in the values that are shown gets the decision that is shown."""

import html
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath.data import Feature, Schema, datasets
from counterpath.explanation import Explanation, wording
from counterpath.service.schemas import BatchResult
from counterpath.utils.errors import CounterpathWarning
from tests.tables import LABEL, described, mixed, small

ROWS = 8


def census(small_columns: bool = False) -> tuple[pd.DataFrame, Schema, str]:
    """Some of the census, as it is shipped; or its numbers in types of fewer bits, with shares of a full week."""
    data = datasets.load("adult")
    table = data.train.sample(800, random_state=0)
    if not small_columns:
        return table, data.schema, data.target
    numbers = table[["age", "hours-per-week", "sex"]].astype({"age": "int8"})
    shares = {"share": (numbers["hours-per-week"] / 97).astype("float32"), "pay": np.sqrt(table["fnlwgt"]) / 7}
    table = numbers.assign(**shares, **{data.target: table[data.target]})
    schema = Schema.infer(
        table, target=data.target, overrides={"hours-per-week": {"step": 5, "lower": 0, "upper": 100}}
    )
    return table, schema, data.target


def mixed_table(labels: bool) -> tuple[pd.DataFrame, Schema, str]:
    table = mixed(300)
    schema = Schema.infer(table, target=LABEL)
    return table, described(schema) if labels else schema, LABEL


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, Schema, str]]] = {
    "mixed": lambda: mixed_table(labels=False),
    "mixed, with labels": lambda: mixed_table(labels=True),
    "census": census,
    "census, other dtypes": lambda: census(small_columns=True),
}


@pytest.fixture(scope="module", params=TABLES)
def found(request: pytest.FixtureRequest) -> tuple[cp.Explainer, Explanation]:
    """A fitted explainer, and two plans of some people each."""
    table, schema, target = TABLES[request.param]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpathWarning)  # how good the models are makes no difference here
        explainer = small(epochs=10).fit(table, target, schema=schema)
    result = explainer.explain(table.drop(columns=target).head(ROWS), plans=2)
    assert result.status["status"].isin(["found", "crosses_gap"]).sum() > ROWS / 2
    return explainer, result


Shown = dict[str, str]


def check(found: tuple[cp.Explainer, Explanation], shown: Callable[[int], Shown | None]) -> None:
    """What is shown of every plan that there is, typed into the row, has the decision that was promised."""
    explainer, result = found
    checked = 0
    for row in np.flatnonzero(result.status["status"].isin(["found", "crosses_gap"])).tolist():
        texts = shown(row)
        if texts is None:
            continue
        assert set(texts) == {name for name in result.schema.names if result.changed[name].iloc[row]}
        own = result.factuals.iloc[[row]].reset_index(drop=True).astype(object)
        typed = {name: typed_in(result.schema[name], text, result.factuals[name]) for name, text in texts.items()}
        table = explainer.encoder_.align(own.assign(**{name: [value] for name, value in typed.items()}).infer_objects())
        assert explainer.predict(table).iloc[0] == result.outcome["class_after"].iloc[row]
        assert table.iloc[0].tolist() == result.counterfactuals.iloc[row].tolist()
        checked += 1
    assert checked > ROWS / 2


def typed_in(feature: Feature, text: str, column: pd.Series) -> Any:
    """The value that people mean by a text."""
    if feature.categories:
        return next(value for value in feature.categories if wording.shown(feature, value) == text)
    return pd.Series([float(text.replace(",", ""))]).astype(column.dtype if column.dtype.kind == "f" else float).iloc[0]


def values_of(feature: Feature) -> str:
    """A pattern for the texts of a feature's values."""
    if not feature.categories:
        return r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
    texts = sorted((wording.shown(feature, value) for value in feature.categories), key=len, reverse=True)
    return "|".join(map(re.escape, texts))


def clause(feature: Feature) -> str:
    """A pattern for the clause about a feature."""
    pattern = (
        feature.phrase.removeprefix("you ") or f"{wording.inline(feature.label) or feature.name} were {{new}} instead"
    )
    return re.escape(pattern).replace(r"\{new\}", f"({values_of(feature)})").replace(r"\{old\}", ".+?")


def entries(feature_texts: list[str], schema: Schema) -> Shown:
    """Entries of a list, such as "Debt: 3 → 4.5 euros"."""
    found = {}
    for text in feature_texts:
        for feature in schema:
            match = re.fullmatch(rf"{re.escape(feature.title)}:? .+ → ({values_of(feature)})( {feature.unit})?", text)
            if match:
                found[feature.name] = match[1]
    return found


def test_the_sentence(found: tuple[cp.Explainer, Explanation]) -> None:
    _, result = found

    def shown(row: int) -> Shown:
        said = result.sentences.iloc[row].partition(") if ")[2]
        matches = {feature.name: re.search(clause(feature), said) for feature in result.schema}
        return {name: match[1] for name, match in matches.items() if match}

    check(found, shown)


def test_the_terminal(found: tuple[cp.Explainer, Explanation]) -> None:
    _, result = found

    def shown(row: int) -> Shown | None:
        line = result._describe([row])[0].brief.split(" | ")[1]
        return None if "more" in line else entries(line.split("; "), result.schema)

    check(found, shown)


def test_the_notebook(found: tuple[cp.Explainer, Explanation]) -> None:
    _, result = found

    def shown(row: int) -> Shown:
        label, plan = result.factuals.index[row]
        chips = re.findall('class="chip">(.*?)</span>', result.plan(plan).select(label)._repr_html_())
        return entries([html.unescape(chip) for chip in chips], result.schema)

    check(found, shown)


def test_the_report(found: tuple[cp.Explainer, Explanation], tmp_path: Path) -> None:
    _, result = found

    def shown(row: int) -> Shown:
        label, plan = result.factuals.index[row]
        page = result.plan(plan).select(label).to_html(tmp_path / "a.html").read_text(encoding="utf-8")
        (table,) = re.findall('<table class="along">(.*?)</table>', page, flags=re.DOTALL)
        cells = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>.*?<td class="t">(.*?)</td></tr>', table)
        said = [
            " → ".join([f"{name}: {now}", then]) for name, now, then in cells if name != "uncertainty" and now != then
        ]
        changed = {name for name in result.schema.names if result.changed[name].iloc[row]}
        return {
            name: text
            for name, text in entries([html.unescape(each) for each in said], result.schema).items()
            if name in changed  # what moves and ends as it was is drawn, too, with its unit at the end only
        }

    check(found, shown)


@pytest.mark.parametrize("form", ["csv", "json", "http"])
def test_files_and_responses(found: tuple[cp.Explainer, Explanation], form: str, tmp_path: Path) -> None:
    _, result = found
    names = list(result.schema.names)
    if form == "csv":
        table = pd.read_csv(result.to_csv(tmp_path / "a.csv"), dtype=str, keep_default_na=False)[names]
    elif form == "json":
        table = Explanation.from_json(result.to_json()).counterfactuals[names]
    else:
        rows = [json.loads(text) for text in BatchResult(result).row_texts]
        table = pd.DataFrame([plan["counterfactual"] for row in rows for plan in row["plans"]], dtype=object)

    def shown(row: int) -> Shown:
        changed = [name for name in names if result.changed[name].iloc[row]]
        features = {name: result.schema[name] for name in changed}
        plain = {str(value): value for feature in features.values() for value in feature.categories}
        return {
            name: wording.shown(feature, plain.get(str(table[name].array[row]), table[name].array[row]))
            for name, feature in features.items()
        }

    check(found, shown)


def test_milestones_end_with_the_values_of_the_plan(found: tuple[cp.Explainer, Explanation]) -> None:
    _, result = found

    def shown(row: int) -> Shown:
        told: Shown = {}
        for text in result.milestones(result.factuals.index[row])["changes"]:
            told |= entries(text.split("; "), result.schema)
        return {name: text for name, text in told.items() if result.changed[name].iloc[row]}

    check(found, shown)


def test_the_values_of_the_present_are_the_rows_own(found: tuple[cp.Explainer, Explanation]) -> None:
    _, result = found
    for position, row in enumerate(result._describe(range(len(result)))):
        for change in row.changes:
            column = result.factuals[change.feature]
            assert typed_in(result.schema[change.feature], change.old, column) == column.iloc[position]

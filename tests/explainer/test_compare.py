"""Methods side by side: what a table counts, and over which rows."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from counterpath.explainer.compare import Comparison, compare
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.summary import MEANS
from counterpath.utils.errors import InputError, NotFittedError
from tests.explanation.conftest import make


def _result(status: list[StatusCode], l0: list[float]) -> Explanation:
    told = make().status.assign(status=[value.value for value in status])
    measures = pd.DataFrame({name: np.arange(len(status), dtype=float) for name in MEANS}).assign(l0=l0)
    return make(status=told, compute_measures=measures)


@pytest.fixture
def comparison() -> Comparison:
    found, missed, already, late = StatusCode.FOUND, StatusCode.NOT_FOUND, StatusCode.ALREADY, StatusCode.OUT_OF_TIME
    return Comparison(
        {
            "one": _result([found, found, missed, already, found], [1, 2, 9, 0, 4]),
            "two": _result([found, late, found, already, found], [3, 9, 5, 0, 7]),
        },
        {"one": 1.5, "two": 2.5},
    )


def test_own_rows_count_what_each_method_found(comparison: Comparison) -> None:
    table = comparison.table()
    assert table.index.tolist() == ["one", "two"]
    assert table["n"].tolist() == [3, 3]
    assert table["flip ratio"].tolist() == [0.75, 0.75]
    assert table["l0"].tolist() == [pytest.approx(7 / 3), pytest.approx(15 / 3)]
    assert table["seconds"].tolist() == [1.5, 2.5]


def test_common_rows_are_those_that_all_methods_found(comparison: Comparison) -> None:
    table = comparison.table(common=True)
    assert table["n"].tolist() == [2, 2]
    assert table["l0"].tolist() == [2.5, 5.0]
    assert table["flip ratio"].tolist() == [0.75, 0.75]


def test_rows_across_a_gap_are_found_and_counted_apart(comparison: Comparison) -> None:
    gap = _result(
        [StatusCode.FOUND, StatusCode.CROSSES_GAP, StatusCode.NOT_FOUND, StatusCode.ALREADY, StatusCode.CROSSES_GAP],
        [1, 2, 9, 0, 4],
    )
    one = comparison.table().loc["one"]
    assert one["gaps"] == 0
    table = Comparison({"one": gap}, {"one": 1.5}).table()
    assert table.loc["one"].to_dict() == one.to_dict() | {"gaps": 0.5}


def test_nothing_found_has_no_means() -> None:
    table = Comparison({"one": _result([StatusCode.ALREADY] * 5, [0] * 5)}, {"one": 0.1}).table()
    assert table["n"].tolist() == [0]
    assert table[["flip ratio", "gaps", "l0"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("methods", "text"), [(["rgsd"], "did you mean 'rsgd'"), ([], "at least one"), ("rsgd", "list")]
)
def test_wrong_methods_are_refused(fitted: Explainer, loans: pd.DataFrame, methods: list[str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        compare(fitted, loans.head(2), "yes", methods=methods)


def test_an_explainer_that_cannot_is_refused_before_anything_is_searched(
    fitted: Explainer, loans: pd.DataFrame
) -> None:
    with pytest.raises(NotFittedError, match="fit"):
        compare(Explainer(), loans.head(2), "yes")
    with pytest.raises(NotFittedError, match="flow"):
        compare(fitted, loans.head(2), "yes", methods=["rsgd", "flow"])


def test_compare_explains_the_same_rows_and_adds_the_baseline(fitted: Explainer, loans: pd.DataFrame) -> None:
    people = loans.drop(columns="loan").head(30)
    found = compare(fitted, people, "yes", methods=["sgd", "sgd"], confidence=0.6)
    assert list(found.results) == ["sgd", "nearest"]
    requests: list[Mapping[str, object]] = [result.request for result in found.results.values()]
    assert [request["method"] for request in requests] == ["sgd", "nearest"]
    assert {request["confidence"] for request in requests} == {0.6}
    for result in found.results.values():
        pd.testing.assert_index_equal(result.factuals.index, people.index)
    table = found.table()
    assert table.loc["nearest", "ld_sq"] == 0
    assert (table["seconds"] > 0).all()
    valid = found.results["sgd"].measures()[(found.results["sgd"].status["status"] == "found").to_numpy()]
    assert table.loc["sgd", "l1"] == pytest.approx(valid["l1"].mean())
    assert found.table(common=True)["n"].nunique() == 1


def test_one_person_by_several_methods_is_drawn_on_one_map_and_a_column_each(
    comparison: Comparison, tmp_path: Path
) -> None:
    label = comparison.results["one"].factuals.index[0]
    fig = comparison.plot(label, tmp_path / "person", methods=["two", "one"])
    assert {path.name for path in tmp_path.iterdir()} == {"person.png", "person.svg"}
    above, below = fig.subfigs
    assert [text.get_text() for text in above.legends[0].get_texts()][-2:] == ["two", "one"]
    titles = [axes.get_title().split("\n")[0] for axes in below.axes if axes.get_title()]
    assert titles == ["two", "one"]
    path = comparison.results["one"].path(label)
    (line,) = [line for line in below.axes[0].lines if len(line.get_ydata()) == len(path)]
    assert line.get_ydata().tolist() == path["probability"].tolist()


def test_a_method_that_was_not_compared_cannot_be_drawn(comparison: Comparison) -> None:
    with pytest.raises(InputError, match="one, two"):
        comparison.plot(comparison.results["one"].factuals.index[0], methods=["three"])

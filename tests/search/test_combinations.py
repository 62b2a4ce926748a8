"""Combinations that nobody has, and those that a schema forbids, on tables where all of them can be counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.data import Encoder, Feature, Schema
from counterpath.search.combinations import Combinations
from counterpath.search.objective import Target
from counterpath.search.validity import Validator
from counterpath.utils.errors import InputError
from tests.conftest import random_vae
from tests.explainer.conftest import shorten_surrogate
from tests.tables import small

pytestmark = pytest.mark.filterwarnings("ignore:The generative model keeps less")  # jobs hang on nothing but cities

FEATURES = (
    Feature("sex", "binary", categories=("f", "m")),
    Feature("role", "categorical", categories=("child", "husband", "wife")),
    Feature("size", "ordinal", categories=("S", "M", "L")),
    Feature("age", "integer"),
    Feature("gain", "continuous", transform="log1p"),
)
TABLE = pd.DataFrame(
    {
        "sex": ["f", "m"] * 50,
        "role": ["child", "child"] * 25 + ["wife", "husband"] * 25,
        "size": ["S"] * 50 + ["M", "L"] * 25,
        "age": range(100),  # children are less than 50 years old
        "gain": [0.0] * 90 + [10.0 * (1 + row) for row in range(10)],
    }
)


TENTHS = [-1, 10, 20, 30, 40, 50, 59, 69, 79, 89, 99]
"""The upper ends of the tenths of ages; ranks are rounded, half to even."""


def _fit(forbidden: tuple[dict[str, Any], ...] = ()) -> tuple[Combinations, Callable[..., Tensor]]:
    encoder = Encoder.fit(TABLE, Schema(FEATURES, forbidden=forbidden))

    def rows(*people: tuple[Any, ...]) -> Tensor:
        return encoder.encode(pd.DataFrame(people, columns=TABLE.columns))

    return Combinations.fit(encoder, encoder.encode(TABLE)), rows


def test_nobody_in_the_table_has_a_pair_that_nobody_has() -> None:
    seen, _ = _fit()
    train = seen.encoder.encode(TABLE)
    strangers = train.roll(1, 0)
    assert not seen.count(train, strangers).any()
    assert seen.allowed(train, strangers).all()


def test_a_pair_is_unseen_exactly_if_no_row_has_both() -> None:
    """Against a plain count over the table, for each combination of categories and each tenth."""
    seen, rows = _fit()

    def tenths(frame: pd.DataFrame) -> pd.DataFrame:
        ages = pd.cut(frame["age"], TENTHS, labels=False)
        return frame.assign(age=ages, gain=(frame["gain"] > 0).astype(int))

    parts = tenths(TABLE)
    random = np.random.default_rng(0)
    people = pd.DataFrame({name: random.choice(TABLE[name], 300) for name in TABLE})
    asked = tenths(people)
    nobody = rows(("f", "child", "S", 5, 0.0))
    x = rows(*people.itertuples(index=False, name=None))
    found = seen.names(x, nobody.expand(len(x), -1))
    for row, names in enumerate(found):
        own = {"sex": "f", "role": "child", "size": "S", "age": 0, "gain": 0}
        expected = [
            (one, other)
            for place, one in enumerate(TABLE)
            for other in list(TABLE)[place + 1 :]
            if not {one, other} <= {"age", "gain"}  # two numbers are never a pair
            and not ((parts[one] == asked[one][row]) & (parts[other] == asked[other][row])).any()
            and (asked[one][row], asked[other][row]) != (own[one], own[other])
        ]
        assert names == expected, people.iloc[row].to_dict()
    assert seen.count(x, nobody.expand(len(x), -1)).tolist() == [len(names) for names in found]
    assert 50 < sum(map(bool, found)) < 300


@pytest.mark.parametrize(
    ("person", "pairs"),
    [
        (("m", "husband", "M", 55, 0.0), [("sex", "size"), ("role", "size")]),
        (("f", "husband", "M", 55, 0.0), [("sex", "role"), ("role", "size")]),
        (("f", "wife", "M", 40, 0.0), [("role", "age"), ("size", "age")]),
        (("f", "wife", "M", 99, 45.5), []),  # a gain between others is of their tenth
        (("m", "child", "S", 3, 20.0), [("role", "gain"), ("size", "gain")]),
    ],
)
def test_pairs_are_named(person: tuple[Any, ...], pairs: list[tuple[str, str]]) -> None:
    seen, rows = _fit()
    factual = rows(("f", "child", "S", 5, 0.0))
    assert seen.names(rows(person), factual) == [pairs]
    assert seen.allowed(rows(person), factual).item() == (not pairs)


def test_what_a_person_has_already_is_theirs() -> None:
    seen, rows = _fit()
    widow, older, other = rows(
        ("f", "husband", "M", 55, 0.0), ("f", "husband", "M", 65, 0.0), ("f", "husband", "L", 55, 0.0)
    ).split(1)
    assert not seen.count(widow, widow).any()
    assert seen.names(older, widow) == [[]], "sex and role are as they were, and their ages have others"
    assert seen.names(other, widow) == [[("sex", "size")]], "but nothing new"
    assert seen.count(widow, other).item() == 1, "from L to M nobody with a role has been"


def test_whoever_loosens_it_may_be_anybody_but_what_is_forbidden() -> None:
    seen, rows = _fit(({"sex": "f", "role": "husband"},))
    factual, husband, giant = rows(
        ("f", "child", "S", 5, 0.0), ("f", "husband", "M", 55, 0.0), ("f", "wife", "L", 55, 0.0)
    ).split(1)
    loose = seen.loosened()
    assert not seen.allowed(giant, factual).item()
    assert loose.allowed(giant, factual).item()
    assert loose.count(giant, factual).item() == 2, "it is counted all the same"
    assert not loose.allowed(husband, factual).item()
    assert loose.allowed(husband, husband).item(), "unless they are so already"


@pytest.mark.parametrize(
    ("forbidden", "inside", "outside"),
    [
        ({"age": [20, 30], "sex": "m"}, ("m", 20), ("m", 19)),
        ({"age": [20, 30], "sex": "m"}, ("m", 30), ("m", 31)),
        ({"age": [20, 30], "sex": "m"}, ("m", 25), ("f", 25)),
        ({"age": [None, 30], "sex": ["m"]}, ("m", 0), ("m", 31)),
        ({"age": [30, None], "sex": ["m", "f"]}, ("f", 99), ("f", 29)),
        ({"age": 30, "sex": "m"}, ("m", 30), ("m", 29)),
    ],
)
def test_intervals_of_numbers_are_forbidden_with_their_ends(
    forbidden: dict[str, Any], inside: tuple[str, int], outside: tuple[str, int]
) -> None:
    seen, rows = _fit((forbidden,))
    factual, bad, good = (
        rows((sex, "child", "S", age, 0.0)) for sex, age in (("f", 29 if 29 not in inside else 5), inside, outside)
    )
    factual = rows(("f", "wife", "M", 50, 0.0)) if forbidden["sex"] != ["m", "f"] else factual
    loose = seen.loosened()
    assert not loose.allowed(bad, factual).item()
    assert loose.allowed(good, factual).item()


@pytest.mark.parametrize(
    ("value", "bad", "good"),
    [("M", "M", "L"), (["S", "L"], "L", "M"), (["L"], "L", "S"), (["M", "L", "S"], "M", None)],
)
def test_categories_with_an_order_are_forbidden_one_by_one(value: Any, bad: str, good: str | None) -> None:
    seen, rows = _fit(({"size": value, "sex": "m"},))
    factual = rows(("f", "child", "S", 5, 0.0))
    loose = seen.loosened()
    assert not loose.allowed(rows(("m", "child", bad, 5, 0.0)), factual).item()
    assert good is None or loose.allowed(rows(("m", "child", good, 5, 0.0)), factual).item()


@pytest.mark.parametrize(("gain", "bad", "good"), [([None, 20], 0.0, 20.5), ([20, None], 100.0, 19.5)])
def test_an_open_end_is_open_for_a_number_on_a_logarithmic_scale(gain: list[Any], bad: float, good: float) -> None:
    seen, rows = _fit(({"gain": gain, "role": ["wife", "husband"]},))
    factual, loose = rows(("f", "child", "S", 5, 0.0)), seen.loosened()
    assert not loose.allowed(rows(("f", "wife", "S", 5, bad)), factual).item()
    assert loose.allowed(rows(("f", "wife", "S", 5, good)), factual).item()
    assert loose.allowed(rows(("f", "child", "S", 5, bad)), factual).item()


def test_truth_values_and_numbers_that_are_categories_may_be_forbidden() -> None:
    frame = pd.DataFrame({"owner": [True, False] * 5, "grade": [1, 2] * 5, "age": range(10)})
    schema = Schema(
        (Feature("owner", "boolean"), Feature("grade", "binary", categories=(1, 2)), Feature("age", "integer")),
        forbidden=({"owner": True, "grade": 2},),
    )
    encoder = Encoder.fit(frame, schema)
    loose = Combinations.fit(encoder, encoder.encode(frame)).loosened()
    tried = encoder.encode(pd.DataFrame({"owner": [True, True, False], "grade": [2, 1, 2], "age": [5, 5, 5]}))
    assert loose.allowed(tried, tried.roll(1, 0)).tolist() == [False, True, True]


MISTAKES = [
    (({"sex": "f"},), "expected at least two features"),
    (({"sex": "f", "rolle": "wife"},), r"unknown column 'rolle' \(did you mean 'role'"),
    (({"sex": "f", "role": "husbnad"},), r"forbidden.*feature 'role'.*'husbnad' \(did you mean 'husband'"),
    (({"sex": "f", "size": ["S", "XL"]},), "forbidden.*feature 'size'.*'XL'"),
    (({"sex": "f", "age": [60, 30]},), "forbidden.*feature 'age' has low=60 above high=30"),
    (({"sex": "f", "age": [1, 2, 3]},), r"forbidden.*feature 'age'.*\[1, 2, 3\]; expected a pair"),
    (({"sex": "f", "age": "old"},), "forbidden.*feature 'age'.*'old'.*finite numbers"),
]


@pytest.mark.parametrize(("forbidden", "message"), MISTAKES)
def test_what_cannot_be_forbidden_is_said_before_anything_is_learned(
    forbidden: tuple[dict[str, Any], ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cp.explainer.explainer, "fit_models", lambda *_: pytest.fail("it learns"))
    with pytest.raises(InputError, match=message):
        small().fit(TABLE, (TABLE["age"] > 50).to_numpy(), schema=Schema(FEATURES, forbidden=forbidden))


def test_a_row_is_valid_if_it_reaches_the_target_and_is_possible() -> None:
    seen, rows = _fit()
    x = rows(("f", "wife", "M", 60, 0.0), ("f", "husband", "M", 60, 0.0), ("f", "child", "S", 5, 0.0))
    factual = x[2:].expand(3, -1)

    def grown(rows: Tensor) -> Tensor:
        old = (rows[:, seen.encoder.columns("age")[0]] > 0.4).float()
        return torch.stack([1 - old, old], 1)

    strict, free = (Validator(grown, random_vae(7), Target(1), None, combinations=each) for each in (seen, None))
    assert strict.is_valid(x, factual).tolist() == [True, False, False]
    assert strict.is_possible(x, factual).tolist() == [True, False, True]
    assert free.is_valid(x, factual).tolist() == [True, True, False]
    assert free.is_possible(x, factual).all()
    assert strict.is_valid(x, x.roll(-1, 0)).tolist() == [True, False, False]
    assert strict.is_valid(x[1:2], x[1:2]).item(), "their own"


@pytest.mark.parametrize("forbidden", [(), ({"role": "wife", "size": ["S", "L"]},)])
def test_of_many_rows_the_same_are_allowed(forbidden: tuple[dict[str, Any], ...]) -> None:
    seen, rows = _fit(forbidden)
    random = np.random.default_rng(0)
    people = [tuple(TABLE[name].iloc[random.integers(100)] for name in TABLE.columns) for _ in range(600)]
    x, factual = rows(*people[:300]), rows(*people[300:])
    for checks in (seen, seen.loosened()):
        allowed = checks.allowed(x, factual)
        assert checks.allowed_among_many(x, factual).tolist() == allowed.tolist()
        assert not allowed.all() or not (checks.active or forbidden)


# From a table to an answer


CITIES, JOBS = ("north", "south"), ("clerk", "fisher", "miner")


@pytest.fixture(scope="module")
def workers() -> pd.DataFrame:
    """In the north there are no fishers, in the south no miners; whoever fishes or mines and works long is paid."""
    random, count = np.random.default_rng(0), 600
    city = random.choice(CITIES, count)
    other = np.where(city == "north", "miner", "fisher")
    frame = pd.DataFrame({"city": city, "job": np.where(random.random(count) < 0.4, "clerk", other)})
    return frame.assign(hours=random.integers(10, 60, count), years=random.integers(0, 30, count))


def _paid(job: str) -> Callable[[pd.DataFrame], Any]:
    """A model that pays whoever does a job and works long."""
    return lambda frame: 1 / (1 + np.exp(-(6.0 * (frame["job"] == job) + (frame["hours"] - 20) / 10 - 5)))


def _schema(**options: Any) -> Schema:
    features = (
        Feature("city", "binary", categories=CITIES),
        Feature("job", "categorical", categories=JOBS),
        Feature("hours", "integer"),
        Feature("years", "integer"),
    )
    return Schema(features, **options)


@pytest.fixture(scope="module")
def fishing(workers: pd.DataFrame) -> cp.Explainer:
    with pytest.MonkeyPatch.context() as patch:
        shorten_surrogate(patch, 150, rows=40)
        label = (_paid("fisher")(workers) > 0.5).to_numpy()
        return small(epochs=20).fit(workers, label, schema=_schema(), model=_paid("fisher"))


def _refused(workers: pd.DataFrame, city: str, count: int = 12) -> pd.DataFrame:
    chosen = workers[(workers["city"] == city) & (workers["job"] != "fisher") & (workers["hours"] < 40)]
    return chosen.head(count)


@pytest.mark.whole
@pytest.mark.parametrize("method", ["geodesic", "rsgd", "wachter", "nearest"])
def test_the_search_avoids_people_whom_nobody_has_seen(
    fishing: cp.Explainer, workers: pd.DataFrame, method: str
) -> None:
    rows = _refused(workers, "north")
    result = fishing.explain(rows, 1, method=method)
    assert result.valid.all()
    assert (result.measures()["unseen_pairs"] == 0).all()
    assert not result.status["unseen"].map(bool).any()
    fishers = result.paths[result.paths["job"] == "fisher"]
    assert len(fishers)
    ends = result.counterfactuals
    assert (ends["city"] == "south")[ends["job"] == "fisher"].all()
    if method != "nearest":  # which is a straight line, and nothing but its end is somebody
        assert (fishers["city"] == "south").all(), "not on the way, either"


@pytest.mark.whole
@pytest.mark.whole
@pytest.mark.parametrize("method", ["geodesic", "rsgd"])
def test_where_it_cannot_the_status_names_them(fishing: cp.Explainer, workers: pd.DataFrame, method: str) -> None:
    """Nobody in the north fishes; who cannot leave it, and would have to fish, is told."""
    rows = pd.concat([_refused(workers, "north", 6), _refused(workers, "south", 6)])
    result = fishing.explain(rows, 1, method=method, lock=["city"], ranges={"hours": (None, 45)}, plans=2)
    first = result.plan(1)
    assert first.valid.all()
    assert (first.counterfactuals["job"] == "fisher").all()
    north = first.counterfactuals["city"] == "north"
    assert first.status["unseen"][north].map(lambda pairs: "city × job" in pairs).all()
    assert (first.measures()["unseen_pairs"][north] == first.status["unseen"][north].map(len)).all()
    assert (
        first.status["reason"][north]
        .str.contains("Nobody in the training rows has these values together: city and job", regex=False)
        .all()
    )
    assert not first.status["unseen"][~north].map(bool).any()
    assert not first.status["reason"][~north].str.contains("Nobody").any()


@pytest.mark.whole
@pytest.mark.whole
def test_what_a_user_forbids_is_never_advised(workers: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fishes in the south works less than 40 hours: it is found where it can be, and nothing is found else."""
    shorten_surrogate(monkeypatch, 150, rows=40)
    schema = _schema(forbidden=({"job": "fisher", "city": "south", "hours": [40, None]},))
    label = (_paid("fisher")(workers) > 0.5).to_numpy()
    explainer = small(epochs=20).fit(workers, label, schema=schema, model=_paid("fisher"))
    rows = _refused(workers, "south")
    for method in ("geodesic", "rsgd"):
        result = explainer.explain(rows, 1, method=method, lock=["city"])
        assert result.valid.any()
        for table in (result.counterfactuals, result.paths):
            assert not ((table["job"] == "fisher") & (table["hours"] >= 40)).any()
    vain = explainer.explain(rows, 1, lock=["city"], confidence=0.97)
    assert not vain.valid.any(), "with less than 40 hours nobody is paid as surely"

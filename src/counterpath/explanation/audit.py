"""Is the way equally long for everyone? The burden of groups side by side, with what was tested and how.

The burden of a person whom the model rejects is what their counterfactual asks: whether there is one, how much and how
many features change, how far from the data it is, how well it lasts, how long the path is. Groups are given, or found
by a shallow tree where burden differs most. For every group and measure there is the difference of means with

- a bootstrap interval (percentiles of resampled differences, group by group);
- a permutation test of Welch's t: the labels of the groups are exchanged, so that it is exact where burden does not
  depend on the group, and right for large groups where only the means are equal (Janssen, 1997);
- a correction for how many comparisons were made: Holm (1979) for any false alarm, Benjamini and Hochberg (1995) for
  the share of false ones among alarms;
- a matched comparison: pairs of one from the group and one from the others who are alike in all other features, with a
  test that exchanges the two of a pair.

Of more than 20,000 people the normal approximation of the same test is taken, which is then the same to three digits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Feature, Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.data.times import DATE
from counterpath.explanation import wording
from counterpath.explanation.matching import match_pairs, numbers_of
from counterpath.explanation.summary import keys_of
from counterpath.explanation.wording import Meaning
from counterpath.utils.errors import InputError
from counterpath.utils.files import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from counterpath.explanation.result import Explanation

Array: TypeAlias = NDArray[np.float64]
GroupBy: TypeAlias = str | Sequence[str] | pd.Series

LEVEL = 0.05
"""At which differences are said to be shown: the share of false alarms that an audit may have where there is nothing.
Intervals are at 95 % for the same reason."""
PERMUTATIONS = 1999
"""Of labels: p is a multiple of 1/2000 then, which is small enough after a correction for a hundred comparisons."""
RESAMPLES = 1000
"""Of the bootstrap: the ends of an interval are known to a fifteenth of its width."""
EXACT = 20_000
"""People up to whom labels are really exchanged; the normal approximation is as good for more of them."""
FEWEST = 20
"""People whom a group must have to be compared: the mean of fewer says little, and a test shows next to nothing."""
_CELLS = 4_000_000  # numbers that are drawn at once: 32 megabytes
_DETECTABLE = 2.8  # standard errors: a difference that is shown at 5 % in 80 % of such audits (1.96 + 0.84)
_DEPTH = 3  # of the tree: subgroups of up to three conditions, which can still be said in a sentence
_LEAF = 0.05  # the least share of the people that a found subgroup has
_EFFORTS = 19  # between the 5 % and the 95 % quantile of costs: a curve that looks smooth
_GAP_FEATURES = 6  # of those by which costs differ most: more are not read

MEASURES: dict[str, Meaning] = {
    "found": Meaning("found", "share for whom there is a counterfactual", wording.percent),
    "within": Meaning(
        "within the median effort",
        "share with one that costs no more than the median of all that were found",
        wording.percent,
    ),
    "l1": Meaning("cost", "all changes added up (L1); 1 is the whole range of a feature, or another category"),
    "l0": Meaning("features changed", "how many features are different"),
    "ld": Meaning("distance to data", "of the counterfactual to the nearest training row: smaller is more plausible"),
    "valid_noise": Meaning("valid if missed", "share of small deviations that stay valid: robustness", wording.percent),
    "valid_after": Meaning("valid after", "share of retrained models that accept it: robustness", wording.percent),
    "length": Meaning("length of the path", "all steps of the path added up"),
    "steps": Meaning("steps", "points on the way there"),
}
"""What groups are compared by, in this order, where it is known."""
BETTER_HIGH = ("found", "within", "valid_noise", "valid_after")
"""Of which more is better; of the others less is."""
ALWAYS = ("found", "within")
"""What everybody who was searched for has; all others only those who were found."""


def burdens(result: "Explanation") -> pd.DataFrame:
    """The burden of everybody who was searched for, by the label of their row; of several plans the first counts.

    Returns:
        `found`, and over those who were found the measures of `MEASURES` that are known.
    """
    plain = result.pandas
    plain = plain.plan(1) if plain.plans > 1 else plain
    measures, status = plain.measures(), plain.status["status"]
    if len(plain.paths):
        ends = plain.paths.groupby("row")["length"].max().reindex(range(len(plain)))
        measures = measures.assign(length=ends.to_numpy())
    return burdens_of(status.to_numpy(), measures)


def burdens_of(status: NDArray[Any], measures: pd.DataFrame, *, unknown: bool = False) -> pd.DataFrame:
    """The same from statuses and measures, one a row; rows that were not searched for have missing values only.

    Args:
        status: What became of every row.
        measures: Its measures.
        unknown: Keep measures that nobody has, too.
    """
    found = np.isin(status.astype(str), FOUND)
    searched = np.isin(status.astype(str), [str(code) for code in StatusCode if code.searched])
    names = [name for name in MEASURES if name not in ALWAYS and name in measures]
    if "length" in names and "steps" in names:
        names.remove("steps")
    table = measures[names].astype(float)
    table = table.where(np.repeat(found[:, None], len(names), axis=1))
    first = pd.Series(np.where(searched, found.astype(float), np.nan), index=measures.index)
    known = [name for name in names if unknown or table[name].notna().any()]
    return pd.concat([first.rename("found"), table[known]], axis=1)


@dataclass(frozen=True)
class Moments:
    """Of groups and measures how many, their mean, and their variance: all that a test of large groups needs.

    Attributes:
        count: By group and measure.
        mean: The same.
        variance: The same, unbiased.
    """

    count: pd.DataFrame
    mean: pd.DataFrame
    variance: pd.DataFrame

    @classmethod
    def of(cls, sums: pd.DataFrame, squares: pd.DataFrame, count: pd.DataFrame) -> "Moments":
        """From sums that were added up."""
        mean = sums / count
        variance = ((squares - count * mean**2) / (count - 1)).clip(lower=0)
        return cls(count, mean, variance)

    def others(self, group: Any) -> tuple[pd.Series, pd.Series, pd.Series]:
        """Those of all other groups together."""
        rest = self.count.index != group
        count = self.count[rest].sum()
        sums = (self.mean * self.count)[rest].sum()
        squares = (self.variance * (self.count - 1) + self.count * self.mean**2)[rest].sum()
        mean = sums / count
        return count, mean, ((squares - count * mean**2) / (count - 1)).clip(lower=0)


def welch(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Difference of means, its standard error, and t, from how many there are, their means and variances."""
    count, mean, variance = (np.asarray(each, dtype=float) for each in first)
    others, other_mean, other_variance = (np.asarray(each, dtype=float) for each in second)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = mean - other_mean
        error = np.sqrt(variance / count + other_variance / others)
        t = np.where(error > 0, difference / error, np.where(difference == 0, 0.0, np.inf * np.sign(difference)))
    return difference, error, t


def permutation_test(values: Array, member: NDArray[np.bool_], count: int, rng: np.random.Generator) -> Array:
    """p of every column: how often exchanged labels give a Welch's t as large as these do.

    p = (1 + #{|t*| ≥ |t|}) / (1 + count), which is never too small.

    Args:
        values: One row a person; what is missing counts in neither group.
        member: Who is in the group.
        count: How many times labels are exchanged.
        rng: Draws them.
    """
    there = ~np.isnan(values)
    plain = np.where(there, values, 0.0)
    columns = np.concatenate([there.astype(float), plain, plain**2], axis=1)
    total = columns.sum(0)
    observed = np.abs(_t_of(columns[member].sum(0), total))
    as_large = np.zeros(values.shape[1])
    people, inside = len(values), int(member.sum())
    for start in range(0, count, max(1, _CELLS // people)):
        some = min(count - start, max(1, _CELLS // people))
        chosen = np.argpartition(rng.random((some, people)), inside - 1, axis=1)[:, :inside]
        labels = np.zeros((some, people))
        np.put_along_axis(labels, chosen, 1.0, axis=1)
        drawn = np.abs(_t_of(labels @ columns, total))
        as_large += (drawn >= observed - 1e-9).sum(
            0
        )  # sums of the same numbers in another order differ in the last digit
    return (1 + as_large) / (1 + count)


def _t_of(sums: Array, total: Array) -> Array:
    """Welch's t of a group and the others, from counts, sums and sums of squares, one after another."""
    parts = []
    for each in (sums, total - sums):
        count, plain, squares = np.split(each, 3, axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = plain / count
            parts.append((count, mean, np.clip(squares - count * mean**2, 0, None) / (count - 1)))
    t = welch(parts[0], parts[1])[2]
    known: Array = np.nan_to_num(t, nan=0.0)
    return known


def bootstrap_interval(
    values: Array, member: NDArray[np.bool_], count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Ends of the 95 % interval of every column's difference of means: percentiles over resampled groups."""
    drawn = resampled_means(values[member], count, rng) - resampled_means(values[~member], count, rng)
    low, high = np.nanquantile(drawn, [LEVEL / 2, 1 - LEVEL / 2], axis=0)
    return low, high


def resampled_means(values: Array, count: int, rng: np.random.Generator) -> Array:
    """Means of every column over rows that are drawn with replacement, `count` times."""
    there = ~np.isnan(values)
    columns = np.concatenate([np.where(there, values, 0.0), there.astype(float)], axis=1)
    people, parts = len(values), []
    for start in range(0, count, max(1, _CELLS // people)):
        some = min(count - start, max(1, _CELLS // people))
        weight = rng.multinomial(people, np.full(people, 1 / people), size=some).astype(float)
        plain, known = np.split(weight @ columns, 2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts.append(plain / known)
    return np.concatenate(parts)


def sign_test(pairs: Array, count: int, rng: np.random.Generator) -> float:
    """p of the mean of differences of pairs: how often exchanging the two of a pair gives one as large."""
    signs = rng.integers(0, 2, (count, len(pairs))) * 2.0 - 1.0
    return float((1 + (np.abs(signs @ pairs) >= abs(pairs.sum()) - 1e-9).sum()) / (1 + count))


def holm(p: Array) -> Array:
    """p, corrected so that any false alarm among all has at most the level's probability (Holm, 1979)."""
    return _step(p, lambda rank, count: count - rank, np.maximum.accumulate)


def benjamini_hochberg(p: Array) -> Array:
    """p, corrected so that the share of false alarms among alarms is at most the level (1995)."""
    order = np.argsort(p, kind="stable")
    count = len(p)
    scaled = p[order] * count / np.arange(1, count + 1)
    adjusted = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1)
    out = np.empty_like(p)
    out[order] = adjusted
    return out


def _step(p: Array, factor: Any, accumulate: Any) -> Array:
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.array([factor(rank, len(p)) for rank in range(len(p))])
    out = np.empty_like(p)
    out[order] = accumulate(scaled).clip(max=1)
    return out


def _normal_p(t: Array) -> Array:
    """Two-sided p of t by the normal approximation."""
    return np.array([math.erfc(abs(float(each)) / math.sqrt(2)) for each in np.atleast_1d(t)])


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Audit:
    """The burden of groups side by side.

    Attributes:
        groups: For each column and group how many people there are (`n`), how many of them were `searched` for, and the
            mean of every measure over them.
        differences: One row for each comparison and measure: `by`, `group`, `against` whom; how many of either have the
            measure; their means; `difference` with its 95 % interval, `low` and `high`; `p`; `p_holm` and `p_bh`,
            corrected over all rows of this table; and over `pairs` alike in all other features `matched`, the
            difference, with `matched_low`, `matched_high` and `matched_p`.
        effort: By group which share has a counterfactual for at most each `effort`.
        closing: For each comparison what would close the gap: the `effort` at which as many of the group get there as
            of the others at the median effort, and how the difference of costs is made up of features, where known.
        found: Groups that a tree found, with their conditions, and the differences as above, on people whom the tree
            has not seen.
        schema: What the features are.
        request: What was asked for; empty where that is not known.
        settings: How many permutations and resamples, the seed, and of how many people samples were taken.
        provenance: When and with which versions it was made.
    """

    groups: pd.DataFrame
    differences: pd.DataFrame
    effort: pd.DataFrame
    closing: pd.DataFrame
    found: pd.DataFrame
    schema: Schema
    request: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> pd.DataFrame:
        """The differences that are shown at the 5 % level after Holm's correction."""
        return self.differences[self.differences["p_holm"] < LEVEL]

    @cached_property
    def sentences(self) -> list[str]:
        """For every comparison what was shown and what was not, in words that claim no more."""
        texts = []
        for _, lines in self.differences.groupby(["by", "group"], sort=False):
            texts += _shown(lines, len(self.differences)) + _quiet(lines, list(MEASURES))
        return texts

    @cached_property
    def findings(self) -> list[str]:
        """First all that was shown; then where nothing was, of who is found, who within the median effort, and cost."""
        shown, quiet = [], []
        for _, lines in self.differences.groupby(["by", "group"], sort=False):
            shown += _shown(lines, len(self.differences))
            quiet += _quiet(lines, [*ALWAYS, "l1"])
        return shown + quiet

    @property
    def headline(self) -> str:
        """In one sentence what was compared, and how many differences were shown."""
        comparisons = self.differences[["by", "group"]].drop_duplicates()
        count, shown = len(self.differences), len(self.shown)
        measures = wording.counted(len(_names(self.differences)), "measure")
        if not count:
            return f"No two groups have {FEWEST} people each for whom something was searched; nothing was compared."
        return (
            f"{wording.counted(len(comparisons), 'comparison')} by {measures}: "
            f"{shown} of {wording.counted(count, 'difference')} shown at the 5 % level after Holm's correction, "
            f"{int((self.differences['p_bh'] < LEVEL).sum())} after Benjamini and Hochberg's."
        )

    def __repr__(self) -> str:
        return "\n".join([self.headline, *self.sentences])

    def to_json(self, path: str | Path) -> Path:
        """Write all tables as JSON."""
        tables = ("groups", "differences", "effort", "closing", "found")
        plain = {name: _records(getattr(self, name)) for name in tables}
        rest = {"headline": self.headline, "sentences": self.sentences, "settings": dict(self.settings)}
        write_json(Path(path), plain | rest | {"provenance": dict(self.provenance), "request": dict(self.request)})
        return Path(path)

    def to_html(
        self, path: str | Path, title: str = "Is the way equally long for everyone?", shared: Any = None
    ) -> Path:
        """Write one self-contained file for the screen and for paper.

        Args:
            path: The file.
            title: The heading of the page.
            shared: Plans that many people share, of the same people, to be shown as well.
        """
        from counterpath.explanation.report.audit import write

        return write(Path(path), title, audit=self, shared=shared)

    def plot_effort(self, path: str | Path | None = None) -> "Figure":
        """Draw which share of each group has a counterfactual for at most how much effort.

        Args:
            path: Where to save it as well, as PNG and SVG.
        """
        from counterpath.explanation.plots.groups import draw_effort

        return draw_effort(self.effort, path)


def _names(differences: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(differences["measure"]))


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    values = table.astype(object).where(table.notna(), None)
    return [{str(name): _plain(value) for name, value in line.items()} for line in values.to_dict("records")]


def _plain(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def audit(
    features: pd.DataFrame,
    burden: pd.DataFrame,
    by: Sequence[GroupBy],
    schema: Schema,
    *,
    find: Sequence[str] = (),
    amounts: pd.DataFrame | None = None,
    totals: Mapping[str, Moments] | None = None,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    **about: Any,
) -> Audit:
    """Compare the burden of groups.

    Args:
        features: The people as they are, one row each.
        burden: Their burden, as of `burdens`, in the same order; missing values where nothing was searched for.
        by: What to group by: a column, or several that are crossed; each member is compared by itself.
        schema: What the features are.
        find: Features in which a tree looks for groups whose burden differs most; none for no tree.
        amounts: By feature what its change costs everybody, if known.
        totals: By the name of a grouping the moments over all people, where `features` is a sample of them.
        permutations: How often labels are exchanged.
        resamples: How often groups are resampled.
        seed: Of all randomness.
        **about: Further fields of `Audit`.
    """
    rng = np.random.default_rng(seed)
    searched = burden["found"].notna().to_numpy()
    count = len(burden)
    table = _with_effort(burden[searched].reset_index(drop=True))
    rows = features[searched].reset_index(drop=True)
    changes = None if amounts is None else amounts[searched].reset_index(drop=True)
    options: dict[str, Any] = {"permutations": permutations, "resamples": resamples, "rng": rng}
    groups, differences, closing, effort = [], [], [], []
    for each in by:
        keys = keys_of(features, each)
        titles = {feature.name: feature.title for feature in schema}
        name = " × ".join(titles.get(str(key.name), str(key.name)) for key in keys)
        labels = group_labels(keys, schema)
        groups.append(_group_table(name, labels, searched, table))
        inside = labels[searched].reset_index(drop=True)
        effort.append(_effort(name, inside, table))
        used = [str(key.name) for key in keys]
        others = rows.drop(columns=[column for column in used if column in rows])
        moments = None if totals is None else totals.get(name)
        for group, against, member in _comparisons(inside):
            lines = _compare(table, member, others, schema, moments, group, **options)
            differences.append(lines.assign(by=name, group=group, against=against))
            closing.append(_closing(name, group, against, table, member, changes, schema))
    every = _corrected(_joined(differences, _COLUMNS))
    found = _find(rows, table, schema, find, options) if find else every.iloc[:0]
    settings = {
        "people": count,
        "searched": int(searched.sum()),
        "permutations": permutations,
        "resamples": resamples,
        "level": LEVEL,
        "seed": seed,
    }
    return Audit(
        groups=_joined(groups, ["by", "group", "n", "searched", *table.columns]),
        differences=every,
        effort=_joined(effort, ["by", "group", "effort", "share"]),
        closing=_joined(closing, ["by", "group", "against", "what", "group value", "others", "difference"]),
        found=found,
        schema=schema,
        settings=settings | dict(about.pop("settings", {})),
        **about,
    )


_COLUMNS = [
    *("by", "group", "against", "measure", "n", "n_against", "mean", "mean_against", "difference", "low", "high"),
    *("detectable", "p", "p_holm", "p_bh", "pairs", "matched", "matched_low", "matched_high", "matched_p"),
]


def _joined(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    there = [table for table in tables if len(table)]
    return (
        pd.concat(there, ignore_index=True).reindex(columns=list(columns))
        if there
        else pd.DataFrame(columns=list(columns))
    )


def _with_effort(table: pd.DataFrame) -> pd.DataFrame:
    """The burdens with whether there is a counterfactual for at most the median effort of all."""
    if "l1" not in table:
        return table
    table = table.dropna(axis=1, how="all")
    if "l1" not in table:
        return table
    middle = table["l1"].median()
    within = (table["l1"] <= middle).astype(float)
    ordered = table.assign(within=within)
    return ordered[[name for name in MEASURES if name in ordered]]


def group_labels(keys: Sequence[pd.Series], schema: Schema) -> pd.Series:
    """What each person's group is called."""
    known = {feature.name: feature for feature in schema}
    texts = []
    for key in keys:
        feature = known.get(str(key.name))
        codes, values = pd.factorize(key.astype(object), use_na_sentinel=False)
        words = [wording.value(value) if feature is None else wording.shown(feature, value) for value in values]
        texts.append(np.array(words, dtype=object)[codes])
    return pd.Series([", ".join(parts) for parts in zip(*texts, strict=True)], dtype=object)


def _group_table(name: str, labels: pd.Series, searched: NDArray[np.bool_], table: pd.DataFrame) -> pd.DataFrame:
    counts = pd.DataFrame({"n": labels.value_counts(sort=False)})
    inside = labels[searched].reset_index(drop=True)
    counts["searched"] = inside.value_counts(sort=False).reindex(counts.index).fillna(0).astype(int)
    means = table.groupby(inside).mean().reindex(counts.index)
    whole = pd.concat([counts, means], axis=1).sort_values("n", ascending=False, kind="stable")
    return whole.rename_axis("group").reset_index().assign(by=name)


def _comparisons(labels: pd.Series) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Each group beside all others, if both have enough people; of two groups the smaller beside the larger."""
    counts = labels.value_counts()
    if len(counts) < 2:
        return []
    if len(counts) == 2:
        large, small = counts.index.tolist()
        pairs = [(small, large)]
    else:
        pairs = [(group, "everybody else") for group in counts.index]
    plain = labels.to_numpy()
    return [
        (str(group), str(against), plain == group)
        for group, against in pairs
        if FEWEST <= counts[group] <= len(labels) - FEWEST
    ]


def _compare(
    table: pd.DataFrame,
    member: NDArray[np.bool_],
    others: pd.DataFrame,
    schema: Schema,
    moments: Moments | None,
    group: str,
    *,
    permutations: int,
    resamples: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """The differences of all measures between a group and others."""
    values = table.to_numpy(float)
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    first, second = (_moments(values[rows]) for rows in (member, ~member))
    if moments is not None:
        names = list(table.columns)
        first = tuple(
            np.asarray(each.loc[group, names], float) for each in (moments.count, moments.mean, moments.variance)
        )
        second = tuple(np.asarray(each[names], float) for each in moments.others(group))
    difference, error, t = welch(first, second)
    if moments is None and len(values) <= EXACT:
        p = permutation_test(values, member, permutations, rng)
        low, high = bootstrap_interval(values, member, resamples, rng)
    else:
        p = _normal_p(t)
        low, high = difference - 1.96 * error, difference + 1.96 * error
    p = np.where(np.isnan(difference), 1.0, p)  # nobody of one of them has the measure
    lines = pd.DataFrame(
        {
            "measure": table.columns,
            "n": first[0].astype(int),
            "n_against": second[0].astype(int),
            "mean": first[1],
            "mean_against": second[1],
            "difference": difference,
            "low": low,
            "high": high,
            "detectable": _DETECTABLE * error,
            "p": p,
        }
    )
    one, other = match_pairs(numbers_of(others, schema), member, rng)
    matched = values[one] - values[other]
    return lines.assign(**_matched(matched, permutations, resamples, rng))


def _moments(values: Array) -> tuple[Array, Array, Array]:
    count = (~np.isnan(values)).sum(0).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nansum(values, 0) / count
        return count, mean, np.nansum((values - mean) ** 2, 0) / (count - 1)


def _matched(pairs: Array, permutations: int, resamples: int, rng: np.random.Generator) -> dict[str, Any]:
    """Of every measure the mean difference of pairs that both have it, its interval, and p."""
    lines = []
    for column in pairs.T:
        known = column[~np.isnan(column)]
        line: dict[str, Any] = {"pairs": len(known), "matched": np.nan, "matched_p": np.nan}
        line |= {"matched_low": np.nan, "matched_high": np.nan}
        if len(known) >= FEWEST:
            mean, error = float(known.mean()), float(known.std(ddof=1)) / math.sqrt(len(known))
            low, high = mean - 1.96 * error, mean + 1.96 * error
            if len(known) <= EXACT // 4:
                drawn = resampled_means(known[:, None], resamples, rng)[:, 0]
                low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
                p = sign_test(known, permutations, rng)
            else:
                p = float(_normal_p(np.array([mean / error if error else 0.0]))[0])
            line |= {"matched": mean, "matched_low": low, "matched_high": high, "matched_p": p}
        lines.append(line)
    return {name: [line[name] for line in lines] for name in lines[0]} if lines else {}


def _corrected(differences: pd.DataFrame) -> pd.DataFrame:
    if not len(differences):
        return differences
    p = differences["p"].to_numpy(float)
    return differences.assign(p_holm=holm(p), p_bh=benjamini_hochberg(p))


def _effort(name: str, labels: pd.Series, table: pd.DataFrame) -> pd.DataFrame:
    """Which share of each group has a counterfactual that costs at most each effort."""
    if "l1" not in table or not table["l1"].notna().any():
        return pd.DataFrame(columns=["by", "group", "effort", "share"])
    efforts = table["l1"].quantile(np.linspace(LEVEL, 1 - LEVEL, _EFFORTS)).to_numpy()
    parts = []
    for group, cost in table["l1"].groupby(labels):
        costs = np.sort(cost.dropna().to_numpy(float))
        share = np.searchsorted(costs, efforts, side="right") / len(cost)
        parts.append(pd.DataFrame({"by": name, "group": group, "effort": efforts, "share": share}))
    return pd.concat(parts, ignore_index=True)


def _closing(
    name: str,
    group: str,
    against: str,
    table: pd.DataFrame,
    member: NDArray[np.bool_],
    amounts: pd.DataFrame | None,
    schema: Schema,
) -> pd.DataFrame:
    """What would close the gap: by how much more effort, and which features make up the difference of costs."""
    lines = []
    if "l1" in table and table["l1"].notna().any():
        middle = float(table["l1"].median())
        cost = table["l1"].fillna(np.inf).to_numpy(float)
        share = float((cost[~member] <= middle).mean())
        own = np.sort(cost[member])
        needed = float(own[min(max(math.ceil(share * len(own)), 1), len(own)) - 1])
        text = f"effort within which {wording.percent(share)} get there"
        lines.append({"what": text, "group value": needed, "others": middle, "difference": needed - middle})
    if amounts is not None:
        found = table["found"].to_numpy() == 1
        inside, outside = (amounts[found & rows].mean() for rows in (member, ~member))
        apart = (inside - outside).sort_values(key=np.abs, ascending=False)
        for feature in apart.index[:_GAP_FEATURES]:
            if apart[feature] != 0:
                what = f"mean cost of {schema[str(feature)].title}"
                pair = {"group value": inside[feature], "others": outside[feature]}
                lines.append({"what": what, **pair, "difference": apart[feature]})
    return pd.DataFrame(lines).assign(by=name, group=group, against=against)


def _find(
    rows: pd.DataFrame, table: pd.DataFrame, schema: Schema, columns: Sequence[str], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Groups where burden differs most, by a shallow tree, compared on people whom it has not seen."""
    from sklearn.tree import DecisionTreeRegressor

    rng, count = options["rng"], len(rows)
    missing = [name for name in columns if name not in rows]
    if missing:
        raise InputError(f"there is no column {missing[0]!r} to look for groups in; try: {', '.join(map(str, rows))}")
    nothing = pd.DataFrame(columns=[*_COLUMNS, "conditions"])
    if "l1" not in table or count < 2 * max(2 * FEWEST, 2) or not table["l1"].notna().any():
        return nothing
    numbers, names = _tree_columns(rows[list(columns)], schema)
    burden = table["l1"].fillna(table["l1"].max()).to_numpy(float)  # who has none is worst off
    seen = np.zeros(count, dtype=bool)
    seen[rng.permutation(count)[: count // 2]] = True
    leaf = max(FEWEST, int(_LEAF * seen.sum()))
    tree = DecisionTreeRegressor(max_depth=_DEPTH, min_samples_leaf=leaf, random_state=0)
    tree.fit(numbers[seen], burden[seen])
    leaves, texts = tree.apply(numbers), _conditions(tree.tree_, names)
    held, held_rows = table[~seen].reset_index(drop=True), rows[~seen].reset_index(drop=True)
    lines = []
    for node, conditions in texts.items():
        member = leaves[~seen] == node
        if not conditions or not FEWEST <= member.sum() <= len(member) - FEWEST:
            continue
        others = held_rows.drop(columns=[name for name in columns if name in held_rows])
        each = _compare(held, member, others, schema, None, "", **options)
        text = " and ".join(conditions)
        lines.append(
            each.assign(by="found by a tree", group=text, against="everybody else", conditions=len(conditions))
        )
    every = _joined(lines, [*[name for name in _COLUMNS if name not in ("p_holm", "p_bh")], "conditions"])
    return _corrected(every) if len(every) else nothing


def _tree_columns(rows: pd.DataFrame, schema: Schema) -> tuple[Array, list[tuple[Feature, Any]]]:
    """Numbers as they are, and a column for each category; with what each column is."""
    known = {feature.name: feature for feature in schema}
    columns: list[Array] = []
    names: list[tuple[Feature, Any]] = []
    for name in rows.columns:
        feature = known[str(name)]
        if feature.categories:
            there = sorted(pd.unique(rows[name].dropna()).tolist(), key=str)
            words = [wording.shown(feature, category) for category in there]
            pair = len(there) == 2 and not rows[name].isna().any()  # who is not the one is the other
            for category, text in list(zip(there, words, strict=True))[: 1 if pair else None]:
                columns.append((rows[name] == category).to_numpy(float))
                names.append((feature, (text, words[1] if pair else None)))
        else:
            plain = numbers_of(rows[[name]], schema, scaled=False)[:, 0]
            columns.append(np.where(np.isnan(plain), np.nanmedian(plain), plain))
            names.append((feature, None))
    return np.stack(columns, axis=1), names


def _conditions(tree: Any, names: Sequence[tuple[Feature, Any]]) -> dict[int, list[str]]:
    """By leaf the conditions that lead to it, each feature as short as it can be said."""
    found: dict[int, list[str]] = {}

    def walk(node: int, path: list[tuple[int, float, bool]]) -> None:
        if tree.children_left[node] == -1:
            found[node] = _words(path, names)
            return
        column, threshold = int(tree.feature[node]), float(tree.threshold[node])
        walk(int(tree.children_left[node]), [*path, (column, threshold, False)])
        walk(int(tree.children_right[node]), [*path, (column, threshold, True)])

    walk(0, [])
    return found


def _end(feature: Feature, number: float) -> str:
    """An end of a range as people write it."""
    if feature.kind == DATE:  # days since 1970-01-01, as of `to_days`; the whole day is meant
        return str(date(1970, 1, 1) + timedelta(days=math.floor(number)))
    return wording.rounded(number, 4)


def _words(path: Sequence[tuple[int, float, bool]], names: Sequence[tuple[Feature, Any]]) -> list[str]:
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    texts: dict[tuple[str, str], str] = {}
    for column, threshold, above in path:
        feature, category = names[column]
        title = feature.title
        if category is not None:
            text, other = category
            texts[title, text] = (
                f"{title} is {text}" if above else f"{title} is not {text}" if other is None else f"{title} is {other}"
            )
        elif above:
            lows[title] = max(threshold, lows.get(title, -math.inf))
        else:
            highs[title] = min(threshold, highs.get(title, math.inf))
    sure = {title for (title, _), text in texts.items() if " is not " not in text}
    words = [text for (title, _), text in texts.items() if title not in sure or " is not " not in text]
    features = {feature.title: feature for feature, _ in names}
    for title in dict.fromkeys([*lows, *highs]):
        low, high = (_end(features[title], ends[title]) if title in ends else None for ends in (lows, highs))
        between = [f"over {low}"] * (low is not None) + [f"up to {high}"] * (high is not None)
        words.append(f"{title} is {' and '.join(between)}")
    return words


def _shown(lines: pd.DataFrame, comparisons: int) -> list[str]:
    """What was shown of one comparison."""
    by, group, against = _comparison(lines)
    shown = lines[lines["p_holm"] < LEVEL].to_dict("records")
    return [_sentence(by, group, against, line, comparisons) for line in shown]


def _quiet(lines: pd.DataFrame, measures: Sequence[str]) -> list[str]:
    """In which of some measures nothing was shown of one comparison, and what could not have been seen."""
    by, group, against = _comparison(lines)
    quiet = lines[lines["measure"].isin(list(measures)) & (lines["p_holm"] >= LEVEL) & lines["difference"].notna()]
    if not len(quiet):
        return []
    names = wording.listed([wording.inline(MEASURES[name].label) for name in quiet["measure"]])
    cost = quiet[quiet["measure"] == "l1"]
    unseen = ""
    if len(cost):
        least = wording.rounded(float(cost["detectable"].iloc[0]), 2)
        unseen = f" A difference in cost of less than about {least} would mostly have gone unseen."
    return [
        f"{by}, {group} against {against}: no difference was shown in {names}. That is not to say that there is "
        f"none.{unseen}"
    ]


def _comparison(lines: pd.DataFrame) -> tuple[str, str, str]:
    by, group, against = (str(lines[name].iloc[0]) for name in ("by", "group", "against"))
    return by, group, against


def _sentence(by: str, group: str, against: str, line: Mapping[Any, Any], comparisons: int) -> str:
    meaning = MEASURES[str(line["measure"])]
    form = meaning.form
    worse = (line["difference"] < 0) == (line["measure"] in BETTER_HIGH)
    low, high = (_signed(line[end], form) for end in ("low", "high"))
    text = (
        f"{by}, {group} against {against}: {wording.inline(meaning.label)} is {form(line['mean'])} against "
        f"{form(line['mean_against'])} ({line['n']:,} and {line['n_against']:,} people), a difference of "
        f"{_signed(line['difference'], form)} (95 % interval {low} to {high}; p {_p(line['p_holm'])} after Holm's "
        f"correction over {comparisons}); the group is {'worse' if worse else 'better'} off."
    )
    if line["pairs"] >= FEWEST:
        ends = " to ".join(_signed(line[end], form) for end in ("matched_low", "matched_high"))
        shown = "" if line["matched_p"] < LEVEL else ": the test does not tell it apart from none"
        text += (
            f" Among {line['pairs']:,} pairs much alike in all other features it is {_signed(line['matched'], form)} "
            f"({ends}; p {_p(line['matched_p'])}{shown})."
        )
    else:
        text += " There are too few pairs much alike in all other features to say what remains of it among them."
    return text


def _signed(value: float, form: Any) -> str:
    """A difference with its sign; of shares in points."""
    if form is wording.percent:
        return f"{'+' if value > 0 else '−' if value < 0 else ''}{abs(100 * value):.1f} points"
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{wording.rounded(abs(float(value)))}"


def _p(value: float) -> str:
    return "under 0.001" if value < 0.001 else f"= {value:.3f}"


def with_request(given: Audit, request: Mapping[str, Any], provenance: Mapping[str, Any]) -> Audit:
    """The same with how it was made."""
    return replace(given, request=dict(request), provenance=dict(provenance))

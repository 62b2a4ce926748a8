"""What is promised of the default method in our own suite, and whether it is kept: computed from cells, seed by seed.

In every cell (data set, model and seed) the default breaks nothing (types, what is immutable, rules); it is valid for
99 % of the rows for which any method has a feasible, plausible answer; and no other method of which that is true, too,
is better in L1, LD² and LOF at once. Who is better in two of them is named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT = "geodesic"
"""The method that users get."""
RIVALS = ("l1", "ld_sq", "lof")
"""No other method without violations should be better in all of them."""
ENOUGH = 0.99
"""Of the rows that any method solves, that the default must solve."""
_BROKEN = ("type_violations", "mutability_violations", "violation")

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One data set, model and seed.

    Attributes:
        seed: The seed.
        people: How many rows there are.
        violations: Of the default, a row: the most of types, what is immutable, and rules.
        valid: Its validity on rows for which any method has a feasible, plausible answer.
        means: Its L1, LD² and LOF.
        better: By method, of those that break nothing and are as often valid, in what it is better, if that is L1 or
            two of them.
        methods: How many methods there are to compare with.
        farther: By method of `better`, its L1 over that of the default.
        unanswered: People for whom the default has no valid answer.
        far: People for whom it has one that is not plausible, though another method's is.
    """

    seed: int
    people: int
    violations: float
    valid: float
    means: Mapping[str, float]
    better: Mapping[str, tuple[str, ...]]
    methods: int
    farther: Mapping[str, float]
    unanswered: int
    far: int

    @property
    def kept(self) -> bool:
        """Whether all is as promised."""
        return self.violations == 0 and self.valid >= ENOUGH and not self.beaten(len(RIVALS))

    def beaten(self, count: int) -> list[str]:
        """Who is better in so many."""
        return [method for method, names in self.better.items() if len(names) == count]


def verdict(cells: Sequence[Cell]) -> Verdict | None:
    """That on the cells of one data set, model and seed, by method; None where the default has none."""
    done = {cell["method"]: cell for cell in cells if cell["status"] == "done" and "means" in cell}
    own = done.get(DEFAULT)
    if own is None:
        return None
    # Our own model is another one on another device, and may reject other people: these are no cell of ours.
    done = {name: cell for name, cell in done.items() if cell.get("who") == own.get("who")}
    whole = [cell for cell in done.values() if _violations(cell) == 0]
    rows = {cell["method"]: cell["rows"] for cell in done.values() if "rows" in cell}
    solvable = [any(each[row] == "2" for each in rows.values()) for row in range(len(own.get("rows", "")))]
    most = max((cell["valid"] for cell in whole), default=1.0)

    def valid(cell: Cell) -> float:
        if len(rows) < len(done):  # nobody has noted who was solved: the best share of all stands for that
            return float(cell["valid"] / most) if most else 1.0
        answered = [row != "0" for row, counts in zip(cell["rows"], solvable, strict=True) if counts]
        return sum(answered) / len(answered) if answered else 1.0

    means = {name: float(own["means"][name]) for name in RIVALS if own["means"].get(name) is not None}
    better, farther = {}, {}
    for cell in whole:
        said = cell["means"]
        names = tuple(name for name in means if said.get(name) is not None and said[name] < means[name])
        if cell is not own and (len(names) > 1 or "l1" in names) and valid(cell) >= ENOUGH:
            better[str(cell["method"])] = names
            farther[str(cell["method"])] = float(said["l1"]) / means["l1"] if means.get("l1") else math.nan
    noted = own.get("rows", "")
    far = sum(each == "1" and counts for each, counts in zip(noted, solvable, strict=True))
    return Verdict(
        own["seed"], own["n"], _violations(own), valid(own), means, better, len(done) - 1, farther,
        noted.count("0"), far,
    )  # fmt: skip


def _violations(cell: Cell) -> float:
    return max((cell["means"].get(name) or 0.0 for name in _BROKEN), default=0.0)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the standard deviation over seeds; 0 for one."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))


def spread_text(mean: float, off: float) -> str:
    """A standard deviation behind its mean; nothing where the mean, as it is written, would not show it."""
    if not mean or not off:
        return ""
    seen = 10.0 ** (math.floor(math.log10(abs(mean))) - 2)  # the third digit
    return f" ± {off:.1g}" if off >= seen / 2 else ""


COLUMNS = (
    "cell", "kept", "seeds", "people", "others", "violations", "valid", "L1", "LD²", "LOF", "better in all three",
    "better in two",
)  # fmt: skip


def row(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """What `COLUMNS` say of one data set and model: the worst seed, or mean ± spread; and who is better in how many."""
    spread = [mean_and_spread([each.means[name] for each in verdicts if name in each.means]) for name in RIVALS]
    kept = sum(each.kept for each in verdicts)
    return [
        title,
        f"{kept} of {len(verdicts)}",
        ", ".join(str(each.seed) for each in verdicts),
        _range([each.people for each in verdicts]),
        _range([each.methods for each in verdicts]),
        f"{max(each.violations for each in verdicts):.3g}",
        f"{min(each.valid for each in verdicts):.3f}",
        *(f"{mean:.3g}{spread_text(mean, off)}" for mean, off in spread),
        _who(verdicts, len(RIVALS)) or "none",
        _who(verdicts, 2) or "none",
    ]


def sentences(verdicts: Sequence[Verdict]) -> list[str]:
    """Who is better in all three, in two, and in L1 alone; and for how many people the default has nothing better."""
    three, two, one = (_who(verdicts, count) or "none" for count in (len(RIVALS), 2, 1))
    lines = [
        "Better than the default and as often valid: "
        f"in L1, LD² and LOF {three}; in two of them {two}; closer alone: {one}."
    ]
    seeds = ", ".join(str(each.seed) for each in verdicts)
    if any(each.unanswered for each in verdicts):
        lines.append(
            f"No valid answer of the default: {_counts([v.unanswered for v in verdicts])} people (seeds {seeds})."
        )
    if any(each.far for each in verdicts):
        lines.append(
            "A valid answer of the default that is not plausible, though another method's is: "
            f"{_counts([v.far for v in verdicts])} people (seeds {seeds})."
        )
    return lines


def _counts(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _who(verdicts: Sequence[Verdict], count: int) -> str:
    """Who is better in so many, by what, at how many times the default's L1, and in how many seeds if not in all."""
    found: dict[tuple[str, ...], dict[str, int]] = {}
    farther: dict[tuple[str, ...], list[float]] = {}
    for each in verdicts:
        for method in each.beaten(count):
            some = found.setdefault(each.better[method], {})
            some[method] = some.get(method, 0) + 1
            farther.setdefault(each.better[method], []).append(each.farther[method])
    label = dict(zip(RIVALS, ("L1", "LD²", "LOF"), strict=True))
    parts = []
    for names, methods in found.items():
        who = ", ".join(m if n == len(verdicts) else f"{m} ({n} of {len(verdicts)})" for m, n in methods.items())
        low, high = f"{min(farther[names]):.3g}", f"{max(farther[names]):.3g}"
        by = f"{' and '.join(label[name] for name in names)}, at {low if low == high else f'{low}–{high}'} × its L1"
        parts.append(who if count == len(RIVALS) else f"{by}: {who}")
    return "; ".join(parts)

"""What is told about one person: one row, or several plans side by side."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from counterpath.explanation.status import Status
from counterpath.explanation.wording import Row, listed


@dataclass(frozen=True)
class Person:
    """All rows of one person, in the order of their plans."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        """The first plan, which says what became of the person if there is none."""
        return self.rows[0]

    @property
    def several(self) -> bool:
        """Whether several plans were asked for."""
        return self.first.plans > 1

    @property
    def found(self) -> tuple[Row, ...]:
        """The plans that there are."""
        return tuple(row for row in self.rows if row.status.found)

    @property
    def told(self) -> tuple[Row, ...]:
        """The rows that have something to tell: not that there is no further plan, and no sad news twice."""
        old = (Status.NO_OTHER_PLAN, self.first.status)
        return (self.first, *(row for row in self.rows[1:] if row.status.found or row.status not in old))

    @property
    def missing(self) -> tuple[Row, ...]:
        """The plans that do not exist, if others do: who has none at all, or needs none, misses no further one."""
        return tuple(row for row in self.rows[1:] if row.status is Status.NO_OTHER_PLAN) if self.found else ()

    @property
    def result(self) -> str:
        """What became of the person, in two or three words."""
        across = sum(row.status is Status.CROSSES_GAP for row in self.rows)
        if not self.several or not self.found:
            return "found, across a gap" if across else self.first.status.replace("_", " ")
        missing = len(self.rows) - len(self.found)
        count = f"{len(self.found)} of {len(self.rows)}" if missing else f"{len(self.found)}"
        gaps = f", {across} of them across a gap" if across else ""
        return f"{count} plan{'' if len(self.rows) == 1 else 's'} found{gaps}"

    @property
    def lines(self) -> list[str]:
        """One line a plan for a terminal, the label only on the first; below it the plan's steps, if they are told."""
        texts = [text for row in self.told for text in (self._head(row), *_steps(row))]
        if self.missing:
            texts.append(f"{which(self.missing).lower()}: {self.missing[0].brief}")
        label = self.first.label + (", " if self.first.is_plan else ": ")
        return [(" " * len(label) if place else label) + text for place, text in enumerate(texts)]

    def _head(self, row: Row) -> str:
        return f"{row.number.lower()}: {row.brief}" if row.is_plan else row.brief


def _steps(row: Row) -> list[str]:
    return [f"{number:>3}. {step.line}" for number, step in enumerate(row.steps, start=1)]


def gather(rows: Iterable[Row], people: Iterable[int]) -> list[Person]:
    """Rows by person, given the number of each row's person, in rising order."""
    paired = groupby(zip(people, rows, strict=True), key=lambda pair: pair[0])
    return [Person(tuple(row for _, row in pairs)) for _, pairs in paired]


def which(rows: tuple[Row, ...]) -> str:
    """The numbers of plans as the beginning of a sentence: "Plan 2 of 3", "Plans 2 and 3 of 3"."""
    numbers = listed([str(row.plan) for row in rows])
    return f"Plan{'' if len(rows) == 1 else 's'} {numbers} of {rows[0].plans}"

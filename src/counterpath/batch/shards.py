"""What a worker says about a shard when it is done with it, in a form that fits into a line of JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """A shard that is done: its files are written, synced, and have their final names.

    Attributes:
        shard: Its name.
        source: The file that its rows are from.
        first: Its first row there, from 0.
        rows: How many rows it has.
        input: The SHA-256 of that file.
        files: The size in bytes of each file that was written, by its place in the folder of results.
        status: How many rows have each status.
        binding: How many rows each constraint stands in the way of.
        measures: Of each measure over the rows that were found: how many numbers, their sum, their sum of squares.
        seconds: How long it took.
    """

    shard: str
    source: str
    first: int
    rows: int
    input: str
    files: Mapping[str, int]
    status: Mapping[str, int]
    binding: Mapping[str, int]
    measures: Mapping[str, tuple[int, float, float]]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A shard that could not be done, or a whole file.

    Attributes:
        shard: Its name, or that of the file's place.
        source: The file that its rows are from.
        first: Its first row there, from 0.
        rows: How many rows it has, as far as is known.
        problem: What went wrong, in a sentence.
        details: The same for those who look for a mistake in the program.
        fatal: Whether no other shard can be done, either.
        damaged: Whether it is the rows that cannot be read, which says nothing about other shards.
    """

    shard: str
    source: str
    first: int
    rows: int
    problem: str
    details: str = ""
    fatal: bool = False
    damaged: bool = False


Told = Receipt | Failure


@dataclass(frozen=True)
class Totals:
    """What all receipts say together.

    Attributes:
        rows: How many rows are done.
        status: How many of them have each status.
        binding: How many each constraint stands in the way of.
        measures: Of each measure how many numbers, their sum, and their sum of squares.
        seconds: How long all shards took, one after the other.
    """

    rows: int = 0
    status: Mapping[str, int] = field(default_factory=dict)
    binding: Mapping[str, int] = field(default_factory=dict)
    measures: Mapping[str, tuple[int, float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def plus(self, receipt: Receipt) -> "Totals":
        """The same with one more shard."""
        measures = {
            name: (here[0] + more[0], here[1] + more[1], here[2] + more[2])
            for name, more in receipt.measures.items()
            for here in [self.measures.get(name, (0, 0.0, 0.0))]
        }
        return Totals(
            self.rows + receipt.rows,
            _added(self.status, receipt.status),
            _added(self.binding, receipt.binding),
            {**self.measures, **measures},
            self.seconds + receipt.seconds,
        )


def to_json(told: Told) -> dict[str, Any]:
    """A value that `json.dumps` takes, and `from_json` turns back."""
    return asdict(told)


def from_json(value: Mapping[str, Any]) -> Told:
    """What `to_json` was given."""
    if "problem" in value:
        return Failure(**value)
    measures = {name: (int(n), float(total), float(squares)) for name, (n, total, squares) in value["measures"].items()}
    return Receipt(**dict(value) | {"measures": measures})


def _added(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({*first, *second})}

"""The people to pick from: looked up by any of their values, at random, or the next whom the model rejects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pandas as pd

from counterpath.answering import OTHER
from counterpath.errors import InputError
from counterpath.explainer import Explainer
from counterpath.explanation import wording
from counterpath.preparing import prepared

MOST_MATCHES = 6
_SHOWN = 5


@dataclass(frozen=True)
class People:
    """Rows in original units, with what the model decides for each.

    Attributes:
        frame: The features of the rows, and their labels as its index.
        decided: The class that the model predicts for each; None for a row with a category it does not know.
        texts: All values of each row as one text in lower case, to be searched.
    """

    frame: pd.DataFrame
    decided: tuple[Any, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, explainer: Explainer, table: Any) -> "People":
        """The rows of a table that is like the training table, with or without its label.

        Raises:
            InputError: The table is empty, or its columns or values cannot be used.
        """
        frame, _ = prepared(table, explainer.schema_, explainer.target_, explainer.imputer_)
        frame = explainer.encoder_.arranged(frame)
        if not len(frame):
            raise InputError("there is nobody to pick: the table has no rows; give one with at least one row")
        known = explainer.encoder_.known(frame).to_numpy()
        decided = iter(explainer.predict(frame[known]).tolist())
        columns = {name: frame[name].map(wording.value).tolist() for name in frame}
        named = [[f"{name}={text}" for text in column] for name, column in columns.items()]
        labels = [f"row={wording.value(label)}" for label in frame.index.tolist()]
        texts = ("\n".join(values).lower() for values in zip(labels, *named, strict=True))
        return cls(frame, tuple(next(decided) if one else None for one in known), tuple(texts))

    def __len__(self) -> int:
        return len(self.frame)

    def label(self, place: int) -> str:
        """What the row is called in its table."""
        return wording.value(self.frame.index[[place]].tolist()[0])

    def values(self, place: int) -> dict[str, Any]:
        """The features of one row."""
        return {str(name): self.frame[name].iloc[[place]].tolist()[0] for name in self.frame}

    def summary(self, place: int) -> str:
        """A few of the values of one row."""
        told = [f"{name} {wording.value(value)}" for name, value in self.values(place).items()]
        return " · ".join([*told[:_SHOWN], *(["…"] if len(told) > _SHOWN else [])])

    def search(self, text: str, most: int = MOST_MATCHES) -> list[int]:
        """The first rows in which all words of the text occur; a word may be a value, or name=value."""
        words = text.lower().split()
        found: list[int] = []
        for place, held in enumerate(self.texts):
            if len(found) == most:
                break
            if all(word in held for word in words):
                found.append(place)
        return found

    def at_random(self, random: Random) -> int:
        """Anybody."""
        return random.randrange(len(self))

    def next_rejected(self, after: int, wanted: Any) -> int | None:
        """The next row for which the model does not decide as wanted, from the start again after the last one.

        Args:
            after: Where to start, or -1.
            wanted: A class, or `OTHER`: then everybody with a decision will do.
        """
        for place in self._onwards(after):
            decision = self.decided[place]
            if decision is not None and (wanted == OTHER or decision != wanted):
                return place
        return None

    def _onwards(self, after: int) -> Iterator[int]:
        yield from range(after + 1, len(self))
        yield from range(min(after + 1, len(self)))


def framed(explainer: Explainer, values: Mapping[str, Any], label: Any = 0) -> pd.DataFrame:
    """One person as a table with the columns and, where they hold the values, the dtypes of the training table."""
    row = {name: [values[name]] for name in explainer.schema_.names}
    return explainer.encoder_.arranged(pd.DataFrame(row, index=pd.Index([label])))

"""An explanation in a notebook: everybody with their plans as tabs, and every path with a slider.

It is one piece of HTML with a style that touches nothing else, no network, and no script element: see the template for
what is left where scripts or styles are stripped.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from counterpath.explanation import wording
from counterpath.explanation.report.build import render
from counterpath.explanation.result import Explanation
from counterpath.explanation.tables import moving_features, path_features
from counterpath.explanation.wording import Row

MOST_POINTS = 24
"""How many points of a path are in the page, evenly spread: a slider moves by a few pixels from one to the next."""
MOST_COLUMNS = 6
"""How many features of a path are shown, those that end otherwise first: more would not fit side by side."""
_VIEWS = count(1)


@dataclass(frozen=True)
class Path:
    """The path of a plan.

    Attributes:
        names: What moves.
        measured: What the bars are.
        points: For each point its step, the length of its bar in percent, the probability, and the values.
    """

    names: list[str]
    measured: str
    points: list[tuple[int, float, str, list[str]]]


def render_notebook(result: Explanation, most: int) -> str:
    """The HTML of the first people of an explanation, the rejected first, with all their plans."""
    positions = result._first(most, rejected_first=True)
    people = result._people_at(positions)
    at, shown = iter(positions), []
    for person in people:
        where = {id(row): next(at) for row in person.rows}
        plans = [row for row in person.shown if row not in person.missing]
        shown.append((person.first.label, [(row, _path(result, row, where[id(row)])) for row in plans], person.missing))
    tabs = max((len(plans) for _, plans, _ in shown), default=0)
    return render(
        "notebook.html.j2",
        headline=result._headline,
        people=shown,
        more=result._count - len(people),
        tabs=tabs if tabs > 1 else 0,
        id=_name(result._headline, [person.first.sentence for person in people]),
    )


def _name(*parts: object) -> str:
    """What the buttons of this view are called: another name than those of any other view in the notebook have."""
    return f"counterpath-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}-{next(_VIEWS)}"


def _path(result: Explanation, row: Row, position: int) -> Path | None:
    """What to show of a path that leads somewhere."""
    steps = result._steps(position)
    if not row.status.found or len(steps) < 2:
        return None
    chosen = np.unique(np.linspace(0, len(steps) - 1, MOST_POINTS).round().astype(int))
    steps = steps.iloc[chosen]
    features = path_features(steps, result.schema.names)
    changed = [change.feature for change in row.changes]
    names = sorted(moving_features(features), key=lambda name: name not in changed)[:MOST_COLUMNS]
    columns = [[wording.shown(result.schema[name], value) for value in features[name].array] for name in names]
    probabilities = steps["probability"].astype(float).tolist()
    return Path(
        names=[result.schema[name].title for name in names],
        measured="nearness" if row.wanted else "probability",
        points=list(
            zip(
                steps["step"].astype(int).tolist(),
                map(_percent, probabilities),
                map(wording.probability, probabilities),
                _rows(columns, len(steps)),
                strict=True,
            )
        ),
    )


def _rows(columns: list[list[str]], length: int) -> Iterator[list[str]]:
    return ([column[row] for column in columns] for row in range(length))


def _percent(share: float) -> float:
    return 0.0 if math.isnan(share) else round(100 * min(max(share, 0.0), 1.0), 1)

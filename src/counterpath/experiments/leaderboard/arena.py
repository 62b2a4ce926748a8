"""An arena: the rows, the model, the encoding and the measures of a comparison; and how a method runs in it."""

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.status import StatusCode
from counterpath.experiments.leaderboard.measures import Answers, Array, Columns, Fitted, Predict, once
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.search.methods import METHODS, resolve_method
from counterpath.utils.devices import map_blocks

_ROWS = 2000  # of accepted rows, evenly spaced, whose median density is known to within a few percent of a nat
_SECONDS = 300.0  # that a method may search for all rows of a cell; what it has not found by then counts as not found


@dataclass(frozen=True)
class Published:
    """A row that others have published.

    Attributes:
        method: What they call it.
        values: Their figures, by our names of the measures.
        note: Where it is from.
    """

    method: str
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True)
class Reproduction:
    """One of their rows, by our implementation, and how far it may be off.

    Attributes:
        published: Their row.
        answers: Our counterfactuals in their encoding.
        tolerances: By measure how far off it may be: an absolute difference.
        how: What was run, in words.
    """

    published: Published
    answers: Array
    tolerances: Mapping[str, float]
    how: str


@dataclass(frozen=True)
class Arena:
    """What all methods of a cell share.

    Attributes:
        convention: A key of `measures.CONVENTIONS`.
        explainer: Fitted on the suite's training rows, explaining the suite's model.
        rows: The rows to explain, as a table.
        target_class: What is wished for.
        encode: Tables to the suite's columns.
        columns: What these are.
        reference: The suite's training rows in its columns.
        predict: The suite's model on its columns.
        judge: An independent classifier on its columns.
        request: Further arguments of `Explainer.explain`.
        published: What others have published for this cell.
        reproduce: Runs their method as they did; None where it cannot be done, and `why_not` says why.
        why_not: Why no published row is reproduced.
        note: What is worth knowing about the cell.
        fitted: What measures have made of the reference rows.
    """

    convention: str
    explainer: Explainer
    rows: pd.DataFrame
    target_class: Any
    encode: Callable[[pd.DataFrame], Array]
    columns: Columns
    reference: Array
    predict: Predict
    judge: Predict | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    reproduce: Callable[[], Reproduction] | None = None
    why_not: str = ""
    note: str = ""
    fitted: Fitted = field(default_factory=dict)

    def answers(self, y: Array) -> Answers:
        """Counterfactuals in the suite's columns, ready to be measured."""
        density, threshold = self._density()
        return Answers(
            self.encode(self.rows),
            y,
            self.reference,
            self.columns,
            self.predict,
            self.judge,
            density,
            threshold,
            self.fitted,
        )

    def _density(self) -> tuple[Predict | None, float]:
        """The log-density of the explainer's flow, if its columns are the suite's, and its median on accepted rows."""
        flow, scale = self.explainer.models_.flow, self.columns.scale
        if flow is None or self.convention not in ("cel", "ours"):
            return None, 0.0
        import torch

        def density(rows: Array) -> Array:
            x = torch.from_numpy(rows if scale is None else rows / scale).to(self.explainer.models_.rows)
            with torch.no_grad():
                found: Array = map_blocks(flow.flow().log_prob, x).double().cpu().numpy()
            return found

        def middle() -> float:
            accepted = self.reference[self.predict(self.reference) >= 0.5]
            return float(np.median(density(accepted[:: max(1, len(accepted) // _ROWS)])))

        return density, once(self.fitted, ("density",), middle)

    def run(self, method: str) -> dict[str, Any]:
        """What a method finds here: the means of its measures, over which rows, and the seconds.

        Seconds are told by the clock and, as other work slows that, of the processor, of all threads together.

        Args:
            method: Its name.
        """
        resolve_method(method)
        started = time.monotonic()
        self.explainer.models_.state(METHODS[method], self.explainer._options())  # what it learns once
        prepared = time.monotonic() - started
        started, busy = time.monotonic(), time.process_time()
        result = self.explainer.explain(
            self.rows, self.target_class, method=method, time_limit=_SECONDS, paths="end", **self.request
        )
        seconds, busy = time.monotonic() - started, time.process_time() - busy
        people = "".join(map(str, self.rows.index.tolist()))
        late = float((result.status["status"] == StatusCode.OUT_OF_TIME).mean()) if len(self.rows) else 0.0
        spent = {"setup_seconds": prepared, "seconds": seconds, "cpu_seconds": busy, "time_limit": _SECONDS}
        return {
            "n": len(self.rows),
            "who": zlib.crc32(people.encode()),
            **spent,
            "out_of_time": late,
            **self.measure(result),
        }

    def measure(self, result: Explanation) -> dict[str, Any]:
        """The means over rows with an answer; `found` and `valid` are shares of all rows."""
        y = self.encode(result.counterfactuals).copy()
        y[~result.valid.to_numpy()] = np.nan
        found = summarize(self.answers(y).measure(self.convention))
        own = result.measures()[result.valid.to_numpy()]
        if self.convention == "ours" and len(own):
            kept = ("l0", "l1", "l2", "l2_sq", "linf", "ld", "ld_sq", "violation", "unseen_pairs", "ynn", "redundancy")
            found["means"] |= {name: float(own[name].mean()) for name in kept}
            found["rows"] = self._rows(result)
        found["copies"] = float(own["copy"].mean()) if len(own) else None
        return found

    def _rows(self, result: Explanation) -> str:
        """For every row 0 where there is no valid answer, 1 where there is one, and 2 if it is feasible and plausible.

        It is feasible if it breaks nothing, and plausible where it is as near to the training rows as 95 % of held-out
        rows are, or as the row itself is.
        """
        models, names = self.explainer.models_, list(self.rows.columns)
        valid = result.valid.to_numpy(dtype=bool)
        good, near = valid & (result.measures()["violation"] == 0).to_numpy(dtype=bool), models.setup.plausibility
        if near is not None and good.any():
            ends, rows = (
                models.encoder.encode(table[names][good]).to(models.rows)
                for table in (result.counterfactuals, self.rows)
            )
            good[good] = (near.distance(ends) <= near.distance(rows).clamp_min(near.limit)).cpu().numpy()
        return "".join(map(str, valid.astype(int) + good))


def summarize(values: Mapping[str, Array]) -> dict[str, Any]:
    """Shares and means: `found` and `valid` of all rows, every other measure of those that have an answer."""
    exists = values["found"] > 0
    means = {name: _mean(each[exists]) for name, each in values.items() if name not in ("found", "valid")}
    valid = values.get("valid")
    return {
        "found": float(exists.mean()) if len(exists) else 0.0,
        "valid": 0.0 if valid is None else float(np.nan_to_num(valid).mean()),
        "means": means,
    }


def _mean(values: Array) -> float | None:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if len(kept) else None


def evenly(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """So many rows, evenly spaced."""
    return rows if len(rows) <= count else rows.iloc[np.linspace(0, len(rows) - 1, count).astype(int)]

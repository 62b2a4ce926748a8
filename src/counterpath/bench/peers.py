"""Our search beside what a user would pick otherwise: the same classifier, the same rows, one clock.

Every method gets the same encoded factuals and gives back one counterfactual a row. All are rounded to legal rows and
judged alike: valid where the same classifier accepts the legal row at 0.5; distances over the valid rows, and a second
time over those that were solved by all methods that got all rows. Time is what the search takes from the factuals to
the counterfactuals; what a method does once before (`setup_seconds`: DiCE reads its table) is not in it, nor is the
fitting of models.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from counterpath.bench.dice import DICE_METHODS, prepare_dice
from counterpath.bench.found import Finder, Found
from counterpath.bench.revise import prepare_revise
from counterpath.errors import InputError, choose
from counterpath.experiments.study import SETTINGS, Study
from counterpath.measures import MEASURES
from counterpath.methods import METHODS, Parts
from counterpath.progress import Advance, track
from counterpath.search.objective import Objective
from counterpath.search.traverse import at_confidence, traverse

P = ParamSpec("P")
R = TypeVar("R")

OURS = ("rsgd", "rsgd-c", "sgd")
CONFIDENCE = 0.5
STEPS = 150
REPEATS = 5
LIMITS = {"dice-gradient": 5}
"""Some rows take DiCE's gradient method minutes."""
DISTANCES = ("l1", "ld", "ld_sq")


def prepare_ours(study: Study, name: str, *, damping: float = SETTINGS["adult"].damping) -> Finder:
    """One of our methods: all rows at once, each until it reaches the confidence, or 150 steps."""
    method = METHODS[name](Parts(study.classifier, study.vae))
    objective, stop = Objective(study.classifier), at_confidence(CONFIDENCE)

    def find(factual: Tensor, advance: Advance) -> Found:
        found = traverse(method.model, method.metric, objective, factual, stop=stop, steps=STEPS, damping=damping)
        advance(len(factual))
        return Found(found.end, torch.ones(len(factual), dtype=torch.bool, device=factual.device))

    return find


PEERS: dict[str, Callable[[Study], Finder]] = {
    **{name: partial(prepare_ours, name=name) for name in OURS},
    "revise": prepare_revise,
    **{f"dice-{method}": partial(prepare_dice, method=method) for method in DICE_METHODS},
}
"""Everything that is compared; each makes itself ready for a study."""


@dataclass(frozen=True)
class Standing:
    """How one method did.

    Attributes:
        method: Its name, a key of `PEERS`.
        rows: On how many factuals it was run.
        found: For how many it returned something.
        valid: How many of those are valid as legal rows.
        validity: valid / rows.
        setup_seconds: What it does once for a data set.
        first_seconds: The first run over all rows.
        seconds: The median of all runs.
        seconds_per_row: seconds / rows.
        seconds_per_valid: seconds / valid; None where nothing is valid.
        ratio: How many times the seconds per valid counterfactual of the method it is measured against.
        distances: Means of `DISTANCES` over its valid rows; None where there are none.
        common: How many rows were solved by all methods that were run on all rows; None for the others.
        common_distances: Means of `DISTANCES` over these.
        failures: How many rows it has nothing for, by reason.
    """

    method: str
    rows: int
    found: int
    valid: int
    validity: float
    setup_seconds: float
    first_seconds: float
    seconds: float
    seconds_per_row: float
    seconds_per_valid: float | None
    ratio: float | None
    distances: Mapping[str, float | None]
    common: int | None
    common_distances: Mapping[str, float | None]
    failures: Mapping[str, int]


def compare(
    study: Study,
    *,
    methods: Sequence[str] = tuple(PEERS),
    rows: int = 100,
    limits: Mapping[str, int] | None = None,
    repeats: int = REPEATS,
    against: str = OURS[0],
    progress: bool | None = None,
) -> list[Standing]:
    """Run every method on the first factuals of a study.

    Args:
        study: Classifier, VAE, training rows and factuals, on a CPU.
        methods: Keys of `PEERS`.
        rows: How many factuals.
        limits: At most how many of these rows for slow methods; by default `LIMITS`, and {} for none.
        repeats: How often ours are run, in turn; the others, which take far longer, run once.
        against: The method that `Standing.ratio` compares with.
        progress: Show a bar; by default where standard error is a terminal.

    Raises:
        MissingExtraError: A method of DiCE is among them, and `dice-ml` is not installed.
    """
    _insist(study, methods, rows, repeats, against)
    counts = {
        name: min(rows, len(study.factual), (LIMITS if limits is None else limits).get(name, rows)) for name in methods
    }
    # All are made ready first: a library that is missing is told before anything takes long.
    ready = {name: _timed(PEERS[name], study) for name in methods}
    runs: dict[str, list[tuple[Found, float]]] = {name: [] for name in methods}
    for turn in range(repeats):
        for name in methods:
            if turn == 0 or name in OURS:
                finder, factual = ready[name][0], study.factual[: counts[name]]
                with track(name, len(factual), shown=progress) as advance:
                    runs[name].append(_timed(finder, factual, advance))
    judged = {name: _judge(study, found[0][0]) for name, found in runs.items()}
    most = max(counts.values())
    common = torch.stack([judged[name]["valid"] > 0 for name in methods if counts[name] == most]).all(0)
    standings = [_standing(name, ready[name][1], runs[name], judged[name], common) for name in methods]
    own = {standing.method: standing.seconds_per_valid for standing in standings}[against]
    return [replace(one, ratio=_divided(one.seconds_per_valid, own)) for one in standings]


def frame(standings: Sequence[Standing]) -> pd.DataFrame:
    """One row a method, with a column for every figure."""
    return pd.DataFrame([_flat(standing) for standing in standings])


def _flat(standing: Standing) -> dict[str, Any]:
    flat = {name: value for name, value in asdict(standing).items() if not isinstance(value, Mapping)}
    flat |= standing.distances
    flat |= {f"{name}_common": value for name, value in standing.common_distances.items()}
    flat["failures"] = "; ".join(f"{count} × {reason}" for reason, count in standing.failures.items())
    return flat


def _judge(study: Study, found: Found) -> dict[str, Tensor]:
    """Validity and distances of the legal rows, one number a row."""
    case = study.case(found.rows, CONFIDENCE, study.factual[: len(found.rows)])
    values = {name: MEASURES[name](case) for name in ("valid", *DISTANCES)}
    return values | {"valid": values["valid"] * found.exists}


def _standing(
    name: str,
    setup: float,
    runs: Sequence[tuple[Found, float]],
    values: Mapping[str, Tensor],
    common: Bool[Tensor, "m"],
) -> Standing:
    found, first = runs[0]
    valid = values["valid"] > 0
    rows, count = len(valid), int(valid.sum())
    seconds = statistics.median(seconds for _, seconds in runs)
    return Standing(
        method=name,
        rows=rows,
        found=int(found.exists.sum()),
        valid=count,
        validity=count / rows,
        setup_seconds=setup,
        first_seconds=first,
        seconds=seconds,
        seconds_per_row=seconds / rows,
        seconds_per_valid=seconds / count if count else None,
        ratio=None,
        distances={key: _mean(values[key][valid]) for key in DISTANCES},
        common=int(common.sum()) if rows == len(common) else None,
        common_distances={key: _mean(values[key][common]) if rows == len(common) else None for key in DISTANCES},
        failures=dict(found.failures),
    )


def _timed(job: Callable[P, R], *args: P.args, **options: P.kwargs) -> tuple[R, float]:
    started = time.perf_counter()
    result = job(*args, **options)
    return result, time.perf_counter() - started


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None


def _divided(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _insist(study: Study, methods: Sequence[str], rows: int, repeats: int, against: str) -> None:
    for name in methods:
        choose("method", name, PEERS)
    choose("method to compare with", against, dict.fromkeys(methods))
    if rows < 1 or repeats < 1:
        raise InputError(
            f"a comparison needs rows and repeats of at least 1; given were rows={rows}, repeats={repeats}"
        )
    if study.factual.device.type != "cpu":
        raise InputError(
            f"the peers run on a CPU, and this study is on {study.factual.device}; build it with device cpu"
        )
    if len(study.factual) == 0:
        raise InputError("this study has no factuals to explain: its classifier rejects no test row of class 0")

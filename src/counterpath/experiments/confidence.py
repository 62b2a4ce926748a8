"""Methods at equal confidence: the first point of each path that reaches it, and the path up to there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

DRAWS = 1000

SearchModels = Mapping[str, Mapping[str, Tensor]]
"""What was measured: by run, and within a run by measure and step, one number a row."""


def cell(values: Sequence[Tensor], masks: Sequence[Tensor]) -> dict[str, float | None]:
    """Mean and standard deviation over rows, each averaged over the seeds, and the spread of the means over seeds."""
    picked = [value[mask].double() for value, mask in zip(values, masks, strict=True) if bool(mask.any())]
    if not picked:
        return {"mean": None, "std": None, "seed_std": None}
    means = [float(value.mean()) for value in picked]
    spreads = [float(value.std(correction=0)) for value in picked]
    return {"mean": float(np.mean(means)), "std": float(np.mean(spreads)), "seed_std": float(np.std(means))}


def difference(gaps: Sequence[Tensor], generator: np.random.Generator) -> dict[str, float] | None:
    """The mean of paired differences, with a bootstrap interval (95 %, rows resampled in each seed).

    Args:
        gaps: For each seed the differences, of the rows that both solved.
        generator: Of the draws.

    Returns:
        `mean`, `low` and `high`; None if there is no row in any seed.
    """
    draws = []
    for gap in (gap.double().numpy() for gap in gaps if len(gap)):
        picks = generator.integers(0, len(gap), size=(DRAWS, len(gap)), dtype=np.int32)
        draws.append(np.concatenate([[gap.mean()], gap[picks].mean(1)]))
    if not draws:
        return None
    mean = np.mean(draws, axis=0)
    low, high = np.quantile(mean[1:], [0.025, 0.975])
    return {"mean": float(mean[0]), "low": float(low), "high": float(high)}


def everywhere(masks: Sequence[Tensor]) -> Tensor:
    """The rows that are in all of them."""
    return torch.stack(list(masks)).all(0)


OPTIMIZERS = ("sgd", "rsgd", "rsgd-c")
ROADS = ("geodesic", "face")
"""The global methods, which stop at the asked confidence and have no number of steps."""
COMPARED = (("geodesic", "rsgd"), ("geodesic", "rsgd-c"), ("geodesic", "face"))
SHOWN = (0.5, 0.7, 0.9)
"""The confidences in tables for people."""
MEASURED = ("ld", "ld_sq", "l1", "l2", "l2_sq", "path_ld_max_sq")


def by_confidence(parts: Sequence[SearchModels]) -> list[dict[str, Any]]:
    """How many paths reach a confidence, after how many steps, at what distance, and how far from the data till then.

    Each method over the rows that it solved (`reached`); the optimisers over those that all three solved (`common`);
    and without the fidelity term all methods, the global ones too, over those that all of them solved (`common_all`).
    """
    rows = []
    for constraint in ("no", "yes"):
        runs = {name: f"{name} {constraint}" for name in OPTIMIZERS}
        all_runs = runs | {name: name for name in ROADS} if constraint == "no" else runs
        for threshold in _thresholds(parts):
            solved = {name: [_solved(seed, run, threshold) for seed in parts] for name, run in all_runs.items()}
            common = [everywhere(masks) for masks in zip(*(solved[name] for name in runs), strict=True)]
            common_all = [everywhere(masks) for masks in zip(*solved.values(), strict=True)]
            for name, run in all_runs.items():
                subsets = {"reached": solved[name]}
                subsets |= {"common": common} if name in runs else {}
                subsets |= {"common_all": common_all} if constraint == "no" else {}
                for subset, masks in subsets.items():
                    rows.append(
                        {
                            "threshold": float(threshold),
                            "constraint": constraint,
                            "optimizer": name,
                            "subset": subset,
                            "n": float(np.mean([int(mask.sum()) for mask in masks])),
                            "ctr": float(np.mean([float(mask.double().mean()) for mask in solved[name]])),
                            "steps": _steps(parts, name, run, threshold, masks),
                            **{m: cell([_values(seed, run, m, threshold) for seed in parts], masks) for m in MEASURED},
                        }
                    )
    return rows


def differences(parts: Sequence[SearchModels]) -> list[dict[str, Any]]:
    """Paired differences between a global method and another at equal confidence, on the rows that both solved.

    Steps are 0. `one` and `other` are the means of either over those rows.
    """
    rows = []
    generator = np.random.default_rng(0)
    for threshold in (text for text in _thresholds(parts) if float(text) in SHOWN):
        for one, other in COMPARED:
            runs = [name if name in ROADS else f"{name} no" for name in (one, other)]
            both = [everywhere([_solved(seed, run, threshold) for run in runs]) for seed in parts]
            for measure in ("ld_sq", "l1", "l2_sq", "path_ld_max_sq"):
                mine, theirs = ([_values(seed, run, measure, threshold) for seed in parts] for run in runs)
                found = difference([(a - b)[mask] for a, b, mask in zip(mine, theirs, both, strict=True)], generator)
                if found is not None:
                    rows.append(
                        {
                            "steps": 0,
                            "threshold": float(threshold),
                            "difference": f"{one} − {other}",
                            "measure": measure,
                            **found,
                            "n": float(np.mean([int(mask.sum()) for mask in both])),
                            "one": cell(mine, both)["mean"],
                            "other": cell(theirs, both)["mean"],
                        }
                    )
    return rows


def network(parts: Sequence[SearchModels]) -> dict[str, float]:
    """The network of `geodesic`, in means over seeds; shares are of the rows that it solved at the least confidence."""
    runs = [seed["geodesic"] for seed in parts]
    figures = {
        key: float(np.mean([float(run[key]) for run in runs]))
        for key in ("nodes", "edges", "bridges", "seconds_graph", "seconds_routes", "seconds_refinement")
    }
    valid = [run["valid@0"] > 0 for run in runs]
    for key, title in (("gap@0", "gap_share"), ("copy@0", "copy_share")):
        figures[title] = cell([run[key] for run in runs], valid)["mean"] or 0.0
    figures["path_ld_max_sq_leaping"] = cell([run["leaping_ld_max@0"].square() for run in runs], valid)["mean"] or 0.0
    return figures


def sections(results: Mapping[str, Any]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The tables to be shown, with their titles."""
    for subset, title in (
        ("reached", "At equal confidence, no fidelity term: each method over the rows that it brought there"),
        ("common_all", "The same over the rows that all methods brought there"),
    ):
        rows = [
            row
            for row in results["by_confidence"]
            if (row["constraint"], row["subset"]) == ("no", subset) and row["threshold"] in SHOWN
        ]
        yield title, pd.DataFrame([_shown(row) for row in rows])
    network = results["geodesic"]
    yield (
        "The network of geodesic",
        pd.DataFrame(
            [
                {
                    "nodes": f"{network['nodes']:.0f}",
                    "edges": f"{network['edges']:.0f}",
                    "bridges": f"{network['bridges']:.0f}",
                    "crosses a gap": f"{100 * network['gap_share']:.1f} %",
                    "equals a training row": f"{100 * network['copy_share']:.1f} %",
                    "laid in": f"{network['seconds_graph']:.1f} s",
                    "routes": f"{network['seconds_routes']:.1f} s",
                    "refinement": f"{network['seconds_refinement']:.1f} s",
                }
            ]
        ),
    )


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    line = {"confidence": f"{row['threshold']:g}", "method": row["optimizer"], "n": f"{row['n']:.0f}"}
    line["reach it"] = f"{row['ctr']:.3f}"
    for key, title, digits in (
        ("ld_sq", "LD²", 4), ("path_ld_max_sq", "max LD² on path", 4), ("l1", "L1", 2), ("l2_sq", "L2²", 2),
    ):  # fmt: skip
        mean = row[key]["mean"]
        line[title] = "–" if mean is None else f"{mean:.{digits}f}"
    return line


def _thresholds(parts: Sequence[SearchModels]) -> list[str]:
    return sorted(key.removeprefix("first@") for key in parts[0]["sgd no"] if key.startswith("first@"))


def _solved(seed: SearchModels, run: str, threshold: str) -> Tensor:
    return seed[run][f"first@{threshold}"] >= 0


def _values(seed: SearchModels, run: str, measure: str, threshold: str) -> Tensor:
    if measure == "path_ld_max_sq":
        return seed[run][f"path_ld_max@{threshold}"].square()
    return seed[run][f"{measure}@{threshold}"]


def _steps(
    parts: Sequence[SearchModels], name: str, run: str, threshold: str, masks: Sequence[Tensor]
) -> dict[str, float | None]:
    if name in ROADS:
        return {"mean": None, "std": None, "seed_std": None}
    return cell([seed[run][f"first@{threshold}"] for seed in parts], masks)

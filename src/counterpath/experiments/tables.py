"""From one number a row to the paper's tables: means, spreads, differences, and the paper's own figures beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterpath.experiments import confidence
from counterpath.experiments.confidence import SearchModels, cell, difference, everywhere

STEPS = (50, 100, 150)
OPTIMIZERS = confidence.OPTIMIZERS
BASELINES = ("nearest", "nearest same", "reconstruction")
TITLES = {"adult": "Adult", "gmc": "Give Me Some Credit"}
MEASURED = (
    "ld", "ld_sq", "l0", "l1", "l2", "l2_sq", "linf", "confidence", "violation", "path_ld_max", "path_length",
    "turning", "ynn", "redundancy",
)  # fmt: skip
SHOWN = ("ld_sq", "ld", "l0", "l1", "l2_sq", "l2", "linf", "confidence", "violation", "path_ld_max")
HEADINGS = {
    "ld_sq": "LD²", "ld": "LD", "l0": "L0", "l1": "L1", "l2_sq": "L2²", "l2": "L2", "linf": "L∞",
    "confidence": "confidence", "violation": "violation", "path_ld_max": "max LD on path", "flip_ratio": "flip ratio",
    "path_ld_max_sq": "max LD² on path",
}  # fmt: skip
COMPARED = (("rsgd", "sgd"), ("rsgd-c", "sgd"), ("rsgd-c", "rsgd"))


def collect(
    dataset: str, preset: str, seeds: Sequence[int], by_seed: Sequence[dict[str, Any]], parts: Sequence[SearchModels]
) -> dict[str, Any]:
    """All results of an experiment, in the shape of `results.json`."""
    mean = mean_over_seeds(by_seed)
    return {
        "dataset": dataset,
        "preset": preset,
        "seeds": list(seeds),
        "protocol": mean["protocol"],
        "classifier": mean["classifier"],
        "uncertainty": mean["uncertainty"],
        "table": table(parts),
        "differences": differences(parts) + confidence.differences(parts),
        "by_step": by_step(parts),
        "by_confidence": confidence.by_confidence(parts),
        "geodesic": confidence.network(parts),
        "curve": mean["curve"],
        "dampings": mean["dampings"],
        "seconds": {name: float(np.mean([float(p[name]["seconds"]) for p in parts])) for name in _walked(parts)},
        "by_seed": [{key: seed[key] for key in ("protocol", "classifier", "uncertainty")} for seed in by_seed],
        "paper": paper(dataset).to_dict("records"),
    }


def table(parts: Sequence[SearchModels]) -> list[dict[str, Any]]:
    """Rows of the paper's table, and of the baselines, over valid rows and over the rows that all optimisers solved."""
    rows = []
    for steps in STEPS:
        for constraint in ("no", "yes"):
            group = {name: f"{name} {constraint}" for name in OPTIMIZERS}
            extra = {name: f"{name} {constraint}" for name in ("wachter", "ambient") if constraint == "no"}
            common = [_common(seed, list(group.values()), steps) for seed in parts]
            for name, run in (group | extra).items():
                rows.append(_row(parts, run, steps, constraint, name, "valid", None))
                if name in group:
                    rows.append(_row(parts, run, steps, constraint, name, "common", common))
    return rows + [_row(parts, name, 0, "no", name, "valid", None) for name in (*BASELINES, *confidence.ROADS)]


def _row(
    parts: Sequence[SearchModels],
    run: str,
    steps: int,
    constraint: str,
    name: str,
    subset: str,
    masks: Sequence[Tensor] | None,
) -> dict[str, Any]:
    valid = [seed[run][f"valid@{steps}"] > 0 for seed in parts]
    chosen = valid if masks is None else masks
    row: dict[str, Any] = {
        "steps": steps,
        "constraint": constraint,
        "optimizer": name,
        "subset": subset,
        "n": float(np.mean([int(mask.sum()) for mask in chosen])),
        "flip_ratio": float(np.mean([float(v.double().mean()) for v in valid])),
        "flip_ratio_seed_std": float(np.std([float(v.double().mean()) for v in valid])),
        "violation_share": cell([seed[run][f"violation@{steps}"] > 0 for seed in parts], chosen)["mean"],
    }
    for measure in MEASURED:
        key = f"{measure}@{steps}"
        if key in parts[0][run]:
            # The paper's confidence is over all rows, found or not: its means and flip ratios fit together only so.
            over = [torch.ones_like(v) for v in valid] if measure == "confidence" and masks is None else chosen
            row[measure] = cell([seed[run][key] for seed in parts], over)
    return row


def differences(parts: Sequence[SearchModels]) -> list[dict[str, Any]]:
    """Paired differences after equal steps on the rows that both solved, with bootstrap intervals."""
    rows = []
    generator = np.random.default_rng(0)
    for steps in STEPS:
        for one, other in COMPARED:
            runs = [f"{one} no", f"{other} no"]
            both = [_common(seed, runs, steps) for seed in parts]
            for measure in ("ld_sq", "l1", "l2_sq", "linf", "path_ld_max"):
                key = f"{measure}@{steps}"
                gaps = [(seed[runs[0]][key] - seed[runs[1]][key])[mask] for seed, mask in zip(parts, both, strict=True)]
                found = difference(gaps, generator)
                if found is not None:
                    rows.append({"steps": steps, "difference": f"{one} − {other}", "measure": measure, **found})
    return rows


def by_step(parts: Sequence[SearchModels]) -> list[dict[str, Any]]:
    """LD of all rows, found or not, and the flip ratio, against the number of steps."""
    rows = []
    for run in _walked(parts):
        name, constraint = run.split(" ")
        ld = torch.stack([seed[run]["path_ld"].mean(1) for seed in parts])
        ld_sq = torch.stack([seed[run]["path_ld"].square().mean(1) for seed in parts])
        valid = torch.stack([seed[run]["path_valid"].mean(1) for seed in parts])
        every = STEPS[-1] // (ld.shape[1] - 1)
        rows += [
            {
                "steps": index * every,
                "constraint": constraint,
                "optimizer": name,
                "ld": _spread(ld[:, index]),
                "ld_sq": _spread(ld_sq[:, index]),
                "flip_ratio": float(valid[:, index].mean()),
            }
            for index in range(ld.shape[1])
        ]
    return rows


def paper(dataset: str) -> pd.DataFrame:
    """The table that the paper prints."""
    return pd.read_csv(Path(__file__).with_name(f"paper_{dataset}.csv"))


def frame(results: Mapping[str, Any]) -> pd.DataFrame:
    """The table as a DataFrame, one column a figure, the paper's in columns of their own."""
    rows = []
    for row in results["table"]:
        flat = {key: value for key, value in row.items() if not isinstance(value, dict)}
        for measure, found in row.items():
            if isinstance(found, dict):
                flat |= {measure: found["mean"]} | {f"{measure}_{key}": found[key] for key in ("std", "seed_std")}
        rows.append(flat)
    printed = pd.DataFrame(results["paper"]).rename(
        columns=lambda name: name if name in ("steps", "constraint", "optimizer") else f"paper_{name}"
    )
    return pd.DataFrame(rows).merge(printed, how="left", on=["steps", "constraint", "optimizer"])


def markdown(results: Mapping[str, Any]) -> str:
    """The tables for people: each of our figures with the paper's behind it."""
    lines = [f"# {TITLES[results['dataset']]}", "", caption(results), ""]
    for title, content in sections(results).items():
        lines += [f"## {title}", "", *_as_markdown(content), ""]
    return "\n".join(lines)


def sections(results: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The tables to be shown, by title."""
    printed = {(row["steps"], row["constraint"], row["optimizer"]): row for row in results["paper"]}
    shown = {}
    for subset, title in (
        ("valid", "Each method over the rows that it solved; in brackets the paper's figure"),
        ("common", "The same over the rows that all three optimisers solved"),
    ):
        rows = [row for row in results["table"] if row["subset"] == subset]
        shown[title] = pd.DataFrame([_shown(row, printed, subset) for row in rows])
    shown |= dict(confidence.sections(results))
    shown["Differences on rows that both solved, no fidelity term, with 95 % bootstrap intervals"] = pd.DataFrame(
        [
            {
                "after": f"{row['steps']} steps" if row["steps"] else f"confidence {row['threshold']:g}",
                "difference": row["difference"],
                "measure": HEADINGS[row["measure"]],
                "mean [interval]": f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]",
            }
            for row in results["differences"]
        ]
    )
    for key, heading, title in (
        ("curve", "bandwidth", "Bandwidth λ after 150 steps: a trade-off"),
        ("dampings", "damping", "Damping after 150 steps: a trade-off too"),
    ):
        shown[title] = pd.DataFrame(
            [
                {
                    heading: f"{row[heading]:g}",
                    **({"σ share of tr(M)": f"{row['sigma_share']:.4f}"} if "sigma_share" in row else {}),
                    **{f"flip ratio {name}": f"{row[f'flip_ratio {name}']:.2f}" for name in ("rsgd", "rsgd-c")},
                    **{f"LD² {name}": f"{row[f'ld_sq {name}']:.3f}" for name in ("rsgd", "rsgd-c")},
                }
                for row in results[key]
            ]
        )
    return shown


def _shown(row: Mapping[str, Any], printed: Mapping[Any, Mapping[str, Any]], subset: str) -> dict[str, str]:
    theirs = printed.get((row["steps"], row["constraint"], row["optimizer"]), {}) if subset == "valid" else {}
    line = {
        "steps": str(row["steps"]) if row["steps"] else "–",
        "fidelity": row["constraint"] if row["steps"] else "–",
        "method": row["optimizer"],
        "n": f"{row['n']:.0f}",
        HEADINGS["flip_ratio"]: f"{row['flip_ratio']:.2f}{_bracket(theirs.get('flip_ratio'), 2)}",
    }
    for measure in SHOWN:
        found = row.get(measure)
        if found is None or found["mean"] is None:
            line[HEADINGS[measure]] = "–"
            continue
        spread = "" if measure in ("violation", "path_ld_max") else f"±{found['std']:.2f}"
        digits = 3 if measure in ("ld_sq", "ld", "path_ld_max") else 2
        line[HEADINGS[measure]] = f"{found['mean']:.{digits}f}{spread}{_bracket(theirs.get(measure), digits)}"
    return line


def _bracket(value: float | None, digits: int) -> str:
    return "" if value is None else f" ({value:.{digits}f})"


def caption(results: Mapping[str, Any]) -> str:
    """What was run, in a few sentences."""
    protocol, classifier, sigma = results["protocol"], results["classifier"], results["uncertainty"]
    return (
        f"Preset {results['preset']}, seeds {', '.join(map(str, results['seeds']))}. {protocol['factuals']:.0f} of "
        f"{protocol['test_negatives']:.0f} test negatives explained; balanced accuracy of the classifier "
        f"{classifier['balanced_accuracy_test']:.3f} (test), {classifier['balanced_accuracy_train']:.3f} (train). "
        f"Uncertainty: λ = {sigma['bandwidth']:.2f}, {sigma['centers']:.0f} centres, ζ = {sigma['zeta']:g}, σ "
        f"{sigma['sigma_on']:.3g} on held-out data and {sigma['sigma_off']:.3g} off the data (AUC {sigma['auc']:.3f}), "
        f"{100 * sigma['sigma_share']:.1f} % of tr(M). Damping {protocol['damping']:g}. Mean ± standard deviation over "
        "rows, averaged over seeds; distances over the rows named in each heading, the confidence over all rows, as "
        "the paper's must be. LD² and L2² are squared distances, what the paper calls LD and L2."
    )


def _as_markdown(content: pd.DataFrame) -> list[str]:
    header = "| " + " | ".join(content.columns) + " |"
    lines = ["| " + " | ".join(str(value) for value in row) + " |" for row in content.itertuples(index=False)]
    return [header, "|" + "---|" * len(content.columns), *lines]


def _common(seed: SearchModels, runs: Sequence[str], steps: int) -> Tensor:
    return everywhere([seed[run][f"valid@{steps}"] > 0 for run in runs])


def _walked(parts: Sequence[SearchModels]) -> list[str]:
    return [run for run in parts[0] if "path_ld" in parts[0][run]]


def _spread(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "std": float(values.std(correction=0))}


def mean_over_seeds(values: Sequence[Any]) -> Any:
    """The mean over seeds of every number in nested dictionaries and lists of one shape."""
    if isinstance(values[0], dict):
        return {key: mean_over_seeds([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], list):
        return [mean_over_seeds(list(items)) for items in zip(*values, strict=True)]
    mean = float(np.mean(values))
    return int(mean) if mean.is_integer() else mean

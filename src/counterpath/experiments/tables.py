"""From one number a row to tables: means, spreads, paired differences, and the paper's own figures beside them.

Methods are compared twice: after equal steps, as the paper does, and at equal confidence, by the first point of each
path that reaches it and the path up to there. Global methods stop at the requested confidence, and have no steps.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

Runs = Mapping[str, Mapping[str, Tensor]]
"""What was measured for one seed: by run, and within a run by measure and step or confidence, one number a row."""
Masks = Sequence[Tensor]
"""For each seed, which rows count."""

OPTIMIZERS = ("sgd", "rsgd", "rsgd-c")
"""The paper's three methods, which differ in the metric of the VAE's latent space alone."""
STEPS = (50, 100, 150)
"""After how many gradient steps the paper's tables measure."""
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""The confidences at which methods are compared: from the decision boundary on, close enough to draw a curve."""
TITLES = {"adult": "Adult", "gmc": "Give Me Some Credit"}
RIEMANNIAN = ("rsgd", "rsgd-c")
IN_DATA_SPACE = ("wachter", "ambient")
"""Local methods without a generative model, which the paper does not have; run without the fidelity term alone."""
GLOBAL = ("geodesic", "face")
BASELINES = ("nearest", "nearest same", "reconstruction")

OF_A_SEED = ("ld_sq", "l1", "l2_sq")
"""What is compared over seeds beside the flip ratio: the distances of the paper's tables."""
MEASURED = (
    "ld", "ld_sq", "l0", "l1", "l2", "l2_sq", "linf", "confidence", "violation", "path_ld_max", "path_length",
    "turning", "ynn", "redundancy",
)  # fmt: skip
AT_CONFIDENCE = ("ld", "ld_sq", "l1", "l2", "l2_sq", "path_ld_max_sq")
SHOWN = ("ld_sq", "ld", "l0", "l1", "l2_sq", "l2", "linf", "confidence", "violation", "path_ld_max")
SHOWN_THRESHOLDS = (0.5, 0.7, 0.9)
"""The confidences in tables for people: a page has room for three, low, middle and high."""
HEADINGS = {
    "ld_sq": "LD²", "ld": "LD", "l0": "L0", "l1": "L1", "l2_sq": "L2²", "l2": "L2", "linf": "L∞",
    "confidence": "confidence", "violation": "violation", "path_ld_max": "max LD on path", "flip_ratio": "flip ratio",
    "path_ld_max_sq": "max LD² on path",
}  # fmt: skip
Compared = tuple[str, Sequence[float], Sequence[tuple[str, str]], Sequence[str]]
"""What says that a row is solved, at which steps or confidences, which methods are compared, and by which measures."""
AFTER_STEPS: Compared = (
    "valid",
    STEPS,
    (("rsgd", "sgd"), ("rsgd-c", "sgd"), ("rsgd-c", "rsgd")),
    ("ld_sq", "l1", "l2_sq", "linf", "path_ld_max"),
)
AT_EQUAL_CONFIDENCE: Compared = (
    "first",
    SHOWN_THRESHOLDS,
    (("geodesic", "rsgd"), ("geodesic", "rsgd-c"), ("geodesic", "face")),
    ("ld_sq", "l1", "l2_sq", "path_ld_max_sq"),
)
DRAWS = 1000
"""Of the bootstrap: the ends of a 95 % interval then rest on 25 draws each."""


def collect(
    dataset: str, preset: str, seeds: Sequence[int], summaries: Sequence[dict[str, Any]], measured: Sequence[Runs]
) -> dict[str, Any]:
    """All results of an experiment, in the shape of `results.json`.

    `measured` has for each seed what is one number a row, and `summaries` what is not.
    """
    mean = over_seeds(summaries, _whole_mean)
    return {
        "dataset": dataset,
        "preset": preset,
        "seeds": list(seeds),
        "protocol": mean["protocol"],
        "classifier": mean["classifier"],
        "uncertainty": mean["uncertainty"],
        "table": table(measured),
        "differences": differences(measured, (AFTER_STEPS, AT_EQUAL_CONFIDENCE)),
        "by_step": by_step(measured),
        "by_confidence": by_confidence(measured),
        "geodesic": roadmap(measured),
        "curve": mean["curve"],
        "dampings": mean["dampings"],
        "seconds": {run: _mean([float(seed[run]["seconds"]) for seed in measured]) for run in _local_runs(measured)},
        "by_seed": [
            {key: seed[key] for key in ("protocol", "classifier", "uncertainty")} | {"after_150": figures}
            for seed, figures in zip(summaries, each_seed(measured), strict=True)
        ],
        "over_seeds": spread_over_seeds(each_seed(measured)),
        "paper": paper(dataset).to_dict("records"),
    }


def table(measured: Sequence[Runs]) -> list[dict[str, Any]]:
    """Rows of the paper's table, and of the baselines, over valid rows and over the rows that all optimisers solved."""
    rows = []
    for steps in STEPS:
        for constraint in ("no", "yes"):
            solved = {name: _solved(measured, f"{name} {constraint}", f"valid@{steps}") for name in OPTIMIZERS}
            common = _everywhere(solved.values())
            for name in (*OPTIMIZERS, *(IN_DATA_SPACE if constraint == "no" else ())):
                key = {"steps": steps, "constraint": constraint, "optimizer": name}
                rows.append(_table_row(measured, f"{name} {constraint}", key, "valid", None))
                if name in OPTIMIZERS:
                    rows.append(_table_row(measured, f"{name} {constraint}", key, "common", common))
    key = {"steps": 0, "constraint": "no"}
    return rows + [
        _table_row(measured, name, key | {"optimizer": name}, "valid", None) for name in (*BASELINES, *GLOBAL)
    ]


def each_seed(measured: Sequence[Runs]) -> list[dict[str, dict[str, float | None]]]:
    """For each seed and optimiser flip ratio and mean distances of valid rows after 150 steps, no fidelity term."""
    rows = []
    for seed in measured:
        figures: dict[str, dict[str, float | None]] = {}
        for name in OPTIMIZERS:
            run, valid = seed[f"{name} no"], seed[f"{name} no"][f"valid@{STEPS[-1]}"] > 0
            means = {measure: mean_or_none(run[f"{measure}@{STEPS[-1]}"][valid]) for measure in OF_A_SEED}
            figures[name] = {"flip_ratio": float(valid.double().mean()), **means}
        rows.append(figures)
    return rows


def spread_over_seeds(seeds: Sequence[Mapping[str, Mapping[str, float | None]]]) -> dict[str, dict[str, Any]]:
    """By optimiser and figure the median, the lowest and the highest over seeds; LD² relative to SGD's, besides."""
    spread: dict[str, dict[str, Any]] = {}
    for name in OPTIMIZERS:
        values = {key: [seed[name][key] for seed in seeds] for key in ("flip_ratio", *OF_A_SEED)}
        sgd = [seed[OPTIMIZERS[0]]["ld_sq"] for seed in seeds]
        values["ld_sq_of_sgd"] = [
            own / other if own is not None and other else None for own, other in zip(values["ld_sq"], sgd, strict=True)
        ]
        spread[name] = {key: _range([value for value in each if value is not None]) for key, each in values.items()}
    return spread


def _range(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": float(np.median(values)), "lowest": min(values), "highest": max(values)}


def _table_row(
    measured: Sequence[Runs], run: str, key: dict[str, Any], subset: str, masks: Masks | None
) -> dict[str, Any]:
    """One row of the table, over the rows of `masks`, or over the valid ones."""
    steps = key["steps"]
    valid = _solved(measured, run, f"valid@{steps}")
    rows = valid if masks is None else masks
    flips = [float(mask.double().mean()) for mask in valid]
    cells = {}
    for measure in MEASURED:
        if f"{measure}@{steps}" in measured[0][run]:
            # The paper's confidence is over all rows, found or not: its means and flip ratios fit together only so.
            over = [torch.ones_like(mask) for mask in valid] if measure == "confidence" and masks is None else rows
            cells[measure] = cell(_values(measured, run, measure, steps), over)
    return {
        **key,
        "subset": subset,
        "n": _count(rows),
        "flip_ratio": _mean(flips),
        "flip_ratio_seed_std": float(np.std(flips)),
        "violation_share": cell([seed[run][f"violation@{steps}"] > 0 for seed in measured], rows)["mean"],
        **cells,
    }


def by_confidence(measured: Sequence[Runs]) -> list[dict[str, Any]]:
    """How many paths reach a confidence, after how many steps, at what distance, and how far from the data till then.

    Each method over the rows that it solved (`reached`); the optimisers over those that all three solved (`common`);
    and without the fidelity term all methods, the global ones too, over those that all of them solved (`common_all`).
    """
    rows = []
    for constraint in ("no", "yes"):
        names = (*OPTIMIZERS, *(GLOBAL if constraint == "no" else ()))
        for threshold in THRESHOLDS:
            runs = {name: _run(name, constraint) for name in names}
            solved = {name: _solved(measured, run, f"first@{threshold}") for name, run in runs.items()}
            common, common_all = _everywhere([solved[name] for name in OPTIMIZERS]), _everywhere(solved.values())
            for name, run in runs.items():
                subsets = {"reached": solved[name]}
                subsets |= {"common": common} if name in OPTIMIZERS else {}
                subsets |= {"common_all": common_all} if constraint == "no" else {}
                for subset, masks in subsets.items():
                    steps = [seed[run][f"first@{threshold}"] for seed in measured] if name in OPTIMIZERS else []
                    rows.append(
                        {
                            "threshold": threshold,
                            "constraint": constraint,
                            "optimizer": name,
                            "subset": subset,
                            "n": _count(masks),
                            "ctr": _mean([float(mask.double().mean()) for mask in solved[name]]),
                            "steps": cell(steps, masks if steps else []),
                            **{m: cell(_values(measured, run, m, threshold), masks) for m in AT_CONFIDENCE},
                        }
                    )
    return rows


def differences(measured: Sequence[Runs], compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Paired differences between methods on the rows that both solved, with bootstrap intervals.

    At equal confidence `steps` is 0, and `one` and `other` are the means of either over those rows.
    """
    rows: list[dict[str, Any]] = []
    for solved, points, pairs, measures in compared:
        generator = np.random.default_rng(0)
        for at, pair in itertools.product(points, pairs):
            runs = [_run(name, "no") for name in pair]
            both = _everywhere([_solved(measured, run, f"{solved}@{at}") for run in runs])
            for measure in measures:
                one, other = (_values(measured, run, measure, at) for run in runs)
                interval = bootstrap([(a - b)[mask] for a, b, mask in zip(one, other, both, strict=True)], generator)
                if interval is None:
                    continue
                row = {"difference": " − ".join(pair), "measure": measure, **interval}
                if solved == "valid":
                    rows.append({"steps": at, **row})
                else:
                    means = {"one": cell(one, both)["mean"], "other": cell(other, both)["mean"]}
                    rows.append({"steps": 0, "threshold": at, **row, "n": _count(both), **means})
    return rows


def by_step(measured: Sequence[Runs]) -> list[dict[str, Any]]:
    """LD of all rows, found or not, and the flip ratio, against the number of steps."""
    rows = []
    for run in _local_runs(measured):
        name, constraint = run.split(" ")
        ld = torch.stack([seed[run]["path_ld"].mean(1) for seed in measured])
        ld_sq = torch.stack([seed[run]["path_ld"].square().mean(1) for seed in measured])
        valid = torch.stack([seed[run]["path_valid"].mean(1) for seed in measured])
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


def roadmap(measured: Sequence[Runs]) -> dict[str, float]:
    """The roadmap of `geodesic`, in means over seeds; shares are of the rows that it solved at the least confidence."""
    runs = [seed["geodesic"] for seed in measured]
    valid = _solved(measured, "geodesic", "valid@0")
    figures = {
        key: _mean([float(run[key]) for run in runs])
        for key in ("nodes", "edges", "bridges", "seconds_graph", "seconds_routes", "seconds_refinement")
    }
    for key, values in {
        "gap_share": [run["gap@0"] for run in runs],
        "copy_share": [run["copy@0"] for run in runs],
        "path_ld_max_sq_leaping": [run["leaping_ld_max@0"].square() for run in runs],
    }.items():
        figures[key] = cell(values, valid)["mean"] or 0.0
    return figures


def paper(dataset: str) -> pd.DataFrame:
    """The table that the paper prints."""
    return pd.read_csv(Path(__file__).with_name(f"paper_{dataset}.csv"))


# Statistics: over the rows of a seed, then over seeds.


def cell(values: Sequence[Tensor], masks: Masks) -> dict[str, float | None]:
    """Mean and standard deviation over rows, each averaged over the seeds, and the spread of the means over seeds."""
    kept = [value[mask].double() for value, mask in zip(values, masks, strict=True) if bool(mask.any())]
    if not kept:
        return {"mean": None, "std": None, "seed_std": None}
    means = [float(value.mean()) for value in kept]
    spreads = [float(value.std(correction=0)) for value in kept]
    return {"mean": _mean(means), "std": _mean(spreads), "seed_std": float(np.std(means))}


def bootstrap(gaps: Sequence[Tensor], generator: np.random.Generator) -> dict[str, float] | None:
    """The mean of paired differences, with a bootstrap interval (95 %, rows resampled in each seed).

    `scipy.stats.bootstrap` resamples one sample; here a draw is the mean over seeds, each resampled on its own.

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


def over_seeds(values: Sequence[Any], reduce: Callable[[Sequence[Any]], Any]) -> Any:
    """Reduce every number in nested dictionaries and lists of one shape, one for each seed."""
    if isinstance(values[0], dict):
        return {key: over_seeds([value[key] for value in values], reduce) for key in values[0]}
    if isinstance(values[0], list):
        return [over_seeds(items, reduce) for items in zip(*values, strict=True)]
    return reduce(values)


def mean_or_none(values: Tensor) -> float | None:
    """The mean, or None where there is nothing to average."""
    return float(values.double().mean()) if len(values) else None


def _whole_mean(values: Sequence[float]) -> float:
    """The mean, a whole number where it is one: counts stay counts."""
    mean = _mean(values)
    return int(mean) if mean.is_integer() else mean


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _spread(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "std": float(values.std(correction=0))}


def _count(masks: Masks) -> float:
    return _mean([int(mask.sum()) for mask in masks])


def _everywhere(masks: Iterable[Masks]) -> list[Tensor]:
    """For each seed the rows that are in all of them."""
    return [torch.stack(of_seed).all(0) for of_seed in zip(*masks, strict=True)]


def _run(name: str, constraint: str) -> str:
    """The run of a method; global ones do not know the fidelity term."""
    return name if name in GLOBAL else f"{name} {constraint}"


def _local_runs(measured: Sequence[Runs]) -> list[str]:
    return [run for run in measured[0] if "path_ld" in measured[0][run]]


def _solved(measured: Sequence[Runs], run: str, key: str) -> list[Tensor]:
    """For each seed which rows a run solved: `valid` is 0 or 1, `first` the step, or −1."""
    return [seed[run][key] > 0 if key.startswith("valid") else seed[run][key] >= 0 for seed in measured]


def _values(measured: Sequence[Runs], run: str, measure: str, at: float) -> list[Tensor]:
    if measure == "path_ld_max_sq":
        return [seed[run][f"path_ld_max@{at}"].square() for seed in measured]
    return [seed[run][f"{measure}@{at}"] for seed in measured]


# Tables for people.


def frame(results: Mapping[str, Any]) -> pd.DataFrame:
    """The table as a DataFrame, one column a figure, the paper's in columns of their own."""
    keys = ["steps", "constraint", "optimizer"]
    ours = pd.json_normalize(results["table"], sep="_").rename(columns=lambda name: name.removesuffix("_mean"))
    printed = pd.DataFrame(results["paper"]).rename(columns=lambda name: name if name in keys else f"paper_{name}")
    return ours.merge(printed, how="left", on=keys)


def markdown(results: Mapping[str, Any]) -> str:
    """The tables for people: each of our figures with the paper's behind it."""
    lines = [f"# {TITLES[results['dataset']]}", "", caption(results), ""]
    for title, content in sections(results).items():
        header, *rows = (f"| {' | '.join(row)} |" for row in (content.columns, *content.to_numpy()))
        lines += [f"## {title}", "", header, "|" + "---|" * len(content.columns), *rows, ""]
    return "\n".join(lines)


def sections(results: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The tables to be shown, by title."""
    shown = {}
    for subset, title in (
        ("valid", "Each method over the rows that it solved; in brackets the paper's figure"),
        ("common", "The same over the rows that all three optimisers solved"),
    ):
        printed = results["paper"] if subset == "valid" else ()
        theirs = {(row["steps"], row["constraint"], row["optimizer"]): row for row in printed}
        rows = [row for row in results["table"] if row["subset"] == subset]
        shown[title] = [
            _show_steps(row, theirs.get((row["steps"], row["constraint"], row["optimizer"]), {})) for row in rows
        ]
    for subset, title in (
        ("reached", "At equal confidence, no fidelity term: each method over the rows that it brought there"),
        ("common_all", "The same over the rows that all methods brought there"),
    ):
        shown[title] = [
            _show_confidence(row)
            for row in results["by_confidence"]
            if (row["constraint"], row["subset"]) == ("no", subset) and row["threshold"] in SHOWN_THRESHOLDS
        ]
    shown["Over seeds after 150 steps, no fidelity term: median [lowest, highest]"] = _show_seeds(results["over_seeds"])
    shown["The roadmap of geodesic"] = [_show_roadmap(results["geodesic"])]
    shown["Differences on rows that both solved, no fidelity term, with 95 % bootstrap intervals"] = [
        {
            "after": f"{row['steps']} steps" if row["steps"] else f"confidence {row['threshold']:g}",
            "difference": row["difference"],
            "measure": HEADINGS[row["measure"]],
            "mean [interval]": f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]",
        }
        for row in results["differences"]
    ]
    for key, heading, title in (
        ("curve", "bandwidth", "Bandwidth λ after 150 steps: a trade-off"),
        ("dampings", "damping", "Damping after 150 steps: a trade-off too"),
    ):
        shown[title] = [
            {
                heading: f"{row[heading]:g}",
                **({"σ share of tr(M)": f"{row['sigma_share']:.4f}"} if "sigma_share" in row else {}),
                **{f"flip ratio {name}": f"{row[f'flip_ratio {name}']:.2f}" for name in RIEMANNIAN},
                **{f"LD² {name}": f"{row[f'ld_sq {name}']:.3f}" for name in RIEMANNIAN},
            }
            for row in results[key]
        ]
    return {title: pd.DataFrame(rows) for title, rows in shown.items()}


def _show_steps(row: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, str]:
    """A row after a number of steps, the paper's figures in brackets."""

    def bracket(measure: str, digits: int) -> str:
        return f" ({theirs[measure]:.{digits}f})" if measure in theirs else ""

    line = {
        "steps": str(row["steps"]) if row["steps"] else "–",
        "fidelity": row["constraint"] if row["steps"] else "–",
        "method": row["optimizer"],
        "n": f"{row['n']:.0f}",
        HEADINGS["flip_ratio"]: f"{row['flip_ratio']:.2f}{bracket('flip_ratio', 2)}",
    }
    for measure in SHOWN:
        value = row.get(measure)
        if value is None or value["mean"] is None:
            line[HEADINGS[measure]] = "–"
            continue
        spread = "" if measure in ("violation", "path_ld_max") else f"±{value['std']:.2f}"
        digits = 3 if measure in ("ld_sq", "ld", "path_ld_max") else 2
        line[HEADINGS[measure]] = f"{value['mean']:.{digits}f}{spread}{bracket(measure, digits)}"
    return line


def _show_confidence(row: Mapping[str, Any]) -> dict[str, str]:
    line = {"confidence": f"{row['threshold']:g}", "method": row["optimizer"], "n": f"{row['n']:.0f}"}
    line["reach it"] = f"{row['ctr']:.3f}"
    for measure, digits in (("ld_sq", 4), ("path_ld_max_sq", 4), ("l1", 2), ("l2_sq", 2)):
        mean = row[measure]["mean"]
        line[HEADINGS[measure]] = "–" if mean is None else f"{mean:.{digits}f}"
    return line


def _show_seeds(spread: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    headings = {"flip_ratio": "flip ratio", "ld_sq_of_sgd": "LD² relative to SGD's", "l1": "L1", "l2_sq": "L2²"}
    return [
        {"method": name}
        | {
            heading: "–"
            if row[key] is None
            else f"{row[key]['median']:.2f} [{row[key]['lowest']:.2f}, {row[key]['highest']:.2f}]"
            for key, heading in headings.items()
        }
        for name, row in spread.items()
    ]


def _show_roadmap(figures: Mapping[str, float]) -> dict[str, str]:
    return {
        **{key: f"{figures[key]:.0f}" for key in ("nodes", "edges", "bridges")},
        "crosses a gap": f"{100 * figures['gap_share']:.1f} %",
        "equals a training row": f"{100 * figures['copy_share']:.1f} %",
        "built in": f"{figures['seconds_graph']:.1f} s",
        "routes": f"{figures['seconds_routes']:.1f} s",
        "refinement": f"{figures['seconds_refinement']:.1f} s",
    }


def caption(results: Mapping[str, Any]) -> str:
    """What was run, in a few sentences."""
    protocol, classifier, sigma = results["protocol"], results["classifier"], results["uncertainty"]
    return (
        f"Preset {results['preset']}, seeds {', '.join(map(str, results['seeds']))}. {protocol['factuals']:.0f} of "
        f"{protocol['test_negatives']:.0f} test negatives explained; balanced accuracy of the classifier "
        f"{classifier['balanced_accuracy_test']:.3f} (test), {classifier['balanced_accuracy_train']:.3f} (train). "
        f"Uncertainty: {_rbf_sizes(sigma)}σ "
        f"{sigma['sigma_on']:.3g} on held-out data and {sigma['sigma_off']:.3g} off the data (AUC {sigma['auc']:.3f}), "
        f"{100 * sigma['sigma_share']:.1f} % of tr(M). Damping {protocol['damping']:g}. Mean ± standard deviation over "
        "rows, averaged over seeds; distances over the rows named in each heading, the confidence over all rows, as "
        "the paper's must be. LD² and L2² are squared distances, what the paper calls LD and L2."
    )


def _rbf_sizes(sigma: Mapping[str, float]) -> str:
    if "bandwidth" not in sigma:
        return ""
    return f"λ = {sigma['bandwidth']:.2f}, {sigma['centers']:.0f} centres, ζ = {sigma['zeta']:g}, "

"""Who gets stuck under RSGD, and on what: validation rows of Adult or GMC, one seed from 100 on.

    python benchmarks/paper_stuck.py --data adult --seed 100 --epochs 28 --anneal

Prints, for rows that flip and rows that do not, the probability and the uncertainty along the path, the cosine between
one step and the next (−1: the path goes back and forth on the spot), which share of a step goes into each direction of
the decoder, from the one that it uses least to the one that it uses most, and what the people are like.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from counterpath.data.datasets import load
from counterpath.experiments.tabular import EXPERIMENTS, SETTINGS, Preset, build, local_search
from counterpath.geometry.metric import gram
from counterpath.models.training import Run
from counterpath.search.measures import MEASURES

STEPS = 150


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(EXPERIMENTS), default="adult")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--anneal", action="store_true")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--method", default="rsgd")
    parser.add_argument("--latent-dim", type=int)
    parser.add_argument("--damping", type=float, default=1e-6)
    parser.add_argument("--work", type=Path)
    asked = parser.parse_args()
    data = load(EXPERIMENTS[asked.data])
    settings = SETTINGS[data.name]
    settings = replace(settings, latent_dim=asked.latent_dim or settings.latent_dim)
    size = Preset(asked.epochs, 3 * asked.epochs, 0, asked.rows, 0, asked.anneal)
    run = Run(seed=asked.seed, checkpoint=asked.work, progress=False)
    study = build(data, size, run, torch.device("cpu"), settings, validation=True)
    path = local_search(study.models, asked.method, study.factual, steps=STEPS, damping=asked.damping)
    valid = MEASURES["valid"](study.case(path.end)) > 0
    groups = {"flipped": valid, "stuck": ~valid}
    print(f"{asked.data}, seed {asked.seed}, {asked.method}: {int(valid.sum())} of {len(valid)} flip")
    moves = path.z[1:] - path.z[:-1]
    cosines = torch.nn.functional.cosine_similarity(moves[1:], moves[:-1], dim=-1)
    for name, rows in groups.items():
        if not bool(rows.any()):
            continue
        along = [f"{path.probability[step][rows].mean():.2f}" for step in (0, 25, 50, 100, 150)]
        sigma = [f"{path.sigma[step][rows].mean():.2f}" for step in (0, 25, 50, 100, 150)]
        turns = [f"{cosines[part][:, rows].mean():.2f}" for part in (slice(0, 30), slice(30, 80), slice(80, None))]
        print(f"{name}: probability {along}, σ {sigma} after 0, 25, 50, 100, 150 steps; cosine of steps {turns}")
        for step in (0, 20, 100):
            values, axes = torch.linalg.eigh(gram(study.vae.linearize(path.z[step][rows]).mean_jac))
            move = moves[step][rows].double()[:, None] @ axes
            share = (move.square() / move.square().sum(-1, keepdim=True))[:, 0].mean(0)
            numbers = [f"{number:.2f}" for number in share.tolist()]
            used = [f"{number:.1e}" for number in values.median(0).values.tolist()]
            print(f"  step {step}: share by direction {numbers}, which are used by {used}")
        rows_of = study.encoder.decode(study.encoder.round(study.factual[rows])).mean(numeric_only=True)
        print("  " + ", ".join(f"{feature} {value:.3g}" for feature, value in rows_of.items()))


if __name__ == "__main__":
    main()

"""How far distances depend on the training that a latent space came from: RBF network and ensemble, digits, Adult.

    python benchmarks/stability.py --out docs/results/uncertainty/stability.json

Ten trainings of the VAE on the same rows, with other seeds each, short ones; the lengths of shortest paths between 50
pairs of rows under the pull-back metric of each; and over the trainings their coefficient of variation. Both estimates
share encoder and mean of a seed. Rows and pairs are the same throughout.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpath.data.datasets import load
from counterpath.experiments import digits
from counterpath.experiments.stability import coefficient_of_variation, geodesic_distances
from counterpath.experiments.tabular import EXPERIMENTS, EncodedData
from counterpath.models.layers import fold
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_vae
from counterpath.utils.files import write_json

KINDS = ("rbf", "ensemble")
EPOCHS, CENTERS, HIDDEN = 10, 60, (128, 64)
ADULT_ROWS, NODES, NEIGHBOURS = 2000, 300, 32
"""Different rows of Adult that are trained on; rows that the graph is made of, and to how many each is joined: with its
binary features, codes of Adult lie in clusters, which fewer would not connect."""
FIRST = 100  # of the seeds: none that results are reported for


def images() -> Tensor:
    """The training images of the digits."""
    return digits.scaled(digits.Digits.load(FIRST).train)


def people() -> Tensor:
    """Training rows of Adult, CARLA's version."""
    rows = torch.unique(EncodedData.of(load(EXPERIMENTS["adult"]), torch.device("cpu")).train, dim=0)
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(FIRST))[:ADULT_ROWS]]


DATA: dict[str, tuple[Callable[[], Tensor], int]] = {"digits": (images, 8), "adult": (people, 5)}
"""Rows, and how many latent directions."""


def measure(rows: Tensor, latent: int, retrainings: int, epochs: int) -> dict[str, Any]:
    """The coefficient of variation with each estimate."""
    training = VAETraining(mean_epochs=epochs, std_epochs=1, batch_size=128, learning_rate=2e-3, anneal=True)
    found = {}
    for kind in KINDS:
        lengths = []
        for seed in range(FIRST, FIRST + retrainings):
            run = Run(seed=seed, progress=False)
            options: dict[str, Any] = {"hidden": HIDDEN, "centers": CENTERS, "training": training, "run": run}
            vae = fit_vae(rows, latent, uncertainty=kind, **options)
            lengths.append(geodesic_distances(fold(vae), rows[:NODES], seed=FIRST, neighbours=NEIGHBOURS))
        found[kind] = coefficient_of_variation(torch.stack(lengths))
        print(kind, found[kind], flush=True)
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retrainings", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    results: dict[str, Any] = {"retrainings": asked.retrainings, "epochs": asked.epochs, "first_seed": FIRST}
    for name, (rows, latent) in DATA.items():
        print(name, flush=True)
        results[name] = measure(rows(), latent, asked.retrainings, asked.epochs)
        write_json(asked.out, results)


if __name__ == "__main__":
    main()

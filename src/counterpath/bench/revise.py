"""REVISE row by row, as the benchmark library CARLA runs it, on our autoencoder and our classifier.

Kept, with CARLA's defaults: one row at a time; z starts at the mean code of the row; Adam with learning rate 0.1 takes
all 1,000 steps on

    BCE(c(x), 1) + 0.5·‖x − x₀‖₁    with x = μ(z), its binary columns rounded to 0 or 1,

through which no gradient comes; of all steps whose row the classifier accepts, the one with the smallest loss is
returned. There is no other stop: rows that are accepted early pay for all steps.

Different, and all in its favour: the classifier is asked once a step and not twice; the models are frozen, with
BatchNorm folded, so nothing is differentiated but z; only the best row so far is kept, and nothing is copied to NumPy;
no autoencoder has to be trained first.

References:
    Joshi et al., "Towards realistic individual recourse and actionable explanations in black-box decision making
    systems", 2019.
    Pawelczyk et al., "CARLA: a Python library to benchmark algorithmic recourse and counterfactual explanation
    algorithms", NeurIPS 2021; https://github.com/carla-recourse/CARLA.
"""

from collections import Counter

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.bench.found import Finder, Found
from counterpath.data.encoding import Encoder
from counterpath.experiments.study import Study
from counterpath.models.classifier import Classifier
from counterpath.models.vae import VAE
from counterpath.progress import Advance

ITERATIONS = 1000
LEARNING_RATE = 0.1
DISTANCE_WEIGHT = 0.5


def prepare_revise(study: Study, *, iterations: int = ITERATIONS) -> Finder:
    """The loop over rows, on the models of a study."""
    binary = binary_columns(study.encoder).to(study.factual.device)

    def find(factual: Tensor, advance: Advance) -> Found:
        rows, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool, device=factual.device)
        for row in range(len(factual)):
            best = revise(study.vae, study.classifier, factual[row : row + 1], binary, iterations=iterations)
            if best is not None:
                rows[row], exists[row] = best[0], True
            advance()
        lacking = int((~exists).sum())
        return Found(rows, exists, Counter({"no step was accepted": lacking} if lacking else {}))

    return find


def revise(
    vae: VAE,
    classifier: Classifier,
    factual: Float[Tensor, "1 D"],
    binary: Bool[Tensor, "D"],
    *,
    iterations: int = ITERATIONS,
) -> Float[Tensor, "1 D"] | None:
    """The best accepted row of one descent, or None where no step was accepted.

    Args:
        vae: The space to descend in.
        classifier: Has to accept.
        factual: x₀.
        binary: Which columns are rounded.
        iterations: Steps of Adam.
    """
    z = vae.encode(factual).detach().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=LEARNING_RATE)
    best, least = None, float("inf")
    wanted = factual.new_ones(1)
    for _ in range(iterations):
        decoded = vae.decode(z)
        x = torch.where(binary, decoded.round(), decoded)
        log_odds = classifier(x)
        loss = F.binary_cross_entropy_with_logits(log_odds, wanted) + DISTANCE_WEIGHT * (x - factual).abs().sum()
        if float(log_odds.detach()) > 0 and float(loss.detach()) < least:
            best, least = x.detach(), float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return best


def binary_columns(encoder: Encoder) -> Bool[Tensor, "D"]:
    """Which encoded columns are 0 or 1 in every legal row: those of two categories, and one-hot ones."""
    binary = encoder.categorical.clone()
    for feature, columns in zip(encoder.schema, encoder.layout, strict=True):
        if len(feature.categories) == 2:
            binary[columns] = True
    return binary

"""CRUDS: downhill in the subspace of a generative model that tells the classes apart.

A conditional subspace VAE (`models.csvae`) splits the code of a row into w, which hangs on the class, and z, which
does not. The row keeps its z, and what it may not change; only w moves:

    min over w of  −log p(μ(w, z)) + λ‖μ(w, z) − x‖²,

by Adam, λ = 0.001 as in CARLA; of the accepted rows on the way the one of least loss is taken. The class that the VAE
is trained with is what the explained model says, above or below the median of a regressor.

References:
    Downs et al., "CRUDS: counterfactual recourse using disentangled subspaces", ICML workshop WHI, 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpath.geometry.metric import Linearization, axes, jacobian
from counterpath.models.csvae import CSVAE, fit_csvae
from counterpath.models.training import Run
from counterpath.search.literature.ends import Best, descend_codes, target_loss
from counterpath.search.method import Method, Problem, SearchOptions, SearchSetup
from counterpath.search.paths import Paths
from counterpath.utils.devices import map_blocks

LEARNING_RATE, DISTANCE_WEIGHT = 0.1, 0.001
"""Of Adam on w, whose classes lie a few units apart; λ is CARLA's."""
SUBSPACE, LATENT = 2, 6
"""Widths of w, as in the paper and in CARLA, and of z: together a little more than the codes of our VAE."""
_MOST_ROWS = 20_000  # that the VAE is trained on, evenly spaced: 40 epochs of so many take some seconds


@dataclass(frozen=True)
class _Subspace:
    """The decoder as a function of w alone; the context of a row is its z."""

    model: CSVAE

    def encode(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        raise NotImplementedError("w hangs on the class, too: see CSVAE.codes")

    def decode(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return self.linearize(z, context).mean

    def uncertainty(self, z: Tensor, context: Tensor | None = None) -> None:
        return None

    def linearize(self, z: Tensor, context: Tensor | None = None) -> Linearization:
        assert context is not None
        point = torch.cat([z, context], -1)
        return Linearization(*jacobian(self.model.decoder, point, axes(point, self.model.subspace)))


class Cruds(Method):
    """CRUDS.

    Args:
        learning_rate: Of Adam.
        distance_weight: λ.
    """

    name = "cruds"
    description = "downhill in the part of a latent space that tells the classes apart (CRUDS)"
    chooses_features = False

    def __init__(self, learning_rate: float = LEARNING_RATE, distance_weight: float = DISTANCE_WEIGHT) -> None:
        self.learning_rate, self.distance_weight = learning_rate, distance_weight

    def fit(self, setup: SearchSetup, options: SearchOptions) -> CSVAE:
        """The conditional subspace VAE."""
        some = slice(None, None, -(-len(setup.rows) // _MOST_ROWS))
        rows, y = setup.rows[some], _classes(setup, setup.probabilities)[some]
        run = Run(seed=setup.seed, progress=options.progress)
        return fit_csvae(rows, y, latent=LATENT, subspace=SUBSPACE, blocks=setup.encoder.blocks, run=run)

    def state_to_tensors(self, state: CSVAE) -> dict[str, Tensor]:
        """Its weights."""
        return dict(state.state_dict())

    def state_from_tensors(self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]) -> CSVAE:
        """The VAE with its weights."""
        classes = _classes(setup, setup.probabilities[:1]).shape[1]
        model = CSVAE(setup.rows.shape[1], classes, latent=LATENT, subspace=SUBSPACE, blocks=setup.encoder.blocks).to(
            setup.rows
        )
        model.load_state_dict(dict(tensors))
        return model.eval().requires_grad_(False)

    def search(self, problem: Problem) -> Paths:
        """The accepted row of least loss that Adam visits."""
        model: CSVAE = problem.state
        setup, feasible, best = problem.setup, problem.feasible, Best.of(problem)
        factual, toward = feasible.factual, target_loss(problem)
        y = _classes(setup, setup.predict_proba(factual))
        width = model.subspace
        with torch.no_grad():
            codes = map_blocks(lambda x, y: torch.cat(model.codes(x, y), -1), factual, y)

        def loss(x: Tensor, factual: Tensor) -> Tensor:
            return toward(x, factual) + self.distance_weight * (x - factual).square().sum(-1)

        descend_codes(
            best,
            _Subspace(model),
            codes[:, :width],
            codes[:, width:],
            loss,
            learning_rate=self.learning_rate,
            fixed=feasible.fixed,
        )
        return best.paths()


def _classes(setup: SearchSetup, said: Tensor) -> Any:
    """The class of rows, one-hot: what the model says, or whether its number is above the median of all."""
    if said.shape[1] == 1:
        above = (said[:, 0] > setup.probabilities[:, 0].median()).long()
        return torch.nn.functional.one_hot(above, 2).to(setup.rows)
    return torch.nn.functional.one_hot(said.argmax(-1), said.shape[1]).to(setup.rows)

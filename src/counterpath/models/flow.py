"""A normalizing flow behind the latent-model protocol."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.geometry.metric import Linearization, jacobian_autodiff
from counterpath.models.training import Run, seeded, train
from counterpath.utils.errors import require


class FlowModel(nn.Module):
    """A neural spline flow (zuko): z = T(x) with a latent space as wide as the data and no uncertainty.

    Args:
        features: D, the width of a row and of a code.
        transforms: How many spline transforms are composed.
        hidden: Widths of the hidden layers of each.

    References:
        Durkan et al., "Neural spline flows", NeurIPS 2019.
        Dombrowski et al., "Diffeomorphic counterfactuals with generative models", 2023: SGD in its latent space.
    """

    def __init__(self, features: int, *, transforms: int = 3, hidden: tuple[int, ...] = (64, 64)) -> None:
        super().__init__()
        zuko = require("zuko", "flow", "a normalizing flow")
        self.flow = zuko.flows.NSF(features, transforms=transforms, hidden_features=hidden)

    def encode(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """T(x)."""
        return self.flow().transform(x)  # type: ignore[no-any-return]

    def decode(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """T⁻¹(z)."""
        return self.flow().transform.inv(z)  # type: ignore[no-any-return]

    def uncertainty(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> None:
        """None: a flow maps every code to a row with certainty."""

    def linearize(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Linearization:
        """T⁻¹(z) with its Jacobian."""
        return Linearization(*jacobian_autodiff(self.decode, z))


def fit_flow(
    x: Float[Tensor, "n D"],
    *,
    transforms: int = 3,
    hidden: tuple[int, ...] = (64, 64),
    epochs: int = 100,
    batch_size: int = 512,
    learning_rate: float = 1e-3,
    run: Run | None = None,
    **loop: Any,
) -> FlowModel:
    """Fit a flow by maximum likelihood; `loop` goes to `training.train`."""
    run = run or Run()
    with seeded(run.seed):
        model = FlowModel(x.shape[-1], transforms=transforms, hidden=hidden).to(x)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        return -model.flow().log_prob(batch[0]).mean()  # type: ignore[no-any-return]

    adam = partial(torch.optim.Adam, lr=learning_rate)
    train("flow", model, loss, (x,), epochs=epochs, batch_size=batch_size, optimizer=adam, run=run, **loop)
    return model.requires_grad_(False)

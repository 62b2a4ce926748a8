"""A conditional subspace VAE: what tells the classes apart lies in a subspace of its own.

A row is generated from w, which hangs on the class y, and z, which does not:

    p(x, w, z | y) = p(x | w, z)·p(w | y)·p(z),      q(w, z | x, y) = q(w | x, y)·q(z | x).

Trained by the evidence lower bound, and by an adversary: a classifier of z, which z is trained to leave uncertain, so
that nothing about y is left in it.

References:
    Klys, Snell and Zemel, "Learning latent subspaces in variational autoencoders", NeurIPS 2018.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.models.layers import TableOutput, mlp
from counterpath.models.training import Run, seeded, train

_HIDDEN = (64, 64)
"""Widths of the hidden layers: enough to learn tables of 50 columns, and trained in seconds."""
_RECONSTRUCTION = 20.0  # weight of the squared error: 1/(2σ²) of a decoder that is right to 0.16 of a range
_ADVERSARY = 10.0  # weight of the entropy that z leaves about y, as in CARLA


class CSVAE(nn.Module):
    """The networks of the model.

    Args:
        features: D, the width of a row.
        classes: K, how many classes there are.
        latent: The width of z.
        subspace: The width of w.
        blocks: The columns of each one-hot category, as (first, last + 1).
    """

    def __init__(
        self, features: int, classes: int, *, latent: int, subspace: int, blocks: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__()
        self.subspace = subspace
        net = partial(mlp, batch_norm=False)
        final = TableOutput(features, blocks, nn.Sigmoid()) if blocks else nn.Sigmoid()
        self.encode_z = net([features, *_HIDDEN, 2 * latent])
        self.encode_w = net([features + classes, *_HIDDEN, 2 * subspace])
        self.prior_w = net([classes, 16, 2 * subspace])
        self.decoder = net([subspace + latent, *_HIDDEN, features], final=final)
        self.adversary = net([latent, *_HIDDEN, classes])

    def codes(
        self, x: Float[Tensor, "n D"], y: Float[Tensor, "n K"]
    ) -> tuple[Float[Tensor, "n s"], Float[Tensor, "n d"]]:
        """The means of w and z."""
        return self.encode_w(torch.cat([x, y], -1)).chunk(2, -1)[0], self.encode_z(x).chunk(2, -1)[0]

    def loss(self, x: Float[Tensor, "n D"], y: Float[Tensor, "n K"], generator: torch.Generator) -> Float[Tensor, ""]:
        """The negative bound, what z still tells about y, and the adversary's own loss."""
        w_mean, w_log = self.encode_w(torch.cat([x, y], -1)).chunk(2, -1)
        z_mean, z_log = self.encode_z(x).chunk(2, -1)
        p_mean, p_log = self.prior_w(y).chunk(2, -1)
        w, z = (_sample(*each, generator) for each in ((w_mean, w_log), (z_mean, z_log)))
        error = (self.decoder(torch.cat([w, z], -1)) - x).square().sum(-1)
        prior = _divergence(w_mean, w_log, p_mean, p_log) + _divergence(z_mean, z_log, 0 * z_mean, 0 * z_log)
        frozen = {name: parameter.detach() for name, parameter in self.adversary.named_parameters()}
        said = torch.func.functional_call(self.adversary, frozen, (z,)).log_softmax(-1)
        told = (said.exp() * said).sum(-1)  # minus the entropy
        own = F.cross_entropy(self.adversary(z.detach()), y)
        total: Tensor = (_RECONSTRUCTION * error + prior + _ADVERSARY * told).mean() + own
        return total


def _sample(mean: Tensor, log_variance: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    return mean + (0.5 * log_variance).exp() * noise


def _divergence(mean: Tensor, log: Tensor, other_mean: Tensor, other_log: Tensor) -> Tensor:
    """KL of one Gaussian from another."""
    ratio = (log - other_log).exp() + (mean - other_mean).square() / other_log.exp()
    return 0.5 * (ratio - 1 - log + other_log).sum(-1)


def fit_csvae(
    x: Float[Tensor, "n D"],
    y: Float[Tensor, "n K"],
    *,
    latent: int,
    subspace: int = 2,
    blocks: Sequence[tuple[int, int]] = (),
    epochs: int = 40,
    batch_size: int | None = None,
    learning_rate: float = 2e-3,
    run: Run | None = None,
) -> CSVAE:
    """Fit the model to rows and their classes, one-hot; by default in batches of a twentieth of the rows, 32 to 512."""
    run, batch_size = run or Run(), batch_size or min(max(len(x) // 20, 32), 512)
    with seeded(run.seed):
        model = CSVAE(x.shape[1], y.shape[1], latent=latent, subspace=subspace, blocks=blocks).to(x)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        return model.loss(batch[0], batch[1], generator)

    adam = partial(torch.optim.Adam, lr=learning_rate)
    train("csvae", model, loss, (x, y), epochs=epochs, batch_size=batch_size, optimizer=adam, run=run, anneal=True)
    return model.requires_grad_(False)

"""A user's encoder and decoder as a space to search in, and rows drawn from any generative model."""

import copy
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from counterpath.geometry.metric import Linearization, jacobian
from counterpath.models.latent import LatentModel, context_for
from counterpath.models.layers import DEFAULT_ZETA, RBFPrecision
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError


@runtime_checkable
class Autoencoder(Protocol):
    """What a generator must offer: `encode` and `decode` on encoded rows, in torch, row by row."""

    def encode(self, x: Tensor) -> Tensor:
        """The codes `(n, d)` of rows `(n, D)`."""
        ...

    def decode(self, z: Tensor) -> Tensor:
        """The rows that codes stand for; differentiable."""
        ...


class Generator(nn.Module):
    """A user's encoder and decoder, with our uncertainty on top.

    Works on a frozen copy in evaluation mode: the user's own module is left as it is.

    Args:
        autoencoder: A torch module with `encode` and `decode`.
        rows: Some encoded rows, to see whether it works on them.
        centers: RBF centres of the uncertainty; fewer where the rows have fewer different codes.
        category: Which columns of a row are probabilities of categories; None for none.
        zeta: Floor ζ of the precision.
    """

    category: Tensor | None

    def __init__(
        self,
        autoencoder: Autoencoder,
        rows: Float[Tensor, "n D"],
        *,
        centers: int,
        category: Bool[Tensor, "D"] | None = None,
        zeta: float = DEFAULT_ZETA,
    ) -> None:
        super().__init__()
        self.autoencoder = _check_autoencoder(autoencoder, rows)
        codes = self.encode(rows)
        self.latent = codes.shape[-1]
        centers = min(centers, len(torch.unique(codes, dim=0)))
        self.precision = RBFPrecision(self.latent, rows.shape[-1], centers, zeta=zeta).to(rows)
        self.register_buffer("category", category, persistent=False)

    def posterior(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The code of a row, and no spread."""
        code = self.encode(x)
        return code, torch.zeros_like(code)

    def encode(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n d"]:
        """The user's code."""
        return self.autoencoder.encode(x)  # type: ignore[no-any-return, operator]

    def decode(self, z: Float[Tensor, "n d"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """The user's μ(z)."""
        return self.autoencoder.decode(z)  # type: ignore[no-any-return, operator]

    def uncertainty(self, z: Float[Tensor, "n d"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """Our σ(z)."""
        return self.precision(z)  # type: ignore[no-any-return]

    def linearize(self, z: Float[Tensor, "n d"], context: Tensor | None = None) -> Linearization:
        """μ(z) and σ(z) with their Jacobians by z."""
        return Linearization(*jacobian(self.decode, z), *jacobian(self.precision, z), self.category)


def _check_autoencoder(autoencoder: Autoencoder, rows: Tensor) -> nn.Module:
    if not isinstance(autoencoder, nn.Module) or not isinstance(autoencoder, Autoencoder):
        raise InputError(
            f"a generator is a torch module with methods encode(x) and decode(z); given {type(autoencoder).__name__}"
        )
    module = copy.deepcopy(autoencoder).to(rows).eval().requires_grad_(False)
    try:
        with torch.no_grad():
            codes = module.encode(rows)
            decoded = module.decode(codes)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"the generator cannot be run on encoded rows of {rows.shape[-1]} columns ({error}); it must take the "
            "encoder's tensor"
        ) from error
    if codes.ndim != 2 or len(codes) != len(rows) or decoded.shape != rows.shape:
        raise InputError(
            f"the generator maps rows {tuple(rows.shape)} to codes {tuple(codes.shape)} and back to rows "
            f"{tuple(decoded.shape)}; expected codes (n, d) and rows {tuple(rows.shape)}"
        )
    if not (codes.isfinite().all() and decoded.isfinite().all()):
        raise InputError("the generator gives codes or rows that are not finite on the training rows")
    with torch.enable_grad():
        if not module.decode(codes.clone().requires_grad_()).requires_grad:
            raise InputError("the generator's decode(z) is not differentiable by z: use torch operations throughout")
    return module


@torch.no_grad()
def draw(model: LatentModel, x: Float[Tensor, "n D"], count: int, *, seed: int) -> Float[Tensor, "m D"]:
    """Rows that the model generates, around the rows `x` and between them.

    A code is that of a random row, moved by up to half of the way towards that of another one, with noise of a tenth of
    the codes' spread: where searches lead, and not only where the data are. A conditional model is
    conditioned on the columns of the first row.
    """
    codes, context = map_blocks(model.encode, x), context_for(model, x)
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randint(len(x), (count,), generator=generator).to(x.device) for _ in range(2))
    weight = 0.5 * torch.rand(count, 1, generator=generator).to(x)
    noise = 0.1 * torch.randn(count, codes.shape[-1], generator=generator).to(x) * codes.std(0)
    drawn = torch.lerp(codes[first], codes[second], weight) + noise
    return map_blocks(model.decode, drawn, None if context is None else context[first])

"""A variational autoencoder whose decoder is uncertain where it has not seen data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from counterpath.geometry.metric import Linearization, axes
from counterpath.geometry.ordered import Ordered
from counterpath.models.latent import (
    concat_context,
    context_for,
    copy_conditioned,
    draw_masks,
    make_context,
    membership,
    split_context,
)
from counterpath.models.layers import DEFAULT_ZETA, RBFPrecision, TableOutput, mlp
from counterpath.models.training import MakeOptimizer, Run, check_finite, seeded, train
from counterpath.models.uncertainty import (
    Ensemble,
    LastLayerLaplace,
    Shape,
    make_uncertainty,
    stack,
    unstack,
)
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError, choose
from counterpath.utils.progress import track

OUTPUTS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "linear": nn.Identity}


class VAE(nn.Module):
    """Gaussian VAE: z ~ N(m(x), s(x)²), x = μ(z) + σ(z)⊙ε, with σ from an RBF network or another estimate.

    Args:
        features: D, the width of a row.
        latent: d, the width of a code.
        hidden: Widths of the encoder's hidden layers; the decoder mirrors them.
        conditional: Whether mean and uncertainty are conditioned on some columns of the row, which are copied through
            (see `context`). The others stay plausible given those, and the uncertainty is one of code and conditioned
            columns together: a code that no row with these columns has is off the data. The code itself does not
            depend on the context.
        always_conditioned: Columns on which the model is always conditioned.
        output: "sigmoid" for rows in [0, 1], "linear" for rows without bounds.
        blocks: The columns of each one-hot category, as (first, last + 1); their probabilities come from a softmax.
        levels: Columns with levels in an order, as (column, number of levels), which the metric is to measure as such
            and not like numbers (see `geometry.ordered`); they lie between 0 and 1, so the output must.
        uncertainty: How σ is estimated: "rbf", "ensemble" or "laplace" (see `models.uncertainty`).
        centers: RBF centres of the uncertainty.
        tied: Whether all centres share one weight a feature (see `RBFPrecision`).
        zeta: Floor ζ of the precision.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014.
    """

    def __init__(
        self,
        features: int,
        latent: int,
        *,
        hidden: tuple[int, ...] = (512, 256),
        conditional: bool = False,
        always_conditioned: Sequence[int] = (),
        output: str = "sigmoid",
        blocks: Sequence[tuple[int, int]] = (),
        levels: Sequence[tuple[int, int]] = (),
        uncertainty: str = "rbf",
        centers: int = 200,
        tied: bool = True,
        zeta: float = DEFAULT_ZETA,
    ) -> None:
        super().__init__()
        if len(always_conditioned) and not conditional:
            raise InputError("always_conditioned= is for a conditional VAE: give conditional=True, too")
        if levels and output != "sigmoid":
            raise InputError(
                f"levels= are measured between 0 and 1, where only output='sigmoid' stays; given {output!r}"
            )
        self.latent, self.conditional, self.output = latent, conditional, output
        number = choose("output", output, OUTPUTS)()
        final = TableOutput(features, blocks, number) if blocks else number
        context = 2 * features if conditional else 0
        self.encoder = mlp([features, *hidden, 2 * latent])
        self.decoder = mlp([latent + context, *reversed(hidden), features], final=final)
        self.register_buffer("category", category_columns(features, blocks), persistent=False)
        ordered = Ordered.of(levels)
        self.register_buffer("ordered_columns", ordered.columns, persistent=False)
        self.register_buffer("ordered_thresholds", ordered.thresholds, persistent=False)
        always = torch.zeros(features, dtype=torch.bool)
        always[list(always_conditioned)] = True
        self.register_buffer("always_conditioned", always, persistent=False)
        row_width = features if conditional else 0
        shape = Shape(self.decoder, latent, features, row_width, centers, tied, zeta)
        self.uncertainty_kind = uncertainty
        self.precision = make_uncertainty(uncertainty, shape)

    category: Tensor | None
    ordered_columns: Tensor
    ordered_thresholds: Tensor
    always_conditioned: Tensor
    precision: Any  # an `Uncertainty`, most often `RBF`

    @property
    def ordered(self) -> Ordered | None:
        """The columns with levels in an order, if they are measured as such."""
        return Ordered(self.ordered_columns, self.ordered_thresholds) if len(self.ordered_columns) else None

    def context(
        self, x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"] | None = None
    ) -> Float[Tensor, "n 2*D"] | None:
        """The context of rows: the columns of the mask, and those on which the model is always conditioned.

        None for a model that is not conditional.
        """
        if not self.conditional:
            return None
        always = self.always_conditioned
        return make_context(x, always.expand_as(x) if mask is None else mask | always)

    def posterior(
        self, x: Float[Tensor, "n D"], context: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        """Mean m(x) and standard deviation s(x) of the approximate posterior."""
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, torch.exp(0.5 * log_variance)

    def encode(self, x: Float[Tensor, "n D"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n d"]:
        """m(x)."""
        return self.posterior(x)[0]

    def decode(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """μ(z), with the conditioned columns copied."""
        mean = self.precision.decode(self.decoder, concat_context(z, self._check(context)))
        return mean if context is None else copy_conditioned(mean, context)

    def uncertainty(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """σ(z), given the context."""
        std: Tensor = self.precision.std(self.decoder, concat_context(z, self._check(context)))
        return self._certain(std, context)

    def linearize(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Linearization:
        """μ(z) and σ(z) with their Jacobians by z; conditioned columns do not move."""
        point = concat_context(z, self._check(context))
        lin: Linearization = self.precision.linearize(self.decoder, point, axes(point, self.latent))
        lin = replace(lin, category=self.category, ordered=self.ordered)
        if context is None:
            return lin
        copied = split_context(context)[1][..., None]
        lin = replace(lin, mean=copy_conditioned(lin.mean, context), mean_jac=torch.where(copied, 0, lin.mean_jac))
        if self.uncertainty_kind == "rbf":
            return lin
        std, std_jac, deviations = lin.std, lin.std_jac, lin.deviations
        return replace(
            lin,
            std=None if std is None else self._certain(std, context),
            std_jac=None if std_jac is None else torch.where(copied, 0, std_jac),
            deviations=None if deviations is None else torch.where(copied, 0, deviations),
        )

    def _certain(self, std: Tensor, context: Tensor | None) -> Tensor:
        """σ without the conditioned columns, which are copied, and about which decoders are never asked.

        That of an RBF network stays: it is one density of code and conditioned columns together.
        """
        if context is None or self.uncertainty_kind == "rbf":
            return std
        return torch.where(split_context(context)[1], 0, std)

    def _check(self, context: Tensor | None) -> Tensor | None:
        if self.conditional != (context is not None):
            kind = "conditional: give it the context that `context` makes" if self.conditional else "not conditional"
            raise InputError(f"this VAE is {kind}; its context is {'missing' if context is None else 'too much'}")
        return context


def category_columns(width: int, blocks: Sequence[tuple[int, int]]) -> Bool[Tensor, "D"] | None:
    """Which of `width` columns belong to a category; None if none does."""
    if not blocks:
        return None
    mask = torch.zeros(width, dtype=torch.bool)
    for first, end in blocks:
        mask[first:end] = True
    return mask


DrawContext = Callable[[Tensor, torch.Generator], Tensor]
"""Draws random contexts of rows in training."""


@dataclass(frozen=True)
class VAETraining:
    """How a VAE is trained; the defaults are those of the paper's appendix.

    Attributes:
        mean_epochs: Epochs for encoder and mean.
        std_epochs: Epochs for an RBF network with one weight a feature and centre, with encoder and mean frozen. Where
            all centres share one weight a feature, the likelihood has its maximum in closed form, and takes none.
        batch_size: Rows in a batch.
        learning_rate: Adam's, for encoder and mean.
        std_learning_rate: Adam's, for the RBF network.
        beta: Weight of the Kullback–Leibler term beside the squared error, which is summed over the features.
        category_weight: Weight of a category's cross entropy beside the squared error of numbers.
        bandwidth: λ of the RBF network, or "auto" (see `RBFPrecision.fit_centers`).
        per_center: With "auto", one λ a centre.
        noise: Standard deviation of noise that the rows are taken to carry, added to what the mean gets wrong when the
            uncertainty is fitted. Rounded and binary features can be reconstructed to a thousandth of their range; σ
            would follow, and with it the weight of σ in the metric would vanish.
        anneal: Let the learning rates fall to nothing along half a cosine.
        epoch_rows: Rows that make an epoch where there are more; None for all.
        std_rows: Rows that the uncertainty is fitted to, at equal distances, where there are more; None for all.
    """

    mean_epochs: int = 100
    std_epochs: int = 300
    batch_size: int = 512
    learning_rate: float = 1e-3
    std_learning_rate: float = 1e-3
    beta: float = 1e-4
    category_weight: float = 0.1
    bandwidth: float | str = "auto"
    per_center: bool = False
    noise: float = 0.1
    anneal: bool = False
    epoch_rows: int | None = None
    std_rows: int | None = None

    def adam(self, rate: float) -> MakeOptimizer:
        """Adam with this learning rate."""
        return partial(torch.optim.Adam, lr=rate, fused=True) if self.anneal else partial(torch.optim.Adam, lr=rate)

    @property
    def loop(self) -> dict[str, Any]:
        """How the training loop goes through the rows."""
        return {"batch_size": self.batch_size, "epoch_rows": self.epoch_rows, "anneal": self.anneal}


def fit_vae(
    x: Float[Tensor, "n D"],
    latent: int,
    *,
    features: Sequence[slice] | None = None,
    always_conditioned: Sequence[int] = (),
    hidden: tuple[int, ...] = (512, 256),
    output: str = "sigmoid",
    blocks: Sequence[tuple[int, int]] = (),
    levels: Sequence[tuple[int, int]] = (),
    uncertainty: str = "rbf",
    centers: int = 200,
    tied: bool = True,
    zeta: float = DEFAULT_ZETA,
    training: VAETraining | None = None,
    run: Run | None = None,
    index: Int[Tensor, "m"] | None = None,
) -> VAE:
    """Fit a VAE in two phases: encoder and mean first; then both are frozen and only the uncertainty is fitted.

    With the columns of its `features` it learns to be conditioned on any of them, by masks drawn at random in training;
    on `always_conditioned` columns it is conditioned always. With an `index` it is fitted to these rows alone, which
    are not copied: of a large table they may be nearly all.

    References:
        Detlefsen, Jørgensen and Hauberg, "Reliable training and estimation of variance networks", NeurIPS 2019.
    """
    run = run or Run()
    check_finite("VAE", x)
    index = torch.arange(len(x), device=x.device) if index is None else index
    if uncertainty == "rbf" and len(index) < centers:
        raise InputError(f"{centers} RBF centres need at least as many rows; given {len(index)}: use fewer centres")
    with seeded(run.seed):
        vae = VAE(
            x.shape[-1],
            latent,
            hidden=hidden,
            conditional=features is not None,
            always_conditioned=always_conditioned,
            output=output,
            blocks=blocks,
            levels=levels,
            uncertainty=uncertainty,
            centers=centers,
            tied=tied,
            zeta=zeta,
        ).to(x)
    training = training or VAETraining()
    draw_context = None if features is None else _context_sampler(vae, membership(features, x.shape[-1]).to(x))
    _fit_mean(vae, x, index, draw_context, training, run)
    fit_uncertainty(vae, x, draw_context=draw_context, training=training, run=run, index=index)
    return vae


def _context_sampler(vae: VAE, member: Float[Tensor, "f D"]) -> DrawContext:
    return lambda x, generator: make_context(x, draw_masks(len(x), member, vae.always_conditioned, generator))


def _fit_mean(
    vae: VAE, table: Tensor, index: Tensor, draw_context: DrawContext | None, training: VAETraining, run: Run
) -> None:
    vae.precision.requires_grad_(False)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        (rows,) = batch
        x = table[rows]
        context = None if draw_context is None else draw_context(x, generator)
        mean, std = vae.posterior(x)
        decoded = vae.decoder(concat_context(_sample(mean, std, generator), context))
        decoded = decoded if context is None else copy_conditioned(decoded, context)
        error = _error(decoded, x, vae.category, training.category_weight)
        divergence = 0.5 * (mean.square() + std.square() - 1 - 2 * std.log()).sum(-1)
        return (error + training.beta * divergence).mean()

    adam = training.adam(training.learning_rate)
    known = table, index, *vae.state_dict().values()
    epochs = training.mean_epochs
    train("vae mean", vae, loss, (index,), epochs=epochs, optimizer=adam, run=run, identity=known, **training.loop)


def _error(decoded: Tensor, x: Tensor, category: Tensor | None, weight: float) -> Float[Tensor, "*n"]:
    """Squared error of numbers plus weighted cross entropy of categories."""
    squared = (decoded - x).square()
    if category is None:
        return squared.sum(-1)
    cross_entropy = -x * decoded.clamp_min(1e-7).log()
    return torch.where(category, weight * cross_entropy, squared).sum(-1)


@runtime_checkable
class UncertainModel(Protocol):
    """A generative model whose uncertainty `precision` can be fitted."""

    precision: Any

    def posterior(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the codes of rows."""
        ...

    def decode(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """The rows that codes stand for."""
        ...


def fit_uncertainty(
    vae: UncertainModel,
    x: Float[Tensor, "n D"],
    *,
    draw_context: DrawContext | None = None,
    training: VAETraining,
    run: Run,
    index: Int[Tensor, "m"] | None = None,
) -> None:
    """Fit the estimate of uncertainty, with encoder and mean frozen; to rows of an index, or all.

    Codes are drawn from the posterior, and contexts by `draw_context`. An RBF network maximises the likelihood
    N(x; μ(z), σ(z)²), the further members of an ensemble are trained as the first one was, and a Laplace approximation
    is taken where the training has ended.
    """
    assert isinstance(vae, nn.Module)
    vae.eval().requires_grad_(False)
    fewer = training.std_rows is not None and not isinstance(vae.precision, Ensemble)  # members see what the first saw
    if fewer and training.std_rows:
        index = torch.arange(len(x), device=x.device) if index is None else index
        index = index[:: -(-len(index) // training.std_rows)]
    codes = _codes(vae, x if index is None else x[index])
    if isinstance(vae.precision, RBFPrecision):
        _fit_rbf(vae, codes, draw_context, training, run)
    elif isinstance(vae, VAE) and isinstance(vae.precision, Ensemble):
        _fit_ensemble(vae, codes, draw_context, training, run)
    elif isinstance(vae, VAE) and isinstance(vae.precision, LastLayerLaplace):
        _fit_laplace(vae, codes, draw_context, training, run)
    else:
        raise InputError(f"no way is known to fit an uncertainty of type {type(vae.precision).__name__}")
    vae.requires_grad_(False)


@dataclass(frozen=True)
class _Codes:
    """Rows with mean and standard deviation of their codes."""

    x: Float[Tensor, "n D"]
    mean: Float[Tensor, "n d"]
    std: Float[Tensor, "n d"]

    def draw(self, seed: int, draw_context: DrawContext | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows, and codes and contexts drawn for them; of a small table each row several times."""
        generator = torch.Generator(self.x.device).manual_seed(seed)
        times = -(-_DRAWS // len(self.x))
        parts = self.x, self.mean, self.std
        x, mean, std = parts if times == 1 else (part.repeat(times, 1) for part in parts)
        context = None if draw_context is None else draw_context(x, generator)
        return x, _sample(mean, std, generator), context


_DRAWS = 20_000
"""Codes on which an uncertainty with a few numbers is fitted, at least: they are then known to a hundredth."""


def _codes(vae: nn.Module, x: Tensor) -> _Codes:
    with torch.no_grad():
        both = map_blocks(lambda rows: torch.cat(vae.posterior(rows), -1), x)  # type: ignore[operator]
    return _Codes(x, *both.chunk(2, -1))


def _fit_rbf(vae: Any, codes: _Codes, draw_context: DrawContext | None, training: VAETraining, run: Run) -> None:
    """Place the centres, and fit W by maximum likelihood."""
    precision, x, mean, std = vae.precision, codes.x, codes.mean, codes.std
    context = context_for(vae, x)
    with torch.no_grad():
        error = map_blocks(vae.decode, mean, context) - x
        spread = (error.square().mean(0) + training.noise**2).sqrt()
    where = concat_context(mean, context)
    del context, error  # each as large as the rows
    precision.fit_centers(
        where,
        spread,
        bandwidth=training.bandwidth,
        per_center=training.per_center,
        rows=x,
        seed=run.seed,
    )
    del where
    if precision.tied:
        with torch.no_grad():
            rows, z, drawn = codes.draw(run.seed, draw_context)
            squared_error = (map_blocks(vae.decode, z, drawn) - rows).square() + training.noise**2
            where = concat_context(z, drawn)
            del rows, z, drawn
            precision.fit_weights(where, squared_error)
            del where, squared_error
    precision.requires_grad_(True)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        x, mean, std = batch
        context = None if draw_context is None else draw_context(x, generator)
        z = _sample(mean, std, generator)
        with torch.no_grad():
            squared_error = (vae.decode(z, context) - x).square() + training.noise**2
        likely = precision.precision(concat_context(z, context))
        surprise: Tensor = 0.5 * (squared_error * likely - likely.log()).sum(-1).mean()
        return surprise

    bandwidth = -1.0 if isinstance(training.bandwidth, str) else training.bandwidth
    settings = torch.tensor([bandwidth, training.per_center, training.noise, precision.zeta])
    train(
        "vae uncertainty",
        precision,
        loss,
        (x, mean, std),
        epochs=0 if precision.tied else training.std_epochs,
        optimizer=training.adam(training.std_learning_rate),
        run=run,
        **training.loop,
        identity=(x, settings, precision.centers.new_tensor(precision.centers.shape)),
    )


def _fit_ensemble(vae: VAE, codes: _Codes, draw_context: DrawContext | None, training: VAETraining, run: Run) -> None:
    """Train the further members side by side, as the first one was, on codes of the frozen encoder."""
    others = list(vae.precision.others)
    together = stack(others).train().requires_grad_(True)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        x, mean, std = batch
        context = None if draw_context is None else draw_context(x, generator)
        each = [concat_context(_sample(mean, std, generator), context) for _ in others]
        decoded = together(torch.stack(each))
        decoded = decoded if context is None else copy_conditioned(decoded, context)
        return _error(decoded, x, vae.category, training.category_weight).sum(0).mean()

    adam = training.adam(training.learning_rate)
    data = (codes.x, codes.mean, codes.std)
    train(
        "vae uncertainty", together, loss, data, epochs=training.mean_epochs, optimizer=adam, run=run, **training.loop
    )
    unstack(together, others)
    vae.precision.eval()


def _fit_laplace(vae: VAE, codes: _Codes, draw_context: DrawContext | None, training: VAETraining, run: Run) -> None:
    """The posterior of the last layer's weights, on codes drawn as the decoder has seen them."""
    with track("training vae uncertainty", 1, shown=run.progress) as advance, torch.no_grad():
        x, z, context = codes.draw(run.seed, draw_context)
        error = map_blocks(vae.decode, z, context) - x
        noise = (error.square().mean(0) + training.noise**2).sqrt()
        vae.precision.fit(vae.decoder, concat_context(z, context), noise, vae.category)
        advance()


def _sample(mean: Tensor, std: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + std * noise

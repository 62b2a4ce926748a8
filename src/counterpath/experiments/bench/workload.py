"""What is timed: models as they were fitted, and rows to start from."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from counterpath.data.datasets import load
from counterpath.experiments.study import PRESETS, SETTINGS, EncodedData, Models, fit_models, vae_of
from counterpath.geometry.metric import DAMPING
from counterpath.models.classifier import Classifier
from counterpath.models.layers import update_batch_norm
from counterpath.models.training import Run, seeded
from counterpath.models.vae import VAE
from counterpath.search.method import SearchModels
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError

_ROWS_PER_CENTER = 8
"""Rows that random models see for each RBF centre: enough to place the centres and to set BatchNorm's statistics."""


@dataclass(frozen=True)
class Sizes:
    """How large rows and models are; by default as on Adult.

    Attributes:
        rows: Rows that take a step together.
        features: Width of a row.
        latent: Width of a code.
        hidden: Widths of the encoder's hidden layers, which the decoder mirrors.
        centers: RBF centres.
        width: Size of the classifier's representation.
    """

    rows: int = 1024
    features: int = 13
    latent: int = 5
    hidden: tuple[int, ...] = (512, 256)
    centers: int = 500
    width: int = 24


@dataclass(frozen=True)
class Workload:
    """Models and rows.

    Attributes:
        fitted: The models with their BatchNorm layers, as training leaves them.
        factual: Rows to start from.
        damping: Added to the diagonal of every metric.
    """

    fitted: Models
    factual: Float[Tensor, "n D"]
    damping: float

    @cached_property
    def folded(self) -> Models:
        """The models as Counterpath searches them."""
        return self.fitted.folded()

    @cached_property
    def codes(self) -> Float[Tensor, "n d"]:
        """The codes of the rows."""
        with torch.no_grad():
            return map_blocks(vae_of(self.folded).encode, self.factual)

    @property
    def sizes(self) -> Sizes:
        """How large all of it is."""
        vae = vae_of(self.fitted)
        hidden = tuple(layer.out_features for layer in vae.encoder if isinstance(layer, torch.nn.Linear))[:-1]
        width = self.fitted.classifier.head.in_features
        rows, features = self.factual.shape
        return Sizes(rows, features, vae.latent, hidden, len(vae.precision.centers), width)

    def with_rows(self, rows: int) -> "Workload":
        """The same with so many rows; if there are fewer, they are repeated."""
        index = torch.arange(rows, device=self.factual.device) % len(self.factual)
        return replace(self, factual=self.factual[index])


def random_workload(sizes: Sizes, seed: int, device: torch.device, *, damping: float = DAMPING) -> Workload:
    """Untrained models of any size, with BatchNorm statistics and an uncertainty that fit their random rows."""
    with seeded(seed):
        rows = torch.rand(max(sizes.rows, _ROWS_PER_CENTER * sizes.centers), sizes.features)
        classifier = Classifier(sizes.features, sizes.width)
        vae = VAE(sizes.features, sizes.latent, hidden=sizes.hidden, centers=sizes.centers)
        seen = rows[: _ROWS_PER_CENTER * sizes.centers]
        update_batch_norm(classifier, seen)
        update_batch_norm(vae.encoder, seen)
        with torch.no_grad():
            codes = vae.encode(seen)
            # Codes of spread 1, as a trained encoder has them.
            last = vae.encoder[-1]
            assert isinstance(last, torch.nn.Linear)
            last.weight[: sizes.latent] /= codes.std(0)[:, None]
            last.bias[: sizes.latent] /= codes.std(0)
            codes = vae.encode(seen)
            update_batch_norm(vae.decoder, codes)
            spread = (vae.decode(codes) - seen).square().mean(0).sqrt()
        vae.precision.fit_centers(codes, spread, seed=seed)
    return Workload(_frozen(classifier, vae, device), rows[: sizes.rows].to(device), damping)


def adult_workload(models: Path | None, seed: int, device: torch.device, *, progress: bool | None = None) -> Workload:
    """All rows of Adult that the classifier correctly rejects, and the models of the paper's experiment.

    Args:
        models: A folder with the checkpoints of `counterpath reproduce adult`; None fits those of its quick preset.
        seed: Of the fit.
        device: Where to compute.
        progress: Show bars.
    """
    settings = SETTINGS["adult-carla"]
    rows = EncodedData.of(load("adult-carla"), device)
    if models is None:
        fitted = fit_models(rows, settings, PRESETS["quick"], Run(seed=seed, progress=progress))
    else:
        fitted = read_models(models, device)
        width = vae_of(fitted).always_conditioned.numel()
        if width != rows.train.shape[-1]:
            raise InputError(
                f"the models in {models} are for rows of {width} columns, and Adult's have {rows.train.shape[-1]}: "
                "give checkpoints of `counterpath reproduce adult`"
            )
    return Workload(fitted, rows.correctly_rejected(fitted.folded().classifier), settings.damping)


def read_models(folder: Path, device: torch.device) -> Models:
    """Classifier and VAE from the checkpoints of a training that is done; sizes are read off the weights."""
    classifier_weights, mean, uncertainty = (
        _read_weights(folder / f"{name}.safetensors") for name in ("classifier", "vae-mean", "vae-uncertainty")
    )
    weights = mean | {f"precision.{name}": value for name, value in uncertainty.items()}
    # Only linear layers have matrices for weights: their widths, after that of the input.
    matrices = [value for name, value in weights.items() if name.startswith("encoder.") and value.ndim == 2]
    features, (*hidden, last) = matrices[0].shape[1], (len(matrix) for matrix in matrices)
    centers, tied = len(weights["precision.centers"]), weights["precision.log_weight"].shape[-1] == 1
    vae = VAE(features, last // 2, hidden=tuple(hidden), centers=centers, tied=tied)
    classifier = Classifier(features, classifier_weights["head.weight"].shape[-1])
    vae.load_state_dict(weights)
    classifier.load_state_dict(classifier_weights)
    return _frozen(classifier, vae, device)


def _frozen(classifier: Classifier, vae: VAE, device: torch.device) -> Models:
    return SearchModels(classifier.eval().requires_grad_(False).to(device), vae.eval().requires_grad_(False).to(device))


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); expected a checkpoint of `counterpath reproduce adult`, for instance in "
            "out/adult-paper/checkpoints/paper/seed-0"
        ) from error
    return {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}

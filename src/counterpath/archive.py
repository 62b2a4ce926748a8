"""What was learned as a model directory, and back. A user's own models are named, not stored."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from counterpath.data.encoding import Encoder
from counterpath.errors import InputError, StoreError, choose
from counterpath.geometry.graph import Graph
from counterpath.learned import Learned
from counterpath.learning import torch_subject
from counterpath.methods import AMBIENTS
from counterpath.models.classifier import Classifier
from counterpath.models.flow import FlowModel
from counterpath.models.foreign import TorchClassifier
from counterpath.models.generator import Generator
from counterpath.models.layers import fold
from counterpath.models.precision import RBFPrecision
from counterpath.models.surrogate import Agreement
from counterpath.models.vae import VAE
from counterpath.network import Landmarks
from counterpath.subject import Subject, asked, asked_table, differentiable, named

M = TypeVar("M", bound=nn.Module)

_PROBES = 64
_CLOSE = 1e-4


def pack(learned: Learned) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything that was learned, as JSON and tensors."""
    subject, space = learned.subject, learned.generator
    tensors = {"rows": learned.rows, "held_out": learned.held_out, "answers": learned.answers}
    config: dict[str, Any] = {
        "encoder": learned.encoder.to_json(),
        "classes": list(subject.classes),
        "subject": {"kind": subject.kind, "name": subject.name},
        "space": {"centers": len(space.precision.centers), "zeta": space.precision.zeta, "latent": space.latent},
        "flow": learned.flow is not None,
        "roads": {"ambient": learned.ambient, "priced": learned.priced, "graph": learned.graph is not None},
    }
    if subject.kind != "torch":
        config["subject"]["agreement"] = subject.agreement and asdict(subject.agreement)
        tensors |= _state("classifier", subject.classifier)
    else:
        assert isinstance(subject.classifier, TorchClassifier)
        config["subject"]["layer"] = subject.classifier.asked
    if isinstance(space, Generator):
        config["space"] |= {"kind": "own", "name": named(space.autoencoder)}
        tensors |= _state("space", space.precision)
    else:
        config["space"] |= {"kind": "vae", **_shape(space)}
        tensors |= _state("space", space)
    if learned.landmarks is not None:
        tensors |= {f"landmarks.{name}": getattr(learned.landmarks, name) for name in ("x", "z", "answers")}
    if learned.graph is not None:
        tensors |= {f"graph.{name}": getattr(learned.graph, name) for name in ("ends", "weight", "bridge")}
        tensors["graph.ends"] = tensors["graph.ends"].int()
    if learned.flow is not None:
        tensors |= _state("flow", learned.flow)
    return config, tensors


def unpack(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, model: Any, generator: Any, device: torch.device
) -> Learned:
    """The value that `pack` packed.

    Args:
        config: The JSON.
        tensors: The tensors.
        model: The user's model under explanation, if it was one.
        generator: The user's generator, if it was one.
        device: Where to compute.
    """
    with fitting_together():
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        encoder = Encoder.from_json(config["encoder"])
        space = _space(config["space"], encoder, tensors, generator)
        subject = _subject(config, encoder, tensors, model)
        flow = _filled(FlowModel(encoder.width), "flow", tensors) if config["flow"] else None
        landmarks = Landmarks(*(tensors[f"landmarks.{name}"] for name in ("x", "z", "answers")))
        rows, held_out, answers = tensors["rows"], tensors["held_out"].bool(), tensors["answers"]
        roads = config["roads"]
        graph = _graph(len(landmarks.z), tensors) if roads["graph"] else None
        learned = Learned(
            encoder,
            subject,
            space,
            flow,
            rows,
            held_out,
            answers,
            landmarks,
            graph,
            choose("ambient", roads["ambient"], dict.fromkeys(AMBIENTS, roads["ambient"])),
            roads["priced"],
        )
    if subject.kind != "own":
        _insist_same(learned, model)
    return learned


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An explainer's parameters, as JSON: labels need not be text there, so their weights are a list of pairs."""
    weights = parameters["class_weight"]
    pairs = [[label, weight] for label, weight in weights.items()] if isinstance(weights, Mapping) else weights
    return {**parameters, "class_weight": pairs}


def parameters_of(plain: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The parameters that `plain_parameters` made plain, for another device."""
    weights = plain["class_weight"]
    weights = dict(weights) if isinstance(weights, list) else weights
    return {**plain, "device": device, "hidden": tuple(plain["hidden"]), "class_weight": weights}


@contextmanager
def fitting_together() -> Iterator[None]:
    """Tell what is missing, or has the wrong shape, as an error of the files."""
    try:
        yield
    except (KeyError, TypeError, RuntimeError) as error:
        raise StoreError(
            f"config.json and weights.safetensors do not fit together ({error}): save the model again"
        ) from error


def _subject(config: Mapping[str, Any], encoder: Encoder, tensors: Mapping[str, Tensor], model: Any) -> Subject:
    told, classes = config["subject"], tuple(config["classes"])
    if told["kind"] == "own":
        if model is not None:
            raise InputError("this explainer was fitted without a model of yours; load it without model=")
        classifier = _classifier(encoder, classes, tensors)
        return Subject("own", told["name"], classes, differentiable(fold(classifier)), classifier)
    if model is None:
        raise InputError(
            f"this explainer explains a model of yours, {told['name']}, which is not stored with it: load(…, model=…)"
        )
    rows = tensors["rows"]
    if told["kind"] == "torch":
        subject = torch_subject(model, rows, told["layer"], told["name"], classes)
    else:
        agreement = told["agreement"] and Agreement(**told["agreement"])
        classifier = _classifier(encoder, classes, tensors)
        table = asked_table(model, encoder)
        subject = Subject("asked", told["name"], classes, asked(model, encoder), classifier, agreement, table)
    return subject


def _insist_same(learned: Learned, model: Any) -> None:
    """Raise an error unless a user's model answers as it did when the explainer was fitted."""
    probe, expected = learned.subject.answers(learned.rows[:_PROBES]), learned.answers[:_PROBES]
    if probe.shape != expected.shape or bool(((probe - expected).abs() > _CLOSE).any()):
        raise InputError(
            f"the given model ({named(model)}) answers otherwise than {learned.subject.name}, for which this explainer "
            "was fitted: give that model, or fit an explainer for this one"
        )


def _space(
    config: Mapping[str, Any], encoder: Encoder, tensors: Mapping[str, Tensor], generator: Any
) -> VAE | Generator:
    if config["kind"] == "vae":
        if generator is not None:
            raise InputError("this explainer was fitted without a generator of yours; load it without generator=")
        vae = VAE(
            encoder.width,
            config["latent"],
            told=True,
            held=encoder.columns(*encoder.schema.immutable),
            hidden=tuple(config["hidden"]),
            output=config["output"],
            blocks=encoder.blocks,
            centers=config["centers"],
            zeta=config["zeta"],
        )
        return _filled(vae, "space", tensors)
    if generator is None:
        raise InputError(
            f"this explainer searches in a generator of yours, {config['name']}, which is not stored with it: "
            "load(…, generator=…)"
        )
    category = encoder.categorical if bool(encoder.categorical.any()) else None
    space = Generator(generator, tensors["rows"], centers=config["centers"], category=category, zeta=config["zeta"])
    precision = RBFPrecision(space.latent, encoder.width, config["centers"], zeta=config["zeta"])
    space.precision = _filled(precision, "space", tensors)
    return space.to(tensors["rows"])


def _graph(count: int, tensors: Mapping[str, Tensor]) -> Graph:
    return Graph(count, tensors["graph.ends"].long(), tensors["graph.weight"], tensors["graph.bridge"].bool())


def _shape(vae: VAE) -> dict[str, Any]:
    widths = [layer.out_features for layer in vae.encoder if isinstance(layer, nn.Linear)][:-1]
    return {"hidden": widths, "output": vae.output}


def _classifier(encoder: Encoder, classes: tuple[Any, ...], tensors: Mapping[str, Tensor]) -> Classifier:
    width = len(tensors["classifier.head.weight"][0])
    return _filled(Classifier(encoder.width, width, len(classes)), "classifier", tensors)


def _state(name: str, module: Any) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for key, value in module.state_dict().items()}


def _filled(module: M, name: str, tensors: Mapping[str, Tensor]) -> M:
    """A module with its stored weights, frozen, in evaluation mode."""
    weights = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
    module.load_state_dict(weights)
    return module.to(tensors["rows"]).eval().requires_grad_(False)

"""A model directory: `config.json`, `weights.safetensors`, and a manifest with the size and SHA-256 of both.

Nothing in a model directory is ever executed or unpickled, and nothing is used before it has been verified.

A save is written beside its target, synced, and moved in by two renames: the old model to the hidden sibling
`.NAME.counterpath-old`, the new one to `NAME`. A process that is killed between the two leaves the old model, whole,
under the hidden name only. There `load` finds it, so a kill at any moment costs nothing and needs no repair; the next
`save` of the same name puts it back and sweeps away whatever else was left behind. A hidden sibling always holds a
whole model: it is renamed once more before it is deleted.

One process at a time may save under a name. A `load` meanwhile gets the old or the new model, or, if it began in the
one and ended in the other, an error; never a mixture.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from counterpath.data.encoding import Encoder
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.train import torch_subject
from counterpath.models.classifier import Classifier, blockwise_proba, side_width
from counterpath.models.ensemble import Ensemble
from counterpath.models.explained import ExplainedModel, TorchClassifier, black_box_proba, qualified_name, table_proba
from counterpath.models.family import Family, OwnMembers
from counterpath.models.flow import FlowModel
from counterpath.models.generator import Generator
from counterpath.models.layers import RBFPrecision, fold
from counterpath.models.surrogate import Agreement
from counterpath.models.vae import VAE
from counterpath.search.method import Method, SearchOptions
from counterpath.search.methods import method_names, resolve_method
from counterpath.search.roadmap import Landmarks
from counterpath.utils.devices import release_memory
from counterpath.utils.errors import InputError, StoreError
from counterpath.utils.files import atomic, sync_folder

FORMAT = "counterpath-model"
VERSION = 3  # 2: parameters by their new names, and what methods have fitted; 3: one roadmap for everybody

_LANDMARKS = ("x", "z", "probabilities")
_CONFIG, _WEIGHTS, _MANIFEST = "config.json", "weights.safetensors", "manifest.json"


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write a model directory, whole or not at all, in place of the model of that name if there is one.

    Args:
        folder: Where; missing, empty, or a Counterpath model.
        config: What JSON can hold, with text as keys and without NaN; tuples come back as lists.
        tensors: Dense tensors on any device; those that share memory come back as copies.

    Returns:
        The folder, as an absolute path.

    Raises:
        InputError: If the folder holds anything else (which is left as it is), or the content would not come back.
        OSError: If the disk is full or the like; the old model is still there.
    """
    folder = folder.resolve()
    insist_replaceable(folder)
    release_memory()  # what training has left
    packed, apart = _pack_config(config), _apart(tensors)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    try:
        temporary = _temporary(folder)
        temporary.mkdir()
        with atomic(temporary / _CONFIG) as part:
            part.write_bytes(packed)
        with atomic(temporary / _WEIGHTS) as part:
            _write_tensors(apart, part)
        with atomic(temporary / _MANIFEST) as part:
            part.write_bytes(_manifest({name: _digest(temporary / name) for name in (_CONFIG, _WEIGHTS)}))
        sync_folder(temporary)
        if not _vacant(folder):
            folder.rename(_aside(folder))
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        _sweep(folder)
    return folder


def load(folder: Path, device: str | torch.device = "cpu") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Verify a model directory and return its config and its tensors, on `device`.

    Raises:
        StoreError: If the folder is missing, foreign, damaged, or written by a newer version.
    """
    folder = folder.resolve()
    try:
        if _vacant(folder) and _aside(folder).is_dir():
            folder = _aside(folder)
        files = _read_verified(folder)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be read ({error.strerror}): check its permissions and the disk, and "
            "that nobody else is saving to it"
        ) from error
    config = _parse(files[_CONFIG])
    if not isinstance(config, dict):
        _refuse(folder / _CONFIG, "is not a JSON object", files[_CONFIG])
    try:
        tensors: dict[str, Tensor] = safetensors.load(files[_WEIGHTS])
    except Exception as error:  # the parser's, and whatever torch says to sizes and types that the parser lets pass
        _refuse(folder / _WEIGHTS, f"is not a safetensors file ({_first_line(error)})", files[_WEIGHTS])
    return config, {name: tensor.to(device) for name, tensor in tensors.items()}


def fingerprint(folder: Path) -> str:
    """What tells a model directory from every other one: the SHA-256 of its manifest, which has those of its files.

    Raises:
        StoreError: If the folder is missing or foreign.
    """
    return hashlib.sha256(_read_manifest(folder.resolve())).hexdigest()


def insist_replaceable(folder: Path) -> None:
    """Raise an error if `save` would refuse this folder: best called before hours of training."""
    folder = folder.resolve()
    if folder.exists() and (folder.samefile(".") or folder.is_mount()):
        raise InputError(
            f"nothing was saved: {folder} is the working directory or a mount point, and saving replaces the folder "
            f"itself. Save to a folder inside it, for instance {folder / 'model'}"
        )
    if _vacant(folder):
        return
    try:
        _read_manifest(folder)
    except StoreError as error:
        raise InputError(f"nothing was saved, to keep what is there: {error}, or a new or empty one") from error
    others = sorted(set(os.listdir(folder)) - {_CONFIG, _WEIGHTS, _MANIFEST})
    if others:
        raise InputError(
            f"nothing was saved: beside its model, {folder} holds {', '.join(others)}, which would be lost. "
            "Move that away, or save to another folder"
        )


def _pack_config(config: Mapping[str, Any]) -> bytes:
    try:
        content = _json(dict(config))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the config cannot be written as JSON ({error}): use text, finite numbers, true, false, None, lists and "
            "dicts, and put arrays among the tensors"
        ) from error
    _insist_text_keys(config, "the config")
    return content


def _insist_text_keys(value: Any, where: str) -> None:
    """JSON would turn other keys into text without a word: {1: ...} would come back as {"1": ...}."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}, and JSON knows only text as keys: use {str(key)!r}")
            _insist_text_keys(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _insist_text_keys(inner, f"{where}[{index}]")


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, no two in the same memory; copied where they have to be, and only there.

    Raises:
        InputError: They cannot be written, or not be read again.
    """
    apart: dict[str, Tensor] = {}
    memory: set[int] = set()
    try:
        for name, tensor in tensors.items():
            dense = tensor.detach().cpu().resolve_neg().contiguous()
            dense = dense.clone() if dense.untyped_storage().data_ptr() in memory else dense
            memory.add(dense.untyped_storage().data_ptr())
            apart[name] = dense
        # Some names and types can be written and not be read; that takes no copy of the numbers to see.
        safetensors.load(safetensors.save({name: tensor.reshape(-1)[:0] for name, tensor in apart.items()}))
    except Exception as error:
        raise InputError(
            f"the tensors cannot be written as safetensors ({_first_line(error)}): use dense tensors of real numbers "
            "or booleans, under ordinary names"
        ) from error
    return apart


def _write_tensors(apart: dict[str, Tensor], path: Path) -> None:
    """Write tensors without a copy of them in memory; what goes wrong now is the disk's fault."""
    try:
        safetensors.save_file(apart, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written ({_first_line(error)})") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _parse(content: bytes) -> Any:
    """Return what `content` holds as strict JSON, or None; no file of ours holds null."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(content.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file, which is read piece by piece."""
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _manifest(digests: Mapping[str, tuple[int, str]]) -> bytes:
    entries = {name: {"size": size, "sha256": digest} for name, (size, digest) in digests.items()}
    return _json({"format": FORMAT, "version": VERSION, "files": entries})


def _read_manifest(folder: Path) -> bytes:
    """Return the manifest of a folder in our format, of whatever version."""
    if not folder.exists():
        raise StoreError(f"there is no folder {folder}: check the path, or save a model there first")
    if not folder.is_dir():
        _disown(folder, "it is not a folder")
    path = folder / _MANIFEST
    if not path.is_file():
        _disown(folder, f"it has no {_MANIFEST}")
    content = path.read_bytes()
    manifest = _parse(content)
    if not isinstance(manifest, dict):
        _disown(folder, f"its {_MANIFEST} is not a JSON object{_pickle_note(content)}")
    if manifest.get("format") != FORMAT:
        _disown(folder, f"the format in its {_MANIFEST} is {manifest.get('format')!r} and not {FORMAT!r}")
    return content


def _entries(folder: Path, content: bytes) -> dict[str, dict[str, Any]]:
    """Return what the manifest says of each file, if it is of our version and lists exactly our files."""
    manifest = _parse(content)
    version, entries = manifest.get("version"), manifest.get("files")
    if type(version) is not int or version < 1:
        _refuse(folder / _MANIFEST, f"is damaged: its version is {version!r} and not a number from 1 to {VERSION}")
    if version < VERSION:
        raise StoreError(
            f"{folder} is a model of format version {version}, from before the first release; this Counterpath reads "
            f"version {VERSION}: fit it again"
        )
    if version > VERSION:
        raise StoreError(
            f"{folder} is a model of format version {version}, and this Counterpath reads up to version {VERSION}: "
            "upgrade it with  pip install --upgrade counterpath"
        )
    if not isinstance(entries, dict) or list(entries) != [_CONFIG, _WEIGHTS]:
        listed = list(entries) if isinstance(entries, dict) else entries
        _refuse(folder / _MANIFEST, f"is damaged: it lists {listed!r} and not {_CONFIG} and {_WEIGHTS}")
    for name, entry in entries.items():
        if not isinstance(entry, dict) or set(entry) != {"size", "sha256"}:
            _refuse(folder / _MANIFEST, f"is damaged: it says {entry!r} of {name} and not its size and sha256")
    return entries


def _read_verified(folder: Path) -> dict[str, bytes]:
    """Return the very bytes that were verified, so that nobody can exchange a file before it is used."""
    manifest = _read_manifest(folder)
    files: dict[str, bytes] = {}
    digests: dict[str, tuple[int, str]] = {}
    for name, entry in _entries(folder, manifest).items():
        path = folder / name
        if not path.is_file():
            _refuse(path, "is missing")
        content = files[name] = path.read_bytes()
        if len(content) != entry["size"]:
            _refuse(path, f"is truncated or damaged: {len(content)} bytes instead of {entry['size']!r}", content)
        digests[name] = len(content), hashlib.sha256(content).hexdigest()
        if digests[name][1] != entry["sha256"]:
            _refuse(path, "is damaged: its SHA-256 is not the one in the manifest", content)
    if _manifest(digests) != manifest:
        _refuse(folder / _MANIFEST, "is damaged: it is not as it was written")
    return files


def _disown(folder: Path, reason: str) -> NoReturn:
    raise StoreError(f"{folder} is not a Counterpath model ({reason}): choose a folder that Counterpath saved")


def _refuse(path: Path, reason: str, content: bytes = b"") -> NoReturn:
    advice = "restore the model directory from a copy, or save the model again"
    raise StoreError(f"{path} {reason}{_pickle_note(content)}: {advice}")


def _pickle_note(content: bytes) -> str:
    """Say so if `content` is a pickle or a zip archive, as `torch.save` writes them.

    The length of a safetensors header can look like the first bytes of a pickle; but its ninth byte is a brace.
    """
    marked = re.match(rb"PK\x03\x04|\x80[\x02-\x05]", content) and content[8:9] != b"{"
    return " (it looks like a pickle, and pickles are never loaded)" if marked else ""


def _vacant(folder: Path) -> bool:
    """Whether nothing, or an empty folder, is there."""
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False


def _aside(folder: Path) -> Path:
    """Where the old model waits while the new one is moved in."""
    return folder.with_name(f".{folder.name}.counterpath-old")


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.counterpath-new-{secrets.token_hex(4)}")


def _sweep(folder: Path) -> None:
    """Put the old model back if no new one has come, and remove what saves of this name left behind."""
    aside = _aside(folder)
    if aside.exists():
        aside.rename(folder if _vacant(folder) else _temporary(folder))
    ours = re.compile(rf"\.{re.escape(folder.name)}\.counterpath-new-[0-9a-f]{{8}}")
    for leftover in [path for path in folder.parent.iterdir() if ours.fullmatch(path.name)]:
        shutil.rmtree(leftover)


M = TypeVar("M", bound=nn.Module)

_PROBES = 64  # rows on which a user's model is tried at load: enough to tell another one, and fast
_CLOSE = 1e-4  # of probability: what other hardware or versions of a library may change


def pack(models: FittedModels) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything that was fitted, as JSON and tensors. A user's own models and methods are not stored."""
    explained, generator = models.explained, models.generator
    tensors = {"rows": models.rows, "held_out": models.held_out, "probabilities": models.probabilities}
    precision = generator.precision
    rbf = {"centers": len(precision.centers), "zeta": precision.zeta} if isinstance(precision, RBFPrecision) else {}
    config: dict[str, Any] = {
        "encoder": models.encoder.to_json(),
        "classes": list(explained.classes),
        "explained": {"kind": explained.kind, "name": explained.name, "numbers": explained.numbers},
        "generator": {**rbf, "latent": generator.latent},
        "flow": models.flow is not None,
        "seed": models.seed,
        "methods": list(models.states),
    }
    if explained.kind != "torch":
        config["explained"]["agreement"] = explained.agreement and asdict(explained.agreement)
        tensors |= _prefixed("classifier", explained.classifier.state_dict())  # type: ignore[attr-defined]
    else:
        assert isinstance(explained.classifier, TorchClassifier)
        config["explained"]["layer"] = explained.classifier.layer_name
    if isinstance(generator, Generator):
        config["generator"] |= {"kind": "own", "name": qualified_name(generator.autoencoder)}
        tensors |= _prefixed("generator", precision.state_dict())
    else:
        widths = [layer.out_features for layer in generator.encoder if isinstance(layer, nn.Linear)][:-1]
        config["generator"] |= {"kind": "vae", "hidden": widths, "output": generator.output}
        config["generator"]["uncertainty"] = generator.uncertainty_kind
        config["generator"]["ordered"] = generator.ordered is not None
        tensors |= _prefixed("generator", generator.state_dict())
    if models.landmarks is not None:
        tensors |= {f"landmarks.{name}": getattr(models.landmarks, name) for name in _LANDMARKS}
    if models.flow is not None:
        tensors |= _prefixed("flow", models.flow.state_dict())
    if models.labels is not None:
        tensors["labels"] = models.labels
    if models.family is not None and models.family.own:
        parts = {"members": models.family.members, "held_out": models.family.held_out}
        config["family"] = {"note": models.family.note}
        for name, part in parts.items():
            assert isinstance(part, OwnMembers)
            tensors |= _prefixed(f"family.{name}", part.ensemble.to_tensors())
    for name, (method, state) in models.states.items():
        tensors |= _prefixed(f"methods.{name}", method.state_to_tensors(state))
    return config, tensors


def unpack(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    model: Any,
    generator: Any,
    method: Method,
    options: SearchOptions,
    device: torch.device,
) -> FittedModels:
    """The value that `pack` packed.

    Args:
        config: The JSON.
        tensors: The tensors.
        model: The user's explained model, if it was one.
        generator: The user's generator, if it was one.
        method: The explainer's own method.
        options: How it searches.
        device: Where to compute.
    """
    with fitting_together():
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        encoder = Encoder.from_json(config["encoder"])
        latent = _generator(config["generator"], encoder, tensors, generator)
        explained = _explained_model(config, encoder, tensors, model)
        flow = _filled(FlowModel(encoder.width), "flow", tensors) if config["flow"] else None
        landmarks = Landmarks(*(tensors[f"landmarks.{name}"] for name in _LANDMARKS))
        rows, held_out = tensors["rows"], tensors["held_out"].bool()
        known = rows, held_out, tensors["probabilities"], landmarks, config["seed"], tensors.get("labels")
        models = FittedModels(encoder, explained, latent, flow, *known, _family(config, tensors))
        for name in config["methods"]:
            if name not in (method.name, *method_names()):
                continue  # a method of the user's own, which is fitted again when it is used again
            fitted = method if name == method.name else resolve_method(name)
            its_tensors = _under(f"methods.{name}", tensors)
            models.states[name] = fitted, fitted.state_from_tensors(models.setup, options, its_tensors)
    if explained.kind != "own":  # a user's model must answer as it did when the explainer was fitted
        probe, expected = explained.predict_proba(rows[:_PROBES]), models.probabilities[:_PROBES]
        scale = float(models.probabilities.std()) or 1.0 if explained.numbers else 1.0
        if probe.shape != expected.shape or bool(((probe - expected).abs() > _CLOSE * scale).any()):
            raise InputError(
                f"the given model ({qualified_name(model)}) predicts otherwise than {explained.name}, for which this "
                "explainer was fitted: give that model, or fit an explainer for this one"
            )
    return models


def _family(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Family | None:
    """The family of our own models, if one was stored."""
    if not config.get("family"):  # there were none before
        return None
    numbers = bool(config["explained"].get("numbers", False))
    members, held_out = (
        OwnMembers(Ensemble.from_tensors(_under(f"family.{name}", tensors), numbers=numbers))
        for name in ("members", "held_out")
    )
    return Family(members, held_out, config["family"]["note"])


_BY_CLASS = ("class_weight", "threshold")
"""The parameters of an explainer that may be mappings from labels."""


def parameters_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An explainer's parameters as JSON.

    Labels need not be text there, so what is given by class is a list of pairs; a method of the user's own is named.
    """
    method, given = parameters["method"], {name: parameters[name] for name in _BY_CLASS}
    pairs = {name: list(map(list, each.items())) if isinstance(each, Mapping) else each for name, each in given.items()}
    if isinstance(method, Method):
        known = method.name in method_names() and type(resolve_method(method.name)) is type(method)
        method = method.name if known else {"own": qualified_name(method), "name": method.name}
    return {**parameters, **pairs, "method": method}


def parameters_from_json(value: Mapping[str, Any], device: str, method: Method | None) -> dict[str, Any]:
    """The parameters that `parameters_to_json` made JSON of, for another device.

    Args:
        value: The JSON.
        device: Where to compute.
        method: The user's own method, if it was one.
    """
    stored, by_class = value["method"], {name: value[name] for name in _BY_CLASS}
    pairs = {name: dict(each) if isinstance(each, list) else each for name, each in by_class.items()}
    if isinstance(stored, str):
        if method is not None:
            raise InputError(f"this explainer was fitted with method {stored!r}; load it without method=")
    elif method is None or qualified_name(method) != stored["own"]:
        given = "" if method is None else f", not {qualified_name(method)}"
        raise InputError(
            f"this explainer searches by a method of yours, {stored['own']}{given}, which is not stored with it: "
            "load(…, method=…)"
        )
    return {
        **value,
        "device": device,
        "hidden": tuple(value["hidden"]),
        **pairs,
        "method": stored if isinstance(stored, str) else method,
    }


@contextmanager
def fitting_together() -> Iterator[None]:
    """Tell what is missing, or has the wrong shape, as an error of the files."""
    try:
        yield
    except (KeyError, TypeError, RuntimeError) as error:
        raise StoreError(
            f"config.json and weights.safetensors do not fit together ({error}): save the model again"
        ) from error


def _explained_model(
    config: Mapping[str, Any], encoder: Encoder, tensors: Mapping[str, Tensor], model: Any
) -> ExplainedModel:
    stored, classes = config["explained"], tuple(config["classes"])
    numbers = bool(stored.get("numbers", False))
    if stored["kind"] == "own":
        if model is not None:
            raise InputError("this explainer was fitted without a model of yours; load it without model=")
        classifier = _classifier(encoder, classes, tensors)
        said = blockwise_proba(fold(classifier), numbers=numbers)
        return ExplainedModel("own", stored["name"], classes, said, classifier, numbers=numbers)
    if model is None:
        raise InputError(
            f"this explainer explains a model of yours, {stored['name']}, which is not stored with it: load(…, model=…)"
        )
    if stored["kind"] == "torch":
        return torch_subject(model, tensors["rows"], stored["layer"], stored["name"], classes, numbers=numbers)
    agreement = stored["agreement"] and Agreement(**stored["agreement"])
    classifier, proba = _classifier(encoder, classes, tensors), black_box_proba(model, encoder, numbers=numbers)
    table = table_proba(model, encoder, numbers=numbers)
    return ExplainedModel("black-box", stored["name"], classes, proba, classifier, agreement, table, numbers)


def _generator(
    config: Mapping[str, Any], encoder: Encoder, tensors: Mapping[str, Tensor], generator: Any
) -> VAE | Generator:
    if config["kind"] == "vae":
        if generator is not None:
            raise InputError("this explainer was fitted without a generator of yours; load it without generator=")
        vae = VAE(
            encoder.width,
            config["latent"],
            conditional=True,
            always_conditioned=encoder.columns(*encoder.schema.immutable),
            hidden=tuple(config["hidden"]),
            output=config["output"],
            blocks=encoder.blocks,
            levels=encoder.levels if config.get("ordered") else (),  # there were none before
            uncertainty=config.get("uncertainty", "rbf"),  # the only one there was
            **{name: config[name] for name in ("centers", "zeta") if name in config},
        )
        return _filled(vae, "generator", tensors)
    if generator is None:
        raise InputError(
            f"this explainer searches in a generator of yours, {config['name']}, which is not stored with it: "
            "load(…, generator=…)"
        )
    category = encoder.categorical if bool(encoder.categorical.any()) else None
    space = Generator(generator, tensors["rows"], centers=config["centers"], category=category, zeta=config["zeta"])
    precision = RBFPrecision(space.latent, encoder.width, config["centers"], zeta=config["zeta"])
    space.precision = _filled(precision, "generator", tensors)
    return space.to(tensors["rows"])


_LINEAR_PART = "classifier.representation.linear.weight"
"""A classifier that has these weights is a network with a linear function beside it."""


def _classifier(encoder: Encoder, classes: tuple[Any, ...], tensors: Mapping[str, Tensor]) -> Classifier:
    (logits, width), linear = tensors["classifier.head.weight"].shape, _LINEAR_PART in tensors
    outputs = max(len(classes), 2)  # a regressor has one, as a classifier of two classes
    classifier = Classifier(encoder.width, width - side_width(logits) * linear, outputs, linear=linear)
    return _filled(classifier, "classifier", tensors)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `_prefixed` put under a prefix."""
    return {key.removeprefix(f"{prefix}."): value for key, value in tensors.items() if key.startswith(f"{prefix}.")}


def _filled(module: M, name: str, tensors: Mapping[str, Tensor]) -> M:
    """A module with its stored weights, frozen, in evaluation mode."""
    module.load_state_dict(_under(name, tensors))
    return module.to(tensors["rows"]).eval().requires_grad_(False)

"""Which model answers: digests of the model and of the data that it was fitted to, and the version of the service."""

import hashlib
import json
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from counterpath import __version__
from counterpath.explainer.explainer import Explainer
from counterpath.fitting.persistence import fingerprint, pack

ANSWERED_BY: ContextVar[list["Identity"] | None] = ContextVar("answered_by", default=None)
"""Of the request that is being answered: who answers it, once that is chosen."""


@dataclass(frozen=True)
class Identity:
    """What tells one model from every other one.

    Attributes:
        model: Of a model directory the SHA-256 of its manifest, which has those of its files; else of what a directory
            would hold, without what methods have fitted.
        data: The SHA-256 of the training rows, as the model sees them, and of their labels.
        version: That of the package that answers.
    """

    model: str
    data: str
    version: str = __version__

    @classmethod
    def of(cls, explainer: Explainer, folder: Path | None = None) -> "Identity":
        """That of a fitted explainer, loaded from a folder if it was."""
        models = explainer.models_
        own = [models.rows] if models.labels is None else [models.rows, models.labels]
        if folder is not None:
            model = fingerprint(folder)
        else:
            config, tensors = pack(models)
            # What methods have fitted follows from the rest, and is there only once they were asked for.
            config = {name: value for name, value in config.items() if name != "methods"}
            names = sorted(name for name in tensors if not name.startswith("methods."))
            text = json.dumps([config, names], sort_keys=True, default=str)
            model = _digest(text.encode(), *(tensors[name] for name in names))
        encoder = json.dumps(explainer.encoder_.to_json(), sort_keys=True, default=str).encode()
        return cls(f"sha256:{model}", f"sha256:{_digest(encoder, *own)}")

    @property
    def headers(self) -> dict[str, str]:
        """The same as headers of a response."""
        return {"counterpath-model-digest": self.model, "counterpath-data-digest": self.data}


def _digest(text: bytes, *tensors: Tensor) -> str:
    found = hashlib.sha256(text)
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        found.update(plain.numpy().tobytes())
    return found.hexdigest()

"""What a batch job is: everything that its results depend on, and how two jobs differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpath.explanation.provenance import versions
from counterpath.fitting import persistence
from counterpath.utils.errors import InputError


@dataclass(frozen=True)
class Job:
    """What is asked about which rows, by which model: with equal jobs, results are equal to the bit.

    How many processes or machines share the work is no part of it.

    Attributes:
        fingerprint: Of the model directory: see `store.fingerprint`.
        own: The user's own model as `module:attribute`, if there is one.
        request: What `Explainer.repeat` takes: what to ask, and the settings that answers depend on.
        ids: Columns of the input that are carried along.
        shard_rows: The most rows of a shard.
        device: "cpu" or "cuda": they round differently.
        versions: Of Counterpath and of the libraries that answers may depend on.
    """

    fingerprint: str
    own: str | None
    request: Mapping[str, Any]
    ids: tuple[str, ...]
    shard_rows: int
    device: str
    versions: Mapping[str, str]

    @classmethod
    def of(
        cls,
        folder: Path,
        request: Mapping[str, Any],
        *,
        own: str | None = None,
        ids: Sequence[str] = (),
        shard_rows: int,
        device: str,
    ) -> "Job":
        """The job that asks the model in a folder."""
        if shard_rows < 1:
            raise InputError(f"a shard has at least one row; given {shard_rows}")
        return cls(persistence.fingerprint(folder), own, dict(request), tuple(ids), shard_rows, device, versions())

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal job."""
        return {
            "fingerprint": self.fingerprint,
            "own": self.own,
            "request": dict(self.request),
            "ids": list(self.ids),
            "shard_rows": self.shard_rows,
            "device": self.device,
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Job":
        """Build a job from the value of `to_json`."""
        return cls(**dict(value) | {"ids": tuple(value["ids"])})

    def differences(self, other: "Job") -> list[str]:
        """In what another job differs from this one, in words: what it has, and what this one has."""
        mine, theirs = _flat(self.to_json()), _flat(other.to_json())
        names = [name for name in (mine | theirs) if mine.get(name) != theirs.get(name)]
        return [_told(name, theirs.get(name), mine.get(name)) for name in names]


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a job by what people call them."""
    versions = {f"version of {name}": version for name, version in value["versions"].items()}
    own = {name: value[name] for name in ("fingerprint", "own", "ids", "shard_rows", "device")}
    return own | dict(value["request"]) | versions


def _told(name: str, now: Any, before: Any) -> str:
    if name == "fingerprint":
        return "the model is another one, or was fitted again"
    return f"{name.replace('_', ' ')} is {now!r} and was {before!r}"

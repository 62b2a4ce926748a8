"""What a batch job is: everything that its results depend on, and how two jobs differ."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterpath.explanation.result import versions
from counterpath.fitting import persistence
from counterpath.utils.errors import InputError


@dataclass(frozen=True)
class Job:
    """A request to a model, and all else that the results depend on: with equal jobs, results are equal to the bit.

    How many processes or machines share the work is no part of it.

    Attributes:
        fingerprint: Of the model directory: see `persistence.fingerprint`.
        user_model: The user's own model as `module:attribute`, if there is one.
        request: The request as an explanation records it, with the settings on which the results depend.
        ids: Columns of the input that are copied to the results.
        shard_rows: The most rows of a shard.
        device: "cpu" or "cuda": they round differently.
        versions: Of Counterpath and of the libraries on which the results may depend.
    """

    fingerprint: str
    user_model: str | None
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
        user_model: str | None = None,
        ids: Sequence[str] = (),
        shard_rows: int,
        device: str,
    ) -> "Job":
        """The job for the model in a folder."""
        if shard_rows < 1:
            raise InputError(f"a shard has at least one row; given {shard_rows}")
        fingerprint = persistence.fingerprint(folder)
        return cls(fingerprint, user_model, dict(request), tuple(ids), shard_rows, device, versions())

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal job."""
        return asdict(self) | {"ids": list(self.ids)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Job":
        """Build a job from the value of `to_json`."""
        return cls(**dict(value) | {"ids": tuple(value["ids"])})

    def differences(self, other: "Job") -> list[str]:
        """In what another job differs from this one, in words: what it has, and what this one has."""
        before, now = _flat(self.to_json()), _flat(other.to_json())
        names = [name for name in (before | now) if before.get(name) != now.get(name)]
        return [
            "the model is another one, or was fitted again"
            if name == "fingerprint"
            else f"{name.replace('_', ' ')} is {now.get(name)!r} and was {before.get(name)!r}"
            for name in names
        ]


def _flat(job: dict[str, Any]) -> dict[str, Any]:
    """The parts of a job by what people call them."""
    request, versions = job.pop("request"), job.pop("versions")
    return {**job, **request, **{f"version of {name}": version for name, version in versions.items()}}

"""What a folder of results says about itself: the job, its input, and which shards are done.

`manifest.json` is written once, when the job begins. `shards.jsonl` gets a line for every shard that is done, after its
files are; so a process that is killed at any moment leaves at worst files that nothing tells of, which are written
again, or half a line, which is cut off.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpath.batch.job import Job
from counterpath.batch.receipts import Receipt, from_json, to_json
from counterpath.batch.sources import Source
from counterpath.batch.writing import writing
from counterpath.errors import InputError
from counterpath.files import sync_folder, write_json, write_text

FORMAT = "counterpath-batch"
VERSION = 1
MANIFEST, JOURNAL = "manifest.json", "shards.jsonl"


@dataclass(frozen=True)
class Manifest:
    """What results are of.

    Attributes:
        job: What was asked.
        sources: What is known of every file of the input, by its name.
    """

    job: Job
    sources: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, job: Job, sources: Sequence[Source]) -> "Manifest":
        """That of a job that is about to begin."""
        return cls(job, {source.name: source.to_json() for source in sources})

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """That of the results in a folder; None where nothing has begun.

        Raises:
            InputError: The folder holds something else, or what a newer version wrote.
        """
        path = folder / MANIFEST
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if value["format"] != FORMAT:
                raise KeyError("format")
            if value["version"] > VERSION:
                raise InputError(f"{path} is of version {value['version']}, and this Counterpath reads up to {VERSION}")
            return cls(Job.from_json(value["job"]), {one["name"]: one for one in value["sources"]})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is no manifest of a batch job, or damaged; choose another folder") from error

    def write(self, folder: Path) -> None:
        """Keep it in a folder, whole or not at all."""
        described = {
            "format": FORMAT,
            "version": VERSION,
            "job": self.job.to_json(),
            "sources": list(self.sources.values()),
        }
        with writing(folder / MANIFEST):
            write_json(folder / MANIFEST, described)
            sync_folder(folder)

    def differences(self, job: Job, sources: Sequence[Source], quarantined: Collection[str] = ()) -> list[str]:
        """In what a job on some files differs from this one, in words.

        A file that could not be read, or of which something is in quarantine, may have been repaired meanwhile.
        """
        now = {source.name: source.to_json() for source in sources}
        changed = [
            f"the input {name} has changed"
            for name in self.sources.keys() & now.keys()
            if self.sources[name]["sha256"] != now[name]["sha256"]
            and not (self.sources[name]["problem"] or name in quarantined)
        ]
        added = [f"the input {name} is new" for name in now.keys() - self.sources.keys()]
        gone = [f"the input {name} is gone" for name in self.sources.keys() - now.keys()]
        return [*self.job.differences(job), *sorted(changed), *sorted(added), *sorted(gone)]


@dataclass(frozen=True)
class Journal:
    """The shards that are done, in a file that only grows.

    Attributes:
        path: The file.
    """

    path: Path

    @classmethod
    def of(cls, folder: Path) -> "Journal":
        """That of the results in a folder."""
        return cls(folder / JOURNAL)

    def read(self) -> dict[str, Receipt]:
        """What was recorded, by the names of shards; half a line at the end is cut off.

        Raises:
            InputError: The file is damaged elsewhere.
        """
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        try:
            told = [from_json(json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.path} is damaged: {error}; start over with --restart") from error
        return {receipt.shard: receipt for receipt in told if isinstance(receipt, Receipt)}

    def add(self, receipt: Receipt) -> None:
        """Record a shard; when this returns, the line is on the disk."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(_line(receipt).encode())
            file.flush()
            os.fsync(file.fileno())

    def keep(self, receipts: Collection[Receipt]) -> None:
        """Forget all others; the file is written anew, whole or not at all."""
        with writing(self.path):
            write_text(self.path, "".join(_line(receipt) for receipt in receipts))
            sync_folder(self.path.parent)


def _line(receipt: Receipt) -> str:
    return json.dumps(to_json(receipt), ensure_ascii=False, allow_nan=False) + "\n"

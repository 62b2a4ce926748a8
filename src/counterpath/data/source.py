"""CSV files of known content: found on this machine or downloaded once, and used only if their hash is right."""

import gzip
import hashlib
import os
import urllib.request
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from counterpath.errors import InputError
from counterpath.files import atomic
from counterpath.progress import track

VARIABLE = "COUNTERPATH_DATA"
"""The environment variable that names a file, or a folder of files."""

TIMEOUT = 30.0
"""Seconds that a server may stay silent."""

_KIB = 1024
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """A CSV file that can be downloaded.

    Attributes:
        name: What it is called on this machine: the file is `name`.csv or `name`.csv.gz.
        url: Where it is.
        sha256: The hash of its content.
    """

    name: str
    url: str
    sha256: str


def find(name: str, place: Path) -> Path | None:
    """The file `place`, or in the folder `place` the file `name`.csv or `name`.csv.gz; None if there is none."""
    candidates = [place / f"{name}.csv", place / f"{name}.csv.gz"] if place.is_dir() else [place]
    return next((file for file in candidates if file.is_file()), None)


def obtain(source: Source) -> Path:
    """The file of a source: where `VARIABLE` says, else in the cache, else downloaded into the cache."""
    configured = os.environ.get(VARIABLE)
    found = find(source.name, Path(configured)) if configured else None
    if found is not None:
        return found
    cached = cache_folder() / f"{source.name}.csv"
    if not cached.exists():
        _download(source, cached)
    return cached


def read_verified(file: Path, sha256: str) -> bytes:
    """The content of a file, unpacked if it is compressed by gzip, if its hash is `sha256`; an error otherwise."""
    try:
        content = file.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{file} is cut short or damaged ({error}); delete it and get it again") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(
            f"{file} is cut short or altered: its {len(content):,} bytes have the sha256 {found}, expected {sha256}; "
            "delete it and get it again"
        )
    return content


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "counterpath"


def _download(source: Source, target: Path) -> None:
    """Put the file of a source at `target`, whole and verified, or raise an error that says how else to provide it."""
    try:
        with atomic(target) as temporary:
            expected = _fetch(source, temporary)
            size = temporary.stat().st_size
            if size < expected:
                raise HTTPException(f"only {size:,} of {expected:,} bytes came")
            read_verified(temporary, source.sha256)
    except (OSError, HTTPException, InputError) as error:
        raise InputError(
            f"{source.name} is not on this machine, and downloading it from {source.url} failed: {error}. Try again, "
            f"or provide a copy in one of three ways: load({source.name!r}, path=FILE); the environment variable "
            f"{VARIABLE}, a file or a folder that holds {source.name}.csv or {source.name}.csv.gz; or the file {target}"
        ) from error


def _fetch(source: Source, target: Path) -> int:
    """Write what the server sends to `target`; return how many bytes it announced."""
    with urllib.request.urlopen(source.url, timeout=TIMEOUT) as response, target.open("wb") as file:
        announced = int(response.headers.get("Content-Length") or 0)
        with track(f"Downloading {source.name} (KiB)", total=announced // _KIB) as advance:
            while chunk := response.read(64 * _KIB):
                file.write(chunk)
                advance(len(chunk) // _KIB)
    return announced

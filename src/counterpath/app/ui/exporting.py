"""Explanations as files to take home."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd

from counterpath.explanation import Explanation

Tables: TypeAlias = Mapping[str, pd.DataFrame]
Writer: TypeAlias = Callable[[Explanation, Path, Tables], Any]

FORMATS: dict[str, tuple[str, Writer]] = {
    "json": ("application/json", lambda result, path, tables: result.to_json(path)),
    "csv": ("text/csv", lambda result, path, tables: result.to_csv(path)),
    "html": ("text/html", lambda result, path, tables: result.to_html(path, tables=tables)),
}
"""By the end of a file's name its media type, and what writes it."""


def content(result: Explanation, suffix: str, tables: Tables) -> bytes:
    """The file as bytes; nothing of it stays on the disk.

    Args:
        result: What to write.
        suffix: A key of `FORMATS`.
        tables: Further tables for a report, by their headings.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"explanation.{suffix}"
        FORMATS[suffix][1](result, path, tables)
        return path.read_bytes()

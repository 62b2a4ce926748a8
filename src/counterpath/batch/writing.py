"""What is said when results cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpath.utils.errors import BatchError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a full disk, or the like, into an error that says what to do.

    Raises:
        BatchError: Something in the block could not be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BatchError(
            f"{path} cannot be written: {reason}. Make room, or see to whatever it is, and run the same command again: "
            "what is done is kept"
        ) from error

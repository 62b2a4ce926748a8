"""What can be set of the service."""

from dataclasses import dataclass

from counterpath.data.schema import Number


@dataclass(frozen=True)
class Settings:
    """Where the service listens, whom it answers, and how much it takes on.

    Attributes:
        host: The address to bind to.
        port: The port to bind to; 0 for any free one.
        token: What every request must present, except for a health check; None where none is needed.
        hosts: Further names by which clients may call the service.
        queue: How many requests may wait for an explanation, and how many for a prediction.
        batch: How many rows requests may have together to be explained as one batch.
        body: How many bytes a request may have.
        rows: How many rows a request may have.
        time_limit: How many seconds a request may take that does not say.
        longest: The largest time limit that a request may set.
        grace: How many seconds requests may still take when the service is stopped.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    hosts: tuple[str, ...] = ()
    queue: int = 256
    batch: int = 128
    body: int = 1 << 20
    rows: int = 1000
    time_limit: Number = 60.0
    longest: Number = 300.0
    grace: Number = 30.0

"""What can be set of the service."""

from dataclasses import dataclass

from counterpath.data.schema import Number

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """How the service listens, whom it answers, and how much it takes on.

    Attributes:
        host: The address to bind to.
        port: The port to bind to; 0 for any free one.
        token: What every request must present, except one that asks for health; None where none is needed.
        hosts: Further names by which clients may call the service.
        queue: How many questions may wait for an explanation, and how many for a prediction.
        batch: How many rows questions may have together to be answered by one call.
        body: How many bytes a request may have.
        rows: How many rows a question may have.
        time_limit: How long a question may take that does not say.
        longest: How long a question may say that it may take.
        grace: How many seconds questions may take that are being answered when the service is told to stop.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    hosts: tuple[str, ...] = ()
    queue: int = 256
    batch: int = 128
    body: int = MIB
    rows: int = 1000
    time_limit: Number = 60.0
    longest: Number = 300.0
    grace: Number = 30.0

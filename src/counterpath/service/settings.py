"""What can be set of the service."""

from dataclasses import dataclass
from pathlib import Path

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
        connections: How many connections are held; for a further one the one goes that has been idle longest.
        header_bytes: How many bytes the headers of a request may have together.
        header_seconds: How long they may take to arrive.
        idle_seconds: How long a connection is kept on which nothing is asked: longer than the pauses of a busy client.
        stalled_seconds: How long a client may leave a response unread.
        rate: How many requests a second each client may send, on average over a few; None for any number.
        tries: How many wrong tokens a minute are answered for each client, before there are only refusals.
        pages: How many loads of the page are kept whose browser has not connected: each takes 1.4 MB.
        visitors: How many browsers may have the page open.
        jobs: The folder in which jobs are kept; None for one that goes with the process.
        job_bytes: How many bytes all jobs may take there together.
        job_count: How many jobs there may be.
        job_seconds: How long a job is kept after it has ended.
        traces: Whether OpenTelemetry gets a trace of every request.
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
    connections: int = 512
    header_bytes: int = 32 << 10
    header_seconds: Number = 10.0
    idle_seconds: Number = 30.0
    stalled_seconds: Number = 30.0
    rate: Number | None = 100.0
    tries: int = 10
    pages: int = 32
    visitors: int = 128
    jobs: Path | None = None
    job_bytes: int = 1 << 30
    job_count: int = 256
    job_seconds: Number = 3600.0
    traces: bool = False

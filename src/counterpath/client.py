"""A client of the service, in Python and typed, that needs nothing but the standard library.

from counterpath.client import Client

with Client("http://127.0.0.1:8000", token=…) as client:
    answer = client.explain("loans", rows, target_class="yes", plans=2)
    answer.rows[0]["plans"][0]["sentence"]

    job = client.start("loans", many_rows, target_class="yes")
    for row in job.wait().rows():
        …
"""

import http.client
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

Row: TypeAlias = Mapping[str, Any]
"""The values of a row by its columns, as JSON has them."""
Status: TypeAlias = Literal["waiting", "running", "done", "failed"]
_BUSY = (429, 503)
"""Statuses after which to ask again: they say when."""
_FAILURE = 400  # the first status that is one
_TRIES = 5
"""How often a busy service is asked: with what it says to wait, a minute or two."""
_POLL_SECONDS, _MOST_POLL_SECONDS = 0.5, 10.0
"""Between two looks at a job: the first ones soon, since it may be small; then rarely, since it is not."""
_ROWS_AT_ONCE = 200


class ServiceError(Exception):
    """A request failed.

    Attributes:
        status: The HTTP status.
        code: What kind of failure it is, for programs.
        detail: What is wrong, and what to try.
        errors: Everything that is wrong: each with a `location` and a `message`.
        id: Under which the service has logged it, if it is its own fault.
        retry_after: In how many seconds to try again, if the service says so.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        self.code, self.detail = str(problem.get("code", "unknown")), str(problem.get("detail", "no reason was given"))
        self.errors: Sequence[Mapping[str, str]] = problem.get("errors", ())
        self.id: str | None = problem.get("id")
        super().__init__(f"{self.detail} (status {status}, {self.code})")


@dataclass(frozen=True)
class Answer:
    """What the service says about rows.

    Attributes:
        rows: One for each row, in their order.
        model: The name of the model.
        model_digest: What tells it from every other model.
        data_digest: What tells the rows that it was fitted to from all others.
        version: That of the service.
        request_id: Under which the service has logged the request.
        classes: The classes, of a prediction.
    """

    rows: Sequence[Mapping[str, Any]]
    model: str
    model_digest: str
    data_digest: str
    version: str
    request_id: str
    classes: Sequence[Any] = ()


class Client:
    """Asks a service, over one connection that is kept open. It is not for several threads at once.

    Args:
        address: Where it is, such as "http://127.0.0.1:8000".
        token: Its token, if it has one.
        timeout: How many seconds to wait for an answer.
        tries: How often to ask a service that is busy, or that has just gone away; 1 for once.

    Raises:
        ValueError: The address is none.
    """

    def __init__(self, address: str, token: str | None = None, *, timeout: float = 300.0, tries: int = _TRIES) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address is {address!r}; expected one such as 'http://127.0.0.1:8000'")
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = make(parts.hostname, parts.port, timeout=timeout)
        self._base, self._tries = parts.path.rstrip("/"), tries
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def models(self) -> list[dict[str, Any]]:
        """The models that are served: name, target and number of features of each."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/models")[0]["models"]
        return found

    def model(self, name: str) -> dict[str, Any]:
        """The description of a model: its columns, classes, methods and digests."""
        found: dict[str, Any] = self._ask("GET", f"/v1/models/{quote(name)}")[0]
        return found

    def explain(self, model: str, rows: Sequence[Row], **asked: Any) -> Answer:
        """What would have to change for another decision.

        Args:
            model: Who answers.
            rows: The rows, in original units.
            **asked: What is asked, as of `Explainer.explain`: target_class, confidence, lock, plans …

        Raises:
            ServiceError: The request failed.
        """
        return self._answer(*self._ask("POST", f"/v1/models/{quote(model)}:explain", {"rows": list(rows), **asked}))

    def predict(self, model: str, rows: Sequence[Row]) -> Answer:
        """What the model predicts.

        Raises:
            ServiceError: The request failed.
        """
        return self._answer(*self._ask("POST", f"/v1/models/{quote(model)}:predict", {"rows": list(rows)}))

    def start(self, model: str, rows: Sequence[Row], **asked: Any) -> "Job":
        """The same as `explain`, as a job: it returns at once.

        Raises:
            ServiceError: The request failed.
        """
        path = f"/v1/models/{quote(model)}:explain?async=true"
        return Job(self, self._ask("POST", path, {"rows": list(rows), **asked})[0]["id"])

    def job(self, id: str) -> "Job":  # noqa: A002
        """The job of an id."""
        return Job(self, id)

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[Any, Mapping[str, str]]:
        once = method == "DELETE" or path.endswith("async=true")  # it changes something: it is not sent again
        for left in range(self._tries - 1, -1, -1):
            if once:  # the service closes a kept connection that is idle, and may do so just as this is sent
                self._connection.close()
            try:
                return self._ask_once(method, path, body)
            except ServiceError as error:
                if error.status not in _BUSY or not left:
                    raise
                time.sleep((error.retry_after or 1.0) * random.uniform(1, 1.5))  # others are told the same
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()  # whatever still comes on it is the answer to this request and no other
                gone = isinstance(error, http.client.RemoteDisconnected | ConnectionError)
                if not gone or once or not left:
                    raise
        raise AssertionError("at least one try")

    def _ask_once(self, method: str, path: str, body: Any) -> tuple[Any, Mapping[str, str]]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        kind = {} if content is None else {"Content-Type": "application/json"}
        self._connection.request(method, self._base + path, content, self._headers | kind)
        response = self._connection.getresponse()
        text, headers = response.read(), {name.lower(): value for name, value in response.getheaders()}
        value = json.loads(text) if text and "json" in headers.get("content-type", "") else {}
        if response.status >= _FAILURE:
            after = headers.get("retry-after")
            raise ServiceError(response.status, value, None if after is None else float(after))
        return value, headers

    @staticmethod
    def _answer(value: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        return Answer(
            value["rows"],
            value["model"],
            headers["counterpath-model-digest"],
            headers["counterpath-data-digest"],
            headers["counterpath-version"],
            headers["x-request-id"],
            value.get("classes", ()),
        )


@dataclass(frozen=True)
class Job:
    """An explanation that the service computes while nobody waits.

    Attributes:
        id: Whoever knows it may see the job, and cancel it.
    """

    client: Client
    id: str

    @property
    def card(self) -> dict[str, Any]:
        """How far it is: `status`, `rows`, `done`, `expires`, `problem`.

        Raises:
            ServiceError: There is none any more.
        """
        found: dict[str, Any] = self.client._ask("GET", f"/v1/jobs/{self.id}")[0]
        return found

    @property
    def status(self) -> Status:
        """What it is at."""
        found: Status = self.card["status"]
        return found

    def wait(self, seconds: float | None = None) -> "Job":
        """Return when it is done.

        Args:
            seconds: For how long to wait; None for as long as it takes.

        Raises:
            TimeoutError: It was not done in time.
            ServiceError: It failed.
        """
        deadline, pause = None if seconds is None else time.monotonic() + seconds, _POLL_SECONDS
        while True:
            card = self.card
            if card["status"] == "done":
                return self
            if card["status"] == "failed":
                raise ServiceError(card["problem"]["status"], card["problem"])
            if deadline is not None and time.monotonic() + pause > deadline:
                raise TimeoutError(
                    f"the job has explained {card['done']} of {card['rows']} rows in {seconds:g} seconds"
                )
            time.sleep(pause)
            pause = min(2 * pause, _MOST_POLL_SECONDS)

    def rows(self, first: int = 0) -> Iterator[Mapping[str, Any]]:
        """The rows that are explained by now, from one on: those of a job that is done are all."""
        while True:
            query = urlencode({"first": first, "count": _ROWS_AT_ONCE})
            found = self.client._ask("GET", f"/v1/jobs/{self.id}/rows?{query}")[0]["rows"]
            yield from found
            if len(found) < _ROWS_AT_ONCE:
                return
            first += len(found)

    def cancel(self) -> None:
        """Compute no more of it, and have the service forget it."""
        self.client._ask("DELETE", f"/v1/jobs/{self.id}")

"""Jobs: explanations that are computed while nobody holds a connection open, slice after slice, each kept at once.

A job is a folder named by its id, which has 192 random bits: whoever knows it may see the job and cancel it.

    request.json     the model, its digests, and what was asked
    rows-N.json      the rows from the N-th on, as they are found
    end.json         how it ended
    lock             held by the process that computes it

So a process that is killed loses a slice at most: the next one that is given the same folder goes on from there, and so
does another worker of the same service.
"""

import asyncio
import json
import logging
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from filelock import FileLock, Timeout
from starlette.exceptions import HTTPException

from counterpath.service import schemas
from counterpath.service.dispatcher import Dispatcher, StoppingError
from counterpath.service.identity import ANSWERED_BY, Identity
from counterpath.service.problems import FullError, problem
from counterpath.service.settings import Settings
from counterpath.utils.errors import CounterpathError, InputError, choose
from counterpath.utils.files import write_text

T = TypeVar("T")
ID = re.compile(r"^[A-Za-z0-9_-]{32}$")
MAX_ROW = 10_000_000
"""No job has as many rows; beyond it numbers in an address are mistakes."""
_TOGETHER = 2
"""Jobs that are computed at a time: while one is being written, the other is computed, and requests come in between."""
_SWEEP_SECONDS = 5.0
"""Between two looks for jobs that have expired, or that nobody computes: little work, soon enough for either."""
_REQUEST, _END, _LOCK = "request.json", "end.json", "lock"
_LOG = logging.getLogger("counterpath.service")


class Jobs:
    """The jobs of a service.

    Args:
        dispatcher: Computes them.
        settings: Where they are kept, how many, and for how long.
    """

    def __init__(self, dispatcher: Dispatcher, settings: Settings) -> None:
        self._dispatcher, self._settings = dispatcher, settings
        self._folder = settings.jobs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unwritten: dict[str, dict[str, Any]] = {}  # how jobs ended where the disk had no room for it
        self._room = asyncio.Semaphore(_TOGETHER)
        self._sweeper: asyncio.Task[None] | None = None
        self._stopped = False
        # One thread: what jobs write and what is read of them follow each other, and the event loop waits for no disk.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="jobs")

    async def start(self) -> None:
        """Go on with the jobs that are there.

        Raises:
            InputError: The folder cannot be written to.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="counterpath-jobs-"))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the folder of jobs {self._folder} cannot be made: {error.strerror}") from error
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Leave off; what is kept in a folder that was given is gone on with by the next process."""
        self._stopped = True
        tasks = [*self._tasks.values(), *([] if self._sweeper is None else [self._sweeper])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown()
        if self._settings.jobs is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def create(self, model: str, asked: Mapping[str, Any]) -> schemas.JobCard:
        """Take a job on.

        Args:
            model: Who answers.
            asked: The body of the request, which was checked.

        Raises:
            FullError: There is no room for it.
        """
        identity = self._dispatcher.identify(model)
        name = secrets.token_urlsafe(24)
        request = {
            "model": model,
            "digest": identity.model,
            "data_digest": identity.data,
            "created": _now(),
            "asked": asked,
        }
        await self._on_disk(lambda: self._write(name, request))
        self._begin(name)
        return await self.show(name)

    async def show(self, name: str) -> schemas.JobCard:
        """How far a job is.

        Raises:
            HTTPException: There is none of that name.
        """
        return _answered(await self._on_disk(lambda: self._card(name)))

    async def rows(self, name: str, first: int, count: int) -> tuple[schemas.JobCard, list[str]]:
        """How far a job is, and some of the rows that it has found, each as JSON text.

        Raises:
            HTTPException: There is none of that name.
        """

        def read() -> tuple[schemas.JobCard, list[str]]:
            card = self._card(name)
            texts: list[str] = []
            for start, path in self._parts(name):
                if start < first + count and not texts and start + self._settings.batch <= first:
                    continue  # no slice is longer
                if start >= first + count:
                    break
                part = json.loads(path.read_text(encoding="utf-8"))
                texts += [text for row, text in enumerate(part, start) if first <= row < first + count]
            return card, texts

        card, texts = await self._on_disk(read)
        return _answered(card), texts

    async def cancel(self, name: str) -> None:
        """Compute no more of a job, and forget what it has found.

        Raises:
            HTTPException: There is none of that name.
        """
        await self.show(name)
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._on_disk(lambda: self._remove(name))

    async def _on_disk(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, function)

    def _begin(self, name: str) -> None:
        if name not in self._tasks and not self._stopped:
            task = asyncio.create_task(self._run(name))
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _run(self, name: str) -> None:
        """Compute what is left of a job, unless another process does."""
        lock = FileLock(self._path(name) / _LOCK)
        async with self._room:
            try:
                await self._on_disk(lambda: lock.acquire(timeout=0))
            except (Timeout, FileNotFoundError):
                return
            try:
                await self._compute(name)
            except StoppingError:
                return  # the next process goes on with it
            except FileNotFoundError:
                return  # it was cancelled by another worker
            except (CounterpathError, OSError) as error:
                full = isinstance(error, FullError | OSError)
                await self._end(name, {"status": 507, "code": "jobs_full"} if full else _UNUSABLE, str(error))
            except Exception as error:
                number = secrets.token_hex(6)
                _LOG.error("a job failed, id %s", number, exc_info=error)
                await self._end(name, {"status": 500, "code": "internal"}, f"the service's log has it under {number}")
            finally:
                await self._on_disk(lock.release)

    async def _compute(self, name: str) -> None:
        request = await self._on_disk(lambda: self._read(name))
        model, asked = request["model"], request["asked"]
        explainer = choose("model", model, self._dispatcher.models)
        if self._dispatcher.identify(model).model != request["digest"]:
            raise InputError(f"the model {model!r} is another one than that which was asked; send the request again")
        kind, _ = schemas.request_types(model, explainer, self._settings)
        body: Any = kind.model_validate(asked)
        what, done = schemas.read_request(body), await self._on_disk(lambda: self._done(name))
        rows = pd.DataFrame(body.rows, columns=list(explainer.schema_.names)).iloc[done:].reset_index(drop=True)
        if len(rows):
            what = replace(what, time_limit=None, row_constraints=what.row_constraints[done:])
            async with aclosing(self._dispatcher.slices(model, rows, what, accepted=True)) as slices:
                async for texts in slices:
                    await self._on_disk(partial(self._keep, name, done, texts))
                    done += len(texts)
                    if self._dispatcher.stopping:
                        raise StoppingError
        await self._on_disk(lambda: write_text(self._path(name) / _END, json.dumps({"ended": time.time()})))

    async def _end(self, name: str, kind: Mapping[str, Any], message: str) -> None:
        content = {"ended": time.time(), "problem": {**kind, "message": message}}

        try:
            await self._on_disk(partial(self._write_end, name, content))
        except OSError as error:
            self._unwritten[name] = content
            _LOG.error("how job %s ended cannot be kept yet: %s", name[:_SHOWN], error)

    def _write_end(self, name: str, content: Mapping[str, Any]) -> None:
        if self._path(name).exists():
            write_text(self._path(name) / _END, json.dumps(content))

    async def _sweep(self) -> None:
        """Forget jobs that have expired, and go on with those that nobody computes."""
        while True:
            try:
                for name in await self._on_disk(self._open_jobs):
                    self._begin(name)
            except OSError as error:
                _LOG.error("the folder of jobs cannot be read: %s", error)
            await asyncio.sleep(_SWEEP_SECONDS)

    def _open_jobs(self) -> list[str]:
        for name, content in list(self._unwritten.items()):
            with suppress(OSError):  # it is known here all the same, and tried again
                self._write_end(name, content)
                del self._unwritten[name]
        found = []
        for name in self._names():
            end = self._ended(name)
            if end is None:
                found.append(name)
            elif end["ended"] + self._settings.job_seconds < time.time():
                self._remove(name)
        return found

    def _names(self) -> list[str]:
        assert self._folder is not None
        return sorted(each.name for each in self._folder.iterdir() if ID.fullmatch(each.name))

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / name

    def _write(self, name: str, request: Mapping[str, Any]) -> None:
        assert self._folder is not None
        count = len(self._names())
        if count >= self._settings.job_count:
            raise FullError(f"there are {count} jobs, as many as may; cancel some, or wait until they have expired")
        self._insist_on_room()
        try:
            # It appears whole or not at all: others look through the folder.
            temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
            write_text(temporary / _REQUEST, json.dumps(request))
            temporary.rename(self._path(name))
        except OSError as error:
            raise FullError(f"the job cannot be kept: {error.strerror}") from error

    def _insist_on_room(self) -> None:
        assert self._folder is not None
        taken = sum(each.stat().st_size for each in self._folder.glob("*/*.json"))
        if taken >= self._settings.job_bytes:
            raise FullError(
                f"the jobs take {taken:,} bytes, of {self._settings.job_bytes:,} that they may; cancel some, or wait "
                "until they have expired"
            )

    def _keep(self, name: str, first: int, texts: list[str]) -> None:
        self._insist_on_room()
        if not self._path(name).exists():
            raise FileNotFoundError(name)
        write_text(self._path(name) / f"rows-{first}.json", json.dumps(texts))

    def _read(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self._path(name) / _REQUEST).read_text(encoding="utf-8"))
        return value

    def _ended(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self._path(name) / _END).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self._unwritten.get(name)
        return value

    def _parts(self, name: str) -> list[tuple[int, Path]]:
        found = self._path(name).glob("rows-*.json")
        return sorted((int(each.stem.removeprefix("rows-")), each) for each in found)

    def _done(self, name: str) -> int:
        parts = self._parts(name)
        return parts[-1][0] + len(json.loads(parts[-1][1].read_text(encoding="utf-8"))) if parts else 0

    def _remove(self, name: str) -> None:
        self._unwritten.pop(name, None)
        shutil.rmtree(self._path(name), ignore_errors=True)

    def _card(self, name: str) -> schemas.JobCard:
        try:
            request, end = self._read(name), self._ended(name)
            done = self._done(name)
        except FileNotFoundError as error:
            raise HTTPException(404, "there is no such job: it has expired, or was cancelled") from error
        failed = None if end is None else end.get("problem")
        started = done > 0 or name in self._tasks
        status = ("running" if started else "waiting") if end is None else "failed" if failed else "done"
        expires = None if end is None else datetime.fromtimestamp(end["ended"] + self._settings.job_seconds, UTC)
        return schemas.JobCard(
            id=name,
            model=request["model"],
            model_digest=request["digest"],
            data_digest=request["data_digest"],
            status=status,
            rows=len(request["asked"]["rows"]),
            done=done,
            created=request["created"],
            expires=None if expires is None else expires.isoformat(timespec="seconds"),
            problem=None if failed is None else schemas.Problem(**problem(**failed)),
        )


_UNUSABLE = {"status": 422, "code": "unusable"}
_SHOWN = 6
"""Characters of an id that are logged: enough to find a job, too few to use it."""


def _answered(card: schemas.JobCard) -> schemas.JobCard:
    """The card, which is noted for the response: it says which model the rows are of."""
    answered_by = ANSWERED_BY.get()
    if answered_by is not None:
        answered_by.append(Identity(card.model_digest, card.data_digest))
    return card


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""A service on a free port of this machine, in this process."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

import counterpath as cp
from counterpath.service.api import create
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.settings import Settings


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application that is served by a thread of this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextlib.contextmanager
def service(models: dict[str, cp.Explainer], settings: Settings) -> Iterator[httpx.Client]:
    """A client of a service of its own."""
    with served(create(Dispatcher(models, settings), settings)) as address, httpx.Client(base_url=address) as client:
        client.timeout = 60
        yield client


@pytest.fixture(scope="module")
def client(explainer: cp.Explainer) -> Iterator[httpx.Client]:
    """A client of a service with the model `people`."""
    with service({"people": explainer}, Settings(rows=50)) as found:
        yield found

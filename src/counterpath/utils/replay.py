"""The same work again and again: on a GPU, recorded once and then replayed.

A step of a search or of a training is a hundred small kernels, each of which takes less time than its launch. A CUDA
graph launches them all at once.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

T = TypeVar("T")

_WARM_UP_CALLS = 2
"""Calls that run eagerly before the graph is recorded: they compile kernels and set up libraries, which may not happen
in a recording. As few as are enough: every further one would delay the gain."""


class Replayed(Generic[T]):
    """Work that can be repeated: call it, and find what it returned in `result`.

    The work reads and writes tensors that stay where they are, and never synchronizes with the device
    (reads none of its values). The next call overwrites the result.

    Args:
        work: What to repeat.
        device: Where it runs; only on a GPU is anything recorded.
        generator: A source of random numbers that the work uses.
        record: Whether recording is possible at all.
    """

    def __init__(
        self,
        work: Callable[[], T],
        device: torch.device,
        generator: torch.Generator | None = None,
        *,
        record: bool = True,
    ) -> None:
        self._work, self._generator = work, generator
        self._record = record and device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self.result: T

    def __call__(self) -> None:
        """Do the work once."""
        if self._graph is not None:
            self._graph.replay()
            return
        if not self._record or self._calls < _WARM_UP_CALLS:
            self._calls += 1
            self.result = self._work()
            return
        graph = torch.cuda.CUDAGraph()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
        with no_collection(), _recorded(graph):
            self.result = self._work()
        self._graph = graph
        graph.replay()


@contextmanager
def _recorded(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Record the work of the block.

    `torch.cuda.graph` first gives back all memory that torch keeps for later, and what follows has to ask for it anew:
    where gigabytes are kept, that takes longer than a search.
    """
    before, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    aside.wait_stream(before)
    with torch.cuda.stream(aside):
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()
    before.wait_stream(aside)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from running within the block.

    It would free an older recording, which spoils the one that is being made; and where many small lists are made, it
    looks through all of them again and again, which takes several times as long as making them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""Searches of more rows than fit into memory: chunk after chunk, and only the ends are kept."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from counterpath.blocks import rows_for
from counterpath.geometry.metric import Metric
from counterpath.models.latent import LatentModel
from counterpath.search.objective import Objective
from counterpath.search.traverse import Trajectory, traverse

CHUNK = {"cpu": 1 << 16, "cuda": 1 << 19}
"""Rows in a chunk, by the type of the device: several blocks, so that little of the last one is empty."""


def sweep(
    model: LatentModel,
    metric: Metric,
    objective: Objective,
    chunks: Iterable[Tensor],
    *,
    device: torch.device,
    **options: Any,
) -> Iterator[Trajectory]:
    """Search chunks of rows, and give back where the paths of each end, on the device that the chunk came from.

    What is in memory is one chunk, whatever the number of rows.

    Args:
        model: The space to walk in, on `device`; not one that is told columns.
        metric: The geometry of that space.
        objective: What to minimise.
        chunks: Rows to start from, for instance `rows.split(CHUNK[device.type])`; only one is held at a time.
        device: Where to compute.
        options: As of `traverse`. Blocks are large unless `block_size` says otherwise.
    """
    options = {"keep": "end", "block_size": rows_for(device, many=True), **options}
    for chunk in chunks:
        yield traverse(model, metric, objective, chunk.to(device), **options).to(chunk.device)

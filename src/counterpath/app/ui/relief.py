"""The volume element of the metric over the latent map of one person.

On a map of two of d dimensions, what stands for a place? The plane through the mean of the codes is far from most of
them. So a place u gets the code

    z(u) = c + A u + Σ_k w_k(u) r_k,    w_k(u) ∝ exp(−‖u − u_k‖² / 2h(u)²),

where r_k is what the map leaves out of the k-th training code, and h(u) grows with the distance to the nearest ones:
the surface on which the codes lie on average. Where d = 2 nothing is left out, and z(u) is the place itself.
"""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.app.ui.figures_map import Relief
from counterpath.blocks import map_blocks
from counterpath.explainer import Explainer
from counterpath.geometry.metric import DAMPING, damped, volume
from counterpath.learned import Learned
from counterpath.methods import METHODS
from counterpath.models.latent import given

_CELLS = 44
_CODES = 1500
_HALF = 0.58
_NEAR = 40
_FEW = 15


def relief_for(explainer: Explainer, person: pd.DataFrame, method: str = "rsgd") -> Relief | None:
    """The volume element √det M over the map, as it is for a person's own immutable features.

    It takes some 100 ms on a CPU, so it does not belong on an event loop.

    Args:
        explainer: A fitted explainer.
        person: One row, with the columns of the training table.
        method: Whose metric, a key of `METHODS` that walks in the latent space of the map.

    Returns:
        None where the latent space has one dimension only, and the map no area.
    """
    learned: Learned = explainer.learned_
    view = learned.view
    if len(view.center) < 2:
        return None
    x, y = _sides(view.points)
    places = torch.cartesian_prod(y, x).flip(-1)
    with torch.no_grad():
        codes = _codes_at(learned, places).to(learned.rows)
        row = learned.encoder.encode(person[list(learned.encoder.schema.names)].head(1)).to(learned.rows)
        told = given(learned.space, row.expand(len(codes), -1))
        metric = METHODS[method](learned.parts).metric
        heights = map_blocks(
            lambda z, context: volume(damped(metric(learned.space.linearize(z, context)), DAMPING)), codes, told
        )
    grid = heights.double().cpu().numpy().reshape(len(y), len(x))
    flat = len(view.center) == 2
    where = "" if flat else "Background: on the surface on which the codes lie on average."
    return Relief(x.numpy(), y.numpy(), np.asarray(grid, dtype=np.float64), where)


def _sides(points: Float[Tensor, "n 2"]) -> tuple[Float[Tensor, "m"], Float[Tensor, "m"]]:
    """Both sides of a square grid: where the codes are, and somewhat beyond."""
    low, high = points.amin(0), points.amax(0)
    half = _HALF * float((high - low).max().clamp(min=1e-9))
    x, y = (
        torch.linspace(middle - half, middle + half, _CELLS, dtype=torch.float64)
        for middle in ((low + high) / 2).tolist()
    )
    return x, y


def _codes_at(learned: Learned, places: Float[Tensor, "m 2"]) -> Float[Tensor, "m d"]:
    """A code for every place on the map."""
    view = learned.view
    order = torch.randperm(len(learned.rows), generator=torch.Generator().manual_seed(0))[:_CODES]
    codes = map_blocks(learned.space.encode, learned.rows[order.to(learned.rows.device)]).double().cpu()
    shown = view.show(codes)
    left_out = codes - view.center - shown @ view.axes.T
    least = float((shown.amax(0) - shown.amin(0)).norm()) / _NEAR or 1.0
    apart = torch.cdist(places, shown)
    width = (least**2 + apart.topk(min(_FEW, len(codes)), largest=False).values[:, -1:].square() / 2).sqrt()
    weight = torch.softmax(-(apart / width).square() / 2, dim=-1)
    flat: Tensor = view.center + places @ view.axes.T + weight @ left_out
    return flat

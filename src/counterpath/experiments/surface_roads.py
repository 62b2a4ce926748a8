"""The global methods on the surface: ways over a graph of codes, and chains of training rows.

They have no number of steps. So that they can stand beside walks, a path is cut at the first point that the classifier
accepts, and what is left of it is given as many points as a walk has.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.chains import Chains
from counterpath.geometry.curve import resample
from counterpath.geometry.metric import pullback
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.classifier import probabilities
from counterpath.models.vae import VAE
from counterpath.network import Landmarks, Network, get_on
from counterpath.search.terrain import Terrain
from counterpath.search.wanted import Wanted

LogOdds = Callable[[Tensor], Tensor]
"""A classifier: rows to the log odds of being accepted."""

_WANTED = Wanted(1)
_GOALS = 4
_SEGMENTS, _RELAXING = 16, 5


def lay(vae: VAE, classifier: LogOdds, rows: Float[Tensor, "m D"]) -> Network:
    """The network on the codes of training rows, each a goal if the classifier accepts what it is decoded as."""
    with torch.no_grad():
        z = map_blocks(vae.encode, rows)
        x = map_blocks(vae.decode, z)
        answers = probabilities(map_blocks(classifier, x))
    return Network.laid(Terrain.of(vae, pullback, z, None), Landmarks(x, z, answers), None, seed=0)


def travel(
    network: Network, vae: VAE, classifier: LogOdds, rows: Float[Tensor, "n D"], steps: int
) -> tuple[Float[Tensor, "t n d"], Float[Tensor, "t n D"]]:
    """`geodesic`: the relaxed ways of rows to where they are accepted, as codes and as rows.

    A path begins at the row itself: x(t) = μ(z(t)) + (1 − t)(x − μ(z(0))). What the decoder does not reproduce of it is
    carried along and fades, so that a goal is what the classifier was asked about.
    """
    world = network.world(None)
    field = network.ways(world, _WANTED)
    goal = (field.cost == 0).nonzero()[:, 0]
    ends = goal[Neighbours(world.decoded.mean[goal]).nearest(rows, _GOALS)[1]]
    with torch.no_grad():
        start = map_blocks(vae.encode, rows)
        carried = (rows - map_blocks(vae.decode, start))[:, None]
    ways = resample(get_on(network.terrain, world, field, start, ends)[0], _SEGMENTS)
    looks = resample(network.terrain.relaxed(ways, None, steps=_RELAXING), steps)
    share = torch.linspace(1, 0, steps + 1, device=rows.device)[None, :, None]
    x = _decoded(vae, looks) + share * carried
    accepted = (map_blocks(classifier, x.flatten(0, 1)) > 0).view(x.shape[:2])
    first = torch.where(accepted.any(1), accepted.int().argmax(1), steps)
    cut = torch.arange(steps + 1, device=rows.device).minimum(first[:, None])[..., None].expand_as(looks)
    z = resample(looks.gather(1, cut), steps)
    path = _decoded(vae, z) + (1 - (1 - share) * first[:, None, None] / steps) * carried
    path[:, -1] = x[torch.arange(len(x), device=x.device), first]  # to the bit what the classifier was asked about
    return z.transpose(0, 1), path.transpose(0, 1)


def chain(chains: Chains, rows: Float[Tensor, "n D"], steps: int) -> Float[Tensor, "t n D"]:
    """`face`: the chains of rows, straight from one training row to the next; who has none stays."""
    ways, exists = chains.ways(rows, _WANTED.met(chains.answers))
    if not bool(exists.any()):
        return rows.expand(steps + 1, -1, -1)
    points = torch.cat([rows[:, None], chains.rows[ways]], 1)
    return resample(torch.where(exists[:, None, None], points, rows[:, None]), steps).transpose(0, 1)


def link(classifier: LogOdds, rows: Float[Tensor, "m D"]) -> Chains:
    """The graph of training rows."""
    return Chains.of(rows, probabilities(map_blocks(classifier, rows)), torch.ones_like(rows[0]))


def _decoded(vae: VAE, z: Float[Tensor, "n t d"]) -> Float[Tensor, "n t D"]:
    with torch.no_grad():
        return map_blocks(vae.decode, z.flatten(0, 1)).view(*z.shape[:2], -1)

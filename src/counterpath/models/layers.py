"""The layers that the models are built of, each with its tangent rule beside it."""

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval
from torch.optim.swa_utils import update_bn

from counterpath.geometry.linearize import push
from counterpath.utils.errors import InputError

M = TypeVar("M", bound=nn.Module)


def mlp(sizes: Sequence[int], *, final: nn.Module | None = None, batch_norm: bool = True) -> nn.Sequential:
    """Linear layers with BatchNorm and Tanh between them.

    Args:
        sizes: Width of the input, the hidden layers and the output.
        final: What follows the last linear layer; nothing by default.
        batch_norm: Normalise before every Tanh.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, outputs), *([nn.BatchNorm1d(outputs)] if batch_norm else []), nn.Tanh()]
    layers += [nn.Linear(sizes[-2], sizes[-1]), *([] if final is None else [final])]
    return nn.Sequential(*layers)


class TableOutput(nn.Module):
    """The last layer of a decoder for tables: softmax for each block of categories, `number` for all other columns.

    Args:
        width: Number of columns.
        blocks: The columns of each category, as (first, last + 1), in order.
        number: Applied to the other columns, element by element.
    """

    def __init__(self, width: int, blocks: Sequence[tuple[int, int]], number: nn.Module) -> None:
        super().__init__()
        self.number, self.softmax = number, nn.Softmax(dim=-1)
        self.pieces = tuple(_pieces(width, blocks))

    def forward(self, value: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """The decoded row."""
        return torch.cat([layer(value[..., part]) for layer, part in self.parts()], dim=-1)

    def parts(self) -> list[tuple[nn.Module, slice]]:
        """Which layer is applied to which columns."""
        return [(self.softmax if category else self.number, part) for part, category in self.pieces]


@push.register(TableOutput)
def _(layer: TableOutput, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    tangents = tangents.expand(-1, len(value), -1)
    pushed = [push(part, value[..., columns], tangents[..., columns]) for part, columns in layer.parts()]
    return torch.cat([out for out, _ in pushed], dim=-1), torch.cat([tangent for _, tangent in pushed], dim=-1)


def _pieces(width: int, blocks: Sequence[tuple[int, int]]) -> Iterator[tuple[slice, bool]]:
    """Runs of columns, and whether each is the block of a category."""
    done = 0
    for first, end in blocks:
        if first > done:
            yield slice(done, first), False
        yield slice(first, end), True
        done = end
    if done < width:
        yield slice(done, width), False


def fold(module: M) -> M:
    """A copy in evaluation mode in which every BatchNorm that follows a Linear layer is folded into it."""
    folded = copy.deepcopy(module).eval()
    for part in [m for m in folded.modules() if type(m) is nn.Sequential]:
        for index in reversed(range(len(part) - 1)):
            linear, norm = part[index], part[index + 1]
            if isinstance(linear, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                if norm.running_mean is None:
                    raise InputError("a BatchNorm layer without running statistics cannot be folded")
                part[index] = fuse_linear_bn_eval(linear, norm)
                del part[index + 1]
    return folded.requires_grad_(False)


def update_batch_norm(module: nn.Module, rows: Float[Tensor, "n D"]) -> None:
    """Set the statistics of every BatchNorm layer to those of all rows, and leave the module in evaluation mode.

    In training they trail behind weights that move, by ten batches or so; on small tables that costs accuracy.
    """
    update_bn([rows], module)
    module.eval()

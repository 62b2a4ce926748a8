"""The block in which rows walk: its shape never changes, and who is done makes room for who waits."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Slots:
    """Who walks in the block, and where they are; the tensors stay, their numbers change.

    Attributes:
        z: Latent points.
        row: Whose they are; the number of rows for a slot that is empty.
        taken: Steps taken so far.
        begun: How many rows have a slot, or had one.
        count: How many rows there are.
    """

    z: Float[Tensor, "b d"]
    row: Int[Tensor, "b"]
    taken: Int[Tensor, "b"]
    begun: Int[Tensor, ""]
    count: int

    @classmethod
    def filled(cls, start: Float[Tensor, "n d"], size: int) -> "Slots":
        """As many slots as asked for, with the first rows in them."""
        row = torch.arange(size, device=start.device).clamp_max(len(start))
        z = start[row.clamp_max(len(start) - 1)]
        return cls(z, row, torch.zeros_like(row), row.new_tensor(min(size, len(start))), len(start))

    def move(self, z: Float[Tensor, "b d"], done: Bool[Tensor, "b"], start: Float[Tensor, "n d"]) -> None:
        """Go on, and give the slots that are done to those who wait, in their order."""
        following = (self.begun + done.cumsum(0) - 1).clamp_max(self.count)
        row = torch.where(done, following, self.row)
        self.begun.add_(done.sum()).clamp_max_(self.count)
        self.z.copy_(torch.where(done[:, None], start[row.clamp_max(self.count - 1)], z))
        self.taken.copy_(torch.where(done, 0, self.taken + 1))
        self.row.copy_(row)

    def finished(self) -> int:
        """How many rows are done; this waits for the device."""
        return int(self.begun - (self.row < self.count).sum())

"""Numbers as people write them: with no more digits than it takes."""

import decimal
from collections.abc import Callable
from decimal import Decimal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Same = Callable[[Tensor, Tensor], Tensor]

_DIGITS = 16
"""17 digits say no more than the number itself does."""
_EXACT = 22
"""10²² is the largest power of ten that float64 has; dividing by one of those rounds once, hence correctly."""
_POWERS = torch.tensor([float(10**place) for place in range(_EXACT + 1)], dtype=torch.float64)
_EXTREME = 330
_DOWN, _UP = (torch.floor, decimal.ROUND_FLOOR), (torch.ceil, decimal.ROUND_CEILING)


def shortest(numbers: Float[Tensor, "n"], widths: Float[Tensor, "n"], same: Same) -> Float[Tensor, "n"]:
    """For every number the decimal with the fewest places that is as good; itself, where none of 16 digits is.

    What is as good as a number is an interval around it. If a multiple of 10⁻ᵏ lies in it, then so does one of 10⁻ᵏ⁻¹
    that is no farther from the number. So places are taken away one after the other, until nothing is left in it.

    Args:
        numbers: In float64.
        widths: How long the interval is, at most ten times too much; it says with how many places to begin.
        same: (numbers, the places in `numbers` of those that they stand for) ↦ which are as good.
    """
    found, rows = numbers.clone(), numbers.isfinite().nonzero()[:, 0]
    places = _enough(numbers[rows], widths[rows])
    while len(rows):
        here = numbers[rows]
        down, up = (_multiple(here, places, *rounding) for rounding in (_DOWN, _UP))
        good, also = same(down, rows), same(up, rows)
        chosen = torch.where(good & ((here - down <= up - here) | ~also), down, up)
        good = good | also
        found[rows[good]] = chosen[good] + 0.0  # makes -0 a 0
        good = good & (chosen != 0)  # nothing is shorter than 0
        rows, places = rows[good], places[good] - 1
    return found


def _enough(numbers: Float[Tensor, "n"], widths: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
    """With how many decimal places some number lies in the interval, unless that takes too many digits."""
    wanted, most = 1 - widths.log10().floor(), _DIGITS - 1 - numbers.abs().log10().floor()
    return torch.minimum(wanted, most).nan_to_num().clamp(-_EXTREME, _EXTREME).long()


def _multiple(
    numbers: Float[Tensor, "n"], places: Int[Tensor, "n"], whole: Callable[[Tensor], Tensor], name: str
) -> Float[Tensor, "n"]:
    """The next multiple of 10⁻ᵏ below or above, for k places, as the float64 that is nearest to that decimal."""
    power = _POWERS[places.abs().clamp_max(_EXACT)]
    found = torch.where(places < 0, whole(numbers / power) * power, whole(numbers * power) / power)
    extreme = places.abs() > _EXACT
    if bool(extreme.any()):
        pairs = zip(numbers[extreme].tolist(), places[extreme].tolist(), strict=True)
        exact = [float(Decimal(x).scaleb(k).to_integral_value(name).scaleb(-k)) for x, k in pairs]
        found[extreme] = torch.tensor(exact, dtype=torch.float64)
    return found

import pytest
import torch

from counterpath.utils.replay import Replayed

DEVICES = [
    torch.device("cpu"),
    pytest.param(torch.device("cuda"), marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("record", [True, False])
def test_work_is_done_once_a_call(device: torch.device, record: bool) -> None:
    total = torch.zeros(3, device=device)

    def add() -> torch.Tensor:
        total.add_(1)
        return total * 2

    again = Replayed(add, device, record=record)
    for call in range(1, 8):
        again()
        assert total.tolist() == [call] * 3
        assert again.result.tolist() == [2 * call] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_go_on(device: torch.device) -> None:
    drawn: list[list[float]] = []
    for record in (True, False):
        generator = torch.Generator(device).manual_seed(0)
        again = Replayed(lambda: torch.rand(4, generator=generator, device=device), device, generator, record=record)  # noqa: B023
        for _ in range(6):
            again()
            drawn.append(again.result.tolist())
    assert drawn[:6] == drawn[6:]
    assert len({tuple(numbers) for numbers in drawn[:6]}) == 6

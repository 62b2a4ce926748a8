import pytest
import torch

from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import InputError


def test_devices() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "", "mps", "cuda:99", "cuda:x"])
def test_unknown_devices_list_the_valid_ones(name: str) -> None:
    with pytest.raises(InputError, match="cpu"):
        resolve_device(name)

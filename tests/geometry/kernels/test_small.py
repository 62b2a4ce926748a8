import pytest
import torch

from counterpath.geometry.metric import damped


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_gram_matrices_of_factors_with_any_strides(device: torch.device, size: int) -> None:
    from counterpath.geometry.kernels import small

    factor = torch.randn(size, 70, 13, device=device).permute(1, 2, 0)
    expected = factor.double().mT @ factor.double()
    torch.testing.assert_close(small.gram(factor), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_systems_and_who_has_no_solution(device: torch.device, size: int) -> None:
    from counterpath.geometry.kernels import small

    factor, vector = torch.randn(70, 13, size, dtype=torch.float64, device=device), torch.randn(70, size, device=device)
    matrix = damped(factor.mT @ factor, 1e-3)
    matrix[3], matrix[5, 0, 0] = torch.nan, torch.inf
    solution, valid = small.solve(matrix, vector, 1e-3)
    assert (~valid).nonzero()[:, 0].tolist() == [3, 5]
    assert not solution[[3, 5]].any(), "what is not valid is 0"
    expected = torch.linalg.solve(matrix[valid], vector[valid].double())
    torch.testing.assert_close(solution[valid], expected, rtol=1e-9, atol=1e-9)


def test_a_pivot_is_at_least_its_floor(device: torch.device) -> None:
    from counterpath.geometry.kernels import small

    # Exactly, the second pivot is the damping; in float64 it is a rounding error, and may be negative.
    steep = torch.tensor([[1e9, 1e9]], dtype=torch.float64, device=device)
    matrix = damped((steep.mT @ steep)[None], 1e-6)
    solution, valid = small.solve(matrix, torch.tensor([[1.0, -1.0]], device=device), 1e-6)
    assert bool(valid.all())
    assert solution.abs().max() <= 2.1e6

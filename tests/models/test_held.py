import torch
from torch import Tensor

from counterpath.geometry.linearize import jacobian_autodiff
from counterpath.models.held import Held
from counterpath.models.latent import IdentityModel, given

from ..conftest import random_vae

COLUMNS = [0, 4]


def _held() -> tuple[Held, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(20, 6, dtype=torch.float64, generator=generator)
    z = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    return Held(random_vae(context=2), COLUMNS), x, z


def test_held_columns_are_copied_through_to_the_bit() -> None:
    model, x, z = _held()
    told = given(model, x)
    assert told is not None
    decoded = model.decode(z, told)
    assert torch.equal(decoded[:, COLUMNS], x[:, COLUMNS])
    assert torch.equal(model.linearize(z, told).mean, decoded)
    free = [column for column in range(6) if column not in COLUMNS]
    torch.testing.assert_close(decoded[:, free], model.vae.decode(z, told)[:, free], rtol=0, atol=0)


def test_jacobians_agree_with_autodiff_and_held_columns_do_not_move() -> None:
    model, x, z = _held()
    told = given(model, x)
    lin = model.linearize(z, told)
    torch.testing.assert_close(lin.mean_jac, jacobian_autodiff(lambda code: model.decode(code, told), z)[1])
    torch.testing.assert_close(lin.std_jac, jacobian_autodiff(lambda code: model.uncertainty(code, told), z)[1])
    assert (lin.mean_jac[:, COLUMNS] == 0).all()


def test_the_uncertainty_is_one_of_code_and_condition_together() -> None:
    model, x, z = _held()
    told = given(model, x)
    assert told is not None
    assert (model.uncertainty(z, told + 5) > model.uncertainty(z, told)).all()


def test_a_model_that_is_told_nothing_has_no_condition() -> None:
    assert given(random_vae(), torch.rand(3, 6)) is None


def test_the_data_space_can_hold_columns_too() -> None:
    model = IdentityModel(COLUMNS)
    z = torch.rand(5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.equal(model.decode(z), z)
    gradient = torch.autograd.grad(model.decode(z).sum(), z)[0]
    assert gradient[0].tolist() == [0, 1, 1, 1, 0, 1]
    torch.testing.assert_close(model.linearize(z.detach()).mean_jac[0], torch.diag(gradient[0]))

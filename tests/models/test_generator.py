import pytest
import torch
from torch import Tensor, nn

from counterpath.geometry.metric import jacobian_autodiff
from counterpath.models.generator import Generator, draw
from counterpath.models.latent import LatentModel
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_uncertainty
from counterpath.utils.errors import InputError


class Rotation(nn.Module):
    """Codes are rows turned and squashed; decoding is exact."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turn = nn.Parameter(torch.linalg.qr(torch.randn(width, width))[0])
        self.drop = nn.Dropout(0.5)

    def encode(self, x: Tensor) -> Tensor:
        return torch.sinh(self.drop(x) @ self.turn)

    def decode(self, z: Tensor) -> Tensor:
        return torch.asinh(z) @ self.turn.T


@pytest.fixture
def rows() -> Tensor:
    return torch.rand(120, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def fitted(rows: Tensor) -> Generator:
    model = Generator(Rotation(), rows, centers=10, category=torch.tensor([True, True, False, False]))
    fit_uncertainty(model, rows, training=VAETraining(std_epochs=5, batch_size=32), run=Run())
    return model


def test_a_generator_is_a_latent_model_with_our_uncertainty(fitted: Generator, rows: Tensor) -> None:
    assert isinstance(fitted, LatentModel)
    torch.testing.assert_close(fitted.decode(fitted.encode(rows)), rows)
    codes = fitted.encode(rows)
    far = 50 + codes
    assert fitted.uncertainty(far).median() > 100 * fitted.uncertainty(codes).median()


def test_its_linearisation_is_that_of_autodiff(fitted: Generator, rows: Tensor) -> None:
    fitted, z = fitted.double(), fitted.double().encode(rows[:9].double())
    lin = fitted.linearize(z)
    for value, jac, function in (
        (lin.mean, lin.mean_jac, fitted.decode),
        (lin.std, lin.std_jac, fitted.uncertainty),
    ):
        torch.testing.assert_close(value, function(z))
        torch.testing.assert_close(jac, jacobian_autodiff(function, z)[1], rtol=1e-8, atol=1e-10)
    assert lin.category is not None
    assert lin.category.tolist() == [True, True, False, False]


def test_the_user_s_module_is_left_as_it_is(rows: Tensor) -> None:
    own = Rotation().double()
    model = Generator(own, rows, centers=500)
    assert own.training
    assert own.turn.requires_grad
    assert own.turn.dtype == torch.float64
    assert torch.equal(model.encode(rows), model.encode(rows)), "no dropout"
    assert len(model.precision.centers) == 120, "no more centres than codes"


class Detached(Rotation):
    def decode(self, z: Tensor) -> Tensor:
        return super().decode(z).detach()


class Wide(Rotation):
    def decode(self, z: Tensor) -> Tensor:
        return torch.cat([z, z], 1)


class Infinite(Rotation):
    def decode(self, z: Tensor) -> Tensor:
        return z / 0


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (Detached(), "not differentiable by z"),
        (Wide(), r"back to rows \(120, 8\); expected codes \(n, d\) and rows \(120, 4\)"),
        (Infinite(), "not finite on the training rows"),
        (Rotation(5), "cannot be run on encoded rows of 4 columns"),
    ],
)
def test_what_cannot_be_searched_is_refused(own: Rotation, message: str, rows: Tensor) -> None:
    with pytest.raises(InputError, match=message):
        Generator(own, rows, centers=5)


def test_drawn_rows_lie_around_the_data_and_follow_the_seed(fitted: Generator, rows: Tensor) -> None:
    drawn = draw(fitted, rows, 500, seed=3)
    assert drawn.shape == (500, 4)
    assert torch.equal(drawn, draw(fitted, rows, 500, seed=3))
    assert not torch.equal(drawn, draw(fitted, rows, 500, seed=4))
    assert ((drawn > -0.5) & (drawn < 1.5)).all()
    assert torch.cdist(drawn, rows).amin(1).median() > 0.01, "between the rows, and not only on them"

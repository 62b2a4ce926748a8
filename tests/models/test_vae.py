import pytest
import torch
from torch import Tensor

from counterpath.data.surface import Surface
from counterpath.geometry.metric import jacobian_autodiff
from counterpath.models.calibration import calibrate
from counterpath.models.training import Run, seeded
from counterpath.models.vae import VAE, VAETraining, category_columns, fit_uncertainty, fit_vae
from counterpath.search.method import SearchModels
from counterpath.utils.errors import InputError
from tests.conftest import random_vae

SHORT = VAETraining(mean_epochs=2, std_epochs=2, batch_size=64)


def test_a_fitted_vae_reconstructs_to_the_noise(search_models: SearchModels, surface: Surface) -> None:
    assert search_models.vae is not None
    error = search_models.vae.decode(search_models.vae.encode(surface.x)) - surface.x
    assert error.square().mean().sqrt() < 0.3 * surface.x.std()


def test_the_second_phase_leaves_encoder_and_mean_alone(surface: Surface) -> None:
    vae = fit_vae(surface.x, 2, hidden=(16,), output="linear", centers=20, training=SHORT, run=Run(seed=0))
    before = {key: value.clone() for key, value in vae.state_dict().items()}
    fit_uncertainty(vae, surface.x, training=VAETraining(std_epochs=3, batch_size=64, bandwidth=5.0), run=Run(seed=1))
    for key, value in vae.state_dict().items():
        assert torch.equal(value, before[key]) == (not key.startswith("precision")), key


def test_the_uncertainty_is_fitted_by_likelihood(surface: Surface) -> None:
    """On the data σ ends near the size of the residuals; a wrong start is corrected."""
    training = VAETraining(mean_epochs=60, std_epochs=40, batch_size=64, std_learning_rate=0.05)
    vae = fit_vae(surface.x, 2, hidden=(32, 32), output="linear", centers=30, training=training, run=Run(seed=0))
    codes = vae.encode(surface.x)
    residual = (vae.decode(codes) - surface.x).square().mean(0).sqrt()
    sigma = vae.uncertainty(codes).median(0).values
    assert ((sigma / residual).log().abs() < 0.7).all()


def test_calibration_tells_data_from_emptiness(search_models: SearchModels, surface: Surface) -> None:
    assert search_models.vae is not None
    found = calibrate(search_models.vae, surface.x[:400], surface.x[400:])
    assert found.auc > 0.95
    assert found.sigma_off > 10 * found.sigma_on
    assert 0 < found.sigma_share < 1


def test_a_conditional_vae_needs_its_context() -> None:
    with pytest.raises(
        InputError, match="is conditional: give it the context that `context` makes; its context is missing"
    ):
        random_vae(conditional=True).decode(torch.zeros(2, 3).double())
    with pytest.raises(InputError, match="is not conditional; its context is too much"):
        random_vae().decode(torch.zeros(2, 3).double(), torch.zeros(2, 12).double())
    with pytest.raises(InputError, match="give conditional=True, too"):
        VAE(3, 2, always_conditioned=[1])


def _linked() -> tuple[VAE, Tensor]:
    """One code for four columns: 0 or 1, close to that, and two that have nothing to do with it."""
    with seeded(0):
        first = torch.rand(600, 1).round()
        x = torch.cat([first, 0.1 + 0.8 * first + 0.03 * torch.randn(600, 1), torch.rand(600, 2).round()], 1)
    training = VAETraining(mean_epochs=60, std_epochs=10, batch_size=64, std_learning_rate=0.01)
    features = tuple(slice(column, column + 1) for column in range(4))
    return fit_vae(x, 1, features=features, hidden=(32,), centers=20, training=training, run=Run()), x


def test_what_a_vae_is_conditioned_on_tells_it_about_the_rest() -> None:
    vae, x = _linked()
    z, mask = vae.encode(x), torch.tensor([True, False, False, False]).expand_as(x)
    plain, conditioned = (vae.decode(z, vae.context(x, which)) for which in (None, mask))
    assert torch.equal(conditioned[:, 0], x[:, 0])
    rest = [(decoded - x)[:, 1:].square().mean() for decoded in (plain, conditioned)]
    assert rest[1] < rest[0]


def test_an_implausible_pair_of_code_and_conditioned_columns_is_uncertain() -> None:
    vae, _ = _linked()
    x = torch.tensor([[0.0, 0.1, 0.0, 1.0], [1.0, 0.9, 1.0, 0.0]])
    z, mask = vae.encode(x), torch.tensor([[True, False, False, False]] * 2)
    assert (vae.uncertainty(z, vae.context(1 - x, mask)) > 1.2 * vae.uncertainty(z, vae.context(x, mask))).all()


def test_fewer_rows_than_centres_are_refused(surface: Surface) -> None:
    with pytest.raises(InputError, match="200 RBF centres need at least as many rows; given 50"):
        fit_vae(surface.x[:50], 2, training=SHORT)


def test_an_unknown_output_lists_the_valid_ones() -> None:
    with pytest.raises(InputError, match="sigmoid, linear"):
        VAE(3, 2, output="relu")


def test_a_vae_with_categories_reconstructs_them() -> None:
    with seeded(0):
        hidden = torch.rand(600, 2)
    category = (hidden[:, 0] * 5).long()
    x = torch.cat([torch.nn.functional.one_hot(category, 5), hidden[:, 1:], hidden[:, :1]], 1).float()
    training = VAETraining(mean_epochs=80, std_epochs=5, batch_size=64)
    vae = fit_vae(x, 2, hidden=(32, 32), blocks=((0, 5),), centers=30, training=training, run=Run(seed=0))
    decoded = vae.decode(vae.encode(x))
    torch.testing.assert_close(decoded[:, :5].sum(1), torch.ones(600))
    assert (decoded[:, :5].argmax(1) == category).float().mean() > 0.9
    assert (decoded[:, 5:] - x[:, 5:]).square().mean().sqrt() < 0.1
    double = vae.double()
    z = double.encode(x[:20].double())
    torch.testing.assert_close(
        double.linearize(z).mean_jac, jacobian_autodiff(double.decode, z)[1], rtol=1e-9, atol=1e-12
    )
    assert torch.equal(double.linearize(z).category, torch.tensor([True] * 5 + [False] * 2))


def test_which_columns_belong_to_categories() -> None:
    assert category_columns(5, ()) is None
    assert category_columns(5, [(1, 3), (4, 5)]).tolist() == [False, True, True, False, True]

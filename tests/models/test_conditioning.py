import torch
from hypothesis import given as cases
from hypothesis import strategies as st
from torch import Tensor

from counterpath.geometry.linearize import jacobian_autodiff
from counterpath.models.conditioning import copied, draw_masks, heard, membership, tell
from counterpath.models.latent import given
from counterpath.models.vae import VAE
from tests.conftest import random_vae

HELD = [0, 4]


def _model() -> tuple[VAE, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(20, 6, dtype=torch.float64, generator=generator)
    z = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    mask = torch.rand(20, 6, generator=generator) < 0.3
    return random_vae(told=True, held=tuple(HELD)), x, z, mask


def test_a_context_is_heard_as_it_was_told() -> None:
    _, x, _, mask = _model()
    values, again = heard(tell(x, mask))
    assert torch.equal(again, mask)
    assert torch.equal(values, x * mask)
    assert torch.equal(copied(torch.full_like(x, 7.0), tell(x, mask)), torch.where(mask, x, 7.0))


def test_told_columns_are_copied_through_to_the_bit_and_do_not_move() -> None:
    model, x, z, mask = _model()
    told = given(model, x, mask)
    assert told is not None
    full = mask.clone()
    full[:, HELD] = True
    decoded, lin = model.decode(z, told), model.linearize(z, told)
    assert torch.equal(decoded[full], x[full])
    assert not torch.isclose(decoded[~full], x[~full]).any()
    assert torch.equal(lin.mean, decoded)
    assert (lin.mean_jac[full] == 0).all()
    torch.testing.assert_close(lin.mean_jac, jacobian_autodiff(lambda code: model.decode(code, told), z)[1])
    torch.testing.assert_close(lin.std_jac, jacobian_autodiff(lambda code: model.uncertainty(code, told), z)[1])


def test_columns_that_are_not_told_have_no_say() -> None:
    model, x, z, mask = _model()
    other = torch.where(mask | model.held, x, 1 - x)
    for function in (model.decode, model.uncertainty):
        assert torch.equal(function(z, model.given(x, mask)), function(z, model.given(other, mask)))


def test_a_model_that_is_told_nothing_has_no_context() -> None:
    assert given(random_vae(), torch.rand(3, 6)) is None
    assert given(torch.nn.Identity(), torch.rand(3, 6)) is None


@cases(st.integers(1, 6), st.integers(0, 2**31))
def test_masks_are_of_whole_features_and_always_have_what_is_held(features: int, seed: int) -> None:
    layout = [slice(start, start + 1 + start % 2) for start in range(0, 2 * features, 2)]
    member = membership(layout, 2 * features)
    held = torch.zeros(2 * features, dtype=torch.bool)
    held[layout[0]] = True
    masks = draw_masks(200, member, held, torch.Generator().manual_seed(seed))
    assert masks[:, layout[0]].all()
    told = torch.stack([masks[:, columns].any(1) for columns in layout], 1)
    assert torch.equal(told, torch.stack([masks[:, columns].all(1) for columns in layout], 1))
    assert (told[:, 1:].sum(1) == 0).any()  # some are told nothing more
    if features > 2:
        assert len(torch.unique(told, dim=0)) > 2

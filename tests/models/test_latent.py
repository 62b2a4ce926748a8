import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpath.geometry.metric import jacobian_autodiff
from counterpath.models.latent import context_for, copy_conditioned, draw_masks, make_context, membership, split_context
from counterpath.models.vae import VAE
from tests.conftest import random_vae

ALWAYS = [0, 4]


def _model() -> tuple[VAE, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(20, 6, dtype=torch.float64, generator=generator)
    z = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    mask = torch.rand(20, 6, generator=generator) < 0.3
    return random_vae(conditional=True, always_conditioned=tuple(ALWAYS)), x, z, mask


def test_a_context_is_split_into_what_it_was_made_of() -> None:
    _, x, _, mask = _model()
    values, again = split_context(make_context(x, mask))
    assert torch.equal(again, mask)
    assert torch.equal(values, x * mask)
    assert torch.equal(copy_conditioned(torch.full_like(x, 7.0), make_context(x, mask)), torch.where(mask, x, 7.0))


def test_conditioned_columns_are_copied_through_to_the_bit_and_do_not_move() -> None:
    model, x, z, mask = _model()
    context = context_for(model, x, mask)
    assert context is not None
    full = mask.clone()
    full[:, ALWAYS] = True
    decoded, lin = model.decode(z, context), model.linearize(z, context)
    assert torch.equal(decoded[full], x[full])
    assert not torch.isclose(decoded[~full], x[~full]).any()
    assert torch.equal(lin.mean, decoded)
    assert (lin.mean_jac[full] == 0).all()
    torch.testing.assert_close(lin.mean_jac, jacobian_autodiff(lambda code: model.decode(code, context), z)[1])
    torch.testing.assert_close(lin.std_jac, jacobian_autodiff(lambda code: model.uncertainty(code, context), z)[1])


def test_columns_outside_the_mask_have_no_influence() -> None:
    model, x, z, mask = _model()
    other = torch.where(mask | model.always_conditioned, x, 1 - x)
    for function in (model.decode, model.uncertainty):
        assert torch.equal(function(z, model.context(x, mask)), function(z, model.context(other, mask)))


def test_a_model_without_conditions_has_no_context() -> None:
    assert context_for(random_vae(), torch.rand(3, 6)) is None
    assert context_for(torch.nn.Identity(), torch.rand(3, 6)) is None


@given(st.integers(1, 6), st.integers(0, 2**31))
def test_masks_are_of_whole_features_and_always_have_some_columns(features: int, seed: int) -> None:
    layout = [slice(start, start + 1 + start % 2) for start in range(0, 2 * features, 2)]
    member = membership(layout, 2 * features)
    always = torch.zeros(2 * features, dtype=torch.bool)
    always[layout[0]] = True
    masks = draw_masks(200, member, always, torch.Generator().manual_seed(seed))
    assert masks[:, layout[0]].all()
    features_in = torch.stack([masks[:, columns].any(1) for columns in layout], 1)
    assert torch.equal(features_in, torch.stack([masks[:, columns].all(1) for columns in layout], 1))
    assert (features_in[:, 1:].sum(1) == 0).any()  # some have no more than that
    if features > 2:
        assert len(torch.unique(features_in, dim=0)) > 2

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data.surface import Surface
from counterpath.geometry.metric import Linearization, euclidean, pullback
from counterpath.models.latent import IdentityModel
from counterpath.search.method import SearchModels
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective
from counterpath.search.step import riemannian_length
from counterpath.search.traverse import StopReason, Trajectory, at_confidence, traverse
from counterpath.utils.errors import InputError
from tests.sizes import examples


def _walk(search_models: SearchModels, x: Tensor, method: str = "rsgd", **options: object) -> Trajectory:
    model, metric = geometry_of(method, search_models)
    options = {"steps": 25, "block_size": 64} | options
    return traverse(model, metric, Objective(search_models.classifier), x, **options)  # type: ignore[arg-type]


FIELDS = ("z", "x", "probability", "loss", "sigma", "length", "steps", "reason")


@pytest.mark.parametrize("method", ["wachter", "ambient", "sgd", "rsgd", "rsgd-c"])
@pytest.mark.parametrize("stop", [None, 0.6])
def test_any_order_and_any_split_gives_the_same_bits(
    search_models: SearchModels, surface: Surface, method: str, stop: float | None
) -> None:
    x = surface.x[surface.y == 0][:150]
    options = {} if stop is None else {"stop": at_confidence(stop)}
    whole = _walk(search_models, x, method, **options)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    shuffled = _walk(search_models, x[order], method, **options)
    for name in FIELDS:
        axis = 0 if name in ("steps", "reason") else 1
        assert torch.equal(getattr(whole, name).index_select(axis, order), getattr(shuffled, name)), name
    for first, last in ((0, 1), (1, 38), (38, 150)):
        part = _walk(search_models, x[first:last], method, **options)
        for name in FIELDS:
            axis = 0 if name in ("steps", "reason") else 1
            assert torch.equal(getattr(whole, name).narrow(axis, first, last - first), getattr(part, name)), name


@settings(max_examples=examples(20), deadline=None)
@given(st.permutations(range(40)), st.integers(1, 39))
def test_order_and_split_never_matter(
    search_models: SearchModels, surface: Surface, order: list[int], cut: int
) -> None:
    x = surface.x[:40]
    whole = _walk(search_models, x, "rsgd-c", steps=8)
    ends = torch.cat([_walk(search_models, x[rows], "rsgd-c", steps=8).end for rows in (order[:cut], order[cut:])])
    assert torch.equal(whole.end[order], ends)


def test_a_trajectory_is_what_a_plain_loop_walks(search_models: SearchModels, surface: Surface) -> None:
    """The block with its slots, padding and refills against ten obvious lines."""
    from counterpath.geometry.metric import damped, solve

    x = surface.x[:5]
    found = _walk(search_models, x, steps=6, block_size=2)
    vae = search_models.vae
    assert vae is not None
    for row in range(5):
        z = vae.encode(x[row : row + 1].expand(2, -1))
        for step in range(7):
            torch.testing.assert_close(found.z[step, row], z[0], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found.x[step, row], vae.decode(z)[0], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(
                found.probability[step, row],
                search_models.classifier.probability(vae.decode(z))[0],
                rtol=1e-3,
                atol=1e-4,
            )
            leaf = z.clone().requires_grad_()
            gradient = torch.autograd.grad(-search_models.classifier.probability(vae.decode(leaf)).log().sum(), leaf)[0]
            r = solve(damped(pullback(vae.linearize(z))), gradient)
            z = z - 0.1 * (r / r.norm(dim=-1, keepdim=True)).float()


def test_the_first_point_is_the_code_and_the_length_is_that_of_the_decoded_path(
    search_models: SearchModels, surface: Surface
) -> None:
    found = _walk(search_models, surface.x[:30])
    assert search_models.vae is not None
    torch.testing.assert_close(found.z[0], search_models.vae.encode(surface.x[:30]), rtol=1e-5, atol=1e-5)
    step = (found.x[1:] - found.x[:-1]).norm(dim=-1)
    torch.testing.assert_close(found.length[-1], step.sum(0))
    torch.testing.assert_close((found.z[1:] - found.z[:-1]).norm(dim=-1), torch.full((25, 30), 0.1), rtol=1e-3, atol=0)
    assert set(found.reasons()) == {StopReason.ALL_STEPS_TAKEN}


def test_stopping_at_a_confidence_is_stopping_at_its_first_point(search_models: SearchModels, surface: Surface) -> None:
    x = surface.x[surface.y == 0][:100]
    whole, stopped = _walk(search_models, x), _walk(search_models, x, stop=at_confidence(0.5))
    reached = whole.probability >= 0.5
    assert reached.any(0).sum() > 5
    for row in range(len(x)):
        first = int(reached[:, row].nonzero()[0]) if reached[:, row].any() else 25
        assert int(stopped.steps[row]) == first
        assert torch.equal(stopped.x[: first + 1, row], whole.x[: first + 1, row])
        assert (stopped.x[first:, row] == stopped.x[first, row]).all()
        expected = StopReason.CONFIDENCE_REACHED if reached[:, row].any() else StopReason.ALL_STEPS_TAKEN
        assert stopped.reasons()[row] is expected


@pytest.mark.parametrize("method", ["wachter", "sgd", "rsgd", "rsgd-c"])
@pytest.mark.parametrize("stop", [None, 0.6])
def test_ends_are_those_of_whole_paths(
    search_models: SearchModels, surface: Surface, method: str, stop: float | None
) -> None:
    x = surface.x[surface.y == 0][:100]
    options = {} if stop is None else {"stop": at_confidence(stop)}
    whole, ends = (_walk(search_models, x, method, keep=keep, **options) for keep in ("all", "end"))
    for name in FIELDS:
        kept = getattr(ends, name)
        assert torch.equal(getattr(whole, name)[-1:] if kept.ndim > 1 else getattr(whole, name), kept), name
    assert ends.x.shape[0] == 1


def test_tf32_leaves_torch_as_it_was(search_models: SearchModels, surface: Surface) -> None:
    before = torch.get_float32_matmul_precision()
    _walk(search_models, surface.x[:3], tf32=True, steps=1)
    assert torch.get_float32_matmul_precision() == before


def test_a_step_of_riemannian_length_moves_the_same_distance_everywhere(
    search_models: SearchModels, surface: Surface
) -> None:
    found = _walk(search_models, surface.x[:20], step_rule=riemannian_length, step_size=0.01, steps=10)
    assert search_models.vae is not None
    for before, after in zip(found.z[:-1], found.z[1:], strict=True):
        move = (after - before).double()
        metric = pullback(search_models.vae.linearize(before))
        length = (move[:, None] @ metric @ move[..., None])[:, 0, 0].sqrt()
        torch.testing.assert_close(length, torch.full((20,), 0.01, dtype=torch.float64), rtol=2e-2, atol=0)


def test_no_rows_give_an_empty_trajectory(search_models: SearchModels, surface: Surface) -> None:
    found = _walk(search_models, surface.x[:0])
    assert found.z.shape == (26, 0, 2)
    assert found.x.shape == (26, 0, 3)
    assert found.reasons() == []


def test_no_steps_leave_every_at_their_reconstruction(search_models: SearchModels, surface: Surface) -> None:
    found = _walk(search_models, surface.x[:3], steps=0)
    assert found.x.shape == (1, 3, 3)
    assert found.steps.tolist() == [0, 0, 0]


def test_a_flat_objective_stops_with_its_reason() -> None:
    found = traverse(IdentityModel(), euclidean, Objective(lambda x: 0 * x[:, 0]), torch.rand(3, 2), steps=5)
    assert found.reasons() == [StopReason.NO_WAY_DOWN] * 3
    assert found.steps.tolist() == [0, 0, 0]
    assert "flat" in found.reasons()[0].text


class Cliff(IdentityModel):
    """A model whose Jacobian is no number where the first coordinate is above 0.35."""

    def linearize(self, z: Tensor, context: Tensor | None = None) -> Linearization:
        lin = super().linearize(z)
        broken = torch.where(z[:, :1, None] > 0.35, torch.nan, lin.mean_jac)
        return Linearization(lin.mean, broken)


def test_numbers_that_stop_being_numbers_end_the_path_before_them() -> None:
    start = torch.tensor([[0.0, 0.5], [0.9, 0.5]])
    found = traverse(Cliff(), pullback, Objective(lambda x: x[:, 0]), start, steps=10)
    assert found.reasons() == [StopReason.NOT_FINITE] * 2
    assert found.steps.tolist() == [3, 0]
    for name in FIELDS:
        assert getattr(found, name).isfinite().all(), name
    torch.testing.assert_close(found.end, torch.tensor([[0.3, 0.5], [0.9, 0.5]]))


def test_a_condition_reaches_the_model(surface: Surface) -> None:
    class Shifted(IdentityModel):
        def encode(self, x: Tensor, context: Tensor | None = None) -> Tensor:
            assert context is not None
            return x + context

        def decode(self, z: Tensor, context: Tensor | None = None) -> Tensor:
            assert context is not None
            return z - context

    context = torch.arange(30.0)[:, None].expand(-1, 3)
    objective = Objective(lambda x: x[:, 0])
    found = traverse(Shifted(), euclidean, objective, surface.x[:30], context=context, steps=2, block_size=8)
    torch.testing.assert_close(found.x[0], surface.x[:30], rtol=0, atol=1e-5)
    torch.testing.assert_close(found.z[0], surface.x[:30] + context)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": -1}, "at least 0"),
        ({"step_size": 0.0}, "positive number"),
        ({"step_size": float("nan")}, "positive number"),
        ({"damping": -1.0}, "damping"),
        ({"keep": "some"}, "unknown keep 'some'; choose one of: all, end"),
    ],
)
def test_bad_options_are_refused(
    search_models: SearchModels, surface: Surface, options: dict[str, object], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        _walk(search_models, surface.x[:2], **options)


def test_bad_confidences_and_rows_are_refused(search_models: SearchModels) -> None:
    for bad in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            at_confidence(bad)
    x = torch.zeros(4, 3)
    x[2, 1] = torch.nan
    with pytest.raises(InputError, match="row 2, column 1"):
        _walk(search_models, x)


def test_every_reason_has_a_sentence() -> None:
    assert all(reason.text.endswith(".") for reason in StopReason)

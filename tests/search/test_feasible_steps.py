import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from counterpath.geometry.metric import euclidean, gram, jacobian_autodiff, pullback, solve
from counterpath.models.latent import IdentityModel
from counterpath.search.feasible import StepConstraints, residual
from counterpath.search.objective import Objective
from counterpath.search.step import slope
from counterpath.search.traverse import StopReason, traverse
from tests.conftest import random_classifier, random_vae

BLOCKS = ((4, 7),)
INFINITY = torch.tensor(torch.inf, dtype=torch.float64)


def _rows(count: int = 30, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four numbers and a category; people, and what they are decoded as."""
    generator = torch.Generator().manual_seed(seed)
    factual = torch.rand(count, 7, dtype=torch.float64, generator=generator)
    factual[:, 4:] = torch.eye(3).double()[torch.randint(3, (count,), generator=generator)]
    factual[0, 0], factual[1, 0] = 0.0, 1.0
    decoded = torch.rand(count, 7, dtype=torch.float64, generator=generator)
    decoded[:, 4:] = decoded[:, 4:].softmax(-1)
    return factual, decoded


def _constraints(factual: Tensor, decoded: Tensor, **more: object) -> StepConstraints:
    squashed = bool(more.get("squashed", True))
    found = residual(factual, decoded, BLOCKS, squashed=squashed)
    wide = torch.full_like(factual, torch.inf)
    return StepConstraints(
        **{"factual": factual, "lower": -wide, "upper": wide, "residual": found, "blocks": BLOCKS} | more
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("squashed", [True, False])
def test_a_decoded_row_that_carries_its_residual_is_the_person(squashed: bool) -> None:
    factual, decoded = _rows()
    added = _constraints(factual, decoded, squashed=squashed).add_residual(decoded)
    torch.testing.assert_close(added[:, :4], factual[:, :4], rtol=0, atol=1e-12)
    assert torch.equal(added[:, 4:].argmax(1), factual[:, 4:].argmax(1))
    torch.testing.assert_close(added[:, 4:].sum(1), torch.ones(30).double())


def test_a_person_beyond_the_training_rows_is_reached_too() -> None:
    factual, decoded = _rows()
    factual[:, 1] = 1.7
    added = _constraints(factual, decoded).add_residual(decoded)
    torch.testing.assert_close(added[:, 1], factual[:, 1], rtol=0, atol=1e-12)


def test_rows_stay_legal_wherever_the_decoder_goes_and_fade_to_it() -> None:
    factual, decoded = _rows()
    constraints, elsewhere = _constraints(factual, decoded), _rows(seed=5)[1]
    added = constraints.add_residual(elsewhere)
    assert ((added >= -0.0011) & (added <= 1.0011)).all()  # what is beyond 0 and 1 is clipped
    torch.testing.assert_close(constraints.add_residual(elsewhere, 0.0), elsewhere, rtol=0, atol=1e-9)
    halfway = constraints.add_residual(elsewhere, 0.5)[:, :4]
    low, high = (both(added, elsewhere)[:, :4] for both in (torch.minimum, torch.maximum))
    assert ((halfway >= low - 1e-12) & (halfway <= high + 1e-12)).all()


@pytest.mark.parametrize("squashed", [True, False])
def test_the_jacobian_of_what_is_carried(squashed: bool) -> None:
    factual, decoded = _rows()
    constraints, jac = _constraints(factual, decoded, squashed=squashed), torch.randn(30, 7, 2, dtype=torch.float64)
    expected = jacobian_autodiff(constraints.add_residual, decoded)[1] @ jac
    torch.testing.assert_close(
        constraints.residual_jacobian(decoded, constraints.add_residual(decoded), jac), expected, rtol=1e-9, atol=1e-9
    )


def _problem(seed: int, columns: int, latent: int = 4) -> tuple[Tensor, Tensor, Tensor, np.random.Generator]:
    random = np.random.default_rng(seed)
    factor = torch.from_numpy(random.normal(size=(1, 6, latent)))
    metric = gram(factor) + 0.1 * torch.eye(latent).double()
    return (
        metric,
        torch.from_numpy(random.normal(size=(1, latent))),
        torch.from_numpy(random.normal(size=(1, columns, latent))),
        random,
    )


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_the_step_is_the_solution_of_its_programme(columns: int) -> None:
    """Against scipy's general solver: bounds of either kind, columns that may not move, and change costs."""
    good = [_is_solved(seed, columns) for seed in range(100)]
    assert np.mean(good) >= 0.98


def _is_solved(seed: int, columns: int) -> bool:
    metric, gradient, jac, random = _problem(seed, columns)
    kind = random.integers(0, 5, columns)  # free, at the lower bound, at the upper one, at both, hard to change
    price = torch.from_numpy(np.where(kind == 4, random.uniform(0, 2, columns), 0.0))
    here = torch.zeros(1, columns, dtype=torch.float64)
    at_lower, at_upper = torch.from_numpy(np.isin(kind, (1, 3)))[None], torch.from_numpy(np.isin(kind, (2, 3)))[None]
    constraints = StepConstraints(
        here,
        torch.where(at_lower, here, -INFINITY),
        torch.where(at_upper, here, INFINITY),
        here,
        bounded=torch.arange(columns),
        change_costs=price,
    )
    found = -constraints.project(solve(metric, gradient), metric, 0.0, gradient, here, jac)[0].numpy()
    m, g, a = metric[0].numpy(), gradient[0].numpy(), jac[0].numpy()

    def value(step: np.ndarray) -> float:
        return float(g @ step + 0.5 * step @ m @ step + price.numpy() @ np.abs(a @ step))

    def smooth(v: np.ndarray) -> float:  # |a·s| as a variable of its own, at least a·s and −a·s
        return float(g @ v[:4] + 0.5 * v[:4] @ m @ v[:4] + price.numpy() @ v[4:])

    limits = [
        {"type": "ineq", "fun": lambda v: v[4:] - a @ v[:4]},
        {"type": "ineq", "fun": lambda v: v[4:] + a @ v[:4]},
        *({"type": "ineq", "fun": lambda v, j=j: a[j] @ v[:4]} for j in range(columns) if kind[j] in (1, 3)),
        *({"type": "ineq", "fun": lambda v, j=j: -a[j] @ v[:4]} for j in range(columns) if kind[j] in (2, 3)),
    ]
    best = scipy.optimize.minimize(smooth, np.zeros(4 + columns), constraints=limits, method="SLSQP").x[:4]
    moved = a @ found
    assert value(found) < 1e-9  # never worse than not to move
    inside = (moved[np.isin(kind, (1, 3))] > -1e-3).all() and (moved[np.isin(kind, (2, 3))] < 1e-3).all()
    return bool(inside and value(found) <= value(best) + 1e-3 * (1 + abs(value(best))))


def test_columns_that_cannot_move_leave_no_way_down() -> None:
    metric, gradient, jac, _ = _problem(3, 6)
    here = torch.zeros(1, 6, dtype=torch.float64)
    constraints = StepConstraints(here, here, here, here, bounded=torch.arange(6))
    assert (constraints.project(solve(metric, gradient), metric, 0.0, gradient, here, jac) == 0).all()


def test_the_metric_does_not_know_of_constraints() -> None:
    """A column that may not move keeps its cost: the step is not that of a metric without its rows."""
    vae, x = random_vae(), torch.rand(8, 6, dtype=torch.float64)
    z, objective = vae.encode(x), Objective(random_classifier())
    held = torch.zeros(6, dtype=torch.bool).index_fill(0, torch.tensor([2]), True)
    decoded = vae.decode(z)
    constraints = StepConstraints(
        decoded,
        torch.where(held, decoded, -INFINITY),
        torch.where(held, decoded, INFINITY),
        torch.zeros_like(decoded),
        bounded=torch.tensor([2]),
    )
    here = slope(vae, pullback, objective, z, x, None, 1e-6, constraints)
    lin = vae.linearize(z)
    assert (lin.mean_jac[:, 2:3] @ here.direction[..., None]).abs().max() < 1e-6 * here.direction.norm(dim=-1).max()
    step, free = -here.direction, -slope(vae, pullback, objective, z, x, None, 1e-6).direction
    metric = pullback(lin) + 1e-6 * torch.eye(3).double()

    def value(s: Tensor) -> Tensor:
        return (here.gradient * s).sum(-1) + 0.5 * (s[:, None] @ metric @ s[..., None])[:, 0, 0]

    assert (value(step) >= value(free) - 1e-9).all()
    along = torch.linalg.svd(lin.mean_jac[:, 2:3])[2][:, 1:]  # the directions in which column 2 does not move
    basis = along.mT
    best = -basis @ torch.linalg.solve(basis.mT @ metric @ basis, basis.mT @ here.gradient[..., None])
    torch.testing.assert_close(step, best[..., 0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("metric", [euclidean, pullback])
def test_walks_stay_within_their_bounds_at_every_point(metric: object) -> None:
    model, objective = IdentityModel(), Objective(random_classifier())
    x = torch.rand(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lower, upper = x.clone(), x + 0.2
    lower[:, 3:], upper[:, 3:] = -torch.inf, torch.inf
    constraints = StepConstraints(x, lower, upper, torch.zeros_like(x), bounded=torch.arange(3))
    found = traverse(model, metric, objective, x, step_constraints=constraints, steps=20, step_size=0.05, block_size=8)  # type: ignore[arg-type]
    assert (found.x >= lower).all()
    assert (found.x <= upper).all()
    free = traverse(model, metric, objective, x, steps=20, step_size=0.05, block_size=8)  # type: ignore[arg-type]
    assert ((free.x < lower) | (free.x > upper)).any()
    assert found.probability[-1].mean() > found.probability[0].mean()


def test_a_walk_that_may_not_move_says_so() -> None:
    x = torch.rand(3, 6, dtype=torch.float64)
    constraints = StepConstraints(x, x, x, torch.zeros_like(x), bounded=torch.arange(6))
    found = traverse(
        IdentityModel(), pullback, Objective(random_classifier()), x, step_constraints=constraints, steps=5
    )
    assert found.reasons() == [StopReason.NO_WAY_DOWN] * 3
    assert torch.equal(found.end, x)


def test_what_is_hard_to_change_changes_less() -> None:
    weights = torch.tensor([1.0, 1.0, 0.2], dtype=torch.float64)
    objective = Objective(lambda x: 4 * (x @ weights) - 6)
    x = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 0.5
    wide = torch.full_like(x, torch.inf)

    def walked(price: Tensor | None) -> Tensor:
        hard = None if price is None else torch.arange(3)
        constraints = StepConstraints(x, -wide, wide, torch.zeros_like(x), bounded=hard, change_costs=price)
        return (
            traverse(
                IdentityModel(), pullback, objective, x, step_constraints=constraints, steps=10, step_size=0.05
            ).end
            - x
        )

    plain, priced = walked(None), walked(torch.tensor([10.0, 0.0, 0.0], dtype=torch.float64))
    assert (plain[:, 0] > 0.1).all()
    torch.testing.assert_close(priced[:, 0], torch.zeros(20).double(), rtol=0, atol=1e-4)
    assert (priced[:, 1] > plain[:, 1]).all()

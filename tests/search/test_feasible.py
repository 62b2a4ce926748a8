import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.data.constraints import Bounds
from counterpath.data.encoding import Encoder
from counterpath.fitting.fitted import FittedModels
from counterpath.search.feasible import FeasibleSet
from tests.tables import LABEL, mixed


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    return models.rows[:50]


def _nothing(rows: Tensor) -> Bounds:
    wide = torch.full_like(rows, torch.inf)
    return Bounds(-wide, wide, torch.zeros_like(rows, dtype=torch.bool))


def _anywhere(rows: Tensor, seed: int = 0) -> Tensor:
    return 3 * torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed)) - 1


def test_without_wishes_everything_legal_is_in_scope(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    assert feasible.unconstrained
    x = _anywhere(rows)
    legal, rounded = feasible.legal(x), models.encoder.round(x)
    own = (legal == rows) & (legal != rounded)  # the factual's own number is legal, even if it is finer than the step
    assert torch.equal(torch.where(own, rounded, legal), rounded)
    assert ((legal - x).abs() <= (rounded - x).abs())[own].all()


def test_immutable_features_are_told(people: object) -> None:
    frame = mixed(50)
    schema = cp.Schema.infer(frame, target=LABEL, immutable=["city", "debt"])
    encoder = Encoder.fit(frame.drop(columns=LABEL), schema)
    rows = encoder.encode(frame.drop(columns=LABEL))
    feasible = FeasibleSet.of(encoder, rows)
    held = encoder.columns("city", "debt")
    assert feasible.fixed[:, held].all()
    assert feasible.fixed.sum() == len(rows) * len(held)
    assert torch.equal(feasible.legal(_anywhere(rows))[:, held], rows[:, held])


def test_what_a_person_has_may_stay_though_no_training_row_has_it(models: FittedModels, rows: Tensor) -> None:
    column = models.encoder.columns("children")[0]
    beyond = rows.clone()
    beyond[:, column] = 1.5
    feasible = FeasibleSet.of(models.encoder, beyond)
    assert (feasible.upper[:, column] == 1.5).all()
    assert (feasible.legal(_anywhere(rows))[:, column] <= 1).all()
    held = feasible.fix(feasible.columns(torch.ones(50, 7, dtype=torch.bool)))
    assert torch.equal(held.legal(_anywhere(rows)), beyond)


def test_bounds_hold_in_every_row_and_categories_that_are_not_allowed_are_not_taken(
    models: FittedModels, rows: Tensor
) -> None:
    encoder, bounds = models.encoder, _nothing(rows)
    column, city = encoder.columns("score")[0], encoder.columns("city")
    bounds.lower[:, column] = rows[:, column]
    allowed = rows[:, city].clone()
    allowed[:, 0] = 1
    bounds.lower[:, city], bounds.upper[:, city] = 0, allowed
    feasible = FeasibleSet.of(encoder, rows, bounds)
    assert not feasible.unconstrained
    for seed in range(5):
        row = torch.randint(50, (200,), generator=torch.Generator().manual_seed(seed))
        legal = feasible.legal(_anywhere(rows[row], seed), row)
        assert (legal[:, column] >= rows[row, column]).all()
        assert (legal[:, city] <= allowed[row]).all()
        assert ((encoder.round(legal) == legal) | (legal == rows[row])).all()
    constraints = feasible.step_constraints(rows, keep_residual=True, squashed=True, generative=True, conditional=True)
    added = constraints.add_residual(torch.full_like(rows, 1 / 12))
    assert (added[:, city] <= allowed).all()
    assert constraints.bounded is not None
    assert constraints.bounded.tolist() == [column]


def test_some_people_and_features_can_be_picked(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    features = torch.zeros(50, 7, dtype=torch.bool)
    features[::2, 0] = features[1::2, 5] = True
    columns = feasible.columns(features)
    assert torch.equal(feasible.features(columns), features)
    held = feasible.fix(columns)
    assert torch.equal(held.fixed, columns)
    part = held.at(torch.tensor([3, 3, 8]))
    assert torch.equal(part.fixed, columns[[3, 3, 8]])
    assert torch.equal(part.legal(_anywhere(rows)[:3])[columns[[3, 3, 8]]], rows[[3, 3, 8]][columns[[3, 3, 8]]])


def test_what_cannot_be_told_is_held_by_the_step(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    features = torch.zeros(50, 7, dtype=torch.bool)
    features[:, 2] = True
    held = feasible.fix(feasible.columns(features))
    options = {"keep_residual": False, "squashed": True, "generative": False}
    assert held.step_constraints(rows, conditional=True, **options).bounded is None
    bounded = held.step_constraints(rows, conditional=False, **options).bounded
    assert bounded is not None
    assert bounded.tolist() == models.encoder.columns("children")


def test_people_are_alike_who_may_become_the_same_rows(models: FittedModels, rows: Tensor) -> None:
    feasible = FeasibleSet.of(models.encoder, rows)
    numbers = models.encoder.columns("children", "debt", "score")
    least, most = (models.encoder.round(torch.full_like(rows, end))[:, numbers] for end in (-9.0, 9.0))
    finer = ((rows[:, numbers] < least) | (rows[:, numbers] > most)).any(1)  # their own end lies beyond the last step
    sexes = {tuple(row) for row in rows[:, models.encoder.columns(*models.encoder.schema.immutable)].tolist()}
    far = rows.clone()
    assert not finer[3]
    far[3, models.encoder.columns("score")] = 1.5  # beyond the training rows, and allowed to stay there
    for given, more in ((feasible, 0), (FeasibleSet.of(models.encoder, far), 1)):
        groups = given.groups()
        assert torch.cat(groups).sort().values.tolist() == list(range(50))
        assert len(groups) == len(sexes) + more + int(finer.sum())
        for group in groups:
            assert (given.lower[group] == given.lower[group[0]]).all()
            assert (given.upper[group] == given.upper[group[0]]).all()

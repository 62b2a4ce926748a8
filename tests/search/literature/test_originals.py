"""Each method of the literature against its original: a loop row by row, its library, or a closed form."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.models.csvae import _divergence, fit_csvae
from counterpath.models.flow import FlowModel
from counterpath.models.latent import context_for
from counterpath.search.feasible import FeasibleSet
from counterpath.search.literature.clue import entropy
from counterpath.search.literature.dice import Dice, column_weights, distance, diversity
from counterpath.search.literature.ends import Best, grow_spheres, target_loss
from counterpath.search.literature.growing_spheres import fewer_changes
from counterpath.search.literature.mcce import Trees
from counterpath.search.literature.nice import Nice
from counterpath.search.literature.ppcef import Ppcef, log_density
from counterpath.search.literature.revise import DISTANCE_WEIGHT, LEARNING_RATE
from counterpath.search.method import Problem, SearchModels, SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.validity import check_paths
from counterpath.utils.errors import NotFittedError

TARGET = Target(1, confidence=0.6)


def _problem(models: FittedModels, method: str, rows: int = 6, steps: int = 15, **changes: Any) -> Problem:
    x = models.rows[~TARGET.is_reached(models.probabilities)][:rows]
    options = SearchOptions(max_steps=steps, **changes)
    return models.problem(METHODS[method], FeasibleSet.of(models.encoder, x), TARGET, options)


def test_revise_is_the_plain_loop_row_by_row(models: FittedModels) -> None:
    problem = _problem(models, "revise")
    ends = METHODS["revise"].search(problem)
    vae, toward, weights = models.latent, target_loss(problem), models.setup.weights.square()
    for row in range(len(problem)):
        one = problem.feasible.at(torch.tensor([row]))
        z = vae.encode(one.factual).detach().requires_grad_()
        context = context_for(vae, one.factual, one.fixed)
        optimizer = torch.optim.Adam([z], lr=LEARNING_RATE)
        best, least = one.factual, float("inf")
        for _ in range(problem.options.max_steps + 1):
            decoded = vae.decode(z, context)

            def loss(x: Tensor, at: Tensor = one.factual) -> Tensor:
                return toward(x, at) + DISTANCE_WEIGHT * (weights * (x - at).abs()).sum(-1)

            legal = one.legal(decoded.detach())
            cost = float(loss(legal))
            if bool(problem.validator.is_valid(legal, one.origin)) and cost < least:
                best, least = legal, cost
            optimizer.zero_grad()
            loss(decoded).sum().backward()
            optimizer.step()
        if least < float("inf"):
            torch.testing.assert_close(ends.x[ends.last[row]], best[0], atol=2e-3, rtol=0)
    assert ends.found.any()


def test_the_uncertainty_of_clue_is_the_entropy() -> None:
    p = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]])
    torch.testing.assert_close(entropy(p), torch.distributions.Categorical(p).entropy())


def test_dice_has_the_loss_of_its_library(models: FittedModels) -> None:
    library = pytest.importorskip("dice_ml.explainer_interfaces.dice_pytorch").DicePyTorch
    problem = _problem(models, "dice")
    weights, k, generator = column_weights(problem), 3, torch.Generator().manual_seed(0)
    nearest = (models.probabilities[:, 1] - 0.5).abs().argsort()[:k]  # its library cuts off where a model is sure
    c = models.rows[nearest] + 0.02 * torch.randn(k, len(weights), generator=generator)
    x = problem.feasible.factual[0]
    odds = problem.target.advantage(problem.target.said(models.setup.models.classifier, c)).float()
    its = SimpleNamespace(
        cfs=list(c),
        x1=x,
        minx=[x.numpy()],
        total_CFs=k,
        feature_weights_list=weights,
        yloss_type="hinge_loss",
        diversity_loss_type="dpp_style:inverse_dist",
        target_cf_class=torch.tensor(1.0),
        encoded_categorical_feature_indexes=[range(*block) for block in models.encoder.blocks],
        get_model_output=lambda row: torch.sigmoid(odds[[bool((row == each).all()) for each in c].index(True)]),
    )
    its.compute_dist = lambda one, other: library.compute_dist(its, one, other)
    its.dpp_style = lambda kind: library.dpp_style(its, kind)
    near, volume = library.compute_proximity_loss(its), library.compute_diversity_loss(its)
    assert float(diversity(c[None], weights)[0]) == pytest.approx(float(volume), abs=1e-5)
    ours = distance(c, x, weights).mean() / len(weights)
    assert float(ours) == pytest.approx(float(near), rel=1e-5)
    whole = Dice(count=k).loss(problem, c[None], x[None], weights)
    wrong, category = library.compute_yloss(its), library.compute_regularization_loss(its)
    library_loss = float(wrong) + 0.5 * float(near) - float(volume) + 0.1 * float(category)
    assert float(whole) == pytest.approx(library_loss, rel=1e-3)


def test_what_dice_finds_for_a_row_differs(models: FittedModels) -> None:
    problem = _problem(models, "dice", rows=3)
    together = Dice(count=3).diverse_rows(problem)
    alone = Dice(count=3, diversity_weight=0.0).diverse_rows(problem)
    weights = column_weights(problem)
    assert diversity(together, weights).sum() > diversity(alone, weights).sum()


def test_nice_is_the_greedy_search_by_hand(models: FittedModels) -> None:
    problem = _problem(models, "nice", avoid_unseen=False)
    feasible, setup = problem.feasible, problem.setup
    ends = Nice().search(problem)
    accepted = setup.rows[TARGET.is_reached(setup.probabilities)]
    accepted = feasible.legal(accepted, torch.zeros(len(accepted), dtype=torch.long))
    for row in range(len(problem)):
        at = torch.full((len(accepted),), row)
        neighbour = accepted[feasible.cost(accepted, at).argmin()]
        x = feasible.factual[row].clone()
        while not bool(problem.validator.is_valid(x[None], feasible.origin[row : row + 1])):
            tried = []
            for columns in feasible.encoder.layout:
                one = x.clone()
                one[columns] = neighbour[columns]
                if not torch.equal(one, x):
                    tried.append((float(problem.validator.probability(one[None])), one))
            x = max(tried, key=lambda pair: pair[0])[1]
        torch.testing.assert_close(ends.x[ends.last[row]], x)


def _flat(valid: Any, count: int = 4) -> Best:
    """Rows at the origin of a plane without features, for searches that know nothing else."""
    factual = torch.zeros(count, 2)
    feasible = SimpleNamespace(origin=factual, cost=lambda x, row=None: x.norm(dim=-1))
    problem: Any = SimpleNamespace(
        setup=SimpleNamespace(seed=0),
        feasible=feasible,
        validator=SimpleNamespace(is_valid=lambda x, origin: valid(x)),
        options=SimpleNamespace(should_stop=lambda: False),
    )
    none = torch.zeros(count, dtype=torch.bool)
    return Best(problem, factual.clone(), none, torch.full((count,), torch.inf))


@pytest.mark.whole  # without the check of types: the problem is none
@pytest.mark.parametrize("away", [0.03, 0.5, 3.0])
def test_spheres_grow_to_the_boundary(away: float) -> None:
    """The closest accepted point of a half plane is `away`; a shell is no wider than that, or than the first ball."""
    best = _flat(lambda x: x[:, 0] + 0 * x[:, 1] >= away)
    grow_spheres(best, best.x.clone(), lambda p, row: p, samples=400, radius=0.2, growths=40, halvings=8)
    assert best.valid.all()
    found = best.x.norm(dim=1)
    assert (found >= away).all()
    assert (found <= away + min(away, 0.2) + 1e-6).all()
    assert (best.x == best.x[0]).all(), "all rows share their draws"


@pytest.mark.whole
def test_without_a_ball_the_first_shell_is_the_ball() -> None:
    best = _flat(lambda x: x[:, 0] >= 0.6, count=1)
    grow_spheres(best, best.x.clone(), lambda p, row: p, samples=200, radius=0.25, growths=2)
    assert not best.valid.any(), "two shells reach to 0.5"
    grow_spheres(best, best.x.clone(), lambda p, row: p, samples=200, radius=0.25, growths=4)
    assert 0.6 <= float(best.x.norm()) <= 0.75


def test_growing_spheres_put_back_the_smallest_changes_until_one_is_needed(models: FittedModels) -> None:
    feasible = FeasibleSet.of(models.encoder, models.rows[:1])
    others = models.rows[5:6]
    amounts = feasible.amounts(others, torch.tensor([0]))[0]
    order = [int(each) for each in amounts.argsort() if amounts[each] > 0]
    needed = order[2]
    columns = models.encoder.layout[needed]

    def is_valid(x: Tensor, row: Tensor) -> Tensor:
        return (x[:, columns] == others[:, columns]).all(-1)

    end = fewer_changes(feasible, others, is_valid)
    changed = models.encoder.changed(models.rows[:1], end)[0]
    assert not changed[order[:2]].any()
    assert changed[order[2:]].all(), "the original stops at the first change that is needed"


def test_mcce_draws_as_the_training_rows_are_given_what_is_fixed(models: FittedModels) -> None:
    rows, encoder = models.rows, models.encoder
    trees = Trees.fit(encoder, rows, seed=0)
    last = trees.order[-1]
    held = torch.ones(200, len(encoder.layout), dtype=torch.bool)
    held[:, last] = False
    chance = np.random.default_rng(0).random((200, len(trees.order)))
    drawn = trees.draw(rows[:1].expand(200, -1), held, chance)
    columns = encoder.layout[last]
    others = [c for c in range(encoder.width) if not columns.start <= c < columns.stop]
    assert torch.equal(drawn[:, others], rows[:1, others].expand(200, -1))
    before = [c for each in trees.order[:-1] for c in range(encoder.layout[each].start, encoder.layout[each].stop)]
    leaf = trees.trees[-1].apply(rows[:, before].double().numpy())
    same = rows[torch.from_numpy(leaf == leaf[0])][:, columns]
    values, counts = same.unique(dim=0, return_counts=True)
    for value, count in zip(values, counts, strict=True):
        share = float((drawn[:, columns] == value).all(-1).double().mean())
        assert share == pytest.approx(float(count) / len(same), abs=0.12)
    assert len(drawn[:, columns].unique(dim=0)) <= len(values)


def test_ppcef_asks_for_the_median_density_of_accepted_rows(models: FittedModels) -> None:
    with pytest.raises(NotFittedError, match="needs a flow"):
        Ppcef().loss(replace(_problem(models, "revise"), state=None))
    flow = FlowModel(models.encoder.width, transforms=1, hidden=(8,)).eval().requires_grad_(False)
    setup = replace(models.setup, models=SearchModels(models.setup.models.classifier, models.latent, flow))
    problem = replace(_problem(models, "revise", steps=8), setup=setup)
    density, toward = log_density(flow), target_loss(problem)
    rows = setup.rows[TARGET.is_reached(setup.probabilities)]
    expected = (flow.flow().log_prob(rows) - toward(rows, rows)).median()
    torch.testing.assert_close(Ppcef().threshold(problem, density), expected)
    x, loss = problem.feasible.factual, Ppcef(weight=10.0).loss(problem)
    missing = toward(x, x)
    torch.testing.assert_close(loss(x, x), 10 * (missing + (expected - density(x) + missing).clamp_min(0)))
    moved = x + 0.3 / x.shape[1] ** 0.5
    sparse = (expected - density(moved) + toward(moved, x)).clamp_min(0)
    torch.testing.assert_close(loss(moved, x), 0.3 + 10 * (toward(moved, x) + sparse))
    paths = Ppcef().search(problem)
    check_paths("ppcef", problem.validator, problem.feasible, paths)


def test_the_subspace_of_cruds_tells_the_class_and_the_rest_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (600,), generator=generator)
    x = 0.5 + 0.1 * torch.randn(600, 6, generator=generator)
    x[:, 0] = 0.2 + 0.6 * y + 0.05 * torch.randn(600, generator=generator)
    model = fit_csvae(x, torch.nn.functional.one_hot(y, 2).float(), latent=3, epochs=60)
    w, z = model.codes(x, torch.nn.functional.one_hot(y, 2).float())
    apart = [float((c[y == 1].mean(0) - c[y == 0].mean(0)).norm() / c.std()) for c in (w, z)]
    assert apart[0] > 3 * apart[1]
    one, other = torch.distributions.Normal(0.3, 0.7), torch.distributions.Normal(-0.2, 1.4)
    logs = [torch.log(each.variance)[None, None] for each in (one, other)]
    means = [each.mean[None, None] for each in (one, other)]
    found = _divergence(means[0], logs[0], means[1], logs[1])
    torch.testing.assert_close(found[0], torch.distributions.kl_divergence(one, other))


def test_what_is_looked_at_later_is_chosen_as_one_by_one(models: FittedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem(models, "revise")
    now, later = Best.of(problem), Best.of(problem)
    generator, count = torch.Generator().manual_seed(0), len(problem)
    asked: list[int] = []
    is_valid = type(problem.validator).is_valid
    for _ in range(30):
        x = models.rows[torch.randint(len(models.rows), (count,), generator=generator)]
        cost = torch.randint(4, (count,), generator=generator).float()  # so that many are as good
        now.offer(x, cost)
        later.offer_later(x, cost)

    def counting(self: Any, x: Tensor, factual: Tensor) -> Tensor:
        asked.append(len(x))
        return is_valid(self, x, factual)

    monkeypatch.setattr(type(problem.validator), "is_valid", counting)
    later.look()
    assert asked == [30 * count]
    for name in ("x", "valid", "cost"):
        assert torch.equal(getattr(now, name), getattr(later, name))

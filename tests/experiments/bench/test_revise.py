import torch
from torch import Tensor

from counterpath.experiments.bench.peers import DISTANCE_WEIGHT, LEARNING_RATE, binary_columns, prepare_revise, revise
from counterpath.experiments.study import Study


def _silent(amount: int = 1, note: str = "") -> None:
    pass


def test_the_columns_of_two_categories_are_binary(study: Study) -> None:
    names = [name for name, two in zip(study.encoder.schema.names, binary_columns(study.encoder), strict=True) if two]
    assert names == [feature.name for feature in study.encoder.schema if feature.kind == "binary"]


def _accepted(study: Study, factual: Tensor, steps: int) -> list[tuple[float, Tensor]]:
    """Loss and row of every accepted step of the same descent, written out by hand."""
    binary, z = binary_columns(study.encoder), study.vae.encode(factual).clone().requires_grad_()
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    accepted = []
    for step in range(1, steps + 1):
        decoded = study.vae.decode(z)
        x = torch.where(binary, decoded.round(), decoded)
        probability = study.classifier.probability(x)
        loss = -probability.log().sum() + DISTANCE_WEIGHT * torch.linalg.vector_norm(x - factual, 1)
        if probability > 0.5:
            accepted.append((float(loss.detach()), x.detach()))
        (gradient,) = torch.autograd.grad(loss, z)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient.square()
        moved = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        z = (z - LEARNING_RATE * moved).detach().requires_grad_()
    return accepted


def test_it_returns_the_accepted_step_with_the_smallest_loss(study: Study) -> None:
    solved = 0
    for row in range(4):
        factual = study.factual[row : row + 1]
        accepted = _accepted(study, factual, 60)
        found = revise(study.vae, study.classifier, factual, binary_columns(study.encoder), iterations=60)
        assert (found is None) == (not accepted)
        if found is not None:
            solved += 1
            torch.testing.assert_close(found, min(accepted, key=lambda pair: pair[0])[1], atol=1e-3, rtol=1e-3)
    assert solved


def test_what_it_finds_is_accepted_and_binary_and_no_row_sees_another(study: Study) -> None:
    find = prepare_revise(study, iterations=60)
    found, alone = find(study.factual[:4], _silent), find(study.factual[2:3], _silent)
    assert bool(found.exists.any())
    assert bool((study.classifier(found.rows[found.exists]) > 0).all())
    columns = found.rows[found.exists][:, binary_columns(study.encoder)]
    assert bool(((columns == 0) | (columns == 1)).all())
    assert torch.equal(found.rows[2], alone.rows[0])


def test_where_no_step_is_accepted_there_is_nothing(study: Study) -> None:
    found = prepare_revise(study, iterations=0)(study.factual[:3], _silent)
    assert not found.exists.any()
    assert torch.equal(found.rows, study.factual[:3])
    assert dict(found.failures) == {"no step was accepted": 3}

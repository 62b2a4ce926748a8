import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.graph import Neighbours
from counterpath.search.feasible import FeasibleSet
from counterpath.search.residual import ResidualDecoder
from counterpath.search.validity import Plausibility
from counterpath.utils.devices import map_blocks


@pytest.fixture(scope="module")
def decoder(models: FittedModels) -> ResidualDecoder:
    feasible = FeasibleSet.of(models.encoder, models.rows[:40])
    return ResidualDecoder.of(models.latent, feasible, generative=True, keep_residual=True)


def test_it_begins_at_the_people(decoder: ResidualDecoder) -> None:
    people, whose = decoder.feasible.factual, torch.arange(40)
    torch.testing.assert_close(decoder.decode(decoder.start, whose), people, rtol=0, atol=1e-5)
    bare = decoder.decode(decoder.start, whose, 0.0)
    assert (bare - people).abs().max() > 0.01, "what is not carried is lost"


def _path(decoder: ResidualDecoder) -> tuple[Tensor, Tensor, Tensor]:
    """From every in five steps to the code of the next one."""
    share = torch.linspace(0, 1, 6).repeat(40)
    row = torch.arange(40).repeat_interleave(6)
    z = torch.lerp(decoder.start[row], decoder.start.roll(1, 0)[row], share[:, None])
    return row, decoder.decode(z, row), z


def test_nothing_fades_where_the_end_is_close_enough_to_the_data(
    decoder: ResidualDecoder, models: FittedModels
) -> None:
    row, x, z = _path(decoder)
    data = Plausibility(models.neighbours, limit=100.0, typical=100.0)
    assert torch.equal(decoder.decay_residual(row, x, z, lambda rows, _: rows[:, 0] > -1, data), x)


def test_what_is_carried_fades_along_the_path_where_its_end_gains(
    decoder: ResidualDecoder, models: FittedModels
) -> None:
    row, x, z = _path(decoder)
    faded = decoder.decay_residual(
        row, x, z, lambda rows, _: rows[:, 0] > -1, Plausibility(models.neighbours, limit=0.0, typical=0.0)
    )
    before, after = (models.neighbours.nearest(rows[5::6])[0][:, 0] for rows in (x, faded))
    assert (after <= before).all()
    changed = (faded != x).any(-1).view(40, 6)
    assert changed[:, 5].any()
    assert torch.equal(faded[::6], x[::6]), "never where it begins"
    kept = ~changed[:, 5]
    assert torch.equal(faded.view(40, 6, -1)[kept], x.view(40, 6, -1)[kept]), "nor on paths whose end gains nothing"


def test_it_does_not_fade_where_that_would_cost_the_outcome(decoder: ResidualDecoder, models: FittedModels) -> None:
    row, x, z = _path(decoder)
    ends = x[5::6]

    def met(rows: Tensor, _: Tensor) -> Tensor:
        return Neighbours(ends, None).nearest(rows)[0][:, 0] == 0

    assert torch.equal(
        decoder.decay_residual(row, x, z, met, Plausibility(models.neighbours, limit=0.0, typical=0.0)), x
    )


def test_some_set_out_as_they_would_with_the_others(decoder: ResidualDecoder) -> None:
    some = torch.tensor([31, 4, 17])
    few = decoder.at(some)
    assert len(few.feasible) == 3
    z = decoder.start.roll(1, 0)
    for share in (1.0, 0.3, 0.0):
        whole = decoder.decode(z, torch.arange(40), share)
        assert torch.equal(few.decode(z[some], torch.arange(3), share), whole[some])
    assert few.context is not None
    assert decoder.context is not None
    assert torch.equal(few.context, decoder.context[some])


def test_what_is_decoded_becomes_the_same_row_as_its_code(decoder: ResidualDecoder) -> None:
    whose = torch.arange(40).repeat(2)
    z = torch.cat([decoder.start.roll(1, 0), decoder.start.roll(5, 0)])
    assert decoder.context is not None
    with torch.no_grad():
        decoded = map_blocks(decoder.model.decode, z, decoder.context[whose])
    for share in (1.0, 0.5, 0.0):
        assert torch.equal(decoder.finish(decoded, whose, share), decoder.decode(z, whose, share))


def test_copies_are_rows_that_are_training_rows(models: FittedModels) -> None:
    data = models.plausibility
    moved = models.rows[:20].clone()
    moved[::2, models.encoder.columns("score")[0]] += 1e-3
    copies = torch.cdist(moved.double(), models.rows.double()).amin(1) == 0
    assert torch.equal(data.is_copy(moved), copies)
    assert copies[1::2].all()
    assert not copies[::2].all()
    assert 0 < data.typical < data.limit

import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.neighbours import Neighbours
from counterpath.search.feasible import FeasibleSet
from counterpath.search.residual import Data, ResidualDecoder
from counterpath.utils.blocks import map_blocks


@pytest.fixture(scope="module")
def journey(learned: FittedModels) -> ResidualDecoder:
    scope = FeasibleSet.of(learned.encoder, learned.rows[:40])
    return ResidualDecoder.of(learned.space, scope, generative=True, carry=True)


def test_it_begins_at_the_people(journey: ResidualDecoder) -> None:
    people, whose = journey.scope.factual, torch.arange(40)
    torch.testing.assert_close(journey.rows(journey.start, whose), people, rtol=0, atol=1e-5)
    bare = journey.rows(journey.start, whose, 0.0)
    assert (bare - people).abs().max() > 0.01, "what is not carried is lost"


def _path(journey: ResidualDecoder) -> tuple[Tensor, Tensor, Tensor]:
    """From everybody in five steps to the code of the next one."""
    share = torch.linspace(0, 1, 6).repeat(40)
    row = torch.arange(40).repeat_interleave(6)
    z = torch.lerp(journey.start[row], journey.start.roll(1, 0)[row], share[:, None])
    return row, journey.rows(z, row), z


def test_nothing_fades_where_the_end_is_close_enough_to_the_data(
    journey: ResidualDecoder, learned: FittedModels
) -> None:
    row, x, z = _path(journey)
    data = Data(learned.neighbours, reach=100.0, typical=100.0)
    assert torch.equal(journey.faded(row, x, z, lambda rows: rows[:, 0] > -1, data), x)


def test_what_is_carried_fades_along_the_path_where_its_end_gains(
    journey: ResidualDecoder, learned: FittedModels
) -> None:
    row, x, z = _path(journey)
    faded = journey.faded(row, x, z, lambda rows: rows[:, 0] > -1, Data(learned.neighbours, reach=0.0, typical=0.0))
    before, after = (learned.neighbours.nearest(rows[5::6])[0][:, 0] for rows in (x, faded))
    assert (after <= before).all()
    changed = (faded != x).any(-1).view(40, 6)
    assert changed[:, 5].any()
    assert torch.equal(faded[::6], x[::6]), "never where it begins"
    kept = ~changed[:, 5]
    assert torch.equal(faded.view(40, 6, -1)[kept], x.view(40, 6, -1)[kept]), "nor on paths whose end gains nothing"


def test_it_does_not_fade_where_that_would_cost_the_outcome(journey: ResidualDecoder, learned: FittedModels) -> None:
    row, x, z = _path(journey)
    ends = x[5::6]

    def met(rows: Tensor) -> Tensor:
        return Neighbours(ends, None).nearest(rows)[0][:, 0] == 0

    assert torch.equal(journey.faded(row, x, z, met, Data(learned.neighbours, reach=0.0, typical=0.0)), x)


def test_some_set_out_as_they_would_with_the_others(journey: ResidualDecoder) -> None:
    some = torch.tensor([31, 4, 17])
    few = journey.at(some)
    assert len(few.scope) == 3
    z = journey.start.roll(1, 0)
    for share in (1.0, 0.3, 0.0):
        whole = journey.rows(z, torch.arange(40), share)
        assert torch.equal(few.rows(z[some], torch.arange(3), share), whole[some])
    assert few.told is not None
    assert journey.told is not None
    assert torch.equal(few.told, journey.told[some])


def test_what_is_decoded_becomes_the_same_row_as_its_code(journey: ResidualDecoder) -> None:
    whose = torch.arange(40).repeat(2)
    z = torch.cat([journey.start.roll(1, 0), journey.start.roll(5, 0)])
    assert journey.told is not None
    with torch.no_grad():
        decoded = map_blocks(journey.model.decode, z, journey.told[whose])
    for share in (1.0, 0.5, 0.0):
        assert torch.equal(journey.become(decoded, whose, share), journey.rows(z, whose, share))


def test_copies_are_rows_that_are_training_rows(learned: FittedModels) -> None:
    data = learned.data
    moved = learned.rows[:20].clone()
    moved[::2, learned.encoder.columns("score")[0]] += 1e-3
    copies = torch.cdist(moved.double(), learned.rows.double()).amin(1) == 0
    assert torch.equal(data.copies(moved), copies)
    assert copies[1::2].all()
    assert not copies[::2].all()
    assert 0 < data.typical < data.reach

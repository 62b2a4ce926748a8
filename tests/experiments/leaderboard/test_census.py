import numpy as np
import pytest

from counterpath.experiments.leaderboard import census
from counterpath.experiments.leaderboard.measures import Columns, mutability_violations, type_violations


def test_the_table_and_the_split_are_theirs() -> None:
    table = census.census()
    assert table.shape == (45222, 13)
    first = dict(zip(census.ORDER, (0, 39, 0, 6, 13, 5, 5, 1, 2, 2174, 0, 40), strict=True))
    assert table.iloc[0].drop(census.LABEL).to_dict() == first, "the first line of their file, but for binary codes"
    encoded = census.encode(table, table)
    assert encoded.shape[1] == 51
    assert (encoded.min(0) == 0).all()
    assert (encoded.max(0) == 1).all()
    columns = census.columns_of(table)
    assert not type_violations(encoded, columns.blocks, columns.binary).any()
    train, test = census.split(len(table), 0.2, 0)
    assert len(test) == 9045
    assert {416, 28465, 27017, 30989, 23469, 30229, 9374} <= set(test.tolist()), "people of their results"
    assert not set(train.tolist()) & set(test.tolist())


def test_our_columns_are_theirs() -> None:
    table = census.census().head(3000)
    whole = census.census()
    from counterpath.data.encoding import Encoder

    encoder = Encoder.fit(table[list(census.ORDER)], census.schema_of(whole))
    ours = encoder.encode(table[list(census.ORDER)]).double().numpy()
    assert ours.shape[1] == 51
    steps = census._Scaled(census.nn.Identity(), ours, census.encode(table, whole))
    again = steps(census.torch.from_numpy(ours).float()).numpy()
    np.testing.assert_allclose(again, census.encode(table, whole), atol=1e-5)


@pytest.mark.parametrize("by_all", [True, False])
def test_tossed_spheres_are_accepted_and_break_categories(by_all: bool) -> None:
    columns = Columns(blocks=((2, 3, 4),), binary=(1,), immutable=(1,))
    x = np.array([[0.2, 1.0, 1.0, 0.0, 0.0], [0.4, 0.0, 0.0, 1.0, 0.0]])
    found = census.coin_spheres(
        x, lambda rows: (rows[:, 0] > 0.7).astype(float), columns, by_all=by_all, put_back=False
    )
    assert (found[:, 0] > 0.7).all()
    assert not mutability_violations(x, found, (1,)).any()
    assert (found[:, 0] - x[:, 0] < 0.7).all()
    back = census.coin_spheres(x, lambda rows: (rows[:, 0] > 0.7).astype(float), columns, by_all=by_all, put_back=True)
    assert ((back != x).sum(1) <= (found != x).sum(1)).all()

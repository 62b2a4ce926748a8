import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.explanation import StatusCode
from counterpath.geometry.graph import Neighbours
from counterpath.search.plans import redundant_changes
from counterpath.search.validity import Plausibility
from tests.tables import LABEL

LAYOUT = (slice(0, 1), slice(1, 2), slice(2, 4))


def _score(x: Tensor) -> Tensor:
    return torch.sigmoid(4 * (x[:, 0] + 2 * x[:, 1] + 0.5 * x[:, 3] - 1))


def _redundant_changes(factual: Tensor, end: Tensor, allowed: bool = True) -> Tensor:
    return redundant_changes(
        factual,
        end,
        LAYOUT,
        is_valid=lambda x, _: _score(x) >= 0.5,
        probability=_score,
        is_plausible=lambda tried, _: torch.full((len(tried),), allowed),
    )


def test_changes_that_are_not_needed_are_put_back_whole_features_and_the_cheapest_first() -> None:
    factual = torch.tensor([[0.0, 0.0, 1.0, 0.0]]).repeat(3, 1)
    end = torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 0.4, 0.0, 1.0], [0.2, 0.2, 0.0, 1.0]])
    back = _redundant_changes(factual, end)
    assert back.tolist() == [[True, False, True], [False, True, True], [False, False, False]]
    columns = torch.stack([back[:, 0], back[:, 1], back[:, 2], back[:, 2]], dim=1)
    assert (_score(torch.where(columns, factual, end))[:2] >= 0.5).all()


def test_nothing_is_put_back_where_that_is_implausible() -> None:
    factual, end = torch.tensor([[0.0, 0.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    assert not _redundant_changes(factual, end, allowed=False).any()


def test_plausible_is_what_is_no_farther_than_the_counterfactual_or_than_real_rows() -> None:
    near, far = [0.1, 0.0], [2.0, 0.0]
    plausible = Plausibility(Neighbours(torch.zeros(1, 2)), 0.5, 0.5).no_farther_than(torch.tensor([near, far]), 0.5)
    tried = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.4, 0.0]])
    assert plausible(tried, torch.tensor([0, 1, 0])).tolist() == [False, True, True]


@pytest.mark.whole
@pytest.mark.whole
@pytest.mark.parametrize("method", ["rsgd", "wachter"])
def test_what_need_not_change_stays_as_it_is_along_the_whole_path(
    explainer: cp.Explainer, people: pd.DataFrame, method: str
) -> None:
    rows = people.drop(columns=LABEL).head(60)
    loose = explainer.set_params(sparsify=False).explain(rows, method=method)
    tidy = explainer.set_params(sparsify=True).explain(rows, method=method)
    assert (tidy.valid >= loose.valid).all()
    found = (tidy.status["status"] == StatusCode.FOUND) & (loose.status["status"] == StatusCode.FOUND)
    assert (tidy.changed.sum(axis=1) <= loose.changed.sum(axis=1))[found].all()
    assert tidy.changed.loc[found].to_numpy().sum() < loose.changed.loc[found].to_numpy().sum()
    for label in rows.index[found][:10]:
        path, changed = tidy.path(label), tidy.changed.loc[label]
        loosely = loose.changed.loc[label]
        for name in changed.index[~changed & loosely]:
            # the first row is as it was given, the others decoded: the same to 6e-8 of the range
            assert path[name].iloc[1:].nunique() <= 1, name
        assert path["probability"].iloc[-1] >= 0.5

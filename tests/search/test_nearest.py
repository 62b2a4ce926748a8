import torch

from counterpath.search.nearest import nearest_accepted, straight_path


def test_the_nearest_accepted_row_is_accepted_and_nearest() -> None:
    train = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    accepted = torch.tensor([True, False, False, True])
    found, exists = nearest_accepted(torch.tensor([[1.1], [1.6], [9.0]]), train, accepted)
    assert found[:, 0].tolist() == [0.0, 3.0, 3.0]
    assert exists.all()


def test_with_columns_that_must_agree_some_have_no_row() -> None:
    train = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    factual = torch.tensor([[1.9, 1.0], [0.0, 0.0], [0.0, 7.0]])
    found, exists = nearest_accepted(factual, train, torch.tensor([True, True, True]), same=[1])
    assert exists.tolist() == [True, True, False]
    assert found.tolist() == [[1.0, 1.0], [2.0, 0.0], [0.0, 7.0]]


def test_weights_decide_which_row_is_nearest() -> None:
    train = torch.tensor([[1.0, 0.0, 5.0], [0.0, 2.0, 5.0]])
    factual, accepted = torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([True, True])
    for same in (None, [2]):
        assert nearest_accepted(factual, train, accepted, same)[0].tolist() == [[1.0, 0.0, 5.0]]
        found = nearest_accepted(factual, train, accepted, same, weights=torch.tensor([1.0, 0.1, 1.0]))[0]
        assert found.tolist() == [[0.0, 2.0, 5.0]]


def test_a_straight_path_has_its_ends() -> None:
    start, end = torch.rand(2, 5, 3).unbind()
    path = straight_path(start, end, 10)
    assert path.shape == (11, 5, 3)
    torch.testing.assert_close(path[0], start)
    torch.testing.assert_close(path[-1], end)
    torch.testing.assert_close(path[5], (start + end) / 2)

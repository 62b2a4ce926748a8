import pandas as pd

from counterpath.explanation.summary import tally


def test_features_are_told_by_how_often_they_change_in_which_direction_and_by_how_much() -> None:
    old = pd.DataFrame({"job": ["a", "a", "b", "b"], "pay": [1.0, 2.0, 3.0, 4.0], "age": [1, 2, 3, 4]})
    new = pd.DataFrame({"job": ["b", "b", "c", "b"], "pay": [3.0, 4.0, 3.0, 2.0], "age": [1, 2, 3, 4]})
    job, pay = tally(old, new, old.ne(new), frozenset({"pay", "age"}))
    assert (pay.share, pay.up, pay.down) == (0.75, 0.5, 0.25)
    assert pay.typical == "+2 (half of them 0 to +2)"
    assert (job.share, job.up, job.down, job.typical) == (0.75, 0.0, 0.0, "a → b (2 of 3)")


def test_nothing_is_told_of_no_rows() -> None:
    nothing = pd.DataFrame({"pay": pd.Series(dtype=float)})
    assert tally(nothing, nothing, nothing.astype(bool), frozenset({"pay"})) == ()

"""What the forms offer and read, without a browser."""

import counterpath as cp
from counterpath.explainer.request import OTHER
from counterpath.explorer.forms import as_integer, available_methods, default_target
from counterpath.search.method import Method
from counterpath.search.methods import METHODS, method_names


def test_every_method_is_described_and_those_that_are_fitted_are_offered(explainer: cp.Explainer) -> None:
    described = {method.description for method in METHODS.values()} - {Method.description}
    assert len(described) == len(METHODS)
    methods = available_methods(explainer)
    assert methods[0] == explainer.method
    assert set(methods) == set(method_names()) - {"flow", "ppcef"}, "which need a flow, and none was fitted"
    assert default_target(explainer) == OTHER


def test_whole_numbers_of_fields_are_integers() -> None:
    assert [as_integer(value) for value in (900.0, 2.5, None, "A")] == [900, 2.5, None, "A"]
    assert isinstance(as_integer(900.0), int)

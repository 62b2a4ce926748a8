"""A method: a strategy that owns its search. The built-in ones are in `methods`; a user's own is one class."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from counterpath.search.paths import Paths
from counterpath.search.problem import Problem, SearchOptions, SearchSetup


class Method(ABC):
    """A strategy that owns its search.

    Subclass it, give it a `name`, and write `search`; the rest is optional. Everything that the built-in methods use is
    in the `Problem`, and so is open to others.

    Attributes:
        name: What it is called in requests, tables and model directories.
        description: What it does, in a few words, for people who choose one.
        needs: The models that it needs beside the classifier and the VAE, which are always there: "flow".
        settings: Parameters of `Explainer`, beside those of every search, on which its answers depend.
        returns_training_rows: Whether counterfactuals are training rows.

    Example:
        >>> class Nowhere(Method):
        ...     '''Finds nothing.'''
        ...     name = "nowhere"
        ...
        ...     def search(self, problem):
        ...         row = torch.arange(len(problem))
        ...         return problem.paths(row, problem.feasible.factual, torch.full_like(row, StopReason.NO_WAY_DOWN))
    """

    name: str
    description: str = "a method of your own"
    needs: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()
    returns_training_rows: bool = False

    def fit(self, setup: SearchSetup, options: SearchOptions) -> Any:
        """What the method learns once, from the models and the training rows; `Problem.state` holds it."""
        return None

    def state_to_tensors(self, state: Any) -> dict[str, Tensor]:
        """The state as tensors, for a model directory."""
        return {}

    def state_from_tensors(self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]) -> Any:
        """The state that `state_to_tensors` made tensors of; by default it is fitted again."""
        return self.fit(setup, options)

    @abstractmethod
    def search(self, problem: Problem) -> Paths:
        """One path for each row of the problem: from the row to a counterfactual, or else to the best point found."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

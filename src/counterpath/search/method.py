"""A method, what it is given and what it returns: a strategy that owns its search, a `Problem` and `Paths`.

The built-in methods are in `methods`; a user's own is one class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.classifier import Classifier, Differentiable
from counterpath.models.flow import FlowModel
from counterpath.models.latent import LatentModel
from counterpath.models.layers import fold
from counterpath.models.vae import VAE
from counterpath.search.combinations import Combinations
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.roadmap import Landmarks
from counterpath.search.stability import Stability
from counterpath.search.validity import Plausibility, Validator
from counterpath.utils.progress import ShouldStop, never_stop

M = TypeVar("M")
C = TypeVar("C", bound=Differentiable)
V = TypeVar("V", bound=LatentModel)


@dataclass(frozen=True)
class SearchOptions:
    """How to search; see `Explainer`, whose parameters they are.

    Attributes:
        max_steps: The most steps of a search.
        step_size: η.
        damping: Added to the metric's diagonal.
        fidelity: α, the weight of staying close to the factual row.
        fallback: Where a local search gets stuck, take the line to the nearest landmark.
        sparsify: Put back every redundant change; of methods that do not do so by themselves.
        keep_residual: Start at the factual row, and add what the generative model does not reproduce of it.
        refine: Move counterfactuals closer to the factual row; None for those of `geodesic` alone, whose paths are
            relaxed, too, unless it is False.
        allow_copies: Whether a counterfactual may be equal to a training row.
        staged: Have paths go straight in every feature, and change few features at a time.
        avoid_unseen: Avoid pairs of values that no training row has.
        tf32: Round the factors of products to TF32 on a GPU while searching.
        ambient_metric: What `geodesic` measures steps by: "data" or "classifier".
        uncertainty_cost: Whether it lets steps cost more where the generative model is uncertain.
        plausibility: Which share of real rows is nearer to the data than a counterfactual may be far from them.
        closeness: What makes a counterfactual close: a key of `candidates.COSTS`.
        stability: What an answer must survive; None for nothing but the explained model.
        ends_only: Whether nobody asks for the way to a counterfactual, so that a method need not look for one.
        should_stop: When to give up.
        progress: Show a bar.
    """

    max_steps: int = 150
    step_size: float = 0.1
    damping: float = 5e-3
    fidelity: float = 0.0
    fallback: bool = True
    sparsify: bool = True
    keep_residual: bool = True
    refine: bool | None = None
    allow_copies: bool = True
    avoid_unseen: bool = True
    staged: bool = True
    tf32: bool = False
    ambient_metric: str = "data"
    uncertainty_cost: bool = True
    plausibility: float = 0.95
    closeness: str = "l1"
    stability: Stability | None = None
    ends_only: bool = False
    should_stop: ShouldStop = never_stop
    progress: bool | None = False


@dataclass(frozen=True)
class SearchModels(Generic[C, V]):
    """The fitted models that are searched: frozen, with BatchNorm folded.

    Attributes:
        classifier: What a search follows downhill: our classifier, a user's torch module, or a surrogate.
        vae: Our VAE, or a user's generator.
        flow: A normalizing flow.
    """

    classifier: C
    vae: V | None = None
    flow: FlowModel | None = None

    def folded(self) -> "SearchModels[C, V]":
        """The same with our own models as copies that are fastest to evaluate; a user's models stay as they are."""
        return SearchModels(_folded(self.classifier), _folded(self.vae), _folded(self.flow))


AnyModels = SearchModels[Any, Any]


@dataclass(frozen=True)
class SearchSetup:
    """What all searches of an explainer share.

    Attributes:
        encoder: Tables to tensors and back.
        models: The models that are searched.
        predict_proba: The explained model: legal encoded rows to the probability of every class.
        exact: Whether `models.classifier` is the explained model itself. A surrogate is followed until it is sure; then
            the explained model is asked about the whole path at once, and the first valid point is the end.
        rows: The training rows, encoded.
        probabilities: What the explained model says about them.
        landmarks: Training rows as they are decoded; None if there are none to fall back to.
        plausibility: How far from the training rows real rows are; without it nothing is put back.
        seed: Of all randomness.
        combinations: Which combinations of values training rows have.
    """

    encoder: Encoder
    models: AnyModels
    predict_proba: Callable[[Tensor], Tensor]
    exact: bool
    rows: Float[Tensor, "n D"]
    probabilities: Float[Tensor, "n K"]
    landmarks: Landmarks | None = None
    plausibility: Plausibility | None = None
    seed: int = 0
    combinations: Combinations | None = None

    @property
    def latent(self) -> LatentModel:
        """The generative model."""
        latent = self.models.vae
        assert isinstance(latent, LatentModel)
        return latent

    @property
    def weights(self) -> Float[Tensor, "D"]:
        """Of the columns in distances."""
        return self.encoder.weights.to(self.rows)


@dataclass(frozen=True)
class Problem:
    """Counterfactuals to search for.

    Attributes:
        setup: The models and the training rows.
        feasible: The rows, and what each of them may become.
        target: What the explained model is to predict.
        options: How to search.
        state: What the method's `fit` returned.
        max_changes: How many features may change; only for methods that can be asked for that.
    """

    setup: SearchSetup
    feasible: FeasibleSet
    target: Target
    options: SearchOptions = field(default_factory=SearchOptions)
    state: Any = None
    max_changes: int | None = None

    def __len__(self) -> int:
        return len(self.feasible)

    def at(self, rows: Tensor) -> "Problem":
        """The problem of some of the rows, by indices or a mask."""
        return replace(self, feasible=self.feasible.at(rows))

    @cached_property
    def validator(self) -> Validator:
        """Says which rows are valid."""
        setup, copies = self.setup, self.options.allow_copies
        combinations = setup.combinations
        if combinations is not None and not self.options.avoid_unseen:
            combinations = combinations.loosened()
        asked = setup.predict_proba, setup.latent, self.target, setup.plausibility, copies, combinations
        return Validator(*asked, self.feasible.rules, self.feasible.effects, self.options.stability)

    def accepted(self, rows: Float[Tensor, "m D"], probabilities: Float[Tensor, "m K"]) -> Bool[Tensor, "m"]:
        """Which of some training rows reach the target, and last, if that is asked for."""
        reached, stability = self.target.is_reached(probabilities), self.options.stability
        return reached if stability is None else stability.among(rows, reached, self.target)

    def paths(
        self,
        row: Int[Tensor, "p"],
        x: Float[Tensor, "p D"],
        reason: Int[Tensor, "n"],
        z: Float[Tensor, "p d"] | None = None,
    ) -> Paths:
        """Paths with what the explained model says along them: what every method returns; see `Validator.paths`."""
        return self.validator.paths(self.feasible, row, x, reason, z)


def _folded(model: M) -> M:
    return fold(model) if isinstance(model, Classifier | VAE | FlowModel) else model


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
        refines: Whether it moves them closer to the factual row by itself, unless `SearchOptions.refine` is False.
        ends_first: Whether it looks for the way only when it knows the end: not at all under `SearchOptions.ends_only`.
        row_by_row: Whether rows with other confidences and bounds may be searched for together: it reads those of each
            row (`FeasibleSet.confidences`), and nobody's answer depends on what others ask for.
        chooses_features: Whether it chooses its ends feature by feature, and so by all models that it asks; others
            follow one line, or take a training row.
        respects_limits: Whether its search itself respects `Problem.max_changes` and takes the cheapest way by the
            costs of features; other methods are asked again with features fixed.

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
    row_by_row: bool = False
    description: str = "a method of your own"
    needs: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()
    returns_training_rows: bool = False
    refines: bool = False
    ends_first: bool = False
    respects_limits: bool = False
    chooses_features: bool = True

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

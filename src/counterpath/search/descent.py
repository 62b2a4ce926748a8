"""Local methods: step downhill in some space, under some metric, until the explained model itself accepts the row.

A published method is a `Descent` of one line; a new one is, too: any metric, any step rule.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from counterpath.geometry.metric import METRICS, Metric
from counterpath.models.latent import IdentityModel, LatentModel
from counterpath.search.fallback import fallback_paths
from counterpath.search.method import AnyModels, Method, Problem
from counterpath.search.objective import Objective
from counterpath.search.paths import Paths, better_paths, is_first, merge, path_fraction, prepend, trajectory_points
from counterpath.search.plans import sparsify
from counterpath.search.residual import ResidualDecoder
from counterpath.search.step import STEP_RULES, StepRule
from counterpath.search.traverse import StopReason, StopRule, never_waits, traverse
from counterpath.search.validity import AtLegalRow
from counterpath.utils.errors import NotFittedError, choose

_MARGIN, _SURE = 0.1, 0.99
"""A surrogate is first followed until it is this much surer than was asked for, then until it is this sure: a
tenth allows for where it is off, and beyond 0.99 its gradient vanishes."""

SPACES: dict[str, Callable[[AnyModels], LatentModel | None]] = {
    "data": lambda models: IdentityModel(),
    "vae": lambda models: models.vae,
    "flow": lambda models: models.flow,
}
"""The spaces in which a descent can search, by name."""


class Descent(Method):
    """Steps z ← z − η·r/‖r‖, r = M(z)⁻¹∇f(z), in the latent space of a model, or in X itself.

    Args:
        name: What the method is called.
        description: What it does, in a few words.
        space: A key of `SPACES`.
        metric: A key of `METRICS`, or a function `Linearization -> (n, d, d)`.
        step_rule: A key of `STEP_RULES`, or a function `(direction, gradient) -> step`.

    Example:
        >>> Descent("rsgd-unit", space="vae", metric="pullback", step_rule="riemannian")
        Descent('rsgd-unit')
    """

    def __init__(
        self,
        name: str,
        description: str = Method.description,
        *,
        space: str = "vae",
        metric: str | Metric = "pullback",
        step_rule: str | StepRule = "euclidean",
    ) -> None:
        choose("space", space, SPACES)
        if isinstance(metric, str):
            choose("metric", metric, METRICS)
        self.name, self.description = name, description
        self.space = space
        self.metric = metric
        self.step_rule = choose("step rule", step_rule, STEP_RULES) if isinstance(step_rule, str) else step_rule
        self.needs = frozenset({"flow"} if space == "flow" else ())
        guided = isinstance(metric, str) and metric.startswith("guided")
        self.settings = ("representation_layer",) if guided else ()

    chooses_features = False

    def geometry(self, models: AnyModels) -> tuple[LatentModel, Metric]:
        """The space to search in, and its metric.

        Raises:
            NotFittedError: There is no such model.
        """
        model = SPACES[self.space](models)
        if model is None:
            raise NotFittedError(
                f"method {self.name!r} searches in the latent space of a {self.space}, and none was fitted: fit one "
                f"first, for instance with Explainer(method={self.name!r}).fit(…)"
            )
        if isinstance(self.metric, str):
            return model, METRICS[self.metric](models.classifier.representation)
        return model, self.metric

    def search(self, problem: Problem) -> Paths:
        """Follow the classifier downhill; where that gets stuck, fall back to the line to the nearest landmark."""
        options, setup, feasible = problem.options, problem.setup, problem.feasible
        pending = torch.arange(len(problem), device=feasible.factual.device)
        kept: list[tuple[torch.Tensor, Paths]] = []
        stuck: Paths | None = None
        for stop, keep_residual in self.attempts(problem):
            paths = better_paths(stuck, self._descend(problem.at(pending), stop, keep_residual=keep_residual))
            done = paths.found | (paths.reason == StopReason.OUT_OF_TIME)
            kept.append((pending[done], paths.filter(done)))
            pending, stuck = pending[~done], paths.filter(~done)
            if len(pending) == 0:
                break
        if stuck is not None and len(pending):
            line = None
            if options.fallback and self._is_generative and setup.landmarks is not None:
                line = fallback_paths(
                    problem.validator,
                    setup.landmarks,
                    feasible.at(pending),
                    step_size=options.step_size,
                    keep_residual=options.keep_residual,
                )
            kept.append((pending, stuck if line is None else better_paths(stuck, line)))
        paths = merge(kept)
        return sparsify(problem.validator, feasible, paths) if options.sparsify else paths

    @property
    def _is_generative(self) -> bool:
        """Whether it searches in the space of the generative model, which leaves a residual."""
        return self.space == "vae"

    def attempts(self, problem: Problem) -> Iterator[tuple[StopRule, bool]]:
        """When to stop in one search after the other, and whether it keeps the residual all along.

        The residual can hold a row back: so a row that is stuck with it is searched for once more without.
        """
        setup, validator, encoder = problem.setup, problem.validator, problem.setup.encoder
        if setup.exact:
            capturable = never_waits(setup.predict_proba) and validator.needs_model_only and not problem.feasible.ruled
            stops = [AtLegalRow(encoder, validator.is_valid, capturable)]
        else:
            stops = [_until_sure(problem, _MARGIN), _until_sure(problem, _SURE)]
        keep_residual = problem.options.keep_residual and self._is_generative
        yield from ((stop, keep_residual) for stop in stops)
        if keep_residual:
            yield stops[-1], False

    def _descend(self, problem: Problem, stop: StopRule, *, keep_residual: bool) -> Paths:
        options, feasible, validator, target = problem.options, problem.feasible, problem.validator, problem.target
        factual, generative, plausibility = feasible.factual, self._is_generative, problem.setup.plausibility
        model, metric = self.geometry(problem.setup.models)
        decoder = ResidualDecoder.of(model, feasible, generative=generative, keep_residual=keep_residual)
        found = traverse(
            model,
            metric,
            Objective.of(problem.setup.models.classifier, target, options.fidelity),
            factual,
            context=decoder.context,
            step_constraints=decoder.step_constraints,
            stop=stop,
            steps=options.max_steps,
            step_size=options.step_size,
            step_rule=self.step_rule,
            damping=options.damping,
            tf32=options.tf32,
            should_stop=options.should_stop,
            progress=options.progress,
            name="searching",
        )
        row, x, z = trajectory_points(found)
        x = feasible.legal(x, row)
        codes = z if generative else validator.encode(x)
        if not options.keep_residual:
            row, x, codes = prepend(factual, validator.encode(factual), row, x, codes)
        elif keep_residual and plausibility is not None:
            x = decoder.decay_residual(row, x, z, validator.is_valid, plausibility)
        elif generative and not keep_residual:
            whole = ResidualDecoder.of(model, feasible, generative=True, keep_residual=True)
            x = whole.decode(z, row, 1 - path_fraction(row)[:, None])
        if options.keep_residual:
            x = torch.where(is_first(row)[:, None], factual[row], x)
        return problem.paths(row, x, found.reason, codes).truncate()


def _until_sure(problem: Problem, margin: float) -> AtLegalRow:
    """Stop where the surrogate is surer than was asked for by a margin."""
    classifier, sure = problem.setup.models.classifier, problem.target.surer(margin, _SURE)

    def is_sure(x: Tensor, factual: Tensor) -> Tensor:
        return sure.is_reached(sure.said(classifier, x))

    return AtLegalRow(problem.setup.encoder, is_sure, never_waits(classifier))

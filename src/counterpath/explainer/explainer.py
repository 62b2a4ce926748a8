"""The Explainer: fit it to a table and a model, ask it about rows, keep it in a directory."""

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator

from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder
from counterpath.data.impute import Imputer
from counterpath.data.row_constraints import Row, parse_row_constraints
from counterpath.data.rules.checks import check_shares
from counterpath.data.rules.language import parse_rules
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.schema import Number, Schema
from counterpath.data.tables import to_pandas, without_ignored
from counterpath.explainer.assemble import assemble
from counterpath.explainer.recheck import recheck_rows
from counterpath.explainer.request import OTHER, SEARCH_SETTINGS, Request, record, recorded_request
from counterpath.explainer.shared import check_k, find_shared_plans, request_of
from counterpath.explainer.solve import Solver
from counterpath.explanation import Explanation
from counterpath.explanation.audit import PERMUTATIONS, RESAMPLES, Audit, GroupBy, audit, burdens
from counterpath.explanation.native import NativeExplanation, in_library_of
from counterpath.explanation.result import provenance
from counterpath.explanation.shared import SharedPlans
from counterpath.explanation.summary import By
from counterpath.explanation.tables import ALL, END
from counterpath.fitting import persistence
from counterpath.fitting.diagnostics import Diagnostics, diagnose
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.persistence import fitting_together, pack, parameters_from_json, parameters_to_json, unpack
from counterpath.fitting.train import (
    FitConfig,
    Sizes,
    TargetColumn,
    encode_rows,
    fit_family,
    fit_models,
    labels_for,
    prepare_training,
)
from counterpath.models.classifier import Thresholds, decide
from counterpath.models.explained import Labels, encode_labels, encode_numbers, parse_threshold
from counterpath.models.family import HELD_OUT
from counterpath.models.generator import Autoencoder
from counterpath.models.training import Run
from counterpath.search.geodesic import AMBIENT_METRICS
from counterpath.search.method import Method, SearchOptions
from counterpath.search.methods import resolve_method
from counterpath.search.objective import Target
from counterpath.search.stability import typical_level
from counterpath.utils.devices import release_memory, resolve_device
from counterpath.utils.errors import CounterpathWarning, InputError, NotFittedError, choose
from counterpath.utils.progress import ShouldStop, stop_after
from counterpath.utils.replay import no_collection


class Explainer(BaseEstimator):  # type: ignore[misc]
    """Counterfactual explanations of a model's decisions on a table.

    Args:
        method: How to search: the name of a method, or a `Method` of your own; `explain` can be asked for another.
        latent_dim: Width of the latent space, or "auto".
        hidden: Widths of the generative model's hidden layers.
        uncertainty: How it estimates where it is uncertain: "rbf", by the distance to training codes; "ensemble", by
            the disagreement of five decoders; "laplace", by the posterior of its last layer's weights.
        ordered_metric: How binary, boolean and ordinal features are measured in the latent space: "euclidean", like
            numbers, or "fisher-rao", by how far the odds of their values move, as categories are.
        n_centers: RBF centres of its uncertainty, or "auto".
        epochs: Passes over the table when it is trained, or "auto".
        numeric_output: How it decodes numbers: "sigmoid" stays within the training range, "linear" does not.
        class_weight: None, "balanced" or a mapping, for the classifier that is trained when no model is given.
        representation_layer: Name of the layer of a torch model that `rsgd-c` and `ambient` take as its
            representation; by default the input of the last linear layer.
        threshold: From which probability on the model decides for a class: a number for the second of two classes; or
            by class, of which those that are left out share what is left to 1. Decided is the class whose probability
            is the largest multiple of its threshold; by default the most probable one.
        task: What the model predicts: "classification", "regression", or "auto". Then a model is a regressor that says
            so, or has `predict` and no `predict_proba`; a booster by its objective; and all else, no model included,
            if the target column has more than 50 different numbers.
        missing: "keep" takes gaps as values of their own: the model is asked about rows with them, and they stay unless
            the answer says otherwise. "impute" fills them in and says so for every row, "error" refuses them. "auto"
            keeps them if the model takes them, and refuses them if not.
        max_steps: The most steps of a search.
        step_size: Length of a step in the latent space.
        damping: Added to the diagonal of the metric.
        sparsify: Have local methods put back every redundant change, as long as the counterfactual stays valid and
            plausible; `geodesic` does so as a part of `refine`.
        keep_residual: Have local methods start at the row itself, by adding what the generative model does not
            reproduce of it; the paths of `geodesic` always do.
        fallback: Where a local search finds nothing, take the line to the nearest landmark that the model accepts.
        refine: Move counterfactuals as close to the row as they can be, whatever the method: True; by default those of
            `geodesic` alone; False for none.
        allow_copies: Whether a counterfactual may be equal to a training row; False for privacy.
        staged: Whether the points of a path are made steps that people can take: no feature goes back and forth, and at
            most two change at a time. Without it, paths are as the search went.
        avoid_unseen: Whether to avoid pairs of categories, and of a category and a tenth of a number, that no training
            row has. Where nothing else is found they are allowed, and the status names them.
        tf32: Round the factors of products to TF32 while searching on a GPU; what is returned is validated exactly.
        ambient_metric: What `geodesic` measures steps by: "data", rows as they are, or "classifier", rows as the
            classifier represents them.
        uncertainty_cost: Whether `geodesic` lets steps cost more where the generative model is uncertain.
        fidelity: The weight of staying close to the row in the objective of local methods.
        seed: Of all randomness.
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: Show progress bars; by default where standard error is a terminal.

    Example:
        >>> import counterpath as cp
        >>> data = cp.datasets.load("adult-carla")
        >>> explainer = cp.Explainer(seed=0).fit(data.train, target=data.target, schema=data.schema)  # doctest: +SKIP
        >>> explainer.explain(data.test.head(20), target_class=1).changes  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        method: str | Method = "geodesic",
        latent_dim: int | str = "auto",
        hidden: tuple[int, ...] = (512, 256),
        uncertainty: str = "rbf",
        ordered_metric: str = "euclidean",
        n_centers: int | str = "auto",
        epochs: int | str = "auto",
        numeric_output: str = "sigmoid",
        class_weight: str | Mapping[Any, float] | None = None,
        representation_layer: str | None = None,
        threshold: float | Mapping[Any, float] | None = None,
        task: str = "auto",
        missing: str = "auto",
        max_steps: int = 150,
        step_size: float = 0.1,
        damping: float = 5e-3,
        sparsify: bool = True,
        keep_residual: bool = True,
        fallback: bool = True,
        refine: bool | None = None,
        allow_copies: bool = True,
        avoid_unseen: bool = True,
        staged: bool = True,
        tf32: bool = False,
        ambient_metric: str = "data",
        uncertainty_cost: bool = True,
        fidelity: float = 0.0,
        seed: int = 0,
        device: str = "auto",
        progress: bool | None = None,
    ) -> None:
        self.method = method
        self.latent_dim = latent_dim
        self.hidden = hidden
        self.uncertainty = uncertainty
        self.ordered_metric = ordered_metric
        self.n_centers = n_centers
        self.epochs = epochs
        self.numeric_output = numeric_output
        self.class_weight = class_weight
        self.representation_layer = representation_layer
        self.threshold = threshold
        self.task = task
        self.missing = missing
        self.max_steps = max_steps
        self.step_size = step_size
        self.damping = damping
        self.sparsify = sparsify
        self.keep_residual = keep_residual
        self.fallback = fallback
        self.refine = refine
        self.allow_copies = allow_copies
        self.avoid_unseen = avoid_unseen
        self.staged = staged
        self.tf32 = tf32
        self.ambient_metric = ambient_metric
        self.uncertainty_cost = uncertainty_cost
        self.fidelity = fidelity
        self.seed = seed
        self.device = device
        self.progress = progress

    def fit(
        self,
        table: Any,
        target: TargetColumn = None,
        *,
        schema: Schema | None = None,
        immutable: Sequence[str] = (),
        encoder: Encoder | None = None,
        model: Any = None,
        generator: Autoencoder | None = None,
        checkpoint: str | Path | None = None,
        family: bool | int = False,
        retrain: Any = None,
        alternatives: Sequence[Any] | None = None,
    ) -> "Explainer":
        """Fit to training rows all that explanations need.

        Args:
            table: A table of pandas, polars or Arrow, with or without the label.
            target: The column of the label, or the labels. Without a `model` they are what the classifier learns.
            schema: What the columns are; by default `Schema.infer` looks.
            immutable: Features that must not change, beside those of the schema.
            encoder: A fitted encoder, schema included, if a torch model or generator was trained on its rows.
            model: The model to explain: a torch module on encoded rows, an object with `predict_proba` on a
                DataFrame, or a function from a DataFrame to probabilities. Without one a classifier is trained.
            generator: A torch module with `encode` and `decode` on encoded rows, instead of our VAE.
            checkpoint: A folder from which a fit that was cut off goes on.
            family: Also train the models that may follow, for `explain(robust=…)`, or how many of them; by default our
                own are trained when they are first asked for.
            retrain: How a model of yours is trained, for such a family; see `fit_family`.
            alternatives: Or such models themselves, fitted.

        Raises:
            InputError: The table, the labels or the model cannot be used; the message says why.
        """
        method, options = resolve_method(self.method), self._options()
        choose("ambient_metric", self.ambient_metric, AMBIENT_METRICS)
        device = resolve_device(self.device)
        widths = self.latent_dim, tuple(self.hidden), self.n_centers
        sizes = Sizes(*widths, self.epochs, self.numeric_output, self.uncertainty, self.ordered_metric)
        run = Run(seed=self.seed, checkpoint=None if checkpoint is None else Path(checkpoint), progress=self.progress)
        asked = {"missing": self.missing, "model": model, "task": self.task, "seed": self.seed}
        prepared = prepare_training(table, target, schema, encoder, immutable=immutable, **asked)
        rows = encode_rows(prepared.encoder, prepared.features).to(device)
        rules = Constraints().ruleset(prepared.encoder)
        if rules is not None:
            check_shares(rules.broken_shares(rows))
        numbers = prepared.numbers
        if numbers and (self.threshold is not None or self.class_weight is not None):
            raise InputError("threshold and class_weight are for classes, and this is a regression; leave them out")
        encode = encode_numbers if numbers else encode_labels
        labelled = None if prepared.labels is None else encode(prepared.labels)
        weight, layer = self.class_weight, self.representation_layer
        config = FitConfig(model, generator, method, weight, layer, sizes, run, options, numbers, self.threshold)
        fitted_encoder, imputer, name = prepared.encoder, prepared.imputer, prepared.target
        del table, prepared  # training needs the encoded rows alone: a table that nobody else holds is given up
        release_memory()
        models = fit_models(config, fitted_encoder, rows, labelled)
        labels = labels_for(models, labelled)
        models = replace(models, labels=labels)
        diagnosed = diagnose(
            models, labels=labels, thresholds=parse_threshold(self.threshold, models.explained.classes), seed=self.seed
        )
        self._fitted(models, imputer, name, diagnosed, warn=True)
        if family is not False or retrain is not None or alternatives is not None:
            self.fit_family(
                retrain=retrain, alternatives=alternatives, size=None if isinstance(family, bool) else family
            )
        return self

    def fit_family(
        self,
        *,
        retrain: Any = None,
        alternatives: Sequence[Any] | None = None,
        size: int | None = None,
        held_out: int = HELD_OUT,
    ) -> "Explainer":
        """Make a family of the models that may follow the explained one, for `explain(robust=…)` and `valid_after`.

        Our own classifier's is trained from the training rows that are kept, all models at once, and is stored with the
        explainer. For a model of yours say how it is trained, or give others; they are not stored.

        Args:
            retrain: A function from rows and labels, and `seed` if it takes one, to a fitted model; or an estimator of
                scikit-learn, which is cloned: the explained model itself will do. It is called for every model with a
                bootstrap of the training rows.
            alternatives: A list of fitted models instead, of which every fourth is held out.
            size: How many models a search asks, by default 640 of ours and 128 of yours. A share of 0.9 needs 31, and
                111 if five features change; one of 0.95 needs 84, and 334.
            held_out: How many more are trained that no search asks, by which answers are measured.

        Raises:
            InputError: There is no way to make one, the training fails, or gives models with other classes.
        """
        options = {"retrain": retrain, "alternatives": alternatives, "size": size, "held_out": held_out}
        self.models_ = fit_family(self._models(), self.class_weight, **options, progress=self.progress)
        return self

    def explain(
        self,
        table: Any,
        target_class: Any = OTHER,
        *,
        confidence: float | tuple[float | None, float | None] | None = None,
        target_range: tuple[float | None, float | None] | None = None,
        method: str | Method | None = None,
        time_limit: float | int | None = None,
        should_stop: ShouldStop | None = None,
        paths: str = ALL,
        lock: Iterable[str] = (),
        unlock: Iterable[str] = (),
        directions: Mapping[str, str] | None = None,
        ranges: Mapping[str, Any] | None = None,
        stay_within: Mapping[str, Any] | None = None,
        max_changes: int | None = None,
        feature_costs: Mapping[str, Number] | None = None,
        rules: Iterable[Any] = (),
        causes: Any = (),
        constraints: Any = None,
        plans: int = 1,
        plausibility: float = 0.95,
        closeness: str = "l1",
        robust: float | None = None,
        noise: float | None = None,
    ) -> Explanation:
        """Find for every row what would have to change, and the way there.

        The tables of the answer are of the library that the rows came in: pandas, polars or Arrow.

        Args:
            table: Rows with the columns of the training table; its label may be there and is not looked at.
            target_class: The wanted class, by its label; or "other", any class but the present one.
            confidence: What the model's probability of the wanted outcome must reach, on the row as it is returned; by
                default no more than the model's own decision, which is by its `threshold`. A pair (low, high): where
                that probability must lie, whatever is decided; either of them None for an open end.
            target_range: Of a regressor, where what it predicts must lie: (low, high), either None for an open end.
            method: How to search; by default the explainer's own.
            time_limit: How long to search at most. Rows that are not done by then have a status that says so.
            should_stop: Called between steps: whether to give up, for instance because nobody waits any more. Rows that
                are not done then have the same status.
            paths: How much of every path to keep: "all" of it, only its "milestones", which tell it in a few steps, or
                nothing but its "end". All else is the same, and the result of many rows is smaller.
            lock: Features that must not change, beside the schema's immutable ones.
            unlock: Features that may change though they are not actionable by the schema.
            directions: By feature "up" or "down", the only way in which it may change from what it is.
            ranges: By feature where it must end: (low, high), either of them None for an open end, for numbers and
                ordinal features; for others the categories that are allowed. Who is outside enters the range on the
                way, and does not leave it again.
            stay_within: By feature where it must stay, from the start to the end, likewise. Who is outside at the start
                has a status that says so.
            max_changes: How many features may change.
            feature_costs: By feature what changing it costs; 1 for those that are not named.
            rules: What every row of every path keeps to, beside the rules of the schema: "rent <= income", or
                'education == "Doctorate" => age >= 27'; `counterpath.data.rules` has the whole language.
            causes: Which features follow from which, instead of the schema's: pairs (cause, effect), a graph of
                networkx, or texts "education -> income" and "income = 2 * hours"; `counterpath.data.causes` has more.
                A change of a cause then brings its effects, the answer says which changes follow, and these cost
                nothing.
            constraints: Constraints of each row's own, beside those of all: a table with one line a row, whose columns
                are called age.lock, income.low, target_class …; `counterpath.data.row_constraints` lists them.
            plans: How many different counterfactuals to find for every row.
            plausibility: How far from the training rows a counterfactual of `geodesic` may be: as far as this share of
                real rows is, or as the row itself is, if that is farther. Only if nothing is found so near, it is
                farther away.
            closeness: What `geodesic` makes as small as it can: "l1", the sum of all changes, weighted by
                `feature_costs`; "l2", the sum of their squares; or "l0", the number of features that change.
            robust: Which share of the models that may follow must give the wanted outcome, too, for instance 0.9; see
                `fit_family`. Where nothing that lasts is found, the status is "fragile" and says which share does.
            noise: For which share of small deviations an answer must stay valid: those who follow it miss every number
                that changes by up to two steps.

        Raises:
            InputError: The table or a constraint cannot be used; the message names the column, and what is wrong.
        """
        own = () if constraints is None else self.row_constraints(table, constraints)
        request = Request(
            target_class=target_class,
            confidence=confidence,
            target_range=target_range,
            method=method,
            paths=paths,
            plans=plans,
            lock=lock,
            unlock=unlock,
            directions=directions or {},
            ranges=ranges or {},
            stay_within=stay_within or {},
            max_changes=max_changes,
            feature_costs=feature_costs or {},
            rules=rules,
            causes=causes,
            row_constraints=own,
            time_limit=time_limit,
            plausibility=plausibility,
            closeness=closeness,
            robust=robust,
            noise=noise,
        )
        return self.solve(table, request, should_stop=should_stop)

    def solve(self, table: Any, request: Request, *, should_stop: ShouldStop | None = None) -> Explanation:
        """As `explain`, for a request that has been built already: what every other caller uses.

        Args:
            table: Rows with the columns of the training table.
            request: What is asked about them.
            should_stop: As in `explain`.

        Raises:
            InputError: The table or a constraint cannot be used; the message names the column, and what is wrong.
        """
        started = time.monotonic()
        solver = self.solver(request, should_stop)
        models, schema, thresholds = solver.models, self.schema_, solver.thresholds
        with no_collection():  # a list for every row
            frame, imputed = self.prepare(table)
        request.check_rows(schema, models.explained, frame.index)
        known, unknown = models.encoder.unknown(frame)
        index = torch.from_numpy(np.flatnonzero(known)).to(models.rows.device)
        found = solver.solve(frame[known], index)
        described = self._recorded(solver)
        known_of = (thresholds, *self._diagnosed)
        result = assemble(models, frame, imputed, unknown, found, request, described, *known_of, started)
        answer: Explanation = in_library_of(table, result)
        return answer

    def recorded(self, request: Request) -> dict[str, Any]:
        """A request as it is kept with its answer: see `record`.

        Raises:
            InputError: A constraint cannot be used; the message names it.
        """
        return self._recorded(self.solver(request))

    def _recorded(self, solver: Solver) -> dict[str, Any]:
        index, numbers = solver.target_index, solver.models.explained.numbers
        wanted = OTHER if index is None or numbers else self.classes_[index]
        asked = replace(solver.request, target_class=wanted)
        return record(asked, solver.constraints, solver.method, self._settings())

    def solver(self, request: Request, should_stop: ShouldStop | None = None) -> Solver:
        """What solves a request, with the settings of this explainer; its constraints are checked here.

        Raises:
            InputError: A constraint cannot be used; the message names it.
        """
        if request.robust is not None and self._models().family is None and self._models().explained.kind == "own":
            self.fit_family()
        models, constraints = self._models(), request.constraints(self.schema_)
        if constraints.rules:
            own = RuleSet.of(models.encoder, parse_rules(self.schema_, constraints.rules))
            check_shares(own.broken_shares(models.rows))
        method = resolve_method(self.method if request.method is None else request.method)
        options = replace(
            self._options(request.time_limit, should_stop),
            plausibility=request.plausibility,
            closeness=request.closeness,
            stability=models.stability(request.robust, request.noise),
            ends_only=request.paths == END,
        )
        return Solver(models, request, method, options, constraints, self._thresholds())

    def row_constraints(self, table: Any, constraints: Any) -> tuple[Row, ...]:
        """What a table of constraints says about each of some rows; see `counterpath.data.row_constraints`."""
        return parse_row_constraints(self.schema_, constraints, to_pandas(table).index)

    def prepare(self, table: Any) -> tuple[pd.DataFrame, list[list[str]]]:
        """The rows as a pandas frame without label, and which columns of each were filled in."""
        frame = to_pandas(table)
        if self.target_ is not None and self.target_ in frame.columns and self.target_ not in self.schema_.names:
            frame = frame.drop(columns=self.target_)
        frame = self.encoder_.in_own_types(without_ignored(frame, self.schema_))
        if self.imputer_ is None:
            return frame, [[] for _ in range(len(frame))]
        filled, names = self.imputer_.fill(frame)
        return filled, [list(columns) for columns in names]

    def shared_plans(
        self,
        rows: Any,
        k: int = 3,
        *,
        by: By | None = None,
        most_changes: int = 5,
        unserved: float | None = None,
        **asked: Any,
    ) -> SharedPlans:
        """Find the few plans that give most people the wanted outcome at the least total cost.

        A plan is a set of feature changes: to a value, by an amount, up to at least a value, or down to at most one.
        Each person takes the plan that is cheapest for them, and only as much of it as they need; what each of them
        becomes is feasible, lawful, legal and plausible, as every counterfactual is. Candidates come from the people's
        own plans and from single features. The plans are chosen one after the other, which is worth at least 63 % of
        the best choice from the same candidates; `SharedPlans.curve` says how much it is for certain.

        Args:
            rows: A table as of `explain`; or an explanation, whose rows, request and plans are taken.
            k: How many plans.
            by: Groups to compare the plans over, as in `Explanation.summary`.
            most_changes: How many features a plan may change.
            unserved: What leaving somebody without a plan counts, as a cost; by default twice the dearest plan.
            **asked: What is asked for: any other argument of `explain`.

        Raises:
            InputError: The table, a constraint or a number cannot be used; the message says why.
        """
        check_k(k)
        check_k(most_changes, "most_changes")
        own = (rows.plan(1) if rows.plans > 1 else rows).pandas if isinstance(rows, Explanation) else None
        recorded = None if own is None else recorded_request(own, None, self._settings())[1]
        request = request_of(own, asked, recorded)
        solver = self.solver(request)
        frame, _ = self.prepare(rows if own is None else own.factuals)
        request.check_rows(self.schema_, solver.models.explained, frame.index)
        described = record(request, solver.constraints, solver.method, self._settings())
        options: dict[str, Any] = {"k": k, "by": by, "most_changes": most_changes, "unserved": unserved}
        return find_shared_plans(solver, frame, own, described, seed=self.seed, **options)

    def audit(
        self,
        rows: Any,
        by: GroupBy | Sequence[GroupBy] = (),
        *,
        find: bool | Sequence[str] = True,
        permutations: int = PERMUTATIONS,
        resamples: int = RESAMPLES,
        **asked: Any,
    ) -> Audit:
        """Ask whether the way to the wanted outcome is equally long for everyone.

        Groups are compared by who has a counterfactual, what it costs, how many features change, how plausible and
        robust it is, and how long the path is: with intervals, tests, a correction for how many comparisons there are,
        and a comparison of pairs that are alike in all other features. `counterpath.explanation.audit` says how.

        Args:
            rows: A table as of `explain`; or an explanation of some.
            by: Groups that are given: a column, a list of columns, each compared by itself, or in the list a tuple of
                columns that are crossed, or a series with one value a row.
            find: Whether to look for groups as well, by a shallow tree over what people cannot change; or over which
                features.
            permutations: How often the labels of groups are exchanged by a test.
            resamples: How often groups are resampled for an interval.
            **asked: What is asked for: any other argument of `explain`.

        Raises:
            InputError: There are no rows or no groups, or the table or a constraint cannot be used.
        """
        started = time.monotonic()
        if isinstance(rows, Explanation):
            if asked:
                raise InputError(
                    f"an explanation was given, whose request says all that is asked; leave out {', '.join(asked)}"
                )
            result = rows.pandas
        else:
            result = self.explain(rows, **asked).pandas
        if not len(result):
            raise InputError(
                "there is nobody to audit: the table has no rows; is the class by which it was filtered right?"
            )
        first = result.plan(1) if result.plans > 1 else result
        groups: list[GroupBy] = [by] if isinstance(by, str | pd.Series) else list(by)
        looked = self._looked_in(find)
        if not groups and not looked:
            raise InputError("there are no groups to compare; give some, by=['sex'], or let them be found, find=True")
        return audit(
            first.factuals,
            burdens(first),
            groups,
            self.schema_,
            find=looked,
            amounts=self._amounts(first),
            permutations=permutations,
            resamples=resamples,
            seed=self.seed,
            request=first.request,
            provenance=provenance(started),
        )

    def _looked_in(self, find: bool | Sequence[str]) -> list[str]:
        """The features in which groups are looked for: by default what people cannot change."""
        if not isinstance(find, bool):
            return [choose("feature", name, dict.fromkeys(self.schema_.names, name)) for name in find]
        fixed = {*self.schema_.immutable, *self.schema_.not_actionable}
        return [name for name in self.schema_.names if name in fixed] if find else []

    def _amounts(self, result: Explanation) -> pd.DataFrame:
        """By feature what its change costs everybody, as of `l1`."""
        encoder = self.encoder_
        names = list(self.schema_.names)
        amounts = np.zeros((len(result), len(names)))
        known = encoder.known(result.factuals[names]).to_numpy()
        pair = [encoder.encode(table[known][names]).double() for table in (result.factuals, result.counterfactuals)]
        weighted = (pair[1] - pair[0]).abs() * encoder.weights.double().square()
        amounts[known] = torch.stack([weighted[:, columns].sum(1) for columns in encoder.layout], 1).numpy()
        return pd.DataFrame(amounts, index=result.factuals.index, columns=names)

    def repeat(self, asked: Explanation | Mapping[str, Any], table: Any = None) -> Explanation:
        """Ask for the same again.

        Args:
            asked: An explanation, or the `request` of one.
            table: The rows to ask about; by default those of the explanation.

        Raises:
            InputError: The request was made with other settings of the explainer; the message names them.
        """
        rows, request, plan = recorded_request(asked, table, self._settings())
        result = self.solve(rows, request)
        result = result if plan is None else result.plan(plan)
        return asked._library.convert(result) if table is None and isinstance(asked, NativeExplanation) else result

    def lasting_confidence(self, robust: float, target_class: Any = None) -> float:
        """The confidence from which on answers mostly last: `explain(confidence=…)` is the simpler cure.

        Of the training rows that the model puts into a class, it is the probability that best tells those that are
        accepted by as many models of the family as `robust` asks from those that are not. It promises nothing for a
        single row.

        Args:
            robust: Which share of the models that may follow is to give the wanted outcome.
            target_class: The wanted class; by default the last one.

        Raises:
            InputError: This is a regressor, or the family is too small.
        """
        if self._models().family is None and self._models().explained.kind == "own":
            self.fit_family()
        models = self._models()
        if models.explained.numbers:
            raise InputError(f"{models.explained.name} is a regressor, which has no confidence; narrow target_range")
        stability = models.stability(robust, None)
        assert stability is not None
        stability = replace(stability, chosen=False)  # so that all models are asked about the training rows
        index = len(self.classes_) - 1 if target_class is None else models.explained.class_index(target_class)
        target = Target(index, confidence=None, thresholds=self._thresholds())
        reached = target.is_reached(models.probabilities)
        lasts = stability.among(models.rows, reached, target)[reached]
        advantage = target.advantage(models.probabilities[reached])
        return float(typical_level(advantage, lasts, target.enough(advantage)).sigmoid())

    def recheck(self, result: Explanation, *, model: Any = None) -> Any:
        """Which given answers still hold for another model, and by how much the others fail it.

        Args:
            result: What `explain` returned, perhaps long ago and from another explainer.
            model: The new model: anything that `fit` takes as a model, or an explainer that explains it. By default the
                model of this explainer.

        Returns:
            One line for each row of the result: `answer` ("holds", "expired" or "no answer"), the probability of the
            wanted outcome `then` and `now`, what is `decided` now, and what it `lacks`: how much probability is missing
            to what was asked for, or how far a number is from where it must lie.

        Raises:
            InputError: The model cannot be asked, or has other classes.
        """
        plain = result.pandas
        own = plain.request.get("row_constraints")
        each = None if not own else [own[person] for person in plain._person]
        answers = plain.counterfactuals[list(plain.schema.names)]
        known = plain.status["status"].tolist(), plain.outcome, plain.request, each
        found = recheck_rows(self._models(), self._thresholds(), answers, *known, model)
        return in_library_of(result.counterfactuals, found)

    def predict_proba(self, table: Any) -> Any:
        """The probabilities that the explained model gives, one column a class, on the original columns.

        A row with a category that was never seen in training has NaN, and a warning says so.

        Raises:
            InputError: The explained model is a regressor, which has none.
        """
        if self._models().explained.numbers:
            raise InputError(f"{self._models().explained.name} is a regressor: it has no probabilities; use predict")
        return in_library_of(table, self._predicted(table))

    def predict(self, table: Any) -> Any:
        """The class that the explained model decides for every row, by its `threshold`; NA where nothing is known.

        Of a regressor, the number that it predicts.
        """
        return in_library_of(table, self.decide(self._predicted(table)))

    def _predicted(self, table: Any) -> pd.DataFrame:
        """What the model says about rows, with a warning where it cannot."""
        probabilities = self.probabilities(table)
        unknown = probabilities.isna().any(axis=1).to_numpy()
        if unknown.any():
            why = self.encoder_.unknown(self.prepare(table)[0][unknown].head(1))[1][0]
            many = f"{unknown.sum()} of {len(unknown)} rows have a category that was never seen in training"
            warnings.warn(f"{many}, and are not predicted {why}", CounterpathWarning, stacklevel=3)
        return probabilities

    def probabilities(self, table: Any) -> pd.DataFrame:
        """As `predict_proba`, without a warning, and in a table of pandas; of a regressor one column, its numbers."""
        models = self._models()
        frame, _ = self.prepare(table)
        known = models.encoder.known(frame).to_numpy()
        x = models.encoder.encode(frame[known]).to(models.rows.device)
        names = [self.target_ or "prediction"] if models.explained.numbers else list(self.classes_)
        probabilities = np.full((len(frame), len(names)), np.nan)
        probabilities[known] = models.explained.predict_proba_table(frame[known], x).double().cpu().numpy()
        return pd.DataFrame(probabilities, index=frame.index, columns=names)

    def decide(self, probabilities: pd.DataFrame) -> pd.Series:
        """The class of every row, given what `predict_proba` says; NA for a row of NaN."""
        if self._models().explained.numbers:
            return probabilities.iloc[:, 0].rename(self.target_)
        best = decide(torch.tensor(probabilities.to_numpy()), self._thresholds()).tolist()
        known = probabilities.notna().all(axis=1).tolist()
        labels = [self.classes_[index] if there else pd.NA for index, there in zip(best, known, strict=True)]
        dtype = None if all(known) else object
        return pd.Series(labels, index=probabilities.index, name=self.target_, dtype=dtype)

    def can_search(self, method: str | Method) -> bool:
        """Whether `explain` can be asked for a method: the models that it needs are there, and its copies allowed."""
        found = resolve_method(method)
        needed = all(getattr(self._models(), need, None) is not None for need in found.needs)
        return needed and (self.allow_copies or not found.returns_training_rows)

    def diagnostics(self) -> Diagnostics:
        """Whether the generative model is good enough here: print it, or look at its tables."""
        self._models()
        return self.diagnostics_

    def save(self, folder: str | Path) -> Path:
        """Write everything that was fitted into a model directory, atomically.

        It holds the training rows (encoded), because distances to the data need them. A model, generator or
        method of the user's own is not stored but named, and asked for by `load`.
        """
        config, tensors = pack(self._models())
        config |= {
            "parameters": parameters_to_json(self.get_params(deep=False)),
            "imputer": None if self.imputer_ is None else self.imputer_.to_json(),
            "target": self.target_,
            "diagnostics": self.diagnostics_.to_json(),
        }
        return persistence.save(Path(folder), config, tensors)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        model: Any = None,
        generator: Autoencoder | None = None,
        method: Method | None = None,
        device: str = "auto",
    ) -> "Explainer":
        """Read a model directory; every file is verified, and nothing is ever unpickled.

        Args:
            folder: What `save` wrote.
            model: The explained model, if it is not our own.
            generator: The generator, if it is not our own.
            method: The method, if it is not one of ours.
            device: Where to compute.
        """
        config, tensors = persistence.load(Path(folder))
        with fitting_together():
            explainer = cls(**parameters_from_json(config["parameters"], device, method))
            imputer = None if config["imputer"] is None else Imputer.from_json(config["imputer"])
            diagnostics, target = Diagnostics.from_json(config["diagnostics"]), config["target"]
        models = unpack(
            config,
            tensors,
            model=model,
            generator=generator,
            method=resolve_method(explainer.method),
            options=explainer._options(),
            device=resolve_device(device),
        )
        return explainer._fitted(models, imputer, target, diagnostics, warn=False)

    def _fitted(
        self, models: FittedModels, imputer: Imputer | None, target: str | None, diagnostics: Diagnostics, *, warn: bool
    ) -> "Explainer":
        self.models_ = models
        self.imputer_ = imputer
        self.target_ = target
        self.diagnostics_ = diagnostics
        self._diagnosed = str(diagnostics), diagnostics.summary()  # the same in every explanation
        self.encoder_: Encoder = models.encoder
        self.schema_: Schema = models.encoder.schema
        self.classes_: Labels = models.explained.classes
        self._thresholds()
        self.representation_: str = getattr(models.explained.classifier, "layer", "its last hidden layer")
        if warn and diagnostics.alarm:
            warnings.warn(f"{diagnostics.alarm} See explainer.diagnostics().", CounterpathWarning, stacklevel=3)
        return self

    def _models(self) -> FittedModels:
        if not hasattr(self, "models_"):
            raise NotFittedError("this Explainer has not been fitted: call fit(table, target='column') first")
        models: FittedModels = self.models_
        return models

    def _thresholds(self) -> Thresholds | None:
        """How the explained model decides: see `decide`."""
        return parse_threshold(self.threshold, self._models().explained.classes)

    def _options(self, time_limit: float | None = None, should_stop: ShouldStop | None = None) -> SearchOptions:
        names = (*SEARCH_SETTINGS, "ambient_metric", "uncertainty_cost")
        settings = {name: getattr(self, name) for name in names}
        return SearchOptions(**settings, should_stop=stop_after(time_limit, should_stop), progress=self.progress)

    def _settings(self) -> dict[str, Any]:
        """What an answer depends on beside the request."""
        own = {name: getattr(self, name) for name in (*SEARCH_SETTINGS, "seed", "ambient_metric", "uncertainty_cost")}
        thresholds = self._thresholds()
        decided = None if thresholds is None else dict(zip(map(str, self.classes_), thresholds, strict=True))
        model = {"model": self._models().explained.name, "threshold": decided}
        return {**own, **model, "representation_layer": self.representation_}

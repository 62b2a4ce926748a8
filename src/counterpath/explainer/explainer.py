"""The Explainer: fit it to a table and a model, ask it about people, keep it in a directory."""

import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator

from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder
from counterpath.data.impute import Imputer
from counterpath.data.schema import Number, Schema
from counterpath.explainer.assemble import assemble
from counterpath.explainer.request import WALK, asked_again, record
from counterpath.explainer.solve import NEAREST, OTHER, Request, answer
from counterpath.explanation import Explanation
from counterpath.explanation.milestones import ALL, KEEP
from counterpath.fitting import persistence
from counterpath.fitting.diagnostics import Diagnostics, diagnose
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.persistence import fitting_together, pack, parameters_of, plain_parameters, unpack
from counterpath.fitting.prepare import Target, prepared, training, unknown_categories
from counterpath.fitting.train import FitConfig, Sizes, labels_for, learn
from counterpath.models.explained import Labels, labels_of
from counterpath.models.generator import Autoencoder
from counterpath.models.training import Run
from counterpath.search.method import AMBIENTS, METHODS
from counterpath.search.problem import SearchOptions
from counterpath.utils.deadline import ShouldStop, stop_after
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import CounterpathWarning, InputError, NotFittedError, choose


class Explainer(BaseEstimator):  # type: ignore[misc]
    """Counterfactual explanations of a model's decisions on a table.

    Args:
        method: How to search, a key of `METHODS` or "nearest"; `explain` can be asked for another one.
        latent_dim: Width of the latent space, or "auto".
        hidden: Widths of the generative model's hidden layers.
        n_centers: RBF centres of its uncertainty, or "auto".
        epochs: Passes over the table when it is trained, or "auto".
        numeric_output: How it decodes numbers: "sigmoid" stays within the training range, "linear" does not.
        class_weight: None, "balanced" or a mapping, for the classifier that is trained when no model is given.
        representation_layer: Name of the layer of a torch model that `rsgd-c` and `ambient` take as its
            representation; by default the input of the last linear layer.
        missing: "error" refuses missing values, "impute" fills them in and says so for every row.
        max_steps: The most steps of a search.
        step_size: Length of a step in the latent space.
        damping: Added to the diagonal of the metric.
        sparsify: Put back every change that a counterfactual does not need, as long as it stays valid and plausible.
        keep_residual: Start paths at the person: what the generative model does not reproduce of them is carried along.
        fallback: Lead rows for which the local search finds nothing to the nearest place that the model accepts.
        refine: Let a `geodesic` end as close to the person as it can, and relax its path.
        allow_copies: Whether a counterfactual may be equal to a training row; False for privacy.
        tf32: Round the factors of products to TF32 while searching on a GPU; what is returned is judged exactly.
        ambient_metric: What `geodesic` measures steps by: "data", rows as they are, or "classifier", rows as the
            classifier represents them.
        uncertainty_cost: Whether `geodesic` lets steps cost more where the generative model is uncertain.
        fidelity: How much staying close to the person weighs in the search.
        seed: Of all randomness.
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: Show progress bars; by default where standard error is a terminal.

    Example:
        >>> import counterpath as cp
        >>> data = cp.datasets.load("adult")
        >>> explainer = cp.Explainer(seed=0).fit(data.train, target=data.target, schema=data.schema)  # doctest: +SKIP
        >>> explainer.explain(data.test.head(20), target_class=1).changes  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        method: str = "geodesic",
        latent_dim: int | str = "auto",
        hidden: tuple[int, ...] = (512, 256),
        n_centers: int | str = "auto",
        epochs: int | str = "auto",
        numeric_output: str = "sigmoid",
        class_weight: str | Mapping[Any, float] | None = None,
        representation_layer: str | None = None,
        missing: str = "error",
        max_steps: int = 150,
        step_size: float = 0.1,
        damping: float = 5e-3,
        sparsify: bool = True,
        keep_residual: bool = True,
        fallback: bool = True,
        refine: bool = True,
        allow_copies: bool = True,
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
        self.n_centers = n_centers
        self.epochs = epochs
        self.numeric_output = numeric_output
        self.class_weight = class_weight
        self.representation_layer = representation_layer
        self.missing = missing
        self.max_steps = max_steps
        self.step_size = step_size
        self.damping = damping
        self.sparsify = sparsify
        self.keep_residual = keep_residual
        self.fallback = fallback
        self.refine = refine
        self.allow_copies = allow_copies
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
        target: Target = None,
        *,
        schema: Schema | None = None,
        encoder: Encoder | None = None,
        model: Any = None,
        generator: Autoencoder | None = None,
        checkpoint: str | Path | None = None,
    ) -> "Explainer":
        """Learn from training rows all that explanations need.

        Args:
            table: A table of pandas, polars or Arrow, one row a person; with or without the label.
            target: The column of the label, or the labels. Without a `model` they are what the classifier learns.
            schema: What the columns are; by default `Schema.infer` looks.
            encoder: A fitted encoder, schema included, if a torch model or generator was trained on its rows.
            model: The model under explanation: a torch module on encoded rows, an object with `predict_proba` on a
                DataFrame, or a function from a DataFrame to probabilities. Without one a classifier is trained.
            generator: A torch module with `encode` and `decode` on encoded rows, instead of our VAE.
            checkpoint: A folder from which a fit that was cut off goes on.

        Raises:
            InputError: The table, the labels or the model cannot be used; the message says why.
        """
        choose("method", self.method, {**METHODS, NEAREST: None})
        choose("ambient_metric", self.ambient_metric, AMBIENTS)
        device = resolve_device(self.device)
        sizes = Sizes(self.latent_dim, tuple(self.hidden), self.n_centers, self.epochs, self.numeric_output)
        run = Run(seed=self.seed, checkpoint=None if checkpoint is None else Path(checkpoint), progress=self.progress)
        given = training(table, target, schema, encoder, missing=self.missing)
        rows = given.encoder.encode(given.features).to(device)
        known = None if given.labels is None else labels_of(given.labels)
        lessons = FitConfig(
            model,
            generator,
            self.method,
            self.class_weight,
            self.representation_layer,
            sizes,
            run,
            self.ambient_metric,
            self.uncertainty_cost,
        )
        learned = learn(lessons, given.encoder, rows, known)
        diagnosed = diagnose(learned, labels=labels_for(learned, known), seed=self.seed)
        return self._fitted(learned, given.imputer, given.target, diagnosed, warn=True)

    def explain(
        self,
        table: Any,
        target_class: Any = OTHER,
        *,
        confidence: float = 0.5,
        method: str | None = None,
        time_limit: float | int | None = None,
        should_stop: ShouldStop | None = None,
        paths: str = ALL,
        lock: Iterable[str] = (),
        directions: Mapping[str, str] | None = None,
        ranges: Mapping[str, Any] | None = None,
        max_changes: int | None = None,
        feature_costs: Mapping[str, Number] | None = None,
        plans: int = 1,
    ) -> Explanation:
        """Find for every row what would have to change, and the way there.

        Args:
            table: Rows with the columns of the training table; its label may be there and is not looked at.
            target_class: The wanted class, by its label; or "other", any class but the present one.
            confidence: What the model's probability of the wanted outcome must reach, on the row as it is returned.
            method: How to search; by default the explainer's own.
            time_limit: How long to search at most. Rows that are not done by then have a status that says so.
            should_stop: Called between steps: whether to give up, for instance because nobody waits any more. Rows that
                are not done then have the same status.
            paths: How much of every path to keep: "all" of it, only its "milestones", which tell it in a few steps, or
                nothing but its "end". All else is the same, and the result of many rows is smaller.
            lock: Features that must not change, beside the schema's immutable ones.
            directions: By feature "up" or "down", the only way in which it may change from what it is.
            ranges: By feature where it must stay: (low, high), either of them None for an open end, for numbers and
                ordinal features; for others the categories that are allowed.
            max_changes: How many features may change.
            feature_costs: By feature how hard it is to change; 1 for those that are not named.
            plans: How many different counterfactuals to find for every row.

        Raises:
            InputError: The table or a constraint cannot be used; the message names the column, and the row or the wish.
        """
        started = time.monotonic()
        learned, schema = self._learned(), self.schema_
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"the time budget must be a positive number of seconds; given {time_limit!r}")
        constraints = Constraints.of(
            schema,
            lock=lock,
            directions=directions,
            ranges=ranges,
            max_changes=max_changes,
            feature_costs=feature_costs,
        )
        settings, over = self._settings(), stop_after(time_limit, should_stop)
        walk = SearchOptions(**{name: settings[name] for name in WALK}, over=over, progress=self.progress)
        classes = learned.subject.classes
        place = None if target_class == OTHER and OTHER not in classes else learned.subject.index(target_class)
        request = Request(place, confidence, method or self.method, walk, paths, constraints, plans)
        frame, imputed = prepared(table, schema, self.target_, self.imputer_)
        known, unknown = unknown_categories(learned.encoder, frame)
        places = torch.from_numpy(np.flatnonzero(known)).to(learned.rows.device)
        found = answer(learned, frame[known], places, request)
        wanted = OTHER if place is None else classes[place]
        asked = {
            "target_class": wanted,
            "confidence": confidence,
            "time_limit": time_limit,
            "plans": plans,
            KEEP: paths,
        }
        described = record(settings, constraints, method=request.method, **asked)
        models = str(self.diagnostics_), self.diagnostics_.told()
        return assemble(learned, frame, imputed, unknown, found, request, described, *models, started)

    def repeat(self, asked: Explanation | Mapping[str, Any], table: Any = None) -> Explanation:
        """Ask for the same again.

        Args:
            asked: An explanation, or the `request` of one.
            table: The rows to ask about; by default those of the explanation.

        Raises:
            InputError: The request was made with other settings of the explainer; the message names them.
        """
        rows, again, plan = asked_again(asked, table, self._settings())
        result = self.explain(rows, **again)
        return result if plan is None else result.plan(plan)

    def predict_proba(self, table: Any) -> pd.DataFrame:
        """The probabilities that the model under explanation gives, one column a class, on the original columns."""
        learned = self._learned()
        frame, _ = prepared(table, self.schema_, self.target_, self.imputer_)
        x = learned.encoder.encode(frame).to(learned.rows.device)
        answers = learned.subject.about(frame, x).double().cpu().numpy()
        return pd.DataFrame(answers, index=frame.index, columns=list(learned.subject.classes))

    def predict(self, table: Any) -> pd.Series:
        """The class that the model under explanation predicts for every row."""
        answers = self.predict_proba(table)
        places = answers.to_numpy().argmax(1) if len(answers) else np.zeros(0, dtype=np.int64)
        labels = [self.classes_[place] for place in places]
        return pd.Series(labels, index=answers.index, name=self.target_)

    def diagnostics(self) -> Diagnostics:
        """Whether the generative model is good enough here: print it, or look at its tables."""
        self._learned()
        return self.diagnostics_

    def save(self, folder: str | Path) -> Path:
        """Write everything that was learned into a model directory, atomically.

        It holds the training rows (encoded), because distances to the data need them. A user's own model or generator
        is not stored but named, and asked for by `load`.
        """
        config, tensors = pack(self._learned())
        config |= {
            "parameters": plain_parameters(self.get_params(deep=False)),
            "imputer": None if self.imputer_ is None else self.imputer_.to_json(),
            "target": self.target_,
            "diagnostics": self.diagnostics_.to_json(),
        }
        return persistence.save(Path(folder), config, tensors)

    @classmethod
    def load(
        cls, folder: str | Path, *, model: Any = None, generator: Autoencoder | None = None, device: str = "auto"
    ) -> "Explainer":
        """Read a model directory; every file is verified, and nothing is ever unpickled.

        Args:
            folder: What `save` wrote.
            model: The model under explanation, if it is not our own.
            generator: The generator, if it is not our own.
            device: Where to compute.
        """
        config, tensors = persistence.load(Path(folder))
        with fitting_together():
            explainer = cls(**parameters_of(config["parameters"], device))
            imputer = None if config["imputer"] is None else Imputer.from_json(config["imputer"])
            diagnostics, target = Diagnostics.from_json(config["diagnostics"]), config["target"]
        learned = unpack(config, tensors, model=model, generator=generator, device=resolve_device(device))
        return explainer._fitted(learned, imputer, target, diagnostics, warn=False)

    def _fitted(
        self,
        learned: FittedModels,
        imputer: Imputer | None,
        target: str | None,
        diagnostics: Diagnostics,
        *,
        warn: bool,
    ) -> "Explainer":
        self.models_ = learned
        self.imputer_ = imputer
        self.target_ = target
        self.diagnostics_ = diagnostics
        self.encoder_: Encoder = learned.encoder
        self.schema_: Schema = learned.encoder.schema
        self.classes_: Labels = learned.subject.classes
        self.representation_: str = getattr(learned.subject.classifier, "layer", "its last hidden layer")
        if warn and diagnostics.alarm:
            warnings.warn(f"{diagnostics.alarm} See explainer.diagnostics().", CounterpathWarning, stacklevel=3)
        return self

    def _learned(self) -> FittedModels:
        if not hasattr(self, "models_"):
            raise NotFittedError("this Explainer has not been fitted: call fit(table, target='column') first")
        learned: FittedModels = self.models_
        return learned

    def _settings(self) -> dict[str, Any]:
        """What an answer depends on beside the request."""
        own = {name: getattr(self, name) for name in (*WALK, "seed", "ambient_metric", "uncertainty_cost")}
        return {**own, "model": self._learned().subject.name, "representation_layer": self.representation_}

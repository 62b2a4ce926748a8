"""DiCE's call signatures.

In a script that has `import dice_ml`, write

    from counterpath.explainer.adapters import dice_ml

and the rest stays: `Data`, `Model`, `Dice`, `generate_counterfactuals`, `cf_examples_list[i].final_cfs_df` and
`visualize_as_dataframe`. `Dice` fits an `Explainer`, which takes longer than DiCE's constructor; its answers are those
of `Explainer.explain`, and are there as `result`.

References:
    Mothilal, Sharma, Tan: Explaining Machine Learning Classifiers through Diverse Counterfactual Explanations, 2020;
    https://interpret.ml/DiCE.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.schema import Number, Schema
from counterpath.explainer.adapters import warn_unused
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.search.methods import method_names
from counterpath.utils.errors import InputError, choose

_ITS_METHODS = ("random", "genetic", "kdtree", "gradient")
"""How DiCE searches; any of them is our own method here."""
_TUNING = frozenset(
    {
        *("stopping_threshold_weight", "posthoc_sparsity_param", "posthoc_sparsity_algorithm", "verbose"),
        *("sample_size", "random_seed", "proximity_weight", "sparsity_weight", "diversity_weight"),
        *("categorical_penalty", "algorithm", "maxiterations", "thresh", "initialization", "yloss_type"),
        *("diversity_loss_type", "feature_weights", "optimizer", "learning_rate", "min_iter", "max_iter"),
        *("project_iter", "loss_diff_thres", "loss_converge_maxiter", "init_near_query_instance", "tie_random"),
        *("limit_steps_ls",),
    }
)
_SCHEMA_VERSION = "2.0"
"""Of DiCE's JSON."""


class Data:
    """The training table, as of `dice_ml.Data`.

    Args:
        dataframe: The table, label included.
        continuous_features: The columns that are numbers; all others are categories.
        outcome_name: The column of the label.
        permitted_range: By feature where counterfactuals may end: (low, high), or the categories.
        continuous_features_precision: By feature how many decimals it has.
        data_name: Not looked at.
    """

    def __init__(
        self,
        *,
        dataframe: pd.DataFrame | None = None,
        continuous_features: Sequence[str] | None = None,
        outcome_name: str | None = None,
        permitted_range: Mapping[str, Any] | None = None,
        continuous_features_precision: Mapping[str, int] | None = None,
        data_name: str | None = None,
        **private: Any,
    ) -> None:
        if dataframe is None:
            raise InputError(
                f"Data has no dataframe ({', '.join(private) or 'nothing'} given): metadata alone, DiCE's private "
                "data, is not enough to learn what rows look like; give the training table, Data(dataframe=…)"
            )
        if private:
            raise InputError(f"Data has unknown arguments: {', '.join(private)}")
        if outcome_name is None or outcome_name not in dataframe.columns:
            raise InputError(f"outcome_name is {outcome_name!r}; expected one of: {', '.join(dataframe.columns)}")
        features = [name for name in dataframe.columns if name != outcome_name]
        numbers = list(continuous_features or ())
        unknown = [name for name in numbers if name not in features]
        if unknown:
            raise InputError(f"continuous_features has {unknown[0]!r}; expected some of: {', '.join(features)}")
        self.data_df = dataframe
        self.outcome_name: str = outcome_name
        self.continuous_feature_names = numbers
        self.categorical_feature_names = [name for name in features if name not in numbers]
        self.feature_names = features
        self.permitted_range = dict(permitted_range or {})
        self.continuous_features_precision = dict(continuous_features_precision or {})
        self.data_name = data_name

    def schema(self) -> Schema:
        """What the features are."""
        overrides: dict[str, dict[str, Any]] = {
            name: {"step": 10.0**-digits} for name, digits in self.continuous_features_precision.items()
        }
        table = self.data_df[self.feature_names]
        found = Schema.infer(table)
        for feature in found:
            if feature.name in self.categorical_feature_names and not feature.categories:
                overrides[feature.name] = {"kind": "categorical"}
        return Schema.infer(table, overrides=overrides) if overrides else found


class Model:
    """The model under explanation, as of `dice_ml.Model`.

    Args:
        model: What has `predict_proba`, or of a regressor `predict`.
        model_path: Not taken: nothing is unpickled here.
        backend: "sklearn"; torch modules are explained by `Explainer` itself.
        model_type: "classifier" or "regressor".
        func: What is done to a table before the model sees it.
        kw_args: Further arguments of `func`.
    """

    def __init__(
        self,
        model: Any = None,
        model_path: str = "",
        backend: Any = "sklearn",
        model_type: str = "classifier",
        func: Callable[..., Any] | None = None,
        kw_args: Mapping[str, Any] | None = None,
    ) -> None:
        if model is None or model_path:
            raise InputError(
                "Model has no model: load it yourself and give it as model=, since nothing is unpickled here"
            )
        if backend != "sklearn" or isinstance(func, str):
            raise InputError(
                f"Model has backend={backend!r} and func={func!r}; expected backend='sklearn' and a function. A torch "
                "module is explained by Explainer().fit(table, target, model=module)"
            )
        self.model = model
        self.model_type = choose("model_type", model_type, {name: name for name in ("classifier", "regressor")})
        self.backend = backend
        self.func, self.kw_args = func, dict(kw_args or {})

    def explained(self) -> Any:
        """The model as `Explainer.fit` takes it."""
        return self.model if self.func is None else _Transformed(self)


class _Transformed:
    """A model behind a function."""

    def __init__(self, behind: Model) -> None:
        self._behind = behind
        self._ask = "predict" if behind.model_type == "regressor" else "predict_proba"
        if hasattr(behind.model, "classes_"):
            self.classes_ = behind.model.classes_

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name != self._ask:  # of a regressor only predict, of a classifier only predict_proba
            raise AttributeError(name)
        return self._predict

    def _predict(self, frame: pd.DataFrame) -> Any:
        behind = self._behind
        assert behind.func is not None
        return getattr(behind.model, self._ask)(behind.func(frame, **behind.kw_args))


@dataclass(eq=False)
class CounterfactualExamples:
    """The counterfactuals of one row.

    Attributes:
        test_instance_df: The row, with what the model decides for it.
        final_cfs_df: Its counterfactuals with what the model decides for them; None if there is none.
        final_cfs_df_sparse: The same: redundant changes are always put back.
        desired_class: What was wanted.
        desired_range: Of a regressor.
        data_interface: The `Data`.
    """

    test_instance_df: pd.DataFrame
    final_cfs_df: pd.DataFrame | None
    desired_class: Any
    desired_range: Any
    data_interface: Data

    @property
    def final_cfs_df_sparse(self) -> pd.DataFrame | None:
        """The counterfactuals without redundant changes, which is how they are."""
        return self.final_cfs_df

    @property
    def new_outcome(self) -> Any:
        """The number of the class that was wanted, or the range."""
        return self.desired_class if self.desired_range is None else self.desired_range

    def changes(self) -> pd.DataFrame | None:
        """The counterfactuals with "-" where nothing changes."""
        if self.final_cfs_df is None:
            return None
        features = self.data_interface.feature_names
        same = self.final_cfs_df[features].eq(self.test_instance_df[features].iloc[0])
        return self.final_cfs_df.astype(object).mask(
            same.reindex(columns=self.final_cfs_df.columns, fill_value=False), "-"
        )

    def visualize_as_dataframe(self, display_sparse_df: bool = True, show_only_changes: bool = False) -> None:
        """Show the row and its counterfactuals, as tables in a notebook and as text elsewhere."""
        label = self.data_interface.outcome_name
        print(f"Query instance (original outcome : {self.test_instance_df[label].iloc[0]})")
        _show(self.test_instance_df)
        shown = self.changes() if show_only_changes else self.final_cfs_df
        if shown is None:
            print("No counterfactuals found!")
            return
        print(f"Counterfactual set (new outcome: {self.new_outcome})")
        _show(shown)

    def visualize_as_list(self, display_sparse_df: bool = True, show_only_changes: bool = False) -> None:
        """Print the row and its counterfactuals as lists."""
        shown = self.changes() if show_only_changes else self.final_cfs_df
        print(self.test_instance_df.iloc[0].tolist())
        for values in [] if shown is None else shown.to_numpy().tolist():
            print(values)


@dataclass(eq=False)
class CounterfactualExplanations:
    """The counterfactuals of some rows.

    Attributes:
        cf_examples_list: Of each row.
        result: The explanation behind it, with status, paths, measures and the rest.
        local_importance: For each row, by feature the share of its counterfactuals that change it; None if not asked.
        summary_importance: The same over all counterfactuals.
    """

    cf_examples_list: list[CounterfactualExamples]
    result: Explanation
    local_importance: list[dict[str, float]] | None = None
    summary_importance: dict[str, float] | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """The version of the JSON."""
        return {"version": _SCHEMA_VERSION}

    def visualize_as_dataframe(self, display_sparse_df: bool = True, show_only_changes: bool = False) -> None:
        """Show every row and its counterfactuals."""
        for each in self.cf_examples_list:
            each.visualize_as_dataframe(display_sparse_df, show_only_changes)

    def visualize_as_list(self, display_sparse_df: bool = True, show_only_changes: bool = False) -> None:
        """Print every row and its counterfactuals as lists."""
        for each in self.cf_examples_list:
            each.visualize_as_list(display_sparse_df, show_only_changes)

    def to_json(self) -> str:
        """The text that `dice_ml.CounterfactualExplanations.from_json` reads."""
        first = self.cf_examples_list[0]
        names = first.data_interface.feature_names
        regressor = first.desired_range is not None
        local, summary = self.local_importance, self.summary_importance
        content = {
            "test_data": [_plain(each.test_instance_df) for each in self.cf_examples_list],
            "cfs_list": [
                None if each.final_cfs_df is None else _plain(each.final_cfs_df) for each in self.cf_examples_list
            ],
            "local_importance": None if local is None else [[each[name] for name in names] for each in local],
            "summary_importance": None if summary is None else [summary[name] for name in names],
            "data_interface": {"outcome_name": first.data_interface.outcome_name, "data_df": "dummy_data"},
            "feature_names": names,
            "feature_names_including_target": list(first.test_instance_df.columns),
            "model_type": "regressor" if regressor else "classifier",
            "desired_class": first.desired_class,
            "desired_range": list(first.desired_range) if regressor else None,
            "metadata": self.metadata,
        }
        return json.dumps(content, default=lambda value: value.item() if isinstance(value, np.generic) else str(value))


class Dice:
    """A fitted explainer, called as `dice_ml.Dice` is.

    Args:
        data_interface: The training table.
        model_interface: The model.
        method: Any of DiCE's methods stands for our default; or the name of one of our own.
        **options: Of `Explainer`.

    Attributes:
        explainer: The `Explainer` behind it.
    """

    def __init__(self, data_interface: Data, model_interface: Model, method: str = "random", **options: Any) -> None:
        known = dict.fromkeys(_ITS_METHODS) | {name: name for name in method_names()}
        own = choose("method", method, known)
        self.data_interface, self.model = data_interface, model_interface
        task = {"classifier": "classification", "regressor": "regression"}[model_interface.model_type]
        settings: dict[str, Any] = (
            {"task": task, "progress": False} | ({} if own is None else {"method": own}) | options
        )
        self.explainer = Explainer(**settings).fit(
            data_interface.data_df,
            target=data_interface.outcome_name,
            schema=data_interface.schema(),
            model=model_interface.explained(),
        )

    def generate_counterfactuals(
        self,
        query_instances: pd.DataFrame,
        total_CFs: int,
        desired_class: Any = "opposite",
        desired_range: Sequence[Number] | None = None,
        permitted_range: Mapping[str, Any] | None = None,
        features_to_vary: str | Sequence[str] = "all",
        stopping_threshold: float = 0.5,
        **tuning: Any,
    ) -> CounterfactualExplanations:
        """Find counterfactuals for some rows.

        Args:
            query_instances: The rows.
            total_CFs: How many counterfactuals to find for each of them.
            desired_class: A class by its number, or "opposite", of two classes the other one.
            desired_range: Of a regressor, where its prediction must lie.
            permitted_range: By feature where counterfactuals end: (low, high), or the categories.
            features_to_vary: "all", or the features that may change.
            stopping_threshold: What the probability of the class must reach, where it is more than 0.5.
            **tuning: What tunes DiCE's own search: it has no counterpart here, and a warning says so.

        Raises:
            InputError: Something cannot be asked for, or nothing was found for any of the rows.
        """
        unknown = [name for name in tuning if name not in _TUNING]
        if unknown:
            raise TypeError(f"generate_counterfactuals() got an unexpected keyword argument {unknown[0]!r}")
        warn_unused(tuning, "DiCE")
        data, names = self.data_interface, self.data_interface.feature_names
        rows = query_instances[names].reset_index(drop=True)
        if not len(rows):
            raise InputError("query_instances is empty; give at least one row")
        asked = self._asked(desired_class, desired_range, stopping_threshold)
        result = self.explainer.explain(
            rows,
            plans=total_CFs,
            lock=[] if features_to_vary == "all" else self._locked(features_to_vary),
            ranges=self.data_interface.permitted_range if permitted_range is None else permitted_range,
            **asked,
        )
        examples = []
        numbers = result._person
        before = self.explainer.predict(rows)
        after = self.explainer.predict(result.counterfactuals)
        found = result.valid.to_numpy()
        for row in range(len(rows)):
            mine = found & (numbers == row)
            kept = result.counterfactuals[mine].assign(**{data.outcome_name: after[mine]}).reset_index(drop=True)
            own = query_instances.iloc[[row]][names].assign(**{data.outcome_name: before.iloc[row]})
            wanted = self._wanted(desired_class, before.iloc[row])
            limits = None if desired_range is None else tuple(desired_range)
            examples.append(CounterfactualExamples(own, kept if len(kept) else None, wanted, limits, data))
        if not any(each.final_cfs_df is not None for each in examples):
            raise InputError(f"No counterfactuals found for any of the query points: {result.status['reason'].iloc[0]}")
        return CounterfactualExplanations(examples, result)

    def local_feature_importance(
        self,
        query_instances: pd.DataFrame,
        cf_examples_list: list[CounterfactualExamples] | None = None,
        total_CFs: int = 10,
        **asked: Any,
    ) -> CounterfactualExplanations:
        """As `generate_counterfactuals`, with `local_importance`."""
        return self._importance(query_instances, cf_examples_list, total_CFs, asked, summary=False)

    def global_feature_importance(
        self,
        query_instances: pd.DataFrame,
        cf_examples_list: list[CounterfactualExamples] | None = None,
        total_CFs: int = 10,
        **asked: Any,
    ) -> CounterfactualExplanations:
        """As `generate_counterfactuals`, with `local_importance` and `summary_importance`."""
        return self._importance(query_instances, cf_examples_list, total_CFs, asked, summary=True)

    def _importance(
        self,
        rows: pd.DataFrame,
        known: list[CounterfactualExamples] | None,
        total: int,
        asked: dict[str, Any],
        *,
        summary: bool,
    ) -> CounterfactualExplanations:
        if known is not None:
            raise InputError("cf_examples_list is not taken: give the rows, query_instances=…, and they are explained")
        found = self.generate_counterfactuals(rows, total, **asked)
        names = self.data_interface.feature_names
        shares = [_shares(each, names) for each in found.cf_examples_list]
        found.local_importance = shares
        if summary:
            weights = [0 if each.final_cfs_df is None else len(each.final_cfs_df) for each in found.cf_examples_list]
            means = {name: float(np.average([each[name] for each in shares], weights=weights)) for name in names}
            found.summary_importance = dict(sorted(means.items(), key=lambda pair: -pair[1]))
        return found

    def _asked(self, wanted: Any, limits: Sequence[Number] | None, threshold: float) -> dict[str, Any]:
        """What is asked for, as arguments of `explain`."""
        if self.model.model_type == "regressor":
            if limits is None or len(limits) != 2 or limits[0] > limits[1]:
                raise InputError(f"desired_range is {limits!r}; of a regressor expected two numbers in ascending order")
            return {"target_range": tuple(limits)}
        if limits is not None:
            raise InputError("desired_range is for regressors, and this is a classifier; give desired_class")
        classes = self.explainer.classes_
        sure = {"confidence": threshold} if threshold > 0.5 else {}  # DiCE's default: what decides between two classes
        if isinstance(wanted, str) and wanted == "opposite":
            if len(classes) > 2:
                raise InputError(
                    f"desired_class is 'opposite' of {len(classes)} classes; give one from 0 to {len(classes) - 1}"
                )
            return sure
        if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 0 <= wanted < len(classes):
            raise InputError(
                f"desired_class is {wanted!r}; expected 'opposite' or a whole number from 0 to {len(classes) - 1}"
            )
        return sure | {"target_class": classes[int(wanted)]}

    def _wanted(self, desired: Any, before: Any) -> Any:
        """The number of the class that was wanted for a row."""
        if self.model.model_type == "regressor" or desired != "opposite":
            return desired
        return 1 - list(self.explainer.classes_).index(before)

    def _locked(self, vary: str | Sequence[str]) -> list[str]:
        names = self.data_interface.feature_names
        given = [vary] if isinstance(vary, str) else list(vary)
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            what = repr(unknown[0]) if unknown else "nothing"
            raise InputError(f"features_to_vary has {what}; expected 'all' or some of: {', '.join(names)}")
        return [name for name in names if name not in given]


def _shares(examples: CounterfactualExamples, names: Sequence[str]) -> dict[str, float]:
    """By feature the share of a row's counterfactuals that change it, most often first."""
    if examples.final_cfs_df is None:
        return dict.fromkeys(names, 0.0)
    changed = examples.final_cfs_df[list(names)].ne(examples.test_instance_df[list(names)].iloc[0]).mean()
    return {str(name): float(share) for name, share in changed.sort_values(ascending=False, kind="stable").items()}


def _plain(frame: pd.DataFrame) -> list[list[Any]]:
    return [list(values) for values in frame.astype(object).to_numpy().tolist()]


def _show(frame: pd.DataFrame) -> None:
    """A table in a notebook; else as text."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ModuleNotFoundError:  # there is no notebook without it
        print(frame.to_string())
        return
    if get_ipython() is None:
        print(frame.to_string())
    else:
        display(frame)  # type: ignore[no-untyped-call]

"""What the columns of a table are: their kind, legal values and names, and whether they may change."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.times import DATE, DURATION, as_days, day_text
from counterpath.utils.errors import InputError, choose
from counterpath.utils.files import write_json

if TYPE_CHECKING:
    from counterpath.data.rules.checks import Suggestion

Number: TypeAlias = int | float


@dataclass(frozen=True)
class Kind:
    """How values of a kind of feature become numbers.

    Attributes:
        whole: Whether only whole numbers are legal. A category's number is its index in `Feature.categories`.
        categories: How many categories a feature of this kind has, at least and at most; None for a kind whose values
            are numbers already.
        values: The categories, where the kind itself says what they are.
        one_hot: Whether each category has an encoded column of its own, because categories have no order.
        times: Whether values are times, whose numbers are days.
    """

    whole: bool
    categories: tuple[int, Number] | None = None
    values: tuple[Any, ...] = ()
    one_hot: bool = False
    times: bool = False


KINDS: dict[str, Kind] = {
    "continuous": Kind(whole=False),
    "integer": Kind(whole=True),
    "binary": Kind(whole=True, categories=(2, 2)),
    "boolean": Kind(whole=True, categories=(2, 2), values=(False, True)),
    "ordinal": Kind(whole=True, categories=(2, math.inf)),
    "categorical": Kind(whole=True, categories=(1, math.inf), one_hot=True),
    DATE: Kind(whole=False, times=True),
    DURATION: Kind(whole=False, times=True),
}
"""The kinds by name. What has two values needs no order, hence one column; a single category is a constant."""


@dataclass(frozen=True)
class Transform:
    """An increasing function t that is applied before scaling, defined for values greater than `above`.

    Both directions are relative to an origin, because t(x) − t(origin) can be had with far more digits than the two
    numbers it is the difference of: log1p of two nearby timestamps agrees in nearly all of them.

    Attributes:
        forward: (x, origin) ↦ t(x) − t(origin). The origin is a number, or a tensor of several.
        inverse: (difference, origin) ↦ x.
        above: What every x must exceed.
    """

    forward: Callable[[Tensor, Number | Tensor], Tensor]
    inverse: Callable[[Tensor, Number | Tensor], Tensor]
    above: float = -math.inf


TRANSFORMS: dict[str, Transform] = {
    "identity": Transform(
        forward=lambda values, origin: values - origin,
        inverse=lambda difference, origin: difference + origin,
    ),
    "log1p": Transform(
        forward=lambda values, origin: torch.log1p((values - origin) / (1 + origin)),
        inverse=lambda difference, origin: torch.expm1(difference) * (1 + origin) + origin,
        above=-1.0,
    ),
}
"""The transforms by name; log1p is defined above −1."""


ANY, OBSERVED = "any", "observed"
"""Which numbers are legal beside bounds and step: all, or those that the training rows have."""
ZERO, OWN = "zero", "own"
"""Where the grid of a step starts: at 0, or at the value that a person has."""
PLACES = 12
"""The most decimal places of a step: a smaller one is below what float64 tells apart in numbers from 1,000."""


@dataclass(frozen=True)
class Feature:
    """One column of a table.

    Attributes:
        name: The column.
        kind: A key of `KINDS`.
        lower: The smallest legal value, in the column's own units; None for the smallest one in the training rows.
        upper: The largest legal value; None for the largest one in the training rows.
        transform: A key of `TRANSFORMS`.
        immutable: Whether a counterfactual must leave it as it is.
        categories: The values of a feature whose kind has categories, in the order of their numbers: a binary feature
            is encoded as 0 for the first one and 1 for the second. A boolean feature need not list them.
        actionable: Whether a person can change it. What is not is locked in every request that does not unlock it.
        step: Legal numbers are multiples of it, for instance 50 euros or half a per cent; None for any number.
        step_from: Where the multiples start: "zero", or "own" for steps up and down from the value that a person has.
        values: Which numbers are legal: "any", "observed" for those of the training rows, or a list of them.
        min_change: A change by less is none: whoever changes the feature changes it by at least as much.
        label: What people call it; its name by default.
        unit: What its numbers count, for instance "hours".
        description: What it means.
        phrase: A change of it in words, with {new} and {old}: "you worked {new} instead of {old} hours a week".
        category_labels: By category, as text, what people call it.
        codes: Numbers that are no measurements, and what each means: {-7: "no inquiry"}. A number with codes is either
            one of them or a number, and nothing lies between.
        missing: Whether it may be missing. A gap is a value of its own then: it stays, or is filled and said to be.
        format: How dates are written that are text, as `strptime` has it: "%Y-%m-%d". Bounds and steps of dates are in
            days, since 1970-01-01; where a schema is read or changed, a text such as "2013-08-14" will do for a bound.

    A person's own value may stay in any case.
    """

    name: str
    kind: str
    lower: Number | None = None
    upper: Number | None = None
    transform: str = "identity"
    immutable: bool = False
    categories: Sequence[Any] = ()
    actionable: bool = True
    step: Number | None = None
    step_from: str = ZERO
    values: str | Sequence[Number] = ANY
    min_change: Number = 0
    label: str = ""
    unit: str = ""
    description: str = ""
    phrase: str = ""
    category_labels: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[Number, str] = field(default_factory=dict)
    missing: bool = False
    format: str = ""

    def __post_init__(self) -> None:
        kind = choose(f"kind of feature {self.name!r}:", self.kind, KINDS)
        transform = choose(f"transform of feature {self.name!r}:", self.transform, TRANSFORMS)
        # NumPy's scalars have no JSON form, and a schema is often written from `frame[column].unique()`.
        plain = tuple(value.item() if isinstance(value, np.generic) else value for value in self.categories)
        object.__setattr__(self, "categories", plain or kind.values)
        if not isinstance(self.values, str):
            object.__setattr__(self, "values", tuple(sorted({float(value) for value in self.values})))
        object.__setattr__(self, "category_labels", {str(key): text for key, text in self.category_labels.items()})
        object.__setattr__(self, "codes", self._parse_codes(kind))
        if self.format and self.kind != DATE:
            raise InputError(f"{self._named} has the format {self.format!r}, which is for dates that are text")
        if kind.categories is None:
            self._check_number(kind, transform)
            self._check_step(kind)
        else:
            self._check_categories(kind, *kind.categories)
        unknown = self.category_labels.keys() - {str(category) for category in self.categories}
        if unknown:
            raise InputError(f"{self._named} has a label for {sorted(unknown)[0]!r}, which is no category of it")

    def _parse_codes(self, kind: Kind) -> dict[Number, str]:
        """The codes in order, as numbers; JSON has them as text."""
        parsed: dict[Number, str] = {}
        for given, label in self.codes.items():
            try:
                code = float(given)
            except (TypeError, ValueError):
                code = math.nan
            if not math.isfinite(code) or not isinstance(label, str):
                raise InputError(
                    f"{self._named} has the code {given!r}: {label!r}; expected a number and what it means, such as "
                    "{-7: 'no inquiry'}"
                )
            if code in parsed:
                raise InputError(f"{self._named} has the code {given!r} twice; each has one meaning")
            if self.lower is not None and self.upper is not None and self.lower <= code <= self.upper:
                raise InputError(
                    f"{self._named} has the code {given!r}, which lies within its bounds {self.lower} to {self.upper}; "
                    "a code is no measurement: move the bound, or drop the code"
                )
            parsed[int(code) if code == int(code) else code] = label
        if parsed and kind.times:
            raise InputError(f"{self._named} has codes, which are for numbers; make such times gaps")
        if parsed and kind.categories is not None:
            raise InputError(f"{self._named} has codes, which are for numbers; add them to its categories")
        return dict(sorted(parsed.items()))

    def _check_number(self, kind: Kind, transform: Transform) -> None:
        if self.categories:
            kinds = ", ".join(name for name, other in KINDS.items() if other.categories is not None)
            raise InputError(f"{self._named} has categories; only these kinds have them: {kinds}")
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is None:
                continue
            if not math.isfinite(bound):
                raise InputError(f"{self._named} has {name}={bound!r}; expected a finite number, or None for no bound")
            if kind.whole and bound != round(bound):
                raise InputError(f"{self._named} has {name}={bound}; expected a whole number")
            if bound <= transform.above:
                raise InputError(
                    f"{self._named} has {name}={bound}, where {self.transform} needs values above {transform.above:g}; "
                    "try transform='identity'"
                )
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise InputError(f"{self._named} has lower={self.lower} above upper={self.upper}; swap them?")

    def _check_step(self, kind: Kind) -> None:
        """Raise an error unless some legal number is left by step, values and bounds."""
        choose(f"start of the steps of feature {self.name!r}:", self.step_from, dict.fromkeys((ZERO, OWN)))
        if isinstance(self.values, str):
            choose(f"values of feature {self.name!r}:", self.values, dict.fromkeys((ANY, OBSERVED)))
        if not math.isfinite(self.min_change) or self.min_change < 0:
            raise InputError(f"{self._named} has min_change={self.min_change!r}; expected a number from 0")
        if self.step is not None:
            if not (math.isfinite(self.step) and self.step > 0 and round(self.step, PLACES) == self.step):
                raise InputError(f"{self._named} has step={self.step!r}; expected a positive number, such as 50 or 0.5")
            if self.values != ANY:
                raise InputError(f"{self._named} has a step and values={self.values!r}; give it one of them")
            if kind.whole and self.step != round(self.step):
                raise InputError(f"{self._named} has step={self.step}; expected a whole number")
            self._check_grid(Decimal(str(self.step)))
        if not isinstance(self.values, str):
            least, most = self.lower, self.upper
            if kind.whole and any(value != round(value) for value in self.values):
                raise InputError(f"{self._named} has values={list(self.values)}; expected whole numbers")
            if not any((least is None or v >= least) and (most is None or v <= most) for v in self.values):
                raise InputError(f"{self._named} has values={list(self.values)}, none of them from {least} to {most}")

    def _check_grid(self, step: Decimal) -> None:
        if self.step_from == OWN:
            return
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None and Decimal(str(bound)) % step:
                near = float(Decimal(str(bound)) // step * step)
                raise InputError(
                    f"{self._named} has step={self.step}, which does not divide {name}={bound}; try {name}={near:g}, "
                    f"{name}={near + float(step):g}, or step_from='own'"
                )

    def _check_categories(self, kind: Kind, least: int, most: Number) -> None:
        if (self.lower, self.upper, self.transform) != (None, None, "identity"):
            raise InputError(f"{self._named} has bounds or a transform; a feature with categories takes neither")
        if (self.step, self.step_from, self.values, self.min_change) != (None, ZERO, ANY, 0):
            raise InputError(f"{self._named} has a step, values or min_change; a feature with categories takes neither")
        for value in self.categories:
            if not isinstance(value, str | bool | int | float) or value != value:
                raise InputError(f"{self._named} has the category {value!r}; expected text, a number or a boolean")
        count, problem = len(self.categories), f"{self._named} has the categories {list(self.categories)!r}"
        if not least <= count <= most or len(set(self.categories)) != count:
            expected = f"{least}" if least == most else f"at least {least}"
            raise InputError(f"{problem}; expected {expected} different values, for example categories=('no', 'yes')")
        # Python has 0 == False, so equality alone would let numbers pass for truth values.
        if kind.values and repr(self.categories) != repr(kind.values):
            raise InputError(f"{problem}; expected {kind.values}, or none; the kind 'binary' takes any two values")

    @property
    def title(self) -> str:
        """What people call it."""
        return self.label or self.name

    def is_measured(self, values: pd.Series) -> NDArray[np.bool_]:
        """Which values are neither gaps nor codes."""
        return ~(values.isna() | values.isin(list(self.codes))).to_numpy(bool)

    @property
    def _named(self) -> str:
        return f"feature {self.name!r} (kind {self.kind!r})"


def with_days(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a feature, its bounds as numbers of days if they are times or text."""
    bounds = {name: as_days(attributes[name]) for name in ("lower", "upper") if name in attributes}
    for name, bound in bounds.items() if KINDS[kind].times else ():
        if isinstance(bound, str):
            raise InputError(f"{name} is {bound!r}; expected a date such as '2013-08-14', or a number of days")
    return {**attributes, **(bounds if KINDS[kind].times else {})}


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raise an error unless all keys are attributes of a `Feature`."""
    known = {field.name for field in dataclasses.fields(Feature)}
    if not attributes.keys() <= known:
        unknown = ", ".join(sorted(attributes.keys() - known))
        raise InputError(f"a feature has no {unknown}; choose from: {', '.join(sorted(known))}")


@dataclass(frozen=True)
class Schema:
    """The features of a table, in order; the label is not one of them.

    Attributes:
        features: The features.
        class_labels: By class, as text, what people call the decision: {"1": "granted"}.
        forbidden: Combinations that nobody shall be advised to become, each by feature a category, a list of them, or
            the ends [low, high] of an interval of numbers: {"sex": "Female", "relationship": "Husband"}.
        ignored: Columns that are no features, and why: identifiers, say. A table may have them; they are left out, and
            new rows need not have them. Names alone will do.
        causes: Which features follow from which, as `counterpath.data.causes` has it: "education -> income". They are
            kept as texts; pairs, or a graph of networkx, will do.
        target_unit: What the numbers count that a regressor predicts, for instance "MPa".
        rules: What every row of every path keeps to, as `counterpath.data.rules` has it: "rent <= income". They are
            kept as text; objects will do.

    Example:
        >>> schema = Schema((Feature("age", "continuous"), Feature("sex", "binary", categories=("Female", "Male"))))
        >>> schema.with_immutable("age").immutable
        ('age',)
    """

    features: tuple[Feature, ...]
    class_labels: Mapping[str, str] = field(default_factory=dict)
    forbidden: tuple[Mapping[str, Any], ...] = ()
    ignored: Mapping[str, str] | Sequence[str] = field(default_factory=dict)
    rules: Sequence[Any] = ()
    causes: Any = ()
    target_unit: str = ""

    @classmethod
    def infer(
        cls,
        frame: Any,
        *,
        target: str | None = None,
        immutable: Sequence[str] = (),
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        ignored: Sequence[str] = (),
    ) -> "Schema":
        """The schema that a table suggests; `counterpath.data.infer.infer` says by which rules."""
        from counterpath.data.infer import infer  # it needs this module

        return infer(frame, target=target, immutable=immutable, overrides=overrides, ignored=ignored)

    def __post_init__(self) -> None:
        if not self.features:
            raise InputError("a schema needs at least one feature, and was given none")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise InputError(f"a schema has these features more than once: {', '.join(twice)}; each needs its own name")
        object.__setattr__(self, "class_labels", {str(key): text for key, text in self.class_labels.items()})
        object.__setattr__(self, "forbidden", tuple(dict(each) for each in self.forbidden))
        object.__setattr__(self, "ignored", self._parse_ignored())
        for combination in self.forbidden:
            if len(combination) < 2:
                raise InputError(f"forbidden has {combination!r}; expected at least two features, or set a bound")
            for name in combination:
                self[name]
        object.__setattr__(self, "rules", self._parse_rules())
        object.__setattr__(self, "causes", self._parse_causes())

    def _parse_rules(self) -> tuple[str, ...]:
        if not self.rules:
            return ()
        from counterpath.data.rules.checks import check_consistent  # they need this module
        from counterpath.data.rules.language import parse_rules

        rules = parse_rules(self, self.rules)
        check_consistent(self, rules)
        return tuple(map(str, rules))

    def _parse_causes(self) -> tuple[str, ...]:
        if isinstance(self.causes, tuple) and not self.causes:
            return ()
        from counterpath.data.causes import parse_causes

        causes = parse_causes(self, self.causes)
        return () if causes is None else causes.texts

    def suggest_rules(self, table: Any) -> "tuple[Suggestion, ...]":
        """Rules that nearly all rows of a table keep to, for a person to accept; see `rules.checks.suggest_rules`."""
        from counterpath.data.rules.checks import suggest_rules
        from counterpath.data.tables import to_pandas

        return suggest_rules(self, to_pandas(table))

    def _parse_ignored(self) -> dict[str, str]:
        if isinstance(self.ignored, str):
            raise InputError(f"ignored is {self.ignored!r}; expected names of columns, for instance [{self.ignored!r}]")
        ignored = dict(self.ignored) if isinstance(self.ignored, Mapping) else dict.fromkeys(self.ignored, "")
        for name, why in ignored.items():
            if name in self.names or not isinstance(name, str) or not isinstance(why, str):
                raise InputError(
                    f"ignored has {name!r}: {why!r}; expected a column that is no feature, and why, as text"
                )
        return ignored

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __getitem__(self, name: str) -> Feature:
        """The feature of this name."""
        return choose("column", name, {feature.name: feature for feature in self.features})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all features, in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def immutable(self) -> tuple[str, ...]:
        """The names of the features that must not change, in order."""
        return tuple(feature.name for feature in self.features if feature.immutable)

    @property
    def not_actionable(self) -> tuple[str, ...]:
        """The names of the features that are locked unless a request unlocks them, in order."""
        return tuple(feature.name for feature in self.features if not feature.actionable and not feature.immutable)

    def class_label(self, value: Any) -> str:
        """What people call a class."""
        return self.class_labels.get(str(value), str(value))

    def index(self, name: str) -> int:
        """The index of a feature in the order."""
        return self.features.index(self[name])

    def replace(self, name: str, **changes: Any) -> "Schema":
        """A schema in which one feature has other attributes, for example `schema.replace("age", upper=80)`."""
        check_attributes(changes)
        kind = changes.get("kind", self[name].kind)
        changed = dataclasses.replace(self[name], **(with_days(kind, changes) if kind in KINDS else changes))
        features = tuple(changed if feature.name == name else feature for feature in self.features)
        return dataclasses.replace(self, features=features)

    def with_immutable(self, *names: str) -> "Schema":
        """A schema in which these features are immutable too."""
        schema = self
        for name in names:
            schema = schema.replace(name, immutable=True)
        return schema

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal schema."""
        return {
            "features": [_feature_to_json(feature) for feature in self.features],
            "class_labels": dict(self.class_labels),
            "forbidden": [dict(combination) for combination in self.forbidden],
            "ignored": self._parse_ignored(),
            "rules": list(self.rules),
            "causes": list(self.causes),
            "target_unit": self.target_unit,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Schema":
        """Build a schema from the value of `to_json`; attributes that have a default may be left out."""
        if not isinstance(value, Mapping) or not isinstance(value.get("features"), list):
            raise InputError('a schema in JSON looks like {"features": [{"name": "age", "kind": "integer"}, …]}')
        labels, forbidden = value.get("class_labels", {}), value.get("forbidden", [])
        ignored, rules, unit = value.get("ignored", {}), value.get("rules", []), value.get("target_unit", "")
        if not isinstance(unit, str):
            raise InputError(f"in a schema in JSON, target_unit is a text such as 'MPa'; given was {unit!r}")
        causes = value.get("causes", [])
        if not isinstance(rules, list) or not isinstance(causes, list):
            raise InputError(
                f'in a schema in JSON, rules and causes are lists like ["rent <= income"]; given were {rules!r}'
            )
        if (
            not isinstance(labels, Mapping)
            or not isinstance(forbidden, list)
            or not isinstance(ignored, Mapping | list)
        ):
            raise InputError(
                'in a schema in JSON, class_labels are like {"1": "granted"}, forbidden is a list, and ignored has '
                "names of columns"
            )
        features = tuple(_feature_from_json(item) for item in value["features"])
        return cls(features, labels, tuple(forbidden), ignored, tuple(rules), tuple(causes), unit)

    def save(self, path: str | Path) -> Path:
        """Write the schema as JSON, for people to read and change."""
        return write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema that `save` or a person wrote."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"the schema {path} cannot be read: {error.strerror}") from error
        except ValueError as error:  # not JSON, not UTF-8, or not a schema
            raise InputError(f"the schema {path} cannot be used: {error}") from error


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "kind": (str,),
    "lower": (int, float, NoneType),
    "upper": (int, float, NoneType),
    "transform": (str,),
    "immutable": (bool,),
    "categories": (list,),
    "actionable": (bool,),
    "step": (int, float, NoneType),
    "step_from": (str,),
    "values": (str, list),
    "min_change": (int, float),
    "label": (str,),
    "unit": (str,),
    "description": (str,),
    "phrase": (str,),
    "category_labels": (dict,),
    "codes": (dict,),
    "missing": (bool,),
    "format": (str,),
}
_NEEDED = {"name", "kind"}


def _feature_to_json(feature: Feature) -> dict[str, Any]:
    value = dataclasses.asdict(feature) | {"codes": {str(code): label for code, label in feature.codes.items()}}
    for name in ("lower", "upper"):
        if feature.kind == DATE and value[name] is not None:
            value[name] = day_text(value[name])
    return value


def _feature_from_json(item: Any) -> Feature:
    if not isinstance(item, Mapping) or not _NEEDED <= item.keys() <= _JSON_TYPES.keys():
        options = ", ".join(name for name in _JSON_TYPES if name not in _NEEDED)
        raise InputError(f"a feature in JSON has a name and a kind, and if need be {options}; given was {item!r}")
    check_json(item["name"], item)
    choose(f"kind of feature {item['name']!r}:", item["kind"], KINDS)
    return Feature(**with_days(item["kind"], item))


def check_json(feature: Any, attributes: Mapping[str, Any]) -> None:
    """Raise an error unless these are attributes of a `Feature`, with values as JSON gives them."""
    check_attributes(attributes)
    is_date = attributes.get("kind", DATE) == DATE  # whose bounds may be text such as 2013-08-14, and nobody else's
    for name, value in attributes.items():
        plain = as_days(value) if is_date and name in ("lower", "upper") else value
        if type(plain) not in _JSON_TYPES[name]:
            expected = " or ".join(kind.__name__ for kind in _JSON_TYPES[name])
            raise InputError(f"feature {feature!r} has {name}={value!r}; expected {expected}")

"""What the columns of a table are: their kind, legal values, transform, and whether they may change."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from counterpath.errors import InputError, choose
from counterpath.files import write_json

Number: TypeAlias = int | float


@dataclass(frozen=True)
class Kind:
    """How values of a kind of feature become numbers.

    Attributes:
        whole: Whether only whole numbers are legal. A category's number is its place in `Feature.categories`.
        categories: How many categories a feature of this kind has; None for a kind whose values are numbers already.
    """

    whole: bool
    categories: int | None = None


KINDS: dict[str, Kind] = {
    "continuous": Kind(whole=False),
    "integer": Kind(whole=True),
    "binary": Kind(whole=True, categories=2),
}


@dataclass(frozen=True)
class Transform:
    """An increasing function that is applied before scaling, defined for values greater than `above`."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    above: float = -math.inf


TRANSFORMS: dict[str, Transform] = {
    "identity": Transform(forward=lambda values: values, inverse=lambda values: values),
    "log1p": Transform(forward=torch.log1p, inverse=torch.expm1, above=-1.0),
}


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
            is encoded as 0 for the first one and 1 for the second.
    """

    name: str
    kind: str
    lower: Number | None = None
    upper: Number | None = None
    transform: str = "identity"
    immutable: bool = False
    categories: Sequence[Any] = ()

    def __post_init__(self) -> None:
        kind = choose(f"kind of feature {self.name!r}:", self.kind, KINDS)
        transform = choose(f"transform of feature {self.name!r}:", self.transform, TRANSFORMS)
        # NumPy's scalars have no JSON form, and a schema is often written from `frame[column].unique()`.
        plain = tuple(value.item() if isinstance(value, np.generic) else value for value in self.categories)
        object.__setattr__(self, "categories", plain)
        if kind.categories is None:
            self._check_number(kind, transform)
        else:
            self._check_categories(kind.categories)

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

    def _check_categories(self, expected: int) -> None:
        if (self.lower, self.upper, self.transform) != (None, None, "identity"):
            raise InputError(f"{self._named} has bounds or a transform; a feature with categories takes neither")
        for value in self.categories:
            if not isinstance(value, str | bool | int | float) or value != value:
                raise InputError(f"{self._named} has the category {value!r}; expected text, a number or a boolean")
        if len(self.categories) != expected or len(set(self.categories)) != expected:
            raise InputError(
                f"{self._named} has the categories {list(self.categories)!r}; expected {expected} different values, "
                "for example categories=('no', 'yes')"
            )

    @property
    def _named(self) -> str:
        return f"feature {self.name!r} (kind {self.kind!r})"


@dataclass(frozen=True)
class Schema:
    """The features of a table, in order; the label is not one of them.

    Example:
        >>> schema = Schema((Feature("age", "continuous"), Feature("sex", "binary", categories=("Female", "Male"))))
        >>> schema.with_immutable("age").immutable
        ('age',)
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        if not self.features:
            raise InputError("a schema needs at least one feature, and was given none")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise InputError(f"a schema has these features more than once: {', '.join(twice)}; each needs its own name")

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

    def index(self, name: str) -> int:
        """The place of a feature in the order."""
        return self.features.index(self[name])

    def replace(self, name: str, **changes: Any) -> "Schema":
        """A schema in which one feature has other attributes, for example `schema.replace("age", upper=80)`."""
        known = {field.name for field in dataclasses.fields(Feature)}
        if not changes.keys() <= known:
            given = ", ".join(sorted(changes.keys() - known))
            raise InputError(f"a feature has no {given}; choose from: {', '.join(sorted(known))}")
        changed = dataclasses.replace(self[name], **changes)
        return Schema(tuple(changed if feature.name == name else feature for feature in self.features))

    def with_immutable(self, *names: str) -> "Schema":
        """A schema in which these features are immutable too."""
        schema = self
        for name in names:
            schema = schema.replace(name, immutable=True)
        return schema

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal schema."""
        return {"features": [dataclasses.asdict(feature) for feature in self.features]}

    @classmethod
    def from_json(cls, value: Any) -> "Schema":
        """Build a schema from the value of `to_json`; attributes that have a default may be left out."""
        if not isinstance(value, Mapping) or not isinstance(value.get("features"), list):
            raise InputError('a schema in JSON looks like {"features": [{"name": "age", "kind": "integer"}, …]}')
        return cls(tuple(_feature_from_json(item) for item in value["features"]))

    def save(self, path: Path) -> Path:
        """Write the schema as JSON, for people to read and change."""
        return write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Schema":
        """Read a schema that `save` or a person wrote."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
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
}
_NEEDED = {"name", "kind"}


def _feature_from_json(item: Any) -> Feature:
    if not isinstance(item, Mapping) or not _NEEDED <= item.keys() <= _JSON_TYPES.keys():
        options = ", ".join(name for name in _JSON_TYPES if name not in _NEEDED)
        raise InputError(f"a feature in JSON has a name and a kind, and if need be {options}; given was {item!r}")
    for name, value in item.items():
        if type(value) not in _JSON_TYPES[name]:
            expected = " or ".join(kind.__name__ for kind in _JSON_TYPES[name])
            raise InputError(f"feature {item['name']!r} has {name}={value!r}; expected {expected}")
    return Feature(**item)

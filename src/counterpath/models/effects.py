"""What follows from an action: structural equations with additive noise, given or fitted to training rows.

A feature with causes is xⱼ = fⱼ(its causes) + uⱼ. For a person uⱼ is what fⱼ leaves of their own value (abduction). It
stays when they change a cause (action), so that the effect becomes fⱼ(new causes) + uⱼ (prediction).

References:
    Pearl, "Causality", 2009, section 7.1. Karimi, Schölkopf and Valera, "Algorithmic recourse: from counterfactual
    explanations to interventions", FAccT 2021.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.causes import Causes
from counterpath.data.encoding import Encoder
from counterpath.data.rules.expressions import Expression
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.rules.values import EncodedValues
from counterpath.utils.errors import InputError

_MOST_ROWS = 20_000  # rows that an equation of a few causes is fitted to: noise as large as the effect leaves 1 % then
_FEWEST_ROWS = 20  # in which an effect and its causes are known; of fewer no equation can be fitted
_FOLDS = 5  # as is usual
_SURE = 2.0  # standard errors by which the squared errors of a richer equation must be smaller: 95 % sure
_PENALTIES = np.logspace(-4, 3, 8)  # ridge penalties of standardised inputs: from nearly none to very strong
_KNOTS = 7  # of the smooth function of one cause: enough for a threshold or a saturation, and few to estimate
_LANDMARKS = 150  # of the kernel: as many as a smooth function of a few causes has bends

Equation = Callable[[EncodedValues], Tensor]
"""The values of n rows to fⱼ of each."""


@dataclass(frozen=True)
class Effects:
    """What follows from actions, on encoded rows.

    Attributes:
        encoder: Knows what is legal.
        causes: The graph.
        equations: By effect fⱼ.
        always: Effects that people cannot change themselves: they always follow.
    """

    encoder: Encoder
    causes: Causes
    equations: Mapping[str, Equation]
    always: frozenset[str] = frozenset()

    @classmethod
    def fit(
        cls, encoder: Encoder, rows: Float[Tensor, "n D"], causes: Causes, always: frozenset[str] = frozenset()
    ) -> "Effects":
        """With equations fitted to training rows where none are given.

        Linear, quadratic, a sum of smooth functions, cubic or smooth in all causes: the simplest that predicts held-out
        rows best.

        Raises:
            InputError: There are too few rows in which an effect and its causes are known.
        """
        some = rows[:: -(-len(rows) // _MOST_ROWS)] if len(rows) > _MOST_ROWS else rows
        values = EncodedValues(encoder, some)
        equations = {
            effect: _given(causes.equations[effect])
            if effect in causes.equations
            else _fitted(encoder, values, effect, parents)
            for effect, parents in causes.parents.items()
        }
        return cls(encoder, causes, equations, always)

    @cached_property
    def _setter(self) -> RuleSet:
        return RuleSet(self.encoder, (), ())

    @cached_property
    def followers(self) -> Bool[Tensor, "f"]:
        """Which features always follow."""
        return torch.tensor([name in self.always for name in self.encoder.schema.names])

    def propagate(
        self,
        x: Float[Tensor, "n D"],
        origin: Float[Tensor, "n D"],
        lower: Tensor | None = None,
        upper: Tensor | None = None,
    ) -> Float[Tensor, "n D"]:
        """The rows with effects on every feature that nobody acts on, which is one that is as it was.

        Args:
            x: Legal rows.
            origin: What each of them was.
            lower: The least that each column may be.
            upper: The most.
        """
        for effect in self.causes.parents:
            values = EncodedValues(self.encoder, x, origin)
            part, always = self._setter._slice(effect), effect in self.always
            rows = torch.ones_like(x[:, 0], dtype=torch.bool) if always else ~values.changed(effect)
            rows = rows.nonzero()[:, 0]
            if len(rows):
                bounds = (None, None) if lower is None or upper is None else (lower[rows], upper[rows])
                moved = x[rows]
                moved[:, part] = self._points(effect, moved, origin[rows], *bounds)
                x = x.index_copy(0, rows, moved)
        return x

    def follows(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n f"]:
        """Which features have changed as an effect of others, and are no action."""
        found = torch.zeros(len(x), len(self.encoder.schema), dtype=torch.bool, device=x.device)
        for effect in self.causes.parents:
            part = self._setter._slice(effect)
            rows = (x[:, part] != origin[:, part]).any(-1).nonzero()[:, 0]
            if len(rows):
                again = self._points(effect, x[rows], origin[rows])
                same = ((again - x[rows][:, part]).abs() <= _SAME).all(-1)
                found[rows, self.encoder.schema.names.index(effect)] = same
        return found

    def _points(
        self, effect: str, x: Tensor, origin: Tensor, lower: Tensor | None = None, upper: Tensor | None = None
    ) -> Tensor:
        """The columns of an effect as it follows from its causes; as it was where none of them has changed."""
        parents, part = self.causes.parents[effect], self._setter._slice(effect)
        values, before = EncodedValues(self.encoder, x, origin), EncodedValues(self.encoder, origin, origin)
        called = torch.stack([values.changed(name) for name in parents]).any(0)
        rows = (called & self._known(values, before, effect, parents)).nonzero()[:, 0]
        points = origin[:, part].clone()
        if len(rows):
            here, own = EncodedValues(self.encoder, x[rows]), EncodedValues(self.encoder, origin[rows])
            number = own.number(effect) + self.equations[effect](here) - self.equations[effect](own)
            bounds = (None, None) if lower is None or upper is None else (lower[rows], upper[rows])
            points[rows] = self._setter._with_number(x[rows], effect, number, *bounds)[:, part]
        return points

    def hold(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows have all effects that always follow."""
        good = torch.ones_like(x[:, 0], dtype=torch.bool)
        for effect in self.always:
            there = x[:, self._setter._slice(effect)]
            good &= ((self._points(effect, x, origin) - there).abs() <= _SAME).all(-1)
        return good

    def _known(self, values: EncodedValues, before: EncodedValues, effect: str, parents: tuple[str, ...]) -> Tensor:
        """Where neither the effect nor a cause is a code or a gap, before or after."""
        known = values.known(effect) & before.known(effect)
        for name in parents:
            known = known & values.known(name) & before.known(name)
        return known


_SAME = 1e-6  # of a range: an effect is what follows up to this, ten times what encoding can tell


def _given(equation: Expression) -> Equation:
    return lambda values: equation.compute(values).expand(len(values.x)).nan_to_num()


def _fitted(encoder: Encoder, values: EncodedValues, effect: str, parents: tuple[str, ...]) -> Equation:
    """The simplest of a few equations that none predicts held-out rows better than, as far as the rows show."""
    from sklearn.model_selection import KFold, cross_val_predict

    known = values.known(effect)
    for name in parents:
        known = known & values.known(name)
    if int(known.sum()) < _FEWEST_ROWS:
        raise InputError(
            f"the effect {effect!r} and its causes {', '.join(parents)} are known together in {int(known.sum())} "
            f"training rows; expected at least {_FEWEST_ROWS} to fit an equation: give one, {effect} = …"
        )
    x, y = _inputs(encoder, values, parents)[known.cpu().numpy()], values.number(effect)[known].cpu().numpy()
    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    chosen, errors = None, np.zeros(0)
    for each in _candidates(len(x)):
        squared = (cross_val_predict(each, x, y, cv=folds) - y) ** 2
        gain = errors - squared if chosen is not None else squared
        if chosen is None or gain.mean() > _SURE * gain.std() / np.sqrt(len(gain)):
            chosen, errors = each, squared
    assert chosen is not None
    chosen.fit(x, y)

    def equation(values: EncodedValues) -> Tensor:
        predicted = np.asarray(chosen.predict(_inputs(encoder, values, parents)), dtype=np.float64)
        return torch.from_numpy(predicted).to(values.x.device)

    return equation


def _candidates(count: int) -> list[Any]:
    """Equations that can be fitted, the simplest first."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LinearRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

    kernel = Nystroem(n_components=min(_LANDMARKS, count // 2), random_state=0)
    bends = SplineTransformer(_KNOTS, knots="quantile", extrapolation="linear")
    return [
        make_pipeline(StandardScaler(), LinearRegression()),
        make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), RidgeCV(_PENALTIES)),
        make_pipeline(StandardScaler(), bends, RidgeCV(_PENALTIES)),
        make_pipeline(StandardScaler(), PolynomialFeatures(3, include_bias=False), RidgeCV(_PENALTIES)),
        make_pipeline(StandardScaler(), kernel, RidgeCV(_PENALTIES / count)),
    ]


def _inputs(encoder: Encoder, values: EncodedValues, parents: tuple[str, ...]) -> NDArray[np.float64]:
    """The causes as columns: numbers, and a column for each category that has no order."""
    columns = []
    for name in parents:
        feature = encoder.schema[name]
        number = values.number(name)
        if feature.kind == "categorical":
            columns += [(number == index).double() for index in range(1, len(feature.categories))]
        else:
            columns.append(number)
    return torch.stack(columns, 1).cpu().numpy()

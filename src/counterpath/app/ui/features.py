"""A card for each feature: its value, and what may become of it."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.app.ui import limits, parts
from counterpath.app.ui.limits import BOTH, Limit
from counterpath.data.axes import NumberAxis
from counterpath.data.schema import KINDS, Feature
from counterpath.data.wishes import DOWN, UP, paired
from counterpath.explainer import Explainer
from counterpath.explanation import wording

_DIRECTIONS = {BOTH: "up or down", UP: "only up", DOWN: "only down"}


class FeatureCard:
    """The controls of one feature.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        on_value: Called when the value was edited.
        on_limit: Called when what may become of it was.
    """

    def __init__(
        self, explainer: Explainer, feature: Feature, on_value: Callable[[], None], on_limit: Callable[[], None]
    ) -> None:
        self.feature = feature
        self.limit = Limit()
        self._explainer, self._on_value, self._on_limit = explainer, on_value, on_limit
        place = explainer.schema_.index(feature.name)
        self._axis, self._seen = explainer.encoder_.axes[place], explainer.encoder_.seen[place]
        self._silent = False
        self._low: ui.number | ui.select
        self._high: ui.number | ui.select
        with ui.element("article").classes("cp-card") as self._card:
            parts.named(self._card, f"Feature {feature.name}")
            if feature.immutable:
                self._card.classes("cp-fixed")
            self._build()

    @property
    def value(self) -> Any:
        """The value as it stands in the field."""
        return limits.whole(self._field.value)

    def show_value(self, value: Any) -> None:
        """Put a value into its field, without telling anybody."""
        self._silent = True
        if isinstance(self._field, ui.select):
            options = self._categories()
            self._field.set_options(options if value in options else {**options, value: wording.value(value)})
        self._field.set_value(value)
        self._silent = False

    def show_limit(self, limit: Limit) -> None:
        """Put a limit into its controls, without telling anybody."""
        self._silent = True
        self.limit = limit
        if not self.feature.immutable:
            self._lock.set_value(limit.locked)
            self._direction.set_value(limit.direction)
            self._difficulty.set_value(limit.difficulty)
            if isinstance(self._axis, NumberAxis) or paired(self.feature):
                self._low.set_value(limit.low)
                self._high.set_value(limit.high)
            else:
                self._allowed.set_value(list(limit.allowed))
            self._tell_limit()
        self._silent = False

    def check_value(self, label: Any) -> bool:
        """Whether the value can be one of this feature; what is wrong with it is written beside it."""
        wrong = limits.value_problem(self.feature, self.value, label)
        self._value_problem.set_text(wrong)
        return not wrong

    def check_limit(self, person: pd.DataFrame | None) -> bool:
        """Whether the limit can be; what is wrong with it is written beside it.

        Args:
            person: The whole row, if it can be used: it must keep its own limits.
        """
        wrong = limits.limit_problem(self._explainer, self.feature, self.limit, person)
        self._limit_problem.set_text(wrong)
        return not wrong

    def _build(self) -> None:
        feature = self.feature
        with ui.element("div").classes("cp-card-head"):
            parts.text("h3", feature.name)
            if feature.immutable:
                parts.text("span", "cannot change", "cp-badge")
            self._lock = ui.switch("Lock", value=feature.immutable, on_change=self._limited).props("dense")
            self._lock.set_enabled(not feature.immutable)
            parts.named(self._lock, f"Lock {feature.name}")
        self._field = self._value_field()
        parts.named(self._field, f"Value of {feature.name}")
        self._value_problem = parts.problem()
        if feature.immutable:
            self._limit_problem = parts.problem()
            return
        with ui.expansion("Limits: none").props("dense dense-toggle") as self._more:
            self._build_limits()
        self._limit_problem = parts.problem()

    def _build_limits(self) -> None:
        axis = self._axis
        with ui.element("div").classes("cp-fields"):
            self._direction = ui.select(_DIRECTIONS, label="Direction", value=BOTH, on_change=self._limited)
            if KINDS[self.feature.kind].one_hot:
                self._direction.disable()
                self._direction.props["hint"] = "its values have no order"
            self._difficulty = ui.number("Difficulty", value=1, min=0, step=0.5, on_change=self._limited)
            self._difficulty.props["hint"] = "1 is usual"
            if isinstance(axis, NumberAxis):
                self._low = ui.number("At least", on_change=self._limited)
                self._high = ui.number("At most", on_change=self._limited)
            elif paired(self.feature):
                options = self._categories()
                self._low = ui.select(options, label="At least", clearable=True, on_change=self._limited)
                self._high = ui.select(options, label="At most", clearable=True, on_change=self._limited)
        if not isinstance(axis, NumberAxis) and not paired(self.feature):
            options = self._categories()
            self._allowed = ui.select(options, label="Allowed values", multiple=True, on_change=self._limited)
            self._allowed.classes("cp-full").props["hint"] = "none chosen: all are"

    def _value_field(self) -> ui.number | ui.select:
        axis = self._axis
        if not isinstance(axis, NumberAxis):
            return ui.select(self._categories(), on_change=self._edited).props("dense options-dense")
        field = ui.number(on_change=self._edited).props("dense")
        field.props["step"] = 1 if axis.whole else "any"
        field.props["hint"] = f"{wording.value(axis.lower)} to {wording.value(axis.upper)} is usual"
        return field

    def _categories(self) -> dict[Any, str]:
        """The values that the model has seen."""
        return {self.feature.categories[place]: wording.value(self.feature.categories[place]) for place in self._seen}

    def _edited(self) -> None:
        if not self._silent:
            self._on_value()

    def _limited(self) -> None:
        if self._silent:
            return
        ordered = isinstance(self._axis, NumberAxis) or paired(self.feature)
        self.limit = Limit(
            locked=bool(self._lock.value),
            direction=str(self._direction.value),
            low=limits.whole(self._low.value) if ordered else None,
            high=limits.whole(self._high.value) if ordered else None,
            allowed=() if ordered else tuple(self._allowed.value),
            difficulty=limits.whole(self._difficulty.value),
        )
        self._tell_limit()
        self._on_limit()

    def _tell_limit(self) -> None:
        told = self.limit.told(self.feature)
        self._more.set_text(f"Limits: {told or 'none'}")
        self._card.classes(add="cp-limited" if told else "", remove="" if told else "cp-limited")

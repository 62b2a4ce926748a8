"""One feature in one line: its value, how the training rows spread behind the range that it may become, its lock.

What else may be limited is below it, folded.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.data.axes import NumberAxis, value_axis
from counterpath.data.constraints import DOWN, UP, is_interval
from counterpath.data.schema import KINDS, Feature
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import wording
from counterpath.explorer import elements, state
from counterpath.explorer.distribution import TICKS
from counterpath.explorer.state import BOTH, FeatureConstraint, LoadedModel

_DIRECTIONS = {BOTH: "up or down", UP: "only up", DOWN: "only down"}
_ENDS = {"low": "Smallest", "high": "Largest"}


def as_integer(value: Any) -> Any:
    """A whole number as an integer, for a field gives all as floats; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RangeStrip:
    """The training rows of a feature as bars, the value of the person on them, and of numbers the range it may become.

    The two ends of the range are sliders of the browser itself, which keys move, too.

    Args:
        model: Knows the training rows.
        feature: The feature.
        on_end: Called with the end that was moved, "low" or "high", and its value, None at the end of the strip; None
            if the range of this feature cannot be set.
    """

    def __init__(self, model: LoadedModel, feature: Feature, on_end: Callable[[str, Any], None] | None) -> None:
        self._feature, self._on_end = feature, on_end
        self._distribution = model.distributions[feature.name]
        self._sliders: dict[str, ui.element] = {}
        words = self._distribution.words
        with elements.box("div", "cp-strip", title=words) as self._outer:
            with elements.box("div", "cp-bars", role="img", aria_label=f"{words}, of {feature.title}"):
                ui.html(self._distribution.svg, sanitize=False)  # of numbers alone
            self._band = ui.element("div").classes("cp-band")
            self._marker = ui.element("div").classes("cp-marker")
            if on_end is not None and self._distribution.scale is not None:
                for end, named in _ENDS.items():
                    self._sliders[end] = self._slider(end, f"{named} value that {feature.title} may become")
        self.show(None, FeatureConstraint())

    def show(self, value: Any, constraint: FeatureConstraint) -> None:
        """Show a value, and the range that it may become."""
        place = self._distribution.place(self._feature, value)
        self._marker.set_visibility(place is not None)
        self._marker.style(f"left: {100 * (place or 0):.1f}%")
        scale = self._distribution.scale
        if scale is None:
            return
        low, high = (
            default if end is None or not isinstance(end, int | float) else scale.position(end)
            for end, default in ((constraint.low, 0.0), (constraint.high, 1.0))
        )
        limited = constraint.low is not None or constraint.high is not None
        self._band.set_visibility(limited)
        self._band.style(f"left: {100 * low:.1f}%; right: {100 - 100 * high:.1f}%")
        for (end, slider), place in zip(self._sliders.items(), (low, high), strict=False):
            number = getattr(constraint, end)
            said = "no limit" if number is None else wording.amount(self._feature, number)
            elements.describe(slider, value=round(TICKS * place), aria_valuetext=said)
            slider.update()

    def _slider(self, end: str, name: str) -> ui.element:
        slider = elements.box("input", f"cp-end cp-{end}", type="range", min=0, max=TICKS, step=1, aria_label=name)
        return elements.on_value(slider, "change", partial(self._moved, end))

    def _moved(self, end: str, given: str) -> None:
        scale = self._distribution.scale
        assert scale is not None
        assert self._on_end is not None
        tick = min(max(int(float(given)), 0), TICKS)
        at_end = tick == (0 if end == "low" else TICKS)
        self._on_end(end, None if at_end else as_integer(scale.number(tick / TICKS)))


def known_categories(explainer: Explainer, feature: Feature) -> dict[Any, str]:
    """The categories of a feature that the training rows have, and what people call them; None is a gap."""
    seen = explainer.encoder_.seen[explainer.schema_.index(feature.name)]
    codes = [code for code in seen if code < len(feature.categories)]
    known = [*(feature.categories[code] for code in codes), *([None] if feature.missing else [])]
    return {category: wording.shown(feature, category) for category in known}


def constraint_fields(
    feature: Feature, axis: Any, categories: Mapping[Any, str], on_change: Callable[[], None], *, brief: bool = False
) -> dict[str, Any]:
    """A control for each part of what may become of a feature, but its lock, by its name in `FeatureConstraint`.

    Args:
        feature: The feature.
        axis: Where its values are encoded.
        categories: Its categories, and what people call them.
        on_change: Called when any of them is changed.
        brief: Leave out the cost, and whether a range must hold from the start.
    """
    controls: dict[str, Any] = {}
    has_ends, is_time = isinstance(axis, NumberAxis) or is_interval(feature), KINDS[feature.kind].times
    unit = {"suffix": feature.unit} if feature.unit else {}
    with ui.element("div").classes("cp-fields"):
        for name, label in (("low", "At least"), ("high", "At most")) if has_ends else ():
            controls[name] = (
                ui.input(label, on_change=on_change).props("clearable")
                if is_time
                else elements.describe(ui.number(label, on_change=on_change), **unit)
                if isinstance(axis, NumberAxis)
                else ui.select(dict(categories), label=label, clearable=True, on_change=on_change)
            )
        if not KINDS[feature.kind].one_hot:
            controls["direction"] = ui.select(_DIRECTIONS, label="Direction", value=BOTH, on_change=on_change)
        if not brief:
            cost = ui.number("Cost of change", value=1, min=0, step=0.5, on_change=on_change)
            controls["cost"] = elements.describe(cost, hint="1 by default; 2 is twice as hard")
        if not has_ends:
            allowed = ui.select(dict(categories), label="Allowed values", multiple=True, on_change=on_change)
            controls["allowed"] = elements.describe(allowed.classes("cp-full"), hint="none chosen: all are")
    if not brief:
        words = "From the start on, not only at the end"
        stays = ui.switch(words, on_change=on_change).props("dense")
        controls["stays"] = elements.describe(stays, aria_label=f"{words}: {feature.title}")
    if brief:
        for name, control in controls.items():
            elements.describe(control, aria_label=f"{_LABELS[name]}: {feature.title}")
    return controls


_LABELS = {"low": "At least", "high": "At most", "direction": "Direction", "allowed": "Allowed values"}
"""What the controls of several features at once begin with, to be told apart."""


def read_constraint(feature: Feature, controls: Mapping[str, Any]) -> FeatureConstraint:
    """What the controls of `constraint_fields` say."""
    values = {name: as_integer(control.value) for name, control in controls.items()}
    is_time = KINDS[feature.kind].times
    values |= {name: values[name] or None for name in ("low", "high") if is_time and name in values}
    return FeatureConstraint(**values | {"allowed": tuple(values.get("allowed") or ())})


class FeatureRow:
    """The controls of one feature.

    Args:
        model: Knows what is legal, and the training rows.
        feature: The feature.
        on_value: Called when the value was edited.
        on_constraint: Called when what may become of it was.
        on_enter: Called when Enter is pressed in a field.
    """

    def __init__(
        self,
        model: LoadedModel,
        feature: Feature,
        on_value: Callable[[], None],
        on_constraint: Callable[[], None],
        on_enter: Callable[[], None] = lambda: None,
    ) -> None:
        self._feature, self._explainer, self._model = feature, model.explainer, model
        self._on_value, self._on_constraint, self._on_enter = on_value, on_constraint, on_enter
        self.constraint = self.default = FeatureConstraint.default(feature)
        self._axis = value_axis(model.explainer.encoder_.axes[model.explainer.schema_.index(feature.name)])
        self._categories = known_categories(model.explainer, feature)
        self._silent, self._is_time = False, KINDS[feature.kind].times
        self._controls: dict[str, Any] = {}
        with elements.box("article", "cp-feature-row", aria_label=f"Feature {feature.title}") as self._row:
            elements.set_class(self._row, "cp-fixed", feature.immutable)
            self._build()

    @property
    def value(self) -> Any:
        """The value as it stands in the field."""
        return self._value.value or None if self._is_time else as_integer(self._value.value)

    def show_value(self, value: Any) -> None:
        """Put a value into its field, without calling back."""
        self._silent = True
        value = None if pd.api.types.is_scalar(value) and pd.isna(value) else value
        if isinstance(self._value, ui.select):
            self._value.set_options({**self._categories, value: wording.shown(self._feature, value)})
        shown: Any = wording.value(value) if self._is_time and value is not None else value
        self._value.set_value(shown)
        self._silent = False
        self._show_strip()

    def show_constraint(self, constraint: FeatureConstraint) -> None:
        """Put a constraint into its controls, without calling back."""
        self._silent = True
        self.constraint = constraint
        for name, control in self._controls.items():
            value = getattr(constraint, name)
            control.set_value(list(value) if name == "allowed" else value)
        self._summarize()
        self._silent = False

    def check_value(self, label: Any) -> bool:
        """Whether the value can be one of this feature; what is wrong with it is written beside it."""
        error = state.value_error(self._explainer, self._feature, self.value, label)
        self._value_error.set_text(error)
        self._note.set_text("" if error else state.value_note(self._explainer, self._feature, self.value))
        elements.describe(self._value, aria_invalid="true" if error else "false")
        return not error

    def check_constraint(self, row: pd.DataFrame | None) -> bool:
        """Whether the constraint can be; what is wrong with it is written beside it.

        Args:
            row: The whole row, if it can be used: it must keep its own constraints.
        """
        error = state.constraint_error(self._explainer, self._feature, self.constraint, row)
        self._constraint_error.set_text(error)
        return not error

    def _build(self) -> None:
        feature = self._feature
        with ui.element("div").classes("cp-feature-name"):
            title = elements.text("h4", feature.title)
            if feature.description:
                elements.describe(title, title=feature.description)
            if feature.unit:
                elements.text("span", feature.unit, "cp-unit")
        self._value = elements.describe(self._value_field(), aria_label=f"Value of {feature.title}")
        if isinstance(self._value, ui.number | ui.input):
            self._value.on("keydown.enter", lambda: self._on_enter())
        with ui.element("div").classes("cp-strip-cell"):
            can_limit = not feature.immutable and not self._is_time
            self._strip = RangeStrip(self._model, feature, self._end_moved if can_limit else None)
            if isinstance(self._axis, NumberAxis):
                hint = wording.legal(feature, self._axis.lower, self._axis.upper)
                elements.text("span", hint, "cp-hint")
        with ui.element("div").classes("cp-feature-tools"):
            if feature.immutable:
                elements.text("span", "fixed", "cp-badge", title="The model's schema says that this cannot change.")
            else:
                lock = ui.switch(value=self.constraint.locked, on_change=self._constrained)
                lock.props("dense checked-icon=lock unchecked-icon=lock_open")
                self._controls["locked"] = elements.describe(lock, aria_label=f"Lock {feature.title}")
                self._more = elements.button("Limits", self._toggle, "flat dense").classes("cp-limits")
        self._value_error = elements.error_label()
        self._note = elements.note_label()
        self._constraint_error = elements.error_label()
        if not feature.immutable:
            self._build_panel()

    def _build_panel(self) -> None:
        """What else may be limited, hidden until it is asked for."""
        feature = self._feature
        with ui.element("div").classes("cp-limit-panel") as self._panel:
            for words in (feature.description, wording.NOT_ACTIONABLE if self.constraint.locked else ""):
                if words:
                    elements.text("p", words, "cp-soft")
            self._controls |= constraint_fields(feature, self._axis, self._categories, self._constrained)
            for control in self._controls.values():
                if isinstance(control, ui.number | ui.input):
                    control.on("keydown.enter", lambda: self._on_enter())
        self._panel.set_visibility(False)
        self._summarize()

    def _toggle(self) -> None:
        self._panel.set_visibility(not self._panel.visible)
        self._name_more()

    def _value_field(self) -> ui.number | ui.select | ui.input:
        axis = self._axis
        if self._is_time:
            return ui.input(on_change=self._edited).props("dense")
        if not isinstance(axis, NumberAxis):
            return ui.select(self._categories, on_change=self._edited).props("dense options-dense")
        field = ui.number(on_change=self._edited).props("dense")
        step = self._feature.step or (1 if axis.whole else "any")
        hint = [f"{wording.value(code)} is {meaning}" for code, meaning in self._feature.codes.items()]
        hint += ["empty is missing"] if self._feature.missing else []
        return elements.describe(field, step=step, **({"hint": "; ".join(hint)} if hint else {}))

    def _edited(self) -> None:
        if not self._silent:
            self._show_strip()
            self._on_value()

    def _end_moved(self, end: str, number: Any) -> None:
        """Take an end of the range from the strip; an end that would pass the other one takes it along."""
        other = self.constraint.high if end == "low" else self.constraint.low
        passed = number is not None and other is not None and (number > other if end == "low" else number < other)
        both = {"low": number, "high": number} if passed else {end: number}
        for name, value in both.items():
            self._controls[name].set_value(value)
        self._show_strip()

    def _constrained(self) -> None:
        if self._silent:
            return
        self.constraint = read_constraint(self._feature, self._controls)
        self._summarize()
        self._on_constraint()

    def _summarize(self) -> None:
        if not self._feature.immutable:
            self._name_more()
            elements.set_class(self._row, "cp-limited", self.constraint != self.default)
        self._show_strip()

    def _name_more(self) -> None:
        """Say on the button what is limited; its name begins with what it shows."""
        summary = self.constraint.summary(self._feature)
        words = f"Limits: {summary}" if summary else "Limits"
        self._more.set_text(words)
        expanded = "true" if self._panel.visible else "false"
        elements.describe(self._more, aria_label=f"{words} ({self._feature.title})", aria_expanded=expanded)

    def _show_strip(self) -> None:
        value = self.value
        self._strip.show(None if value != value else value, self.constraint)

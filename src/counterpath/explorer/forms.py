"""The controls of the page: which row, its values, what may become of each feature, and what is requested."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from random import randrange
from typing import Any

import pandas as pd
from nicegui import background_tasks, ui

from counterpath.data.constraints import DOWN, UP, is_interval
from counterpath.data.encoding import NumberAxis, value_axis
from counterpath.data.expressions import quoted
from counterpath.data.schema import KINDS, Feature
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import wording
from counterpath.explorer import elements, state
from counterpath.explorer.state import BOTH, MOST_MATCHES, FeatureConstraint, LoadedModel
from counterpath.search.methods import method_names, resolve_method
from counterpath.utils.errors import CounterpathError, InputError

_DIRECTIONS = {BOTH: "up or down", UP: "only up", DOWN: "only down"}
_TYPING_PAUSE = 0.2
"""Seconds without a keystroke after which edited values are predicted: not after every digit, and without a wait."""


def available_methods(explainer: Explainer) -> list[str]:
    """The methods for which all that they need was fitted, the explainer's own first."""
    names = dict.fromkeys([resolve_method(explainer.method).name, *method_names()])
    return [name for name in names if explainer.can_search(name)]


def default_target(explainer: Explainer) -> Any:
    """The class that people probably want: of two the second, as in labels 0 and 1; else any but the present one."""
    return explainer.classes_[1] if len(explainer.classes_) == 2 else OTHER


def as_integer(value: Any) -> Any:
    """A whole number as an integer, for a field gives all as floats; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class TargetFields:
    """The fields that every request has: the class, its confidence and the method. They go into the current row.

    Args:
        explainer: The model.
        on_target: Called when another class is chosen.
        on_method: Called when another method is chosen.
    """

    def __init__(
        self,
        explainer: Explainer,
        on_target: Callable[[], None] | None = None,
        on_method: Callable[[], None] | None = None,
    ) -> None:
        classes = {label: wording.class_text(explainer.schema_, label) for label in explainer.classes_}
        classes |= {} if OTHER in classes else {OTHER: "any other class"}
        target = default_target(explainer)
        self._numbers = explainer.models_.explained.numbers
        if self._numbers:
            classes = {OTHER: "a number in a range"}
        self.target = ui.select(classes, label="Wanted decision", value=target, on_change=on_target)
        self.confidence = ui.number("Confidence", step=0.05)
        unit = f", {explainer.schema_.target_unit}" if explainer.schema_.target_unit else ""
        self.least, self.most = (ui.number(f"Predicted at {end}{unit}") for end in ("least", "most"))
        self.confidence.set_visibility(not self._numbers)
        for each in (self.least, self.most):
            each.set_visibility(self._numbers)
        methods = available_methods(explainer)
        self.method = ui.select(methods, label="Method", value=methods[0], on_change=on_method)

    def request(self, **more: Any) -> Request:
        """The request that the fields make with further arguments."""
        asked = {"method": str(self.method.value), **more}
        if self._numbers:
            return Request(target_range=(self.least.value, self.most.value), **asked)
        return Request(target_class=self.target.value, confidence=self.confidence.value, **asked)


class FeatureCard:
    """The controls of one feature.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        on_value: Called when the value was edited.
        on_constraint: Called when what may become of it was.
    """

    def __init__(
        self, explainer: Explainer, feature: Feature, on_value: Callable[[], None], on_constraint: Callable[[], None]
    ) -> None:
        self._feature, self._explainer = feature, explainer
        self._on_value, self._on_constraint = on_value, on_constraint
        self.constraint = FeatureConstraint.default(feature)
        index = explainer.schema_.index(feature.name)
        self._axis = value_axis(explainer.encoder_.axes[index])
        codes = [code for code in explainer.encoder_.seen[index] if code < len(feature.categories)]
        known = [*(feature.categories[code] for code in codes), *([None] if feature.missing else [])]
        self._categories = {category: wording.shown(feature, category) for category in known}
        self._silent, self._is_time = False, KINDS[feature.kind].times
        with elements.box("article", "cp-card", aria_label=f"Feature {feature.title}") as self._card:
            elements.set_class(self._card, "cp-fixed", feature.immutable)
            self._build()

    @property
    def value(self) -> Any:
        """The value as it stands in the field."""
        return self._value.value or None if self._is_time else as_integer(self._value.value)

    def show_value(self, value: Any) -> None:
        """Put a value into its field, without calling back."""
        self._silent = True
        value = None if pd.isna(value) else value
        if isinstance(self._value, ui.select):
            self._value.set_options({**self._categories, value: wording.shown(self._feature, value)})
        shown: Any = wording.value(value) if self._is_time and value is not None else value
        self._value.set_value(shown)
        self._silent = False

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
        with ui.element("div").classes("cp-card-head"):
            title = elements.text("h3", feature.title)
            if feature.description:
                elements.describe(title, title=feature.description)
            if feature.immutable:
                elements.text("span", "cannot change", "cp-badge")
            locked = feature.immutable or self.constraint.locked
            lock = ui.switch("Lock", value=locked, on_change=self._constrained).props("dense")
            lock.set_enabled(not feature.immutable)
            self._controls: dict[str, Any] = {"locked": elements.describe(lock, aria_label=f"Lock {feature.title}")}
        if self.constraint.locked:
            elements.text("p", wording.NOT_ACTIONABLE, "cp-soft")
        self._value = elements.describe(self._value_field(), aria_label=f"Value of {feature.title}")
        self._value_error = elements.error_label()
        if not feature.immutable:
            with ui.expansion().props("dense dense-toggle") as self._more:
                self._build_constraint()
            self._summarize()
        self._constraint_error = elements.error_label()

    def _build_constraint(self) -> None:
        """A control for each part of a constraint, by its name."""
        has_ends = isinstance(self._axis, NumberAxis) or is_interval(self._feature)
        with ui.element("div").classes("cp-fields"):
            direction = ui.select(_DIRECTIONS, label="Direction", value=BOTH, on_change=self._constrained)
            if KINDS[self._feature.kind].one_hot:
                elements.describe(direction, hint="its values have no order").disable()
            cost = ui.number("Cost of change", value=1, min=0, step=0.5, on_change=self._constrained)
            self._controls |= {"direction": direction, "cost": elements.describe(cost, hint="1 is usual")}
            for name, label in (("low", "At least"), ("high", "At most")) if has_ends else ():
                self._controls[name] = (
                    ui.input(label, on_change=self._constrained).props("clearable")
                    if self._is_time
                    else ui.number(label, on_change=self._constrained)
                    if isinstance(self._axis, NumberAxis)
                    else ui.select(self._categories, label=label, clearable=True, on_change=self._constrained)
                )
        if not has_ends:
            allowed = ui.select(self._categories, label="Allowed values", multiple=True, on_change=self._constrained)
            self._controls["allowed"] = elements.describe(allowed.classes("cp-full"), hint="none chosen: all are")
        stays = ui.switch("From the start on, not only in the end", on_change=self._constrained).props("dense")
        self._controls["stays"] = elements.describe(
            stays, aria_label=f"{self._feature.title} must be so from the start"
        )

    def _value_field(self) -> ui.number | ui.select | ui.input:
        axis = self._axis
        if self._is_time:
            return ui.input(on_change=self._edited).props("dense")
        if not isinstance(axis, NumberAxis):
            return ui.select(self._categories, on_change=self._edited).props("dense options-dense")
        field = ui.number(on_change=self._edited).props("dense")
        unit = {"suffix": self._feature.unit} if self._feature.unit else {}
        step = self._feature.step or (1 if axis.whole else "any")
        hint = [wording.legal(self._feature, axis.lower, axis.upper)]
        hint += [f"{wording.value(code)} is {meaning}" for code, meaning in self._feature.codes.items()]
        hint += ["empty is missing"] if self._feature.missing else []
        return elements.describe(field, step=step, hint="; ".join(hint), **unit)

    def _edited(self) -> None:
        if not self._silent:
            self._on_value()

    def _constrained(self) -> None:
        if self._silent:
            return
        values = {name: as_integer(control.value) for name, control in self._controls.items()}
        values |= {name: values[name] or None for name in ("low", "high") if self._is_time and name in values}
        self.constraint = FeatureConstraint(**values | {"allowed": tuple(values.get("allowed", ()))})
        self._summarize()
        self._on_constraint()

    def _summarize(self) -> None:
        summary = self.constraint.summary(self._feature)
        self._more.set_text(f"Limits: {summary or 'none'}")
        elements.set_class(self._card, "cp-limited", bool(summary))


class RuleList:
    """Rules between features: a field to write one, and those that there are, each with a button to remove it.

    Args:
        explainer: Knows the features; the rules of its schema always hold, and are listed too.
        on_change: Called when there is another rule, or one less.
    """

    def __init__(self, explainer: Explainer, on_change: Callable[[], None] = lambda: None) -> None:
        self._explainer, self._on_change = explainer, on_change
        self.rules: tuple[str, ...] = ()
        with ui.element("div").classes("cp-row"):
            self._text = ui.input("Rule between features").props("dense outlined clearable").classes("cp-grow")
            elements.describe(self._text, hint=f"such as {_example_rule(explainer)}; plans keep to it in every step")
            self._text.on("keydown.enter", self._add)
            elements.button("Add rule", self._add)
        self._error = elements.error_label()
        self._note = elements.text("p", "", "cp-soft", role="status")
        self._listed = elements.box("ul", "cp-rules", aria_label="Rules")
        self._show()

    def remove(self, text: str) -> None:
        """Drop a rule."""
        self.rules = tuple(each for each in self.rules if each != text)
        self._note.set_text("")
        self._changed()

    def _add(self) -> None:
        text = (self._text.value or "").strip()
        if not text:
            return
        try:
            rule, note = state.read_rule(self._explainer, self.rules, text)
        except InputError as error:
            self._error.set_text(str(error))
            return
        self.rules = (*self.rules, rule)
        self._text.set_value("")
        self._note.set_text(note)
        self._changed()

    def _changed(self) -> None:
        self._error.set_text("")
        self._show()
        self._on_change()

    def _show(self) -> None:
        self._listed.clear()
        with self._listed:
            for text in self._explainer.schema_.rules:
                with ui.element("li").classes("cp-row"):
                    elements.text("code", text)
                    elements.text("span", "always", "cp-badge")
            for text in self.rules:
                with ui.element("li").classes("cp-row"):
                    elements.text("code", text)
                    elements.button("Remove", partial(self.remove, text), "flat dense", f"Remove the rule {text}")


def _example_rule(explainer: Explainer) -> str:
    """A rule about a number of this model."""
    numbers = [each.name for each in explainer.schema_ if not each.categories and not KINDS[each.kind].times]
    return f"{quoted(numbers[0])} <= 10" if numbers else f"{quoted(explainer.schema_.names[0])} changes => …"


class RowForm:
    """The sections Person, Features and Rules.

    Args:
        model: The model, and the rows to choose from.
        target_class: Gives the class that is wanted now.
        on_other_row: Called when another row is on the page.
        on_edit: Called when a value was edited, or a constraint.
    """

    def __init__(
        self,
        model: LoadedModel,
        target_class: Callable[[], Any],
        on_other_row: Callable[[], None],
        on_edit: Callable[[], None],
    ) -> None:
        self._model, self._target_class, self._schema = model, target_class, model.explainer.schema_
        self._on_other_row, self._on_edit = on_other_row, on_edit
        self._index = -1
        self._label: Any = ""
        self._task: asyncio.Task[Any] | None = None
        with elements.section("person", "Person", "Pick somebody, then change any value below."):
            self._query = ui.input("Search people", on_change=self._search)
            self._query.props("dense outlined clearable debounce=150")
            hint = "values, or name=value; several words narrow it down"
            elements.describe(self._query, hint=hint, aria_label="Search people by their values")
            self._matches = elements.box("div", "cp-matches", role="list", aria_label="People found")
            self._matches.set_visibility(False)
            with ui.element("div").classes("cp-row"):
                elements.button("Random", lambda: self._pick(randrange(len(model.rows))))
                elements.button("Next rejected", self.pick_next_rejected)
            self._picked = elements.text("p", "", "cp-soft", aria_live="polite")
            with elements.box("div", "cp-decision", role="status", aria_label="Decision of the model"):
                self._verdict = elements.text("div", "…", "cp-verdict")
                self._bars = ui.element("div").classes("cp-stack")
            self._error = elements.error_label()
        lead = "Values can be edited. Lock what must stay; set limits to what may change."
        with elements.section("features", "Features", lead):
            self._cards = {
                feature.name: FeatureCard(model.explainer, feature, self._edited, self._constrained)
                for feature in model.explainer.schema_
            }
        with elements.section("rules", "Rules", "What must hold between features, in every step of every plan."):
            self._rules = RuleList(model.explainer, on_edit)
        ui.context.client.on_delete(self._cancel)

    @property
    def rules(self) -> tuple[str, ...]:
        """What must hold between features, beside the rules of the schema."""
        return self._rules.rules

    def drop_rule(self, text: str) -> None:
        """Take a rule back."""
        self._rules.remove(text)

    @property
    def constraints(self) -> dict[str, FeatureConstraint]:
        """What may become of each feature."""
        return {name: card.constraint for name, card in self._cards.items()}

    def constrain(self, name: str, constraint: FeatureConstraint) -> None:
        """Put another constraint on a feature."""
        self._cards[name].show_constraint(constraint)

    def open(self, row: pd.DataFrame) -> None:
        """Show a row that need not be one of those to choose from: one row, under its label."""
        label = row.index.tolist()[0]
        values = {str(name): row[name].tolist()[0] for name in row}
        self._show(label, values, f"Row {wording.value(label)}, opened from a group.")

    def pick_next_rejected(self) -> None:
        """Take the next row of the table that the model rejects; at first, if there is none, the first one."""
        index = self._model.rows.next_rejected(self._index, self._target_class())
        if index is not None or self._index < 0:
            self._pick(index or 0)
        else:
            ui.notify("The model rejects nobody in this table.")

    def checked_row(self) -> pd.DataFrame | None:
        """The row, if its values and constraints can be, and it keeps these; else what cannot be is marked."""
        row = self._row()
        known = row is not None and bool(self._model.explainer.encoder_.known(row).all())
        kept = [card.check_constraint(row if known else None) for card in self._cards.values()]
        return row if all(kept) else None

    def _row(self) -> pd.DataFrame | None:
        """The row, if its values can be; else those that cannot are marked."""
        right = [card.check_value(self._label) for card in self._cards.values()]
        if not all(right):
            return None
        values = {name: card.value for name, card in self._cards.items()}
        return state.single_row(self._model.explainer, values, self._label)

    def _pick(self, index: int) -> None:
        """Take the row at a position of the table."""
        rows = self._model.rows
        self._index = index
        self._matches.set_visibility(False)
        where = f"Row {rows.label(index)}, one of {len(rows):,} people, as in the table."
        self._show(rows.label(index), rows.values(index), where)

    def _search(self) -> None:
        query = (self._query.value or "").strip()
        self._matches.clear()
        self._matches.set_visibility(bool(query))
        if not query:
            return
        found = self._model.rows.search(query)
        with self._matches:
            for index in found:
                predicted = self._model.rows.predicted[index]
                known = f"the model predicts {wording.class_text(self._schema, predicted)}"
                says = "a value unknown to the model" if predicted is None else known
                on_click = partial(self._pick, index)
                with ui.item(on_click=on_click).props("dense role=listitem"), ui.item_section():
                    ui.item_label(f"Row {self._model.rows.label(index)}: {says}")
                    ui.item_label(self._model.rows.summary(index)).props("caption")
            if not found:
                ui.label("Nobody has that; try fewer words, or age=40.").classes("cp-soft")
            if len(found) == MOST_MATCHES:
                ui.label(f"The first {MOST_MATCHES} are shown; more words narrow it down.").classes("cp-soft")

    def _show(self, label: Any, values: Mapping[str, Any], where: str) -> None:
        self._label = label
        self._picked.set_text(where)
        for name, value in values.items():
            self._cards[name].show_value(value)
        self._on_other_row()
        self._predict_after(0)

    def _edited(self) -> None:
        self._picked.set_text(f"Row {wording.value(self._label)}, with values that you have edited.")
        self._on_edit()
        self._predict_after(_TYPING_PAUSE)

    def _constrained(self) -> None:
        self._on_edit()
        self.checked_row()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _predict_after(self, pause: float) -> None:
        self._cancel()
        self._task = background_tasks.create(self._predict(pause), name="predict")

    async def _predict(self, pause: float) -> None:
        await asyncio.sleep(pause)
        self.checked_row()  # a range may be wrong for other values
        row = self._row()
        if row is None:
            self._show_prediction({}, "A value cannot be; it is marked in red.")
            return
        try:
            self._show_prediction(await self._model.predict_proba(row))
        except CounterpathError as error:
            self._show_prediction({}, str(error))

    def _show_prediction(self, probabilities: Mapping[Any, float], error: str = "") -> None:
        """Show the decision and the probability of each class; or why there is none."""
        self._error.set_text(error)
        says = "No decision"
        if probabilities and self._model.explainer.models_.explained.numbers:
            said = wording.predicted(self._schema, next(iter(probabilities.values())))
            self._verdict.set_text(f"The model predicts {said}")
            return
        if probabilities:
            best = self._model.decision(probabilities)
            chance = wording.percent(probabilities[best])
            says = f"The model predicts {wording.class_text(self._schema, best)} ({chance})"
        self._verdict.set_text(says)
        self._bars.clear()
        with self._bars:
            for label, probability in probabilities.items():
                with ui.element("div").classes("cp-bar"):
                    ui.label(wording.class_text(self._schema, label))
                    with ui.element("div").classes("cp-track"):
                        ui.element("div").classes("cp-fill").style(f"width: {100 * probability:.1f}%")
                    ui.label(wording.percent(probability))

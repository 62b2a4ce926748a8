"""The controls of the page: which person, their values, what may become of each feature, and what is asked."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import randrange
from typing import Any

import pandas as pd
from nicegui import background_tasks, ui

from counterpath.data.rules.expressions import quoted
from counterpath.data.schema import KINDS
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import wording
from counterpath.explorer import elements, state
from counterpath.explorer.feature_rows import FeatureRow, as_integer
from counterpath.explorer.state import MOST_MATCHES, FeatureConstraint, LoadedModel
from counterpath.explorer.url_state import PageState
from counterpath.search.methods import method_names, resolve_method
from counterpath.utils.errors import CounterpathError, InputError

_TYPING_PAUSE = 0.2
"""Seconds without a keystroke after which edited values are predicted: not after every digit, and without a wait."""
MOST_PLANS = 12
"""Plans that may be asked for: more than anybody compares, and each is a search."""
COMPACT = "dense hide-bottom-space"
"""How fields look of which there are several in a line."""
INVALID = "Correct what is marked in red first."


def available_methods(explainer: Explainer) -> list[str]:
    """The methods for which all that they need was fitted, the explainer's own first."""
    names = dict.fromkeys([resolve_method(explainer.method).name, *method_names()])
    return [name for name in names if explainer.can_search(name)]


def default_target(explainer: Explainer) -> Any:
    """The class that people probably want: of two the second, as in labels 0 and 1; else any but the present one."""
    return explainer.classes_[1] if len(explainer.classes_) == 2 else OTHER


def count_error(value: Any, most: int, *, may_be_empty: bool = False) -> str:
    """Why a field does not hold a number of things from 1 to the most; or nothing."""
    if value is None and may_be_empty:
        return ""
    whole = isinstance(value, int | float) and math.isfinite(value) and value == round(value)
    return "" if whole and 1 <= value <= most else f"Enter a whole number from 1 to {most:,}."


def percent_error(value: Any) -> str:
    """Why a field does not hold a probability in percent, or nothing; if it is empty, the model's decision counts."""
    right = value is None or (isinstance(value, int | float) and 0 < value < 100)
    return "" if right else "Enter a percentage above 0 and below 100."


class TargetFields:
    """The fields that every request has: the decision, its probability and the method. They go into the current row.

    Args:
        explainer: The model.
        on_change: Called when any of them was edited.
    """

    def __init__(self, explainer: Explainer, on_change: Callable[[], None] = lambda: None) -> None:
        classes = {label: wording.class_text(explainer.schema_, label) for label in explainer.classes_}
        classes |= {} if OTHER in classes else {OTHER: "any other decision"}
        self._numbers = explainer.models_.explained.numbers
        if self._numbers:
            classes = {OTHER: "a number in a range"}
        target = default_target(explainer)
        self.target = ui.select(classes, label="Wanted decision", value=target, on_change=on_change)
        self.confidence = ui.number(
            "Minimum probability",
            step=5,
            suffix="%",
            validation=lambda value: percent_error(value) or None,
            on_change=on_change,
        )
        self.confidence.props('stack-label placeholder="as the model decides"')
        unit = f", {explainer.schema_.target_unit}" if explainer.schema_.target_unit else ""
        self.least, self.most = (
            ui.number(f"Predicted at {end}{unit}", on_change=on_change) for end in ("least", "most")
        )
        self.confidence.set_visibility(not self._numbers)
        for each in (self.least, self.most):
            each.set_visibility(self._numbers)
        self.robust, self.noise = (
            ui.number(words, step=5, suffix="%", validation=lambda v: percent_error(v) or None, on_change=on_change)
            for words in ("Lasts with retrained models", "Survives small deviations")
        )
        for each, hint in ((self.robust, "share of them that accept it"), (self.noise, "share of them it survives")):
            each.props('stack-label placeholder="not asked"')
            elements.describe(each, hint=hint)
        self.robust.set_visibility(explainer.models_.family is not None)
        for field in (self.target, self.confidence, self.least, self.most, self.robust, self.noise):
            field.props(COMPACT)
        self._methods = available_methods(explainer)
        self.method = ui.select(self._methods, label="Method", value=self._methods[0], on_change=on_change)
        self.method.props(COMPACT)

    @property
    def values(self) -> dict[str, Any]:
        """What the fields hold, by name."""
        return {
            "target": as_integer(self.target.value),
            "percent": as_integer(self.confidence.value),
            "least": as_integer(self.least.value),
            "most": as_integer(self.most.value),
            "robust": as_integer(self.robust.value),
            "noise": as_integer(self.noise.value),
            "method": self.method.value,
        }

    def show(self, values: Mapping[str, Any]) -> None:
        """Put values into the fields; of a choice that there is not, the present one stays."""
        for name, control in (("target", self.target), ("method", self.method)):
            if values.get(name) in control.options:
                control.set_value(values[name])
        numbers = {"percent": self.confidence, "least": self.least, "most": self.most}
        for name, field in (numbers | {"robust": self.robust, "noise": self.noise}).items():
            value = values.get(name)
            field.set_value(value if isinstance(value, int | float) else None)

    def request(self, **more: Any) -> Request:
        """The request that the fields make with further arguments.

        Raises:
            InputError: A field holds what cannot be.
        """
        if percent_error(self.robust.value) or percent_error(self.noise.value):
            raise InputError(INVALID)
        lasting = {"robust": self.robust.value, "noise": self.noise.value}
        lasting = {name: percent / 100 for name, percent in lasting.items() if percent is not None}
        asked: dict[str, Any] = {"method": str(self.method.value), **lasting, **more}
        if self._numbers:
            if self.least.value is None and self.most.value is None:
                raise InputError("Enter the least or the most that is to be predicted.")
            return Request(target_range=(self.least.value, self.most.value), **asked)
        if percent_error(self.confidence.value):
            raise InputError(INVALID)
        percent = self.confidence.value
        return Request(target_class=self.target.value, confidence=None if percent is None else percent / 100, **asked)


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
        self._listed = elements.box("ul", "cp-rules", aria_label="List of rules")
        self._show()

    def show(self, rules: Sequence[str]) -> None:
        """List these rules instead of those that are there, without calling back; what cannot be is left out."""
        self.rules, problems = (), []
        for text in rules:
            try:
                rule, _ = state.read_rule(self._explainer, self.rules, text)
                self.rules = (*self.rules, rule)
            except InputError as error:
                problems.append(str(error))
        self._error.set_text(" ".join(problems))
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
    """The sections Person, Features and Rules, and the decision of the model about the person.

    Args:
        model: The model, and the rows to choose from.
        decision: Where the decision is shown.
        target_class: Gives the class that is wanted now.
        on_other_row: Called when another person is on the page.
        on_edit: Called when a value was edited, a constraint or a rule; with the name of the field.
        on_enter: Called when Enter is pressed in a field of a feature.
        build_tools: Makes the buttons beside those that pick a person.
    """

    def __init__(
        self,
        model: LoadedModel,
        decision: "DecisionView",
        target_class: Callable[[], Any],
        on_other_row: Callable[[], None],
        on_edit: Callable[[str], None],
        on_enter: Callable[[], None],
        build_tools: Callable[[], None],
    ) -> None:
        self._model, self._target_class, self._schema = model, target_class, model.explainer.schema_
        self._decision, self._on_other_row, self._on_edit = decision, on_other_row, on_edit
        self.index: int | None = -1
        self._label: Any = ""
        self._where = ""
        self._task: asyncio.Task[Any] | None = None
        with elements.section("person", "Person"):
            self._build_search()
            with ui.element("div").classes("cp-row"):
                elements.button("Next rejected", self.pick_next_rejected)
                elements.button("Random", lambda: self.pick(randrange(len(model.rows))))
                build_tools()
            with ui.element("div").classes("cp-row"):
                self._badge = elements.text("span", "training record", "cp-badge cp-training")
                self._picked = elements.text("p", "", "cp-soft", aria_live="polite")
        lead = (
            "Edit any value. Bars show the training rows; the sliders under them say what a value may become. "
            "A lock keeps it as it is."
        )
        self._rows: dict[str, FeatureRow] = {}
        with elements.section("features", "Features", lead):
            free = [each for each in self._schema if each.actionable and not each.immutable]
            fixed = [each for each in self._schema if each not in free]
            for title, features in (("Can change", free), ("Cannot change", fixed)):
                if not features:
                    continue
                with elements.box("section", "cp-group", aria_label=title):
                    elements.text("h3", title)
                    for feature in features:
                        edited, constrained = (
                            partial(self._edited, feature.name),
                            partial(self._constrained, feature.name),
                        )
                        self._rows[feature.name] = FeatureRow(model, feature, edited, constrained, on_enter)
        self._rows = {name: self._rows[name] for name in self._schema.names}
        with elements.section("rules", "Rules", "What must hold between features, in every step of every plan."):
            self._rules = RuleList(model.explainer, lambda: on_edit("rules"))
        ui.context.client.on_delete(self._cancel)

    @property
    def rules(self) -> tuple[str, ...]:
        """What must hold between features, beside the rules of the schema."""
        return self._rules.rules

    def drop_rule(self, text: str) -> None:
        """Take a rule back."""
        self._rules.remove(text)

    @property
    def label(self) -> Any:
        """What the person is called in their table."""
        return self._label

    @property
    def constraints(self) -> dict[str, FeatureConstraint]:
        """What may become of each feature."""
        return {name: row.constraint for name, row in self._rows.items()}

    @property
    def values(self) -> dict[str, Any]:
        """The value of each feature, as its field has it."""
        return {name: row.value for name, row in self._rows.items()}

    def constrain(self, name: str, constraint: FeatureConstraint) -> None:
        """Put another constraint on a feature."""
        self._rows[name].show_constraint(constraint)
        self._on_edit(f"limit {name}")

    def defaults(self, index: int | None) -> PageState:
        """What stands on the page where somebody of its table was picked, and nothing was edited."""
        constraints = {name: row.default for name, row in self._rows.items()}
        if index is None or not 0 <= index < len(self._model.rows):
            return PageState(None, {}, constraints)
        given = self._model.rows.values(index)
        return PageState(index, {name: self._as_shown(name, value) for name, value in given.items()}, constraints)

    def _as_shown(self, name: str, value: Any) -> Any:
        """A value of a table as its field has it."""
        if pd.api.types.is_scalar(value) and pd.isna(value):
            return None
        return wording.value(value) if KINDS[self._schema[name].kind].times else as_integer(value)

    def show_state(self, shown: PageState, label: Any = None) -> None:
        """Show what stood on the page at another time, without calling back."""
        known = shown.row is not None and 0 <= shown.row < len(self._model.rows)
        same_stranger = self.index is None and shown.row is None
        self.index = shown.row if known else None
        if known:
            assert shown.row is not None
            opened = "" if label is None else " Opened from a group."
            self._label, self._where = self._model.rows.label(shown.row), self._described(shown.row) + opened
        elif label is not None:
            self._label, self._where = label, f"Person {wording.value(label)}, opened from a group."
        elif not same_stranger:
            self._label, self._where = "of a link", "A person who is not in the table of this page."
        for name, row in self._rows.items():
            row.show_value(shown.values.get(name))
            row.show_constraint(shown.constraints[name])
        self._rules.show(shown.rules)
        self._say_who()
        self._predict_after(0)

    def pick_next_rejected(self) -> None:
        """Take the next row of the table that the model rejects; at first, if there is none, the first one."""
        before = -1 if self.index is None else self.index
        index = self._model.rows.next_rejected(before, self._target_class())
        if index is not None or before < 0:
            self.pick(index or 0)
        else:
            ui.notify("The model rejects nobody in this table.")

    def checked_row(self) -> pd.DataFrame | None:
        """The row, if its values and constraints can be, and it keeps these; else what cannot be is marked."""
        row = self._row()
        known = row is not None and bool(self._model.explainer.encoder_.known(row).all())
        kept = [each.check_constraint(row if known else None) for each in self._rows.values()]
        return row if all(kept) else None

    def _row(self) -> pd.DataFrame | None:
        """The row, if its values can be; else those that cannot are marked."""
        right = [row.check_value(self._label) for row in self._rows.values()]
        if not all(right):
            return None
        return state.single_row(self._model.explainer, self.values, self._label)

    def pick(self, index: int) -> None:
        """Take the row at a position of the table."""
        rows = self._model.rows
        self.index, self._label, self._where = index, rows.label(index), self._described(index)
        self._matches.set_visibility(False)
        self._show(rows.values(index))

    def _described(self, index: int) -> str:
        rows = self._model.rows
        whose = "in the model's training data" if rows.training else "in the table"
        return f"{rows.title(index)}, one of {len(rows):,} people {whose}."

    def _build_search(self) -> None:
        self._query = ui.input("Search people", on_change=self._search)
        self._query.props("dense outlined clearable debounce=150 hide-bottom-space")
        elements.on_value(self._query, "keydown.enter", self._pick_first)
        hint = "values, or name=value; several words narrow it down; Enter takes the first"
        elements.describe(self._query, hint=hint, aria_label="Search people by their values")
        self._found: list[int] = []
        self._matches = elements.box("ul", "cp-matches", aria_label="People found")
        self._matches.set_visibility(False)
        self._none = elements.text("p", "", "cp-soft", role="status")

    def _search(self) -> None:
        query = (self._query.value or "").strip()
        self._matches.clear()
        self._found = self._model.rows.search(query) if query else []
        self._matches.set_visibility(bool(self._found))
        with self._matches:
            for index in self._found:
                predicted = self._model.rows.predicted[index]
                known = f"the model predicts {wording.class_text(self._schema, predicted)}"
                says = "a value unknown to the model" if predicted is None else known
                with ui.element("li"), ui.element("button").on("click", partial(self.pick, index)):
                    elements.text("span", f"{self._model.rows.title(index)}: {says}", "cp-match")
                    elements.text("span", self._model.rows.summary(index), "cp-soft")
        more = f"The first {MOST_MATCHES} are shown; more words narrow it down."
        nobody = "Nobody has that; try fewer words, or age=40." if query else ""
        self._none.set_text(nobody if not self._found else more if len(self._found) == MOST_MATCHES else "")

    def _pick_first(self, query: str) -> None:
        self._query.set_value(query)  # the field waits a moment before it reports the last letter
        if self._found:
            self.pick(self._found[0])
            self._none.set_text("")

    def _show(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._rows[name].show_value(value)
        self._say_who()
        self._on_other_row()
        self._predict_after(0)

    def _say_who(self) -> None:
        """Say whose values are shown, and whether they were edited."""
        defaults = self.defaults(self.index)
        edited = self.index is not None and self.values != defaults.values
        self._picked.set_text(self._where + (" With values that you have edited." if edited else ""))
        self._badge.set_visibility(self._model.rows.training and self.index is not None)

    def _edited(self, name: str) -> None:
        self._say_who()
        self._on_edit(f"value {name}")
        self._predict_after(_TYPING_PAUSE)

    def _constrained(self, name: str) -> None:
        self._on_edit(f"limit {name}")
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
            self._decision.show({}, "Invalid value: it is marked in red.")
            return
        try:
            self._decision.show(await self._model.predict_proba(row))
        except CounterpathError as error:
            self._decision.show({}, elements.sentence(str(error)))


class DecisionView:
    """What the model decides about the person as they stand on the page, for a bar that stays in sight."""

    def __init__(self, model: LoadedModel) -> None:
        self._model, self._schema = model, model.explainer.schema_
        with elements.box("div", "cp-decision", role="status", aria_label="Decision of the model"):
            self._verdict = elements.text("p", "…", "cp-verdict")
            self._bars = ui.element("div").classes("cp-odds-bars")
        self._error = elements.error_label()

    def show(self, probabilities: Mapping[str, float] | Mapping[Any, float], error: str = "") -> None:
        """Show the decision and the probability of each class; or why there is none."""
        self._error.set_text(error)
        says = "No decision"
        self._bars.clear()
        if probabilities and self._model.explainer.models_.explained.numbers:
            said = wording.predicted(self._schema, next(iter(probabilities.values())))
            self._verdict.set_text(f"The model predicts {said}")
            return
        if probabilities:
            best = self._model.decision(probabilities)
            chance = wording.percent(probabilities[best])
            says = f"The model predicts {wording.class_text(self._schema, best)} ({chance})"
        self._verdict.set_text(says)
        with self._bars:
            for label, probability in probabilities.items():
                with ui.element("div").classes("cp-bar"):
                    ui.label(wording.class_text(self._schema, label))
                    with ui.element("div").classes("cp-track"):
                        ui.element("div").classes("cp-fill").style(f"width: {100 * probability:.1f}%")
                    ui.label(wording.percent(probability))

"""The controls of many people: conditions and saved cohorts, and limits to what may become of everybody."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import ui

from counterpath.data.axes import value_axis
from counterpath.data.schema import KINDS
from counterpath.explanation import wording
from counterpath.explorer import elements
from counterpath.explorer.cohorts import LONGEST_NAME, MOST_COHORTS, Cohort, Condition, cohorts_from_json, is_feasible
from counterpath.explorer.feature_rows import as_integer, constraint_fields, known_categories, read_constraint
from counterpath.explorer.state import FeatureConstraint, LoadedModel, constraint_error
from counterpath.utils.errors import InputError

_READ = "localStorage.getItem(%s)"
_WRITE = "localStorage.setItem(%s, %s)"


class CohortForm:
    """Conditions that are edited, and cohorts that are saved.

    Args:
        model: Knows the features.
        on_change: Called when the conditions are others.
        on_saved: Called when the saved cohorts are others.
    """

    def __init__(self, model: LoadedModel, on_change: Callable[[], None], on_saved: Callable[[], None]) -> None:
        self._model, self._schema = model, model.explainer.schema_
        self._on_change, self._on_saved = on_change, on_saved
        self._key = json.dumps(f"counterpath-cohorts:{model.name}")
        self._controls: dict[str, tuple[Any, ...]] = {}
        self.saved: list[Cohort] = []
        with ui.element("div").classes("cp-row"):
            titles = {each.name: each.title for each in self._schema if not KINDS[each.kind].times}
            self._feature = ui.select(titles, label="Add a condition on", on_change=self._add).classes("cp-which")
            self.rejected = ui.switch("Only people whom the model rejects", value=True, on_change=on_change)
        self._list = elements.box("div", "cp-conditions")
        self._problem = elements.error_label()
        with ui.element("div").classes("cp-row"):
            self._name = ui.input("Name of this cohort", on_change=lambda: self._problem.set_text(""))
            self._name.props(f"dense outlined maxlength={LONGEST_NAME}").on("keydown.enter", self._save)
            elements.button("Save cohort", self._save)
            self._saved_row = elements.box("ul", "cp-rules cp-saved", aria_label="Saved cohorts")
        ui.timer(0, self._remember, once=True)

    @property
    def cohort(self) -> Cohort:
        """The cohort as it is edited now.

        Raises:
            InputError: A condition cannot be.
        """
        conditions = tuple(self._condition(name) for name in self._controls)
        if not is_feasible(conditions):
            raise InputError("A condition has its minimum above its maximum.")
        return Cohort((self._name.value or "").strip() or "this cohort", conditions, bool(self.rejected.value))

    def _condition(self, name: str) -> Condition:
        feature, controls = self._schema[name], self._controls[name]
        if feature.categories:
            return Condition(name, categories=tuple(feature.categories[code] for code in controls[0].value or ()))
        low, high = (as_integer(each.value) for each in controls)
        return Condition(name, low, high)

    def _add(self) -> None:
        name = self._feature.value
        if name is None:
            return
        self._feature.set_value(None)
        if name not in self._controls:
            self._build(Condition(name))
            self._on_change()

    def _build(self, condition: Condition) -> None:
        """Controls for a condition."""
        feature = self._schema[condition.feature]
        with (
            self._list,
            elements.box("div", "cp-condition", role="group", aria_label=f"Condition on {feature.title}") as row,
        ):
            elements.text("span", feature.title, "cp-match")
            if feature.categories:
                options = {code: wording.shown(feature, each) for code, each in enumerate(feature.categories)}
                chosen = [list(feature.categories).index(each) for each in condition.categories]
                label = f"Values of {feature.title}"
                field = ui.select(options, label=label, value=chosen, multiple=True, on_change=self._on_change)
                self._controls[feature.name] = (field.classes("cp-grow").props("dense"),)
            else:
                ends = (("from", condition.low), ("to", condition.high))
                self._controls[feature.name] = tuple(
                    ui.number(f"{feature.title} {end}", value=value, on_change=self._on_change).props("dense")
                    for end, value in ends
                )
            remove = elements.button("Remove", None, "flat dense", f"Remove the condition on {feature.title}")
            remove.on_click(lambda: self._remove(feature.name, row))

    def _remove(self, name: str, row: ui.element) -> None:
        elements.focus("group-title")  # the button goes away
        del self._controls[name]
        row.delete()
        self._on_change()

    def use(self, cohort: Cohort) -> None:
        """Edit a cohort that was saved."""
        self._list.clear()
        self._controls = {}
        for condition in cohort.conditions:
            self._build(condition)
        self.rejected.set_value(cohort.rejected)
        self._name.set_value(cohort.name)
        self._on_change()

    def _save(self) -> None:
        name = (self._name.value or "").strip()
        if not name:
            self._problem.set_text("Give the cohort a name first.")
            return
        with elements.show_errors(self._problem):
            others = [each for each in self.saved if each.name != name]
            if len(others) >= MOST_COHORTS:
                raise InputError(f"There are {MOST_COHORTS} cohorts already; delete one first.")
            self.saved = [*others, self.cohort]
            self._write()

    def _delete(self, cohort: Cohort) -> None:
        elements.focus("group-title")  # the button goes away
        self.saved = [each for each in self.saved if each.name != cohort.name]
        self._write()

    def _write(self) -> None:
        text = json.dumps([each.to_json() for each in self.saved])
        ui.run_javascript(_WRITE % (self._key, json.dumps(text)))
        self._show()

    async def _remember(self) -> None:
        text = await elements.ask_browser(_READ % self._key)
        try:
            self.saved = cohorts_from_json(json.loads(text or "[]"), self._schema)
        except ValueError:  # another page of this origin wrote it
            self._problem.set_text("The saved cohorts cannot be read; saving one replaces them.")
        self._show()

    def _show(self) -> None:
        self._saved_row.clear()
        self._saved_row.set_visibility(bool(self.saved))
        with self._saved_row:
            for cohort in self.saved:
                with ui.element("li").classes("cp-row"):
                    words = cohort.text(self._schema)
                    use = elements.button(
                        cohort.name, partial(self.use, cohort), "outline dense", f"{cohort.name}: use"
                    )
                    elements.describe(use, title=words)
                    elements.button("Delete", partial(self._delete, cohort), "flat dense", f"Delete {cohort.name}")
        self._on_saved()


class LimitList:
    """What may become of everybody: for some features a range, a direction or the values that are allowed.

    Args:
        model: Knows the features.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model, self._schema = model, model.explainer.schema_
        self._controls: dict[str, dict[str, Any]] = {}
        free = {each.name: each.title for each in self._schema if not each.immutable}
        self._feature = ui.select(free, label="Add a limit on", on_change=self._add).classes("cp-which")
        self._list = elements.box("div", "cp-conditions")
        self._problem = elements.error_label()

    @property
    def constraints(self) -> dict[str, FeatureConstraint]:
        """The limits by feature.

        Raises:
            InputError: One of them cannot be.
        """
        found = {name: read_constraint(self._schema[name], controls) for name, controls in self._controls.items()}
        for name, constraint in found.items():
            error = constraint_error(self._model.explainer, self._schema[name], constraint, None)
            if error:
                raise InputError(f"{self._schema[name].title}: {error}")
        return found

    def _check(self) -> None:
        with elements.show_errors(self._problem):
            _ = self.constraints

    def _add(self) -> None:
        name = self._feature.value
        if name is None:
            return
        self._feature.set_value(None)
        if name in self._controls:
            return
        feature = self._schema[name]
        explainer = self._model.explainer
        axis = value_axis(explainer.encoder_.axes[explainer.schema_.index(name)])
        with (
            self._list,
            elements.box("div", "cp-condition", role="group", aria_label=f"Limit on {feature.title}") as row,
        ):
            elements.text("span", feature.title, "cp-match")
            categories = known_categories(explainer, feature)
            self._controls[name] = constraint_fields(feature, axis, categories, self._check, brief=True)
            remove = elements.button("Remove", None, "flat dense", f"Remove the limit on {feature.title}")
            remove.on_click(lambda: self._remove(name, row))

    def _remove(self, name: str, row: ui.element) -> None:
        elements.focus("group-title")  # the button goes away
        del self._controls[name]
        row.delete()
        self._check()

"""The path of one plan, with a slider along it."""

from nicegui import ui

from counterpath.explanation import wording
from counterpath.explanation.tables import path_features
from counterpath.explorer import elements
from counterpath.explorer.figures import cursor, path_figure
from counterpath.explorer.plan_cards import OUTDATED
from counterpath.explorer.state import Plan


class PathView:
    """Shows one path; a step of it is chosen by the slider."""

    def __init__(self) -> None:
        self._outdated = elements.text("p", OUTDATED, "cp-outdated")
        self._outdated.set_visibility(False)
        self._hint = elements.text("p", "The path of a plan appears here.", "cp-soft")
        self._outer = ui.element("div").classes("cp-stack")

    def mark_outdated(self, on: bool) -> None:
        """Say that the path is of what stood on the page before, or that it is not."""
        on = on and not self._hint.visible
        self._outdated.set_visibility(on)
        elements.set_class(self._outer, "cp-old", on)

    def clear(self) -> None:
        """Show no path."""
        self._outer.clear()
        self.mark_outdated(False)
        self._hint.set_visibility(True)

    def show(self, plan: Plan) -> None:
        """Show the path of a plan, from its end."""
        self.clear()
        self._hint.set_visibility(False)
        self._measured = elements.sentence(plan.row.measured).rstrip(".")
        self._points, self._schema = plan.explanation.path(plan.label), plan.explanation.schema
        self._features = path_features(self._points, self._schema.names)
        steps = self._points["step"].tolist()
        self._milestones = [steps.index(step) for step in plan.milestones["step"]]
        with self._outer:
            elements.text("h3", f"Plan {plan.number}, by {plan.method}")
            last = len(steps) - 1
            self._build_slider(last)
            self._position = elements.text("p", "", "cp-odds", aria_live="polite")
            self._values = elements.text("p", "", "cp-soft")
            self._drawing = elements.Drawing()
            self._drawing.show(path_figure(plan.explanation, plan.label))
            with ui.expansion("All values at this step").props("dense"):
                rows = [
                    [feature.title, wording.amount(feature, self._features[feature.name].array[0]), ""]
                    for feature in self._schema
                ]
                head = ["Feature", "Now", "At this step"]
                self._rows = elements.table("All values at this step of the path", head, rows)
        self._show_point(len(steps) - 1)

    def _build_slider(self, last: int) -> None:
        with ui.element("div").classes("cp-slider"):
            slider = ui.slider(
                min=0, max=max(last, 1), step=1, value=last, on_change=lambda e: self._move(int(e.value))
            )
            labels = [{"value": index, "label": self._milestone(index, short=True)} for index in self._milestones]
            elements.describe(slider, marker_labels=labels, aria_label="Step along the path")
            slider.set_enabled(last > 0)
        with ui.element("div").classes("cp-row"):
            for index in self._milestones:
                words = f"Back to {self._milestone(index)}" if index == 0 else f"To {self._milestone(index)}"
                elements.button(words, lambda index=index: slider.set_value(index), "flat dense")

    def _move(self, index: int) -> None:
        """Move to a point of the path."""
        self._show_point(index)
        self._drawing.relayout(cursor(int(self._points["step"].iloc[index])))

    def _show_point(self, index: int) -> None:
        """Show what holds at a point of the path."""
        point, last = self._points.iloc[index], len(self._points) - 1
        milestone = f" · {self._milestone(index)}" if index in self._milestones else ""
        self._position.set_text(f"Step {index} of {last}{milestone}")
        probability = wording.percent(point["probability"])
        uncertainty = wording.rounded(point["uncertainty"])
        self._values.set_text(f"{self._measured}: {probability} · uncertainty of the generative model: {uncertainty}")
        for feature, (row, cells) in zip(self._schema, self._rows, strict=True):
            values = self._features[feature.name].array
            first, here = values[0], values[index]
            cells[-1].set_text(wording.amount(feature, here))
            elements.set_class(row, "cp-moved", first != here)

    def _milestone(self, index: int, *, short: bool = False) -> str:
        if index == 0:
            return "now" if short else "start"
        if index == self._milestones[-1]:
            return "plan" if short else "the plan"
        number = self._milestones.index(index)
        return f"{number}" if short else f"milestone {number}"

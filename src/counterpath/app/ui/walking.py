"""The path of a plan: a slider along it, what holds at each step, and the chart of all of it."""

from typing import Any

from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.drawing import Drawing
from counterpath.app.ui.figures_path import cursor, path_figure
from counterpath.app.ui.plans import Plan
from counterpath.explanation import wording
from counterpath.explanation.columns import path_features


class Walking:
    """Shows one path; a step of it is chosen by the slider."""

    def __init__(self) -> None:
        self._hint = parts.text("p", "The path of a plan appears here.", "cp-soft")
        self._outer = ui.element("div").classes("cp-stack")

    def clear(self) -> None:
        """Show no path."""
        self._outer.clear()
        self._hint.set_visibility(True)

    def show(self, plan: Plan) -> None:
        """Show the path of a plan, from its end."""
        self.clear()
        self._hint.set_visibility(False)
        with self._outer:
            _Path(plan)


class _Path:
    def __init__(self, plan: Plan) -> None:
        self._points = plan.explanation.path(plan.label)
        self._features = path_features(self._points, plan.explanation.schema.names)
        steps, stops = self._points["step"].tolist(), plan.stops["step"].tolist()
        self._stops = {steps.index(step): number for number, step in enumerate(stops)}
        last, wanted = len(self._points) - 1, plan.wanted
        parts.text("h3", f"Plan {plan.number}, by {plan.method}")
        with ui.element("div").classes("cp-slider"):
            self._slider = ui.slider(
                min=0, max=max(last, 1), step=1, value=last, on_change=lambda e: self._go(int(e.value))
            )
            self._slider.props["marker-labels"] = [
                {"value": place, "label": self._milestone(place, short=True)} for place in self._stops
            ]
            parts.named(self._slider, "Step along the path")
            self._slider.set_enabled(last > 0)
        with ui.element("div").classes("cp-row"):
            for place in self._stops:
                words = f"To {self._milestone(place)}"
                ui.button(words, on_click=lambda place=place: self._slider.set_value(place)).props("flat dense no-caps")
        self._where = parts.text("p", "", "cp-odds")
        self._where.props["aria-live"] = "polite"
        self._said = parts.text("p", "", "cp-soft")
        self._wanted = wanted
        self._drawing = Drawing()
        self._drawing.show(path_figure(plan.explanation, plan.label))
        self._cells = self._table()
        self._tell(last)

    def _table(self) -> dict[str, tuple[Any, Any]]:
        """All features now and at a step; what is to be written there when another step is chosen."""
        cells = {}
        with ui.expansion("All values at this step").props("dense"), ui.element("table").classes("cp-table"):
            parts.text("caption", "All values at this step of the path", "cp-hidden")
            with ui.element("thead"), ui.element("tr"):
                for head in ("feature", "now", "at this step"):
                    parts.text("th", head).props["scope"] = "col"
            with ui.element("tbody"):
                for name in self._features:
                    with ui.element("tr") as row:
                        parts.text("th", str(name)).props["scope"] = "row"
                        parts.text("td", wording.value(self._features[name].iloc[0]))
                        cells[str(name)] = (row, parts.text("td", ""))
        return cells

    def _go(self, place: int) -> None:
        """Move to a point of the path."""
        self._tell(place)
        self._drawing.relayout(cursor(int(self._points["step"].iloc[place])))

    def _tell(self, place: int) -> None:
        """Show what holds at a point of the path."""
        point, last = self._points.iloc[place], len(self._points) - 1
        stop = f" · {self._milestone(place)}" if place in self._stops else ""
        self._where.set_text(f"Step {place} of {last}{stop}")
        chance, doubt = wording.probability(point["probability"]), wording.value(point["uncertainty"], digits=3)
        self._said.set_text(f"Probability of {self._wanted}: {chance} · uncertainty of the generative model: {doubt}")
        for name, (row, cell) in self._cells.items():
            first, here = self._features[name].iloc[0], self._features[name].iloc[place]
            cell.set_text(wording.texts((first, here))[1])
            moved = first != here
            row.classes(add="cp-moved" if moved else "", remove="" if moved else "cp-moved")

    def _milestone(self, place: int, *, short: bool = False) -> str:
        number = self._stops[place]
        if place == 0:
            return "now" if short else "the row as asked"
        if number == len(self._stops) - 1:
            return "plan" if short else "the plan"
        return f"{number}" if short else f"milestone {number}"

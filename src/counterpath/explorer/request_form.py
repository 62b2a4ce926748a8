"""The controls that say what is asked for: by which method, which class, how surely, how many plans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from counterpath.data.schema import Number
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import wording
from counterpath.explorer import parts
from counterpath.explorer.state import whole
from counterpath.search.methods import NEAREST, method_names, resolve_method

IN_WORDS = {
    "geodesic": "the cheapest realistic way through the whole data, then relaxed",
    "rsgd": "downhill in the latent space; leaving the data is expensive",
    "rsgd-c": "the same, in the terms in which the classifier sees rows",
    "sgd": "plain descent in the latent space; may leave the data",
    "flow": "plain descent in the latent space of a normalizing flow",
    "wachter": "plain descent on the values themselves; ignores the data",
    "ambient": "descent on the values, as the classifier sees them",
    "face": "from one training row to the next, until one is accepted",
    NEAREST: "straight to the nearest training row that is accepted",
}
"""What each method does, for people who choose one."""


@dataclass(frozen=True)
class Want:
    """What is asked for, beside the person and the limits; the names are those of `Asked`."""

    target_class: Any
    confidence: Number | None
    method: str
    plans: Any
    max_changes: Any


def available(explainer: Explainer) -> list[str]:
    """The methods for which all that they need was fitted, the explainer's own first."""
    names = [*dict.fromkeys([resolve_method(explainer.method).name, *IN_WORDS, *method_names()])]
    return [name for name in names if explainer.can_search(name)]


def favourable(explainer: Explainer) -> Any:
    """The class that people probably want: of two the second, as in labels 0 and 1; else any but the present one."""
    return explainer.classes_[1] if len(explainer.classes_) == 2 else OTHER


class Wanting:
    """The controls, with the buttons that start and stop a search.

    Args:
        explainer: The model.
        on_find: Called when plans are asked for.
        on_stop: Called when the search is to stop.
    """

    def __init__(self, explainer: Explainer, on_find: Callable[[], None], on_stop: Callable[[], None]) -> None:
        methods = {name: name for name in available(explainer)}
        classes = {label: wording.value(label) for label in explainer.classes_}
        classes |= {} if OTHER in classes else {OTHER: "any other class"}
        with ui.element("div").classes("cp-fields"):
            target = favourable(explainer)
            self._target = ui.select(classes, label="Wanted decision", value=target)
            self._confidence = ui.number("Confidence", value=0.5, step=0.05)
            self._confidence.props["hint"] = "the least probability"
            self._method = ui.select(methods, label="Method", value=explainer.method, on_change=self._explain)
            self._plans = ui.number("Plans", value=3, step=1)
            self._plans.props["hint"] = "at most"
            self._most = ui.number("Most changes", step=1)
            self._most.props["hint"] = "empty: any number"
        self._words = parts.text("p", "", "cp-soft")
        self._explain()
        self.problem = parts.problem()
        with ui.element("div").classes("cp-row"):
            self._find = ui.button("Find plans", on_click=on_find).props("unelevated no-caps")
            self._stop = ui.button("Stop", on_click=on_stop, color="negative").props("outline no-caps")
            with ui.element("div").classes("cp-busy") as busy:
                busy.props["role"] = "status"
                self._spinner = ui.spinner(size="20px")
                self._doing = ui.label()
        self.rest()

    @property
    def want(self) -> Want:
        """What the controls say."""
        plans, most = whole(self._plans.value), whole(self._most.value)
        return Want(self._target.value, self._confidence.value, str(self._method.value), plans, most)

    def allow_changes(self, most: int | None) -> None:
        """Let so many features change, or as many as needed."""
        self._most.set_value(most)

    def busy(self, doing: str) -> None:
        """Say what is being done, and offer to stop it."""
        self._doing.set_text(doing)
        self._spinner.set_visibility(True)
        self._stop.enable()
        self._find.disable()

    def rest(self, done: str = "") -> None:
        """Say what was done."""
        self._doing.set_text(done)
        self._spinner.set_visibility(False)
        self._stop.disable()
        self._find.enable()

    def _explain(self) -> None:
        name = str(self._method.value)
        self._words.set_text(f"{name}: {IN_WORDS.get(name, 'a method of your own')}.")

"""The controls of the group view: whom to explain, and what is asked for them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import events, ui

from counterpath.answering import OTHER
from counterpath.app.asking import Asked
from counterpath.app.ui import parts
from counterpath.app.ui.group_rows import AT_FIRST, MOST, Choice, drawn, fitting
from counterpath.app.ui.people import People
from counterpath.app.ui.wanting import available, favourable
from counterpath.data.frames import csv_table
from counterpath.errors import CounterpathError, InputError
from counterpath.explainer import Explainer
from counterpath.explanation import wording
from counterpath.explanation.keeping import MILESTONES

LARGEST = 1 << 20
"""How many bytes a table may have that is sent."""
_EVERYBODY = ""


class GroupAsking:
    """Whom to explain, and how.

    Args:
        explainer: The model.
        people: The rows that are there from the start.
    """

    def __init__(self, explainer: Explainer, people: People) -> None:
        self._explainer, self._given = explainer, people
        self.people = people
        self._build_table()
        with ui.element("div").classes("cp-fields"):
            self._build_rows()
        self._values_box = ui.element("div").classes("cp-fields")
        self._values: ui.select | None = None
        self._ends: tuple[ui.number, ui.number] | None = None
        with ui.element("div").classes("cp-fields"):
            self._build_question()
        self._count = parts.text("p", "", "cp-soft")
        self._count.props["role"] = "status"
        self.count()

    @property
    def asked(self) -> Asked:
        """What is asked for each person."""
        return Asked(
            target_class=self._target.value,
            confidence=self._confidence.value,
            method=str(self._method.value),
            keep=MILESTONES,
            lock=tuple(self._lock.value),
        )

    @property
    def choice(self) -> Choice:
        """Whom the controls choose.

        Raises:
            InputError: A number is none that can be.
        """
        most = self._most.value
        if most is None or most != int(most) or not 1 <= most <= MOST:
            raise InputError(f"at most {most!r} people cannot be explained; give a whole number from 1 to {MOST}")
        low, high = (None, None) if self._ends is None else (end.value for end in self._ends)
        places = () if self._values is None else self._values.value
        feature = self._feature.value or None
        categories: Sequence[Any] = () if feature is None else self._explainer.schema_[feature].categories
        values = tuple(categories[place] for place in places)
        return Choice(bool(self._rejected.value), feature, values, low, high, int(most))

    @property
    def places(self) -> list[int]:
        """The places of those who are chosen, in `people`."""
        choice = self.choice
        return drawn(fitting(self.people, choice, self._target.value), choice)

    def count(self) -> None:
        """Say how many people fit, and how many are drawn."""
        try:
            choice = self.choice
            fit = len(fitting(self.people, choice, self._target.value))
        except InputError as error:
            self.problem.set_text(str(error))
            return
        self.problem.set_text("")
        taken = "all of them are explained" if fit <= choice.most else f"{choice.most:,} of them are drawn at random"
        self._count.set_text(f"{fit:,} of {len(self.people):,} people fit{f'; {taken}' if fit else ''}.")

    def _build_table(self) -> None:
        self.problem = parts.problem()
        with ui.element("div").classes("cp-row"):
            self._table = ui.label(self._told("the table of this page")).classes("cp-soft")
            self._upload = ui.upload(auto_upload=True, max_file_size=LARGEST, on_upload=self._uploaded)
            self._upload.props["accept"] = ".csv"
            self._upload.on_rejected(self._refused).style("display: none")
            pick = ui.button("Upload a CSV").props("outline dense no-caps")
            # In the browser itself, because a file may only be asked for by a click.
            pick.on("click", js_handler=f"event => getElement({self._upload.id}).$refs.qRef.pickFiles(event)")
            parts.named(pick, "Upload a CSV of people")
            self._back = ui.button("Back to this page's table", on_click=self._restore).props("flat dense no-caps")
            self._back.set_visibility(False)

    def _build_rows(self) -> None:
        features = {_EVERYBODY: "everybody", **{name: name for name in self._explainer.schema_.names}}
        self._feature = ui.select(features, label="Filter by", value=_EVERYBODY, on_change=self._filter)
        self._most = ui.number("How many, at most", value=AT_FIRST, min=1, max=MOST, step=1, on_change=self.count)
        self._rejected = ui.switch("Only people who are rejected", value=True, on_change=self.count)
        parts.named(self._rejected, "Only people for whom the model does not decide as wanted")

    def _build_question(self) -> None:
        classes = {label: wording.value(label) for label in self._explainer.classes_}
        classes |= {} if OTHER in classes else {OTHER: "any other class"}
        methods = {name: name for name in available(self._explainer)}
        self._target = ui.select(
            classes, label="Wanted decision", value=favourable(self._explainer), on_change=self.count
        )
        self._confidence = ui.number("Confidence", value=0.5, step=0.05)
        self._method = ui.select(methods, label="Method", value=self._explainer.method)
        free = [feature.name for feature in self._explainer.schema_ if not feature.immutable]
        self._lock = ui.select(free, label="Must not change", value=[], multiple=True, clearable=True)

    def _filter(self) -> None:
        """Offer the values of the feature by which people are filtered."""
        self._values_box.clear()
        self._values, self._ends = None, None
        name = self._feature.value
        if name:
            feature = self._explainer.schema_[name]
            with self._values_box:
                if feature.categories:
                    options = {place: wording.value(value) for place, value in enumerate(feature.categories)}
                    label = f"Values of {name}"
                    self._values = ui.select(options, label=label, value=[], multiple=True, on_change=self.count)
                else:
                    low, high = (ui.number(f"{name} {end}", on_change=self.count) for end in ("from", "to"))
                    self._ends = low, high
        self.count()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        name = event.file.name
        try:
            if event.file.size() > LARGEST:
                raise InputError(f"{name} has {event.file.size():,} bytes; expected at most {LARGEST:,}")
            self.people = await asyncio.to_thread(_read, self._explainer, name, await event.file.read())
        except CounterpathError as error:
            self.problem.set_text(str(error))
            return
        finally:
            self._upload.reset()
        self._table.set_text(self._told(name))
        self._back.set_visibility(True)
        self.count()

    def _refused(self) -> None:
        self.problem.set_text(f"The file was not taken; expected a CSV of at most {LARGEST // 1024:,} KiB.")

    def _restore(self) -> None:
        self.people = self._given
        self._table.set_text(self._told("the table of this page"))
        self._back.set_visibility(False)
        self.count()

    def _told(self, name: str) -> str:
        return f"{len(self.people):,} people are in {name}."


def _read(explainer: Explainer, name: str, content: bytes) -> People:
    """The people in a file that was sent."""
    return People.of(explainer, csv_table(content, name))

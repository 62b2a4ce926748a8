"""Buttons that download what is shown."""

import asyncio
from collections.abc import Callable

from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.exporting import FORMATS, Tables, content
from counterpath.explanation import Explanation


class TakingHome:
    """A button for every format, hidden until there is something to take.

    Args:
        name: Of the files, and of what they hold.
        what: What they hold, for those who do not see it.
        shown: Gives the explanation and further tables for a report.
        problem: Where to say what goes wrong.
    """

    def __init__(
        self, name: str, what: str, shown: Callable[[], tuple[Explanation, Tables] | None], problem: ui.label
    ) -> None:
        self._name, self._shown, self._problem = name, shown, problem
        with ui.element("div").classes("cp-row") as self._row:
            ui.label("Take it home:").classes("cp-soft")
            for suffix in FORMATS:
                save = ui.button(suffix.upper(), on_click=lambda suffix=suffix: self._save(suffix))
                save.props("outline dense no-caps")
                parts.named(save, f"Download {what} as {suffix.upper()}")
        self.show(there=False)

    def show(self, *, there: bool) -> None:
        """Whether there is something to take."""
        self._row.set_visibility(there)

    async def _save(self, suffix: str) -> None:
        shown = self._shown()
        if shown is not None:
            with parts.told(self._problem):
                data = await asyncio.to_thread(content, shown[0], suffix, shown[1])
                ui.download.content(data, f"{self._name}.{suffix}", FORMATS[suffix][0])

"""Small elements that the whole page is made of: texts, sections, tables, figures, downloads, controls of a search.

All text is text, whatever is in it.
"""

import asyncio
import mimetypes
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

import pandas as pd
from nicegui import background_tasks, events, ui
from nicegui.elements.mixins.text_element import TextElement

from counterpath.explanation import Explanation
from counterpath.explorer.figures import Figure, description_of
from counterpath.utils.errors import CounterpathError

E = TypeVar("E", bound=ui.element)
NARROW = 1000
"""Pixels up to which the page is one column; the style has the same number."""
_ANSWER_SECONDS = 60.0
"""How long a browser may take to answer: one on a bad line needs more than NiceGUI's one second."""
UNEXPECTED = "Something unexpected happened; the terminal has the details."


def describe(element: E, **props: Any) -> E:
    """Give an element properties: its `role`, or its `aria_label`, which is what it is to those who do not see it.

    Any text will do, unlike in `props`. What it has already is not sent again: a field would be sent with the value
    that it had a moment ago, over what somebody is typing.
    """
    for name, value in props.items():
        attribute = name.replace("_", "-")
        if attribute not in element.props or element.props[attribute] != value:
            element.props[attribute] = value
    return element


def box(tag: str, classes: str = "", **props: Any) -> ui.element:
    """An element of any tag, for others to be in."""
    return describe(ui.element(tag).classes(classes), **props)


def text(tag: str, content: str, classes: str = "", **props: Any) -> TextElement:
    """An element of any tag that shows a text, never as HTML."""
    return describe(TextElement(tag=tag, text=content).classes(classes), **props)


def on_value(element: E, event: str, handler: Callable[[str], Any]) -> E:
    """Call a handler with what a field of the browser holds when an event happens there, reported already or not."""

    def handle(given: events.GenericEventArguments) -> None:
        handler(str(given.args[0] if isinstance(given.args, list) else given.args))

    element.on(event, handle, js_handler="(event) => emit(event.target.value)")
    return element


def set_class(element: ui.element, name: str, on: bool) -> None:
    """Give an element a class, or take it away."""
    element.classes(add=name if on else "", remove="" if on else name)


def button(
    label: str, on_click: Callable[..., Any] | None = None, look: str = "outline dense", name: str = ""
) -> ui.button:
    """A button.

    Args:
        label: What it shows.
        on_click: Called when it is pressed.
        look: Quasar's words for how it looks.
        name: What it is to those who do not see it, if its label does not say it all.
    """
    # Of a color of our own, which fits a dark page, too; but for the button that is filled.
    color = "primary" if "unelevated" in look else None
    made = ui.button(label, on_click=on_click, color=color).props(f"{look} no-caps").classes("cp-button")
    return describe(made, aria_label=name) if name else made


def set_active(made: ui.button, on: bool) -> None:
    """Offer a button or not. It can be focused either way: what is disabled would lose the focus to nothing."""
    describe(made, aria_disabled="false" if on else "true")
    set_class(made, "cp-off", not on)


def is_active(made: ui.button) -> bool:
    """Whether a button is offered, as of `set_active`."""
    return made.props.get("aria-disabled") != "true"


def focus(identity: str, *, narrow_only: bool = False) -> None:
    """Move the focus to a part of the page, and show it.

    Args:
        identity: Its `id`.
        narrow_only: Only where the page is one column, and the part may be out of sight.
    """
    condition = f"innerWidth <= {NARROW}" if narrow_only else "true"
    ui.run_javascript(
        f"if ({condition}) {{ const part = document.getElementById({identity!r}); part?.focus({{preventScroll: true}});"
        " part?.scrollIntoView({block: 'start'}); }"
    )


async def ask_browser(code: str) -> Any:
    """What JavaScript gives in this tab; None if it does not answer, because it was closed meanwhile."""
    try:
        return await ui.run_javascript(code, timeout=_ANSWER_SECONDS)
    except TimeoutError:
        return None


@contextmanager
def section(identity: str, title: str, lead: str = "") -> Iterator[ui.element]:
    """A part of the page with a heading of its own, to which links lead."""
    with box("section", "cp-section", id=identity, aria_labelledby=f"{identity}-title") as outer:
        text("h2", title, "cp-title", id=f"{identity}-title", tabindex=-1)  # to be focused by a link
        if lead:
            text("p", lead, "cp-lead")
        yield outer


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], classes: str = ""
) -> list[tuple[ui.element, list[TextElement]]]:
    """A table; the first cell of a row is its heading. It scrolls by itself where the page is narrow.

    The roles keep it a table for screen readers where a style shows its rows as cards.

    Returns:
        Each row with its cells, without the head.
    """
    # What scrolls must be reached by keyboard.
    outer = box("div", "cp-scroll", tabindex=0, role="region", aria_label=f"{caption} (table)")
    with outer, box("table", f"cp-table {classes}", role="table"):
        text("caption", caption, "cp-hidden")
        with box("thead", role="rowgroup"), box("tr", role="row"):
            for content in head:
                text("th", content or "Name", "" if content else "cp-hidden", role="columnheader")
        with box("tbody", role="rowgroup"):
            return [_table_row(row) for row in rows]


def _table_row(row: Sequence[str]) -> tuple[ui.element, list[TextElement]]:
    with box("tr", role="row") as made:
        first, *others = row
        return made, [text("th", first, role="rowheader"), *(text("td", other, role="cell") for other in others)]


def error_label() -> ui.label:
    """A place for what is wrong, which is read out when it changes; hidden while it is empty."""
    label = describe(ui.label().classes("cp-problem"), role="alert")
    label.bind_visibility_from(label, "text", backward=bool)
    return label


def note_label() -> ui.label:
    """A place for what is to be said beside a control without being wrong; hidden while it is empty."""
    label = describe(ui.label().classes("cp-note"), role="status")
    label.bind_visibility_from(label, "text", backward=bool)
    return label


def sentence(message: str) -> str:
    """A message as a sentence of its own."""
    return f"{message[:1].upper()}{message[1:]}{'' if message.endswith(('.', '!', '?')) else '.'}"


@contextmanager
def show_errors(label: ui.label, on_error: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Say on the page what goes wrong in the block.

    What nobody expected is raised again, so that the terminal has it whole.
    """
    label.set_text("")
    try:
        yield
    except CounterpathError as error:
        label.set_text(sentence(str(error)))
        on_error()
    except Exception:
        label.set_text(UNEXPECTED)
        on_error()
        raise


class TaskControls:
    """The buttons that start and stop a long task, what is being done, and what went wrong.

    One task runs at a time: another one takes its place. It ends with the tab.

    Args:
        label: What the button says that starts the task.
        work: The task that it starts.
        stop_name: What the other button is to those who do not see it.
        on_end: Called when any task has ended, however it did.

    Attributes:
        error: Where to say what is wrong.
    """

    def __init__(
        self,
        label: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        stop_name: str = "Stop",
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_end = on_end
        self._task: asyncio.Task[Any] | None = None
        self.error = error_label()
        with ui.element("div").classes("cp-row") as self._row:
            self._start = button(label, lambda: self.start(work), "unelevated")
            self._stop = button("Stop", self._stopped, "outline", stop_name)
            with box("div", "cp-busy", role="status"):
                self._spinner = ui.spinner(size="20px")
                self._doing = ui.label()
        self._bar = ui.linear_progress(show_value=False, size="8px").props("rounded instant-feedback")
        describe(self._bar, aria_label="Progress")
        self.show_idle()
        ui.context.client.on_delete(self.cancel)

    @property
    def running(self) -> bool:
        """Whether a task runs."""
        return self._task is not None and not self._task.done()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task in place of the one that runs."""
        self.cancel()
        self._task = background_tasks.create(self._run(work), name="search")

    def cancel(self) -> None:
        """End the task that runs, if any."""
        if self._task is not None:
            self._task.cancel()

    def show_busy(self, doing: str, progress: float | None = None) -> None:
        """Say what is being done and, if known, which share of it; and offer to stop it."""
        self._bar.set_value(progress or 0.0)
        self._show(doing, busy=True, bar=progress is not None)

    def show_idle(self, done: str = "") -> None:
        """Say what was done."""
        self._show(done, busy=False, bar=False)

    def _show(self, words: str, *, busy: bool, bar: bool) -> None:
        self._doing.set_text(words)
        self._spinner.set_visibility(busy)
        self._bar.set_visibility(bar)
        set_active(self._stop, busy)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._row, show_errors(self.error, self.show_idle):
            try:
                await work()
            finally:
                self._on_end()

    def _stopped(self) -> None:
        if not is_active(self._stop):
            return
        self.cancel()
        self.show_idle("Stopped.")


_FIT = """() => {
    const plot = getElement(%d);
    if (plot?.Plotly && plot.$el._fullLayout && plot.$el.offsetParent) plot.Plotly.Plots.resize(plot.$el);
}"""
"""Fits a figure to the room there is, unless it is hidden: to fit one that is not displayed is an error in plotly."""


class Drawing:
    """A figure that is as wide as there is room, or nothing."""

    def __init__(self) -> None:
        self._outer = box("div", "cp-figure")
        self._plot: ui.plotly | None = None

    def show(self, figure: Figure) -> None:
        """Draw a figure instead of what is drawn."""
        describe(self._outer, role="img", aria_label=description_of(figure))
        if self._plot is None:
            with self._outer:
                self._plot = ui.plotly(figure).classes("cp-figure")
                ui.element("q-resize-observer").on("resize", js_handler=_FIT % self._plot.id)
        else:
            self._plot.update_figure(figure)

    def relayout(self, changes: dict[str, Any]) -> None:
        """Change a little of the layout, without drawing all again."""
        if self._plot is not None:
            self._plot.run_plot_method("relayout", changes)

    def clear(self) -> None:
        """Draw nothing."""
        self._outer.clear()
        for name in ("role", "aria-label"):  # what is empty is no picture
            self._outer.props.pop(name, None)
        self._outer.update()
        self._plot = None


Tables: TypeAlias = Mapping[str, pd.DataFrame]
FORMATS: dict[str, Callable[[Explanation, Path, Tables], Any]] = {
    "json": lambda result, path, tables: result.to_json(path),
    "csv": lambda result, path, tables: result.to_csv(path),
    "html": lambda result, path, tables: result.to_html(path, tables=tables),
}
"""What writes a file, by its suffix."""


def file_content(result: Explanation, suffix: str, tables: Tables) -> bytes:
    """A file as bytes; nothing of it stays on the disk.

    Args:
        result: What to write.
        suffix: A key of `FORMATS`.
        tables: Further tables for a report, by their headings.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"explanation.{suffix}"
        FORMATS[suffix](result, path, tables)
        return path.read_bytes()


class Downloads:
    """A button for every format, hidden until there is something to download.

    Args:
        name: Of the files.
        what: What they hold, for those who do not see it.
        error: Where to say what goes wrong.
    """

    def __init__(self, name: str, what: str, error: ui.label) -> None:
        self._name, self._error = name, error
        with ui.element("div").classes("cp-row") as self._row:
            ui.label("Download:").classes("cp-soft")
            for suffix in FORMATS:
                described = f"Download {what} as {suffix.upper()}"
                button(suffix.upper(), lambda suffix=suffix: self._save(suffix), name=described)
        self.offer(None, {})

    def offer(self, result: Explanation | None, tables: Tables) -> None:
        """Offer an explanation, or nothing.

        Args:
            result: The explanation.
            tables: Further tables for a report, by their headings; those that are in it at the click.
        """
        self._result, self._tables = result, tables
        self._row.set_visibility(result is not None)

    async def _save(self, suffix: str) -> None:
        if self._result is not None:
            with show_errors(self._error):
                name = f"{self._name}.{suffix}"
                content = await asyncio.to_thread(file_content, self._result, suffix, dict(self._tables))
                ui.download.content(content, name, mimetypes.guess_type(name)[0] or "")

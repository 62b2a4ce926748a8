"""Small parts of the page: text in any tag, headings, tables. All text is text, whatever is in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from counterpath.utils.errors import CounterpathError

UNEXPECTED = "Something unexpected happened; the terminal has the details."


def text(tag: str, content: str, classes: str = "") -> TextElement:
    """An element of any tag that shows a text, never as HTML."""
    return TextElement(tag=tag, text=content).classes(classes)


def named(element: ui.element, label: str) -> None:
    """Say what an element is to those who do not see it; any text will do, unlike in `props`."""
    element.props["aria-label"] = label


@contextmanager
def section(identity: str, title: str, lead: str = "") -> Iterator[ui.element]:
    """A part of the page with a heading of its own, to which links lead."""
    with ui.element("section").classes("cp-section") as outer:
        outer.props["id"] = identity
        outer.props["aria-labelledby"] = f"{identity}-title"
        text("h2", title, "cp-title").props["id"] = f"{identity}-title"
        if lead:
            text("p", lead, "cp-lead")
        yield outer


def links(label: str, targets: Mapping[str, str]) -> None:
    """Links to parts of the page, each by the identity of a section."""
    with ui.element("nav").classes("cp-links") as nav:
        named(nav, label)
        for identity, title in targets.items():
            ui.link(title, f"#{identity}")


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], classes: str = "") -> None:
    """A table; the first cell of a row is its heading. It scrolls by itself where the page is narrow."""
    with ui.element("div").classes("cp-scroll") as outer:
        outer.props["tabindex"] = 0  # what scrolls must be reached by keyboard
        outer.props["role"] = "region"
        named(outer, caption)
        with ui.element("table").classes(f"cp-table {classes}"):
            text("caption", caption, "cp-hidden")
            with ui.element("thead"), ui.element("tr"):
                for content in head:
                    text("th", content).props["scope"] = "col"
            with ui.element("tbody"):
                for row in rows:
                    with ui.element("tr"):
                        for place, content in enumerate(row):
                            cell = text("td" if place else "th", content)
                            if not place:
                                cell.props["scope"] = "row"


def problem(content: str = "") -> ui.label:
    """A place for what is wrong, which is read out when it changes; hidden while it is empty."""
    label = ui.label(content).classes("cp-problem")
    label.props["role"] = "alert"
    label.bind_visibility_from(label, "text", backward=bool)
    return label


@contextmanager
def told(problem: ui.label, rest: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Say on the page what goes wrong inside, and then come to rest.

    What nobody expected is raised again, so that the terminal has it whole.
    """
    problem.set_text("")
    try:
        yield
    except CounterpathError as error:
        problem.set_text(str(error))
        rest()
    except Exception:
        problem.set_text(UNEXPECTED)
        rest()
        raise

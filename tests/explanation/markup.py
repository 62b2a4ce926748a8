"""What tests of pages and figures share: a check of tags, a figure as text, and an explanation full of names that would
like to be tags."""

import io
from html.parser import HTMLParser

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation, path_columns
from counterpath.explanation.plots import style
from tests.explanation.conftest import SCHEMA, lists, make

EVIL = "<img src=x onerror=alert('1')>\""
VOID = ("br", "meta")


class Balance(HTMLParser):
    """Collects tags that are closed without having been opened, or the other way round, and the levels of headings."""

    def __init__(self, void: tuple[str, ...] = VOID) -> None:
        super().__init__()
        self.void = void
        self.open: list[str] = []
        self.levels: list[int] = []
        self.anchors: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors += [value for value in [given.get("id")] if value]
        self.links += [value for name in ("href", "xlink:href", "src") if (value := given.get(name)) is not None]
        if tag in ("h1", "h2", "h3", "h4"):
            self.levels.append(int(tag[1]))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.remove(tag) if tag in self.open else None

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def svg(fig: Figure) -> str:
    """A drawing as SVG text; figures drawn alike give equal text."""
    text = io.StringIO()
    with mpl.rc_context(style._STYLE):
        fig.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def evil(name: str = EVIL) -> Explanation:
    """Labels, a feature, a category, a class, reasons and the rest have a name that is more than text to some."""
    plain = make()
    labels = pd.Index([name, *"bcde"])
    names = {"hours-per-week": name}
    bound = {"kind": "lock", "feature": name, "reach": 0.7}
    schema = Schema(tuple(Feature(name, "continuous") if f.name in names else f for f in SCHEMA))
    return make(
        labels=labels,
        schema=schema,
        factuals=plain.factuals.set_axis(labels).rename(columns=names),
        counterfactuals=plain.counterfactuals.set_axis(labels).assign(sex=name).rename(columns=names),
        paths=plain.paths.assign(sex=plain.paths["sex"].where(plain.paths["step"] < 3, name)).set_axis(
            path_columns(schema.names), axis=1
        ),
        status=plain.status.set_axis(labels).assign(
            reason=name, binding=lists([], [], [], [bound], [bound], index=labels)
        ),
        changed=plain.changed.set_axis(labels).assign(sex=True).rename(columns=names),
        request=plain.request | {"method": name, "model": name, "lock": [name]},
        outcome=plain.outcome.set_axis(labels).assign(class_after=name),
        landscape=plain.landscape.assign(predicted=name),
        note=name,
        diagnostics=name,
    )

"""Of people who were explained: whether the way is equally long for every group, and which few plans serve most."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pandas as pd
from nicegui import ui

from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, wording
from counterpath.explanation.audit import FEWEST, LEVEL, MEASURES, Audit
from counterpath.explanation.report.audit import (
    NOTICE,
    curve_table,
    found_table,
    p_text,
    plan_table,
    served_by_group,
    with_interval,
    write,
)
from counterpath.explanation.report.build import Table
from counterpath.explanation.shared import SharedPlans
from counterpath.explorer import elements
from counterpath.explorer.figures_groups import curve_figure, effort_figure
from counterpath.explorer.forms import count_error
from counterpath.explorer.state import LoadedModel
from counterpath.utils.errors import InputError

T = TypeVar("T")
AUDIT_TITLE, SHARED_TITLE = "Is the way equally long for everyone?", "Plans that many people share"
MOST_PLANS = 10
"""How many shared plans may be asked for: more are no summary any more."""
_PLANS = 3
_MOST_FINDINGS = 12
_AUDITED = (
    "Who has a counterfactual, what it costs, how far it is from the data and how long the path is, group by group, "
    "with tests; and groups that nobody named, found by a tree over what people cannot change."
)
_SHARED = (
    "The few sets of changes that give most of these people the wanted outcome at the least total cost. Everybody "
    "takes the one that is cheapest for them, and only as much of it as they need."
)


class GroupAudit:
    """The two parts of the page, empty until they are asked for.

    Args:
        model: The model.
        result: The explanation of the people.
        by: The feature whose groups are compared at first.
    """

    def __init__(self, model: LoadedModel, result: Explanation, by: str) -> None:
        self._model, self._result = model, result
        self._audit: Audit | None = None
        self._shared: SharedPlans | None = None
        names = wording.titles(result.schema)
        with elements.section("group-audit", AUDIT_TITLE, _AUDITED):
            with ui.element("div").classes("cp-fields"):
                self._by = ui.select(names, label="Compare the groups of", value=[by], multiple=True)
            self._auditing = elements.TaskControls("Audit these people", self._run_audit, stop_name="Stop auditing")
            self._audited = elements.box("div", "cp-stack", aria_live="polite")
        with elements.section("group-shared", SHARED_TITLE, _SHARED):
            with ui.element("div").classes("cp-fields"):
                self._plans = ui.number(
                    "How many plans", value=_PLANS, step=1, validation=lambda n: count_error(n, MOST_PLANS) or None
                )
            self._sharing = elements.TaskControls("Find shared plans", self._run_shared, stop_name="Stop the plans")
            self._served = elements.box("div", "cp-stack", aria_live="polite")
        with ui.element("div").classes("cp-row") as self._download:
            ui.label("Download:").classes("cp-soft")
            elements.button("Audit as HTML", self._save, name="Download the audit and the shared plans as HTML")
        self._download.set_visibility(False)

    async def _run_audit(self) -> None:
        by = [str(name) for name in self._by.value or ()]
        if not by:
            raise InputError("no groups are chosen; choose one feature at least whose groups are compared")
        self._auditing.show_busy("Comparing and testing …")
        self._audit = await self._computed(lambda explainer, result: explainer.audit(result, by=by))
        self._show(self._audited, _show_audit, self._audit)
        self._auditing.show_idle("Audited.")

    async def _run_shared(self) -> None:
        wrong = count_error(self._plans.value, MOST_PLANS)
        if wrong:
            raise InputError(f"How many plans: {wrong[:1].lower()}{wrong[1:]}")
        count, by = int(self._plans.value), next(iter(self._by.value or ()), None)
        self._sharing.show_busy("Trying plans on everybody …")
        self._shared = await self._computed(lambda explainer, result: explainer.shared_plans(result, count, by=by))
        self._show(self._served, _show_shared, self._shared)
        self._sharing.show_idle("Done.")

    async def _computed(self, function: Callable[[Explainer, Explanation], T]) -> T:
        """What a function of the explainer and the explanation returns, beside everybody else's requests."""
        result = self._result
        return await self._model.dispatcher.run(
            self._model.name, result.factuals, lambda explainer, _: function(explainer, result), long=True
        )

    def _show(self, outer: ui.element, build: Callable[[T], None], made: T) -> None:
        outer.clear()
        with outer:
            build(made)
        self._download.set_visibility(True)

    async def _save(self) -> None:
        with elements.show_errors(self._auditing.error):
            ui.download.content(await asyncio.to_thread(self._page), "audit.html", "text/html")

    def _page(self) -> bytes:
        """The report of what there is."""
        title = AUDIT_TITLE if self._audit is not None else SHARED_TITLE
        with TemporaryDirectory() as folder:
            return write(Path(folder) / "audit.html", title, audit=self._audit, shared=self._shared).read_bytes()


def _show_audit(made: Audit) -> None:
    elements.text("p", made.headline)
    if not len(made.differences):
        return
    with elements.box("ul", "cp-findings", aria_label="Findings"):
        for finding in made.findings[:_MOST_FINDINGS]:
            elements.text("li", finding)
    for by, lines in made.effort.groupby("by", sort=False):
        elements.text("h3", f"Equal effort, by {by}")
        elements.Drawing().show(effort_figure(lines))
    elements.text("h3", "Every difference that was tested")
    _show_table("Every difference that was tested", difference_table(made.differences))
    found = found_table(made)
    elements.text("h3", "Groups that were found")
    if found is None:
        tested = wording.counted(len(made.found), "difference")
        elements.text("p", f"The tree found no group for which a difference was shown ({tested} tested).", "cp-soft")
    else:
        _show_table("Groups that were found", found)
    level = f"A difference counts as shown where p, after Holm's correction, is below {LEVEL}. "
    elements.text("p", f"{level}Groups of fewer than {FEWEST} people are not tested. {NOTICE}", "cp-soft")


def difference_table(differences: pd.DataFrame) -> Table:
    """One line for each comparison and measure: both means, the difference with its interval, and p."""
    rows = [
        [
            f"{line['by']}: {line['group']} against {line['against']}",
            MEASURES[str(line["measure"])].label,
            *(MEASURES[str(line["measure"])].form(line[name]) for name in ("mean", "mean_against")),
            with_interval(line),
            p_text(line["p_holm"]),
        ]
        for line in differences.to_dict("records")
        if line["difference"] == line["difference"]
    ]
    return Table(("groups", "measure", "group", "others", "difference (95 % interval)", "p (Holm)"), rows)


def _show_shared(made: SharedPlans) -> None:
    elements.text("p", made.headline)
    if not len(made):
        return
    _show_table("The plans", plan_table(made))
    elements.Drawing().show(curve_figure(made.curve))
    _show_table("Whom they serve", curve_table(made))
    groups = served_by_group(made)
    if groups is not None:
        elements.text("h3", "Whom they serve, by group")
        _show_table("Whom they serve, by group", groups)


def _show_table(caption: str, made: Table) -> None:
    head = [name if name.startswith("p ") else f"{name[:1].upper()}{name[1:]}" for name in made.columns]
    elements.table(caption, head, [[str(cell) for cell in row] for row in made.rows])

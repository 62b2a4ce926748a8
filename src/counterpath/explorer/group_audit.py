"""Of people who were explained: whether the way is equally long for every group, and which few plans serve most."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.explanation import Explanation, wording
from counterpath.explanation.audit import FEWEST, LEVEL, MEASURES, Audit
from counterpath.explanation.report.audit import (
    NOTICE,
    curve_table,
    found_table,
    p_text,
    plan_table,
    served_by_group,
    short,
    write,
)
from counterpath.explanation.report.build import Table
from counterpath.explanation.shared import SharedPlans
from counterpath.explorer import elements
from counterpath.explorer.figures_groups import curve_figure, effort_figure
from counterpath.explorer.forms import count_error
from counterpath.explorer.state import LoadedModel
from counterpath.utils.errors import InputError

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
        with elements.section("group-audit", "Is the way equally long for everyone?", _AUDITED):
            with ui.element("div").classes("cp-fields"):
                self._by = ui.select(names, label="Compare the groups of", value=[by], multiple=True)
            self._auditing = elements.TaskControls("Audit these people", self._run_audit, stop_name="Stop auditing")
            self._audited = elements.box("div", "cp-stack", aria_live="polite")
        with elements.section("group-shared", "Plans that many people share", _SHARED):
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
        made = await self._computed(lambda explainer, result: explainer.audit(result, by=by))
        self._audit = made
        self._audited.clear()
        with self._audited:
            _show_audit(made)
        self._download.set_visibility(True)
        self._auditing.show_idle("Audited.")

    async def _run_shared(self) -> None:
        wrong = count_error(self._plans.value, MOST_PLANS)
        if wrong:
            raise InputError(f"How many plans: {wrong[:1].lower()}{wrong[1:]}")
        count, by = int(self._plans.value), [str(name) for name in self._by.value or ()][:1]
        self._sharing.show_busy("Trying plans on everybody …")
        made = await self._computed(
            lambda explainer, result: explainer.shared_plans(result, count, by=by[0] if by else None)
        )
        self._shared = made
        self._served.clear()
        with self._served:
            _show_shared(made)
        self._download.set_visibility(True)
        self._sharing.show_idle("Done.")

    async def _computed(self, function: Any) -> Any:
        """What a function of the explainer and the explanation returns, beside everybody else's requests."""
        rows, result = self._result.factuals, self._result
        return await self._model.dispatcher.run(
            self._model.name, rows, lambda explainer, _: function(explainer, result), long=True
        )

    def _save(self) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "audit.html"
            write(path, "Is the way equally long for everyone?", audit=self._audit, shared=self._shared)
            ui.download.content(path.read_bytes(), "audit.html", "text/html")


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
        [f"{line['by']}: {line['group']} against {line['against']}", *_difference(line)]
        for line in differences.to_dict("records")
        if line["difference"] == line["difference"]
    ]
    return Table(("groups", "measure", "group", "others", "difference (95 % interval)", "p (Holm)"), rows)


def _difference(line: Mapping[Any, Any]) -> list[str]:
    meaning = MEASURES[str(line["measure"])]
    ends = f"{short(line['low'], meaning.form)} to {short(line['high'], meaning.form)}"
    return [
        meaning.label,
        meaning.form(line["mean"]),
        meaning.form(line["mean_against"]),
        f"{short(line['difference'], meaning.form)} ({ends})",
        p_text(line["p_holm"]),
    ]


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

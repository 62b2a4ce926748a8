"""Plans that many people share, as tables and sentences: what each of them asks, whom it serves, and at what cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.summary import with_labels
from counterpath.explanation.tables import differences
from counterpath.utils.files import atomic

if TYPE_CHECKING:  # what is imported only to draw is imported where something is drawn
    from matplotlib.figure import Figure

_VERBS = {"at least": ("raise {}", "move {} up"), "at most": ("lower {}", "move {} down")}
"""Of a number, and of a category with an order; nobody goes farther than they need, and who is there already stays."""
_AMOUNT_DIGITS = 3  # of a median amount: it is a summary, not an instruction


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class SharedPlans:
    """The few plans that serve most people at the least cost; each person takes the one that is cheapest for them.

    Attributes:
        changes: One row a change: `plan`, from 1 in the order in which they were chosen; `feature`; `change`, one of
            "to", "by", "at least" and "at most"; and `value`, in original units. Nobody changes more than they need:
            an amount, a least and a most value are what a person goes up to.
        curve: For the first plan, the first two and so on: `coverage`, the share of the people whom one of them serves;
            `mean cost` and `median cost` of those; and `of the best`, how good the choice is for certain: its worth as
            a share of what the best choice of as many of the same candidates can be worth at most.
        people: For everybody who was to be served `plan` and `cost`, missing where no plan serves; and in a column for
            each plan what it would cost them.
        factuals: Those who are served, as they are.
        counterfactuals: The same after their plan, exactly as the model was asked about them.
        groups: By group `n`, `coverage` and `mean cost`, and as `alone coverage` and `alone mean cost` what the best
            plans for that group alone would come to; None where no groups were asked for.
        schema: What the features are.
        request: What was asked for.
        settings: How many candidates were tried, on how many people first, and what being left without a plan counts.
        provenance: When and with which versions it was made, and in how many seconds.
    """

    changes: pd.DataFrame
    curve: pd.DataFrame
    people: pd.DataFrame
    factuals: pd.DataFrame
    counterfactuals: pd.DataFrame
    groups: pd.DataFrame | None
    schema: Schema
    request: dict[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.curve)

    @property
    def coverage(self) -> float:
        """The share of the people whom one of the plans serves."""
        return float(self.curve["coverage"].iloc[-1]) if len(self) else 0.0

    def instructions(self, plan: int) -> str:
        """What a plan asks, in words."""
        lines = self.changes[self.changes["plan"] == plan]
        return wording.listed(
            [
                _instruction(self.schema, str(line.feature), str(line.change), line.value)
                for line in lines.itertuples(index=False)
            ]
        )

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a plan: what it asks, who takes it, who could, what it costs them, and how much they need of it."""
        lines = []
        for plan in range(1, len(self) + 1):
            takes = (self.people["plan"] == plan).fillna(False).to_numpy(bool)
            lines.append(
                {
                    "plan": plan,
                    "what": self.instructions(plan),
                    "takes it": float(takes.mean()),
                    "could take it": float(self.people[f"plan {plan}"].notna().mean()),
                    "mean cost": float(self.people["cost"].to_numpy(float)[takes].mean()) if takes.any() else np.nan,
                    "typically": self._typical(plan),
                }
            )
        columns = ["plan", "what", "takes it", "could take it", "mean cost", "typically"]
        return pd.DataFrame(lines, columns=columns).set_index("plan")

    def _typical(self, plan: int) -> str:
        """The median amounts of those who take a plan, feature by feature."""
        rows = (self.people["plan"].reindex(self.factuals.index) == plan).fillna(False).to_numpy(bool)
        if not self.people.index.is_unique:
            served = self.people["plan"].notna().to_numpy()
            rows = (self.people["plan"][served] == plan).to_numpy(bool)
        texts = []
        lines = self.changes[self.changes["plan"] == plan]
        for line in lines.itertuples(index=False):
            feature = self.schema[str(line.feature)]
            old, new = self.factuals[feature.name][rows], self.counterfactuals[feature.name][rows]
            if feature.categories or line.change == "to":
                moved = (
                    float((old.astype(object).to_numpy() != new.astype(object).to_numpy()).mean()) if len(old) else 0
                )
                texts.append(f"{feature.title} changes for {wording.percent(moved)}")
                continue
            amount = differences(feature, old, new)
            amount = amount[~np.isnan(amount)]
            middle = float(np.median(amount)) if len(amount) else 0.0
            sign = "+" if middle > 0 else "−" if middle < 0 else ""
            text = wording.with_unit(feature, f"{sign}{wording.rounded(abs(middle), _AMOUNT_DIGITS)}")
            texts.append(f"{feature.title} {text}")
        return "; ".join(texts)

    @cached_property
    def sentences(self) -> pd.Series:
        """For each plan what it asks and whom it serves, in plain language."""
        count = len(self.people)
        texts = [
            f"Plan {plan}: {line['what']}. Of {wording.counted(count, 'person', 'people')} "
            f"{wording.percent(line['takes it'])} take it because it costs them least, and "
            f"{wording.percent(line['could take it'])} could."
            for plan, line in self.table.iterrows()
        ]
        return pd.Series(texts, index=self.table.index, name="sentence", dtype=str)

    @property
    def headline(self) -> str:
        """In one or two sentences what was found, and how good the choice is."""
        count = wording.counted(len(self.people), "person", "people")
        if not len(self):
            return f"No shared plan serves any of {count}."
        line = self.curve.iloc[-1]
        plans = wording.counted(len(self), "shared plan")
        return (
            f"{plans} together give {wording.percent(line['coverage'])} of {count} the wanted outcome, at a mean cost "
            f"of {wording.rounded(line['mean cost'])}. The choice is worth at least "
            f"{wording.percent(line['of the best'])} of the best one from the {self.settings.get('candidates', 0)} "
            "candidates that were tried on everybody; other actions may exist."
        )

    def __repr__(self) -> str:
        return "\n".join([self.headline, *self.sentences])

    def group_table(self) -> pd.DataFrame | None:
        """The table by group under what people call the columns and their values."""
        return None if self.groups is None else with_labels(self.groups, self.schema)

    def to_csv(self, path: str | Path) -> Path:
        """Write for everybody which plan serves them and what it costs."""
        with atomic(Path(path)) as temporary:
            self.people.to_csv(temporary)
        return Path(path)

    def to_html(self, path: str | Path, title: str = "Plans that many people share") -> Path:
        """Write one self-contained file for the screen and for paper."""
        from counterpath.explanation.report.audit import write

        return write(Path(path), title, audit=None, shared=self)

    def plot_curve(self, path: str | Path | None = None) -> "Figure":
        """Draw coverage against mean cost, from the first plan alone to all of them.

        Args:
            path: Where to save it as well, as PNG and SVG.
        """
        from counterpath.explanation.plots.groups import draw_curve

        return draw_curve(self.curve, path)


def _instruction(schema: Schema, name: str, change: str, value: Any) -> str:
    """One change of a plan, as a part of a sentence."""
    feature = schema[name]
    title = wording.inline(feature.title) if feature.title != name else name
    if change == "by":
        rise = value > 0
        amount = wording.with_unit(feature, wording.rounded(abs(value), 6))
        return f"{'raise' if rise else 'lower'} {title} by up to {amount}"
    shown = wording.amount(feature, value)
    if change == "to":
        return f"change {title} to {shown}"
    verb = _VERBS[change][bool(feature.categories)].format(title)
    return f"{verb} as far as {shown}"

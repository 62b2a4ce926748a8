"""`counterpath datasets`."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath.cli.output import show, show_table

if TYPE_CHECKING:
    from counterpath.data.datasets import Card
    from counterpath.data.schema import Feature


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A data set, to see its features; without one, all are listed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the data sets that `counterpath.datasets.load` knows, or show one with its features."""
    from counterpath.data.datasets import DATASETS, Card
    from counterpath.data.schema import Schema

    if name is None:
        cards = [Card.of(each) for each in DATASETS]
        if as_json:
            show(_to_json([_summary(card) for card in cards]))
        else:
            show_table("", [_row(card) for card in cards])
            show("counterpath datasets NAME shows the features of one.")
        return
    card = Card.of(name)
    schema = Schema.from_json(card.schema)
    if as_json:
        show(_to_json(dataclasses.asdict(card) | {"schema": schema.to_json()}))
        return
    _show_card(card)
    for feature in schema:
        show(f"\n{feature.name}: {_describe(feature)}\n    {feature.description}")


def _to_json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def _summary(card: "Card") -> dict[str, Any]:
    """The card without its features."""
    kept = {name: value for name, value in dataclasses.asdict(card).items() if name != "schema"}
    return kept | {"features": len(card.schema["features"])}


def _row(card: "Card") -> dict[str, Any]:
    return {
        "name": card.name,
        "rows": f"{card.rows:,}",
        "features": len(card.schema["features"]),
        "label": card.target,
        "classes": _classes(card),
        "licence": card.licence,
        "where": _where(card),
    }


def _classes(card: "Card") -> str:
    """The classes as people call them; for a regression, what its numbers count."""
    labels = card.schema.get("class_labels", {})
    return ", ".join(labels.get(str(value), str(value)) for value in card.classes) or f"a number ({card.target_unit})"


def _where(card: "Card") -> str:
    return "shipped" if card.shipped else "downloaded" if card.url else "from its owner"


def _show_card(card: "Card") -> None:
    show(f"{card.title}\n{card.description}\n")
    facts = {
        "rows": f"{card.rows:,}",
        "label": f"{card.target}: {_classes(card)}",
        "licence": card.licence,
        "source": card.source,
        "where": _where(card) + (f", {card.url}" if card.url else ""),
        "file": f"{card.file_name}.csv",
        "sha256": card.sha256,
        "directions": ", ".join(f"{name} {way}" for name, way in card.directions.items()),
    }
    for fact, text in facts.items():
        show(f"{fact + ':':<12}{text}")


def legal_values(feature: "Feature") -> str:
    """What a feature may be, as far as its schema says it."""
    values = ", ".join(map(str, feature.categories))
    if feature.lower is not None and feature.upper is not None:
        values = f"{feature.lower:,} to {feature.upper:,}"
    elif feature.lower is not None or feature.upper is not None:
        values = f"from {feature.lower:,}" if feature.upper is None else f"up to {feature.upper:,}"
    if feature.step not in (None, 1):
        values += f" in steps of {feature.step:g}"
    if feature.values == "observed":
        values += " as observed"
    return values.strip()


def _describe(feature: "Feature") -> str:
    """Kind, legal values and whether it may change."""
    values = legal_values(feature)
    change = "immutable" if feature.immutable else "" if feature.actionable else "locked unless a request unlocks it"
    known = feature.kind + (f" ({values})" if values else "")
    return ", ".join(part for part in (known, feature.unit, change) if part)

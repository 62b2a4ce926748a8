"""How an explanation was made, so that it can be made again."""

import json
from collections.abc import Mapping
from typing import Any

from counterpath.explanation import wording
from counterpath.explanation.report import html

_MEANINGS = {
    "method": "how to search",
    "target_class": "the wanted decision; other is any but the present one",
    "confidence": "what its probability must reach",
    "plans": "how many counterfactuals each person may have",
    "plan": "which of them is shown",
    "paths": "how much of each path is kept",
    "time_limit": "how long to search at most",
    "lock": "features that must not change, beside immutable ones",
    "directions": "the only way in which a feature may change",
    "ranges": "where a feature must stay",
    "max_changes": "how many features may change",
    "feature_costs": "how hard a feature is to change; others have 1",
    "model": "the model under explanation",
    "seed": "of all randomness",
    "max_steps": "the most steps of a search",
    "step_size": "length of a step in the latent space",
    "damping": "added to the diagonal of the metric",
    "sparsify": "needless changes are put back",
    "keep_residual": "what the generative model does not reproduce is carried along",
    "fallback": "who is stuck is led to the nearest place that the model accepts",
    "fidelity": "how much staying close weighs in the search",
    "refine": "a geodesic ends as close to the person as it can",
    "allow_copies": "a counterfactual may be equal to a training row",
    "tf32": "products are rounded while searching on a GPU",
    "representation_layer": "the layer that stands for what the model sees",
    "ambient_metric": "what steps are measured by",
    "uncertainty_cost": "steps cost more where the model is unsure",
}
_REPEAT = (
    "To ask for the same again, save this as request.json; the model and the rows must be the same:  "
    "counterpath explain MODEL ROWS --request request.json"
)


def recipe(request: Mapping[str, Any], made: Mapping[str, Any], about: Mapping[str, str]) -> list[html.Markup]:
    """When, with what and in answer to which request.

    Args:
        request: What was asked for.
        made: When and with which versions; empty where that is not known.
        about: What else there is to say.
    """
    versions = made.get("versions", {})
    facts = [(name, wording.value(value)) for name, value in about.items()]
    facts += [(name, str(made[name])) for name in ("date", "seconds") if name in made]
    facts += [("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))] if versions else []
    asked = [(name, _text(value), _MEANINGS.get(name, "")) for name, value in request.items() if _said(value)]
    parts = [html.listing(("what", "value"), facts)] if facts else []
    return [
        *parts,
        html.heading("What was asked for"),
        html.listing(("part of the request", "value", "meaning"), asked),
        html.text(_REPEAT),
        html.verbatim(json.dumps(dict(request), ensure_ascii=False)),
    ]


def _said(value: Any) -> bool:
    return value is not None and value != [] and value != {}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(wording.value(each) for each in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else wording.value(value)

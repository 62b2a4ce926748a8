"""How good the models behind an explanation are: what is wrong first, then numbers and tables with what they mean."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from counterpath.explanation import wording
from counterpath.explanation.report import html

_LOOKS = {"bad": "alarm", "fair": "fair", "good": "good"}
_SURE = {
    "good": "Nothing was found that speaks against trusting these explanations.",
    "fair": "Something is not as good as it could be: see below before you rely on it.",
    "bad": "Do not rely on these explanations before this is put right.",
}


def verdict(quality: Mapping[str, Any]) -> html.Markup:
    """One box that says whether the models are good enough, and what is wrong and what to try if they are not."""
    if "verdict" not in quality:
        return html.Markup("")
    level = quality["verdict"]
    where = "held-out rows" if quality["held_out"] else "training rows, because the table is small"
    measured = f"measured on {quality['rows']} {where}"
    parts = [html.entry(f"The models that explanations rest on are {level} here ({measured})", _SURE.get(level, ""))]
    parts += [_finding(finding) for finding in quality["findings"]]
    return html.box(_LOOKS.get(level, "fair"), *parts)


def alarm(quality: Mapping[str, Any]) -> html.Markup:
    """The same for the first page, only if something is bad."""
    return verdict(quality) if quality.get("verdict") == "bad" else html.Markup("")


def details(quality: Mapping[str, Any], text: str) -> list[html.Markup]:
    """The verdict, and every number that it rests on; the text as it is, where there are no numbers."""
    if "verdict" not in quality:
        return [html.verbatim(text)] if text else []
    numbers = _numbers(quality)
    reconstruction = pd.DataFrame(quality["reconstruction"])
    shares = {name: reconstruction[name].map(_percent) for name in ("kept", "guessing")}
    kept = reconstruction.assign(**shares, **{"mean error": reconstruction["mean error"].map(_plain)})
    return [
        verdict(quality),
        html.listing(("what was measured", "value", "meaning"), numbers),
        html.heading("How much of each feature the generative model keeps"),
        html.table(kept.rename(columns=_RECONSTRUCTION)),
        html.text(_KEPT, "soft"),
    ]


_KEPT = (
    "Kept: for numbers the share of their variance, for categories the share of rows that keep theirs. Guessing: what "
    "always saying the mean, or the most frequent category, would keep. A feature that is hardly kept better than by "
    "guessing moves by what other features do, and says little. The mean error is in its own units."
)
_RECONSTRUCTION = {"kept": "kept by the model", "guessing": "kept by guessing"}


def _finding(finding: Mapping[str, str]) -> html.Markup:
    return html.entry(finding["level"].capitalize(), f"{finding['text']} Try: {finding['advice']}")


def _numbers(quality: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if quality["accuracy"] is not None:
        meaning = "how often the model under explanation is right, each class counting the same; 100 % is always"
        rows.append(("balanced accuracy", _percent(quality["accuracy"]), meaning))
    shares = zip(quality["coverage"]["class"], quality["coverage"]["share"], strict=True)
    meaning = "share of the training rows that the model puts into this class: people who show what it takes"
    rows += [(f"decided {label}", _percent(share), meaning) for label, share in shares]
    if quality["calibration"] is not None:
        told = quality["calibration"]
        rows += [
            (
                "uncertainty on the data",
                _three(told["sigma_on"]),
                "how unsure the generative model is where people are",
            ),
            (
                "uncertainty off the data",
                _three(told["sigma_off"]),
                "the same where nobody is; it should be far higher",
            ),
            ("tells data from empty space", _percent(told["auc"]), "how often it does (AUC); 50 % is by chance"),
            ("uncertainty in the metric", _percent(told["sigma_share"]), "how much it weighs when paths are chosen"),
        ]
    if quality["agreement"] is not None:
        told = quality["agreement"]
        meaning = "how often the stand-in that is searched decides as the model itself, on {}"
        rows += [
            ("stand-in agrees", _percent(told["held_out"]), meaning.format("held-out rows")),
            ("stand-in agrees, drawn rows", _percent(told["drawn"]), meaning.format("rows that were made up")),
            ("stand-in agrees, visited rows", _percent(told["visited"]), meaning.format("rows that searches visit")),
        ]
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share == share else "–"


def _three(value: float) -> str:
    return wording.value(value, digits=3)


def _plain(error: str) -> str:
    """An error that may be written as 1.9e+04."""
    return error if error == "–" else wording.value(float(error))

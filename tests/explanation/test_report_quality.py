from pathlib import Path

import pandas as pd

from counterpath.explanation import Explanation
from counterpath.fitting.diagnostics import Diagnostics
from counterpath.models.calibration import Calibration
from counterpath.models.surrogate import Agreement
from tests.explanation.conftest import make


def diagnostics(kept: float = 0.97, agreement: Agreement | None = None, auc: float = 0.999) -> Diagnostics:
    features = {"feature": ["<b>age", "job"], "kind": ["integer", "binary"], "kept": [kept, 0.99]}
    return Diagnostics(
        pd.DataFrame(features | {"guessing": [0.0, 0.6], "mean error": ["1.896e+04", "–"]}),
        Calibration(0.27, 0.1, 1000.0, auc),
        agreement,
        pd.DataFrame({"class": ["no", "yes"], "share": [0.8, 0.2]}),
        rows=300,
        held_out=True,
        accuracy=0.77,
    )


def page(quality: Diagnostics, folder: Path) -> str:
    made = make(diagnostics=str(quality), quality=quality.told())
    return made.to_html(folder / "a.html").read_text(encoding="utf-8")


def test_numbers_stand_with_what_they_mean(tmp_path: Path) -> None:
    text = page(diagnostics(agreement=Agreement(0.98, 0.97, 0.96)), tmp_path)
    assert "are good here (measured on 300 held-out rows):" in text
    assert '<th scope="row">balanced accuracy</th><td>77.0 %</td>' in text
    assert '<th scope="row">decided yes</th><td>20.0 %</td>' in text
    assert '<th scope="row">stand-in agrees, visited rows</th><td>96.0 %</td>' in text
    name = '<th scope="row">&lt;b&gt;age</th>'
    assert f'{name}<td class="t">integer</td><td>97.0 %</td><td>0.0 %</td><td>18960</td>' in text
    assert "<pre>The models" not in text


def test_an_alarm_stands_on_the_first_page_and_says_what_to_try(tmp_path: Path) -> None:
    bad = page(diagnostics(kept=0.1, auc=0.5), tmp_path)
    first = bad[: bad.index('id="contents"')]
    assert '<div class="alarm">' in first
    assert "Do not rely on these explanations" in first
    assert "keeps less than half of: &lt;b&gt;age. Try: a larger latent=" in first
    assert "alarm" not in page(diagnostics(), tmp_path).split("</style>")[1]


def test_what_is_known_of_the_models_goes_through_a_file(tmp_path: Path) -> None:
    quality = diagnostics().told()
    made = {"date": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "versions": {"torch": "2"}}
    again = Explanation.from_json(make(quality=quality, made=made).to_json())
    assert again.quality == quality
    assert again.made == made
    text = again.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert '<th scope="row">date</th><td class="t">2026-01-01T00:00:00+00:00</td>' in text
    assert '<th scope="row">versions</th><td class="t">torch 2</td>' in text

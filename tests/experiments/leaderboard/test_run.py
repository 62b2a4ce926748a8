import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpath as cp
from counterpath.cli import main
from counterpath.experiments.leaderboard import run as running
from counterpath.experiments.leaderboard import suites
from counterpath.experiments.leaderboard.acceptance import spread_text
from counterpath.experiments.leaderboard.arena import Arena, Published, Reproduction
from counterpath.experiments.leaderboard.page import acceptance, blocks_of, write_page
from counterpath.experiments.leaderboard.run import REPRODUCED, plan, read_cells, run
from counterpath.search.methods import METHODS
from counterpath.utils.errors import InputError
from tests.browsing import chromium, opened
from tests.tables import features

TINY = replace(suites.PRESETS["quick"], rows=4)


@pytest.fixture
def made(explainer: cp.Explainer, people: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A suite whose arena is the explainer of all tests; a list of the data sets for which it was made."""
    calls: list[str] = []

    def make(data: str, model: str, seed: int, preset: suites.Preset) -> Arena:
        calls.append(data)
        if data == "nowhere":
            raise InputError("there is no such table")
        rows = features(people)[explainer.predict(features(people)) != "low"].head(preset.rows)

        def encode(table: Any) -> np.ndarray:
            return explainer.models_.encoder.encode(table).double().numpy()

        their = Published("theirs", {"valid": 1.0, "l1": 3.0})
        answers = encode(rows)
        return Arena(
            "ours",
            explainer,
            rows,
            "low",
            encode,
            suites._columns(explainer),
            explainer.models_.rows.double().numpy(),
            suites._predict(explainer),
            published=(their,),
            reproduce=lambda: Reproduction(their, answers, {"l1": 0.5}, "nothing at all"),
        )

    monkeypatch.setitem(suites.SUITES, "ours", suites.Suite("ours", None, make, deterministic=False))
    return calls


def test_cells_are_done_once_and_what_fails_says_why(made: list[str], tmp_path: Path) -> None:
    keys = plan("ours", "quick", data=["here", "nowhere"], models=["mlp"], methods=["nearest", "nice", "ppcef"])
    first = list(run(keys[:2], tmp_path, TINY))
    assert [cell["method"] for cell in first] == [REPRODUCED, "nearest"]
    assert first[0]["within"] is False
    assert first[0]["measures"]["l1"] == {"published": 3.0, "ours": 0.0, "tolerance": 0.5}
    assert first[1]["status"] == "done", first[1]
    assert first[1]["means"]["l1"] > 0
    with (tmp_path / running.FILE).open("a") as file:
        file.write('{"suite": "ours", "pre')  # cut off
    rest = list(run(keys, tmp_path, TINY))
    assert [cell["method"] for cell in rest] == ["nice", "ppcef", REPRODUCED, "nearest", "nice", "ppcef"]
    assert rest[1]["status"] == "left out"
    assert "flow" in rest[1]["reason"]
    assert {cell["reason"] for cell in rest[2:5]} == {"InputError: there is no such table"}
    assert made == ["here", "here", "nowhere"], "an arena is made once for all of its cells, and not for what is done"
    assert list(run(keys, tmp_path, TINY)) == []
    assert len(read_cells(tmp_path)) == 8
    assert [cell["data"] for cell in run(keys, tmp_path, TINY, retry=True)] == ["nowhere"] * 3
    assert len(read_cells(tmp_path)) == 8, "of two lines of a cell the later one counts"


def test_what_another_process_does_is_left_to_it(made: list[str], tmp_path: Path) -> None:
    keys = plan("ours", "quick", data=["here", "there"], models=["mlp"], methods=["nearest"])
    one = run(keys, tmp_path, TINY)
    assert [next(one)["data"] for _ in range(2)] == ["here", "here"]
    # The first one still holds what it works on, and the other begins with the next.
    assert [cell["data"] for cell in run(keys, tmp_path, TINY)] == ["there", "there"]
    assert list(one) == []
    assert made == ["here", "there"]


def test_who_was_solved_is_noted(made: list[str], tmp_path: Path) -> None:
    keys = plan("ours", "quick", data=["here"], models=["mlp"], methods=["nearest"])
    cell = list(run(keys, tmp_path, TINY))[1]
    assert len(cell["rows"]) == cell["n"]
    assert sum(row != "0" for row in cell["rows"]) == round(cell["valid"] * cell["n"])
    assert cell["out_of_time"] == 0
    assert cell["cpu_seconds"] > 0


def test_a_run_stops_when_its_time_is_up(made: list[str], tmp_path: Path) -> None:
    assert list(run(plan("ours", "quick", data=["here"]), tmp_path, TINY, seconds=-1)) == []


def test_the_plan_has_all_methods_and_refuses_what_it_does_not_know() -> None:
    keys = plan("recoursebench", "full")
    assert [key.method for key in keys] == [REPRODUCED, *METHODS]
    assert len(plan("ours", "full")) == 6 * 3 * 3 * (len(METHODS) + 1)
    with pytest.raises(InputError, match="unknown suite"):
        plan("nobody", "full")
    with pytest.raises(InputError, match="unknown method"):
        plan("ours", "full", methods=["magic"])


def _cell(method: str, **means: float) -> dict[str, Any]:
    key = {"suite": "ours", "preset": "quick", "data": "german", "model": "mlp", "seed": 0, "method": method}
    return {**key, "status": "done", "valid": 1.0, "found": 1.0, "n": 4, "means": means, "seconds": 1.5}


CELLS = [
    _cell("geodesic", l0=2.0, l1=1.0, ld_sq=0.5, lof=1.1, violation=0.0),
    _cell("nice", l0=3.0, l1=0.9, ld_sq=0.4, lof=1.2, violation=0.0),
    _cell("mcce", l0=3.0, l1=0.9, ld_sq=0.4, lof=1.0, violation=1.0),
    _cell("revise", l0=12.0, l1=9.0, ld_sq=0.9, lof=1.4, violation=0.0),
    {**_cell("dice"), "status": "failed", "reason": "ValueError: <b>odd</b>"},
]


def test_what_is_better_in_two_is_marked() -> None:
    (block,) = blocks_of(CELLS)
    (said,) = block.verdicts
    assert said.kept
    assert said.better == {"nice": ("l1", "ld_sq")}, "mcce breaks what is immutable"
    assert "in two of them L1 and LD², at 0.9 × its L1: nice; closer alone: none" in block.notes[-1]
    text, ((title, *row),) = acceptance([block])
    assert text.startswith("In 1 of 1 cells")
    assert title == "german · mlp (quick)"
    assert (row[0], row[-2:]) == ("1 of 1", ["none", "L1 and LD², at 0.9 × its L1: nice"])


def test_what_is_not_kept_is_said() -> None:
    def said(*cells: dict[str, Any]) -> Any:
        return blocks_of(cells)[0].verdicts[0]

    own, means = CELLS[0], CELLS[0]["means"]
    assert not said({**own, "means": {**means, "violation": 0.1}}).kept
    better = _cell("nice", l1=0.9, ld_sq=0.4, lof=1.0, violation=0.0)
    assert said(own, better).beaten(3) == ["nice"]
    # The one person whom the other solves and the default does not; of whom nobody has a plausible answer, nobody asks.
    other = {**better, "rows": "2201", "valid": 0.75}
    missed = said({**own, "rows": "2010", "valid": 0.5}, other)
    assert (missed.unanswered, missed.far) == (2, 0)
    assert (missed.valid, missed.kept, missed.better) == (0.5, False, {"nice": ("l1", "ld_sq", "lof")})
    assert said({**own, "rows": "1200", "valid": 0.5}, other).valid == 1.0


def test_presets_are_not_mixed() -> None:
    full = [{**cell, "preset": "full", "seed": seed} for cell in CELLS[:2] for seed in (0, 1)]
    full[1]["means"] = {**full[1]["means"], "l1": 2.0}
    (block,) = blocks_of([*CELLS, *full])
    assert (block.preset, block.seeds, set(block.done)) == ("full", (0, 1), {"geodesic", "nice"})
    assert block.done["geodesic"]["l1"] == 1.5
    assert block.spread["geodesic"]["l1"] == pytest.approx(0.5**0.5)
    (block,) = blocks_of([*CELLS, full[2]])
    assert block.preset == "quick", "the default is not there yet"


def test_models_are_in_the_order_of_the_preset() -> None:
    cells = [{**CELLS[0], "model": model} for model in ("xgboost", "logistic", "mlp")]
    assert [block.model for block in blocks_of(cells)] == ["mlp", "logistic", "xgboost"]


def test_a_spread_is_shown_where_the_mean_would_show_it() -> None:
    assert spread_text(1.06, 0.2) == " ± 0.2"
    assert spread_text(0.0173, 9e-6) == ""
    assert spread_text(0.0, 0.0) == ""


def test_the_page_is_one_file(tmp_path: Path) -> None:
    page = write_page(CELLS, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;odd&lt;/b&gt;" in text
    assert text.count("<svg") == 3, "one a pair of measures"
    assert ">not run: needs a flow<" in text
    assert "http-equiv" not in text
    assert "What is promised of the default" in text
    assert "| `geodesic` | 1 | 2 |" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_sorts(tmp_path: Path) -> None:
    with chromium() as browser, opened(browser, write_page(CELLS, tmp_path), 1000) as shown:
        table = "document.querySelector('table:not(.promise)').tBodies[0]"
        first = f"{table}.rows[0].cells[0].textContent"
        assert shown.evaluate(first) == "geodesic"
        shown.click("table:not(.promise) th button:text('LOF')")
        assert shown.evaluate(first) == "mcce"
        shown.click("table:not(.promise) th button:text('LOF')")
        assert shown.evaluate(first) == "revise"
        last = f"[...{table}.rows].slice(4).every(row => row.cells[1].colSpan > 1)"
        assert shown.evaluate(last), "what failed or was not run stays below"


def test_the_command_runs_and_makes_the_page(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(suites.PRESETS, "quick", TINY)
    asked = ("leaderboard", "--data", "here", "--models", "mlp", "--methods", "nearest", "--out", str(tmp_path))
    assert main([*asked, "--device", "cpu"]) == 0
    printed = capsys.readouterr().err
    assert "theirs is not within its tolerance" in printed
    assert "nearest: valid" in printed
    assert (tmp_path / "index.html").exists()
    assert all(json.loads(line) for line in (tmp_path / running.FILE).read_text().splitlines())
    assert main([*asked, "--page"]) == 0
    assert main(["leaderboard", "--page", "--out", str(tmp_path / "empty")]) == 2
    assert "no results" in capsys.readouterr().err


def test_without_flows_nothing_waits_for_one(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(suites.PRESETS, "full", replace(suites.PRESETS["full"], rows=2))
    asked = ("--data", "here", "--models", "mlp", "--seeds", "0", "--methods", "nearest,ppcef", "--out", str(tmp_path))
    assert main(["leaderboard", "--preset", "full", "--no-flow", *asked]) == 0
    assert [cell["method"] for cell in read_cells(tmp_path)] == [REPRODUCED, "nearest"]
    assert "left out" not in capsys.readouterr().err.replace("reproduced: left out", "")

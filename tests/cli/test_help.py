"""What `--help` says, and how little it loads."""

import re
import subprocess
import sys

import pytest

from counterpath.batch.running import SHARD_ROWS, STALL
from counterpath.cli import COMMANDS, main
from counterpath.cli.options import OWN_DECISION
from counterpath.data.schema import Feature
from counterpath.experiments.bench.run import PARTS, USUAL
from counterpath.experiments.leaderboard.suites import PRESETS, SUITES
from counterpath.explainer.compare import COMPARED
from counterpath.explainer.request import OTHER
from counterpath.explanation.result import MOST_PAGES
from counterpath.explanation.tables import ALL, KEEPS

HEAVY = ("torch", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib", "plotly", "fastapi", "nicegui", "ray")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=lambda words: " ".join(words) or "none")
def test_help_loads_no_library(command: tuple[str, ...]) -> None:
    code = (
        "import sys; from counterpath.cli import main; "
        f"code = main([*{command!r}, '--help']); "
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "--help" in done.stdout


ATTRIBUTES = [name for name in Feature.__dataclass_fields__ if name != "name"]
NAMED = {
    "schema": [f"attributes: {', '.join(ATTRIBUTES)}."],
    "fit": [f"attributes: {', '.join(ATTRIBUTES)}."],
    "explain": ["|".join(KEEPS), f"({ALL})", f"({OTHER})", f"({OWN_DECISION})", f"({MOST_PAGES})"],
    "evaluate": [f"[default: {','.join(COMPARED)}]", f"({OTHER})", f"({OWN_DECISION})"],
    "batch": [f"({SHARD_ROWS['cpu']}, on a GPU {SHARD_ROWS['cuda']})", f"[default: {STALL}]"],
    "bench": [f"commas: {', '.join(PARTS)}.", f"[default: {','.join(USUAL)}]"],
    "leaderboard": [f"commas: {', '.join(SUITES)}.", f"How large: {' or '.join(PRESETS)}."],
}
"""By command what its help takes from the library: it is written out in the command, which cannot import it."""


@pytest.mark.parametrize("command", NAMED)
def test_help_names_what_there_is(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main([command, "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    for named in NAMED[command]:
        assert named in text

"""What the guide shows, run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

HASTE = "from counterpath.models import own, surrogate; own._EPOCHS = 10; surrogate.STEPS = 300"
"""A surrogate of its usual quality takes longer than all the rest of the guide, and classifiers half of the rest."""


def script(page: Path) -> str:
    """The Python blocks of a page as one script, every line at its place in the page, after a first line of our own."""
    lines = page.read_text(encoding="utf-8").splitlines()
    kept, inside = [HASTE], False
    for line in lines[1:]:
        fence = line.startswith("```")
        inside = line == "```python" if fence else inside
        kept.append(line if inside and not fence else "")
    return "\n".join(kept)


@pytest.mark.slow
def test_the_code_of_the_guide_runs_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text(script(DOCS / "guide.md"), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "4 rows: 4 found" in done.stdout


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    for name in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert name.startswith("https://") or (page.parent / name).exists(), name

"""What the README promises, run as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_of_python_run_and_find_counterfactuals() -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {}
    exec(code.group(1), names)
    found = names["found"]
    assert (found.probability[-1] >= 0.7).float().mean() > 0.5  # type: ignore[attr-defined]


def test_every_file_that_the_readme_names_is_there() -> None:
    for name in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / name).exists(), name

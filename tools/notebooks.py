"""Make the gallery: every example in cells (`# %%`) as a notebook, executed from a clean kernel.

    python tools/notebooks.py            all of them into docs/gallery
    python tools/notebooks.py digits     only these
    python tools/notebooks.py --check    executed, but nothing is written

An example is a script that tests run as it is; a line `# %%` begins a cell of code, `# %% [markdown]` one of text. In
the notebook the script's own docstring is left out, because its first cell says the same. Two run at a time, each with
one thread. A notebook that fails, writes to standard error or is too large is an error, and so is it when all together
take longer than ten minutes.
"""

import argparse
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
EXAMPLES, GALLERY = ROOT / "examples", ROOT / "docs" / "gallery"
CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)
_AT_ONCE = 2  # a kernel for each core of the smallest machine
_LIMIT = 600  # seconds that all of them may take together
_LARGEST = 300_000  # bytes of a notebook in the repository


def in_cells() -> list[str]:
    """The examples that are notebooks, by name."""
    return sorted(path.stem for path in EXAMPLES.glob("*.py") if CELL.match(path.read_text(encoding="utf-8")))


def notebook(name: str) -> Any:
    """The notebook of an example, not yet executed."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    _, *parts = CELL.split(text)
    cells = []
    for number, (kind, source) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        if "[markdown]" in kind:
            lines = [line.removeprefix("#").removeprefix(" ") for line in source.strip().splitlines()]
            made = nbformat.v4.new_markdown_cell("\n".join(lines))
        else:
            made = nbformat.v4.new_code_cell(re.sub(r'\A\s*""".*?"""\s*', "", source, flags=re.DOTALL).strip())
        made.id = f"cell-{number}"  # nbformat's own are random
        cells.append(made)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def execute(name: str, write: bool) -> tuple[str, float, int]:
    """Execute an example as a notebook; its name, the seconds it took, and how many bytes it has."""
    started, made = time.monotonic(), notebook(name)
    with TemporaryDirectory() as sockets:  # of its own: no port that others could speak to, and none of another kernel
        config = Config({"AsyncKernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        options = {"timeout": _LIMIT, "kernel_name": "python3", "resources": {"metadata": {"path": str(ROOT)}}}
        options["coalesce_streams"] = True  # else it depends on the moment how many pieces a print has
        NotebookClient(made, config=config, **options).execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when it was executed: different every time
        said = [output.text for output in cell.get("outputs", ()) if output.get("name") == "stderr"]
        if said:
            raise RuntimeError(f"{name} wrote to standard error: {said[0]}")
    text = nbformat.writes(made) + "\n"
    if len(text) > _LARGEST:
        raise RuntimeError(
            f"{name} has {len(text):,} bytes, and {_LARGEST:,} are the most; show fewer pictures or rows"
        )
    if write:
        GALLERY.mkdir(exist_ok=True)
        (GALLERY / f"{name}.ipynb").write_text(text, encoding="utf-8")
    return name, time.monotonic() - started, len(text)


def main() -> int:
    """Execute the notebooks and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="examples; by default all that have cells")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    names, failed, started = given.names or in_cells(), 0, time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, job in [(name, pool.submit(execute, name, not given.check)) for name in names]:
            try:
                _, seconds, size = job.result()
                print(f"{name:20} {seconds:6.1f} s {size / 1000:7.0f} kB", flush=True)
            except (CellExecutionError, RuntimeError) as error:
                failed += 1
                print(f"{name:20} failed\n{error}", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(names) - failed} of {len(names)} notebooks in {seconds:.0f} s, of {_LIMIT} that they may take")
    return int(failed > 0 or seconds > _LIMIT)


if __name__ == "__main__":
    sys.exit(main())

"""Build the wheel and the source distribution twice, and compare them; then try the wheel where there is nothing else.

    python tools/dist.py [--out dist] [--smoke] [--extras]

Both builds are of copies of the tracked files in folders of different names, with SOURCE_DATE_EPOCH as it is set, or
the time of the last commit. `--smoke` makes a clean environment for every Python from 3.11 to 3.13 that is here,
installs the wheel with its extra `app` and constraints.txt, and runs `counterpath doctor` far from the repository; with
the first of them, the demo is run, and its model is served and shown. `--extras` resolves every extra alone.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")


def build(folder: Path) -> dict[str, Path]:
    """Build a copy of the tracked files in a folder; the files that were made, by name."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    out = folder / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(folder)]
    done = subprocess.run(
        command, env=os.environ | {"SOURCE_DATE_EPOCH": epoch()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {path.name: path for path in sorted(out.iterdir())}


def epoch() -> str:
    """The time that every file in the packages has."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    log = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(log, cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_twice(out: Path) -> list[Path]:
    """Build twice, and keep the packages if they are equal to the byte.

    Raises:
        SystemExit: A build fails, or they differ.
    """
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(suffix="-another") as second:
        one, other = build(Path(first)), build(Path(second))
        for name, path in one.items():
            if digest(path) != digest(other[name]):
                sys.exit(f"{name} is another one when it is built again: {digest(path)}, {digest(other[name])}")
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(path, out)) for path in one.values()]


def smoke(wheel: Path) -> list[str]:
    """Try the wheel in a clean environment of every Python that is here; which these were."""
    tried: list[str] = []
    for python in filter(_runs, PYTHONS):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            environment = _clean() | {"XDG_CACHE_HOME": str(here / "cache")}
            run = partial(subprocess.run, cwd=here, check=True, env=environment)
            run([python, "-m", "venv", "venv"])
            pip = [here / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, "--constraint", ROOT / "constraints.txt", f"counterpath[app] @ {wheel.as_uri()}"])
            command = here / "venv/bin/counterpath"
            run([command, "doctor"])
            run([command, "datasets"])
            if not tried:
                run([command, "demo", "--rows", "3"])
                (model,) = (here / "cache/counterpath/models").glob("adult-demo-*")
                serve, app = [command, "serve", model, "--port", "0"], [command, "app", "--no-open", "--port", "0"]
                _answers(serve, here, environment, "/v1/models", '"adult-demo-')
                _answers(app, here, environment, "/", "Counterpath")
        tried.append(python)
    return tried


def _runs(python: str) -> bool:
    """Whether a Python is here and starts: one that is only a name of a version manager does not."""
    return bool(shutil.which(python)) and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def _answers(command: list[object], folder: Path, environment: dict[str, str], path: str, expected: str) -> None:
    """Start a server, and fetch a page in which something is expected.

    Raises:
        SystemExit: It does not start, or answers something else.
    """
    words = [str(word) for word in command]
    with subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = []
            for line in server.stderr:
                said.append(line)
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    with urllib.request.urlopen(f"{address[0]}{path}", timeout=60) as answer:
                        if expected not in answer.read().decode():
                            sys.exit(f"{' '.join(words)} answers {path} without {expected}")
                    return
            sys.exit(f"{' '.join(words)} did not start: {''.join(said)}")
        finally:
            server.terminate()


def extras(wheel: Path) -> list[str]:
    """Resolve every extra alone, with the versions that are tested; which there are."""
    names = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for name in names:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--disable-pip-version-check",
        ]
        command += ["--constraint", str(ROOT / "constraints.txt"), f"counterpath[{name}] @ {wheel.resolve().as_uri()}"]
        subprocess.run(command, check=True)
    return names


def _clean() -> dict[str, str]:
    """The environment without what would lead back to the repository."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def main() -> None:
    """Build, compare, and try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--extras", action="store_true")
    given = parser.parse_args()
    made = build_twice(given.out)
    for path in made:
        print(f"{digest(path)}  {path}")
    (wheel,) = (path for path in made if path.suffix == ".whl")
    if given.extras:
        print(f"resolved alone: {', '.join(extras(wheel))}")
    if given.smoke:
        tried = smoke(wheel.resolve())
        missing = [name for name in PYTHONS if name not in tried]
        print(f"tried with {', '.join(tried)}" + (f"; not here: {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()

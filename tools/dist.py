"""Build the wheel and the source distribution twice, and compare them; then try the wheel where there is nothing else.

    python tools/dist.py [--out dist] [--smoke] [--extras]

Both builds are of copies of the tracked files in folders of different names, with SOURCE_DATE_EPOCH as it is set, or
the time of the last commit. `--smoke` makes a clean environment for every Python from 3.11 to 3.13 that is here,
installs the wheel with constraints.txt, and runs `counterpath doctor` far from the repository. `--extras` resolves
every extra alone.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
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
    tried = []
    for python in filter(shutil.which, PYTHONS):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            run = lambda *words: subprocess.run([*map(str, words)], cwd=here, check=True, env=_clean())  # noqa: B023, E731
            run(python, "-m", "venv", here / "venv")
            pip = (here / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            run(*pip, "--constraint", ROOT / "constraints.txt", wheel)
            run(here / "venv/bin/counterpath", "doctor")
            run(here / "venv/bin/counterpath", "datasets")
        tried.append(python)
    return tried


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

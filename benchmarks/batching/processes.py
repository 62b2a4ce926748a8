"""Processes as Linux shows them under /proc: who started whom, and how much memory they have."""

import os
import signal
from pathlib import Path

_PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """A process and all that it started, and those started, as far as they live."""
    children: dict[int, list[int]] = {}
    for process in _all():
        children.setdefault(_parent(process), []).append(process)
    found = [root]
    for process in found:
        found.extend(children.get(process, []))
    return found


def workers(root: int, words: tuple[str, ...]) -> list[int]:
    """Those of a tree whose command line has all these words in it."""
    return [process for process in tree(root)[1:] if all(word in command_line(process) for word in words)]


def named(word: str) -> set[int]:
    """All processes with a word in their command line, whoever started them."""
    return {process for process in _all() if word in command_line(process)}


def command_line(process: int) -> str:
    """The command that a process runs, or the title it gave itself; empty if it is no more."""
    try:
        return (_PROC / str(process) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def kill(process: int) -> bool:
    """`kill -9`; False if it was gone already."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def memory(root: int) -> int:
    """Bytes of memory of a whole tree; what processes share is counted once (the sum of PSS)."""
    return sum(_proportional(process) for process in tree(root))


def _all() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _parent(process: int) -> int:
    try:
        status = (_PROC / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    return int(status.rpartition(")")[2].split()[1])  # the name of the command, in brackets, may hold anything


def _proportional(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))

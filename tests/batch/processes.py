"""Which processes descend from another, and where they listen, by the files under /proc."""

import ipaddress
import os
import time
from collections.abc import Iterable
from pathlib import Path

Process = tuple[int, str]
"""The number of a process and when it began: numbers are used again."""

_LISTENING = "0A"


def family(root: int) -> set[Process]:
    """All processes that descend from one that runs, without it."""
    known = {number: (parent, start) for number, parent, start in _all()}

    def descends(number: int) -> bool:
        while number in known:
            number = known[number][0]
            if number == root:
                return True
        return False

    return {(number, start) for number, (_, start) in known.items() if descends(number)}


def left(processes: Iterable[Process], seconds: float) -> set[Process]:
    """Those that are still there after some time; it returns as soon as there are none."""
    awaited, until = set(processes), time.monotonic() + seconds
    while True:
        alive = awaited & {(number, start) for number, _, start in _all()}
        if not alive or time.monotonic() > until:
            return alive
        time.sleep(0.1)


def title(number: int) -> str:
    """What a process calls itself; nothing if it has ended."""
    try:
        return Path("/proc", str(number), "cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def addresses(processes: Iterable[int]) -> set[str]:
    """All addresses at which some processes listen."""
    sockets = {name for number in processes for name in _sockets(number)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.add(_address(fields[1].split(":")[0]))
    return found


def _all() -> list[tuple[int, int, str]]:
    """Of every process that has not ended: its number, its parent, and when it began."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            found.append((int(path.parent.name), int(fields[1]), fields[19]))
    return found


def _sockets(number: int) -> list[str]:
    found = []
    for path in Path("/proc", str(number), "fd").glob("*"):
        try:
            found.append(os.readlink(path))
        except FileNotFoundError:
            continue
    return found


def _address(text: str) -> str:
    """What the kernel writes in words of four bytes, each the wrong way round."""
    packed = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)

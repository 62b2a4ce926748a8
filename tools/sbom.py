"""What Counterpath is delivered with: its dependencies, theirs, and under which licences.

    python tools/sbom.py [--extras app,flow] [--out out/release]

Writes `sbom.cdx.json` (CycloneDX 1.6) and `licences.md`, of what is installed beside this Python. The same installation
gives the same files: there is no date and no random number in them.
"""

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "counterpath"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "counterpath")
"""Serial numbers are made of the content, so that equal lists have equal ones."""
CLASSIFIER = "License :: OSI Approved :: "
LONG = 60
"""A field "License" that is longer than this is the text of a licence, not its name."""


def closure(name: str, extras: Iterable[str]) -> dict[str, tuple[metadata.Distribution, set[str]]]:
    """All distributions that a distribution needs, itself among them, each with the names that it asks for.

    Raises:
        SystemExit: One is not installed.
    """
    found: dict[str, tuple[metadata.Distribution, set[str]]] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while waiting:
        each, extra = waiting.pop()
        if (each, extra) in done:
            continue
        done.add((each, extra))
        try:
            distribution = metadata.distribution(each)
        except metadata.PackageNotFoundError:
            sys.exit(f"{each} is asked for and not installed; expected all extras that are listed, try: make sbom")
        _, asked = found.setdefault(each, (distribution, set()))
        for text in distribution.requires or ():
            wanted = Requirement(text)
            # Without an extra what belongs to none; with one what belongs to it alone.
            if wanted.marker is None and extra:
                continue
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(wanted.name)
            if needed != each:
                asked.add(needed)
            waiting += [(needed, further) for further in ("", *wanted.extras)]
    return found


def licence(distribution: metadata.Distribution) -> str:
    """The licence that a distribution names: an SPDX expression where it has one."""
    about = distribution.metadata
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    named = [each.removeprefix(CLASSIFIER) for each in about.get_all("Classifier") or () if each.startswith(CLASSIFIER)]
    if named:
        return " AND ".join(sorted(named))
    field = (about.get("License") or "").strip()
    return field if 0 < len(field) <= LONG and "\n" not in field else "not stated"


def sbom(found: dict[str, tuple[metadata.Distribution, set[str]]]) -> dict[str, Any]:
    """The list as CycloneDX 1.6."""
    components = {
        name: {
            "type": "library",
            "bom-ref": name,
            "name": distribution.metadata["Name"],
            "version": distribution.version,
            "purl": f"pkg:pypi/{name}@{distribution.version.replace('+', '%2B')}",
            "licenses": _licences(licence(distribution)),
        }
        for name, (distribution, _) in sorted(found.items())
    }
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": components.pop(ROOT)},
        "components": list(components.values()),
        "dependencies": [{"ref": name, "dependsOn": sorted(asked)} for name, (_, asked) in sorted(found.items())],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "serialNumber": f"urn:uuid:{serial}",
        **content,
    }


def _licences(name: str) -> list[dict[str, Any]]:
    if name == "not stated":
        return []
    is_expression = re.fullmatch(r"[\w.+()-]+( (AND|OR|WITH) [\w.+()-]+)*", name) is not None
    return [{"expression": name}] if is_expression else [{"license": {"name": name}}]


def table(found: dict[str, tuple[metadata.Distribution, set[str]]]) -> str:
    """The licences as a page."""
    lines = ["# Licences of the dependencies", "", "Made by `python tools/sbom.py`.", ""]
    lines += ["| library | version | licence |", "|---|---|---|"]
    for name, (distribution, _) in sorted(found.items()):
        if name != ROOT:
            lines.append(f"| {distribution.metadata['Name']} | {distribution.version} | {licence(distribution)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="", help="extras of Counterpath, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("out/release"))
    given = parser.parse_args(arguments)
    found = closure(ROOT, [each for each in given.extras.split(",") if each])
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "sbom.cdx.json").write_text(json.dumps(sbom(found), indent=2) + "\n", encoding="utf-8")
    (given.out / "licences.md").write_text(table(found), encoding="utf-8")
    print(f"wrote {given.out / 'sbom.cdx.json'} and {given.out / 'licences.md'}: {len(found) - 1} dependencies")


if __name__ == "__main__":
    main()

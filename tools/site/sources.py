"""Pages of what is outside of docs/: files and folders of the repository that pages link to."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".json": "json",
    ".cff": "yaml",
    ".txt": "text",
    ".sh": "bash",
    "": "text",
}
"""By suffix, in which language a file is shown; Markdown is a page as it is."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]*)(#[^)\s]*)?(\))")
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "examples")
"""What has a page even if nobody links to it."""


def relink(markdown: str, page: str) -> str:
    """A page of the site with its links to repository files turned into links to the pages made of them.

    Args:
        markdown: The page.
        page: Where it is in the site.
    """
    origin = _origin(page)

    def turned(found: re.Match[str]) -> str:
        start, target, anchor, end = found.groups()
        if not target or ":" in target or target.startswith("/"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if not (ROOT / path).exists():
            return found[0]  # the strict build names it
        return f"{start}{posixpath.relpath(_place(path), posixpath.dirname(page))}{anchor or ''}{end}"

    return "\n".join(
        LINK.sub(turned, part) if not is_code else part for part, is_code in _pieces(markdown.splitlines())
    )


def pages() -> dict[str, str]:
    """The pages that are made, by their place in the site: all that is linked to, and what that links to in turn."""
    made: dict[str, str] = {}
    waiting = [*ALWAYS, *(path for page in sorted(DOCS.rglob("*.md")) for path in _targets(page))]
    while waiting:
        path = waiting.pop()
        place = _place(path)
        if place in made or ((ROOT / path).is_relative_to(DOCS) and (ROOT / path).is_file()):
            continue
        if (DOCS / place).exists():
            continue
        made[place] = _folder_page(path) if (ROOT / path).is_dir() else _file_page(path)
        if path.endswith(".md"):
            waiting += _targets(ROOT / path)
        if (ROOT / path).is_dir() and not (ROOT / path).is_relative_to(DOCS):
            waiting += [f"{path}/{each.name}" for each in _files(ROOT / path)]
    return made


def results_nav() -> list[object]:
    """The pages of docs/results, the overview first; tables without a title belong to the page that links to them."""
    titled = [page for page in sorted((DOCS / "results").rglob("*.md")) if page.read_text("utf-8").startswith("# ")]
    pages = [page.relative_to(DOCS).as_posix() for page in titled]
    first = ["results/README.md"]
    return [*first, *(page for page in pages if page not in first)]


def _pieces(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Lines, and whether each is code."""
    inside = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        yield line, inside or fence
        inside = inside != fence


def _targets(page: Path) -> list[str]:
    """What a Markdown file of the repository links to, as paths from its root."""
    text = "\n".join(part for part, is_code in _pieces(page.read_text(encoding="utf-8").splitlines()) if not is_code)
    found = []
    for _, target, _, _ in LINK.findall(text):
        if target and ":" not in target and not target.startswith("/"):
            path = posixpath.normpath(posixpath.join(page.parent.relative_to(ROOT).as_posix(), target))
            if not path.startswith("..") and (ROOT / path).exists():
                found.append(path)
    return found


def _place(path: str) -> str:
    """Where a file or folder of the repository is in the site."""
    here = ROOT / path
    if here.is_relative_to(DOCS):
        inside = here.relative_to(DOCS).as_posix()
        if not here.is_dir():
            return inside
        return f"{inside}/README.md" if (here / "README.md").exists() else f"{inside}/index.md"
    if here.is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def _origin(page: str) -> str:
    """Which file of the repository a page of the site is: the reverse of `_place`."""
    if page.startswith("source/"):
        return page.removeprefix("source/")
    return f"docs/{page}"


def _file_page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"


def _folder_page(path: str) -> str:
    """A list of what is in a folder; pictures are shown."""
    folder = ROOT / path
    lines = [f"# {path}", ""]
    for each in _files(folder):
        if each.suffix in (".png", ".svg"):
            lines += [f"![{each.stem.replace('-', ' ')}]({each.name})", ""]
        elif folder.is_relative_to(DOCS):
            lines += [f"- [{each.name}]({each.name})"]
        else:
            lines += [f"- [{each.name}]({posixpath.basename(_place(f'{path}/{each.name}'))}): {_first_line(each)}"]
    return "\n".join(lines) + "\n"


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))


def _first_line(path: Path) -> str:
    """What a script says of itself."""
    line = path.read_text(encoding="utf-8").splitlines()[0] if path.suffix == ".py" else ""
    return line.strip('"').replace("`", "")

"""The notebooks of docs/gallery as pages: text, code, and what it printed, drew and showed."""

import base64
import html as escaping
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
_TOKEN = re.compile(r"<p>notebook-output-([\w-]+)-(\d+)</p>")


@cache
def notebooks() -> dict[str, list[dict[str, Any]]]:
    """The cells of every notebook, by its name."""
    paths = sorted(GALLERY.glob("*.ipynb"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["cells"] for path in paths}


def pages() -> dict[str, str]:
    """A page for every notebook, by its place in the site, and one that lists them."""
    made = {f"gallery/{name}.md": _page(name, cells) for name, cells in notebooks().items()}
    if made:
        links = [f"- [{_title(cells)}]({name}.md)" for name, cells in notebooks().items()]
        made["gallery/index.md"] = "\n".join(
            [
                "# Gallery",
                "",
                "Notebooks, made of [examples](../../examples) that tests run, with all that they show.",
                "",
                *links,
            ]
        )
    return made


def nav() -> list[object]:
    """The part of the navigation."""
    return [{_title(cells): f"gallery/{name}.md"} for name, cells in notebooks().items()]


def show(html: str) -> str:
    """A page in which what notebooks showed stands where it belongs."""
    return _TOKEN.sub(lambda found: _shown(_outputs(found[1])[int(found[2])]), html)


def _title(cells: list[dict[str, Any]]) -> str:
    return "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")


def _outputs(name: str) -> list[dict[str, Any]]:
    return [output for cell in notebooks()[name] for output in cell.get("outputs", [])]


def _page(name: str, cells: list[dict[str, Any]]) -> str:
    lines, count = [], 0
    for cell in cells:
        source = "".join(cell["source"])
        lines += [source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```", ""]
        for _ in cell.get("outputs", []):
            lines += [f"notebook-output-{name}-{count}", ""]
            count += 1
    return "\n".join([*lines, f"[The notebook]({name}.ipynb), [the script](../../examples/{name}.py)", ""])


def _shown(output: dict[str, Any]) -> str:
    """An output as HTML: the richest form of it that there is."""
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="notebook" tabindex="0">{"".join(data["text/html"])}</div>'
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        base64.b64decode(picture, validate=True)
        return f'<p><img alt="What the code above draws" src="data:image/png;base64,{picture}"></p>'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre class="notebook" tabindex="0"><code>{escaping.escape(text)}</code></pre>'

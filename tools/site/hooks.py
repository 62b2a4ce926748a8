"""What the site has beside the pages of docs/, made whenever it is built, so that it cannot be out of date.

- The reference: of Python from docstrings, of the command line and of HTTP from their definitions (`reference.py`).
- A page for every file outside of docs/ that a page links to, such as an example, and for every folder (`sources.py`).
- A page for every notebook of the gallery (`gallery.py`).
- Formulas, written in LaTeX, as MathML, which needs no script and no network (`formulas.py`).
"""

import os
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parent))

import formulas
import gallery
import reference
import sources

ROOT = Path(__file__).parents[2]


def on_config(config: Any) -> Any:
    """Complete the navigation: a page for every public name, and all results."""
    for section in config.nav:
        for name, pages in section.items():
            if name == "Reference":
                next(page for page in pages if "Python" in page)["Python"] = reference.python_nav()
            if name == "Results":
                pages[:] = sources.results_nav()
            if name == "Gallery":
                pages[:] = ["gallery/index.md", *gallery.nav()]
    # The theme asks the server for a list of versions only where mike put one.
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and keep a page and a file apart that would have the same address."""
    for path, text in {**reference.pages(), **sources.pages(), **gallery.pages()}.items():
        files.append(File.generated(config, path, content=text))
    for file in list(files):
        folder, _, name = file.src_uri.rpartition("/")
        readme = f"{folder}/README.md"
        # A page of its own beside the README would have its address, and the README would be left out.
        if name == "index.html" and (Path(config.docs_dir) / readme).exists():
            files.remove(file)
            places = (config.docs_dir, config.site_dir, config.use_directory_urls)
            files.append(File(file.src_uri, *places, dest_uri=f"{folder}/page.html", inclusion=InclusionLevel.INCLUDED))
            if files.get_file_from_path(readme) is None:
                files.append(File(readme, *places, inclusion=InclusionLevel.INCLUDED))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files outside of docs/ to the pages that were made of them."""
    return sources.relink(markdown, page.file.src_uri)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas as MathML, and what notebooks showed."""
    return gallery.show(formulas.render(html))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Name what screen readers cannot name in the theme: the dialog of the search."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )

"""The documents: what they show is run as it stands, and what they name is there."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import counterpath as cp
from counterpath.cli import COMMANDS
from tests.browsing import chromium

pytestmark = pytest.mark.whole
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

HASTE = "from counterpath.models import own, surrogate; own._EPOCHS = 10; surrogate.STEPS = 300"
"""A surrogate of its usual quality takes longer than all the rest of a page, and classifiers half of the rest."""
HOW_TO = (
    "index",
    "tables",
    "models",
    "methods",
    "constraints",
    "regression",
    "lasting",
    "results",
    "report",
    "models-on-disk",
)
"""The pages whose code goes on from each other, in their order on the site."""
TUTORIALS = ("own-data", "loan-officer", "auditor", "new-metric")
SENTENCES = {
    "own-data": "It would predict good",
    "loan-officer": "It would predict good credit risk",
    "auditor": "comparisons by",
    "new-metric": "straight",
}
"""Part of what each tutorial prints."""
LOOKED_AT = (
    "index",
    "gallery/index",
    "tutorials/own-data",
    "how-to/constraints",
    "how-to/results",
    "explanation/geometry",
    "reference/cli",
    "reference/http",
    "reference/python/Explainer",
    "results/leaderboard/index",
    "results/optimality/index",
    "explorer",
)
"""Pages of the site, one of each kind."""


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The code of a page: of each block its language and its text."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, code) for language, code in found if language in languages]


def run(words: list[str], folder: Path, seconds: float = 500) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        words, cwd=folder, capture_output=True, encoding="utf-8", env=environment, check=False, timeout=seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_code_of_the_how_to_pages_runs_in_one_go(tmp_path: Path) -> None:
    pages = [DOCS / "how-to" / f"{name}.md" for name in HOW_TO]
    code = [HASTE, *(f"# {page.name}\n{text}" for page in pages for _, text in blocks(page, "python"))]
    (tmp_path / "pages.py").write_text("\n".join(code), encoding="utf-8")
    assert "4 rows: 4 found" in run([sys.executable, "pages.py"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs_from_nothing(name: str, tmp_path: Path) -> None:
    shell = ["set -euo pipefail"]
    python = ""
    for language, code in blocks(DOCS / "tutorials" / f"{name}.md", "bash", "python"):
        if language == "bash":
            shell.append(code)
        else:
            python += code
    (tmp_path / "code.py").write_text(f"{HASTE}\n{python}", encoding="utf-8")
    shell.append(f"{sys.executable} code.py")
    assert SENTENCES[name] in run(["bash", "-c", "\n".join(shell)], tmp_path)


def test_tutorials_are_short() -> None:
    # Fifteen lines for a pipeline, sixty for a method: what the pages themselves promise.
    officer = blocks(DOCS / "tutorials" / "loan-officer.md", "python")
    assert len(officer[1][1].strip().splitlines()) <= 15
    method = next(
        code for _, code in blocks(DOCS / "tutorials" / "new-metric.md", "python") if "class Straight" in code
    )
    assert len(method.strip().splitlines()) <= 60


def test_every_page_of_code_is_tested() -> None:
    assert {path.stem for path in (DOCS / "tutorials").glob("*.md")} == {"index", *TUTORIALS}
    assert {path.stem for path in (DOCS / "how-to").glob("*.md")} == {"install", *HOW_TO}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for name in re.findall(r"\]\(([^)#]+)\)", text):
        made = re.fullmatch(r"(?:.*/)?(?:python/\w+|cli|http)\.md", name)  # the reference is made with the site
        assert name.startswith("https://") or made or (page.parent / name).exists(), name


def site_module(name: str) -> ModuleType:
    """A module of what makes the site."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "tools" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name_and_every_command() -> None:
    reference = site_module("reference")
    listed = {name for kind in reference.python_nav() for pages in kind.values() for page in pages for name in page}
    assert {name for name in cp.__all__ if not name.startswith("_")} <= listed
    text = reference.command_line()
    for command in COMMANDS:
        assert f"\n## counterpath {command}\n" in text
    assert "`--target-class" in text


def test_links_out_of_the_documents_become_links_to_pages() -> None:
    sources = site_module("sources")
    made = sources.pages()
    assert "import counterpath" in made["source/examples/own_method.py.md"]
    text = sources.relink(
        "[a](../../examples/own_method.py) `[b](../../x.py)`\n```\n[c](../../README.md)\n```", "how-to/x.md"
    )
    assert text.splitlines()[0].startswith("[a](../source/examples/own_method.py.md)")
    assert "[c](../../README.md)" in text


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    html = site_module("formulas").render('<span class="arithmatex">\\(a &lt; b^2\\)</span>')
    assert html.startswith("<math")
    assert "<msup>" in html
    assert "arithmatex" not in html


def test_pages_that_others_write_are_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name in nav, page.name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: strictly."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    run([*build, "--site-dir", str(folder)], ROOT)
    return folder


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?://', text), page
    assert "counterpath.Explainer" in (site / "reference" / "python" / "Explainer.html").read_text(encoding="utf-8")
    assert "<math" in (site / "explanation" / "geometry.html").read_text(encoding="utf-8")
    assert (site / "results" / "leaderboard" / "page.html").exists()


@pytest.mark.slow
def test_its_search_works_from_the_disk(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator("input.md-search__input").click()
        page.keyboard.type("immutable", delay=20)
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
        assert page.locator(".md-search-result__item").count() > 2
        assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_on_its_pages(site: Path, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.emulate_media(reduced_motion="reduce")
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            page.evaluate(axe)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            serious = [
                f"{each['id']}: {node['html'][:150]} {[check['data'] for check in node['any']]}"
                for each in found
                if each["impact"] in ("serious", "critical")
                for node in each["nodes"]
            ]
            assert not serious, name
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} pixels wide"


def test_the_configuration_names_pages_that_are_there_or_are_made() -> None:
    class Loader(yaml.SafeLoader):
        """Without tags of Python."""

    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    made = {"reference/cli.md", "reference/http.md", "source/CHANGELOG.md"}

    def named(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        entries = list(entry.values()) if isinstance(entry, dict) else list(entry) if isinstance(entry, list) else []
        return [name for each in entries for name in named(each)]

    for name in named(config["nav"]):
        assert name in made or (DOCS / name).exists(), name


def test_make_is_there_for_all_that_is_promised() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    for target in ("demo", "test", "docs", "dist", "sbom", "test-lower"):
        assert run(["make", "--dry-run", target], ROOT)

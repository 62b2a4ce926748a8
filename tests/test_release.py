"""What is released: packages that can be built again, that work without the repository, and say what they lack."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import counterpath as cp
from counterpath.cli import main
from counterpath.cli.doctor import EXTRAS
from counterpath.utils.errors import MissingExtraError

pytestmark = pytest.mark.whole
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def tool(name: str) -> ModuleType:
    """A script of `tools`."""
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> dict[str, str]:
    """The versions in a file of constraints."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(library): version for library, version in pinned}


@pytest.mark.parametrize("module", EXTRAS["app"].modules)
@pytest.mark.parametrize("command", ["app", "serve"])
def test_without_the_extra_app_its_commands_name_it(
    module: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "serve" and module == "nicegui":
        pytest.skip("the service does without the page")
    monkeypatch.setitem(sys.modules, module, None)
    assert main([command, "nowhere", "--port", "0"]) == 2
    assert f"needs the library '{module}': install it with pip install 'counterpath[app]'" in capsys.readouterr().err


def test_without_the_extra_flow_a_flow_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpath.models.flow import FlowModel

    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingExtraError, match=r"a normalizing flow needs the library 'zuko'.*counterpath\[flow\]"):
        FlowModel(3)


def test_without_the_extra_ray_its_engine_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpath.batch import ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"--engine ray needs the library 'ray'.*counterpath\[ray\]"):
        ray.ray()


def test_without_the_extra_bench_a_comparison_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpath.experiments.bench.peers import DICE_METHODS, prepare_dice

    monkeypatch.setitem(sys.modules, "dice_ml", None)
    with pytest.raises(
        MissingExtraError, match=r"a comparison with DiCE needs the library 'dice_ml'.*counterpath\[bench\]"
    ):
        prepare_dice(None, next(iter(DICE_METHODS)))  # type: ignore[arg-type]  # it does not come to that


def test_without_the_extra_mcp_its_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp", "nowhere"]) == 2
    assert "needs the library 'mcp': install it with pip install 'counterpath[mcp]'" in capsys.readouterr().err


def test_without_the_extra_mlflow_loading_from_it_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpath.explainer.tracking import load_explainer

    monkeypatch.setitem(sys.modules, "mlflow.artifacts", None)
    with pytest.raises(MissingExtraError, match=r"counterpath\[mlflow\]"):
        load_explainer("runs:/none/explainer")


def test_without_the_extra_otel_tracing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpath.service import tracing

    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtraError, match=r"tracing needs the library.*counterpath\[otel\]"):
        tracing.configure()


def test_the_doctor_looks_for_what_the_extras_bring() -> None:
    for name, extra in EXTRAS.items():
        brought = {Requirement(text).name for text in PROJECT["optional-dependencies"][name]}
        needed = {module.split(".")[0] for module in extra.modules}
        modules = {canonicalize_name(each).replace("mlflow-skinny", "mlflow").replace("-", "_") for each in brought}
        modules = {"opentelemetry" if each.startswith("opentelemetry") else each for each in modules}
        assert needed == modules - {"counterpath"}, name


def test_what_is_pinned_lies_within_what_is_asked_for() -> None:
    asked = [Requirement(text) for text in PROJECT["dependencies"]]
    lower, tested = pins("constraints-lower.txt"), pins("constraints.txt")
    for each in asked:
        name = canonicalize_name(each.name)
        assert each.specifier.contains(tested[name], prereleases=True), name
        assert each.specifier.contains(lower[name]), name
        (bound,) = each.specifier
        if name != "torch":  # which stays as it is pinned
            assert lower[name].startswith(bound.version), f"{name}: {bound.version} is not what is tested"


def test_the_documents_and_tools_are_pinned() -> None:
    tested = pins("constraints.txt")
    for extra in ("docs", "dev", "flow", "app", "ray", "mcp", "mlflow"):
        for text in PROJECT["optional-dependencies"][extra]:
            name = canonicalize_name(Requirement(text).name)
            assert name == "counterpath" or name in tested, name


def test_the_citation_is_whole() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format asks for
    assert citation["license"] == PROJECT["license"]
    assert citation["version"] == cp.__version__
    paper = citation["preferred-citation"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert paper["title"] in readme
    assert all(author["family-names"] in readme for author in paper["authors"])


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_can_be_read_and_call_what_is_there(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    made = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for job in content.get("jobs", {}).values():
        for step in job["steps"]:
            for target in re.findall(r"make ([a-z][\w-]*)", step.get("run", "")):
                assert target in made, target
            for script in re.findall(r"^(\.ci/\S+)", step.get("run", "")):
                assert (ROOT / script).exists()


def test_the_list_of_dependencies_is_the_same_each_time(tmp_path: Path) -> None:
    sbom = tool("sbom")
    for name in ("one", "two"):
        sbom.main(["--out", str(tmp_path / name), "--extras", "flow"])
    first = (tmp_path / "one" / "sbom.cdx.json").read_text(encoding="utf-8")
    assert first == (tmp_path / "two" / "sbom.cdx.json").read_text(encoding="utf-8")
    content = json.loads(first)
    names = {each["name"].lower() for each in content["components"]}
    assert {"torch", "pandas", "zuko"} <= names
    assert not {"pytest", "counterpath", "nicegui"} & names
    assert all(each["version"] and each["purl"].startswith("pkg:pypi/") for each in content["components"])
    known = {each["bom-ref"] for each in content["components"]} | {"counterpath"}
    for each in content["dependencies"]:
        assert {each["ref"], *each["dependsOn"]} <= known
    assert "| torch |" in (tmp_path / "one" / "licences.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source distribution, built twice and equal to the byte, by their suffixes."""
    pytest.importorskip("build", reason="the extra dev is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout says which files belong to it")
    made = tool("dist").build_twice(tmp_path_factory.mktemp("dist"))
    return {path.suffix: path for path in made}


@pytest.fixture(scope="module")
def installed(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, str(packages[".whl"])], check=True, capture_output=True)
    return folder


def environment(installed: Path) -> dict[str, str]:
    """Variables by which the wheel is found, and nothing of the repository."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


def command(installed: Path, folder: Path, *words: str) -> str:
    """What a command of the wheel prints."""
    done = subprocess.run(
        [sys.executable, "-m", "counterpath.cli", *words],
        cwd=folder,
        env=environment(installed),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr  # 3: somebody has no counterfactual
    return done.stdout


@contextmanager
def running(installed: Path, folder: Path, *words: str) -> Iterator[str]:
    """A server of the wheel, by its address."""
    log = folder / f"{words[0]}.log"
    with log.open("w") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", "counterpath.cli", *words],
            cwd=folder,
            env=environment(installed),
            stderr=messages,
        )
    try:
        for _ in range(2400):
            found = re.search(r"http://[\d.]+:\d+", log.read_text(encoding="utf-8"))
            if found or process.poll() is not None:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert found, log.read_text(encoding="utf-8")
        yield found[0]
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_the_packages_have_what_they_need_and_nothing_of_this_machine(packages: dict[str, Path]) -> None:
    import tarfile
    import zipfile

    with zipfile.ZipFile(packages[".whl"]) as wheel:
        names = wheel.namelist()
    assert "counterpath/py.typed" in names
    assert any(name.endswith("report/templates/page.html.j2") for name in names)
    assert any(name.endswith("adult.csv.xz") for name in names)
    assert all(name.startswith("counterpath") for name in names)
    with tarfile.open(packages[".gz"]) as archive:
        source = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"Makefile", "mkdocs.yml", "constraints.txt", "tests/conftest.py", "docs/index.md"} <= source
    assert {".ci/run", ".github/workflows/tests.yml", "CODE_OF_CONDUCT.md"} <= source
    assert not any(name.startswith((".venv", "out/")) for name in source)


@pytest.mark.slow
def test_the_wheel_works_without_the_repository(installed: Path, tmp_path: Path) -> None:
    code = """
import counterpath as cp
print(cp.__file__)
data = cp.datasets.load("german")
data.train.head(300).to_csv("loans.csv", index=False)
data.test.drop(columns=data.target).head(10).to_csv("new.csv", index=False)
print(len(cp.datasets.load("adult").train), len(cp.datasets.load("concrete").train))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=True,
    )
    where, counts = done.stdout.split("\n", 1)
    assert Path(where).is_relative_to(installed)
    assert "36632" in counts
    assert "adult" in command(installed, tmp_path, "datasets")
    small = ("--epochs", "2", "--hidden", "16", "--latent-dim", "3")
    command(installed, tmp_path, "fit", "loans.csv", "--target", "credit-risk", *small, "--out", "model")
    command(installed, tmp_path, "explain", "model", "new.csv", "--target-class", "good", "--out", "report.html")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")

    row = json.loads(pd.read_csv(tmp_path / "new.csv").head(1).to_json(orient="records"))
    with running(installed, tmp_path, "serve", "model", "--port", "0") as address:
        body = json.dumps({"rows": row, "target_class": "good"}).encode()
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{address}/v1/models/model:explain", body, headers)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            assert json.load(answer)["rows"][0]["plans"][0]["status"]
    with (
        running(installed, tmp_path, "app", "model", "--port", "0", "--no-open") as address,
        urllib.request.urlopen(address, timeout=120) as page,
    ):
        assert page.status == 200
        assert b"nicegui" in page.read()

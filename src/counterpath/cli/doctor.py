"""`counterpath doctor`."""

import importlib
import json
import platform
import re
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import typer

from counterpath import __version__
from counterpath.cli import options
from counterpath.cli.output import show, show_table

FAILED = 1
"""The exit code where something that should work does not."""
ROWS = 300
"""Of the table of the self-test: enough that some are held out, few enough that fitting takes seconds."""
EPOCHS = 5
_TESTED = ("found", "valid", "same after saving")


@dataclass(frozen=True)
class Extra:
    """An optional part of Counterpath.

    Attributes:
        modules: What it imports.
        purpose: What it is for.
    """

    modules: tuple[str, ...]
    purpose: str


EXTRAS = {
    "flow": Extra(("zuko",), "the methods flow and ppcef"),
    "app": Extra(
        ("fastapi", "fastapi_offline", "nicegui", "prometheus_client", "uvicorn"), "counterpath app, counterpath serve"
    ),
    "mcp": Extra(("mcp",), "counterpath mcp"),
    "mlflow": Extra(("mlflow", "alembic", "sqlalchemy"), "explainers and answers in MLflow"),
    "otel": Extra(("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"), "counterpath serve --traces"),
    "ray": Extra(("ray.data",), "counterpath batch --engine ray"),
    "bench": Extra(("stochman", "dice_ml", "catboost"), "counterpath bench, counterpath leaderboard"),
}
"""The extras that Counterpath itself imports; `dev` and `docs` are tools."""


@dataclass(frozen=True)
class SelfTest:
    """What became of the self-test.

    Attributes:
        seconds: How long it took.
        steps: What was tried, and whether it held.
        error: What was raised, if anything.
    """

    seconds: float
    steps: dict[str, bool]
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether all held."""
        return self.error is None and all(self.steps.values())


def doctor(
    device: options.Device = "auto",
    no_test: Annotated[bool, typer.Option("--no-test", help="Only look; fit and explain nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is installed, on which device it runs, and whether a small table can be explained from end to end.

    Exit codes: 0 all is well; 1 the self-test failed, or a library that is needed is missing or broken.
    """
    needed, extras = _libraries(), {name: _state(name, extra) for name, extra in EXTRAS.items()}
    where, device_error = _device(device)
    test = None if no_test or device_error else self_test(device)
    is_well = "" not in needed.values() and device_error is None and (test is None or test.passed)
    if as_json:
        content = {
            "counterpath": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "device": where,
            "libraries": needed,
            "extras": extras,
            "self_test": None if test is None else asdict(test),
            "ok": is_well,
        }
        show(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        show(f"Counterpath {__version__}, Python {platform.python_version()}, {platform.platform()}")
        show(f"device: {where}\n")
        show_table("", [{"library": name, "version": version or "missing"} for name, version in needed.items()])
        show("\nextras")
        for name, state in extras.items():
            show(f"  {name:8}{EXTRAS[name].purpose}: {state}")
        show("")
        show(_told(test, skipped=no_test))
    raise typer.Exit(0 if is_well else FAILED)


def self_test(device: str) -> SelfTest:
    """Fit a small table, explain it, ask the model about the answers again, save and load."""
    import tempfile
    import warnings
    from pathlib import Path

    import numpy as np
    import pandas as pd
    import torch

    from counterpath.explainer.explainer import Explainer
    from counterpath.utils.errors import CounterpathWarning

    started, threads = time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(1)  # so small a table takes longer with more, and many times as long on a busy machine
    rng = np.random.default_rng(0)
    income, debt = rng.normal(30, 8, ROWS).round(1), rng.gamma(2, 4, ROWS).round(1)
    table = pd.DataFrame({"income": income, "debt": debt, "job": rng.choice(["clerk", "nurse", "sales"], ROWS)})
    table["loan"] = np.where(income - debt > 22, "granted", "refused")
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore", CounterpathWarning)  # so short a fit is not a good one, and need not be
            explainer = Explainer(epochs=EPOCHS, hidden=(16,), n_centers=10, device=device, seed=0, progress=False)
            explainer.fit(table, target="loan")
            refused = table[(explainer.predict(table) == "refused").to_numpy()].head(20)
            result = explainer.explain(refused, target_class="granted")
            answers = result.counterfactuals[result.valid]
            decided = explainer.predict(answers) == "granted"
            again = Explainer.load(explainer.save(Path(folder) / "model"), device=device)
            again.progress = False
            repeated = again.explain(refused, target_class="granted").counterfactuals
            held = (bool(result.valid.any()), bool(decided.all()), repeated.equals(result.counterfactuals))
    except Exception as error:  # whatever is wrong with this installation is what is asked for
        return SelfTest(time.monotonic() - started, {}, f"{type(error).__name__}: {error}")
    finally:
        torch.set_num_threads(threads)
    return SelfTest(time.monotonic() - started, dict(zip(_TESTED, held, strict=True)))


def _libraries() -> dict[str, str]:
    """The versions of the libraries that Counterpath cannot do without; empty where one is missing."""
    return {name: _version(name) for name in _required()}


def _required(condition: str = "") -> list[str]:
    """The libraries that are asked for under a condition, as packages write it; without one, always."""
    asked = [each.partition(";") for each in metadata.requires("counterpath") or ()]
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text, _, when in asked if when.strip() == condition]
    return [name for name in names if name != "counterpath"]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _state(name: str, extra: Extra) -> str:
    """Which versions an extra has: imported, since what is installed may still be broken."""
    for module in extra.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            return f"not installed ({module} is missing)"
        except Exception as error:  # a library that breaks when it is imported is what is looked for
            return f"broken: {module} raises {type(error).__name__}: {error}"
    return ", ".join(f"{library} {_version(library)}" for library in _required(f"extra == '{name}'"))


def _device(name: str) -> tuple[str, str | None]:
    """The device in words, and what is wrong with it."""
    import torch

    from counterpath.utils.devices import resolve_device
    from counterpath.utils.errors import InputError

    try:
        device = resolve_device(name)
    except InputError as error:
        return str(error), str(error)
    if device.type == "cuda":
        return f"{device}, {torch.cuda.get_device_name(device)}", None
    return f"cpu, {torch.get_num_threads()} threads (torch {'has' if torch.version.cuda else 'has no'} CUDA)", None


def _told(test: SelfTest | None, *, skipped: bool) -> str:
    """The self-test in a sentence."""
    if test is None:
        return "self-test: left out" if skipped else "self-test: not done, because there is no such device"
    if test.error is not None:
        return f"self-test: failed after {test.seconds:.0f} s: {test.error}"
    if test.passed:
        return f"self-test: fitted, explained, asked again, saved and loaded in {test.seconds:.0f} s; all is well"
    return f"self-test: failed: not {', not '.join(name for name, held in test.steps.items() if not held)}"

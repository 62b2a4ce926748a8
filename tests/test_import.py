"""What `import counterpath` loads, and when."""

import ast
import os
import subprocess
import sys

import pytest

import counterpath as cp

NEEDED = {"torch", "pandas", "sklearn.base"}
"""The libraries that an Explainer cannot do without."""
OTHERS = {"counterpath", "jaxtyping", "narwhals", "numpy", "pyarrow", "safetensors", "scipy"}
"""What may be loaded beside them and what they load themselves."""


def loaded(code: str) -> set[str]:
    """The modules that are loaded after some code has run in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(sorted(sys.modules))"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout))


def test_the_import_alone_loads_no_library() -> None:
    assert not loaded("import counterpath") & {"torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "rich"}


def test_an_explainer_and_the_data_sets_load_what_they_need_and_nothing_to_draw_or_to_serve() -> None:
    """Not sklearn.cluster, say, which is for those who fit, nor matplotlib."""
    more = loaded("import counterpath as cp; cp.Explainer; cp.datasets") - loaded(f"import {', '.join(NEEDED)}")
    assert {name.split(".")[0] for name in more} <= OTHERS
    assert "pyarrow.parquet" not in more


def test_how_torch_waits_is_set_before_it_is_imported() -> None:
    code = "import os, sys, counterpath; print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT'])"
    variables = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "False 4000\n"


@pytest.mark.parametrize("name", cp.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(cp, name) is not None
    assert name in dir(cp)


def test_names_are_what_they_are_where_they_are_defined() -> None:
    from counterpath.data import datasets
    from counterpath.explainer.explainer import Explainer

    assert cp.Explainer is Explainer
    assert cp.load == Explainer.load
    assert cp.datasets is datasets


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'counterpath' has no attribute 'Explaner'"):
        _ = cp.Explaner  # type: ignore[attr-defined]

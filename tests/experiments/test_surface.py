import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from counterpath import plots
from counterpath.data.surface import SCALE
from counterpath.experiments import surface
from counterpath.experiments.surface import Preset, boundary_metric, enters_hole, median, reproduce
from counterpath.models import training
from counterpath.models.training import Run
from counterpath.search.methods import METHODS

pytestmark = pytest.mark.whole
TINY = Preset(600, 200, 40, 60, 10, 4, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("surface")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(surface.PRESETS, "tiny", TINY)
        patch.setattr(surface, "STEPS", 60)
        patch.setitem(plots._STYLE, "savefig.dpi", 40)
        yield


@pytest.fixture(scope="module")
def results(folder: Path, quick: None) -> dict[str, object]:
    return reproduce(preset="tiny", seeds=[0, 1], device="cpu", out=folder)


def test_the_results_have_the_promised_shape(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    assert json.loads((folder / "results.json").read_text()) == results
    assert results["dataset"] == "surface"
    assert results["seeds"] == [0, 1]
    assert results["protocol"]["train_rows"] == 600
    assert {*METHODS, "nearest"} == set(results["methods"])
    for figures in results["methods"].values():
        assert {
            "flip_ratio",
            "hole_share",
            "hole_share_behind",
            "ld_end",
            "path_ld_max",
            "instability",
            "turning",
        } <= set(figures)
        assert 0 <= figures["flip_ratio"] <= 1
    assert results["methods"]["nearest"]["flip_ratio"] == 1
    assert results["methods"]["nearest"]["ld_end"] == 0
    assert results["methods"]["geodesic"]["flip_ratio"] == 1
    assert results["methods"]["face"]["ld_end"] == pytest.approx(0, abs=1e-6)
    assert set(results["uncertainty"]) == {"sigma_share", "sigma_on", "sigma_off", "auc"}
    assert len(results["by_seed"]) == 2


def test_every_figure_is_written_twice(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    names = {"teaser", "metric", "paths-latent", "paths-surface", "side-by-side", "representation", "flow"}
    written = {path.name for path in (folder / "figures").iterdir()}
    assert written == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}


def test_ten_times_less_damping_changes_no_figure(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    """On the checkpoint of the first run, so it also shows that it is used."""
    run = Run(seed=0, checkpoint=folder / "checkpoints" / "tiny" / "seed-0", progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Batches, "epoch", _never)
        scene = surface.build(TINY, run, torch.device("cpu"))
    paths = {name: surface.walk(scene, name, damping=1e-7, progress=False) for name in ("rsgd", "rsgd-c")}
    other, same = surface.measure(scene, paths, damping=1e-7), results["by_seed"][0]
    for name in paths:
        for key, value in other["methods"][name].items():
            # The rows that all methods solved are others without the rest. The instability measures how much small
            # changes are amplified, and is itself amplified: it is good to a few hundredths.
            if not key.endswith("_common") and key != "instability":
                # The turning is hundreds of radians; to a thousandth of that.
                assert value == pytest.approx(same["methods"][name][key], abs=0.01, rel=1e-3), (name, key)


def _never(*arguments: object) -> None:
    raise AssertionError("a model that lies in the checkpoint is trained again")


def _path(*chart: tuple[float, float]) -> torch.Tensor:
    u = torch.tensor(chart)
    return torch.cat([(torch.pi * (u + 1) - torch.pi) / SCALE, torch.zeros(len(u), 1)], 1)[:, None]


def test_entering_the_hole_is_judged_between_the_points_too() -> None:
    assert enters_hole(_path((0.0, -0.5), (0.0, 0.5))).tolist() == [True]
    assert enters_hole(_path((0.1, -0.5), (0.1, 0.5))).tolist() == [True]
    assert enters_hole(_path((0.16, -0.5), (0.16, 0.5))).tolist() == [False]
    assert enters_hole(_path((0.0, -0.5), (0.0, -0.16), (0.5, -0.16), (0.5, 0.5))).tolist() == [False]
    assert enters_hole(_path((0.0, 0.1), (0.0, 0.1))).tolist() == [True]


def test_the_classifier_s_metric_is_larger_near_the_boundary(results: dict) -> None:  # type: ignore[type-arg]
    assert results["boundary"]["ratio"] > 1


def test_medians_skip_what_is_missing() -> None:
    assert median([{"a": 1, "b": None}, {"a": 3, "b": 2}, {"a": 2, "b": None}]) == {"a": 2, "b": 2}
    assert median([None]) is None


def test_boundary_metric_is_finite(parts) -> None:  # type: ignore[no-untyped-def]
    assert boundary_metric(parts.classifier, torch.randn(500, 3))["trace_near"] > 0

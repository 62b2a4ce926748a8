import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from counterpath.data.surface import SCALE, enters_hole, hole_distance
from counterpath.experiments import figures as drawing
from counterpath.experiments import surface
from counterpath.experiments.surface import (
    Preset,
    boundary_metric,
    build_face_graph,
    face_paths,
    median,
    reproduce,
)
from counterpath.experiments.tables import over_seeds
from counterpath.explanation.plots import style
from counterpath.models import training
from counterpath.models.training import Run
from counterpath.search.face import FaceGraph
from counterpath.search.method import SearchModels

pytestmark = pytest.mark.whole
TINY = Preset(600, 120, 40, 60, 10, 4, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("surface")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(surface.PRESETS, "tiny", TINY)
        patch.setattr(surface, "STEPS", 60)
        patch.setattr(drawing, "_GRID", 40)  # nobody looks at the figures
        patch.setitem(style._STYLE, "savefig.dpi", 40)
        yield


@pytest.fixture(scope="module")
def results(folder: Path, quick: None) -> dict[str, object]:
    return reproduce(preset="tiny", seeds=[0, 1], device="cpu", out=folder)


def test_the_results_have_the_promised_shape(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    assert json.loads((folder / "results.json").read_text()) == results
    assert results["dataset"] == "surface"
    assert results["seeds"] == [0, 1]
    assert results["protocol"]["train_rows"] == 600
    assert {*surface.SEARCHED, "nearest"} == set(results["methods"])
    for figures in results["methods"].values():
        assert {
            "flip_ratio",
            "hole_share",
            "hole_share_behind",
            "hole_share_behind_outside",
            "hole_distance_behind",
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
    measured = {"sigma_share", "sigma_on", "sigma_off", "auc"}
    assert set(results["uncertainty"]) == measured | {"centers", "bandwidth", "zeta"}
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
    paths = {name: surface.search(scene, name, damping=1e-7, progress=False) for name in ("rsgd", "rsgd-c")}
    other, same = surface.measure(scene, paths, damping=1e-7), results["by_seed"][0]
    for name in paths:
        for key, value in other["methods"][name].items():
            # The rows that all methods solved are others without the rest. The instability measures how much small
            # changes are amplified, and is itself amplified: it is good to a few hundredths.
            if not key.endswith("_common") and key != "instability":
                # The turning adds up every wiggle of a path; it is good to a hundredth.
                close = {"abs": 0.01, "rel": 1e-2 if key == "turning" else 1e-3}
                assert value == pytest.approx(same["methods"][name][key], **close), (name, key)


def _never(*arguments: object) -> None:
    raise AssertionError("a model that lies in the checkpoint is trained again")


def _path(*chart: tuple[float, float]) -> Tensor:
    u = torch.tensor(chart)
    return torch.cat([(torch.pi * (u + 1) - torch.pi) / SCALE, torch.zeros(len(u), 1)], 1)[:, None]


def test_entering_the_hole_is_judged_between_the_points_too() -> None:
    assert enters_hole(_path((0.0, -0.5), (0.0, 0.5))).tolist() == [True]
    assert enters_hole(_path((0.1, -0.5), (0.1, 0.5))).tolist() == [True]
    assert enters_hole(_path((0.195, -0.5), (0.195, 0.5))).tolist() == [False]
    assert enters_hole(_path((0.0, -0.5), (0.0, -0.195), (0.5, -0.195), (0.5, 0.5))).tolist() == [False]
    assert enters_hole(_path((0.0, 0.1), (0.0, 0.1))).tolist() == [True]
    assert hole_distance(_path((0.1, -0.5), (0.1, 0.5))).item() == pytest.approx(0.1, abs=1e-5)


def test_the_classifier_s_metric_is_larger_near_the_boundary(results: dict) -> None:  # type: ignore[type-arg]
    assert results["boundary"]["ratio"] > 1


def test_medians_skip_what_is_missing() -> None:
    assert over_seeds([{"a": 1, "b": None}, {"a": 3, "b": 2}, {"a": 2, "b": None}], median) == {"a": 2, "b": 2}
    assert median([None]) is None


def test_boundary_metric_is_finite(search_models: SearchModels) -> None:
    assert boundary_metric(search_models.classifier, torch.randn(500, 3))["trace_near"] > 0


def _right(x: Tensor) -> Tensor:
    """Accepts what lies to the right of 1."""
    return x[:, 0] - 1


def _grid(gap: float = 0.0) -> Tensor:
    """Points on a grid, the right half moved away by a gap."""
    points = torch.cartesian_prod(torch.arange(-1.0, 2.01, 0.25), torch.arange(-1.0, 1.01, 0.25))
    points = torch.cat([points, torch.zeros(len(points), 1)], 1)
    return torch.where(points[:, :1] > 0.9, points + torch.tensor([gap, 0, 0]), points)


def test_a_face_path_begins_at_the_row_and_ends_at_an_accepted_training_row() -> None:
    start = torch.tensor([[-0.9, 0.1, 0.0], [0.2, -0.6, 0.0]])
    path = face_paths(build_face_graph(_right, _grid()), start, 40)
    assert path.shape == (41, 2, 3)
    assert torch.equal(path[0], start)
    assert bool((_right(path[-1]) > 0).all())
    assert float((path[-1][:, None] - _grid()).norm(dim=-1).amin(1).max()) == 0


def test_a_row_without_a_face_path_stays() -> None:
    rows = _grid()[_grid()[:, 0] < 0.9]
    path = face_paths(build_face_graph(_right, rows), rows[:3], 10)
    assert torch.equal(path[-1], rows[:3])


def test_face_paths_touch_only_allowed_rows() -> None:
    rows = _grid()
    graph = FaceGraph.build(rows, torch.zeros(len(rows), 2), torch.ones(3))
    allowed = (rows[:, 1] > 0) | (rows[:, 0] < 0)
    nodes, exists = graph.chains(torch.tensor([[-0.9, -0.9, 0.0]]), rows[:, 0] > 1, allowed)
    assert exists.tolist() == [True]
    assert bool(allowed[nodes].all())
    none, exists = graph.chains(torch.zeros(2, 3), rows[:, 0] > 1, rows[:, 0] < 1)
    assert len(none) == 2
    assert exists.tolist() == [False, False]

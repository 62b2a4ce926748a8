import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from counterpath.data import datasets
from counterpath.data.datasets import Dataset, load
from counterpath.experiments import tables, tabular
from counterpath.experiments.tables import THRESHOLDS
from counterpath.experiments.tabular import AS_PRINTED, EncodedData, Preset, Settings, build, reproduce, with_settings
from counterpath.explanation.plots import style
from counterpath.models.training import Run
from counterpath.utils import devices
from counterpath.utils.errors import InputError

pytestmark = pytest.mark.whole

TINY = Preset(mean_epochs=2, std_epochs=1, curve_epochs=0, factuals=24, curve_factuals=12)


def _small(name: str, path: object = None) -> Dataset:
    whole = load(name)
    return Dataset(whole.name, whole.train[:2000], whole.test[:800], whole.target, whole.schema)


@pytest.fixture(scope="module")
def patched() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tabular.PRESETS, "tiny", TINY)
        patch.setitem(tabular.SETTINGS, "adult-carla", Settings(50, 1e-2, 1.5, 5e-3))
        patch.setattr(tabular, "BANDWIDTHS", (0.01, 2.0))
        patch.setattr(tabular, "DAMPINGS", (1e-6, 1e-2))
        patch.setattr(tabular, "load", _small)
        patch.setitem(devices._BLOCK_ROWS, "cpu", 24)  # as many rows as there are factuals: blocks are padded
        patch.setitem(style._STYLE, "savefig.dpi", 40)  # nobody looks at the figures
        yield patch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adult")


@pytest.fixture(scope="module")
def results(folder: Path, patched: object) -> dict:  # type: ignore[type-arg]
    return reproduce("adult", preset="tiny", seeds=[0, 1], device="cpu", out=folder, progress=False)


def test_the_results_have_the_promised_shape(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results
    assert {
        "dataset",
        "preset",
        "seeds",
        "protocol",
        "classifier",
        "uncertainty",
        "table",
        "by_step",
        "by_confidence",
    } <= set(results)
    assert {"train_rows", "test_rows", "test_negatives", "factuals"} <= set(results["protocol"])
    assert {"balanced_accuracy_train", "balanced_accuracy_test", "correct_negatives"} <= set(results["classifier"])
    assert {"sigma_share", "sigma_on", "sigma_off", "auc"} <= set(results["uncertainty"])
    keys = {(row["steps"], row["constraint"], row["optimizer"], row["subset"]) for row in results["table"]}
    for steps in (50, 100, 150):
        for constraint in ("no", "yes"):
            for name in ("sgd", "rsgd", "rsgd-c"):
                assert {(steps, constraint, name, "valid"), (steps, constraint, name, "common")} <= keys
        assert {(steps, "no", "wachter", "valid"), (steps, "no", "ambient", "valid")} <= keys
    assert {(0, "no", name, "valid") for name in (*tables.BASELINES, "geodesic", "face")} <= keys
    cells = ("ld", "ld_sq", "l0", "l1", "l2", "l2_sq", "linf", "confidence", "violation", "path_ld_max")
    for row in results["table"]:
        assert all(set(row[cell]) == {"mean", "std", "seed_std"} for cell in cells)
        assert 0 <= row["flip_ratio"] <= 1
    assert {row["steps"] for row in results["by_step"]} == set(range(0, 151, 5))
    assert {row["threshold"] for row in results["by_confidence"]} == set(THRESHOLDS)


def test_the_baselines_are_what_they_claim(results: dict) -> None:  # type: ignore[type-arg]
    rows = {row["optimizer"]: row for row in results["table"] if row["steps"] == 0}
    assert rows["nearest"]["flip_ratio"] == 1
    assert rows["nearest"]["ld"]["mean"] == 0
    assert rows["nearest same"]["violation"]["mean"] == 0
    assert rows["nearest same"]["l1"]["mean"] >= rows["nearest"]["l1"]["mean"]
    assert rows["reconstruction"]["flip_ratio"] < 0.5


def test_the_global_methods_stand_beside_the_optimizers_at_every_confidence(results: dict) -> None:  # type: ignore[type-arg]
    rows = {
        (r["threshold"], r["optimizer"], r["subset"]): r for r in results["by_confidence"] if r["constraint"] == "no"
    }
    for threshold in THRESHOLDS:
        compared = [rows[threshold, name, "common_all"] for name in ("sgd", "rsgd", "rsgd-c", "geodesic", "face")]
        assert len({row["n"] for row in compared}) == 1
        assert compared[0]["n"] <= rows[threshold, "rsgd", "common"]["n"]
        assert (threshold, "geodesic", "common") not in rows  # those are the rows that the three optimisers solved
        for row in (rows[threshold, name, "reached"] for name in ("sgd", "rsgd", "geodesic", "face")):
            assert row["ctr"] == 0 or row["path_ld_max_sq"]["mean"] >= row["ld_sq"]["mean"] - 1e-9
    whole = {row["optimizer"]: row for row in results["table"] if row["steps"] == 0}
    assert whole["geodesic"]["flip_ratio"] == rows[0.5, "geodesic", "reached"]["ctr"]
    assert whole["geodesic"]["flip_ratio"] > 0.95
    assert whole["face"]["ld"]["mean"] == 0
    assert whole["face"]["path_length"]["mean"] >= whole["face"]["l2"]["mean"]
    roadmap = results["geodesic"]
    assert 1000 < roadmap["nodes"] <= 2000
    assert roadmap["edges"] > 4 * roadmap["nodes"]
    assert roadmap["path_ld_max_sq_leaping"] <= rows[0.5, "geodesic", "reached"]["path_ld_max_sq"]["mean"]


def test_differences_at_equal_confidence_are_those_of_the_means(results: dict) -> None:  # type: ignore[type-arg]
    rows = [row for row in results["differences"] if row["steps"] == 0]
    assert {"geodesic − rsgd", "geodesic − face"} <= {row["difference"] for row in rows}
    assert {0.5} <= {row["threshold"] for row in rows}
    for row in rows:
        assert row["mean"] == pytest.approx(row["one"] - row["other"], abs=1e-6)


def test_every_file_is_written_and_the_report_needs_no_network(results: dict, folder: Path) -> None:  # type: ignore[type-arg]
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert figures == {f"{n}.{kind}" for n in ("ld-by-step", "by-confidence", "bandwidth") for kind in ("png", "svg")}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert 'src="http' not in page
    table = pd.read_csv(folder / "table.csv")
    assert {"paper_ld_sq", "ld_sq", "flip_ratio", "paper_flip_ratio"} <= set(table.columns)
    assert (folder / "table.md").read_text(encoding="utf-8").count("(0.200)") == 1


def test_a_second_run_searches_nothing_again(results: dict, folder: Path, patched: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((tabular, "traverse"), (tabular, "refined_routes")):
            patch.setattr(module, name, lambda *args, **options: pytest.fail("a finished part was searched again"))
        again = reproduce("adult", preset="tiny", seeds=[0, 1], device="cpu", out=folder, progress=False)
    assert again == results


def test_an_unknown_preset_lists_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quick, paper"):
        reproduce("adult", preset="huge", out=tmp_path)


def test_the_protocol_s_counts() -> None:
    data = datasets.load("adult-carla")
    assert int((data.test[data.target] == 0).sum()) == 9268


def test_validation_rows_are_cut_from_the_training_rows_by_the_seed() -> None:
    x = torch.arange(40.0)[:, None]
    data = EncodedData(x, -x, torch.arange(40) % 2, torch.ones(40))
    cut, other = data.validation(100), data.validation(101)
    assert (len(cut.train), len(cut.test)) == (30, 10)
    assert sorted(torch.cat([cut.train, cut.test])[:, 0].tolist()) == x[:, 0].tolist()
    assert torch.equal(cut.test_labels, cut.test[:, 0].long() % 2)
    assert not torch.equal(cut.test, other.test)


def test_settings_are_not_chosen_with_seeds_that_are_reported() -> None:
    with pytest.raises(InputError, match="seeds from 100 on; given 7"):
        build(_small("adult-carla"), TINY, Run(seed=7), torch.device("cpu"), validation=True)


def test_the_spread_over_seeds_is_that_of_the_seeds(results: dict) -> None:  # type: ignore[type-arg]
    for name in tables.OPTIMIZERS:
        each = [seed["after_150"][name] for seed in results["by_seed"]]
        spread = results["over_seeds"][name]["flip_ratio"]
        assert spread["lowest"] == min(seed["flip_ratio"] for seed in each)
        assert spread["highest"] == max(seed["flip_ratio"] for seed in each)
        assert spread["median"] == pytest.approx(sum(seed["flip_ratio"] for seed in each) / 2)  # of two seeds
        row = next(
            row
            for row in results["table"]
            if (row["steps"], row["constraint"], row["optimizer"], row["subset"]) == (150, "no", name, "valid")
        )
        assert row["flip_ratio"] == pytest.approx(sum(seed["flip_ratio"] for seed in each) / 2)
    assert results["over_seeds"]["sgd"]["ld_sq_of_sgd"] == {"median": 1, "lowest": 1, "highest": 1}
    assert results["settings"]["centers"] == 50


def test_as_printed_is_the_appendix(patched: object, tmp_path: Path) -> None:
    printed = AS_PRINTED["adult-carla"]
    assert (printed.centers, printed.bandwidth, printed.latent_dim) == (200, 0.01, 5)
    assert (printed.classifier_learning_rate, printed.std_learning_rate) == (1e-5, 1e-3)
    assert AS_PRINTED["gmc-carla"].centers == 350
    study = build(_small("adult-carla"), TINY, Run(progress=False), torch.device("cpu"), printed)
    precision = study.vae.precision
    assert not precision.tied
    assert (precision.bandwidth == 0.01).all()
    assert len(precision.centers) == 200


def test_a_setting_is_taken_back_alone() -> None:
    data, run, known = _small("adult-carla"), Run(seed=100, progress=False), Settings(50, 1e-2, 1.5, 5e-3)
    study = build(data, TINY, run, torch.device("cpu"), known)
    other_sigma = with_settings(study, replace(known, bandwidth=0.01), known, TINY, run)
    other_classifier = with_settings(study, replace(known, positive_weight=1.0), known, TINY, run)
    x, z = study.factual, study.vae.encode(study.factual)
    assert torch.equal(other_sigma.factual, x)
    assert torch.equal(other_sigma.vae.encode(x), z)
    assert torch.equal(other_sigma.vae.decode(z), study.vae.decode(z))
    assert not torch.allclose(other_sigma.vae.uncertainty(z), study.vae.uncertainty(z))
    assert torch.equal(other_classifier.vae.uncertainty(z), study.vae.uncertainty(z))
    assert not torch.allclose(other_classifier.classifier(x), study.classifier(x))
    assert bool((other_classifier.classifier(other_classifier.factual) <= 0).all())
    fitted_so = build(data, TINY, run, torch.device("cpu"), replace(known, positive_weight=1.0))
    torch.testing.assert_close(fitted_so.classifier(x), other_classifier.classifier(x))

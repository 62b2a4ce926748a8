import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from counterpath.data.datasets import Dataset, load
from counterpath.experiments.bench import report, run
from counterpath.experiments.bench.run import (
    FLOOR,
    FULL,
    PARTS,
    QUICK,
    Bench,
    growing,
    measure,
    measure_fits,
    time_searches,
    time_steps,
)
from counterpath.experiments.bench.variants import VARIANTS, Sizes, Workload, random_workload
from counterpath.utils.errors import InputError

CPU = torch.device("cpu")
SIZES = Sizes(rows=40, features=6, latent=3, hidden=(16, 8), centers=8, width=4)
OURS = {name: VARIANTS[name] for name in ("ours", "eager")}


@pytest.fixture(scope="module")
def workload() -> Workload:
    return random_workload(SIZES, 0, CPU, damping=1e-3)


def test_a_step_beside_the_floor(workload: Workload) -> None:
    rows = time_steps(workload, "rsgd", OURS, rounds=3)
    assert [row["variant"] for row in rows] == ["ours", "eager", FLOOR]
    for row in rows:
        assert row["rows"] == 40
        assert row["hidden"] == (16, 8)
        assert row["rows_per_second"] == pytest.approx(40 / row["seconds"])
        assert row["times_floor"] == pytest.approx(row["seconds"] / rows[-1]["seconds"])
        assert row["quartiles"][0] <= row["seconds"] <= row["quartiles"][1]
        assert row["paper_over_this"] is None, "the paper's implementation was not timed"


def test_the_papers_implementation_beside_ours(workload: Workload) -> None:
    pytest.importorskip(
        "stochman", reason="the paper's implementation needs stochman: pip install 'counterpath[bench]'"
    )
    rows = {row["variant"]: row for row in time_steps(workload, "rsgd-c", rounds=3)}
    assert list(rows) == [*VARIANTS, FLOOR]
    assert rows["paper"]["paper_over_this"] == 1
    assert rows["ours"]["paper_over_this"] == pytest.approx(rows["paper"]["seconds"] / rows["ours"]["seconds"])
    search = time_searches(workload, "rsgd", steps=3, block_size=16)
    assert [row["variant"] for row in search] == ["ours", "paper"]
    assert search[0]["mean_steps"] <= search[1]["mean_steps"] == 3
    assert 0 <= search[0]["reached"] <= 1


def test_one_size_grows_and_the_others_stay() -> None:
    points = list(growing(Sizes(), CPU))
    assert all(sizes == replace(Sizes(), **{grows: getattr(sizes, grows)}) for grows, sizes in points)
    most = {kind: max(s.rows for _, s in growing(Sizes(), torch.device(kind))) for kind in ("cpu", "cuda")}
    assert most == {"cpu": 8192, "cuda": 131072}


def test_the_whole_benchmark_is_json_and_tables() -> None:
    bench = Bench(CPU, rows=32, preset=replace(QUICK, sizes=SIZES, growth={"rows": (16, 32), "hidden": ((8, 4),)}))
    results = measure(bench, ["step", "growth", "search"])
    again = json.loads(json.dumps(results, allow_nan=False))
    shown = report.tables(again)
    assert list(shown) == [report.TITLES[part] for part in ("step", "growth", "search")]
    text = report.markdown(again)
    assert "### One step\n\n| method | variant | ms |" in text
    assert "| hidden | 8-4 |" in text
    for expected in ("torch " + torch.__version__, "2 rounds", "models are random", "32 rows"):
        assert expected in text
    assert results["machine"]["threads"] == torch.get_num_threads()
    assert {row["variant"] for row in results["step"]} == {*bench.variants, FLOOR}


@pytest.mark.slow
def test_memory_of_a_step_and_of_sweeps() -> None:
    preset = replace(QUICK, swept=(1_000, 4_000), memory_variants=())
    rows = measure(Bench(CPU, rows=32, preset=preset), ["memory"])["memory"]
    assert [(row["what"], row["rows"]) for row in rows] == [("sweep", 1_000), ("sweep", 4_000)]
    assert rows[-1]["peak_bytes"] > 0
    assert report.tables(measure(Bench(CPU, preset=preset), []) | {"memory": rows})


def test_whole_jobs_are_timed() -> None:
    preset = replace(QUICK, sizes=SIZES, swept=(100, 300), sweep_steps=2, steps=2)
    results = measure(Bench(CPU, rows=32, preset=preset), ["sweep", "runs"])
    assert [(row["rows"], row["steps"]) for row in results["sweep"]] == [(100, 2), (300, 2)]
    *each, whole = results["runs"]
    assert len(each) == 6
    assert whole["seconds"] == pytest.approx(sum(row["seconds"] for row in each))
    assert all(row["rows"] == 32 for row in results["runs"])
    assert {report.TITLES["sweep"], report.TITLES["runs"]} == set(report.tables(results))


def test_fits_are_timed_where_the_data_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def few(name: str) -> Dataset:
        whole = load(name)
        return replace(whole, train=whole.train[:3000], test=whole.test[:800])

    monkeypatch.setattr(run, "load", few)  # how long a fit takes is not what is tested
    monkeypatch.setenv("COUNTERPATH_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rows = {row["data"]: row for row in measure_fits(Bench(CPU, preset=QUICK, progress=False))}
    assert rows["adult"]["seconds"] > 0
    assert report.tables(measure(Bench(CPU, preset=QUICK), []) | {"fit": list(rows.values())})


def test_one_missing_library_takes_nothing_else_away() -> None:
    pytest.importorskip("stochman", reason="the paper's implementation needs stochman")
    bench = Bench(CPU, preset=QUICK)
    bench.not_measured.append("a comparison with DiCE needs the library 'dice_ml'")
    assert list(bench.variants) == list(VARIANTS)


def test_parts_that_do_not_exist() -> None:
    with pytest.raises(InputError, match=f"choose one of: {', '.join(PARTS)}"):
        measure(Bench(CPU, preset=FULL), ["stepp"])

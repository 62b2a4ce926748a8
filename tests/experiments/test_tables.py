import pytest
import torch

from counterpath.experiments import tables
from counterpath.experiments.tables import OPTIMIZERS, STEPS


def test_the_paper_s_tables_are_whole() -> None:
    for name in ("adult", "gmc"):
        printed = tables.paper(name)
        assert len(printed) == 18
        assert not printed.drop(columns=["constraint", "optimizer"]).isna().any().any()


def test_differences_are_paired_and_their_interval_holds_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = {name: torch.rand(200, generator=generator) for name in OPTIMIZERS}
    runs = {}
    for name in OPTIMIZERS:
        runs[f"{name} no"] = {
            f"{measure}@{steps}": rows[name] if measure != "valid" else torch.ones(200)
            for measure in ("valid", "ld_sq", "l1", "l2_sq", "linf", "path_ld_max")
            for steps in STEPS
        }
    for row in tables.differences([runs, runs], [tables.AFTER_STEPS]):
        one, other = row["difference"].split(" − ")
        assert row["mean"] == pytest.approx(float((rows[one] - rows[other]).double().mean()))
        assert row["low"] < row["mean"] < row["high"]

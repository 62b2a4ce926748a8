import json
import os
from pathlib import Path

import pandas as pd
import pytest

from counterpath.batch import run
from counterpath.batch.local import Local
from counterpath.utils.errors import BatchError, InputError
from counterpath.utils.importing import import_object
from tests.tables import small

from .conftest import REQUEST, Runs

pytestmark = pytest.mark.whole

MODEL = """
import os
import torch

class Deadly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.last.weight, 9.0)
        torch.nn.init.constant_(self.last.bias, -5.0)

    def forward(self, x):
        print("what a model prints is no outcome")
        if os.path.exists("poison") and (x > 2).any():
            os.kill(os.getpid(), 9)
        return self.last(x[:, :1])

model = Deadly()
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::counterpath.CounterpathWarning")
def test_a_shard_that_kills_its_worker_is_put_into_quarantine(
    loans: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is the user's own, found by name in the folder where the command was given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deadly.py").write_text(MODEL)
    explainer = small(method="nearest", epochs=2, n_centers=5).fit(
        loans[:120], "loan", model=import_object("deadly:model")
    )
    explainer.save("model")
    loans[:30].assign(income=loans["income"].where(loans.index != 17, 1e30)).to_csv("rows.csv", index=False)
    (tmp_path / "poison").touch()
    request = REQUEST | {"target_class": explainer.classes_[1]}
    options = {"user_model": "deadly:model", "shard_rows": 10, "explainer": explainer}
    summary = run("model", "rows.csv", "out", Local(2), request, **options)  # type: ignore[arg-type]
    assert summary["shards"] == {"done": 2, "quarantined": 1}
    (failure,) = summary["quarantine"]
    assert (failure["shard"], failure["first"], failure["rows"]) == ("00000-000001", 10, 10)
    assert "the worker died (SIGKILL) 3 times over this shard" in failure["problem"]
    (tmp_path / "poison").unlink()
    assert run("model", "rows.csv", "out", Local(1), request, **options)["rows"] == 30  # type: ignore[arg-type]


def test_a_model_that_cannot_be_loaded_ends_the_job(explained: Runs, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(BatchError, match=r"nowhere:model.*cannot be imported"):
        explained(rows, tmp_path / "out", engine=Local(1), user_model="nowhere:model")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["job"]["user_model"] == "nowhere:model"
    assert not (tmp_path / "out" / "quarantine").exists(), "it is not the shard that is at fault"


def test_there_are_as_many_workers_as_cores_unless_somebody_says() -> None:
    assert Local().workers == len(os.sched_getaffinity(0))
    assert Local(7).workers == 7
    with pytest.raises(InputError, match="at least one worker; given 0"):
        Local(0)

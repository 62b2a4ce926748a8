"""A real Ray and the local engine on resampled rows of Adult.

`COUNTERPATH_ROWS=200000 pytest -m slow tests/batch/test_engines.py` takes minutes.
"""

import os
from pathlib import Path

import pytest
from benchmarks.batching.engines import compare
from benchmarks.batching.jobs import BatchCommand
from benchmarks.batching.material import OPTIONS, parquet_file, small_model

pytestmark = [pytest.mark.whole, pytest.mark.timeout(580)]
ROWS = int(os.environ.get("COUNTERPATH_ROWS", "20000"))
FEW = 400
SHARDS = 8


@pytest.mark.filterwarnings("ignore::counterpath.CounterpathWarning")
@pytest.mark.slow
@pytest.mark.parametrize("count", [FEW, ROWS])
def test_ray_and_the_local_engine_write_the_same_to_the_byte_each_row_once(tmp_path: Path, count: int) -> None:
    rows = parquet_file(tmp_path / "rows.parquet", count, row_group=count // 3)
    command = BatchCommand(small_model(tmp_path / "model"), rows, (*OPTIONS, "--shard-rows", str(count // SHARDS)))
    found = compare(command, count, tmp_path)
    assert found["faults"] == []
    assert len(list((tmp_path / "ray" / "counterfactuals").iterdir())) == SHARDS

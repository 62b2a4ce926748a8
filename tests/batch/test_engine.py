"""What a job and its engine exchange."""

import json
from dataclasses import asdict

import pytest

from counterpath.batch.engine import Job, ShardFailure, ShardResult, Task, check_workers, outcome_from_json
from counterpath.batch.sources import Shard, Source
from counterpath.utils.errors import InputError

TASK = Task(
    "model",
    "/home",
    Job("f", "a:b", {"method": "rsgd", "lock": ["age"]}, ("id",), 5, "cpu", {"torch": "2"}),
    (Source("x.csv", "/x.csv", 1, 2, "a", 3, (4, 5)),),
    "out",
    "cpu",
)


@pytest.mark.parametrize(
    "outcome",
    [
        ShardResult("s", "x", 0, 2, "a", {"f": 7}, {"found": 2}, {"lock: age": 1}, {"l1": (2, 0.5, 0.25)}, 1.5),
        ShardFailure.of(TASK, Shard(0, 1, 5, 5), "no luck", damaged=True),
        ShardFailure.of_worker(TASK, Shard(0, 1, 5, 5), 3, "(SIGKILL) "),
    ],
    ids=["result", "failure", "death"],
)
def test_outcomes_go_through_json(outcome: ShardResult | ShardFailure) -> None:
    assert outcome_from_json(json.loads(json.dumps(asdict(outcome)))) == outcome


def test_a_task_goes_through_json() -> None:
    assert Task.from_json(json.loads(json.dumps(asdict(TASK)))) == TASK


def test_a_failure_names_its_shard_and_file() -> None:
    failure = ShardFailure.of_worker(TASK, Shard(0, 1, 5, 5), 3, "(SIGKILL) ")
    assert (failure.shard, failure.source, failure.first, failure.rows) == ("00000-000001", "x.csv", 5, 5)
    assert failure.problem.startswith("the worker died (SIGKILL) 3 times over this shard")


def test_there_is_at_least_one_worker() -> None:
    assert (check_workers(None), check_workers(2)) == (None, 2)
    with pytest.raises(InputError, match="at least one worker; given 0"):
        check_workers(0)

import json
from pathlib import Path

import pytest

from counterpath.utils.files import atomic, remove_leftovers, write_json, write_text


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = write_text(tmp_path / "a.txt", "old")

    def interrupted() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_files_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = [write_text(tmp_path / name, "x") for name in ("a.txt", "b.txt", ".b-123.txt", "a-1.txt")]
    (tmp_path / ".a-123.txt").write_text("half")
    remove_leftovers(tmp_path / "a.txt")
    assert set(tmp_path.iterdir()) == set(kept)


def test_folders_are_created_and_permissions_are_ordinary(tmp_path: Path) -> None:
    path = write_json(tmp_path / "deep" / "er" / "a.json", {"σ": 1.5})
    assert json.loads(path.read_text(encoding="utf-8")) == {"σ": 1.5}
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_refuses_nan_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []

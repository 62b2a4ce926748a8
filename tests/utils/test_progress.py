"""The progress bar, and those who listen to it."""

import threading

import pytest

from counterpath.utils import progress
from counterpath.utils.progress import listen, stages, track


def test_a_listener_gets_every_advance_whether_or_not_a_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[str, int, int, str]] = []
    with listen(lambda *progress: seen.append(progress)):
        for shown in (False, True):
            with track("baking", total=3, shown=shown) as advance:
                advance()
                advance(2, "hot")
    assert seen == 2 * [("baking", 0, 3, ""), ("baking", 1, 3, ""), ("baking", 3, 3, "hot")]
    assert "baking" in capsys.readouterr().err


def test_a_listener_gets_nothing_from_other_threads_or_from_after_its_block() -> None:
    seen: list[str] = []

    def elsewhere() -> None:
        with track("other work", total=1, shown=False) as advance:
            advance()

    with listen(lambda *progress: seen.append(progress[0])):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    with track("later", total=1, shown=False) as advance:
        advance()
    assert seen == []


def test_stages_are_numbered_and_say_how_long_all_of_them_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    notes: list[str] = []
    with (
        listen(lambda *progress: notes.append(progress[3])),
        stages([("kneading", 1.0), ("resting", 1.0), ("baking", 2.0)]),
    ):
        with track("kneading", total=2, shown=False) as advance:
            advance()  # ten seconds for one eighth of the work
            advance(note="soft")
        with track("talking", total=1, shown=False) as advance:
            advance()
        with track("baking", total=1, shown=False) as advance:  # nobody waited
            advance()
    assert notes == ["", "in all 70 s to go", "soft · in all 60 s to go", "", "", "", "in all 0 s to go"]
    with stages([("kneading", 1.0), ("baking", 1.0)]), track("baking", total=1, shown=True) as advance:
        advance()
    assert "2/2 baking" in capsys.readouterr().err
    with track("later", total=1, shown=True) as advance:
        advance()
    assert "/2 later" not in capsys.readouterr().err

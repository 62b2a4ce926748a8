"""The progress bar, and those who listen to it."""

import threading

import pytest

from counterpath.utils.progress import listen, track


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

"""The one progress bar, and who may listen to it."""

import threading

import pytest

from counterpath.utils.progress import heard_by, track


def test_a_listener_hears_every_advance_whether_or_not_a_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[str, int, int, str]] = []
    with heard_by(lambda *told: heard.append(told)):
        for shown in (False, True):
            with track("baking", total=3, shown=shown) as advance:
                advance()
                advance(2, "hot")
    assert heard == 2 * [("baking", 0, 3, ""), ("baking", 1, 3, ""), ("baking", 3, 3, "hot")]
    assert "baking" in capsys.readouterr().err


def test_nobody_hears_what_others_do_or_what_comes_after() -> None:
    heard: list[str] = []

    def elsewhere() -> None:
        with track("their work", total=1, shown=False) as advance:
            advance()

    with heard_by(lambda *told: heard.append(told[0])):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    with track("later", total=1, shown=False) as advance:
        advance()
    assert heard == []

"""An explorer whose model takes until a file is there: `python -m tests.explorer.slow_model MODEL FILE [fails]`."""

import sys
import time
from pathlib import Path
from typing import Any

import counterpath as cp
from counterpath.cli.output import say
from counterpath.explorer.page import serve
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from counterpath.utils.progress import track


def main(folder: str, until: str, fails: bool) -> None:
    def load() -> tuple[cp.Explainer, Any]:
        with track("training something", total=4) as advance:
            advance(3, "almost")
            while not Path(until).exists():
                time.sleep(0.02)
        if fails:
            raise InputError("the disk is full of <b>sand</b>")
        return cp.load(folder, device="cpu"), None

    serve("slow", load, Settings(port=0), say)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "fails" in sys.argv)

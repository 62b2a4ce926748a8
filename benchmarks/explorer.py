"""How soon the first plan is in the page, measured in a browser.

    python -m benchmarks.explorer                              the Adult model, 10 people by each of two methods
    python -m benchmarks.explorer --pictures docs/images       and the pictures of the documentation

A real `counterpath app` process serves the page. The clock of the page runs from the click on "Find plans" until the
first plan is there, painted; the others are looked for after that.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page
from tests.browsing import chromium
from tests.explorer.actions import choose, find, first_plan
from tests.explorer.processes import run_explorer

from counterpath.cli.demo import DATA
from counterpath.data import datasets

METHODS = ("geodesic", "rsgd")
PERSON = 3150
"""Of the test rows: who is in the pictures, with LOCKED."""
LOCKED = ("Capital gain", "Capital loss")
_WAIT = 60_000
"""Milliseconds: on a busy machine the model of the demo is fitted first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        run_explorer(Path(folder)) as address,
        chromium() as browser,
    ):
        measure(opened(browser, address, 1280), arguments.people)
    if arguments.pictures is None:
        return
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        people = datasets.load(DATA).test
        people.loc[[PERSON, *people.index.drop([PERSON])]].to_csv(Path(folder) / "people.csv", index=False)
        with run_explorer(Path(folder), "--rows", "people.csv") as address:
            for name, width, height in (("explorer", 1440, 1100), ("explorer-phone", 390, 1560)):
                photograph(opened(browser, address, width), arguments.pictures / f"{name}.png", height)


def opened(browser: Browser, address: str, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(_WAIT)
    page.goto(address)
    page.get_by_text("The model predicts").first.wait_for()
    return page


def measure(page: Page, people: int) -> None:
    for method in METHODS:
        choose(page, "Method", method)
        times = []
        for _ in range(people):
            page.get_by_role("button", name="Next rejected").click()
            page.get_by_text("to see what would have to change").wait_for()
            times.append(first_plan(page))
            page.get_by_role("button", name="Stop", disabled=True).wait_for()
        ordered = sorted(times)
        print(
            f"{method}: {people} people, first plan after {statistics.median(times):.0f} ms (median), "
            f"{ordered[0]:.0f} to {ordered[-1]:.0f} ms"
        )


def photograph(page: Page, path: Path, height: int) -> None:
    for feature in LOCKED:
        page.get_by_role("switch", name=f"Lock {feature}", exact=True).click()
    find(page)
    page.locator("#map .main-svg").first.wait_for()
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})  # type: ignore[index]
    page.evaluate("window.scrollTo(0, 0)")
    if page.viewport_size["width"] < 1000:  # type: ignore[index]
        page.evaluate("document.querySelector('#plans').scrollIntoView()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1000)  # what is drawn settles
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)


if __name__ == "__main__":
    main()

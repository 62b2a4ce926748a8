"""What people do on the page, for tests to do."""

import re

from playwright.sync_api import Locator, Page

_FIRST_PLAN = """
() => new Promise((done, fail) => {
  const button = [...document.querySelectorAll("button")].find((one) => one.innerText.trim() === "Find plans");
  const plan = () => document.querySelector('article[aria-label="Plan 1"]');
  if (plan()) return fail("there is a plan already");
  let clicked;
  const watch = new MutationObserver(() => {
    if (plan()) { watch.disconnect(); requestAnimationFrame(() => done(performance.now() - clicked)); }
  });
  watch.observe(document.body, { childList: true, subtree: true });
  clicked = performance.now();
  button.click();
})
"""


_ALL_PLANS = """
(label) => new Promise((done) => {
  const named = (text) => [...document.querySelectorAll("button")].find((one) => one.innerText.trim() === text);
  let searched = false;
  const watch = new MutationObserver(() => {
    const idle = named("Stop").getAttribute("aria-disabled") === "true";
    searched ||= !idle;
    if (searched && idle) { watch.disconnect(); done(); }
  });
  watch.observe(document.body, { childList: true, subtree: true, attributes: true });
  named(label).click();
})
"""


def first_plan(page: Page) -> float:
    """Milliseconds from the click on Find plans until the first plan is in the page, measured there."""
    return float(page.evaluate(_FIRST_PLAN))


def find(page: Page) -> None:
    """Ask for plans, and wait until all are there."""
    press(page, "Find plans")


def press(page: Page, button: str) -> None:
    """Press a button that starts a search, and wait until that has ended."""
    page.evaluate(_ALL_PLANS, button)


def choose(within: Page | Locator, control: str, option: str) -> None:
    """Choose an option of a select, on the page or on a card."""
    within.get_by_role("combobox", name=control, exact=True).click()
    page = within if isinstance(within, Page) else within.page
    page.get_by_role("option", name=option, exact=True).click()


def number(within: Page | Locator, control: str) -> Locator:
    """The field of a number, on the page or on a card."""
    return within.get_by_role("spinbutton", name=control, exact=True)


def card(page: Page, feature: str) -> Locator:
    """The row of a feature."""
    return page.get_by_role("article", name=f"Feature {feature}", exact=True)


def limits(page: Page, feature: str) -> Locator:
    """The row of a feature, with its limits unfolded."""
    found = card(page, feature)
    found.get_by_role("button", name=re.compile("^Limits")).click()
    return found


def value(page: Page, feature: str) -> str:
    """What the field of a feature shows."""
    return card(page, feature).get_by_label(f"Value of {feature}", exact=True).input_value()


def verdict(page: Page) -> str:
    """What the page says that the model decides."""
    return page.get_by_role("status", name="Decision of the model").inner_text()


def plan(page: Page, which: int) -> Locator:
    """The card of a plan."""
    return page.get_by_role("article", name=f"Plan {which}", exact=True)


def no_plan(page: Page) -> Locator:
    """The card that says why there is no plan, or that none is needed."""
    return page.get_by_role("article", name="No plan", exact=True)

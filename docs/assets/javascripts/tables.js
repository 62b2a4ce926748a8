// A table that is wider than the page scrolls by itself: let the keyboard reach it, too.
const reachable = () => {
  for (const frame of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  }
};
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
new ResizeObserver(reachable).observe(document.body);
reachable();

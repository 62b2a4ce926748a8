// A figure that is much wider than high scrolls on a narrow screen, as a table does.
for (const image of document.querySelectorAll(".md-typeset p > img:only-child")) {
  const mark = () => image.parentElement.classList.toggle("wide-figure", image.naturalWidth > 2 * image.naturalHeight);
  if (image.complete) mark();
  else image.addEventListener("load", mark);
}
// What is wider than the page scrolls by itself: let the keyboard reach it, too.
const reachable = () => {
  for (const frame of document.querySelectorAll(".md-typeset__scrollwrap, .wide-figure")) {
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  }
};
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
new ResizeObserver(reachable).observe(document.body);
reachable();

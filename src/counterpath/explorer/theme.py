"""How the page looks: colours that colour-blind people can tell apart, one scale of spaces, one of type."""

from nicegui import ui

from counterpath.explanation.plots.style import INK, SOFT
from counterpath.explorer import elements

PRIMARY, YES, NO, WARN = "#0072B2", "#009E73", "#D55E00", "#E69F00"
"""Of the palette of Okabe and Ito."""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0072B2"/>'
    '<path d="M6 24C10 24 10 9 16 9s5 9 10 9" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>'
    '<circle cx="6" cy="24" r="3" fill="#E69F00"/><circle cx="26" cy="18" r="3" fill="#F0E442"/></svg>'
)

# A step of the scale of spaces is 4 px: --s1 … --s6. Text that is coloured is darker than the palette, to be read, and
# lighter than it where the page is dark.
_STYLE = f"""
:root {{
  --ink: {INK}; --soft: #4a545e; --line: #d0d6dd; --edge: #76808a; --paper: #ffffff; --ground: #f4f6f8; --tint: #eef6fb;
  --primary: {PRIMARY}; --yes: {YES}; --no: {NO}; --warn: {WARN}; --link: #005a90; --yes-text: #00603f;
   --no-text: #9a4200; --warn-text: #6b4f00; --problem: #fdf0e7; --note: #fff6dd; --note-ink: #4d3a00;
  --bars: #b8c4cf; --stripe: #eceff3; --head: #1b2026; --track: #dfe4ea;
  --s1: 4px; --s2: 8px; --s3: 12px; --s4: 16px; --s5: 24px; --s6: 40px; --round: 10px;
}}
.body--dark {{
  --ink: #e8ecf0; --soft: #b4bec8; --line: #3a434d; --edge: #8b96a1; --paper: #1c2229; --ground: #12161b;
  --tint: #1d2d3a;
  --primary: #4ba3dd; --yes: #2bc79a; --no: #f08a4b; --link: #7cc0ee;
  --yes-text: #4fd6ac; --no-text: #ffab7a; --warn-text: #f0c25a; --problem: #3a2418; --note: #342a10;
  --note-ink: #f3dfa8;
  --bars: #4d5965; --stripe: #242c34; --head: #0c0f13; --track: #38424c;
}}
"""

_RULES = """
body { background: var(--ground) !important; color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
.nicegui-content { padding: 0; gap: 0; align-items: stretch; width: 100%; }
.cp-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
:focus-visible { outline: 3px solid var(--warn); outline-offset: 2px; }
[tabindex="-1"]:focus { outline: none; } [tabindex="-1"]:focus-visible { outline: 3px solid var(--warn); }

.cp-header { background: var(--head); color: white; padding: var(--s2) var(--s5); display: flex; flex-wrap: wrap;
  gap: var(--s1) var(--s5); align-items: center; }
.cp-header h1 { font-size: 20px; line-height: 1.4; font-weight: 650; letter-spacing: -.01em; margin: 0; }
.cp-header .cp-model { color: #cfd6de; overflow-wrap: anywhere; }
.cp-header .q-btn { margin-left: auto; color: white; }
.cp-tabs { background: var(--head); color: white; padding: 0 var(--s3); }
.cp-panels { background: transparent !important; overflow: visible; }
.cp-panels .q-panel { overflow: visible; } .cp-panels .q-tab-panel { padding: 0; gap: 0; overflow: visible; }
.cp-links { display: flex; flex-wrap: wrap; gap: 0 var(--s4); padding: var(--s2) var(--s5) 0; max-width: 1680px;
  width: 100%; margin: 0 auto; }
.cp-links a { color: var(--link); text-decoration: none; padding: var(--s1) 0; font-size: 14px; }
.cp-links a:hover { text-decoration: underline; }
.cp-notice { background: var(--note); color: var(--note-ink); border-bottom: 1px solid var(--warn);
  padding: var(--s1) var(--s5); margin: 0; font-size: 14px; }

.cp-bar-top { width: 100%; position: sticky; top: 0; z-index: 20; background: var(--paper);
  border-bottom: 1px solid var(--line);
  box-shadow: 0 2px 8px rgb(0 0 0 / .12); padding: var(--s2) var(--s5); display: grid; align-items: center;
  grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: var(--s1) var(--s5); }
.cp-bar-top > .cp-problem { grid-column: 1 / -1; grid-row: 2; }
.cp-decision { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: var(--s1) var(--s4);
  align-items: center; }
.cp-verdict { font-size: 18px; line-height: 1.3; font-weight: 650; overflow-wrap: anywhere; margin: 0; }
.cp-odds-bars { display: grid; gap: 2px; max-width: 420px; max-height: 64px; overflow: hidden; }
.cp-bar { display: grid; grid-template-columns: minmax(40px, 96px) 1fr 76px; gap: var(--s2); align-items: center;
  font-size: 13px; line-height: 1.3; }
.cp-bar > :first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.cp-bar > :last-child { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.cp-track { height: 8px; border-radius: 4px; background: var(--track); overflow: hidden; }
.cp-fill { height: 100%; border-radius: 4px; background: var(--primary); }
.cp-search > .cp-row { flex-wrap: nowrap; }

.cp-main { display: grid; grid-template-columns: minmax(0, 1.15fr) minmax(0, 1fr); gap: var(--s4);
  padding: var(--s3) var(--s5) 0; max-width: 1680px; width: 100%; margin: 0 auto; align-items: start; }
.cp-below { padding-top: var(--s4); padding-bottom: var(--s6); grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
.cp-column { display: flex; flex-direction: column; gap: var(--s4); min-width: 0; }
.cp-side { position: sticky; top: 84px; max-height: calc(100vh - 92px); overflow: auto; border-radius: var(--round); }
.cp-section { background: var(--paper); border: 1px solid var(--line); border-radius: var(--round); padding: var(--s4);
  display: flex; flex-direction: column; gap: var(--s3); min-width: 0; scroll-margin-top: 88px; }
.cp-title { scroll-margin-top: 96px; }
.cp-wide { max-width: 1680px; width: 100%; margin: 0 auto; padding: var(--s4) var(--s5) var(--s6); }
.cp-title { font-size: 17px; line-height: 1.4; font-weight: 650; letter-spacing: -.01em; margin: 0; }
.cp-section h3 { font-size: 15px; line-height: 1.4; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
.cp-section h4 { font-size: 14px; line-height: 1.3; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
.cp-lead, .cp-soft { color: var(--soft); margin: 0; font-size: 14px; }
.cp-row { display: flex; flex-wrap: wrap; gap: var(--s2); align-items: center; }
.cp-grow { flex: 1 1 240px; } .cp-spread { flex: 1; }
.cp-rules { list-style: none; margin: 0; padding: 0; overflow-wrap: anywhere; }
.cp-asked { grid-template-columns: repeat(3, minmax(0, 1fr)) !important; }
.cp-fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: var(--s2) var(--s3);
  width: 100%; }
.cp-problem { color: var(--no-text); background: var(--problem); border-left: 3px solid var(--no); border-radius: 4px;
  padding: var(--s1) var(--s2); font-size: 13px; overflow-wrap: anywhere; }
.cp-note { color: var(--warn-text); font-size: 13px; }
.cp-stack { display: flex; flex-direction: column; gap: var(--s2); min-width: 0; }
.cp-stack > p, .cp-section > p, .cp-row > p { margin: 0; }
.cp-full { width: 100%; }

.cp-matches { border: 1px solid var(--line); border-radius: 8px; max-height: 300px; overflow: auto; list-style: none;
  margin: 0; padding: 0; }
.cp-matches button { display: block; width: 100%; text-align: left; border: 0; background: none; color: inherit;
  font: inherit; padding: var(--s1) var(--s3); cursor: pointer; }
.cp-matches button:hover { background: var(--tint); } .cp-match { display: block; font-weight: 600; }

.cp-group { display: flex; flex-direction: column; } .cp-group > h3 { padding-bottom: var(--s1); }
.cp-feature-row { border-top: 1px solid var(--line); padding: var(--s1) var(--s2); display: grid; min-width: 0;
  grid-template-columns: minmax(96px, 1fr) minmax(112px, 1.15fr) minmax(110px, 1.2fr) minmax(104px, 152px);
  gap: 0 var(--s3); align-items: center; }
.cp-feature-row > .cp-problem, .cp-feature-row > .cp-note, .cp-limit-panel { grid-column: 1 / -1; }
.cp-feature-row.cp-fixed { background: repeating-linear-gradient(135deg, var(--stripe) 0 8px, transparent 8px 16px); }
.cp-feature-row.cp-limited { box-shadow: inset 3px 0 var(--primary); }
.cp-unit { color: var(--soft); font-size: 12px; }
.cp-feature-tools { display: flex; align-items: center; justify-content: flex-end; gap: var(--s1); max-width: 190px; }
.cp-limits .q-btn__content { white-space: normal; text-align: left; line-height: 1.2; font-size: 13px; }
.cp-limit-panel { padding: var(--s2) 0 var(--s3); display: flex; flex-direction: column; gap: var(--s2); }
.cp-limit-panel > p { margin: 0; }
.cp-strip-cell { min-width: 0; } .cp-hint { display: block; font-size: 12px; color: var(--soft); line-height: 1.2; }
.cp-strip { position: relative; height: 34px; }
.cp-bars { position: absolute; inset: 0 0 10px; } .cp-bars svg { display: block; width: 100%; height: 100%; }
.cp-bars .nicegui-html, .cp-bars > div { height: 100%; } .cp-bars rect { fill: var(--bars); }
.cp-strip::after { content: ""; position: absolute; left: 0; right: 0; bottom: 9px;
  border-bottom: 1px solid var(--edge); }
.cp-band { position: absolute; top: 0; bottom: 9px; background: var(--primary); opacity: .28; }
.cp-marker { position: absolute; top: 0; bottom: 6px; width: 3px; margin-left: -1.5px; background: var(--ink); }
.cp-end { position: absolute; left: -6px; width: calc(100% + 12px); bottom: 1px; height: 16px; margin: 0;
  appearance: none; background: none; pointer-events: none; }
.cp-end::-webkit-slider-thumb { appearance: none; pointer-events: auto; width: 12px; height: 16px;
  border-radius: 3px; background: var(--paper); border: 2px solid var(--primary); cursor: ew-resize; }
.cp-end::-moz-range-thumb { pointer-events: auto; width: 9px; height: 13px; border-radius: 3px;
  background: var(--paper);  border: 2px solid var(--primary); cursor: ew-resize; }
.cp-badge { font-size: 12px; border-radius: 999px; padding: 0 var(--s2); border: 1px solid currentColor;
  color: var(--soft); white-space: nowrap; background: var(--paper); }
.cp-training { color: var(--warn-text); }

.cp-card-head { display: flex; align-items: center; gap: var(--s2); }
.cp-card-head h3 { flex: 1; min-width: 0; }
.cp-plans { display: flex; flex-direction: column; gap: var(--s3); }
.cp-plan { border: 1px solid var(--line); border-radius: 8px; padding: var(--s2) var(--s3); display: flex;
  flex-direction: column; gap: var(--s1); min-width: 0; }
.cp-plan.cp-chosen { border-color: var(--primary); box-shadow: 0 0 0 1px var(--primary); }
.cp-plan p { margin: 0; overflow-wrap: anywhere; }
.cp-old .cp-plan { border: 2px dashed var(--warn); box-shadow: none; }
.cp-stack.cp-old { border-left: 3px dashed var(--warn);
  padding-left: var(--s2); }
.cp-outdated { margin: 0; padding: var(--s1) var(--s2); border-left: 3px solid var(--warn); border-radius: 4px;
  background: var(--note); color: var(--note-ink); font-size: 14px; font-weight: 600; }
.cp-changes { list-style: none; margin: 0; padding: 0; display: flex; flex-direction: column; gap: var(--s1); }
.cp-changes li { display: flex; flex-wrap: wrap; gap: 0 var(--s2); background: var(--tint); border-radius: 6px;
  padding: 2px var(--s2); overflow-wrap: anywhere; }
.cp-changes .cp-feature { color: var(--soft); flex: 0 0 136px; }
.cp-changes .cp-new { font-weight: 650; }
.cp-details summary { cursor: pointer; color: var(--link); font-size: 14px; }
.cp-steps { margin: var(--s1) 0 0; padding-left: var(--s5); font-size: 14px; overflow-wrap: anywhere; }
.cp-odds { font-variant-numeric: tabular-nums; font-weight: 650; }
.cp-found { color: var(--yes-text); } .cp-gap { color: var(--warn-text); } .cp-none { color: var(--no-text); }
.cp-conditions { display: flex; flex-direction: column; gap: var(--s2); } .cp-conditions:empty { display: none; }
.cp-condition { display: flex; flex-wrap: wrap; gap: var(--s2) var(--s3); align-items: center;
  padding: var(--s1) var(--s2); border: 1px solid var(--line); border-radius: 8px; } .cp-condition .cp-match {
  min-width: 120px; }
.cp-condition .cp-fields { flex: 1 1 300px; width: auto; } .cp-saved { display: flex; flex-wrap: wrap; gap: var(--s2); }
.cp-busy { display: flex; gap: var(--s2); align-items: center; color: var(--soft); min-height: 24px; }

.cp-scroll { overflow-x: auto; width: 100%; }
.cp-table { border-collapse: collapse; width: 100%; font-size: 14px; }
.cp-table th, .cp-table td { text-align: left; vertical-align: top; padding: var(--s1) var(--s3) var(--s1) 0;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; min-width: 64px; max-width: 260px; }
.cp-table thead th { color: var(--soft); font-weight: 600; font-size: 13px; }
.cp-table tbody th { font-weight: 600; }
.cp-table.cp-numbers td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.cp-table.cp-numbers th { white-space: nowrap; }
.cp-moved td, .cp-moved th { background: var(--tint); }
.cp-figure { width: 100%; min-width: 0; }
.body--dark .cp-figure .js-plotly-plot { filter: invert(.9) hue-rotate(180deg); }
.cp-slider { padding: 0 var(--s4) var(--s3); }
.cp-opening { max-width: 560px; margin: var(--s6) auto; width: calc(100% - 2 * var(--s4)); }
.cp-keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 12px; margin: 0; }
.cp-keys > div { border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.cp-keys dd { margin: 0; font-size: 24px; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.cp-keys dt { color: var(--soft); font-size: 13px; line-height: 1.35; }
.cp-which { min-width: 200px; }
.cp-receipt { width: min(820px, 96vw); max-width: none !important; height: 92vh; display: flex; flex-direction: column;
  background: var(--paper); }
.cp-dialog .q-dialog__backdrop { background: transparent; }
.cp-dialog .q-card { box-shadow: 0 0 0 100vmax rgb(0 0 0 / .45); }
.cp-receipt .cp-row { width: 100%; }
.cp-receipt-page { width: 100%; flex: 1; border: 1px solid var(--line); background: white; color-scheme: light; }
#group-measures .cp-table th, #group-measures .cp-table td { white-space: nowrap; max-width: none; }
#group-measures .cp-table td:last-child { white-space: normal; min-width: 240px; }
.cp-people td:nth-of-type(2) { white-space: nowrap; }
.cp-people td:nth-of-type(3) { max-width: none; width: 60%; }
@media (max-width: 600px) {
  .cp-people, .cp-people tbody { display: block; }
  .cp-people thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cp-people tr { display: grid; grid-template-columns: 1fr auto auto; gap: 0 12px; padding: 8px 0;
    border-bottom: 1px solid var(--line); }
  .cp-people th, .cp-people td { border: none; padding: 0; max-width: none; min-width: 0; overflow-wrap: anywhere; }
  .cp-people td:nth-of-type(3) { grid-column: 1 / 3; grid-row: 2; width: auto; }
  .cp-people td:nth-of-type(4) { grid-column: 3; grid-row: 2; }
}
.q-loading-bar { display: none; }  /* it has no name, and the page says what it does */
.q-btn { text-transform: none; font-weight: 600; letter-spacing: 0; }
.q-btn--dense { padding: 2px 10px; }
.q-btn.cp-off { opacity: .55; cursor: default; }
.cp-button.q-btn--flat, .cp-button.q-btn--outline { color: var(--link); }
.q-field__bottom { padding-top: 2px; }
.q-field__label, .q-field__suffix, .q-field__messages { color: var(--soft); opacity: 1; }
.q-field--error .q-field__bottom, .q-field--error .q-field__messages { color: var(--no-text) !important; }
.q-field__native, .q-field__input, .q-select__dropdown-icon { color: var(--ink); }
.body--dark .q-card, .body--dark .q-menu { background: var(--paper); }

@media (max-width: 1000px) {
  .cp-main, .cp-below { grid-template-columns: minmax(0, 1fr); padding-left: var(--s3); padding-right: var(--s3);
    gap: var(--s3); }
  .cp-side { position: static; max-height: none; overflow: visible; }
  .cp-wide { padding: var(--s3) var(--s3) var(--s5); }
  .cp-header, .cp-notice, .cp-links { padding-left: var(--s3); padding-right: var(--s3); }
  .cp-bar-top { padding-left: var(--s3); padding-right: var(--s3); }
  .cp-tabs { padding: 0; }
  .cp-section { padding: var(--s3); }
}
@media (max-width: 600px) {
  .cp-bar-top { grid-template-columns: minmax(0, 1fr); }
  .cp-bar-top > .cp-problem { grid-row: auto; }
  .cp-decision { grid-template-columns: minmax(0, 1fr); } .cp-odds-bars { display: none; }
  .cp-verdict { font-size: 16px; }
  .cp-feature-row { grid-template-columns: minmax(0, 1fr) minmax(0, 1.2fr); gap: var(--s1) var(--s3);
    padding: var(--s2); }
  .cp-feature-tools { justify-content: flex-start; max-width: none; }
  .cp-strip-cell { grid-column: 1; grid-row: 2; } .cp-feature-tools { grid-column: 2; grid-row: 2; }
  .cp-changes .cp-feature { flex-basis: 100%; }
  .cp-asked { grid-template-columns: repeat(2, minmax(0, 1fr)) !important; }
}
@media (max-height: 480px) { .cp-bar-top { position: static; } .cp-side { position: static; max-height: none; } }
@media (prefers-reduced-motion: reduce) { * { animation-duration: .01ms !important;
  transition: none !important; --q-transition-duration: .01ms !important; } }
@media (forced-colors: active) {
  .cp-header .cp-model { color: CanvasText; }
  .cp-bars rect { fill: GrayText; } .cp-marker { background: Highlight; forced-color-adjust: none; }
  .cp-band { border: 1px solid Highlight; } .cp-fill { background: Highlight; forced-color-adjust: none; }
  .cp-track { border: 1px solid CanvasText; } .cp-plan.cp-chosen { outline: 2px solid Highlight; }
  .cp-end::-webkit-slider-thumb { background: ButtonText; }
}
@media print { .cp-header, .cp-tabs, .cp-links, .cp-bar-top { position: static; }
  .cp-side { position: static; max-height: none; } }
"""


def apply() -> None:
    """Dress the page of this tab."""
    ui.colors(primary=PRIMARY, secondary=SOFT, accent=WARN, positive=YES, negative=NO, warning=WARN, dark=INK)
    ui.add_css(_STYLE + _RULES)


_KEY = "counterpath-dark"
_REMEMBERED = f"localStorage.getItem({_KEY!r}) ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'yes' : 'no')"


def dark_switch() -> ui.button:
    """A button that makes the page dark or light; the browser remembers it, and at first does as the system."""
    mode = ui.dark_mode(value=False)

    def show(dark: bool) -> None:
        mode.set_value(dark)
        button.set_text("Light" if dark else "Dark")
        button.props(f'aria-label="{"Light" if dark else "Dark"} colors"')

    def turn() -> None:
        ui.run_javascript(f"localStorage.setItem({_KEY!r}, {'no' if mode.value else 'yes'!r})")
        show(not mode.value)

    async def remember() -> None:
        show(await elements.ask_browser(_REMEMBERED) == "yes")

    button = ui.button("Dark", on_click=turn, color=None).props("flat dense no-caps").props('aria-label="Dark colors"')
    ui.timer(0, remember, once=True)
    return button

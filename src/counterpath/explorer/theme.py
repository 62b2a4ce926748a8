"""How the page looks: colours that colour-blind people can tell apart, one scale of spaces, one of type."""

from nicegui import ui

from counterpath.explanation.plots.style import INK, SOFT

PRIMARY, YES, NO, WARN = "#0072B2", "#009E73", "#D55E00", "#E69F00"
"""Of the palette of Okabe and Ito."""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0072B2"/>'
    '<path d="M6 24C10 24 10 9 16 9s5 9 10 9" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>'
    '<circle cx="6" cy="24" r="3" fill="#E69F00"/><circle cx="26" cy="18" r="3" fill="#F0E442"/></svg>'
)

# A step of the scale of spaces is 4 px: --s1 … --s6. Text that is coloured is darker than the palette, to be read.
_STYLE = f"""
:root {{
  --ink: {INK}; --soft: {SOFT}; --line: #d9dee4; --paper: #ffffff; --ground: #f4f6f8; --tint: #eef6fb;
  --primary: {PRIMARY}; --yes: {YES}; --no: {NO}; --warn: {WARN};
  --yes-text: #006b4f; --no-text: #a94a00; --warn-text: #7a5b00;
  --s1: 4px; --s2: 8px; --s3: 12px; --s4: 16px; --s5: 24px; --s6: 40px; --round: 10px;
}}
"""

_RULES = """
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
.nicegui-content { padding: 0; gap: 0; align-items: stretch; width: 100%; }
.cp-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
:focus-visible { outline: 3px solid var(--warn); outline-offset: 2px; }

.cp-header { background: var(--ink); color: white; padding: var(--s3) var(--s5); display: flex; flex-wrap: wrap;
  gap: var(--s2) var(--s5); align-items: baseline; }
.cp-header h1 { font-size: 20px; line-height: 1.4; font-weight: 650; letter-spacing: -.01em; margin: 0; }
.cp-header .cp-model { color: #cfd6de; overflow-wrap: anywhere; }
.cp-tabs { background: var(--ink); color: white; padding: 0 var(--s3); }
.cp-panels { background: transparent; } .cp-panels .q-tab-panel { padding: 0; gap: 0; }
.cp-links { display: flex; flex-wrap: wrap; gap: var(--s1) var(--s4); padding: var(--s3) var(--s5) 0; max-width: 1600px;
  width: 100%; margin: 0 auto; }
.cp-links a { color: var(--primary); text-decoration: none; padding: var(--s1) 0; font-size: 14px; }
.cp-links a:hover { text-decoration: underline; }
.cp-notice { background: #fff6dd; color: #4d3a00; border-bottom: 1px solid #eed9a0; padding: var(--s2) var(--s5);
  margin: 0; font-size: 14px; }

.cp-main { display: grid; grid-template-columns: minmax(320px, 404px) minmax(0, 1fr); gap: var(--s4);
  padding: var(--s4) var(--s5) var(--s6); max-width: 1600px; width: 100%; margin: 0 auto; align-items: start; }
.cp-column { display: flex; flex-direction: column; gap: var(--s4); min-width: 0; }
.cp-section { background: var(--paper); border: 1px solid var(--line); border-radius: var(--round); padding: var(--s4);
  display: flex; flex-direction: column; gap: var(--s3); min-width: 0; scroll-margin-top: var(--s3); }
.cp-wide { max-width: 1600px; width: 100%; margin: 0 auto; padding: var(--s4) var(--s5) var(--s6); }
.cp-title { font-size: 17px; line-height: 1.4; font-weight: 650; letter-spacing: -.01em; margin: 0; }
.cp-section h3 { font-size: 15px; line-height: 1.4; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
.cp-lead, .cp-soft { color: var(--soft); margin: 0; font-size: 14px; }
.cp-row { display: flex; flex-wrap: wrap; gap: var(--s2); align-items: center; }
.cp-grow { flex: 1 1 240px; }
.cp-rules { list-style: none; margin: 0; padding: 0; overflow-wrap: anywhere; }
.cp-fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: var(--s2) var(--s3);
  width: 100%; }
.cp-problem { color: var(--no-text); background: #fdf0e7; border-left: 3px solid var(--no); border-radius: 4px;
  padding: var(--s1) var(--s2); font-size: 13px; overflow-wrap: anywhere; }
.cp-stack { display: flex; flex-direction: column; gap: var(--s2); min-width: 0; }
.cp-stack > p, .cp-section > p { margin: 0; }
.cp-full { width: 100%; }

.cp-matches { border: 1px solid var(--line); border-radius: 8px; max-height: 300px; overflow: auto; }
.cp-decision { border-radius: 8px; background: var(--tint); border: 1px solid #cfe4f1; padding: var(--s3);
  display: flex; flex-direction: column; gap: var(--s2); }
.cp-verdict { font-size: 20px; line-height: 1.3; font-weight: 650; overflow-wrap: anywhere; }
.cp-bar { display: grid; grid-template-columns: minmax(48px, max-content) 1fr minmax(48px, max-content);
  gap: var(--s2); align-items: center; font-size: 13px; }
.cp-bar > :first-child { overflow-wrap: anywhere; max-width: 160px; }
.cp-bar > :last-child { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.cp-track { height: 10px; border-radius: 5px; background: #dfe4ea; overflow: hidden; }
.cp-fill { height: 100%; border-radius: 5px; background: var(--primary); }

.cp-card { border: 1px solid var(--line); border-radius: 8px; padding: var(--s2) var(--s3); display: flex;
  flex-direction: column; gap: var(--s1); min-width: 0; background: var(--paper); }
.cp-card.cp-fixed { background: repeating-linear-gradient(135deg, #f4f6f8 0 8px, #eceff3 8px 16px); }
.cp-card.cp-limited { border-color: var(--primary); box-shadow: inset 3px 0 var(--primary); }
.cp-card-head { display: flex; align-items: center; gap: var(--s2); }
.cp-card-head h3 { flex: 1; min-width: 0; }
.cp-badge { font-size: 12px; border-radius: 999px; padding: 0 var(--s2); border: 1px solid currentColor;
  color: var(--soft); white-space: nowrap; background: white; }
.cp-card .q-expansion-item { margin: 0 calc(-1 * var(--s2)); }
.cp-card .q-expansion-item .q-item { min-height: 32px; padding: 0 var(--s2); font-size: 13px; color: var(--soft); }
.cp-card .nicegui-expansion-content { padding: var(--s1) var(--s2); gap: var(--s2); }

.cp-plans { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(236px, 100%), 1fr)); gap: var(--s3); }
.cp-plan { border: 1px solid var(--line); border-radius: 8px; padding: var(--s3); display: flex; flex-direction: column;
  gap: var(--s2); min-width: 0; }
.cp-plan.cp-chosen { border-color: var(--primary); box-shadow: 0 0 0 1px var(--primary); }
.cp-plan p { margin: 0; overflow-wrap: anywhere; }
.cp-plan > .cp-row:last-child { margin-top: auto; }
.cp-changes { list-style: none; margin: 0; padding: 0; display: flex; flex-direction: column; gap: var(--s1); }
.cp-changes li { display: flex; flex-wrap: wrap; gap: 0 var(--s2);
  background: var(--tint); border-radius: 6px; padding: var(--s1) var(--s2); overflow-wrap: anywhere; }
.cp-changes .cp-feature { flex: 0 0 100%; font-size: 13px; color: var(--soft); }
.cp-changes .cp-new { font-weight: 650; }
.cp-steps { margin: 0; padding-left: var(--s5); font-size: 14px; overflow-wrap: anywhere; }
.cp-odds { font-variant-numeric: tabular-nums; font-weight: 650; }
.cp-found { color: var(--yes-text); } .cp-gap { color: var(--warn-text); } .cp-none { color: var(--no-text); }
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
.cp-slider { padding: 0 var(--s4) var(--s3); }
.cp-opening { max-width: 560px; margin: var(--s6) auto; width: calc(100% - 2 * var(--s4)); }
.cp-keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 12px; margin: 0; }
.cp-keys > div { border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.cp-keys dd { margin: 0; font-size: 24px; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.cp-keys dt { color: var(--soft); font-size: 13px; line-height: 1.35; }
.cp-which { min-width: 200px; }
#group-measures .cp-table th, #group-measures .cp-table td { white-space: nowrap; max-width: none; }
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
.q-btn { text-transform: none; font-weight: 600; letter-spacing: 0; }
.q-btn--dense { padding: 2px 10px; }
.q-field__bottom { padding-top: 2px; }

@media (max-width: 900px) {
  .cp-main { grid-template-columns: minmax(0, 1fr); padding: var(--s3); gap: var(--s3); }
  .cp-wide { padding: var(--s3) var(--s3) var(--s5); }
  .cp-header, .cp-notice, .cp-links { padding-left: var(--s3); padding-right: var(--s3); }
  .cp-tabs { padding: 0; }
  .cp-section { padding: var(--s3); }
}
@media (prefers-reduced-motion: reduce) { * { animation-duration: .01ms !important; transition: none !important; } }
"""


def apply() -> None:
    """Dress the page of this tab."""
    ui.colors(primary=PRIMARY, secondary=SOFT, accent=WARN, positive=YES, negative=NO, warning=WARN, dark=INK)
    ui.add_css(_STYLE + _RULES)

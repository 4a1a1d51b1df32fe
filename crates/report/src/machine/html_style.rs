//! How the page looks: one sheet, no scripts, light and dark, and fit for paper.

/// Colours of nodes, by position; they repeat beyond. Neighbours differ in lightness as well as in
/// hue, so that they can be told apart without colour vision and on paper.
pub(super) const NODE_COLOURS: usize = 8;

pub(super) const STYLE: &str = r#"
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5b6675; --line: #dde2e9;
  --accent: #2457a6; --good: #1f7a4d; --good-bg: #e3f3ea; --warn: #8a4b00; --warn-bg: #fff3df;
  --code: #eef1f5; --track: #e8ebf0; --heat: 36, 87, 166;
  --n0: #2f6fbf; --n1: #e69f35; --n2: #1f8a70; --n3: #c2588f; --n4: #7aa8dd; --n5: #8a5a1c;
  --n6: #7cc3ab; --n7: #6b4fa0; --m0: #3c5675; --m1: #9db8d2; --m2: #c2a66b; --m3: #8c95a1; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161c; --card: #1a2029; --ink: #e4e9f0; --soft: #9aa6b5; --line: #2d3643;
  --accent: #84b0f0; --good: #7fd3a6; --good-bg: #16332a; --warn: #f2bd73; --warn-bg: #372a16;
  --code: #242c38; --track: #2a323e; --heat: 110, 160, 235;
  --n0: #5b96e0; --n1: #f0b457; --n2: #3fae91; --n3: #dd7fb0; --n4: #a9c9f0; --n5: #b98545;
  --n6: #a0dcc8; --n7: #9c84d0; --m0: #8fb2da; --m1: #4c6b8c; --m2: #cdb277; --m3: #6b7685; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
header p, .note, footer { color: var(--soft); font-size: .9rem; }
header p { margin: 0; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .35rem 0 0; text-wrap: balance; }
h2 { font-size: 1.05rem; margin: 0 0 .75rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin: 1rem 0 0; overflow-x: auto; }
section > :last-child { margin-bottom: 0; }
.pill { display: inline-block; border-radius: 1rem; padding: .05rem .65rem; font-size: .8rem;
  font-weight: 600; background: var(--good-bg); color: var(--good); vertical-align: .15em; }
.pill.unsure { background: var(--warn-bg); color: var(--warn); }
.warnings { background: var(--warn-bg); border-color: transparent; }
.warnings h2 { color: var(--warn); }
.warnings ul, .steps { margin: 0; padding-left: 1.2rem; }
.warnings li + li, .steps li + li { margin-top: .5rem; }
.foreign { overflow-wrap: break-word; } td.foreign { min-width: 7rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: .35rem .6rem; text-align: left; vertical-align: middle;
  border-bottom: 1px solid var(--line); }
tr > :first-child { padding-left: 0; } tr > :last-child { padding-right: 0; }
tbody tr:last-child > * { border-bottom: 0; }
th { font-weight: 600; } thead th { color: var(--soft); font-size: .8rem;
  white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: flex; height: .85rem; min-width: 9rem; border-radius: 4px; overflow: hidden;
  background: var(--track); }
.bar span { height: 100%; } .bar span + span { border-left: 1px solid var(--card); }
.bar, .key i, .heat td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.words { color: var(--soft); font-size: .82rem; }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: 0 0 .6rem; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -.08em; }
.programs { background: var(--m0); } .cache { background: var(--m1); }
.kernel { background: var(--m2); } .other { background: var(--m3); }
.n0 { background: var(--n0); } .n1 { background: var(--n1); } .n2 { background: var(--n2); }
.n3 { background: var(--n3); } .n4 { background: var(--n4); } .n5 { background: var(--n5); }
.n6 { background: var(--n6); } .n7 { background: var(--n7); }
.heat { width: auto; } .heat th, .heat td { text-align: center; padding: .4rem .85rem; }
.heat td { font-variant-numeric: tabular-nums; border: 2px solid var(--card); border-radius: 6px; }
code { font: .88em/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
.steps code { display: block; background: var(--code); border-radius: 6px; padding: .4rem .7rem;
  margin-top: .25rem; overflow-wrap: anywhere; user-select: all; }
.drawing svg { max-width: 100%; height: auto; display: block; margin: 0 auto; }
details { margin-top: .6rem; color: var(--soft); font-size: .9rem; }
summary { cursor: pointer; } details ul { margin: .4rem 0 0; padding-left: 1.2rem; }
footer { margin-top: 1.5rem; }
@media print { body { background: none; font-size: 11pt; } main { max-width: none; padding: 0; }
  section { break-inside: avoid; padding: .6rem .8rem; } .processes { break-inside: auto; }
  tr { break-inside: avoid; } }
"#;

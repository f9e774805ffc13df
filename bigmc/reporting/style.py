"""The style of the report, on screen and on paper."""

STYLE = """
:root { color-scheme: light;
  --ink: #1b2430; --soft: #5d6978; --rule: #e1e6ec; --blue: #1d5fa8; --red: #b3412a; }
* { box-sizing: border-box; }
body { margin: 0; background: #f5f7f9; color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 0 0 .9rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 46rem; }
.lead { color: var(--soft); font-size: 1.05rem; }
.note, .count, .also { color: var(--soft); font-size: .87rem; }
.warning { color: var(--red); font-weight: 600; }
section, .tiles > div { background: #fff; border: 1px solid var(--rule); border-radius: 8px; }
section { padding: 1.4rem 1.6rem; margin-top: 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem;
  margin: 1.4rem 0 0; }
.tiles > div { padding: .7rem .9rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 400; color: var(--soft); }
th, td { padding: .22rem .9rem .22rem 0; vertical-align: top; overflow-wrap: anywhere; }
data { white-space: nowrap; }
.facts th { width: 17rem; }
.figures { width: 100%; }
.figures th { overflow-wrap: normal; }
.figures thead th, .figures td { border-bottom: 1px solid var(--rule); }
.entry { display: inline-block; margin-right: 1rem; }
code { font: .87em/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.name { white-space: pre-wrap; overflow-wrap: anywhere; }
.classes { display: grid; grid-template-columns: repeat(auto-fill, minmax(24rem, 1fr)); gap: .6rem 2.4rem; }
article h3 { margin-bottom: .1rem; }
.features { width: 100%; margin-top: .3rem; }
.features td, .features th { padding: .1rem .6rem .1rem 0; }
.features th { color: inherit; width: 4.6rem; text-align: right; white-space: nowrap; }
.features td:nth-child(2) { width: 5.6rem; }
.bar { height: .6rem; margin-top: .45rem; border-radius: 2px; min-width: 1px; }
.for { background: var(--blue); }
.against { background: var(--red); }
figure { margin: .4rem 0 1rem; }
figcaption { font-size: .87rem; color: var(--soft); }
figcaption b { color: var(--ink); }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem;
  vertical-align: -.08rem; }
span.between { background: #e9eef4; }
.small-plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 0 1.4rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--soft); }
.grid { stroke: var(--rule); }
.axis { stroke: #9aa5b1; }
polygon.between { fill: #e9eef4; }
@media (max-width: 34rem) {
  .classes, .small-plots { grid-template-columns: 1fr; }
  .facts th { width: 10rem; }
  .figures { display: block; overflow-x: auto; }
  .figures td { overflow-wrap: normal; }
}
@media print {
  body { background: #fff; font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  section { border: 0; padding: 0; margin-top: 1.4rem; }
  section, .bar, .key, polygon { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .classes { display: block; columns: 2; column-gap: 2.4rem; }
  .tiles { grid-template-columns: repeat(6, 1fr); gap: .4rem; }
  h2, h3 { break-after: avoid; }
  figure, tr, .tiles { break-inside: avoid; }
}
"""

"""The style sheet of the report's page. Colours are those of the laboratory's pictures.

Dark ones hold on screens only: on paper all is light. No rule loads anything.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2024; --quiet: #565c63; --rule: #d9dce0; --failure: #a02020;
  --application: #1b4f8f; --backing: #b3541e; --cache: #2e7d4f; --dirty: #7a4f9a;
  --attaching: #f2d28b; --boosting: #a8d5a2; --flushing: #a9c7e8; --detaching: #d9c3e6;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e4e7ea; --quiet: #a0a7ae; --rule: #363c42; --failure: #ff8f8f;
    --application: #7fb2f0; --backing: #ee9a5f; --cache: #6cc492; --dirty: #c39ae0;
    --attaching: #6b5a24; --boosting: #2f5a35; --flushing: #2b4a6b; --detaching: #523a63;
  }
}
body {
  max-width: 74rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0; font-variant-numeric: tabular-nums; }
figure { margin: 0; break-inside: avoid; }
.note { color: var(--quiet); font-size: .87rem; margin: .25rem 0 .75rem; }
.failure { color: var(--failure); margin: 0; }
.sums { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 1.25rem 0 .5rem; }
.sums dt { color: var(--quiet); font-size: .87rem; }
.sums dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.legend {
  display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .25rem 0; padding: 0;
  list-style: none; font-size: .87rem;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
thead th { color: var(--quiet); font-weight: normal; }
tbody th { font-weight: normal; }
th:first-child, .text { text-align: left; }
td.text { white-space: normal; min-width: 9rem; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; }
svg.key {
  display: inline-block; width: .9rem; min-width: 0; height: .9rem; margin-right: .4rem; vertical-align: -.1rem;
}
svg text { font: 12px system-ui, sans-serif; fill: var(--quiet); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.area { stroke: none; fill-opacity: .16; }
.line.application { stroke: var(--application); }
.area.application { fill: var(--application); }
.line.dirty { stroke: var(--dirty); }
.area.dirty { fill: var(--dirty); }
.limit { stroke-width: 1.2; stroke-dasharray: 5 4; }
.limit.cache { stroke: var(--cache); }
.limit.backing { stroke: var(--backing); }
.limit.dirty { stroke: var(--dirty); }
svg .name.cache { fill: var(--cache); }
svg .name.backing { fill: var(--backing); }
svg .name.dirty { fill: var(--dirty); }
.band { fill-opacity: .45; }
.band.attaching { fill: var(--attaching); }
.band.boosting { fill: var(--boosting); }
.band.flushing { fill: var(--flushing); }
.band.detaching { fill: var(--detaching); }
.bar.backing { fill: var(--backing); fill-opacity: .75; }
.bar.cache { fill: var(--cache); }
.bar.fast { fill: none; stroke: var(--ink); stroke-dasharray: 3 2; }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt; }
  .wide { overflow: visible; }
  svg { min-width: 0; }
  table { font-size: 7.5pt; }
  thead { display: table-header-group; }
  tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

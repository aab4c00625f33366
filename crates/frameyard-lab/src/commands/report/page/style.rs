//! How the page looks: on a phone, in print, on light and dark screens.

/// Colours follow the reader's scheme. Below 640 pixels, a row of a table becomes a block whose cells name their columns.
pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8885; --faint: #8882; --good: #1b7f46; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --good: #58c487; --bad: #ff8a7a; } }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: light-dark(#1b1b1b, #e6e6e6); background: light-dark(#fff, #161616); }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 0 0 .5rem; }
p, li, figcaption, code, .jobs td { overflow-wrap: anywhere; }
td { overflow-wrap: break-word; }
figure, section { margin: 0 0 2rem; }
figure svg { display: block; width: 100%; max-width: 36rem; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .5rem; border-bottom: 1px solid var(--line); }
td.number { font-variant-numeric: tabular-nums; }
tr.held td:first-child { color: var(--good); font-weight: 600; }
tr.broken td:first-child { color: var(--bad); font-weight: 600; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; font-size: .875rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: 2px; print-color-adjust: exact; }
.note, .absent { font-size: .875rem; color: light-dark(#494949, #b8b8b8); }
.absent { padding: 1rem; background: var(--faint); }
code { font-size: .8125rem; }
details { margin: .25rem 0; }
@media (max-width: 640px) {
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td { border: 0; padding: 0; }
  td { overflow-wrap: anywhere; }
  td::before { content: attr(data-label) \": \"; font-weight: 400; color: light-dark(#595959, #a8a8a8); }
}
@media print {
  body { font-size: 10pt; }
  figure, tr { break-inside: avoid; }
  details:not([open]) > summary { display: none; }
}
";

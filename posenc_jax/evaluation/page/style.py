"""How the page looks: one column for text, tables and figures as wide as they need, light, dark and on paper."""

CSS = """
:root {
  color-scheme: light dark;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --page: #ffffff; --text: #1d2126; --soft: #59616b; --line: #d8dce1; --band: #f5f6f8; --link: #0b5cad;
}
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --text: #e4e6e8; --soft: #a3abb5; --line: #353b43; --band: #1d2126; --link: #7db4ef; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1rem 4rem; max-width: 76rem;
  background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif;
  overflow-wrap: break-word;
}
h1, h2, h3, h4 { line-height: 1.25; font-weight: 600; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 3.5rem 0 1rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2.25rem 0 .75rem; }
h4 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, ul { max-width: 46rem; margin: .5rem 0; }
ul { padding-left: 1.25rem; }
main ul { font-size: .875rem; color: var(--soft); }
a { color: var(--link); text-underline-offset: .15em; }
.lead, .note, figcaption, .absent, footer { color: var(--soft); }
.note, figcaption, footer, caption { font-size: .85rem; line-height: 1.45; }
.note { margin: .5rem 0 0; }
.absent { border-left: 3px solid var(--line); padding-left: .75rem; }
nav ul {
  display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; margin: 1.25rem 0 0; padding: 0;
  max-width: none;
}
.table { margin: 1rem 0 2rem; }
.scroll { overflow-x: auto; max-width: 100%; position: relative; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table {
  border-collapse: collapse; font-size: .875rem; line-height: 1.4; font-variant-numeric: tabular-nums lining-nums;
}
caption { text-align: left; font-weight: 600; padding: 0 0 .5rem; caption-side: top; font-size: .95rem; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--text); vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody th, tbody td { min-width: 3.5rem; max-width: 22rem; }
.n { text-align: right; }
.n, .whole { white-space: nowrap; }
.n + :not(.n) { padding-left: .6rem; }
figure { margin: 0; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { max-width: 46rem; margin-top: .5rem; }
.figures {
  display: grid; gap: 2rem 2.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  align-items: start; margin: 1rem 0 2rem;
}
.columns {
  display: grid; gap: 0 2.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr));
  align-items: start;
}
.columns > *, .figures > * { min-width: 0; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--link); max-width: 46rem; }
pre {
  margin: .5rem 0 1rem; padding: .75rem 1rem; overflow-x: auto; background: var(--band); border-radius: 4px;
  font: .8125rem/1.5 var(--mono);
}
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-family: var(--mono); font-size: .9em; overflow-wrap: anywhere; }
pre code { font-size: inherit; }
footer { margin-top: 4rem; padding-top: .9rem; border-top: 1px solid var(--line); }
@media (min-width: 60rem) { body { padding: 4rem 2.5rem 6rem; } }
@media print {
  :root { color-scheme: light; --page: #fff; --text: #000; --soft: #444; --line: #bbb; --band: #f5f5f5; --link: #000; }
  @page { margin: 16mm 14mm; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav { display: none; }
  h2, h3, h4, caption, summary { break-after: avoid; }
  figure, tr { break-inside: avoid; }
  .scroll, pre { overflow: visible; }
  figure img { min-width: 0 !important; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  table { font-size: 7.5pt; }
  .n, .whole { white-space: normal; }
  th, td { padding: .2rem .4rem .2rem 0; }
  .figures, .columns { display: block; }
  .figures figure { margin: 1rem 0; }
  details::details-content { content-visibility: visible; height: auto; block-size: auto; opacity: 1; }
}
"""

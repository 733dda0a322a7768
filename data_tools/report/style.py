"""The style sheet of the page: one column of text and plots, light and dark."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2730; --soft: #5c6873; --line: #dfe4e8;
  --paper: #fff; --card: #f6f8f9; --kept: #2f7f86; --lost: #d98a5b; --third: #7f8fb3;
  --alarm: #b3402a }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3e8; --soft: #98a4ae; --line: #36414a;
  --paper: #161c21; --card: #1e262c; --kept: #4fa6ac; --lost: #d08a60; --third: #8d9cc2;
  --alarm: #e58a74 } }
* { box-sizing: border-box }
body { font: 15px/1.55 system-ui, "Noto Sans CJK SC", "WenQuanYi Zen Hei", sans-serif;
  color: var(--ink); background: var(--paper); max-width: 68rem; margin: 0 auto;
  padding: 1.5rem 1.5rem 4rem }
h1 { font-size: 1.7rem; margin: 0.5rem 0 0.2rem } h2 { font-size: 1.25rem; margin: 3rem 0 0.6rem;
  padding-top: 0.6rem; border-top: 1px solid var(--line) } 
h3 { font-size: 1rem; margin: 1.6rem 0 0.4rem }
p { max-width: 46rem; margin: 0.4rem 0 } .soft, figcaption { color: var(--soft) }
nav { font-size: 0.9rem; margin: 0.8rem 0 1.2rem; display: flex; flex-wrap: wrap; gap: 0 1rem }
a { color: var(--kept) }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.7rem }
.tile { background: var(--card); border-radius: 6px; padding: 0.7rem 0.9rem }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }
.tile span { color: var(--soft); font-size: 0.85rem; display: block; line-height: 1.35 }
.notes { border-left: 4px solid var(--lost); background: var(--card); padding: 0.5rem 1rem;
  margin: 1.2rem 0; border-radius: 0 6px 6px 0 } .notes li { margin: 0.15rem 0 }
.notes ul { margin: 0.3rem 0; padding-left: 1.1rem }
.notes .alarm { color: var(--alarm); font-weight: 600 }
figure { margin: 1.2rem 0 } figcaption { font-size: 0.9rem; margin-bottom: 0.3rem }
.legend { float: right } .key { display: inline-block; width: 0.8em; height: 0.8em;
  margin: 0 0.35em 0 1em; border-radius: 2px }
svg { width: 100%; height: auto; display: block } svg text { font-size: 12.5px; fill: var(--ink) }
svg .end { text-anchor: end } svg .middle { text-anchor: middle } svg line { stroke: var(--line) }
rect { fill: var(--third) } .key { background: var(--third) }
rect.kept, rect.others, rect.tokens, rect.real { fill: var(--kept) }
.key.kept, .key.others, .key.tokens, .key.real { background: var(--kept) }
rect.lost, rect.dropped, rect.exact, rect.padding { fill: var(--lost) }
.key.lost, .key.dropped, .key.exact, .key.padding { background: var(--lost) }
rect.heldout { fill: var(--alarm) } .key.heldout { background: var(--alarm) }
.wide { overflow-x: auto } table { border-collapse: collapse; margin: 0.5rem 0 1rem;
  font-size: 0.9rem } th, td { padding: 0.28rem 0.8rem 0.28rem 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 500 } th.figure, td.figure { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; padding-left: 0.8rem }
td.text, .excerpt { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate }
details { margin: 0.4rem 0; border-bottom: 1px solid var(--line); padding-bottom: 0.4rem }
summary { cursor: pointer } summary b { font-weight: 600 }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1.2rem; margin: 0.6rem 0 }
.sides h3 { margin: 0.2rem 0 } .sample { background: var(--card); border-radius: 6px;
  padding: 0.5rem 0.7rem; margin: 0.5rem 0; font-size: 0.85rem; overflow: hidden }
.sample .why { color: var(--alarm); overflow-wrap: anywhere }
.sample .place { color: var(--soft); font-size: 0.78rem; overflow-wrap: anywhere }
.excerpt { max-height: 9rem; overflow: auto; margin-top: 0.3rem }
code, pre { font: 0.92em/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
pre { overflow-x: auto; background: var(--card); padding: 0.7rem; border-radius: 6px }
@media (max-width: 640px) { .sides { grid-template-columns: 1fr } }
"""

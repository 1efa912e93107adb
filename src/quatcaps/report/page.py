"""HTML pages that stand alone: one file, pictures inside it, nothing fetched from anywhere.

>>> print(document("Errors", [section("Result", paragraph("5 < 6"))])[:15])
<!DOCTYPE html>
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import NewType

from quatcaps.files import explained, new_file
from quatcaps.report.tables import Table

Html = NewType("Html", str)
"""Markup that is safe to put on a page: whatever came from outside has been escaped."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --muted: #59616b; --paper: #ffffff; --panel: #f4f6f8;
  --rule: #d5dae0; --accent: #005a8e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --muted: #a3acb7; --paper: #14171a; --panel: #1f2429; --rule: #39414a; --accent: #7cc4f0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.75rem 0 0.75rem; padding-bottom: 0.3rem;
  border-bottom: 1px solid var(--rule); }
p { max-width: 46rem; margin: 0 0 0.9rem; }
figure { margin: 1.25rem 0; }
figcaption { color: var(--muted); font-size: 0.9rem; max-width: 46rem; margin-top: 0.4rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.picture { background: #ffffff; border: 1px solid var(--rule); border-radius: 6px; padding: 0.6rem; }
.picture img { display: block; width: 100%; min-width: 38rem; height: auto; }
.embedded { display: block; width: 100%; height: 46rem; border: 1px solid var(--rule); border-radius: 6px; }
a { color: var(--accent); }
table { border-collapse: collapse; margin: 0.5rem 0 1.25rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); font-size: 0.9rem; padding-bottom: 0.35rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 1.1rem 0.4rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; }
tbody th { font-weight: 500; white-space: nowrap; }
tr > :last-child { padding-right: 0; }
.number { text-align: right; }
thead th { vertical-align: bottom; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: 0.9rem; }
pre { background: var(--panel); border-radius: 6px; padding: 0.7rem 0.9rem; overflow-x: auto; margin: 0 0 1rem; }
.explained { margin-bottom: 0.3rem; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 42rem) {
  table { font-size: 0.88rem; }
  th, td { padding-right: 0.7rem; }
  figcaption::after { content: " (The picture scrolls sideways.)"; }
}
@media (max-width: 28rem) {
  table { font-size: 0.8rem; }
  th, td { padding-right: 0.5rem; }
}
@media print { .picture img { min-width: 0; } }
"""


def document(title: str, parts: Iterable[Html]) -> str:
    """A whole page with `title` as its heading."""
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""


def write_page(path: Path, title: str, parts: Iterable[Html]) -> Path:
    """Writes a page whole or not at all."""
    text = document(title, parts)
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def section(title: str, *parts: Html) -> Html:
    body = "\n".join(parts)
    return Html(f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>")


def paragraph(text: str) -> Html:
    return Html(f"<p>{escape(text)}</p>")


def picture(path: Path, alt: str, caption: str) -> Html:
    """A PNG, put into the page itself; `alt` says what it shows to those who cannot see it.

    On narrow screens it scrolls sideways rather than shrink until its letters cannot be read.
    """
    with explained(f"read {path}"):
        content = base64.b64encode(path.read_bytes()).decode("ascii")
    image = f'<img src="data:image/png;base64,{content}" alt="{escape(alt)}">'
    frame = f'<div class="scroll picture" tabindex="0" role="group" aria-label="{escape(caption)}">{image}</div>'
    return Html(f"<figure>\n{frame}\n<figcaption>{escape(caption)}</figcaption>\n</figure>")


def table(shown: Table) -> Html:
    """A table that scrolls sideways where it is wider than the screen."""
    return Html(
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(shown.title)}">{shown.html()}</div>'
    )


def commands(explanations: Mapping[str, str]) -> Html:
    """Shell commands, each under the line that says what it does."""
    return Html(
        "\n".join(
            f'<p class="explained">{escape(explanation)}</p>\n<pre><code>{escape(command)}</code></pre>'
            for command, explanation in explanations.items()
        )
    )


def embedded(file: str, title: str) -> Html:
    """Another page of the same folder, in a frame, with a link to it for those who want it whole."""
    frame = f'<iframe class="embedded" src="{escape(file)}" title="{escape(title)}" loading="lazy"></iframe>'
    return Html(f'{frame}\n<p><a href="{escape(file)}">{escape(title)}, on a page of its own</a></p>')


def folded(summary: str, *parts: Html) -> Html:
    """Parts that the reader opens."""
    body = "\n".join(parts)
    return Html(f"<details>\n<summary>{escape(summary)}</summary>\n{body}\n</details>")

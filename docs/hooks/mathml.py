"""Formulas become MathML when the site is built, so that browsers draw them without any script."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(drawn, content)


def drawn(formula: re.Match[str]) -> str:
    kind, latex = formula.groups()
    display = "block" if kind == "div" else "inline"
    return f'<{kind} class="formula">{convert(html.unescape(latex).strip(), display=display)}</{kind}>'

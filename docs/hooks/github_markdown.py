"""What Python-Markdown, which makes the site, reads in another way than GitHub."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

FENCE = re.compile(r"^ {0,3}(```|~~~)")
LIST = re.compile(r"^ {0,3}([-*]|\d+\.) ")
LITERAL = re.compile(r"(`+.+?`+|\$\$.+?\$\$|\$[^$]+\$)", re.S)
STAR = re.compile(r"(?<![*\\])\*(?!\*)")


def as_on_github(markdown: str) -> str:
    """The same text, written so that both read it alike."""
    lines: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def end_paragraph() -> None:
        text = "\n".join(paragraph)
        if paragraph:
            lines.extend((text if is_code(text) else stars_escaped(text)).split("\n"))
        paragraph.clear()

    for line in markdown.splitlines():
        fence = bool(FENCE.match(line))
        if fence or fenced or not line.strip():
            end_paragraph()
            lines.append(line)
        else:
            if paragraph and begins_block(line, paragraph[-1]):
                end_paragraph()
                lines.append("")
            paragraph.append(line)
        fenced ^= fence
    end_paragraph()
    return "\n".join(deeper(lines)) + "\n"


def deeper(lines: list[str]) -> Iterator[str]:
    """With four spaces before the later paragraphs of an item of a list, which GitHub knows by two."""
    in_list = later = fenced = False
    for number, line in enumerate(lines):
        if line.strip() and not fenced:
            item = LIST.match(line) is not None
            if item and later:
                yield ""
            in_list = item or (in_list and line.startswith("  "))
            later = in_list and not item and (later or (number > 0 and not lines[number - 1].strip()))
        fenced ^= bool(FENCE.match(line))
        yield f"  {line}" if later and line.strip() and not line.startswith("    ") else line


def is_code(paragraph: str) -> bool:
    """Whether it is code by its indentation."""
    return all(line.startswith("    ") for line in paragraph.split("\n"))


def begins_block(line: str, before: str) -> bool:
    """Whether a list or a table begins here, though no empty line is before it."""
    if line.startswith("|"):
        return not before.startswith("|")
    return bool(LIST.match(line)) and not LIST.match(before) and not before.startswith((" ", "\t"))


def stars_escaped(paragraph: str) -> str:
    """With a backslash before every star that neither begins nor ends emphasis, as in w u w* and EM*."""
    is_open = False

    def escaped(star: re.Match[str]) -> str:
        nonlocal is_open
        before, after = star.string[: star.start()][-1:] or " ", star.string[star.end() :][:1] or " "
        begins = not after.isspace() and (not is_mark(after) or before.isspace() or is_mark(before))
        if is_open and not before.isspace():
            is_open = False
        elif begins or before in " \n":
            is_open = begins
        else:
            return r"\*"
        return "*"

    parts = LITERAL.split(paragraph)
    parts[::2] = [STAR.sub(escaped, part) for part in parts[::2]]
    return "".join(parts)


def is_mark(character: str) -> bool:
    """Punctuation and symbols."""
    return unicodedata.category(character)[0] in "PS"

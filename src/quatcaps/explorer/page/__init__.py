"""What the browser gets: a page, its style and its scripts, as they are."""

from __future__ import annotations

from importlib import resources

SCRIPTS = (
    "elements.js",
    "rotors.js",
    "source.js",
    "requests.js",
    "charts.js",
    "pose.js",
    "votes.js",
    "stage.js",
    "network.js",
    "explorer.js",
)
"""Of the page, each after those that it imports."""
FILES = {**dict.fromkeys(SCRIPTS, "text/javascript"), "explorer.css": "text/css"}
"""Beside the page; nothing else is opened."""


def page_file(name: str) -> str:
    """The text of a file in this folder."""
    return resources.files("quatcaps.explorer.page").joinpath(name).read_text(encoding="utf-8")

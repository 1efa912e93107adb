"""The explorer as one file that needs no server: some toys from all around, with what the networks say of them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.errors import QuatcapsError
from quatcaps.explorer.page import SCRIPTS, page_file
from quatcaps.explorer.shown import Shown
from quatcaps.explorer.toys import PIXELS, View, catalogue, data_address, drawn
from quatcaps.files import new_file

AZIMUTHS = tuple(range(0, 360, 15))
ELEVATIONS = (35, 50, 65)
TOYS = tuple((category, 0) for category in range(len(CLASSES)))
LARGEST = 10 * 10**6
"""Bytes that the file may have."""
NAMES = "quatcaps/"
"""What the scripts are called inside the file: a name of their own, as a file's neighbours cannot be imported."""


def export(
    networks: Sequence[Shown],
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    toys: Sequence[tuple[int, int]] = TOYS,
    azimuths: Sequence[int] = AZIMUTHS,
    elevations: Sequence[int] = ELEVATIONS,
) -> int:
    """Writes the file, whole or not at all; how many bytes it has."""
    looks: list[dict[str, Any]] = []
    total = len(toys) * len(azimuths) * len(elevations)
    for category, kind in toys:
        views = [View(category, kind, float(a), float(e)) for e in elevations for a in azimuths]
        images = drawn(views, [PIXELS, *(each.side for each in networks)])
        for number, view in enumerate(views):
            found = [each.look(images[each.side][number], view.rotor) for each in networks]
            left = data_address(images[PIXELS][number, 0])
            looks.append({"view": view.to_json(), "image": {"left": left}, "networks": found})
            if progress is not None:
                progress(len(looks), total)
    about = {"networks": [each.to_json() for each in networks], "toys": catalogue()}
    text = document({"about": about, "looks": looks}).encode()
    if len(text) > LARGEST:
        raise QuatcapsError(
            f"{path} would have {len(text) / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}: export fewer networks"
        )
    with new_file(path) as temporary:
        temporary.write_bytes(text)
    return len(text)


def document(data: dict[str, Any]) -> str:
    """The page with its style, its scripts and its data inside. Names in the data may be anything: they are packed, and
    never part of the page's text."""
    packed = base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0)).decode()
    imports = {f"{NAMES}{name}": as_address(renamed(page_file(name))) for name in SCRIPTS}
    page = page_file("index.html")
    style, script = '<link rel="stylesheet" href="explorer.css">', '<script type="module" src="explorer.js"></script>'
    if page.count(style) != 1 or page.count(script) != 1:
        raise QuatcapsError("the explorer's page has no place for its style and script: install quatcaps again")
    begin = (
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>\n'
        f'<script type="application/gzip" id="data">{packed}</script>\n'
        f'<script type="module">\n{BEGIN}</script>'
    )
    return page.replace(style, f"<style>\n{page_file('explorer.css')}</style>").replace(script, begin)


BEGIN = f"""\
const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
window.EXPLORER_DATA = await new Response(stream).json();
await import("{NAMES}explorer.js");
"""
"""What the file does first: unpacks its data, then starts the page."""


def renamed(script: str) -> str:
    """A script that imports its neighbours by the names that they have inside the file."""
    return re.sub(r'(from |import )"\./', rf'\1"{NAMES}', script)


def as_address(script: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"

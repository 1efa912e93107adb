"""Records docs/images/explorer.webp: two networks on one toy, in a whole turn. Needs chromium and quatcaps[dev].

python docs/images/explorer.py
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from threading import Thread

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

from quatcaps.explorer.serve import bound
from quatcaps.explorer.server import application
from quatcaps.explorer.shown import Shown
from quatcaps.weights.zoo import trained

NETWORKS = ("qcn-rotor-toys", "qcn-toys")
CATEGORY, KIND = 2, 3
STEPS, TURN = 24, 3
"""Frames of a whole turn, and presses of an arrow key, 5° each, from one to the next."""
WIDTH, HEIGHT = 1280, 532
SHOWN = (1000, 416)
"""Pixels of the page, and of the picture."""
PAUSE = 140
"""Milliseconds."""


def main() -> None:
    listening = bound("127.0.0.1", 0)
    networks = [Shown(trained(name)) for name in NETWORKS]
    server = uvicorn.Server(uvicorn.Config(application(networks), log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    frames = record(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    server.should_exit = True
    thread.join()
    path = Path(__file__).with_name("explorer.webp")
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=PAUSE, loop=0, quality=72, method=6)
    print(f"{path}: {len(frames)} frames, {path.stat().st_size / 1e6:.2f} MB")


def record(address: str) -> list[Image.Image]:
    frames = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address)
        page.locator("#category").select_option(str(CATEGORY))
        page.locator("#kind").select_option(str(KIND))
        page.locator("#toy").focus()
        for step in range(2 * STEPS):  # the first turn draws the trail that the second one shows
            for _ in range(TURN):
                page.keyboard.press("ArrowRight")
            page.wait_for_timeout(700)
            if step >= STEPS:
                frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(SHOWN, Image.LANCZOS))
        browser.close()
    return frames


if __name__ == "__main__":
    main()

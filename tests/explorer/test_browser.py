"""The explorer's page in a real browser: Debian's chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from quatcaps.explorer.export import export
from quatcaps.explorer.shown import Shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update")
SIZES = {"desk": (1280, 800), "phone": (390, 844)}

if CHROMIUM is None:
    pytest.skip("no chromium: the explorer's page is not tested in a browser", allow_module_level=True)
pytest.importorskip("playwright.sync_api", reason="no playwright: the explorer's page is not tested in a browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *QUIET])
        yield started
        started.close()


@pytest.fixture
def complaints() -> list[str]:
    """What a page complained of."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str]) -> Iterator[Page]:
    """A page that may not complain."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = watched(context.new_page(), complaints)
    yield page
    context.close()
    assert complaints == []


def watched(page: Page, complaints: list[str]) -> Page:
    """The page, which notes its complaints."""
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.set_default_timeout(60_000)
    return page


def opened(page: Page, place: str) -> Page:
    """The page, once it shows what the networks say."""
    page.goto(place)
    page.locator("#classes .bars li").first.wait_for()
    return page


def shown(page: Page) -> tuple[list[str], list[str]]:
    """The activations and the poses on the page."""
    return page.locator("#classes .bars").all_inner_texts(), page.locator("#pose [data-part=numbers]").all_inner_texts()


def changes(page: Page, before: tuple[list[str], list[str]]) -> tuple[list[str], list[str]]:
    """What is shown once it is something else."""
    for _ in range(300):
        if (now := shown(page))[0] != before[0]:
            return now
        page.wait_for_timeout(100)
    raise AssertionError("nothing changed")


def test_dragging_the_toy_changes_activations_and_pose(page: Page, address: str) -> None:
    opened(page, address)
    before, azimuth = shown(page), page.locator("#azimuth-value").inner_text()
    middle = page.locator("#toy").bounding_box()
    assert middle is not None
    x, y = middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y + 10, steps=5)
    page.mouse.up()
    after = changes(page, before)
    assert after[1] != before[1], "the pose"
    assert page.locator("#azimuth-value").inner_text() != azimuth


def test_keys_turn_the_toy(page: Page, address: str) -> None:
    opened(page, address)
    before, elevation = shown(page), page.locator("#elevation-value").inner_text()
    page.locator("#toy").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    changes(page, before)
    assert page.locator("#elevation-value").inner_text() != elevation
    assert "°" in page.locator("#elevation-value").inner_text()


def test_another_toy(page: Page, address: str) -> None:
    opened(page, address)
    before = shown(page)
    page.locator("#category").select_option(label="truck")
    changes(page, before)
    before = shown(page)
    page.locator("#surprise").click()
    changes(page, before)


def test_every_network_has_its_column(page: Page, address: str) -> None:
    opened(page, address)
    names = page.locator("#classes h3").all_inner_texts()
    assert [name.split()[0] for name in names] == ["<script>qcn-rotor", "<script>resnet-20", "<script>cnn-small"]
    assert page.locator("#pose .column").count() == 3
    assert page.locator("script").count() == 1, "a name is text, not a script"


def test_an_image_of_ones_own_and_what_is_none(page: Page, complaints: list[str], address: str, tmp_path: Path) -> None:
    opened(page, address)
    Image.radial_gradient("L").resize((60, 60)).save(tmp_path / "mine.png")
    (tmp_path / "none.png").write_bytes(b"nonsense")
    before = shown(page)
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    changes(page, before)
    page.locator("#back").wait_for(state="visible")
    page.locator("#file").set_input_files(tmp_path / "none.png")
    page.locator("#trouble").wait_for(state="visible")
    assert "not an image that can be read" in page.locator("#trouble").inner_text()
    page.locator("#back").click()
    page.locator("#trouble").wait_for(state="hidden")
    assert len(complaints) == 1, "the browser tells of the status"
    assert "400" in complaints.pop()


def test_the_turntable_draws_curves(page: Page, address: str) -> None:
    opened(page, address)
    page.locator("#play").click()
    curves = page.locator("#turn [data-part=curves]").first
    curves.wait_for(state="visible", timeout=120_000)
    assert curves.locator("svg path, svg polyline").count() >= 5, "one for each class"


def test_iterations_and_parts(page: Page, address: str) -> None:
    opened(page, address)
    votes = page.locator("#votes .column").first
    assert votes.locator("[data-part=tree] li").count() >= 1
    assert votes.locator("[data-part=iterations] input, [data-part=iterations] button").count() == 2


def test_parts_of_any_capsule(page: Page, address: str) -> None:
    opened(page, address)
    votes = page.locator("#votes .column").first
    name, tree = votes.locator("[data-part=root-name]"), votes.locator("[data-part=tree]")
    winner, before = name.inner_text(), tree.inner_text()
    select = votes.locator("[data-part=root]")
    select.select_option(value="1:3")
    page.wait_for_function("(was) => document.querySelector('[data-part=root-name]').textContent !== was", arg=winner)
    assert name.inner_text().startswith("capsules 1: 3 at ")
    assert tree.inner_text() != before
    votes.locator(".layers li").nth(1).locator("button").nth(1).click()
    wanted = votes.locator(".layers li").nth(1).locator("button").nth(1).inner_text().split(":")[0]
    page.wait_for_function(
        "(now) => document.querySelector('[data-part=root-name]').textContent.startsWith(now)",
        arg=f"capsules 1: {wanted} at ",
    )
    select.select_option(value="")
    page.wait_for_function("(was) => document.querySelector('[data-part=root-name]').textContent === was", arg=winner)


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_page_and_everybody_can_use_it(browser: Browser, address: str, size: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = opened(context.new_page(), address)
    for explanation in page.locator("summary").all():
        explanation.click()
    page.locator("#play").click()
    page.locator("#turn [data-part=curves]").first.wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, background.removeprefix("rgb(").rstrip(")").split(",")[:3])) < 3 * 128
        assert dark == (scheme == "dark")
        assert faults(page) == []
    context.close()


def faults(page: Page) -> list[str]:
    """What axe finds serious or critical, and where."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response
    assert len(found["passes"]) > 10, "it looked"
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_the_exported_file_needs_no_server(
    browser: Browser, complaints: list[str], networks: list[Shown], tmp_path: Path
) -> None:
    named = Shown(replace(networks[0].trained, name="</script><script>alert(1)</script>"))
    path = tmp_path / "explorer.html"
    written = export([named], path, toys=((2, 0), (4, 1)), azimuths=(0, 90, 180, 270), elevations=(30, 60))
    assert written == path.stat().st_size < 1_000_000
    context = browser.new_context(offline=True)
    page = opened(watched(context.new_page(), complaints), path.as_uri())
    before = shown(page)
    page.locator("#toy").focus()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    changes(page, before)
    assert page.locator("#file").is_hidden()
    assert page.locator("[data-part=root]").is_hidden()
    assert "script>" in page.locator("#classes h3").inner_text()
    assert complaints == []
    context.close()


def test_a_server_that_is_gone_is_said(browser: Browser, networks: list[Shown], serve_networks: Callable) -> None:
    context = browser.new_context()
    with serve_networks(networks[2:]) as place:
        page = opened(context.new_page(), place)
    page.locator("#toy").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#trouble").wait_for(state="visible")
    assert "does not answer" in page.locator("#trouble").inner_text()
    context.close()

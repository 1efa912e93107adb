"""The explorer's server, asked over a real connection: right answers, and clear ones to what is wrong."""

from __future__ import annotations

import base64
import io
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from quatcaps import models, quaternion
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.errors import QuatcapsError
from quatcaps.explorer import toys
from quatcaps.explorer.export import export
from quatcaps.explorer.serve import bound, serve
from quatcaps.explorer.server import LARGEST_UPLOAD, looked
from quatcaps.explorer.shown import Shown, winner_shares
from quatcaps.explorer.toys import View
from quatcaps.weights.zoo import trained


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """The status and what the answer says."""
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            text, status, kind = answer.read(), answer.status, answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        text, status, kind = error.read(), error.code, error.headers["Content-Type"]
    return status, json.loads(text) if kind == "application/json" else text.decode()


def encoded(picture: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind)
    return buffer.getvalue()


def test_what_there_is(address: str) -> None:
    status, found = ask(f"{address}/api/about")
    assert status == 200
    assert found["toys"]["categories"] == list(CLASSES)
    capsules, resnet, cnn = found["networks"]
    assert capsules["name"] == "<script>qcn-rotor"
    assert (capsules["capsules"], resnet["capsules"], cnn["capsules"]) == (True, False, False)
    assert (capsules["oriented"], resnet["oriented"]) == (True, False)
    assert capsules["window"] == {"top": 8, "left": 8, "height": 32, "width": 32, "frame": 48}


def test_a_look_is_what_the_network_says(address: str, networks: list[Shown]) -> None:
    view = View(category=2, kind=5, azimuth=77.5, elevation=51.0, lighting=3)
    status, found = ask(f"{address}/api/look?category=2&kind=5&azimuth=77.5&elevation=51&lighting=3")
    assert status == 200
    drawn = toys.drawn([view], [48, toys.PIXELS])
    image = drawn[48]
    shown = Image.open(io.BytesIO(base64.b64decode(found["image"]["left"].split(",")[1])))
    assert np.array_equal(np.asarray(shown), drawn[toys.PIXELS][0, 0].numpy())
    for each, said in zip(networks, found["networks"], strict=True):
        with torch.no_grad():
            output = each.trained.network(each.inputs(image))
        wanted = output.activations[0]
        assert said["activations"] == pytest.approx(wanted.tolist(), abs=2e-4)
        assert said["winner"] == int(wanted.argmax())
    pose = found["networks"][0]["pose"]
    assert pose["kind"] == "orientation"
    assert np.linalg.norm(pose["numbers"]) == pytest.approx(1, abs=1e-3)
    apart = quaternion.geodesic_distance(torch.tensor(pose["numbers"]), torch.tensor(found["view"]["orientation"]))
    assert pose["degrees"] == pytest.approx(float(apart.rad2deg()), abs=0.1)
    assert found["networks"][1]["pose"]["kind"] == "orientation"
    assert "degrees" not in found["networks"][1]["pose"], "nobody trained it to be one"
    assert found["networks"][2]["pose"] is None


def test_layers_and_parts_of_a_look(address: str, networks: list[Shown]) -> None:
    _, found = ask(f"{address}/api/look?azimuth=10")
    said, network = found["networks"][0], networks[0].trained.network
    explanation = network.explain(networks[0].inputs(toys.drawn([View(azimuth=10.0)], [48])[48]))
    assert [layer["name"] for layer in said["layers"]] == [layer.name for layer in explanation.layers]
    for layer, wanted in zip(said["layers"], explanation.layers, strict=True):
        assert np.allclose(layer["activations"], wanted.capsules.activations[0].detach(), atol=1e-4)
    (first,) = explanation.parts(0, 2, said["winner"], most=1)
    told = said["tree"][0]
    assert (told["capsule"], told["row"], told["column"]) == (first.capsule, first.row, first.column)
    assert {part["level"] for part in told["parts"]} == {0}
    assert len(said["iterations"]) == 2
    assert said["iterations"][-1]["activations"] == pytest.approx(said["activations"], abs=2e-4)
    assert "layers" not in found["networks"][1]


def test_parts_of_any_capsule(address: str, networks: list[Shown]) -> None:
    _, found = ask(f"{address}/api/look?azimuth=10&below=0:1:2")
    said = found["networks"][0]
    explanation = networks[0].trained.network.explain(networks[0].inputs(toys.drawn([View(azimuth=10.0)], [48])[48]))
    activations = explanation.layers[1].capsules.activations[0, 2]
    root = said["root"]
    assert (root["level"], root["capsule"]) == (1, 2)
    assert root["activation"] == pytest.approx(float(activations.max()), abs=1e-4)
    (first,) = explanation.parts(0, 1, 2, root["row"], root["column"], most=1)
    assert (said["tree"][0]["capsule"], said["tree"][0]["row"]) == (first.capsule, first.row)
    _, winners = ask(f"{address}/api/look?azimuth=10")
    assert winners["networks"][0]["root"]["level"] == 2
    assert {**said, "root": 0, "tree": 0} == {**winners["networks"][0], "root": 0, "tree": 0}


@pytest.mark.parametrize(
    ("below", "message"),
    [
        ("0:0:1", "parts below layer 0: give one from 1 to 2"),
        ("0:9:1", "parts below layer 9"),
        ("0:1:4000", "parts below capsule 4000 of layer 1: it has 0 to"),
        ("0:-1:1", "give NETWORK:LAYER:CAPSULE"),
        ("nonsense", "below is 'nonsense'"),
    ],
)
def test_parts_of_capsules_that_there_are_none(address: str, below: str, message: str) -> None:
    status, found = ask(f"{address}/api/look?below={below}")
    assert status == 400
    assert message in found["error"]


def test_a_network_is_given_pictures_of_its_own_size(networks: list[Shown]) -> None:
    large = networks[0]
    small = Shown(replace(large.trained, size=(36, 36)))
    view = View(category=1, azimuth=20.0)
    found = looked([large, small], view, {})
    wanted = small.look(toys.drawn([view], [36])[36][0], view.rotor)
    assert found["networks"][1] == wanted
    assert found["networks"][0]["activations"] != wanted["activations"]
    window = small.to_json()["window"]
    assert window == pytest.approx({"top": 8 / 3, "left": 8 / 3, "height": 128 / 3, "width": 128 / 3, "frame": 48})
    one, other = (each["layers"][0] for each in found["networks"])
    assert other["step"] == pytest.approx([4 / 3 * step for step in one["step"]])
    assert other["first"] == pytest.approx([4 / 3 * first for first in one["first"]])


def test_pictures_that_are_not_square_are_refused(networks: list[Shown]) -> None:
    with pytest.raises(QuatcapsError, match=r"takes images of 48×36: the explorer's pictures are square"):
        Shown(replace(networks[0].trained, size=(48, 36)))


def test_shares_are_those_of_all_parts_of_parts(networks: list[Shown]) -> None:
    few = {"primary": 4, "capsules": ((4, 3, 2), (4, 3, 1))}
    network = models.build("qcn-small", channels=2, classes=5, seed=0, **few).eval()
    explanation = network.explain(networks[0].inputs(toys.drawn([View()], [48])[48]))
    primary, first, second, _ = wanted = [
        torch.zeros(layer.capsules.activations[0].shape, dtype=torch.float64) for layer in explanation.layers
    ]
    whole = [(1.0, part) for part in explanation.parts(0, 3, 2, most=10**6)]
    for shares in (second, first, primary):
        for share, part in whole:
            shares[part.capsule, part.row, part.column] += share * part.share
        whole = [
            (share * part.share, child)
            for share, part in whole
            for child in explanation.parts(0, part.level, part.capsule, part.row, part.column, most=10**6)
        ]
    for shares, expected in zip(winner_shares(explanation, 2)[:-1], wanted[:-1], strict=True):
        assert torch.allclose(shares, expected, atol=1e-6)
        assert float(shares.sum()) == pytest.approx(1)


def test_a_turn_is_made_of_looks(address: str) -> None:
    _, turn = ask(f"{address}/api/turn?category=4&kind=2&elevation=35&steps=4")
    assert turn["azimuths"] == [0, 90, 180, 270]
    for number, azimuth in enumerate(turn["azimuths"]):
        _, look = ask(f"{address}/api/look?category=4&kind=2&elevation=35&azimuth={azimuth}")
        for found, said in zip(turn["networks"], look["networks"], strict=True):
            assert found["activations"][number] == pytest.approx(said["activations"], abs=3e-4)
        assert turn["orientations"][number] == look["view"]["orientation"]
    assert [len(each["poses"] or []) for each in turn["networks"]] == [4, 4, 0]
    assert len(turn["networks"][0]["degrees"]) == 4
    assert turn["networks"][1]["degrees"] is None


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("look?azimuth=abc", "azimuth is 'abc': give a number"),
        ("look?azimuth=nan", "azimuth is nan: give degrees, any finite number"),
        ("look?azimuth=1e400", "azimuth is inf"),
        ("look?elevation=91", "elevation is 91.0: give degrees from 0 to 90"),
        ("look?kind=20", "kind is 20: give a number from 0 to 19"),
        ("look?kind=1.5", "kind is '1.5': give a whole number"),
        ("look?category=-1", "category is -1"),
        (f"look?lighting={'9' * 5000}", "lighting is"),
        ("turn?steps=1000", "steps is 1000: give a number from 4 to 72"),
    ],
)
def test_nonsense_has_an_answer(address: str, question: str, words: str) -> None:
    status, found = ask(f"{address}/api/{question}")
    assert status == 400
    assert words in found["error"]
    assert len(found["error"]) < 300
    assert ask(f"{address}/api/about")[0] == 200, "it goes on"


def test_paths_that_are_not_there(address: str) -> None:
    for path in ("/etc/passwd", "/../server.py", "/%2e%2e/server.py", "/page/index.html", "/api"):
        assert ask(address + path)[0] == 404
    assert ask(f"{address}/api/image")[0] == 405
    assert ask(f"{address}/api/look", b"x")[0] == 405


def test_other_names_of_this_host_are_not_answered(address: str) -> None:
    """A page of somebody else that had its name lead here would read what this one says."""
    assert ask(f"{address}/api/about", Host="evil.example")[0] == 400
    assert ask(f"{address}/api/about", Host="localhost:1234")[0] == 200


def test_the_page_may_load_nothing_from_elsewhere(address: str) -> None:
    with urllib.request.urlopen(address) as answer:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_image_of_ones_own(address: str, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8)
    status, found = ask(f"{address}/api/image", encoded(Image.fromarray(pixels), kind))
    assert status == 200
    assert found["view"] is None
    assert found["image"]["left"] == found["image"]["right"]
    assert "degrees" not in found["networks"][0]["pose"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no image came"),
        (b"GIF89a nonsense", "the image is not an image that can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "the image is not an image that can be read"),
        (bytes(LARGEST_UPLOAD + 1), "more than 10 MB"),
        (encoded(Image.new("1", (10_000, 10_000))), "larger than"),
    ],
)
def test_what_is_no_image(address: str, body: bytes, words: str) -> None:
    status, found = ask(f"{address}/api/image", body)
    assert status == 400
    assert words in found["error"]
    assert ask(f"{address}/api/about")[0] == 200


@pytest.mark.usefixtures("unchecked")
def test_fifty_at_once(networks: list[Shown], serve_networks: Callable) -> None:
    with serve_networks(networks[2:]) as place, ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda k: ask(f"{place}/api/look?azimuth={7 * k}"), range(50)))
    assert {status for status, _ in answers} == {200}
    assert [found["view"]["azimuth"] for _, found in answers] == [7 * k for k in range(50)]


def test_more_than_can_wait_are_told_to_come_again(
    networks: list[Shown], serve_networks: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quatcaps.explorer.server.WAITING", 0)
    with serve_networks(networks[:1]) as place:
        status, found = ask(f"{place}/api/look")
    assert status == 503
    assert "try again" in found["error"]


def test_other_channels_are_refused() -> None:
    with pytest.raises(QuatcapsError, match=r"qcn-mnist takes images of 1 channels: the explorer shows stereo pairs"):
        Shown(trained("qcn-mnist"))


def test_a_port_in_use(networks: list[Shown]) -> None:
    with bound("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(QuatcapsError, match=rf"port {port} .* --port 0"):
            serve([networks[2].trained], "127.0.0.1", port, False, lambda line: None)
    with pytest.raises(QuatcapsError, match=r"cannot listen on nowhere\.invalid"):
        bound("nowhere.invalid", 0)


def test_without_the_packages(networks: list[Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(QuatcapsError, match=r"pip install 'quatcaps\[explore\]'"):
        serve([networks[2].trained], "127.0.0.1", 0, False, lambda line: None)


def test_views_are_of_one_toy() -> None:
    view = View()
    with pytest.raises(QuatcapsError, match="one toy at a time"):
        toys.drawn([view, replace(view, kind=1)], [48])


def test_ctrl_c_stops_it(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "quatcaps", "explore"]  # what is installed with the package
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("qcn-rotor-toys at http://127.0.0.1:")
        port = int(line.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)):
            process.send_signal(signal.SIGINT)  # with a tab that is still open
            out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "Traceback" not in out + err
    assert process.returncode in (0, 130)


def heed_ctrl_c() -> None:
    """As in a terminal: what a shell starts in the background ignores Ctrl-C, and passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_export_is_bounded_and_whole_or_not_at_all(
    networks: list[Shown], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    few = {"toys": ((0, 0),), "azimuths": (0, 180), "elevations": (40,)}
    size = export(networks, tmp_path / "page.html", lambda done, total: seen.append((done, total)), **few)
    assert seen == [(1, 2), (2, 2)]
    assert size == (tmp_path / "page.html").stat().st_size
    assert export(networks, tmp_path / "again.html", **few) == size
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "again.html").read_bytes()
    monkeypatch.setattr("quatcaps.explorer.export.LARGEST", 1000)
    with pytest.raises(QuatcapsError, match=r"would have .* MB, more than .*: export fewer networks"):
        export(networks, tmp_path / "large.html", **few)
    assert not (tmp_path / "large.html").exists()

"""What many tests share: a folder of rendered toys, random images, and the command line in this process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jaxtyping
import pytest
import torch
from jaxtyping._import_hook import _JaxtypingFinder

if find_spec("beartype"):
    import quick_checks  # noqa: F401 - before what it checks

from quatcaps import cli, data
from quatcaps.data.imageset import ImageSet
from quatcaps.report import canvas

if not torch.cuda.is_available():
    # PyTorch's own keeps a note of every call, with the frames that made it, for each kind of device that may come.
    torch.manual_seed = torch.default_generator.manual_seed
    os.environ["TRITON_INTERPRET"] = "1"  # before the first kernel is imported, which happens when one is needed
    if find_spec("triton"):
        import quick_interpreter  # noqa: F401

for finder in sys.meta_path:
    if isinstance(finder, _JaxtypingFinder):
        # Triton compiles the source of its kernels: what is wrapped around them is not in it.
        finder.should_instrument = lambda name, ask=finder.should_instrument: ".kernels" not in name and ask(name)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws without a seed of its own does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def toys_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with `toys-mini` rendered in it; of several test processes, by the first that needs it."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = tmp_path_factory.mktemp("data") if alone else tmp_path_factory.getbasetemp().parent / "data"
    jaxtyping.config.update("jaxtyping_disable", True)  # a third of the time; the toys have tests of their own
    for split in ("train", "test"):
        data.load("toys-mini", split, folder=folder)
    jaxtyping.config.update("jaxtyping_disable", False)
    return folder


@pytest.fixture
def few_toys(toys_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of `toys_folder`, whose toys stand in for `toys-many`, which would take a minute to render: what
    published weights of that dataset are shown."""
    monkeypatch.setitem(data.DATASETS, "toys-many", data.DATASETS["toys-mini"])
    return toys_folder


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the checks of shapes and types in this process, for tests of whole runs: what they call has tests of its
    own that are checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def coarse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few dots, but in tests/report, which looks at them."""
    if request.path.parent.name != "report":
        monkeypatch.setattr(canvas, "DOTS_PER_INCH", 40)


@pytest.fixture(autouse=True)
def not_flushed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk, but in the test of that: no power fails here."""
    if request.path.name != "test_files.py":
        monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="session")
def noise_images() -> ImageSet:
    """60 random stereo pairs of 3 classes, with viewpoints."""
    generator = torch.Generator().manual_seed(0)
    count = 60
    return ImageSet(
        name="noise",
        stored=torch.randint(256, (count, 2, 32, 32), generator=generator, dtype=torch.uint8),
        labels=torch.arange(count) % 3,
        classes=("one", "two", "three"),
        info={
            "instance": torch.arange(count) % 10,
            "elevation": torch.arange(count) % 9,
            "azimuth": 2 * (torch.arange(count) % 18),
            "lighting": torch.arange(count) % 6,
        },
    )


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered, and which plug-ins are imported, is as before after the test."""
    from quatcaps import plugins
    from quatcaps.models import MODELS
    from quatcaps.poses import POSES
    from quatcaps.routing import ROUTINGS

    for registry in (MODELS, POSES, ROUTINGS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(plugins, "_loaded", set(plugins._loaded))
    monkeypatch.setenv(plugins.VARIABLE, "")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `quatcaps …` in this process."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["quatcaps", *map(str, arguments)])
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return Outcome(int(code or 0), captured.out, captured.err)  # type: ignore[call-overload]

    return run


LONGEST = (
    "routing/test_backends.py", "cli/test_cli.py", "routing/test_pytorch_checks.py", "models/test_overfit.py",
    "training/test_resume.py", "paper/test_reproduce_command.py", "training/test_processes.py",
    "routing/test_fused.py", "routing/test_em.py", "routing/test_vb.py", "routing/test_gradients.py",
    "data/test_fuzz.py", "cli/test_terminal.py", "bench/test_bench_measure.py", "paper/test_work.py",
    "test_exporting.py", "paper/test_rendering.py", "explorer/test_server.py", "explorer/test_browser.py",
    "test_docs.py", "test_examples.py", "test_package.py",
)  # fmt: skip
"""Files whose tests take longest: with them first, no process is left with a long one at the end. The rest is quick."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    place = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    """What is there by now stays: the collector of garbage need not look at it again and again, nor as often as it
    does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)

"""A running explorer with three networks whose weights are random."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from quatcaps import models
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.explorer.serve import bound
from quatcaps.explorer.server import application
from quatcaps.explorer.shown import Shown
from quatcaps.training.config import TrainingConfig
from quatcaps.training.trained import Trained

ROTOR = {"primary": 4, "pose_blocks": ((8, 2), (8, 2)), "activation_blocks": ((8, 4),), "capsules": ((4, 3, 2),)}
RESNET = {"widths": (8, 8), "blocks": 1, "poses": True}


def network_of(model: str, settings: dict[str, Any], **config: Any) -> Trained:
    """A network whose weights are random, as if it were trained on toys."""
    network = models.build(model, channels=2, classes=5, seed=0, **settings)
    chosen = TrainingConfig(dataset="toys-many", model=model, model_settings=settings, **config)
    return Trained(f"<script>{model}", network, chosen, 2, CLASSES, (48, 48))


@pytest.fixture(scope="session")
def networks() -> list[Shown]:
    return [
        Shown(network_of("qcn-rotor", ROTOR, pose_weight=1.0)),
        Shown(network_of("resnet-20", RESNET)),
        Shown(network_of("cnn-small", {})),
    ]


@contextmanager
def served(networks: Sequence[Shown]) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    listening = bound("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application(networks), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def serve_networks() -> Callable[..., Any]:
    return served


@pytest.fixture(scope="module")
def address(networks: list[Shown]) -> Iterator[str]:
    with served(networks) as place:
        yield place

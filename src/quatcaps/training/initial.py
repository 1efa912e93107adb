"""A run that begins with the weights of another network: they become its checkpoint of step 0."""

from __future__ import annotations

import hashlib

import torch

from quatcaps.errors import QuatcapsError
from quatcaps.models import Network
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position
from quatcaps.training.run import Run
from quatcaps.training.trained import Trained

HEADS = ("classify.", "pose.")
"""What belongs to the classes: it begins anew where they are others."""


def described(initial: Trained) -> str:
    """For a run's description: whose weights, and which."""
    digest = hashlib.sha256()
    for name, value in sorted(initial.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return f"{initial.name}, sha256 of the weights {digest.hexdigest()}"


def check_initial(initial: Trained, network: Network, classes: tuple[str, ...]) -> list[str]:
    """The names of parameters and buffers that begin anew; an error where anything but the classes' does not fit."""
    given, wanted = initial.network.state_dict(), network.state_dict()
    same_classes = initial.classes == classes
    fresh = []
    for name in sorted(wanted.keys() | given.keys()):
        if name.startswith(HEADS) and not same_classes:
            fresh += [name] if name in wanted else []
            continue
        if name not in given or name not in wanted:
            problem = "is missing there" if name in wanted else "is not in this network"
        elif given[name].shape != wanted[name].shape:
            problem = f"has shape {tuple(given[name].shape)} there, {tuple(wanted[name].shape)} here"
        else:
            continue
        raise QuatcapsError(
            f"the weights of {initial.name} ({initial.config.model}) do not fit: {name} {problem}; train the same "
            "model with the same settings, on images of as many channels"
        )
    return fresh


def take_weights(network: Network, initial: Trained, classes: tuple[str, ...]) -> None:
    """Into a network of these classes; what belongs to the classes stays as it is where they are others."""
    fresh = check_initial(initial, network, classes)
    given = initial.network.state_dict()
    network.load_state_dict(
        {name: value if name in fresh else given[name] for name, value in network.state_dict().items()}
    )


def begin_with(run: Run, initial: Trained) -> None:
    """Leaves the weights as the run's first checkpoint."""
    network = run.network()
    take_weights(network, initial, run.classes)
    optimiser = torch.optim.Adam(network.parameters())
    average = network if run.config.averages else None
    checkpoint.save(run.checkpoints, network, optimiser, Position(), average)

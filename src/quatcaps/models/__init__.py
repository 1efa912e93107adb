"""Networks by name. A new one is a file with its settings and its module, and one entry in `MODELS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from quatcaps.errors import unknown_name
from quatcaps.models.cnn import SmallCNN, SmallCNNSettings
from quatcaps.models.qcn import QCN, SMALL, QCNSettings
from quatcaps.settings import change


@runtime_checkable
class Output(Protocol):
    """What every network returns."""

    @property
    def activations(self) -> Tensor:
        """(N, classes) in [0, 1]: the largest names the class."""
        ...

    @property
    def scores(self) -> Tensor:
        """(N, classes): what cross-entropy reads."""
        ...


@dataclass(frozen=True)
class Model:
    """How a network is built: its module and the settings it starts from."""

    summary: str
    module: Callable[[int, int, Any], nn.Module]
    settings: Any


MODELS: dict[str, Model] = {
    "qcn": Model("the paper's Quaternion Capsule Network", QCN, QCNSettings()),
    "qcn-small": Model("the same with fewer capsules on a coarser grid, for CPUs", QCN, SMALL),
    "cnn-small": Model("a plain CNN of the small QCN's size", SmallCNN, SmallCNNSettings()),
}


def build(name: str, *, channels: int, classes: int, seed: int | None = None, **settings: Any) -> nn.Module:
    """The network of that name, its defaults changed by `settings`.

    With `seed`, its weights depend on that alone and the global generator is left as it was; without, they come
    from the global generator as in any PyTorch module.

    >>> network = build("qcn", channels=2, classes=5, branched=False)
    >>> sum(parameter.numel() for parameter in network.parameters())
    298478
    """
    chosen = settings_of(name, settings)
    if seed is None:
        return MODELS[name].module(channels, classes, chosen)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: weights are drawn there
        return MODELS[name].module(channels, classes, chosen)


def settings_of(name: str, changes: Mapping[str, Any]) -> Any:
    """The settings of a model with `changes`, checked by name and type."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return change(MODELS[name].settings, changes, f"setting of {name}")


def parameter_count(network: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in network.parameters())


__all__ = ["MODELS", "Model", "Output", "build", "parameter_count", "settings_of"]

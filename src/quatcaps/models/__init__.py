"""Networks by name. A new one is a file with its settings and its module, and one entry in `MODELS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from quatcaps.errors import unknown_name
from quatcaps.models import variants
from quatcaps.models.capsule_network import CapsuleNetwork, CapsuleSettings
from quatcaps.models.cnn import CNN, CNNSettings
from quatcaps.models.resnet import ResNet, ResNetSettings
from quatcaps.models.small_cnn import SmallCNN, SmallCNNSettings
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
    """How a network is built: its module and the settings it starts from, with changes for some datasets."""

    summary: str
    module: Callable[[int, int, Any], nn.Module]
    settings: Any
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _capsules(
    summary: str, settings: CapsuleSettings, by_dataset: Mapping[str, Mapping[str, Any]] | None = None
) -> Model:
    return Model(summary, CapsuleNetwork, settings, by_dataset or {})


MODELS: dict[str, Model] = {
    "qcn": _capsules("the paper's Quaternion Capsule Network", variants.QCN),
    "qcn-small": _capsules("QCN with fewer capsules on a coarser grid, for CPUs", variants.QCN_SMALL),
    "qcn-joint": _capsules("QCN, not branched", variants.QCN_JOINT),
    "qcn-fixed-axis": _capsules("QCN with one fixed axis: only angles are learned", variants.QCN_FIXED_AXIS),
    "qcn-free": _capsules("QCN with free 3×3 maps instead of rotations", variants.QCN_FREE),
    "qcn-no-routing": _capsules("QCN with one uniform iteration", variants.QCN_NO_ROUTING),
    "qcn-logistic": _capsules("QCN with logistic activations, as in Hinton et al. 2018", variants.QCN_LOGISTIC),
    "em": _capsules("EM*: matrix capsules with EM routing", variants.EM, variants.STEM_ON_CIFAR10),
    "em-branched": _capsules("EM‡: matrix capsules behind QCN's branches", variants.EM_BRANCHED),
    "em-joint": _capsules("EM‡, not branched", variants.EM_JOINT),
    "em-ibm": _capsules("EM-IBM: EM* with the three fixes of Gritzman 2019", variants.EM_IBM),
    "vb": _capsules("matrix capsules routed by variational Bayes", variants.VB),
    "cnn": Model(
        "the CNN of Hinton et al. 2018",
        CNN,
        CNNSettings(),
        {"mnist": {"size": (28, 28)}, "fashionmnist": {"size": (28, 28)}},
    ),
    "resnet-20": Model("a residual network with average pooling", ResNet, ResNetSettings()),
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


def settings_for(name: str, dataset: str) -> Mapping[str, Any]:
    """What a model changes in its settings for a dataset."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name].by_dataset.get(dataset, {})


def parameter_count(network: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in network.parameters())


__all__ = ["MODELS", "Model", "Output", "build", "parameter_count", "settings_for", "settings_of"]

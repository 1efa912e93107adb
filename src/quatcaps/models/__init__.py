"""Networks by name. A new one is a file with its settings and its module, and one entry in `MODELS`, or in another
package `register_model`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from quatcaps.errors import QuatcapsError
from quatcaps.models import changes, variants
from quatcaps.models.capsule_network import CapsuleNetwork, CapsuleSettings
from quatcaps.models.cnn import CNN, CNNSettings
from quatcaps.models.network import Network, Output
from quatcaps.models.resnet import ResNet, ResNetSettings
from quatcaps.models.small_cnn import SmallCNN, SmallCNNSettings
from quatcaps.registry import Registry


@dataclass(frozen=True)
class Model:
    """How a network is built: `module(channels, classes, settings)`, the settings it starts from, a frozen dataclass,
    and changes to them for some datasets."""

    summary: str
    module: Callable[[int, int, Any], Network]
    settings: Any
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _capsules(
    summary: str, settings: CapsuleSettings, by_dataset: Mapping[str, Mapping[str, Any]] | None = None
) -> Model:
    return Model(summary, CapsuleNetwork, settings, by_dataset or {})


OWN: Mapping[str, Model] = {
    "qcn": _capsules("the paper's Quaternion Capsule Network", variants.QCN),
    "qcn-small": _capsules("QCN with fewer capsules on a coarser grid, for CPUs", variants.QCN_SMALL),
    "qcn-coarse": _capsules("QCN on a quarter of the grid, with windows of 3×3", variants.QCN_COARSE),
    "qcn-deep": _capsules("the same behind one more residual block: the published weights", variants.QCN_DEEP),
    "qcn-rotor": _capsules("QCN of equivariant capsules: rotors from the right", variants.QCN_ROTOR),
    "qcn-rotor-deep": _capsules("the same in the shape of qcn-deep", variants.QCN_ROTOR_DEEP),
    "qcn-rotor-small": _capsules("the same in the shape of qcn-small, for CPUs", variants.QCN_ROTOR_SMALL),
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
    "em-published": _capsules(
        "EM* as the QCN authors' public code has it", variants.EM_PUBLISHED, variants.STEM_ON_CIFAR10
    ),
    "em-ibm-published": _capsules("EM-IBM with its public code's widths and maps", variants.EM_IBM_PUBLISHED),
    "vb-published": _capsules("VB as its public code computes it", variants.VB_PUBLISHED),
    "cnn": Model(
        "the CNN of Hinton et al. 2018",
        CNN,
        CNNSettings(),
        {"mnist": {"size": (28, 28)}, "fashionmnist": {"size": (28, 28)}},
    ),
    "resnet-20": Model("a residual network with average pooling", ResNet, ResNetSettings()),
    "cnn-small": Model("a plain CNN of the small QCN's size", SmallCNN, SmallCNNSettings()),
}
"""The models of this package: every installation knows them."""

MODELS: Registry[Model] = Registry("model", OWN)
"""The networks by name."""


def build(name: str, *, channels: int, classes: int, seed: int | None = None, **settings: Any) -> Network:
    """The network of that name, its defaults changed by `settings`.

    A pose is a name or a `PoseType`; a routing is a name, settings such as `EM(iterations=3)`, or a dictionary,
    {"name": "em", "iterations": 3}. With `seed`, the weights depend on that alone and the global generator is left as
    it was; without, they come from the global generator as in any PyTorch module.

    >>> network = build("qcn", channels=2, classes=5, branched=False)
    >>> sum(parameter.numel() for parameter in network.parameters())
    298478
    """
    model, chosen = MODELS.find(name), settings_of(name, settings)
    if seed is None:
        network = model.module(channels, classes, chosen)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the CPU's alone: weights are drawn there
            network = model.module(channels, classes, chosen)
    if not isinstance(network, Network):
        raise QuatcapsError(
            f"the model {name!r} builds a {type(network).__name__}: derive that from quatcaps.models.Network"
        )
    network.model, network.changes = name, dict(settings)
    return network


def register_model(name: str, model: Model) -> None:
    """Makes a network known by a name, for `build`, files and the command line.

    Other settings of the capsule networks make one too: `Model("QCN with 64 primary capsules", CapsuleNetwork,
    CapsuleSettings(primary=64))`.
    """
    if isinstance(model.settings, type) or not dataclasses.is_dataclass(model.settings):
        raise QuatcapsError(f"the settings of the model {name!r} are {model.settings!r}: give a frozen dataclass")
    MODELS.register(name, model)


def list_models() -> list[str]:
    """The names that `build` knows."""
    return list(MODELS)


def settings_of(name: str, given: Mapping[str, Any]) -> Any:
    """The settings of a model with changes, checked by name and type.

    >>> settings_of("em", {"routing.iterations": "3"}).routing.iterations
    3
    """
    return changes.changed(MODELS.find(name).settings, given, f"setting of {name}")


def stored_settings(name: str, dataset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to a model as a run's folder has them: JSON values of their types, with what the model changes for the
    dataset."""
    return changes.to_store(MODELS.find(name).settings, {**settings_for(name, dataset), **given}, f"setting of {name}")


def shape_of(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The same network by the name of its shape: that of a model of this package which has all these changes in its
    own settings; else as given.

    >>> shape_of("qcn", {"branched": False})
    ('qcn-joint', {})
    >>> shape_of("qcn", {"branched": False, "primary": 7})
    ('qcn', {'branched': False, 'primary': 7})
    """
    if given:
        module, wanted = MODELS.find(name).module, settings_of(name, given)
        for other, model in OWN.items():
            if model.module is module and model.settings == wanted and not model.by_dataset:
                return other, {}
    return name, dict(given)


def settings_for(name: str, dataset: str) -> Mapping[str, Any]:
    """What a model changes in its settings for a dataset."""
    return MODELS.find(name).by_dataset.get(dataset, {})


def parameter_count(network: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in network.parameters())


__all__ = [
    "MODELS",
    "CapsuleNetwork",
    "CapsuleSettings",
    "Model",
    "Network",
    "Output",
    "build",
    "list_models",
    "parameter_count",
    "register_model",
    "settings_for",
    "settings_of",
    "shape_of",
    "stored_settings",
]

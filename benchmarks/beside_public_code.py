"""Public code of capsule networks beside ours: the same weights and images, layer by layer, in float64.

    git clone https://github.com/fabio-deep/Variational-Capsule-Routing
    git clone https://github.com/Boazrciasn/Quaternion-Capsule-Networks
    git clone https://github.com/IBM/matrix-capsules-with-em-routing
    python benchmarks/beside_public_code.py vb Variational-Capsule-Routing
    python benchmarks/beside_public_code.py em Quaternion-Capsule-Networks
    python benchmarks/beside_public_code.py qcn Quaternion-Capsule-Networks
    python benchmarks/beside_public_code.py em-ibm matrix-capsules-with-em-routing    # needs TensorFlow
    python benchmarks/beside_public_code.py --tables

Runs the Python code in the folder that it is given: give one that you trust. Their network is made with their own
random weights, ours takes these, and both see the same random images in training mode. What is told are the largest
differences of poses and activations of every layer, and of the gradients of all parameters, relative to the largest
of them. `qcn` is compared as it is, and without the fourth number of its poses, which is rounding ("three numbers":
their routing is given the other three), each network of the QCN authors also with 0 in place of the ε in their
routing, and VB with larger maps too. Nothing of their code is part of this repository. Their own training does not
run: what their files import and do not need here (torchvision, tensorboardX, images) is left out.

Writes beside-public-code.json to --output; other networks that are recorded there stay.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

import beside_tensorflow
from public_clones import commit_of, importing_from, record, recorded
from quatcaps.bench.machine import usual_name
from quatcaps.capsules import Capsules
from quatcaps.console import say, standard_output
from quatcaps.errors import BackendWarning, QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.models import Network, build
from quatcaps.report.tables import Table
from quatcaps.training.run import versions

RESULTS = Path(__file__).parent / "results"
NAME = "beside-public-code.json"
CHANNELS, CLASSES, SIDE = 2, 5, 32
BACKENDS = ("reference", "native")
UNUSED = ("torchvision", "tensorboardX", "norb")
"""Modules that public code imports and that nothing here needs."""
SIDEWAYS = ("layers", "vb_routing", "capsnet", "modules", "ResidualBlocks", "Routing_Methods")
"""Modules of public code, which are forgotten again: their names are common."""

Reader = Callable[[Tensor], Tensor]
"""What is taken of a parameter: its value, or its gradient."""


@dataclass(frozen=True)
class Public:
    """A network of public code, and how ours is like it. ours: our network and its settings. tensors: of theirs, by our
    names and in our shapes. capsules: the outputs of its layers as ours, from primary capsules on."""

    title: str
    repository: str
    ours: tuple[str, Mapping[str, Any]]
    made: Callable[[Path], nn.Module]
    tensors: Callable[[nn.Module, Reader], dict[str, Tensor]]
    capsules: Callable[[nn.Module, Tensor], list[Capsules]]


# ---- Ribeiro et al.


def variational(folder: Path) -> nn.Module:
    """Their network in the widths that have as many parameters as they publish."""
    with modules_of(folder / "src"):
        capsnet = importlib.import_module("capsnet")
        arch = [64, 16, 32, 16, CLASSES]
        return capsnet.CapsuleNet(
            SimpleNamespace(pose_dim=4, arch=arch, n_classes=CLASSES, n_channels=CHANNELS, routing_iter=3)
        )


def five_times(folder: Path) -> nn.Module:
    """With maps five times as large as it begins with: then many children are far from all parents."""
    network: Any = variational(folder)
    with torch.no_grad():
        for votes in (network.ConvCaps_1, network.ConvCaps_2, network.ClassCaps):
            votes.W_ij.mul_(5)
    return network


def variational_tensors(theirs: Any, of: Reader) -> dict[str, Tensor]:
    primary = theirs.PrimaryCaps
    poses, activations = of(primary.weight).split([primary.B * primary.P**2, primary.B])
    found = {
        "primary.pose_trunk.0.weight": of(theirs.Conv_1.weight),
        "primary.pose_head.0.weight": poses,
        "primary.activation_head.0.weight": activations,
        **normalised("primary.pose_trunk.1", theirs.BN_1, of),
        **normalised("primary.pose_head.2", primary.BN_p, of),
        **normalised("primary.activation_head.1", primary.BN_a, of),
    }
    layers = (
        ("layers.0", theirs.ConvCaps_1, theirs.ConvRouting_1),
        ("layers.1", theirs.ConvCaps_2, theirs.ConvRouting_2),
        ("classify", theirs.ClassCaps, theirs.ClassRouting),
    )
    for layer in layers:
        found |= routed_tensors(*layer, of)
    return found


def routed_tensors(name: str, votes: Any, routing: Any, of: Reader) -> dict[str, Tensor]:
    """Of one layer."""
    maps = of(votes.W_ij).permute(8, 9, 1, 2, 4, 5, 0, 3, 6, 7).flatten(6).squeeze(-1)
    return {f"{name}.maps.weight": maps.flatten(0, 1).mT, **betas(name, routing.beta_u, routing.beta_a, of)}


def variational_capsules(theirs: Any, images: Tensor) -> list[Capsules]:
    return watched_capsules(
        theirs, images, (theirs.PrimaryCaps, theirs.ConvRouting_1, theirs.ConvRouting_2, theirs.ClassRouting)
    )


def watched_capsules(theirs: nn.Module, images: Tensor, layers: Sequence[nn.Module]) -> list[Capsules]:
    """Their network returns no poses, so that its layers are watched."""
    found: list[Capsules] = []
    watched = [
        layer.register_forward_hook(lambda _, __, out: found.append(Capsules(out[1].flatten(2, 3), out[0])))
        for layer in layers
    ]
    with patch.object(Tensor, "cuda", lambda tensor: tensor):
        theirs(images)
    for hook in watched:
        hook.remove()
    return found


def one_layer(folder: Path) -> nn.Module:
    """The example of their README, in the widths that it trains."""
    importlib.import_module("vb_example")  # which registers ours
    with modules_of(folder / "src"):
        capsnet = importlib.import_module("capsnet")
        shape = SimpleNamespace(pose_dim=4, arch=[64, 8, 16, 16, CLASSES], n_channels=CHANNELS, routing_iter=3)
        return capsnet.tinyCapsuleNet(shape)


def one_layer_tensors(theirs: Any, of: Reader) -> dict[str, Tensor]:
    primary = theirs.PrimaryCaps
    poses, activations = of(primary.weight).split([primary.B * primary.P**2, primary.B])
    return {
        "primary.stem.0.weight": of(theirs.Conv_1.weight),
        "primary.pose_head.0.weight": poses,
        "primary.activation_head.0.weight": activations,
        **normalised("primary.stem.1", theirs.BN_1, of),
        **normalised("primary.pose_head.2", primary.BN_p, of),
        **normalised("primary.activation_head.1", primary.BN_a, of),
        **routed_tensors("classify", theirs.ClassCaps, theirs.ClassRouting, of),
    }


def one_layer_capsules(theirs: Any, images: Tensor) -> list[Capsules]:
    return watched_capsules(theirs, images, (theirs.PrimaryCaps, theirs.ClassRouting))


# ---- Özcan et al.


def matrix(folder: Path) -> nn.Module:
    """Their matrix capsules behind a convolution, as comments in their file and the layers for MNIST have it; the file
    itself has residual blocks for smallNORB."""
    code = training_file(folder, "MatrixCapsulesEMRouting")
    layer = {"M_size": (4, 4), "routing_iterations": 3, "routing": code.EMRouting}
    network = nn.Module()
    network.conv1 = nn.Conv2d(CHANNELS, 32, kernel_size=5, stride=2)
    network.primarycaps = code.PrimaryMatCaps(in_channels=32, outCaps=32, M_size=(4, 4))
    network.layers = nn.ModuleList(
        code.ConvCapsMatrix(kernel_size=(3, 3), stride=stride, inCaps=32, outCaps=32, **layer)
        for stride in ((2, 2), (1, 1))
    )
    network.classify = code.FCCapsMatrixNorecept(inCaps=32, outCaps=CLASSES, **layer)
    return network


def matrix_tensors(theirs: Any, of: Reader) -> dict[str, Tensor]:
    found = {
        f"{name}.{kind}": of(getattr(module, kind))
        for name, module in (
            ("primary.pose_trunk.0", theirs.conv1),
            ("primary.pose_head.0", theirs.primarycaps.pose_layer),
            ("primary.activation_head.0", theirs.primarycaps.activation_layer),
        )
        for kind in ("weight", "bias")
    }
    for name, layer in (("layers.0", theirs.layers[0]), ("layers.1", theirs.layers[1]), ("classify", theirs.classify)):
        maps = of(layer.W).squeeze((0, 1, 2)).mT  # ours: (column of the vote, column of the pose)
        found[f"{name}.maps.weight"] = maps.flatten(0, 1) if maps.dim() > 4 else maps[None]
        found |= betas(name, layer.Beta_u, layer.Beta_a, of)
    return found


def matrix_capsules(theirs: Any, images: Tensor) -> list[Capsules]:
    found = [theirs.primarycaps(theirs.conv1(images).relu())]
    for layer in (*theirs.layers, theirs.classify):
        found.append(layer(*found[-1][:2]))
    return [on_grid(poses.flatten(-2), activations) for poses, activations, *_ in found]


def quaternions(folder: Path) -> nn.Module:
    """Their network as it is; but for its routing, which `Pure` gives no fourth number, if `pure` is set."""
    return training_file(folder, "QuaternionCapsules").MatQuatCapNet()


def pure_quaternions(folder: Path) -> nn.Module:
    network = quaternions(folder)
    for module in network.modules():
        if type(module).__name__ == "EMRouting":
            module.forward = without_fourth(module.forward)  # type: ignore[method-assign]
    return network


def without_epsilon(made: Callable[[Path], nn.Module]) -> Callable[[Path], nn.Module]:
    """The same network with 0 in place of the small number by which their routing avoids divisions by 0."""

    def made_without(folder: Path) -> nn.Module:
        network = made(folder)
        for module in network.modules():
            if type(module).__name__ == "EMRouting":
                type(module).forward.__globals__["eps"] = 0.0
        return network

    return made_without


def without_fourth(routing: Callable[..., Any]) -> Callable[..., Any]:
    """Their routing of three numbers; poses get their fourth one, 0, in the end."""

    def routed(votes: Tensor, *rest: Any) -> Any:
        *others, size = rest
        *before, _, last = size
        poses, activations, variances = routing(votes[..., 1:], *others, (*before, 3, last))
        zeros = torch.zeros_like(poses[..., :1, :])
        return torch.cat((zeros, poses), -2), activations, variances

    return routed


def quaternion_tensors(theirs: Any, of: Reader) -> dict[str, Tensor]:
    primary = theirs.primarycaps
    found = {
        **block("primary.pose_trunk.0", theirs.resblock1_pose, of),
        **block("primary.pose_trunk.1", theirs.resblock2_pose, of),
        **block("primary.activation_trunk.0", theirs.resblock1_activation, of),
        "primary.pose_head.0.weight": of(primary.pose_layer.weight),
        "primary.pose_head.0.bias": of(primary.pose_layer.bias),
        "primary.activation_head.0.weight": of(primary.activation_layer.weight),
        "primary.activation_head.0.bias": of(primary.activation_layer.bias),
        **normalised("primary.pose_head.1", primary.batchNormPose, of),
        **normalised("primary.activation_head.1", primary.batchNormA, of),
    }
    layers = (theirs.convquatcapmat1, theirs.convquatcapmat2, theirs.convquatcapmat3, theirs.classquatcapmat)
    for name, layer in zip(("layers.0", "layers.1", "layers.2", "classify"), layers, strict=True):
        angle, axis = of(layer.W_theta).squeeze((0, 1, 2)), of(layer.W_hat).squeeze((0, 1, 2))
        windows = -1 if angle.dim() > 5 else 1
        found[f"{name}.maps.angle"] = angle.reshape(windows, *angle.shape[-5:-3])
        found[f"{name}.maps.axis"] = axis.reshape(windows, *axis.shape[-5:-2])
        found |= betas(name, layer.Beta_u, layer.Beta_a, of)
    return found


def quaternion_capsules(theirs: Any, images: Tensor) -> list[Capsules]:
    pose = theirs.resblock2_pose(theirs.resblock1_pose(images)).relu()
    primary = theirs.primarycaps(pose, theirs.resblock1_activation(images).relu())
    capsules = torch.cat((torch.zeros_like(primary[0][..., :1]), primary[0]), -1), primary[1]
    layers = (theirs.convquatcapmat1, theirs.convquatcapmat2, theirs.convquatcapmat3)
    found = [on_grid(*primary)]
    for layer in layers:
        poses, activations, _ = layer(*capsules)
        capsules = poses.squeeze(-1), activations
        found.append(on_grid(capsules[0][..., 1:], activations))
    poses, activations, _ = theirs.classquatcapmat(capsules[0].unsqueeze(-1), capsules[1])
    return [*found, Capsules(poses.squeeze(-1)[..., 1:], activations)]


def block(name: str, theirs: Any, of: Reader) -> dict[str, Tensor]:
    """A residual block."""
    return {
        **normalised(f"{name}.norm1", theirs.bn1, of),
        **normalised(f"{name}.norm2", theirs.bn2, of),
        f"{name}.conv1.weight": of(theirs.conv1.weight),
        f"{name}.conv2.weight": of(theirs.conv2.weight),
        f"{name}.skip.weight": of(theirs.resConnect.weight),
    }


def normalised(name: str, theirs: Any, of: Reader) -> dict[str, Tensor]:
    return {f"{name}.weight": of(theirs.weight), f"{name}.bias": of(theirs.bias)}


def betas(name: str, beta_u: Tensor, beta_a: Tensor, of: Reader) -> dict[str, Tensor]:
    return {f"{name}.routing.beta_u": of(beta_u).flatten(), f"{name}.routing.beta_a": of(beta_a).flatten()}


def on_grid(poses: Tensor, activations: Tensor) -> Capsules:
    """(N, height, width, capsules, dims) as ours; class capsules, which have no grid, stay."""
    if activations.dim() == 2:
        return Capsules(poses, activations)
    return Capsules(poses.permute(0, 3, 4, 1, 2), activations.permute(0, 3, 1, 2))


DENSITY = {"routing.least_density": 1e-11}
"""Below which that code does not divide; no part of the network, as the native backend has none."""
VB_CODE, QCN_CODE = "fabio-deep/Variational-Capsule-Routing", "Boazrciasn/Quaternion-Capsule-Networks"
LOW, NONE = {"routing.variance_floor": 5e-8}, {"routing.variance_floor": 1e-12}
"""What stands for the QCN authors' ε = 1e-7, and for none: the least that ours takes."""
NETWORKS: Mapping[str, Public] = {
    "vb": Public("VB", VB_CODE, ("vb-published", {}), variational, variational_tensors, variational_capsules),
    "vb-five": Public(
        "VB, maps × 5", VB_CODE, ("vb-published", DENSITY), five_times, variational_tensors, variational_capsules
    ),
    "vb-five-no-floor": Public(
        "VB, maps × 5", VB_CODE, ("vb-published", {}), five_times, variational_tensors, variational_capsules
    ),
    "vb-one-layer": Public(
        "VB, one layer", VB_CODE, ("vb-example", {}), one_layer, one_layer_tensors, one_layer_capsules
    ),
    "em": Public("EM*", QCN_CODE, ("em-published", LOW), matrix, matrix_tensors, matrix_capsules),
    "em-no-epsilon": Public(
        "EM*, ε = 0", QCN_CODE, ("em-published", NONE), without_epsilon(matrix), matrix_tensors, matrix_capsules
    ),
    "em-ibm": Public(
        "EM-IBM, from primary capsules on",
        "IBM/matrix-capsules-with-em-routing",
        ("em-ibm-published", {}),
        lambda folder: beside_tensorflow.Gritzman(folder, CHANNELS, CLASSES, SIDE),
        beside_tensorflow.tensors,
        beside_tensorflow.capsules,
    ),
    "qcn": Public("QCN", QCN_CODE, ("qcn", LOW), quaternions, quaternion_tensors, quaternion_capsules),
    "qcn-three": Public(
        "QCN, three numbers", QCN_CODE, ("qcn", LOW), pure_quaternions, quaternion_tensors, quaternion_capsules
    ),
    "qcn-three-no-epsilon": Public(
        "QCN, three numbers, ε = 0",
        QCN_CODE,
        ("qcn", NONE),
        without_epsilon(pure_quaternions),
        quaternion_tensors,
        quaternion_capsules,
    ),
}


NETWORKS_OF: Mapping[str, tuple[str, ...]] = {
    "vb": ("vb", "vb-five", "vb-five-no-floor", "vb-one-layer"),
    "em": ("em", "em-no-epsilon"),
    "em-ibm": ("em-ibm",),
    "qcn": ("qcn", "qcn-three", "qcn-three-no-epsilon"),
}
"""What is compared by one command."""


# ---- Both


@contextmanager
def modules_of(folder: Path) -> Iterator[None]:
    """Lets modules of a folder be imported by their names, in float64, and forgets them."""
    kept = {name: module for name, module in sys.modules.items() if name in (*UNUSED, *SIDEWAYS)}
    with importing_from(folder):
        sys.modules.update({name: stub(name) for name in UNUSED})
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
            for name in (*UNUSED, *SIDEWAYS):
                sys.modules.pop(name, None)
            sys.modules.update(kept)


def stub(name: str) -> ModuleType:
    """A module of which everything can be had and nothing does anything."""
    module = ModuleType(name)
    module.__getattr__ = lambda _: MagicMock()  # type: ignore[method-assign]
    return module


def training_file(folder: Path, name: str) -> ModuleType:
    """One of the files that begin to set a training up when they are imported."""
    with modules_of(folder), patch("torch.utils.data.DataLoader", MagicMock()):
        try:
            return importlib.import_module(name)
        finally:
            sys.modules.pop(name, None)


@dataclass(frozen=True)
class Compared:
    """The largest differences of one network, by backend: of `poses` and `activations`, a number for each layer, and
    of `gradients`."""

    network: str
    ours: str
    repository: str
    commit: str
    images: int
    seed: int
    parameters: int
    machine: str
    versions: dict[str, str]
    date: str
    found: dict[str, dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


def compare(public: Public, folder: Path, images: int, seed: int) -> Compared:
    torch.manual_seed(seed)
    theirs = public.made(folder).double().train()
    shown = torch.randn(images, CHANNELS, SIDE, SIDE, dtype=torch.float64)
    labels = torch.arange(images) % CLASSES
    torch.set_default_dtype(torch.float64)  # some of its tensors are made where they are used
    try:
        wanted = public.capsules(theirs, shown)
        loss_of(wanted[-1], labels).backward()
    finally:
        torch.set_default_dtype(torch.float32)
    name, settings = public.ours
    found = {}
    for backend in BACKENDS:
        network = build(name, channels=CHANNELS, classes=CLASSES, **settings).double().train()
        take(network, public.tensors(theirs, lambda tensor: tensor.detach()))
        with warnings.catch_warnings():
            warnings.simplefilter("error", BackendWarning)
            try:
                layers = layers_of(use_backend(network, backend), shown)
            except BackendWarning:
                continue  # the reference would stand in
        loss_of(layers[-1], labels).backward()
        gradients = public.tensors(theirs, lambda tensor: tensor.grad)
        own = {each: parameter.grad for each, parameter in network.named_parameters()}
        largest = max(gradient.abs().max().item() for gradient in gradients.values())
        found[backend] = {
            "poses": [difference(one.poses, other.poses) for one, other in zip(layers, wanted, strict=True)],
            "activations": [
                difference(one.activations, other.activations) for one, other in zip(layers, wanted, strict=True)
            ],
            "gradients": max(difference(own[each], gradient) for each, gradient in gradients.items()) / largest,
        }
    return Compared(
        network=public.title,
        ours=name + "".join(f", {key.split('.')[-1]} {value}" for key, value in settings.items()),
        repository=public.repository,
        commit=commit_of(folder),
        images=images,
        seed=seed,
        parameters=sum(each.numel() for each in theirs.parameters() if each.grad is not None),
        machine=usual_name(torch.device("cpu")),
        versions=versions(torch.device("cpu")),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        found=found,
    )


def take(network: Network, tensors: Mapping[str, Tensor]) -> None:
    """Puts their weights into ours; all of ours must be among them."""
    own = dict(network.named_parameters())
    if missing := own.keys() - tensors.keys():
        raise QuatcapsError(f"the public code has nothing for {sorted(missing)[0]}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            if own[name].shape != tensor.shape:
                raise QuatcapsError(
                    f"{name} has shape {tuple(own[name].shape)} here and {tuple(tensor.shape)} in the public code"
                )
            own[name].copy_(tensor)


def layers_of(network: Any, images: Tensor) -> list[Capsules]:
    """The capsules of every layer of ours."""
    found: list[Capsules] = []
    for layer in (network.primary, *network.layers, network.classify):
        layer.register_forward_hook(lambda _, __, capsules: found.append(capsules))
    network(images)
    return found


def loss_of(classes: Capsules, labels: Tensor) -> Tensor:
    """Of the activations, and of the poses too, so that every parameter has a gradient."""
    return functional.cross_entropy(10 * classes.activations, labels) + classes.poses.square().mean()


def difference(one: Tensor | None, other: Tensor) -> float:
    assert one is not None
    if one.shape != other.shape:
        raise QuatcapsError(f"a layer's capsules are {tuple(one.shape)} here and {tuple(other.shape)} in public code")
    found = (one - other).abs().max().item()
    if not math.isfinite(found):
        raise QuatcapsError("a number is not finite, here or in the public code: nothing can be compared")
    return found


def table_of(networks: Mapping[str, Any]) -> Table:
    lines = []
    for compared in networks.values():
        for backend, found in compared["found"].items():
            numbers = (max(found["poses"]), max(found["activations"]), found["gradients"])
            lines.append((compared["network"], compared["ours"], backend, *(f"{number:.0e}" for number in numbers)))
    return Table(
        "Largest differences from public code",
        ("network", "ours", "backend", "poses", "activations", "gradients, relative"),
        tuple(lines),
    )


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=tuple(NETWORKS_OF), help="whose")
    parser.add_argument("folder", nargs="?", type=Path, help="where its public code lies")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="compare nothing, show what is recorded")
    return parser.parse_args(arguments)


def main(options: argparse.Namespace, console: Console) -> None:
    path = options.output / NAME
    found = recorded(path)
    if not options.tables:
        if options.network is None or options.folder is None:
            raise QuatcapsError("give a network and where its public code lies, such as vb FOLDER, or --tables")
        if options.images < 2:
            raise QuatcapsError(f"{options.images} images: public code takes two or more at once")
        for key, public in NETWORKS.items():
            if key in NETWORKS_OF[options.network]:
                say(console, f"{public.title} of {public.repository} in {options.folder}")
                found[key] = compare(public, options.folder, options.images, options.seed).to_json()
        record(path, {key: found[key] for key in NETWORKS if key in found})
    if not found:
        raise QuatcapsError(f"{path} has no comparisons: compare a network first")
    console.print(table_of(found).rich(console.width))


if __name__ == "__main__":
    try:
        main(parsed(), standard_output())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

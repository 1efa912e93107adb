"""Gritzman's public code for `beside_public_code.py`: capsule layers of TensorFlow, in double precision, as a module of
PyTorch with gradients.

Its primary capsules are ours: in front of its layers stands the stem of `em-ibm-published`. Its code asks for
TensorFlow 1 and for single precision; it is given TensorFlow 2's copy of the former, in which float32 means float64.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor, nn

from public_clones import importing_from
from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.models import build

CODE = ("layers", "em_routing", "utils")
STUBS = ("tensorflow.contrib", "tensorflow.contrib.slim", "config", "daiquiri")
WINDOWS, STRIDES, ITERATIONS = 3, (2, 1), 2
SWAPPED = torch.tensor((1, 0, 2, 3))
"""Rows of poses: that code adds the column of a capsule to the first row and its row to the second, we the other way
round."""


class Gritzman(nn.Module):
    """Our primary capsules and its layers."""

    def __init__(self, folder: Path, channels: int, classes: int, side: int) -> None:
        super().__init__()
        ours: Any = build("em-ibm-published", channels=channels, classes=classes)
        self.primary = ours.primary
        self.folder, self.classes, self.grid = folder, classes, ours.primary.grid(side, side)
        widths = [ours.primary.capsules, *(layer.routing.beta_u.numel() for layer in ours.layers), classes]
        self.widths = widths[1:-1]
        self.maps, self.beta_v, self.beta_a = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        places = (*(WINDOWS**2 for _ in STRIDES), 1)
        for children, parents, windows in zip(widths, widths[1:], places, strict=False):
            drawn = nn.init.trunc_normal_(torch.empty(1, windows * children, parents, 4, 4))
            self.maps.append(drawn)
            for betas in (self.beta_v, self.beta_a):
                betas.append(torch.randn(1, 1, 1, 1, parents, 1) / parents**0.5)

    def forward(self, images: Tensor) -> list[Capsules]:
        primary = self.primary(images)
        poses = primary.poses.permute(0, 3, 4, 1, 2).unflatten(-1, (4, 4))[..., SWAPPED, :].flatten(-2)
        activations = primary.activations.permute(0, 2, 3, 1).unsqueeze(-1)
        drawn = [each for layer in zip(self.maps, self.beta_a, self.beta_v, strict=True) for each in layer]
        made = Run.apply(self.program(len(images)), poses, activations, *drawn)
        return [primary, *(as_ours(*pair) for pair in zip(made[::2], made[1::2], strict=True))]

    def program(self, images: int) -> Program:
        return Program(self.folder, images, self.grid, self.maps[0].shape[1] // WINDOWS**2, self.widths, self.classes)


class Program:
    """A graph of TensorFlow: what is fed in the order in which that code asks for it, and what comes out."""

    def __init__(
        self, folder: Path, images: int, grid: tuple[int, int], primary: int, widths: Sequence[int], classes: int
    ) -> None:
        with code_of(folder) as (tf, layers, variable):
            self.tf, self.graph = tf, tf.Graph()
            with self.graph.as_default():
                poses = tf.placeholder(tf.float64, (images, *grid, primary, 16))
                activations = tf.placeholder(tf.float64, (images, *grid, primary, 1))
                self.fed, self.outputs = [poses, activations], list[Any]()
                variable.side_effect = self.variable
                for number, (width, stride) in enumerate(zip(widths, STRIDES, strict=True)):
                    activations, poses = layers.conv_caps(activations, poses, WINDOWS, stride, width, f"layer{number}")
                    self.outputs += [poses, activations]
                activations, poses = layers.fc_caps(activations, poses, classes, "classes")
                self.outputs += [poses, activations]
                self.gradients_of = [tf.placeholder(tf.float64, output.shape) for output in self.outputs]
                self.gradients = tf.gradients(self.outputs, self.fed, self.gradients_of)

    def variable(self, *_: str, shape: Sequence[int], **__: Any) -> Any:
        self.fed.append(self.tf.placeholder(self.tf.float64, shape))
        return self.fed[-1]

    def __call__(self, wanted: Sequence[Any], fed: Sequence[Tensor], gradients: Sequence[Tensor] = ()) -> list[Tensor]:
        places = (*self.fed, *self.gradients_of[: len(gradients)])
        given = {place: tensor.numpy() for place, tensor in zip(places, (*fed, *gradients), strict=True)}
        with self.tf.Session(graph=self.graph) as session:
            return [torch.from_numpy(found.copy()) for found in session.run(list(wanted), given)]


class Run(torch.autograd.Function):
    """A program with its gradients."""

    @staticmethod
    def forward(context: Any, program: Program, *given: Tensor) -> tuple[Tensor, ...]:
        in_order = in_order_of(program, given)
        context.program = program
        context.save_for_backward(*in_order)
        return tuple(program(program.outputs, in_order))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        program = context.program
        return None, *program(program.gradients, context.saved_tensors, [each.contiguous() for each in gradients])


def in_order_of(program: Program, given: Sequence[Tensor]) -> list[Tensor]:
    """Detached; an error where that code asks for other shapes."""
    wanted = [tuple(place.shape) for place in program.fed]
    if wanted != [tuple(tensor.shape) for tensor in given]:
        raise QuatcapsError(f"this public code asks for tensors of other shapes: {wanted}")
    return [tensor.detach().contiguous() for tensor in given]


def as_ours(poses: Tensor, activations: Tensor) -> Capsules:
    swapped = poses.unflatten(-1, (4, 4))[..., SWAPPED, :].flatten(-2)
    if poses.dim() == 3:
        return Capsules(swapped, activations)
    return Capsules(swapped.permute(0, 3, 4, 1, 2), activations.squeeze(-1).permute(0, 3, 1, 2))


@contextmanager
def code_of(folder: Path) -> Iterator[tuple[Any, Any, MagicMock]]:
    """TensorFlow as that code is given it, its `layers`, and what stands for the making of a variable."""
    with suppress(ImportError):
        import triton  # noqa: F401 - after TensorFlow it crashes
    try:
        import tensorflow
    except ImportError as error:
        raise QuatcapsError("Gritzman's public code needs TensorFlow: pip install tensorflow-cpu") from error
    if not (folder / "em_routing.py").is_file():
        raise QuatcapsError(f"{folder} has no em_routing.py: clone the public code, and give where it lies")
    first = tensorflow.compat.v1
    given = ModuleType("tensorflow")
    given.__path__ = tensorflow.__path__
    power = lambda base, exponent: first.pow(first.constant(base, first.float64), exponent)  # noqa: E731
    doubled = {
        "pow": power,
        "float32": first.float64,
        "to_float": first.to_double,
        "summary": MagicMock(),
        "contrib": MagicMock(),
    }
    given.__getattr__ = lambda name: doubled.get(name) or getattr(first, name)  # type: ignore[method-assign]
    stubs = {name: MagicMock() for name in STUBS}
    stubs["config"].FLAGS = SimpleNamespace(iter_routing=ITERATIONS, final_lambda=0.01, epsilon=1e-9)
    with patch.dict(sys.modules, {"tensorflow": given, **stubs}):
        try:
            with importing_from(folder):
                layers = importlib.import_module("layers")
                yield given, layers, sys.modules["utils"].slim.model_variable
        finally:
            for name in CODE:
                sys.modules.pop(name, None)


def tensors(theirs: Any, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    found = {f"primary.{name}": of(parameter) for name, parameter in theirs.primary.named_parameters()}
    names = [*(f"layers.{number}" for number in range(len(STRIDES))), "classify"]
    for name, maps, beta_v, beta_a in zip(names, theirs.maps, theirs.beta_v, theirs.beta_a, strict=True):
        windows = 1 if name == "classify" else WINDOWS**2
        found[f"{name}.maps.weight"] = of(maps).squeeze(0).unflatten(0, (windows, -1)).mT
        found[f"{name}.routing.beta_u"] = of(beta_v).flatten()
        found[f"{name}.routing.beta_a"] = of(beta_a).flatten()
    return found


def capsules(theirs: nn.Module, images: Tensor) -> list[Capsules]:
    return theirs(images)

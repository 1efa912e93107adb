"""Assertions for layers, poses and routings of one's own, as the project's own tests make them.

>>> from quatcaps.layers import ClassCapsules
>>> from quatcaps.routing import EM
>>> assert_like_reference(ClassCapsules(3, 4))
>>> assert_equivariant(ClassCapsules(3, 4, pose="rotor", routing=EM(variance="isotropic")))
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers.capsules import CapsuleLayer, ConvolutionalCapsules, use_backend
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.poses import PoseType

__all__ = ["assert_equivariant", "assert_like_reference"]

FORWARD, BACKWARD = 1e-5, 1e-4
"""Largest ‖found − wanted‖ / ‖wanted‖ in float32."""
TURNED = {torch.float32: 1e-5, torch.float64: 1e-12}


def assert_like_reference(
    layer: CapsuleLayer,
    *,
    images: int = 2,
    grid: tuple[int, int] | None = None,
    forward: float = FORWARD,
    backward: float = BACKWARD,
    seed: int = 0,
) -> None:
    """Raises AssertionError unless `layer`, on its own backend and in float32, gives the capsules and gradients that
    the reference gives in float64: of poses, of activations and of every parameter.

    The children are random, `images` × `grid` of them, on the layer's device; the layer itself is left as it was.
    """
    children = random_children(layer, images, grid or smallest_grid(layer, 1), seed)
    wanted = values_and_gradients(use_backend(copy.deepcopy(layer).double(), "reference"), children, torch.float64)
    found = values_and_gradients(copy.deepcopy(layer).float(), children, torch.float32)
    for name, value in found.items():
        assert torch.isfinite(value).all(), f"{name}: not finite"
        error, size = (value.double() - wanted[name]).norm().item(), wanted[name].norm().item()
        limit = backward if name.startswith("gradient") else forward
        assert error <= limit * size + 1e-9, f"{name}: {error:.1e} off where its size is {size:.1e}; at most {limit:g}"


def values_and_gradients(layer: nn.Module, children: Capsules, dtype: torch.dtype) -> dict[str, Tensor]:
    """Poses and activations of the parents, and the gradients of a sum of both with random weights."""
    poses, activations = (values.to(dtype, copy=True).requires_grad_() for values in children)
    parents = layer(poses, activations)
    generator = torch.Generator().manual_seed(1)
    weights = (torch.randn(values.shape, generator=generator).to(values) for values in parents)
    total = torch.stack([(values * weight).sum() for values, weight in zip(parents, weights, strict=True)]).sum()
    named = {"poses": poses, "activations": activations, **dict(layer.named_parameters())}
    grads = torch.autograd.grad(total, list(named.values()), allow_unused=True, materialize_grads=True)
    results = {"poses": parents.poses.detach(), "activations": parents.activations.detach()}
    return results | {f"gradient of {name}": grad for name, grad in zip(named, grads, strict=True)}


def assert_equivariant(
    module: CapsuleLayer | CapsuleNetwork,
    *,
    turn: Tensor | None = None,
    tolerance: float | None = None,
    images: int = 2,
    seed: int = 0,
) -> None:
    """Raises AssertionError unless turning all poses that go into a layer turns all poses that come out, and leaves
    their activations as they were.

    `turn` is a matrix (dims, dims) that acts on a pose; without it, a random rotation acts from the left: on a
    quaternion as Q q, on a direction as Q v Q*, on a matrix as Q M. A network is tested from its primary capsules on.
    `tolerance` is the largest residual, relative to the size of the poses and absolute for activations; by default 1e-5
    for a module in float32, 1e-12 in float64. The module is evaluated as it is: call `eval()` before.
    """
    first = capsule_layers(module)[0]
    weight = next(module.parameters())
    tolerance = TURNED[weight.dtype] if tolerance is None else tolerance
    turn = (random_turn(first.pose, seed) if turn is None else turn).to(weight)
    poses, activations = random_children(first, images, smallest_grid(module, 2), seed)
    poses, activations = poses.to(weight), activations.to(weight)
    with torch.no_grad():
        plain = routed(module, Capsules(poses, activations))
        turned = routed(module, Capsules(torch.einsum("de,nie...->nid...", turn, poses), activations))
    for number, (one, other) in enumerate(zip(plain, turned, strict=True), 1):
        wanted = torch.einsum("de,nie...->nid...", turn, one.poses)
        residual = ((other.poses - wanted).norm() / wanted.norm()).item()
        changed = (other.activations - one.activations).abs().max().item()
        assert residual <= tolerance, f"layer {number}: poses are {residual:.1e} off; at most {tolerance:g}"
        assert changed <= tolerance, f"layer {number}: activations change by {changed:.1e}; at most {tolerance:g}"


def capsule_layers(module: CapsuleLayer | CapsuleNetwork) -> list[CapsuleLayer]:
    """The layer itself, or all routed layers of a network."""
    if isinstance(module, CapsuleLayer):
        return [module]
    return [layer for layer in (*module.layers, module.classify) if isinstance(layer, CapsuleLayer)]


def routed(module: CapsuleLayer | CapsuleNetwork, capsules: Capsules) -> Sequence[Capsules]:
    """What each layer gives, one after the other."""
    found = []
    for layer in capsule_layers(module):
        capsules = layer(*capsules)
        found.append(capsules)
    return found


def smallest_grid(module: CapsuleLayer | CapsuleNetwork, more: int) -> tuple[int, int]:
    """A grid of children on which the last layer has so many positions a side more than one."""
    height = width = 1 + more
    for layer in reversed(capsule_layers(module)):
        if isinstance(layer, ConvolutionalCapsules):
            window, (down, across) = layer.window, layer.padding
            height = max(1, (height - 1) * window.stride + window.height - 2 * down)
            width = max(1, (width - 1) * window.stride + window.width - 2 * across)
    return height, width


def random_children(layer: CapsuleLayer, images: int, grid: tuple[int, int], seed: int) -> Capsules:
    """Normal poses and uniform activations in float64, on the layer's device."""
    generator = torch.Generator().manual_seed(seed)
    shape = (images, layer.capsules_in, layer.pose.dims, *grid)
    poses = torch.randn(shape, generator=generator, dtype=torch.float64)
    activations = torch.rand(images, layer.capsules_in, *grid, generator=generator, dtype=torch.float64)
    device = next(layer.parameters()).device
    return Capsules(poses.to(device), activations.to(device))


def random_turn(pose: PoseType, seed: int) -> Tensor:
    """A rotation that acts on a pose from the left, as a matrix (dims, dims) in float64."""
    generator = torch.Generator().manual_seed(seed + 1)
    if pose.rows > 1:
        square = torch.randn(pose.rows, pose.rows, generator=generator, dtype=torch.float64)
        return torch.kron(torch.linalg.qr(square).Q.contiguous(), torch.eye(pose.columns, dtype=torch.float64))
    angle = torch.rand((), generator=generator, dtype=torch.float64) * torch.pi
    rotor = quaternion.rotor(angle, torch.randn(3, generator=generator, dtype=torch.float64))
    if pose.columns == 3:
        return quaternion.rotor_to_matrix(rotor)
    if pose.columns == 4:
        return quaternion.left_embedding(rotor)
    raise QuatcapsError(f"poses of 1×{pose.columns} have no rotation that everyone means: give `turn`, a matrix")

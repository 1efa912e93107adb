"""The assertions that users run on their own parts: they hold where they should, and fail where they should."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, use_backend
from quatcaps.models import build
from quatcaps.poses import PoseType
from quatcaps.routing import BACKENDS, EM, VB, Votes
from quatcaps.testing import assert_equivariant, assert_like_reference

ISOTROPIC = EM(variance="isotropic")
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
FAST = [name for name in BACKENDS if name != "reference" and not (ON_GPU and name == "native")]


class Scaled(nn.Module):
    """Maps that are wrong in float32 alone, as a careless fast path would be."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(offsets, children, parents, 3, 3))

    def forward(self) -> Tensor:
        return self.weight * (1 + 1e-3 * (self.weight.dtype == torch.float32))


@pytest.mark.parametrize("backend", FAST)
def test_layers_are_like_the_reference(backend: str) -> None:
    torch.manual_seed(3)  # of weights for which float32 keeps the gradients of VB: not all do, on any backend
    for images, layer in (
        (2, ClassCapsules(4, 3, pose="matrix", coordinates=True, backend=backend, routing=VB(batch_norm=False))),
        (1, ConvolutionalCapsules(2, 3, (2, 3), 2, padding=(1, 0), backend=backend)),
        (1, ConvolutionalCapsules(2, 3, 2, pose="rotor", routing=ISOTROPIC, backend=backend)),
    ):
        assert_like_reference(layer.to(DEVICE), images=images)


def test_a_layer_that_is_not_like_the_reference() -> None:
    layer = ClassCapsules(2, 3, pose=PoseType("scaled", 1, 3, Scaled), backend="reference")
    with pytest.raises(AssertionError, match=r"poses: .* off where its size is"):
        assert_like_reference(layer)


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("pose", ["rotor", "matrix"])
def test_an_isotropic_variance_is_equivariant(pose: str, backend: str) -> None:
    children = 1 if backend == "triton" and not ON_GPU else 2  # as many are twice the steps of the interpreter
    for layer in (
        ConvolutionalCapsules(children, 3, 2, pose=pose, routing=ISOTROPIC, backend=backend),
        ClassCapsules(children, 3, pose=pose, routing=ISOTROPIC, backend=backend),
    ):
        assert_equivariant(layer.to(DEVICE), images=1)
        if backend != "triton":
            assert_equivariant(layer.double())


def test_what_is_not_equivariant_is_said_to_be_off() -> None:
    with pytest.raises(AssertionError, match=r"layer 1: poses are .* off"):
        assert_equivariant(ClassCapsules(2, 3, pose="rotor").double())  # a diagonal variance
    with pytest.raises(AssertionError, match=r"layer 1: poses are .* off"):
        assert_equivariant(ClassCapsules(2, 3, routing=ISOTROPIC).double())  # the paper's votes


def test_a_whole_network_is_equivariant() -> None:
    shape = {"primary": 3, "capsules": ((3, 3, 2), (2, 2, 1))}
    network = (
        build("qcn-small", channels=1, classes=3, seed=0, pose="rotor", routing=ISOTROPIC, **shape).double().eval()
    )
    assert_equivariant(use_backend(network, "reference"))
    assert_equivariant(use_backend(network, "auto"))


def test_a_routing_that_makes_activations_of_poses_is_not() -> None:
    class Leaky(nn.Module):
        def forward(self, votes: Votes) -> Capsules:
            moments = votes.uniform()
            return Capsules(moments.mean, moments.mean[:, :, 0].sigmoid())

    class Settings:
        iterations, competition = 1, "position"

        def module(self, parents: int) -> nn.Module:
            return Leaky()

    with pytest.raises(AssertionError, match="activations change by"):
        assert_equivariant(ClassCapsules(2, 3, pose="rotor", routing=Settings()).double())

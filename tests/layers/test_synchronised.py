"""Synchronised batch normalisation in a group of one; of several processes in tests/training/test_processes.py."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from quatcaps.layers.residual import ResidualBlock
from quatcaps.layers.synchronised import SynchronisedBatchNorm, synchronise
from quatcaps.models import build


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_names_and_values_stay(group: dist.ProcessGroup) -> None:
    for name in ("qcn-small", "vb", "cnn", "resnet-20", "cnn-small"):
        network = build(name, channels=2, classes=3)
        order = [id(parameter) for parameter in network.parameters()]
        before = {key: value.data_ptr() for key, value in network.state_dict().items()}
        synchronise(network, group)
        assert {key: value.data_ptr() for key, value in network.state_dict().items()} == before
        assert [id(parameter) for parameter in network.parameters()] == order
        plain = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d)]
        assert not plain, f"{name} has norms that are not synchronised"


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_are_those_of_the_values(affine: bool, group: dist.ProcessGroup) -> None:
    norm = SynchronisedBatchNorm(nn.BatchNorm2d(3, affine=affine), group).double()
    features = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (features,))


def test_block_trains_and_evaluates_as_before(group: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    ours = ResidualBlock(2, 4, stride=2).double()
    theirs = deepcopy(ours)
    synchronise(ours, group)
    for training in (True, True, False):
        images = torch.randn(3, 2, 6, 6, dtype=torch.float64)
        results = [block.train(training)(images) for block in (ours, theirs)]
        torch.testing.assert_close(*results)
        for result in results:
            result.square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())

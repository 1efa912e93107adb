"""Residual blocks in C beside PyTorch's modules, and where those run instead."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from quatcaps.layers import ResidualBlock, convolution, inference, native, use_backend
from quatcaps.layers.native import convolution as by_tiles
from quatcaps.layers.residual import ResidualTrunk, residual_trunk

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"native {native.problem()}")


@pytest.fixture(autouse=True)
def on_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an ARM CPU, wherever the tests run."""
    monkeypatch.setattr(inference, "ON_ARM", True)
    monkeypatch.setattr(convolution, "ON_ARM", True)


def trained(module: nn.Module) -> nn.Module:
    """In evaluation mode, with normalisations unlike those at the start."""
    torch.manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return module.eval()


def error(module: nn.Module, found: Tensor, images: Tensor) -> float:
    """The largest error, as a part of the largest number, against PyTorch's modules in float64."""
    wanted = copy.deepcopy(module).double()(images.double())
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks each call of the C library was given."""
    counted: list[int] = []
    predict = inference.predict
    monkeypatch.setattr(
        inference, "predict", lambda blocks, images: counted.append(len(blocks)) or predict(blocks, images)
    )
    return counted


BLOCKS = {
    "the first of a trunk": (2, 32, 1, (16, 16)),
    "stride 2": (16, 24, 2, (16, 16)),
    "by tiles throughout": (16, 16, 1, (8, 12)),
    "odd sizes": (5, 7, 2, (11, 9)),
    "odd sizes by tiles": (17, 9, 1, (5, 7)),
    "one channel, one pixel": (1, 1, 1, (1, 1)),
    "a row": (3, 10, 1, (1, 41)),
    "a column, stride 3": (3, 10, 3, (10, 2)),
}


@pytest.mark.parametrize("plain_skip", [False, True])
@pytest.mark.parametrize(("channels_in", "channels_out", "stride", "size"), BLOCKS.values(), ids=BLOCKS.keys())
@torch.no_grad()
def test_a_block(
    channels_in: int, channels_out: int, stride: int, size: tuple[int, int], plain_skip: bool, calls: list[int]
) -> None:
    block = trained(ResidualTrunk(ResidualBlock(channels_in, channels_out, stride, plain_skip=plain_skip)))
    images = torch.randn(3, channels_in, *size)
    wider = torch.randn(3, channels_in, size[0] + 2, 2 * size[1])
    for laid in (images, images.contiguous(memory_format=torch.channels_last), wider[:, :, 1:-1, ::2]):
        assert error(block, block(laid), laid) < 2e-6
    assert calls == [1, 1, 1]


@torch.no_grad()
def test_a_trunk_is_one_call(calls: list[int]) -> None:
    trunk = trained(residual_trunk(2, (8, 12, 20), (1, 2, 2)))
    images = torch.randn(5, 2, 19, 14)[:, :, 1:-2]
    assert error(trunk, trunk(images), images) < 2e-6
    assert calls == [3]


@torch.no_grad()
def test_errors_are_those_of_float32() -> None:
    """Winograd's algorithm by the points 1 and 2 would make four times as large ones."""
    torch.manual_seed(0)
    block = trained(ResidualTrunk(ResidualBlock(32, 32)))
    images = torch.randn(8, 32, 16, 16)
    assert error(block, block(images), images) < 8e-7


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e6])
@torch.no_grad()
def test_finite_in_finite_out(scale: float) -> None:
    trunk = trained(residual_trunk(2, (8, 12), (1, 2)))
    assert torch.isfinite(trunk(scale * torch.randn(2, 2, 9, 9))).all()


@torch.no_grad()
def test_the_number_of_threads_does_not_change_a_bit() -> None:
    trunk, images = trained(residual_trunk(2, (8, 12), (1, 2))), torch.randn(5, 2, 9, 9)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(trunk(images))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other, found[0]) for other in found[1:])
    assert all(torch.equal(trunk(images[k : k + 2]), found[0][k : k + 2]) for k in range(4)), "nor that of images"


def in_training(trunk: ResidualTrunk, images: Tensor) -> None:
    with torch.no_grad():
        trunk.train()(images)


def with_gradients(trunk: ResidualTrunk, images: Tensor) -> None:
    trunk(images)


def of_one_image(trunk: ResidualTrunk, images: Tensor) -> None:
    with torch.no_grad():
        trunk(images[:1])


def in_float64(trunk: ResidualTrunk, images: Tensor) -> None:
    with torch.no_grad():
        trunk.double()(images.double())


def under_autocast(trunk: ResidualTrunk, images: Tensor) -> None:
    with torch.no_grad(), torch.autocast("cpu"):
        trunk(images)


def with_another_part(trunk: ResidualTrunk, images: Tensor) -> None:
    for block in list(trunk)[:-1]:
        block.conv2 = nn.Sequential(block.conv2)
    with torch.no_grad():
        trunk(images)


def by_the_reference(trunk: ResidualTrunk, images: Tensor) -> None:
    with torch.no_grad():
        use_backend(trunk, "reference")(images)


ELSEWHERE = (by_the_reference, in_training, with_gradients, of_one_image, in_float64, under_autocast, with_another_part)


@pytest.mark.parametrize("way", ELSEWHERE)
def test_where_modules_run(way: Callable[[ResidualTrunk, Tensor], None], calls: list[int]) -> None:
    trunk = trained(residual_trunk(2, (4, 6), (1, 2)))
    assert isinstance(trunk, ResidualTrunk)
    way(trunk, torch.randn(2, 2, 6, 6))
    assert calls == []


@torch.no_grad()
def test_who_watches_sees_everything(calls: list[int]) -> None:
    trunk, images, seen = trained(residual_trunk(2, (4, 6), (1, 2))), torch.randn(2, 2, 6, 6), []
    wanted = trunk(images)
    trunk[0].register_forward_hook(lambda module, inputs, output: seen.append(output))  # type: ignore[operator, index]
    torch.testing.assert_close(trunk(images), wanted, rtol=1e-4, atol=1e-4)
    trunk[1].conv1.register_forward_hook(lambda *_: seen.append(None))  # type: ignore[union-attr, index]
    torch.testing.assert_close(trunk(images), wanted, rtol=1e-4, atol=1e-4)
    assert calls == [2], "modules run as soon as somebody watches"
    assert len(seen) == 3


def twice_differentiated(output: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """The output, its gradients, and the gradients of those."""
    grads = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
    again = torch.autograd.grad(torch.stack([grad.square().sum() for grad in grads]).sum(), leaves)
    return [found.detach() for found in (output, *grads, *again)]


@pytest.mark.parametrize(
    ("channels", "stride", "size", "tiles"),
    [((3, 5), 2, (7, 6), False), ((16, 17), 1, (9, 6), True), ((17, 16), 1, (1, 4), True), ((3, 16), 1, (5, 5), False)],
)
def test_a_convolution_by_matrix_products_or_by_tiles_is_the_same(
    channels: tuple[int, int], stride: int, size: tuple[int, int], tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer, tiled = convolution.Convolution(*channels, 3, stride=stride, padding=1), []
    convolve = by_tiles.convolution
    monkeypatch.setattr(by_tiles, "convolution", lambda *given: tiled.append(len(given)) or convolve(*given))
    images = torch.randn(2, channels[0], *size, requires_grad=True)
    leaves = [images, *layer.parameters()]
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    wanted = twice_differentiated(nn.functional.conv2d(doubles[0], doubles[1], doubles[2], stride, 1), doubles)
    for one, other in zip(twice_differentiated(layer(images), leaves), wanted, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 2e-5
    assert bool(tiled) == tiles


@pytest.mark.parametrize("threads", [2, 3])
def test_a_convolution_by_tiles_has_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    images, weight = torch.randn(5, 16, 9, 9), torch.randn(24, 16, 3, 3)
    wanted, before = by_tiles.convolution(images, weight), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert torch.equal(by_tiles.convolution(images, weight), wanted)
    finally:
        torch.set_num_threads(before)

"""Residual blocks and heads by the kernels, against the modules they stand for."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lost import Lost
from quatcaps.errors import QuatcapsError
from quatcaps.layers import PrimaryCapsules, ResidualBlock, use_backend
from quatcaps.layers.convolution import Convolution
from quatcaps.layers.fused import plan, trunk
from quatcaps.layers.residual import ResidualTrunk, with_head

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SHAPES = {
    "images, a stride of 1": (2, 2, 16, 8, 8, 1),
    "odd sides, a stride of 2": (2, 3, 24, 7, 9, 2),
    "even sides, a stride of 2": (3, 16, 20, 6, 8, 2),
    "one image": (1, 24, 16, 5, 4, 1),
    "more channels than a part": (1, 66, 12, 4, 3, 1),
    "one position": (3, 4, 4, 1, 1, 1),
}


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU too."""
    monkeypatch.setattr(trunk, "precision_of", lambda features: "ieee")


def drawn(*modules: nn.Module) -> None:
    """Weights of normalisations that are not 1 and 0."""
    for module in modules:
        for norm in module.modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.normal_(norm.weight, 1.0, 0.3)
                nn.init.normal_(norm.bias, 0.0, 0.3)


def relative(found: Tensor, wanted: Tensor) -> float:
    return float(((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm().clamp(min=1e-6)).item())


def both(blocks: list[ResidualBlock], channels: int) -> tuple[nn.Sequential, nn.Sequential]:
    """A trunk with a head by the kernels in float32, and as modules in float64."""
    width = blocks[-1].conv2.out_channels
    head = nn.Sequential(Convolution(width, channels, 1), nn.BatchNorm2d(channels))
    whole = nn.Sequential(ResidualTrunk(*blocks, nn.ReLU()), head)
    drawn(whole)
    plain = copy.deepcopy(whole).double()
    return use_backend(whole, "triton").to(DEVICE), use_backend(plain, "reference").to(DEVICE)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_values_gradients_and_averages_are_those_of_the_modules(shape: tuple[int, ...], offset: float) -> None:
    images, channels_in, channels_out, height, width, stride = shape
    fused, plain = both([ResidualBlock(channels_in, channels_out, stride)], 10)
    given = (torch.randn(images, channels_in, height, width) + offset).to(DEVICE)
    inputs = given.clone().requires_grad_(), given.double().requires_grad_()
    found, wanted = with_head(*fused, inputs[0]), plain(inputs[1])
    assert fused[0].runs_fused(inputs[0])
    weights = torch.randn_like(wanted)
    wanted.backward(weights)
    found.backward(weights.float())
    few = images * height * width < 16  # a deviation of few numbers has fewer digits
    close = 1e-3 if few else 2e-5 * max(1.0, offset)
    assert relative(found, wanted) < close
    assert relative(inputs[0].grad, inputs[1].grad) < close
    for (name, one), other in zip(fused.named_parameters(), plain.parameters(), strict=True):
        if name == "1.0.bias":
            assert not one.grad.any(), "normalisation takes it out again"
        else:
            assert relative(one.grad, other.grad) < close, name
    for (name, one), other in zip(fused.named_buffers(), plain.buffers(), strict=True):
        assert relative(one, other.double()) < 1e-5, name


@pytest.mark.parametrize("stride", [1, 2])
def test_several_blocks_with_plain_shortcuts(stride: int) -> None:
    blocks = [
        ResidualBlock(3, 12, stride, plain_skip=True),
        ResidualBlock(12, 12, plain_skip=True),
        ResidualBlock(12, 18, 2, plain_skip=True),
    ]
    fused, plain = both(blocks, 5)
    given = torch.randn(2, 3, 9, 8).to(DEVICE)
    found, wanted = with_head(*fused, given), plain(given.double())
    weights = torch.randn_like(wanted)
    wanted.backward(weights)
    found.backward(weights.float())
    assert relative(found, wanted) < 1e-5
    for (name, one), other in zip(fused.named_parameters(), plain.parameters(), strict=True):
        assert name == "1.0.bias" or relative(one.grad, other.grad) < 1e-4, name
    assert fused[0][0].norm1.num_batches_tracked == 1


def test_evaluation_is_by_running_averages() -> None:
    fused, plain = both([ResidualBlock(2, 16, 2), ResidualBlock(16, 24)], 7)
    for _ in range(2):
        given = torch.randn(4, 2, 7, 6).to(DEVICE)
        with_head(*fused, given)
        plain(given.double())
    before = [value.clone() for value in fused.buffers()]
    fused.eval()
    plain.eval()
    given = torch.randn(3, 2, 8, 9).to(DEVICE)
    with torch.no_grad():
        assert fused[0].runs_fused(given)
        assert relative(with_head(*fused, given), plain(given.double())) < 1e-5
    assert all(torch.equal(one, other) for one, other in zip(fused.buffers(), before, strict=True))
    assert not fused[0].runs_fused(given), "gradients are not computed in evaluation"
    assert relative(with_head(*fused, given), plain(given.double())) < 1e-5


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-30, 1e18])
def test_constant_images_give_finite_numbers(value: float) -> None:
    fused, _ = both([ResidualBlock(2, 16)], 4)
    given = torch.full((2, 2, 5, 5), value, device=DEVICE, requires_grad=True)
    out = with_head(*fused, given)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in fused.parameters())


def test_what_is_not_a_number_stays_so() -> None:
    fused, _ = both([ResidualBlock(2, 16)], 4)
    with torch.no_grad():
        fused[0][0].norm2.weight[3] = float("nan")
    assert with_head(*fused, torch.randn(2, 2, 5, 5, device=DEVICE)).isnan().all()


def test_the_same_bits_every_time() -> None:
    fused, _ = both([ResidualBlock(2, 16, 2), ResidualBlock(16, 16, plain_skip=True)], 4)
    given = torch.randn(5, 2, 9, 9).to(DEVICE)

    def gradients() -> list[Tensor]:
        again = copy.deepcopy(fused)
        with_head(*again, given).square().sum().backward()
        return [parameter.grad for parameter in again.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(gradients(), gradients(), strict=True))


def test_features_may_lie_in_any_order() -> None:
    fused, _ = both([ResidualBlock(3, 16)], 4)
    given = torch.randn(2, 5, 6, 3).to(DEVICE).permute(0, 3, 1, 2)
    one, other = (with_head(*copy.deepcopy(fused), each) for each in (given, given.contiguous()))
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_bf16_is_close_and_keeps_sums_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = both([ResidualBlock(2, 16, 2), ResidualBlock(16, 16)], 6)
    given = torch.randn(4, 2, 8, 8).to(DEVICE)
    monkeypatch.setattr(trunk, "precision_of", lambda features: "bf16")
    found, wanted = with_head(*fused, given), plain(given.double())
    assert found.dtype == torch.float32
    assert 1e-4 < relative(found, wanted) < 2e-2
    found.square().sum().backward()
    wanted.square().sum().backward()
    grads = [torch.cat([each.grad.flatten().double() for each in net.parameters()]) for net in (fused, plain)]
    assert relative(*grads) < 0.2
    assert all(parameter.grad.dtype == torch.float32 for parameter in fused.parameters())


def no_momentum(block: ResidualBlock) -> None:
    block.norm2.momentum = None


def hooked(block: ResidualBlock) -> None:
    block.conv1.register_forward_hook(lambda *arguments: None)


def half_evaluated(block: ResidualBlock) -> None:
    block.norm1.eval()


def wrapped(block: ResidualBlock) -> None:
    block.conv1 = nn.Sequential(block.conv1)


def in_groups(block: ResidualBlock) -> None:
    block.conv2 = Convolution(8, 8, 3, padding=1, groups=2, bias=False)


@pytest.mark.parametrize("change", [no_momentum, hooked, half_evaluated, wrapped, in_groups, ResidualBlock.double])
def test_what_kernels_cannot_do_the_modules_do(change: Callable[[ResidualBlock], object]) -> None:
    block = ResidualBlock(2, 8)
    blocks = use_backend(ResidualTrunk(block, nn.ReLU()), "triton").to(DEVICE)
    given = torch.randn(3, 2, 6, 6, device=DEVICE)
    assert blocks.runs_fused(given)
    change(block)
    given = given.to(next(block.parameters()).dtype)
    blocks.to(DEVICE)
    assert not blocks.runs_fused(given)
    wanted = copy.deepcopy(block)(given).relu()
    torch.testing.assert_close(blocks(given), wanted)


@pytest.mark.parametrize(
    ("block", "size"), [(ResidualBlock(2, 300), 4), (ResidualBlock(2, 8, 4), 8)], ids=["channels", "stride"]
)
def test_blocks_that_are_too_large_are_left_to_modules(block: ResidualBlock, size: int) -> None:
    blocks = use_backend(ResidualTrunk(block), "triton").to(DEVICE)
    assert not blocks.runs_fused(torch.zeros(1, 2, size, size, device=DEVICE))


def test_features_that_do_not_fit_are_an_error() -> None:
    """The kernels would read beside them."""
    blocks = use_backend(ResidualTrunk(ResidualBlock(2, 8), ResidualBlock(8, 4)), "triton").to(DEVICE)
    for channels in (1, 3):
        with pytest.raises(RuntimeError, match=r"channels|running_mean"):
            blocks(torch.randn(2, channels, 6, 6, device=DEVICE))
    mismatched = use_backend(ResidualTrunk(ResidualBlock(2, 8), ResidualBlock(6, 4)), "triton").to(DEVICE)
    assert not mismatched.runs_fused(torch.randn(2, 2, 6, 6, device=DEVICE))


def test_the_backend_decides() -> None:
    primary = PrimaryCapsules(2, 4).to(DEVICE)
    given = torch.zeros(1, 2, 8, 8, device=DEVICE)
    assert primary.pose_trunk.runs_fused(given) == (DEVICE == "cuda")
    assert use_backend(primary, "triton").pose_trunk.runs_fused(given)
    assert not use_backend(primary, "reference").pose_trunk.runs_fused(given)


def test_hooks_on_a_trunk_or_a_head_fire() -> None:
    for name in ("pose_trunk", "pose_head", "pose_trunk.2", "pose_head.0"):
        primary = use_backend(PrimaryCapsules(2, 4, pose_blocks=((4, 1), (4, 2))), "triton").to(DEVICE)
        fired: list[str] = []
        primary.get_submodule(name).register_forward_hook(lambda *_, name=name, fired=fired: fired.append(name))
        primary(torch.rand(2, 2, 6, 6, device=DEVICE))
        assert fired == [name]


@pytest.mark.parametrize("with_a_head", [False, True])
def test_gradients_that_are_lost_on_the_way_are_none(with_a_head: bool) -> None:
    fused, _ = both([ResidualBlock(2, 4), ResidualBlock(4, 4)], 3)
    given = torch.randn(2, 2, 4, 4, device=DEVICE, requires_grad=True)
    found = with_head(*fused, given) if with_a_head else fused[0](given)
    Lost.apply(found).sum().backward()
    assert all(values.grad is None for values in (given, *fused.parameters()))


def test_a_gradient_of_gradients_is_refused() -> None:
    blocks = use_backend(ResidualTrunk(ResidualBlock(2, 4)), "triton").to(DEVICE)
    given = torch.randn(2, 2, 4, 4, device=DEVICE, requires_grad=True)
    (grad,) = torch.autograd.grad(blocks(given).square().sum(), given, create_graph=True)
    with pytest.raises(QuatcapsError, match=r"gradient of gradients .* use backend='reference'"):
        grad.sum().backward()


@pytest.mark.parametrize(("length", "chunk"), [(6, 16), (12, 16), (24, 32), (32, 32), (48, 64), (64, 64), (72, 32)])
def test_parts_are_as_large_as_they_can_be_with_little_waste(length: int, chunk: int) -> None:
    assert plan.chunk_of(length) == chunk


@pytest.mark.parametrize("positions", [1, 63, 4096, 65_536, 1_000_003])
def test_splits_hold_every_position_once(positions: int) -> None:
    cut = plan.split_of(plan.Sizes(32, 32, 32, 32, 32, 32, 3, 1), positions)
    assert (cut.splits - 1) * cut.per_program < positions <= cut.splits * cut.per_program

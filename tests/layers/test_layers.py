from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, PrimaryCapsules, ResidualBlock
from quatcaps.models import build
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.routing import EM

LAYERS = {
    "residual": lambda: ResidualBlock(2, 4, 2),
    "branched": lambda: PrimaryCapsules(2, 4),
    "joint": lambda: PrimaryCapsules(2, 4, activation_blocks=None),
    "convolutional": lambda: ConvolutionalCapsules(3, 4, 2),
    "class": lambda: ClassCapsules(3, 4),
}


def children(count: int, height: int, width: int, images: int = 2, dims: int = 3) -> Capsules:
    return Capsules(torch.randn(images, count, dims, height, width), torch.rand(images, count, height, width))


def images_or_children(name: str) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return tuple(children(3, 4, 5)) if name in ("convolutional", "class") else (torch.randn(2, 2, 8, 9),)


def unlike_the_start(module: nn.Module) -> nn.Module:
    """Batch normalisation with statistics and factors that do something."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for values in (part.weight, part.bias, part.running_mean, part.running_var):
                nn.init.uniform_(values, 0.5, 1.5)
    return module.eval()


def normalised(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, variance, weight, bias = (
        state[f"{name}.{key}"][:, None, None] for key in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_residual_block_is_the_published_one(stride: int) -> None:
    torch.manual_seed(0)
    block = unlike_the_start(ResidualBlock(3, 5, stride))
    images, state = torch.randn(2, 3, 7, 8), block.state_dict()
    active = normalised(images, state, "norm1").clamp(min=0)
    deeper = F.conv2d(F.pad(active, (1, 1, 1, 1)), state["conv1.weight"], stride=stride)
    deeper = F.conv2d(F.pad(normalised(deeper, state, "norm2").clamp(min=0), (1, 1, 1, 1)), state["conv2.weight"])
    skipped = torch.einsum("oi,nihw->nohw", state["skip.weight"][..., 0, 0], active[..., ::stride, ::stride])
    torch.testing.assert_close(block(images), deeper + skipped, rtol=1e-4, atol=1e-5)
    assert deeper.shape[2:] == (math.ceil(7 / stride), math.ceil(8 / stride))


def test_a_residual_block_has_no_biases_but_those_of_normalisation() -> None:
    numbers = sum(parameter.numel() for parameter in ResidualBlock(3, 5).parameters())
    assert numbers == 2 * 3 + 3 * 5 * 9 + 2 * 5 + 5 * 5 * 9 + 3 * 5


def assert_uniform(weight: Tensor, bound: float) -> None:
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.98 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_convolutions_start_kaiming_uniform() -> None:
    torch.manual_seed(0)
    block = ResidualBlock(64, 96)
    assert_uniform(block.conv1.weight, math.sqrt(6 / (64 * 9)))
    assert_uniform(block.conv2.weight, math.sqrt(6 / (96 * 9)))
    assert_uniform(block.skip.weight, math.sqrt(6 / 64))


def test_heads_start_xavier_uniform() -> None:
    torch.manual_seed(0)
    primary = PrimaryCapsules(2)
    assert_uniform(primary.pose_head[0].weight, math.sqrt(6 / (64 + 96)))
    assert_uniform(primary.activation_head[0].weight, math.sqrt(6 / (32 + 32)))
    assert not primary.pose_head[0].bias.any()
    assert not primary.activation_head[0].bias.any()


@pytest.mark.parametrize("size", [(8, 8), (9, 12), (1, 5)])
@pytest.mark.parametrize("blocks", [((8, 1), (8, 2)), ((8, 2), (8, 2)), ((8, 3),)])
@pytest.mark.parametrize("branched", [True, False])
def test_primary_capsules_stand_on_the_promised_grid(
    blocks: tuple[tuple[int, int], ...], size: tuple[int, int], branched: bool
) -> None:
    stride = math.prod(stride for _, stride in blocks)
    primary = PrimaryCapsules(2, 4, pose_blocks=blocks, activation_blocks=((8, stride),) if branched else None)
    poses, active = primary(torch.randn(3, 2, *size))
    grid = (math.ceil(size[0] / stride), math.ceil(size[1] / stride))
    assert primary.grid(*size) == grid
    assert poses.shape == (3, 4, 3, *grid)
    assert active.shape == (3, 4, *grid)
    assert ((active > 0) & (active < 1)).all()


@pytest.mark.parametrize("norm", [False, True])
def test_a_stem_is_one_convolution_normalised_where_asked_for(norm: bool) -> None:
    torch.manual_seed(0)
    primary = unlike_the_start(PrimaryCapsules(2, 4, stem=(6, 5, 2), stem_norm=norm, head_norm=False))
    images, state = torch.randn(3, 2, 9, 12), primary.state_dict()
    features = F.conv2d(images, state["pose_trunk.0.weight"], state.get("pose_trunk.0.bias"), stride=2)
    assert ("pose_trunk.0.bias" in state) == (not norm)
    if norm:
        features = normalised(features, state, "pose_trunk.1")
    logits = F.conv2d(features.clamp(min=0), state["activation_head.0.weight"], state["activation_head.0.bias"])
    torch.testing.assert_close(primary(images).activations, logits.sigmoid(), rtol=1e-4, atol=1e-5)
    assert primary.grid(9, 12) == logits.shape[2:]


def test_there_must_be_a_stem_to_normalise() -> None:
    with pytest.raises(QuatcapsError, match="stem_norm without a stem: give stem, or leave stem_norm out"):
        PrimaryCapsules(2, 4, stem_norm=True)


def test_primary_capsules_are_normalised_over_the_batch() -> None:
    torch.manual_seed(0)
    poses, active = PrimaryCapsules(2, 4)(7 + 5 * torch.randn(16, 2, 8, 8))
    logits = torch.logit(active.double())
    for values in (poses.double().transpose(0, 2).flatten(2), logits.transpose(0, 1).flatten(1)):
        torch.testing.assert_close(values.mean(-1), torch.zeros(values.shape[:-1]).double(), rtol=0, atol=1e-5)
        torch.testing.assert_close(values.std(-1), torch.ones(values.shape[:-1]).double(), rtol=0, atol=0.02)


def test_poses_may_be_normalised_by_capsule_type() -> None:
    """All numbers of a type's poses have one mean and one variance, over the batch and the grid."""
    torch.manual_seed(0)
    primary = PrimaryCapsules(2, 4, stem=(6, 3, 2), pose_norm="type", pose="matrix").double()
    assert {name for name, _ in primary.named_parameters() if name.endswith("bias")} == {
        "pose_trunk.0.bias",
        "pose_head.2.bias",
        "activation_head.1.bias",
    }
    images = 7 + 5 * torch.randn(8, 2, 9, 9).double()
    features = primary.pose_trunk(images)
    poses = torch.einsum("oi,nihw->nohw", primary.pose_head[0].weight[..., 0, 0], features).detach().numpy()
    for number in range(4):
        values = poses[:, 16 * number : 16 * (number + 1)]
        expected = (values - values.mean()) / (values.var() + 1e-5) ** 0.5
        np.testing.assert_allclose(primary(images).poses[:, number].detach(), expected, rtol=1e-10, atol=1e-12)
    for settings, message in (
        ({"pose_norm": "types"}, "unknown pose_norm 'types': did you mean 'type'"),
        ({"pose_norm": "type", "head_norm": False}, "pose_norm = type without head_norm"),
        ({"convolutions": "torch"}, "unknown convolutions 'torch'"),
    ):
        with pytest.raises(QuatcapsError, match=message):
            PrimaryCapsules(2, 4, **settings)


def test_convolutions_may_start_as_pytorchs() -> None:
    """Uniform within ±1/√(what a number is made of), biases too."""
    torch.manual_seed(0)
    primary = PrimaryCapsules(2, 4, convolutions="pytorch")
    for conv in (module for module in primary.modules() if isinstance(module, nn.Conv2d)):
        limit = conv.weight[0].numel() ** -0.5
        for values in (conv.weight, *([] if conv.bias is None else [conv.bias])):
            assert values.abs().max() <= limit
        assert conv.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.2)


@pytest.mark.parametrize("branched", [True, False])
def test_only_a_joint_trunk_feeds_both_heads(branched: bool) -> None:
    primary = PrimaryCapsules(2, 4, activation_blocks=((32, 2),) if branched else None)
    primary(torch.randn(2, 2, 8, 8)).activations.square().sum().backward()
    assert all((parameter.grad is None) is branched for parameter in primary.pose_trunk.parameters())
    assert all(parameter.grad is None for parameter in primary.pose_head.parameters())


def test_branches_must_stride_alike() -> None:
    with pytest.raises(QuatcapsError, match="activation branch strides by 1, the pose branch by 2: the two must be"):
        PrimaryCapsules(2, activation_blocks=((32, 1),))


@pytest.mark.parametrize(("kernel", "stride", "grid"), [(1, 1, (5, 7)), (3, 1, (3, 5)), (3, 2, (2, 3)), (5, 4, (1, 1))])
def test_convolutional_capsules_shapes(kernel: int, stride: int, grid: tuple[int, int]) -> None:
    layer = ConvolutionalCapsules(3, 6, kernel, stride)
    poses, active = layer(*children(3, 5, 7))
    assert poses.shape == (2, 6, 3, *grid)
    assert active.shape == (2, 6, *grid)
    assert layer.votes(5, 7) == math.prod(grid) * kernel * kernel * 3 * 6
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * kernel * kernel * 3 * 6 + 2 * 6


@pytest.mark.parametrize("grid", [(1, 1), (2, 5)])
def test_class_capsules_shapes(grid: tuple[int, int]) -> None:
    layer = ClassCapsules(3, 6)
    poses, active = layer(*children(3, *grid))
    assert poses.shape == (2, 6, 3)
    assert active.shape == (2, 6)
    assert layer.votes(*grid) == math.prod(grid) * 3 * 6
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * 3 * 6 + 2 * 6


def test_class_capsules_do_not_know_where_a_child_stands() -> None:
    torch.manual_seed(0)
    layer = ClassCapsules(3, 4).double()
    poses, active = (value.double() for value in children(3, 4, 5))
    mixed = torch.randperm(20)
    shuffled = layer(poses.flatten(3)[..., mixed].view_as(poses), active.flatten(2)[..., mixed].view_as(active))
    torch.testing.assert_close(shuffled, layer(poses, active))


@pytest.mark.parametrize("routing", [EM(1), EM(3, "logistic", "all")])
def test_layers_compose(routing: EM) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.primary = PrimaryCapsules(1, 6)
            self.middle = ConvolutionalCapsules(6, 4, 3, 2, routing=routing)
            self.top = ClassCapsules(4, 3, routing=routing)

        def forward(self, images: Tensor) -> Capsules:
            return self.top(*self.middle(*self.primary(images)))

    network = Network()
    output = network(torch.randn(2, 1, 12, 14))
    assert output.poses.shape == (2, 3, 3)
    assert output.activations.shape == (2, 3)
    output.activations[:, 0].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters() if parameter.grad is not None)
    assert (network.primary.pose_trunk[0].conv1.weight.grad != 0).any()
    assert (network.primary.activation_trunk[0].conv1.weight.grad != 0).any()


@pytest.mark.parametrize("layer", [ConvolutionalCapsules(3, 4, 2), ClassCapsules(3, 4)], ids=["convolutional", "class"])
@pytest.mark.parametrize(
    ("poses", "activations", "message"),
    [
        ((2, 3, 4, 4), (2, 3, 4, 4), r"poses have shape \(2, 3, 4, 4\).*3 capsules, 3 numbers"),
        ((2, 5, 3, 4, 4), (2, 5, 4, 4), r"poses have shape \(2, 5, 3, 4, 4\).*3 capsules, 3 numbers"),
        ((2, 3, 4, 4, 4), (2, 3, 4, 4), r"poses have shape \(2, 3, 4, 4, 4\).*3 capsules, 3 numbers"),
        ((2, 3, 3, 4, 4), (2, 3, 4, 5), r"activations have shape \(2, 3, 4, 5\).*\(2, 3, 4, 4\)"),
        ((2, 3, 3, 4, 4), (1, 3, 4, 4), r"activations have shape \(1, 3, 4, 4\).*\(2, 3, 4, 4\)"),
    ],
)
def test_wrong_shapes(layer: nn.Module, poses: tuple[int, ...], activations: tuple[int, ...], message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        layer(torch.zeros(poses), torch.zeros(activations))


@pytest.mark.parametrize("layer", [ConvolutionalCapsules(3, 4, 2), ClassCapsules(3, 4)], ids=["convolutional", "class"])
@pytest.mark.parametrize("which", [0, 1])
def test_wrong_dtypes(layer: nn.Module, which: int) -> None:
    tensors = list(children(3, 4, 4))
    tensors[which] = tensors[which].long()
    with pytest.raises(QuatcapsError, match=r"torch\.int64.*: give floating-point"):
        layer(*tensors)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 8, 8), r"\(2, 3, 8, 8\).*2 channels"),
        (torch.zeros(2, 8, 8), r"\(2, 8, 8\).*2 channels"),
        (torch.zeros(2, 2, 8, 8, dtype=torch.uint8), "uint8"),
    ],
    ids=["channels", "dimensions", "dtype"],
)
def test_wrong_images_for_primary_capsules(images: Tensor, message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        PrimaryCapsules(2)(images)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize(
    "build",
    [
        lambda count: PrimaryCapsules(count),
        lambda count: PrimaryCapsules(2, count),
        lambda count: ConvolutionalCapsules(count, 4),
        lambda count: ConvolutionalCapsules(4, count),
        lambda count: ClassCapsules(count, 4),
        lambda count: ClassCapsules(4, count),
    ],
    ids=["channels", "primary", "children", "parents", "class children", "classes"],
)
def test_counts_below_one(build: Callable[[int], nn.Module], count: int) -> None:
    with pytest.raises(QuatcapsError, match=rf"{count}\b.*at least 1"):
        build(count)


def test_a_trunk_needs_a_block() -> None:
    with pytest.raises(QuatcapsError, match="block"):
        PrimaryCapsules(2, pose_blocks=(), activation_blocks=None)


@pytest.mark.parametrize("competition", ["position", "all"])
def test_no_images_give_no_capsules(competition: str) -> None:
    routing = EM(competition=competition)
    middle = ConvolutionalCapsules(3, 4, 2, routing=routing)(*children(3, 4, 4, images=0))
    assert middle.poses.shape == (0, 4, 3, 3, 3)
    assert ClassCapsules(4, 5, routing=routing)(*middle).poses.shape == (0, 5, 3)


def test_a_grid_smaller_than_the_kernel() -> None:
    with pytest.raises(QuatcapsError, match="4×6 capsules is smaller than the 5×5 window: give a larger input"):
        ConvolutionalCapsules(3, 4)(*children(3, 4, 6))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_ordinary_modules(name: str) -> None:
    layer = LAYERS[name]()
    assert all(isinstance(part, nn.Module) for part in layer.children())
    assert len(list(layer.children())) > 1
    inputs = images_or_children(name)
    layer(*inputs)
    layer.eval()
    expected = layer(*inputs)
    torch.testing.assert_close(copy.deepcopy(layer)(*inputs), expected, rtol=0, atol=0)
    other = LAYERS[name]().eval()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(*inputs), expected, rtol=0, atol=0)
    wide = layer.to(torch.float64)(*(value.double() for value in inputs))
    torch.testing.assert_close(wide, expected, check_dtype=False, rtol=1e-4, atol=1e-4)
    assert all(value.dtype is torch.float64 for value in ([wide] if isinstance(wide, Tensor) else wide))


@pytest.mark.parametrize("training", [True, False])
def test_hooks_on_every_norm_of_a_block_fire(training: bool) -> None:
    block = ResidualBlock(2, 4).train(training)
    fired = []
    for name, part in block.named_children():
        part.register_forward_hook(lambda module, inputs, output, name=name: fired.append(name))
    copy.deepcopy(block)(torch.randn(3, 2, 6, 6))
    assert sorted(fired) == sorted(name for name, _ in block.named_children())


def test_images_of_another_dtype_are_named_on_any_device() -> None:
    """Also where there is no autocast to ask for."""
    layer = PrimaryCapsules(2, 4)
    for device in ("cpu", "meta"):
        with pytest.raises(QuatcapsError, match=r"images are torch.float64 and the weights torch.float32"):
            layer.to(device)(torch.empty(1, 2, 8, 8, dtype=torch.float64, device=device))


def test_primary_capsules_are_the_papers_by_default() -> None:
    """Those of its whole network, whose parameters are counted elsewhere."""
    whole = build("qcn", channels=2, classes=5)
    assert isinstance(whole, CapsuleNetwork)
    shapes = {name: values.shape for name, values in PrimaryCapsules(channels=2).state_dict().items()}
    assert shapes == {name: values.shape for name, values in whole.primary.state_dict().items()}

"""Primary capsules: from images to the first poses and activations.

Branched, as the paper proposes: poses and activations come from networks of their own, aligned in space.
Joint, as in earlier capsule networks: both heads read one trunk.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.layers.convolution import Convolution, SameConvolution
from quatcaps.layers.images import check_images
from quatcaps.layers.residual import residual_trunk, with_head
from quatcaps.poses import PoseType, pose_type
from quatcaps.quaternion import safe_unit

POSE_NORMS = ("number", "type")
CONVOLUTIONS = ("scaled", "pytorch", "xavier")
STEM_PADDINGS = ("none", "same")
XAVIER_BIASES = 0.01
"""The deviation of biases under `convolutions="xavier"`, cut at two of them."""
IMAGE_EPSILON, IMAGE_MOMENTUM = 1e-3, 1e-3
"""Of `image_norm`: TensorFlow's defaults, the momentum as PyTorch counts it. Images are standardised already, so that
running values of 0 and 1 are a good start."""


class PrimaryCapsules(nn.Module):
    """(N, channels, H, W) → capsules on a grid of ⌈H/s⌉ × ⌈W/s⌉, s the product of the strides.

    `pose_blocks` and `activation_blocks` list the residual blocks of each branch as (channels, stride); without
    `activation_blocks` the two heads share the pose trunk. `stem` is one convolution (channels, kernel, stride), with a
    ReLU, and with `stem_norm` batch normalisation before it, that both heads read instead: without padding, the grid is
    then ⌊(H − kernel)/stride⌋ + 1 high; with the `stem_padding` `same`, ⌈H/stride⌉. `image_norm`: the images are batch
    normalised first, without a learned scale and shift. Activations end in a sigmoid, and before it, as poses do, in
    batch normalisation, unless there is no `head_norm`. `pose_norm`: that of poses has a mean and a variance for each
    `number` of a capsule type's pose, or for each `type`; the heads then have no biases, which it would take out again.
    `unit`: poses are divided by their norm. `convolutions` start `scaled`, Kaiming-uniform in trunks and Xavier-uniform
    in heads, with biases of 0; as `pytorch` starts them; or `xavier`, Xavier-uniform in both, with biases of deviation
    0.01.
    """

    def __init__(
        self,
        channels: int,
        capsules: int = 32,
        *,
        pose_blocks: Sequence[tuple[int, int]] = ((32, 1), (64, 2)),
        activation_blocks: Sequence[tuple[int, int]] | None = ((32, 2),),
        stem: tuple[int, int, int] | None = None,
        stem_norm: bool = False,
        stem_padding: str = "none",
        image_norm: bool = False,
        head_norm: bool = True,
        pose_norm: str = "number",
        pose: str | PoseType = "quaternion",
        unit: bool = False,
        convolutions: str = "scaled",
    ) -> None:
        super().__init__()
        for what, name, known in (
            ("pose_norm", pose_norm, POSE_NORMS),
            ("convolutions", convolutions, CONVOLUTIONS),
            ("stem_padding", stem_padding, STEM_PADDINGS),
        ):
            if name not in known:
                raise unknown_name(what, name, known)
        by_type = pose_norm == "type"
        if by_type and not head_norm:
            raise QuatcapsError("pose_norm = type without head_norm: give head_norm too, or leave pose_norm out")
        self.unit = unit
        at_least_one("primary capsules", capsules)
        self.channels, self.capsules = channels, capsules
        self.dims, self.stem = pose_type(pose).dims, stem
        if stem is None and (stem_norm or stem_padding != "none"):
            without = "stem_norm" if stem_norm else "stem_padding"
            raise QuatcapsError(f"{without} without a stem: give stem, or leave {without} out")
        self.stem_padded = stem_padding == "same"
        self.image_norm = (
            nn.BatchNorm2d(channels, eps=IMAGE_EPSILON, momentum=IMAGE_MOMENTUM, affine=False) if image_norm else None
        )
        if stem is not None:
            self.stride = stem[2]
            self.pose_trunk = convolution_stem(channels, *stem, norm=stem_norm, padded=self.stem_padded)
            features, activation_blocks = stem[0], None
        else:
            self.stride = math.prod(stride for _, stride in pose_blocks)
            self.pose_trunk = residual_trunk(channels, *_columns(pose_blocks))
            features = pose_blocks[-1][0]
        self.pose_head = (
            _head_by_type(features, capsules, self.dims)
            if by_type
            else _head(features, capsules * self.dims, head_norm)
        )
        if activation_blocks is None:
            self.activation_trunk = None
            self.activation_head = _head(features, capsules, head_norm, bias=not by_type)
        else:
            stride = math.prod(stride for _, stride in activation_blocks)
            if stride != self.stride:
                raise QuatcapsError(
                    f"the activation branch strides by {stride}, the pose branch by {self.stride}: the two must "
                    "be equal to stay aligned"
                )
            self.activation_trunk = residual_trunk(channels, *_columns(activation_blocks))
            self.activation_head = _head(activation_blocks[-1][0], capsules, head_norm, bias=not by_type)
        for module in self.modules():
            if convolutions == "pytorch" and isinstance(module, nn.Conv2d):
                module.reset_parameters()
            elif convolutions == "xavier" and isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    cut = 2 * XAVIER_BIASES
                    nn.init.trunc_normal_(module.bias, std=XAVIER_BIASES, a=-cut, b=cut)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The grid of capsules over images of that size."""
        if self.stem is not None and not self.stem_padded:
            _, kernel, stride = self.stem
            return ((height - kernel) // stride + 1, (width - kernel) // stride + 1)
        return (math.ceil(height / self.stride), math.ceil(width / self.stride))

    def forward(self, images: Tensor) -> Capsules:
        check_images(images, self.channels, next(self.parameters()))
        if self.image_norm is not None:
            images = self.image_norm(images)
        activation_trunk = self.activation_trunk
        if activation_trunk is None:
            features = self.pose_trunk(images)
            poses, logits = self.pose_head(features), self.activation_head(features)
        else:
            poses, logits = side_by_side(
                lambda: with_head(self.pose_trunk, self.pose_head, images),
                lambda: with_head(activation_trunk, self.activation_head, images),
                images.device,
            )
        poses = poses.unflatten(1, (self.capsules, self.dims))
        return Capsules(safe_unit(poses, 2) if self.unit else poses, logits.sigmoid())


def side_by_side(
    first: Callable[[], Tensor], second: Callable[[], Tensor], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Both results; on a GPU, computed at the same time on two streams, and so are their gradients."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return first(), second()
    main, side = torch.cuda.current_stream(device), side_stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        beside = second()
    result = first()
    main.wait_stream(side)
    beside.record_stream(main)
    return result, beside


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """One per device: memory is kept by stream, and would grow with their number."""
    return torch.cuda.Stream(device)


def _columns(blocks: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(channels for channels, _ in blocks), tuple(stride for _, stride in blocks)


def convolution_stem(
    channels_in: int, channels_out: int, kernel: int, stride: int, norm: bool = False, padded: bool = False
) -> nn.Sequential:
    """One convolution, Kaiming-uniform, without padding or with it on all sides; batch normalisation, or else a bias;
    and a ReLU."""
    for what, count in (("channels", channels_out), ("kernel", kernel), ("stride", stride)):
        at_least_one(f"{what} of the stem", count)
    conv = (SameConvolution if padded else Convolution)(channels_in, channels_out, kernel, stride, bias=not norm)
    nn.init.kaiming_uniform_(conv.weight, nonlinearity="relu")
    if norm:
        return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())
    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
    return nn.Sequential(conv, nn.ReLU())


def _head_by_type(channels_in: int, capsules: int, dims: int) -> nn.Sequential:
    """A 1×1 convolution, Xavier-uniform, and batch normalisation of all numbers of a capsule type together."""
    conv = _head(channels_in, capsules * dims, norm=False, bias=False)[0]
    return nn.Sequential(conv, nn.Unflatten(1, (capsules, dims)), nn.BatchNorm3d(capsules), nn.Flatten(1, 2))


def _head(channels_in: int, channels_out: int, norm: bool, bias: bool = True) -> nn.Sequential:
    """A 1×1 convolution, Xavier-uniform, and batch normalisation where asked for."""
    conv = Convolution(channels_in, channels_out, 1, bias=bias)
    nn.init.xavier_uniform_(conv.weight)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return nn.Sequential(conv, *([nn.BatchNorm2d(channels_out)] if norm else []))

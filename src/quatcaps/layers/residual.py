"""The residual block of the paper's figure 4: pre-activation, as in Deep Complex Networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps.errors import at_least_one

CHANNELS_LAST_FROM = 2**14
"""Numbers per image."""


class ResidualBlock(nn.Module):
    """BN-ReLU-3×3(stride s)-BN-ReLU-3×3, plus a 1×1 stride-s convolution of the activated input; no biases.

    (N, channels_in, H, W) → (N, channels_out, ⌈H/s⌉, ⌈W/s⌉). Convolutions start Kaiming-uniform. `plain_skip`: where
    nothing changes its shape, the input itself is added, as in other residual networks.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int = 1, *, plain_skip: bool = False) -> None:
        super().__init__()
        for what, count in (
            ("channels in", channels_in),
            ("channels of a block", channels_out),
            ("stride of a block", stride),
        ):
            at_least_one(what, count)
        self.norm1 = BatchNormOfImages(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        plain = plain_skip and stride == 1 and channels_in == channels_out
        self.skip = None if plain else nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for conv in (self.conv1, self.conv2, self.skip):
            if conv is not None:
                nn.init.kaiming_uniform_(conv.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        activated = F.relu(self.norm1(images))
        deeper = well_laid(self.conv1(activated))
        if deeper.is_contiguous(memory_format=torch.channels_last):
            activated = activated.contiguous(memory_format=torch.channels_last)
        skipped = images if self.skip is None else self.skip(activated)
        return self.conv2(F.relu(self.norm2(deeper))) + skipped


def well_laid(features: Tensor) -> Tensor:
    """The same features, laid out in memory as convolutions and normalisations like them best: on a GPU, large ones
    with channels last. Measured in docs/performance.md; images and small features are faster as they are."""
    if features.is_cuda and features[0].numel() >= CHANNELS_LAST_FROM:
        return features.contiguous(memory_format=torch.channels_last)
    return features


class BatchNormOfImages(nn.BatchNorm2d):
    """Batch normalisation, (N, C, H, W) → the same; of images in training on a GPU, by sums of our own: the library's
    kernels give each channel one block of threads, and compute a gradient that nobody asks for. We sum image by image
    first. What our sums do not know, such as no momentum, is the library's."""

    def forward(self, features: Tensor) -> Tensor:
        usual = self.momentum is not None and self.running_mean is not None and self.affine
        if self.training and usual and constant_on_gpu(features) and features.dtype == self.weight.dtype:
            self._check_input_dim(features)
            return normalised_constants(self, features)
        return super().forward(features)


def constant_on_gpu(features: Tensor) -> bool:
    """Whether features are on a GPU and need no gradient."""
    return features.is_cuda and not features.requires_grad


def normalised_constants(norm: nn.BatchNorm2d, features: Tensor) -> Tensor:
    """Batch normalisation in training of features that need no gradient."""
    images, _, height, width = features.shape
    momentum, mean_so_far, variance_so_far = norm.momentum, norm.running_mean, norm.running_var
    assert momentum is not None
    assert mean_so_far is not None
    assert variance_so_far is not None
    with torch.no_grad():
        mean = features.mean((2, 3)).mean(0)
        centred = features - mean[:, None, None]
        variance = centred.square().mean((2, 3)).mean(0)
        standard = centred * (variance + norm.eps).rsqrt()[:, None, None]
        count = images * height * width
        mean_so_far.lerp_(mean, momentum)
        variance_so_far.lerp_(variance * (count / max(1, count - 1)), momentum)
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
    weight, bias = (values.repeat(images, 1)[:, :, None, None] for values in (norm.weight, norm.bias))
    return torch.addcmul(bias, standard, weight)


def residual_trunk(channels_in: int, channels: tuple[int, ...], strides: tuple[int, ...]) -> nn.Sequential:
    """Residual blocks one after the other, closed by a ReLU."""
    at_least_one("residual blocks", len(channels))
    before = (channels_in, *channels[:-1])
    blocks = [ResidualBlock(*shape) for shape in zip(before, channels, strides, strict=True)]
    return nn.Sequential(*blocks, nn.ReLU())

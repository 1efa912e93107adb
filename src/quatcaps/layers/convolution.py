"""The convolutions of trunks and heads: PyTorch's, but where gradients are wanted on ARM, by faster ways."""

from __future__ import annotations

import platform

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps.layers import native
from quatcaps.layers.native import convolution as by_tiles

ON_ARM = platform.machine() in ("aarch64", "arm64")


class Convolution(nn.Conv2d):
    """`nn.Conv2d`. For a training step on an ARM CPU, PyTorch's own convolution by matrix products takes two thirds of
    the time of oneDNN's, which PyTorch prefers, and one of 3×3 by tiles, in C, half of that (docs/performance.md)."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if ON_ARM and torch.is_grad_enabled() and self.by_matrix_products(input, weight):
            convolved: Tensor
            if self.by_tiles(input, weight):
                convolved = by_tiles.convolution(input, weight)
                return convolved if bias is None else convolved + bias[:, None, None]
            convolved = torch.ops.aten.thnn_conv2d(input, weight, self.kernel_size, bias, self.stride, self.padding)
            return convolved
        return super()._conv_forward(input, weight, bias)

    def by_tiles(self, images: Tensor, weight: Tensor) -> bool:
        """Whether the library in C knows this convolution, and is faster."""
        window = (self.kernel_size, self.stride, self.padding) == ((3, 3), (1, 1), (1, 1))
        return window and images.numel() > 0 and by_tiles.pays(weight) and native.problem() is None

    def by_matrix_products(self, images: Tensor, weight: Tensor) -> bool:
        """Whether the other way knows this convolution, in float32 on a CPU and in plain PyTorch."""
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() or torch.is_autocast_enabled("cpu"):
            return False
        usual = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        return (
            usual and (self.groups, self.dilation, images.ndim) == (1, (1, 1), 4) and all(map(plain, (images, weight)))
        )


class SameConvolution(Convolution):
    """(N, channels, H, W) → (N, channels, ⌈H/stride⌉, ⌈W/stride⌉): zeros around the image as `margins` says, which is
    TensorFlow's padding "SAME"."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        height, width = input.shape[-2:]
        top, bottom = margins(height, self.kernel_size[0], self.stride[0])
        left, right = margins(width, self.kernel_size[1], self.stride[1])
        return super()._conv_forward(F.pad(input, (left, right, top, bottom)), weight, bias)


def margins(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """The zeros before and behind `side` pixels with which a kernel has ⌈side/stride⌉ places; of an odd number, the
    larger half behind.

    >>> margins(32, kernel=5, stride=2)
    (1, 2)
    """
    needed = (-(-side // stride) - 1) * stride + kernel
    missing = max(0, needed - side)
    return missing // 2, missing - missing // 2


def plain(tensor: Tensor) -> bool:
    """Whether a tensor is just numbers, float32 on a CPU."""
    known = type(tensor) in (Tensor, nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return known and tensor.dtype == torch.float32 and tensor.device.type == "cpu"

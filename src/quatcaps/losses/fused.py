"""The spread loss by one kernel: plain PyTorch takes 26 small ones for it and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quatcaps.operators import operator

TILE, MOST_CLASSES = 2048, 4096
"""Numbers that are looked at together."""


def compute(activations: Tensor, labels: Tensor, margin: Tensor, class_weights: Tensor | None) -> tuple[Tensor, Tensor]:
    from quatcaps.losses.kernels import spread as kernels

    given = activations.contiguous()
    images, classes = given.shape
    tile_classes = 1 << (classes - 1).bit_length()
    loss, grad = given.new_empty(()), torch.empty_like(given)
    kernels.spread[(1,)](
        given,
        labels.contiguous(),
        margin,
        given if class_weights is None else class_weights.contiguous(),
        loss,
        grad,
        images,
        classes,
        WEIGHTED=class_weights is not None,
        TILE=max(1, TILE // tile_classes),
        TILE_CLASSES=tile_classes,
        num_warps=8,
    )
    return loss, grad


def empty(activations: Tensor, labels: Tensor, margin: Tensor, class_weights: Tensor | None) -> tuple[Tensor, Tensor]:
    return activations.new_empty(()), activations.new_empty(activations.shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def differentiate(ctx: Any, grad_loss: Tensor, grad_grad: Tensor) -> tuple[Tensor | None, ...]:
    return ctx.saved_tensors[0] * grad_loss, None, None, None


spread_and_gradient = operator(
    "spread_loss",
    "(Tensor activations, Tensor labels, Tensor margin, Tensor? class_weights) -> (Tensor, Tensor)",
    compute,
    empty,
    save=save,
    differentiate=differentiate,
)
"""The loss of (N, classes) activations, and its gradient."""

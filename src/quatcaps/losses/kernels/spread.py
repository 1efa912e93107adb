"""The spread loss and its gradient."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread(
    activations,  # (n, c)
    labels,  # (n,)
    margin,  # ()
    class_weights,  # (c,)
    loss,  # ()
    grad,  # (n, c)
    images,
    classes,
    WEIGHTED: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CLASSES: tl.constexpr,
):
    """L = 1/N Σ_n w_t Σ_{i ≠ t} s², s = max(0, m − (a_t − a_i)): dL/da_i = 2 w_t s/N, and dL/da_t is minus their sum.
    One program goes over all images, so that there is one order."""
    c = tl.arange(0, TILE_CLASSES)
    m = tl.load(margin)
    total = tl.zeros([TILE, TILE_CLASSES], tl.float32)
    for start in range(0, images, TILE):
        n = start + tl.arange(0, TILE)
        there = (n < images)[:, None] & (c < classes)[None, :]
        label = tl.load(labels + n, mask=n < images, other=0)
        a = tl.load(activations + n[:, None] * classes + c[None, :], mask=there, other=0.0)
        own = c[None, :] == label[:, None]
        true = tl.sum(tl.where(own, a, 0.0), 1)
        short = tl.maximum(m - (true[:, None] - a), 0.0, propagate_nan=tl.PropagateNan.ALL)
        short = tl.where(there & (own == 0), short, 0.0)
        weight = tl.full([TILE], 1.0, tl.float32)
        if WEIGHTED:
            weight = tl.load(class_weights + label, mask=n < images, other=0.0)
        total += weight[:, None] * short * short
        slope = 2 * weight[:, None] * short / images
        slope = tl.where(own, -tl.sum(slope, 1)[:, None], slope)
        tl.store(grad + n[:, None] * classes + c[None, :], slope, mask=there)
    tl.store(loss, tl.sum(tl.sum(total, 1), 0) / images)

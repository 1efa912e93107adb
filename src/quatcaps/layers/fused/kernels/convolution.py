"""Convolutions of 3×3 and 1×1, what goes into them normalised and rectified on the way, and their gradients.

A tile is [positions × channels at one place of their windows], multiplied by as many rows of the weights, which lie as
(row, column, channel in, channel out). What lies outside an image is 0 after normalisation, as padding is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.layers.fused.plan import LEAST_ALONE as _LEAST_ALONE

LEAST_ALONE = tl.constexpr(_LEAST_ALONE)


@triton.jit
def place(position, height, width):
    """Image, row and column of a position."""
    return position // (height * width), position // width % height, position % width


@triton.jit
def window_part(
    source,
    affine,
    image,
    row,
    column,
    valid,
    step,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    CHUNK: tl.constexpr,
    NORMALISED: tl.constexpr,
):
    """[positions × CHUNK] normalised, rectified numbers of the windows at output positions (row, column): the step-th
    part of what a window is cut into; and which rows of the weights they meet, and whether there are such.

    A part is of one place in the window. Where channels are few, it is of a whole row of the window, whose places lie
    side by side in memory.
    """
    WHOLE_ROWS: tl.constexpr = CHANNELS < LEAST_ALONE
    PLACES: tl.constexpr = KERNEL if WHOLE_ROWS else KERNEL * KERNEL
    LENGTH: tl.constexpr = CHANNELS * (KERNEL * KERNEL // PLACES)
    PARTS: tl.constexpr = (LENGTH + CHUNK - 1) // CHUNK
    part = step // PARTS
    k = step % PARTS * CHUNK + tl.arange(0, CHUNK)
    known = k < LENGTH
    if WHOLE_ROWS:
        y, x = part, 0
    else:
        y, x = part // KERNEL, part % KERNEL
    at_y = STRIDE * row - KERNEL // 2 + y
    at_x = STRIDE * column - KERNEL // 2 + x
    inside = (valid & (at_y >= 0) & (at_y < HEIGHT))[:, None]
    if WHOLE_ROWS:
        each_x = at_x[:, None] + (k // CHANNELS)[None, :]
        inside = inside & (each_x >= 0) & (each_x < WIDTH)
    else:
        inside = inside & ((at_x >= 0) & (at_x < WIDTH))[:, None]
    if LENGTH % CHUNK != 0:
        inside = inside & known[None, :]
    begin = ((image * HEIGHT + at_y) * WIDTH + at_x) * CHANNELS
    values = tl.load(source + begin[:, None] + k[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORMALISED:
        scale = tl.load(affine + k % CHANNELS, mask=known, other=0.0)
        shift = tl.load(affine + CHANNELS + k % CHANNELS, mask=known, other=0.0)
        values = tl.where(inside, values * scale[None, :] + shift[None, :], 0.0)
    return tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL), part * LENGTH + k, known


@triton.jit
def source_part(source, affine, image, row, column, valid, step, SIZES: tl.constexpr, CHUNK: tl.constexpr):
    """`window_part` of what a convolution reads."""
    return window_part(
        source,
        affine,
        image,
        row,
        column,
        valid,
        step,
        SIZES.HEIGHT,
        SIZES.WIDTH,
        SIZES.IN,
        SIZES.KERNEL,
        SIZES.STRIDE,
        CHUNK,
        SIZES.NORMALISED,
    )


@triton.jit
def convolve(
    source,  # (n, y, x, c)
    affine,  # (2, c): the normalisation of the source
    weight,  # (ky, kx, c, o)
    beside,  # (n, y, x, b): what the shortcut comes from, of the block's input
    beside_affine,  # (2, b)
    beside_weight,  # (b, o)
    bias,  # (o,)
    out,  # (n, y, x, o)
    parts,  # (tile, 2, o): the mean of each tile, and the sum of squares about it
    positions,
    SIZES: tl.constexpr,
    TILE: tl.constexpr,
    TILE_OUT: tl.constexpr,
    STEPS: tl.constexpr,
    MEASURED: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNK_BESIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A convolution of normalised, rectified features, plus the block's shortcut; and the moments of what comes out."""
    position = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = position < positions
    image, row, column = place(position, SIZES.OUT_HEIGHT, SIZES.OUT_WIDTH)
    o = tl.arange(0, TILE_OUT)
    total = tl.zeros([TILE, TILE_OUT], tl.float32)
    for step in range(STEPS):
        values, k, known = source_part(source, affine, image, row, column, valid, step, SIZES, CHUNK)
        mask = known[:, None] & (o < SIZES.OUT)[None, :]
        w = tl.load(weight + k[:, None] * SIZES.OUT + o[None, :], mask=mask, other=0.0)
        total = product(values, w, total, PRECISION)
    if SIZES.SHORTCUT == 1:
        for step in range((SIZES.BESIDE + CHUNK_BESIDE - 1) // CHUNK_BESIDE):
            values, k, known = window_part(
                beside,
                beside_affine,
                image,
                row,
                column,
                valid,
                step,
                SIZES.BESIDE_HEIGHT,
                SIZES.BESIDE_WIDTH,
                SIZES.BESIDE,
                1,
                SIZES.BESIDE_STRIDE,
                CHUNK_BESIDE,
                True,
            )
            mask = known[:, None] & (o < SIZES.OUT)[None, :]
            w = tl.load(beside_weight + k[:, None] * SIZES.OUT + o[None, :], mask=mask, other=0.0)
            total = product(values, w, total, PRECISION)
    where = position[:, None] * SIZES.OUT + o[None, :]
    mask = valid[:, None] & (o < SIZES.OUT)[None, :]
    if SIZES.BIASED:
        total += tl.load(bias + o, mask=o < SIZES.OUT, other=0.0)[None, :]
    if SIZES.SHORTCUT == 2:
        total += tl.load(beside + where, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + where, total.to(out.dtype.element_ty), mask=mask)
    if MEASURED:
        count = tl.minimum(positions - tl.program_id(0) * TILE, TILE)
        mean = tl.sum(tl.where(mask, total, 0.0), 0) / count
        apart = tl.where(mask, total - mean[None, :], 0.0)
        part = parts + tl.program_id(0) * 2 * SIZES.OUT + o
        tl.store(part, mean, mask=o < SIZES.OUT)
        tl.store(part + SIZES.OUT, tl.sum(apart * apart, 0), mask=o < SIZES.OUT)


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr):
    """total + left · right. PRECISION: of the factors; sums are float32."""
    if PRECISION == "bf16":
        return tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16), total)
    else:
        return tl.dot(left, right.to(tl.float32), total, input_precision=PRECISION)


@triton.jit
def convolve_back(
    grad,  # (n, y, x, o): of what the convolution gave
    weight,  # (ky, kx, c, o)
    grad_beside,  # (n, y, x, b): of what the block gave, which its shortcut is part of
    beside_weight,  # (c, b)
    source,  # (n, y, x, c)
    affine,  # (2, c)
    moments,  # (2, c): the mean of the source, and one over its deviation
    out,  # (n, y, x, c): the gradient of the normalised source
    parts,  # (program, 2, c): its sum over a tile, and that of its product with the standardised source
    images,
    SIZES: tl.constexpr,
    TILE: tl.constexpr,
    TILE_IN: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNK_BESIDE: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of what goes into a convolution, through the ReLU before it.

    With a stride of 2 a position takes part in windows by whether its row and its column are odd: four classes of
    positions, each a grid of its own.
    """
    STRIDE: tl.constexpr = SIZES.STRIDE
    odd_y, odd_x = tl.program_id(1) // 2, tl.program_id(1) % 2
    class_height, class_width = (
        (SIZES.HEIGHT - odd_y + STRIDE - 1) // STRIDE,
        (SIZES.WIDTH - odd_x + STRIDE - 1) // STRIDE,
    )
    position = tl.program_id(0) * TILE + tl.arange(0, TILE)
    image, row, column = place(position, class_height, class_width)
    valid = image < images
    c = tl.arange(0, TILE_IN)
    total = tl.zeros([TILE, TILE_IN], tl.float32)
    if STRIDE == 1:
        rows, columns, back = SIZES.KERNEL, SIZES.KERNEL, SIZES.KERNEL // 2
    else:
        rows, columns, back = 1 + odd_y, 1 + odd_x, 0
    PARTS: tl.constexpr = (SIZES.OUT + CHUNK - 1) // CHUNK
    for step in range(rows * columns * PARTS):
        i, j = step // PARTS // columns, step // PARTS % columns
        o = step % PARTS * CHUNK + tl.arange(0, CHUNK)
        if STRIDE == 1:
            y, x = SIZES.KERNEL - 1 - i, SIZES.KERNEL - 1 - j
        else:
            y, x = 1 + odd_y * (1 - 2 * i), 1 + odd_x * (1 - 2 * j)
        at_y, at_x = row - back + i, column - back + j
        inside = valid & (at_y >= 0) & (at_y < SIZES.OUT_HEIGHT) & (at_x >= 0) & (at_x < SIZES.OUT_WIDTH)
        known = o < SIZES.OUT
        mask = inside[:, None] if SIZES.OUT % CHUNK == 0 else inside[:, None] & known[None, :]
        begin = ((image * SIZES.OUT_HEIGHT + at_y) * SIZES.OUT_WIDTH + at_x) * SIZES.OUT
        g = tl.load(grad + begin[:, None] + o[None, :], mask=mask, other=0.0)
        at = ((y * SIZES.KERNEL + x) * SIZES.IN + c[None, :]) * SIZES.OUT + o[:, None]
        w = tl.load(weight + at, mask=known[:, None] & (c < SIZES.IN)[None, :], other=0.0)
        total = product(g.to(tl.float32), w, total, PRECISION)
    if SIZES.SHORTCUT == 1:
        in_shortcut = valid & (odd_y == 0) & (odd_x == 0)
        begin = ((image * SIZES.OUT_HEIGHT + row) * SIZES.OUT_WIDTH + column) * SIZES.BESIDE
        for step in range((SIZES.BESIDE + CHUNK_BESIDE - 1) // CHUNK_BESIDE):
            k = step * CHUNK_BESIDE + tl.arange(0, CHUNK_BESIDE)
            known = k < SIZES.BESIDE
            g = tl.load(
                grad_beside + begin[:, None] + k[None, :], mask=in_shortcut[:, None] & known[None, :], other=0.0
            )
            at = c[None, :] * SIZES.BESIDE + k[:, None]
            w = tl.load(beside_weight + at, mask=known[:, None] & (c < SIZES.IN)[None, :], other=0.0)
            total = product(g.to(tl.float32), w, total, PRECISION)
    known = c < SIZES.IN
    pixel = (image * SIZES.HEIGHT + STRIDE * row + odd_y) * SIZES.WIDTH + STRIDE * column + odd_x
    where = pixel[:, None] * SIZES.IN + c[None, :]
    mask = valid[:, None] & known[None, :]
    values = tl.load(source + where, mask=mask, other=0.0).to(tl.float32)
    if not SIZES.NORMALISED:
        tl.store(out + where, tl.where(values > 0, total, 0.0).to(out.dtype.element_ty), mask=mask)
    else:
        scale = tl.load(affine + c, mask=known, other=0.0)
        shift = tl.load(affine + SIZES.IN + c, mask=known, other=0.0)
        mean = tl.load(moments + c, mask=known, other=0.0)
        inverse = tl.load(moments + SIZES.IN + c, mask=known, other=0.0)
        total = tl.where(mask & (values * scale[None, :] + shift[None, :] > 0), total, 0.0)
        if KEEP:
            tl.store(out + where, total.to(out.dtype.element_ty), mask=mask)
        standard = (values - mean[None, :]) * inverse[None, :]
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        part = parts + program * 2 * SIZES.IN + c
        tl.store(part, tl.sum(total, 0), mask=known)
        tl.store(part + SIZES.IN, tl.sum(total * standard, 0), mask=known)


@triton.jit
def sum_weights(
    source,  # (n, y, x, c)
    affine,  # (2, c)
    grad,  # (n, y, x, o)
    parts,  # (split, ky × kx × c, o)
    positions,
    per_program,
    SIZES: tl.constexpr,
    TILE: tl.constexpr,
    TILE_OUT: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of the weights, of some rows of them and over some positions."""
    split, step = tl.program_id(0), tl.program_id(1)
    o = tl.arange(0, TILE_OUT)
    k, known = tl.arange(0, CHUNK), tl.arange(0, CHUNK) < 0
    total = tl.zeros([CHUNK, TILE_OUT], tl.float32)
    for start in range(0, per_program, TILE):
        position = split * per_program + start + tl.arange(0, TILE)
        valid = position < positions
        image, row, column = place(position, SIZES.OUT_HEIGHT, SIZES.OUT_WIDTH)
        values, k, known = source_part(source, affine, image, row, column, valid, step, SIZES, CHUNK)
        mask = valid[:, None] & (o < SIZES.OUT)[None, :]
        g = tl.load(grad + position[:, None] * SIZES.OUT + o[None, :], mask=mask, other=0.0)
        total = product(tl.trans(values), g.to(tl.float32), total, PRECISION)
    at = split * (SIZES.KERNEL * SIZES.KERNEL * SIZES.IN) + k
    tl.store(parts + at[:, None] * SIZES.OUT + o[None, :], total, mask=known[:, None] & (o < SIZES.OUT)[None, :])

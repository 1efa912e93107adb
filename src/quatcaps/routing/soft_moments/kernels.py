"""The fused kernels, in Triton: votes are formed in registers, used, and forgotten.

Letters as in `reference`: children b of a window (B = places × child types), parents j, pose dimensions h = row ×
column, positions p (images × grid). Three passes:

- `sum_moments`, forward: a tile is [positions × parents]; the loop runs over children, so that sums over children
  stay in registers and only the softmax crosses threads.
- `sum_parents`, backward by position: the same tile and loop; the gradients of logit, centre and precision, which are
  sums over children too. It leaves two numbers per child and position, the softmax's logarithm and the gradient of
  the activation, so that the next pass needs no softmax.
- `sum_children`, backward by child: a tile is [children × parents]; the loop runs over positions. The gradient of the
  maps is a sum over positions and stays in registers; that of the poses is a sum over parents, and goes to a column
  buffer that `fold` gathers. For uniform assignments this pass stands alone.

Children or positions are split over programs to fill the chip; partial sums lie side by side and are added in a fixed
order. No atomics: the same input gives the same bits.

Layouts: parents (p, h, j), maps (b, column × column, j): parents are neighbours in memory, and a thread holds a few
of them. Poses (n, i, h, y, x) where positions are neighbours in a tile, and (n, y, x, h, i), with the activation as
last h, where children are. A tuple of tiles stands for the dimension h: all loops over it are unrolled.

Logits are kept in units of log 2, for `exp2`.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def sum_moments(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    maps,  # (b or i, column × column, j)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    mass,  # (split, p, j)
    first,  # (split, p, h, j)
    second,  # (split, p, h, j)
    positions,
    per_program,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    SHARED: tl.constexpr,
    UNIFORM: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    poses += image.to(tl.int64) * (CHILDREN * DIMS * HEIGHT * WIDTH) + corner
    activations += image.to(tl.int64) * (CHILDREN * HEIGHT * WIDTH) + corner
    m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    if not UNIFORM:
        scaled = scale(load_tiles(precision, p, j, mask, DIMS, PARENTS), -0.5 * LOG2E, DIMS)
        c = load_logits(logit, p, j, here, mask, PARENTS)
    s0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    s1 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    s2 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    split = tl.program_id(1)
    for b in range(split * per_program, tl.minimum((split + 1) * per_program, CHILDREN * PLACES)):
        u, a = load_child(poses, activations, b, here, CHILDREN, DIMS, HEIGHT * WIDTH, WIDTH, KERNEL_WIDTH)
        matrix = load_map(maps, b % CHILDREN if SHARED else b, j, COLUMNS, PARENTS)
        d = deviations(matrix, u, m, ROWS, COLUMNS)
        squares = multiply(d, d, DIMS)
        if UNIFORM:
            weight = (a * (1.0 / PARENTS))[:, None] + tl.zeros([TILE, TILE_PARENTS], tl.float32)
        else:
            shares, _ = softmax(add_products(c, scaled, squares, DIMS))
            weight = shares * a[:, None]
        s0 += weight
        s1 = accumulate(s1, weight, d, DIMS)
        s2 = accumulate(s2, weight, squares, DIMS)
    part = split.to(tl.int64) * positions
    tl.store(mass + (part + p[:, None]) * PARENTS + j[None, :], s0, mask=mask)
    store_tiles(first + part * (DIMS * PARENTS), s1, p, j, mask, DIMS, PARENTS)
    store_tiles(second + part * (DIMS * PARENTS), s2, p, j, mask, DIMS, PARENTS)


@triton.jit
def sum_parents(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    maps,  # (b or i, column × column, j)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    sum_logit,  # (split, p, j)       Σ_b dl
    sum_first,  # (split, p, h, j)    Σ_b dl d
    sum_second,  # (split, p, h, j)   Σ_b dl d²
    shifted,  # (p, j)                the logits as the kernels take them
    log_total,  # (b, p)              log2 Σ_j exp2(logit)
    grad_activation,  # (b, p)
    positions,
    per_program,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    SHARED: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    poses += image.to(tl.int64) * (CHILDREN * DIMS * HEIGHT * WIDTH) + corner
    activations += image.to(tl.int64) * (CHILDREN * HEIGHT * WIDTH) + corner
    m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    scaled = scale(load_tiles(precision, p, j, mask, DIMS, PARENTS), -0.5 * LOG2E, DIMS)
    c = load_logits(logit, p, j, here, mask, PARENTS)
    g0 = tl.load(grad_mass + p[:, None] * PARENTS + j[None, :], mask=mask, other=0.0)
    g1 = load_tiles(grad_first, p, j, mask, DIMS, PARENTS)
    g2 = load_tiles(grad_second, p, j, mask, DIMS, PARENTS)
    e0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    e1 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    e2 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    split = tl.program_id(1)
    for b in range(split * per_program, tl.minimum((split + 1) * per_program, CHILDREN * PLACES)):
        u, a = load_child(poses, activations, b, here, CHILDREN, DIMS, HEIGHT * WIDTH, WIDTH, KERNEL_WIDTH)
        matrix = load_map(maps, b % CHILDREN if SHARED else b, j, COLUMNS, PARENTS)
        d = deviations(matrix, u, m, ROWS, COLUMNS)
        squares = multiply(d, d, DIMS)
        shares, log_sum = softmax(add_products(c, scaled, squares, DIMS))
        dweight = add_products(add_products(g0, g1, d, DIMS), g2, squares, DIMS)
        da = tl.sum(dweight * shares, 1)
        dl = shares * (dweight - da[:, None]) * a[:, None]
        e0 += dl
        e1 = accumulate(e1, dl, d, DIMS)
        e2 = accumulate(e2, dl, squares, DIMS)
        row = tl.cast(b, tl.int64) * positions
        tl.store(log_total + row + p, log_sum, mask=here)
        tl.store(grad_activation + row + p, da, mask=here)
    if split == 0:
        tl.store(shifted + p[:, None] * PARENTS + j[None, :], c, mask=mask)
    part = split.to(tl.int64) * positions
    tl.store(sum_logit + (part + p[:, None]) * PARENTS + j[None, :], e0, mask=mask)
    store_tiles(sum_first + part * (DIMS * PARENTS), e1, p, j, mask, DIMS, PARENTS)
    store_tiles(sum_second + part * (DIMS * PARENTS), e2, p, j, mask, DIMS, PARENTS)


@triton.jit
def sum_children(
    packed,  # (n, y, x, h + 1, i)
    maps,  # (b or i, column × column, j)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    shifted,  # (p, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    log_total,  # (b, p)
    grad_activation,  # (b, p)
    columns,  # (p, h + 1, b)                        gradients of poses and activations
    grad_maps,  # (split, b, column × column, j)
    positions,
    per_program,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    SHARED: tl.constexpr,
    UNIFORM: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    DIMS: tl.constexpr = ROWS * COLUMNS
    INSIDE: tl.constexpr = CHILDREN * PLACES
    b = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = b < INSIDE
    real = j < PARENTS
    mask = here[:, None] & real[None, :]
    place = b // CHILDREN
    packed += (place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH) * ((DIMS + 1) * CHILDREN) + b % CHILDREN
    row = b % CHILDREN if SHARED else b
    matrix = load_tiles(maps, row, j, mask, COLUMNS * COLUMNS, PARENTS)
    dmatrix = zero_tiles(COLUMNS * COLUMNS, TILE, TILE_PARENTS)
    split = tl.program_id(1)
    for p in range(split * per_program, tl.minimum((split + 1) * per_program, positions)):
        image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
        window = packed + (tl.cast(image, tl.int64) * (HEIGHT * WIDTH) + corner) * ((DIMS + 1) * CHILDREN)
        u = ()
        for h in tl.static_range(DIMS):
            u += (tl.load(window + h * CHILDREN, mask=here, other=0.0),)
        a = tl.load(window + DIMS * CHILDREN, mask=here, other=0.0)
        m = load_rows(centre, p, j, real, DIMS, PARENTS)
        g1 = load_rows(grad_first, p, j, real, DIMS, PARENTS)
        g2 = load_rows(grad_second, p, j, real, DIMS, PARENTS)
        g0 = tl.load(grad_mass + p * PARENTS + j, mask=real, other=0.0)[None, :]
        d = deviations_by_child(matrix, u, m, ROWS, COLUMNS)
        slope = ()
        for h in tl.static_range(DIMS):
            slope += (g1[h] + g2[h] * d[h],)
        dweight = add_products(g0, d, slope, DIMS)
        dd = ()
        if UNIFORM:
            weight = (a * (1.0 / PARENTS))[:, None]
            for h in tl.static_range(DIMS):
                dd += (weight * (slope[h] + g2[h] * d[h]),)
            da = tl.sum(dweight, 1) * (1.0 / PARENTS)
        else:
            q = load_rows(precision, p, j, real, DIMS, PARENTS)
            c = tl.load(shifted + p * PARENTS + j, mask=real, other=float("-inf"))[None, :]
            log_sum = tl.load(log_total + b.to(tl.int64) * positions + p, mask=here, other=0.0)
            da = tl.load(grad_activation + b.to(tl.int64) * positions + p, mask=here, other=0.0)
            energy = tl.zeros([TILE, TILE_PARENTS], tl.float32)
            for h in tl.static_range(DIMS):
                energy += q[h] * (d[h] * d[h])
            weight = tl.exp2(energy * (-0.5 * LOG2E) + (c - log_sum[:, None])) * a[:, None]
            dl = weight * (dweight - da[:, None])
            for h in tl.static_range(DIMS):
                dd += (weight * (slope[h] + g2[h] * d[h]) - dl * q[h] * d[h],)
        out = columns + tl.cast(p, tl.int64) * ((DIMS + 1) * INSIDE) + b
        for r in tl.static_range(ROWS):
            for e in tl.static_range(COLUMNS):
                du = dd[r * COLUMNS] * matrix[e]
                for k in tl.static_range(1, COLUMNS):
                    du += dd[r * COLUMNS + k] * matrix[k * COLUMNS + e]
                tl.store(out + (r * COLUMNS + e) * INSIDE, tl.sum(du, 1), mask=here)
        tl.store(out + DIMS * INSIDE, da, mask=here)
        total = ()
        for k in tl.static_range(COLUMNS):
            for e in tl.static_range(COLUMNS):
                cell = dmatrix[k * COLUMNS + e]
                for r in tl.static_range(ROWS):
                    cell += dd[r * COLUMNS + k] * u[r * COLUMNS + e][:, None]
                total += (cell,)
        dmatrix = total
    part = split.to(tl.int64) * (INSIDE * COLUMNS * COLUMNS * PARENTS)
    store_tiles(grad_maps + part, dmatrix, b, j, mask, COLUMNS * COLUMNS, PARENTS)


@triton.jit
def fold(
    columns,  # (p, h + 1, b)
    grad_poses,  # (n, i, h, y, x)
    grad_activations,  # (n, i, y, x)
    pixels,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """Each child's gradient: the sum of its columns in all windows that hold it, place by place."""
    INSIDE: tl.constexpr = CHILDREN * KERNEL_HEIGHT * KERNEL_WIDTH
    PLANE: tl.constexpr = HEIGHT * WIDTH
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = tl.program_id(1) * TILE_CHILDREN + tl.arange(0, TILE_CHILDREN)
    h = tl.program_id(2)
    image, y, x = pixel // PLANE, pixel // WIDTH % HEIGHT, pixel % WIDTH
    here = pixel < pixels
    total = tl.zeros([TILE, TILE_CHILDREN], tl.float32)
    for ky in range(KERNEL_HEIGHT):
        top = y - ky
        row = top // STRIDE
        for kx in range(KERNEL_WIDTH):
            left = x - kx
            column = left // STRIDE
            seen = here & (top >= 0) & (left >= 0) & (row < GRID_HEIGHT) & (column < GRID_WIDTH)
            seen &= (row * STRIDE == top) & (column * STRIDE == left)
            p = ((image * GRID_HEIGHT + row) * GRID_WIDTH + column).to(tl.int64)
            source = columns + (p * (DIMS + 1) + h) * INSIDE + (ky * KERNEL_WIDTH + kx) * CHILDREN
            total += tl.load(source[:, None] + i[None, :], mask=seen[:, None] & (i < CHILDREN)[None, :], other=0.0)
    mask = here[:, None] & (i < CHILDREN)[None, :]
    within = (pixel % PLANE)[:, None]
    channel = image[:, None].to(tl.int64) * CHILDREN + i[None, :]
    if h < DIMS:
        tl.store(grad_poses + (channel * DIMS + h) * PLANE + within, total, mask=mask)
    else:
        tl.store(grad_activations + channel * PLANE + within, total, mask=mask)


@triton.jit
def tile_of_positions(positions, PARENTS: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """A program's positions and parents, and which of them there are."""
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = p < positions
    return p, j, here, here[:, None] & (j < PARENTS)[None, :]


@triton.jit
def locate(p, GRID_HEIGHT: tl.constexpr, GRID_WIDTH: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr):
    """The image of a position, and the pixel in the upper left corner of its window."""
    within = p % (GRID_HEIGHT * GRID_WIDTH)
    corner = within // GRID_WIDTH * (STRIDE * WIDTH) + within % GRID_WIDTH * STRIDE
    return p // (GRID_HEIGHT * GRID_WIDTH), corner


@triton.jit
def load_child(
    poses,
    activations,
    b,
    here,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    PLANE: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
):
    """Pose and activation of child b in the windows of all positions of the tile."""
    place, i = b // CHILDREN, b % CHILDREN
    shift = place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH
    u = ()
    for h in tl.static_range(DIMS):
        u += (tl.load(poses + (i * (DIMS * PLANE) + shift) + h * PLANE, mask=here, other=0.0),)
    return u, tl.load(activations + (i * PLANE + shift), mask=here, other=0.0)


@triton.jit
def load_map(maps, row, j, COLUMNS: tl.constexpr, PARENTS: tl.constexpr):
    """One child's maps to all parents."""
    matrix = ()
    for k in tl.static_range(COLUMNS * COLUMNS):
        source = maps + (row * (COLUMNS * COLUMNS * PARENTS) + k * PARENTS) + j
        matrix += (tl.load(source, mask=j < PARENTS, other=0.0),)
    return matrix


@triton.jit
def load_logits(logit, p, j, here, mask, PARENTS: tl.constexpr):
    """c_j less its largest, in units of log 2: a common offset of logits changes nothing, and costs digits. The tile's
    parents beyond the last get −∞."""
    c = tl.load(logit + p[:, None] * PARENTS + j[None, :], mask=mask, other=float("-inf"))
    c = tl.where(here[:, None], c, 0.0)
    return (c - tl.max(c, 1)[:, None]) * LOG2E


@triton.jit
def load_tiles(source, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    """COUNT tiles of (row, COUNT, j)."""
    tiles = ()
    for k in tl.static_range(COUNT):
        place = source + row[:, None] * (COUNT * PARENTS) + k * PARENTS + j[None, :]
        tiles += (tl.load(place, mask=mask, other=0.0),)
    return tiles


@triton.jit
def load_rows(source, p, j, real, DIMS: tl.constexpr, PARENTS: tl.constexpr):
    """The parents at one position, as DIMS rows that spread over a tile."""
    rows = ()
    for h in tl.static_range(DIMS):
        rows += (tl.load(source + (p * (DIMS * PARENTS) + h * PARENTS) + j, mask=real, other=0.0)[None, :],)
    return rows


@triton.jit
def store_tiles(target, tiles, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    for k in tl.static_range(COUNT):
        tl.store(target + row[:, None] * (COUNT * PARENTS) + k * PARENTS + j[None, :], tiles[k], mask=mask)


@triton.jit
def zero_tiles(COUNT: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.zeros([TILE, TILE_PARENTS], tl.float32),)
    return tiles


@triton.jit
def deviations(matrix, u, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """d = A u − m, for one child at many positions: A varies along parents, u along positions."""
    d = ()
    for r in tl.static_range(ROWS):
        for k in tl.static_range(COLUMNS):
            vote = -m[r * COLUMNS + k]
            for e in tl.static_range(COLUMNS):
                vote += matrix[k * COLUMNS + e][None, :] * u[r * COLUMNS + e][:, None]
            d += (vote,)
    return d


@triton.jit
def deviations_by_child(matrix, u, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """d = A u − m, for many children at one position: A varies along both, u along children, m along parents."""
    d = ()
    for r in tl.static_range(ROWS):
        for k in tl.static_range(COLUMNS):
            vote = matrix[k * COLUMNS] * u[r * COLUMNS][:, None] - m[r * COLUMNS + k]
            for e in tl.static_range(1, COLUMNS):
                vote += matrix[k * COLUMNS + e] * u[r * COLUMNS + e][:, None]
            d += (vote,)
    return d


@triton.jit
def softmax(logits):
    """exp2(logits) as shares of their sum over parents, and the logarithm of that sum."""
    largest = tl.max(logits, 1)
    powers = tl.exp2(logits - largest[:, None])
    total = tl.sum(powers, 1)
    return powers * (1.0 / total)[:, None], largest + tl.log2(total)


@triton.jit
def multiply(left, right, COUNT: tl.constexpr):
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles += (left[k] * right[k],)
    return tiles


@triton.jit
def scale(tiles, factor: tl.constexpr, COUNT: tl.constexpr):
    scaled = ()
    for k in tl.static_range(COUNT):
        scaled += (tiles[k] * factor,)
    return scaled


@triton.jit
def add_products(start, left, right, COUNT: tl.constexpr):
    """start + Σ_h left_h right_h."""
    total = start
    for k in tl.static_range(COUNT):
        total += left[k] * right[k]
    return total


@triton.jit
def accumulate(sums, weight, tiles, COUNT: tl.constexpr):
    """sums + weight · tiles, tile by tile."""
    total = ()
    for k in tl.static_range(COUNT):
        total += (sums[k] + weight * tiles[k],)
    return total

"""One rotor per thread: (θ, a) → w = (cos θ, sin θ a/‖a‖) → a matrix, and back.

The matrix is the rotation R with R v = w v w*; if RIGHT, w itself, which multiplies from the right.
"""

from __future__ import annotations

import triton
import triton.language as tl

SMALLEST = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def rotor_matrix(
    angle,  # (b, j)
    axis,  # (b, j, 3)
    matrix,  # (b, 3 × 3 or 4, j)
    rotors,
    PARENTS: tl.constexpr,
    RIGHT: tl.constexpr,
    TILE: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < rotors
    w, x, y, z, _, _, _, _, _, _ = load_rotor(angle, axis, e, here)
    if RIGHT:
        cells = (w, x, y, z)
    else:
        top = (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y))
        middle = (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x))
        cells = top + middle + (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y))
    CELLS: tl.constexpr = 4 if RIGHT else 9
    out = matrix + e // PARENTS * (CELLS * PARENTS) + e % PARENTS
    for k in tl.static_range(CELLS):
        tl.store(out + k * PARENTS, cells[k], mask=here)


@triton.jit
def rotor_matrix_backward(
    grad,  # (b, 3 × 3 or 4, j)
    angle,  # (b, j)
    axis,  # (b, j, 3)
    grad_angle,  # (b, j)
    grad_axis,  # (b, j, 3)
    rotors,
    PARENTS: tl.constexpr,
    RIGHT: tl.constexpr,
    TILE: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < rotors
    w, x, y, z, sine, n0, n1, n2, size, length = load_rotor(angle, axis, e, here)
    CELLS: tl.constexpr = 4 if RIGHT else 9
    source = grad + e // PARENTS * (CELLS * PARENTS) + e % PARENTS
    g = ()
    for k in tl.static_range(CELLS):
        g += (tl.load(source + k * PARENTS, mask=here, other=0.0),)
    if RIGHT:
        dw, dx, dy, dz = g
    else:
        # The matrix holds products of two of (w, x, y, z): with s = G + Gᵀ and the axial part of G,
        right, up, out = g[7] - g[5], g[2] - g[6], g[3] - g[1]
        dw = 2 * (x * right + y * up + z * out)
        dx = 2 * (y * (g[1] + g[3]) + z * (g[2] + g[6]) + w * right - 2 * x * (g[4] + g[8]))
        dy = 2 * (x * (g[1] + g[3]) + z * (g[5] + g[7]) + w * up - 2 * y * (g[0] + g[8]))
        dz = 2 * (x * (g[2] + g[6]) + y * (g[5] + g[7]) + w * out - 2 * z * (g[0] + g[4]))
    along = n0 * dx + n1 * dy + n2 * dz
    tl.store(grad_angle + e, w * along - sine * dw, mask=here)
    # Of n = a / ‖a‖; where a = 0, the gradient passes through.
    radial = tl.where(size > 0, along, 0.0)
    scale = sine / length / tl.where(size > 0, size, 1.0)
    tl.store(grad_axis + 3 * e, scale * (dx - n0 * radial), mask=here)
    tl.store(grad_axis + 3 * e + 1, scale * (dy - n1 * radial), mask=here)
    tl.store(grad_axis + 3 * e + 2, scale * (dz - n2 * radial), mask=here)


@triton.jit
def load_rotor(angle, axis, e, here):
    """w, x, y, z; sin θ; the unit axis; the axis' largest magnitude, and its length in units of that. An axis of zero
    stands for (1, 0, 0)."""
    theta = tl.load(angle + e, mask=here, other=0.0)
    a0 = tl.load(axis + 3 * e, mask=here, other=0.0)
    a1 = tl.load(axis + 3 * e + 1, mask=here, other=0.0)
    a2 = tl.load(axis + 3 * e + 2, mask=here, other=0.0)
    size = tl.maximum(tl.abs(a0), tl.maximum(tl.abs(a1), tl.abs(a2)))
    size = tl.where(size < SMALLEST, 0.0, size)
    unit = tl.where(size > 0, size, 1.0)
    a0, a1, a2 = a0 / unit, a1 / unit, a2 / unit
    length = tl.where(size > 0, tl.sqrt(a0 * a0 + a1 * a1 + a2 * a2), 1.0)
    n0, n1, n2 = tl.where(size > 0, a0 / length, 1.0), a1 / length, a2 / length
    sine, cosine = tl.sin(theta), tl.cos(theta)
    return cosine, sine * n0, sine * n1, sine * n2, sine, n0, n1, n2, size, length

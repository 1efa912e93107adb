"""One rotor per thread: (θ, a) → w = (cos θ, sin θ a/‖a‖) → the matrix R with R v = w v w*, and back."""

from __future__ import annotations

import triton
import triton.language as tl

SMALLEST = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def rotor_matrix(
    angle,  # (b, j)
    axis,  # (b, j, 3)
    matrix,  # (b, 3 × 3, j)
    rotors,
    PARENTS: tl.constexpr,
    TILE: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < rotors
    w, x, y, z, _, _, _, _, _, _ = load_rotor(angle, axis, e, here)
    out = matrix + e // PARENTS * (9 * PARENTS) + e % PARENTS
    tl.store(out, 1 - 2 * (y * y + z * z), mask=here)
    tl.store(out + PARENTS, 2 * (x * y - w * z), mask=here)
    tl.store(out + 2 * PARENTS, 2 * (x * z + w * y), mask=here)
    tl.store(out + 3 * PARENTS, 2 * (x * y + w * z), mask=here)
    tl.store(out + 4 * PARENTS, 1 - 2 * (x * x + z * z), mask=here)
    tl.store(out + 5 * PARENTS, 2 * (y * z - w * x), mask=here)
    tl.store(out + 6 * PARENTS, 2 * (x * z - w * y), mask=here)
    tl.store(out + 7 * PARENTS, 2 * (y * z + w * x), mask=here)
    tl.store(out + 8 * PARENTS, 1 - 2 * (x * x + y * y), mask=here)


@triton.jit
def rotor_matrix_backward(
    grad,  # (b, 3 × 3, j)
    angle,  # (b, j)
    axis,  # (b, j, 3)
    grad_angle,  # (b, j)
    grad_axis,  # (b, j, 3)
    rotors,
    PARENTS: tl.constexpr,
    TILE: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < rotors
    w, x, y, z, sine, n0, n1, n2, size, length = load_rotor(angle, axis, e, here)
    source = grad + e // PARENTS * (9 * PARENTS) + e % PARENTS
    g00 = tl.load(source, mask=here, other=0.0)
    g01 = tl.load(source + PARENTS, mask=here, other=0.0)
    g02 = tl.load(source + 2 * PARENTS, mask=here, other=0.0)
    g10 = tl.load(source + 3 * PARENTS, mask=here, other=0.0)
    g11 = tl.load(source + 4 * PARENTS, mask=here, other=0.0)
    g12 = tl.load(source + 5 * PARENTS, mask=here, other=0.0)
    g20 = tl.load(source + 6 * PARENTS, mask=here, other=0.0)
    g21 = tl.load(source + 7 * PARENTS, mask=here, other=0.0)
    g22 = tl.load(source + 8 * PARENTS, mask=here, other=0.0)
    # The matrix holds products of two of (w, x, y, z): with s = G + Gᵀ and the axial part of G,
    right, up, out = g21 - g12, g02 - g20, g10 - g01
    dw = 2 * (x * right + y * up + z * out)
    dx = 2 * (y * (g01 + g10) + z * (g02 + g20) + w * right - 2 * x * (g11 + g22))
    dy = 2 * (x * (g01 + g10) + z * (g12 + g21) + w * up - 2 * y * (g00 + g22))
    dz = 2 * (x * (g02 + g20) + y * (g12 + g21) + w * out - 2 * z * (g00 + g11))
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

"""Quaternion algebra: free functions on tensors whose last dimension holds the four numbers.

Conventions, everywhere: scalar first (w, x, y, z), Hamilton product (ij = k; equations 3 and 4 of the
paper), components in the last dimension, broadcasting over all the others. `q` and `p` name any quaternions;
`rotor` names unit ones. A rotor (cos θ, sin θ · n) rotates by 2θ about n, and w and −w are the same rotation.
Results keep the dtype of their arguments; where rounding would hurt, float16 and bfloat16 are computed in
float32 and rounded at the end. Lengths neither overflow nor underflow on the way: zero, where a direction is
undefined, is only a vector whose every entry is below the smallest normal number.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from quatcaps.errors import QuatcapsError

__all__ = [
    "conjugate",
    "geodesic_distance",
    "inverse",
    "left_embedding",
    "matrix_to_rotor",
    "norm",
    "normalise",
    "product",
    "pure",
    "right_embedding",
    "rotate",
    "rotor",
    "rotor_to_matrix",
    "safe_unit",
    "scalar_first_to_last",
    "scalar_last_to_first",
    "slerp",
    "unit_axis",
]

Numbers = Float[Tensor, "..."]
Vectors = Float[Tensor, "... 3"]
Quaternions = Float[Tensor, "... 4"]
Matrices3 = Float[Tensor, "... 3 3"]
Matrices4 = Float[Tensor, "... 4 4"]


def pure(vector: Tensor) -> Quaternions:
    """The pure quaternion (0, v) of a vector (..., 3). Equation 10."""
    _check("pure", "xyz", vector=vector)
    return F.pad(vector, (1, 0))


def scalar_first_to_last(q: Tensor) -> Quaternions:
    """(w, x, y, z) to (x, y, z, w), the order of SciPy and of many file formats."""
    _check("scalar_first_to_last", "wxyz", q=q)
    return q.roll(-1, -1)


def scalar_last_to_first(q: Tensor) -> Quaternions:
    """(x, y, z, w) to (w, x, y, z), the order of every other function here."""
    _check("scalar_last_to_first", "xyzw", q=q)
    return q.roll(1, -1)


def conjugate(q: Tensor) -> Quaternions:
    """q* = (w, −x, −y, −z), for a rotor the inverse rotation. Equation 6."""
    _check("conjugate", "wxyz", q=q)
    return torch.cat((q[..., :1], -q[..., 1:]), -1)


def product(q: Tensor, p: Tensor) -> Quaternions:
    """The Hamilton product q p = (s_q s_p − v_q·v_p, s_q v_p + s_p v_q + v_q × v_p). Equation 7.

    Not commutative: as rotations, `product(q, p)` turns by p first and then by q.
    """
    _check("product", "wxyz", q=q, p=p)
    qw, qx, qy, qz = q.unbind(-1)
    pw, px, py, pz = p.unbind(-1)
    w = qw * pw - qx * px - qy * py - qz * pz
    x = qw * px + qx * pw + qy * pz - qz * py
    y = qw * py - qx * pz + qy * pw + qz * px
    z = qw * pz + qx * py - qy * px + qz * pw
    return torch.stack((w, x, y, z), -1)


def norm(q: Tensor) -> Numbers:
    """‖q‖ = √(w² + x² + y² + z²), of shape (...). Its gradient at zero is zero."""
    _check("norm", "wxyz", q=q)
    return _length(_wide(q)).to(q.dtype)


def normalise(q: Tensor) -> Quaternions:
    """The rotor q / ‖q‖. Zero becomes the identity, and there the gradient passes through unchanged."""
    _check("normalise", "wxyz", q=q)
    return _unit_or_first(_wide(q)).to(q.dtype)


def inverse(q: Tensor) -> Quaternions:
    """q⁻¹ = q* / ‖q‖². Zero has no inverse: it gives zero, as a pseudo-inverse does."""
    _check("inverse", "wxyz", q=q)
    scaled, square, size, _ = _scaled(_wide(q), -1)
    return (conjugate(scaled) / square / size).to(q.dtype)


def safe_unit(x: Tensor, dim: int) -> Numbers:
    """x / ‖x‖₂ along one dimension of a tensor of any shape.

    Zero stays zero, and there the gradient passes through unchanged.
    """
    _check("safe_unit", None, x=x)
    if not -x.ndim <= dim < x.ndim or x.shape[dim] == 0:
        raise QuatcapsError(f"safe_unit: x has shape {tuple(x.shape)}: nothing lies along dimension {dim}")
    return _unit(_wide(x), dim).to(x.dtype)


def unit_axis(axis: Tensor) -> Vectors:
    """The unit vector n = a / ‖a‖ of an axis (..., 3).

    A zero axis gives (1, 0, 0), so that the result is always of unit length; there the gradient passes
    through unchanged, which lets training move an axis away from zero.
    """
    _check("unit_axis", "xyz", axis=axis)
    return _unit_or_first(_wide(axis)).to(axis.dtype)


def rotor(angle: Tensor, axis: Tensor) -> Quaternions:
    """w = (cos θ, sin θ · a / ‖a‖), a unit quaternion by construction. Equation 12.

    It rotates by **2θ**: the paper drops the usual half. `angle` θ is (...), in radians; `axis` a is (..., 3)
    of any length, and zero stands for (1, 0, 0), as in `unit_axis`.

    >>> quarter_turn = rotor(torch.tensor(torch.pi / 4), torch.tensor([0.0, 0.0, 2.0]))
    >>> print(rotate(quarter_turn, torch.tensor([1.0, 0.0, 0.0])).round(decimals=3))
    tensor([0., 1., 0.])
    """
    _check("rotor", None, angle=angle)
    _check("rotor", "xyz", axis=axis)
    angle_wide = _wide(angle).unsqueeze(-1)
    vector = angle_wide.sin() * _unit_or_first(_wide(axis))
    scalar = angle_wide.cos().expand(*vector.shape[:-1], 1)
    return torch.cat((scalar, vector), -1).to(torch.promote_types(angle.dtype, axis.dtype))


def rotate(rotor: Tensor, vector: Tensor) -> Vectors:
    """v' = w v w* for a rotor w (..., 4) and a vector v (..., 3), which stands for (0, v). Equations 8, 11.

    Computed as v + w t + u × t with t = 2 u × v and u the vector part: the same for unit rotors only.
    """
    _check("rotate", "wxyz", rotor=rotor)
    _check("rotate", "xyz", vector=vector)
    scalar, part = rotor[..., :1], rotor[..., 1:]
    twice = 2 * _cross(part, vector)
    return vector + scalar * twice + _cross(part, twice)


def rotor_to_matrix(rotor: Tensor) -> Matrices3:
    """The matrix R (..., 3, 3) with R v = w v w*, for unit rotors w (..., 4)."""
    _check("rotor_to_matrix", "wxyz", rotor=rotor)
    w, x, y, z = rotor.unbind(-1)
    _, x2, y2, z2 = (2 * rotor).unbind(-1)
    wx, wy, wz = w * x2, w * y2, w * z2
    xx, yy, zz = x * x2, y * y2, z * z2
    xy, xz, yz = x * y2, x * z2, y * z2
    first = (1 - (yy + zz), xy - wz, xz + wy)
    second = (xy + wz, 1 - (xx + zz), yz - wx)
    third = (xz - wy, yz + wx, 1 - (xx + yy))
    return _matrix(3, *first, *second, *third)


def matrix_to_rotor(matrix: Tensor) -> Quaternions:
    """The rotor w (..., 4), with scalar part ≥ 0, whose `rotor_to_matrix` is the rotation matrix (..., 3, 3).

    Each entry of 4 w wᵀ is a sum of entries of the matrix; its row with the largest diagonal entry, made
    unit, is ±w: no rotation divides by a small number. For half turns, whose scalar part is 0, the largest
    component is positive. A matrix that is no rotation gives some rotor, without complaint.
    """
    _check("matrix_to_rotor", None, matrix=matrix)
    if matrix.shape[-2:] != (3, 3):
        shape = tuple(matrix.shape)
        raise QuatcapsError(f"matrix_to_rotor: matrix has shape {shape}: the last two dimensions must be 3")
    a, b, c, d, e, f, g, h, i = _wide(matrix).flatten(-2).unbind(-1)
    diagonal = torch.stack((1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i), -1)
    wx, wy, wz, xy, xz, yz = h - f, c - g, d - b, b + d, c + g, f + h
    ww, xx, yy, zz = diagonal.unbind(-1)
    rows = _matrix(4, ww, wx, wy, wz, wx, xx, xy, xz, wy, xy, yy, yz, wz, xz, yz, zz)
    pivot = diagonal.argmax(-1)[..., None, None].expand(*diagonal.shape[:-1], 1, 4)
    row = rows.gather(-2, pivot).squeeze(-2)
    return _unit(torch.where(row[..., :1] < 0, -row, row), -1).to(matrix.dtype)


def left_embedding(q: Tensor) -> Matrices4:
    """The matrix (..., 4, 4) of multiplication by q from the left: `left_embedding(q) @ p` is q p.

    The paper writes it ^R Q (equation 14, first matrix). With `right_embedding` it casts the vote of
    equation 15, v = ^L W* ^R W u: `right_embedding(conjugate(w)) @ left_embedding(w) @ u` is w u w*.
    """
    _check("left_embedding", "wxyz", q=q)
    w, x, y, z = q.unbind(-1)
    return _matrix(4, w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w)


def right_embedding(q: Tensor) -> Matrices4:
    """The matrix (..., 4, 4) of multiplication by q from the right: `right_embedding(q) @ p` is p q.

    The paper writes it ^L Q (equation 14, second matrix); see `left_embedding` for equation 15.
    """
    _check("right_embedding", "wxyz", q=q)
    w, x, y, z = q.unbind(-1)
    return _matrix(4, w, -x, -y, -z, x, w, z, -y, y, -z, w, x, z, y, -x, w)


def geodesic_distance(q: Tensor, p: Tensor) -> Numbers:
    """The angle in [0, π] radians of the rotation between two rotors (..., 4): 2 atan2(‖v‖, |s|) of q* p.

    The signs of q and p do not matter. The tiniest angles keep their precision; at zero the gradient is zero.
    """
    _check("geodesic_distance", "wxyz", q=q, p=p)
    angle = 2 * _arc(_wide(q), _on_side_of(_wide(q), _wide(p)))
    return angle.to(torch.promote_types(q.dtype, p.dtype))


def slerp(q: Tensor, p: Tensor, t: Tensor | float, *, shortest: bool = True) -> Quaternions:
    """The rotor at the fraction t (...) of the arc from q to p: (sin((1−t)φ) q + sin(tφ) p) / sin φ.

    φ is the angle between q and p as 4-vectors; t = 0 and t = 1 give the ends exactly. `shortest` takes −p,
    the same rotation, for p where that is nearer. Without it the arc ends at p even if that is the long way
    round; where p = −q all ways are equally long, and it goes by q i.
    """
    _check("slerp", "wxyz", q=q, p=p)
    dtype = torch.promote_types(q.dtype, p.dtype)
    start, end = _wide(q.to(dtype)), _wide(p.to(dtype))
    if isinstance(t, Tensor):
        _check("slerp", None, t=t)
        part = t.to(start.dtype).unsqueeze(-1)
    else:
        part = start.new_full((1,), t)
    if shortest:
        end = _on_side_of(start, end)
    else:
        # Two arcs of at most a quarter of the circle: sin φ stays away from zero at φ = π.
        total = start + end
        opposite = total.detach().abs().amax(-1, keepdim=True) < 32 * torch.finfo(total.dtype).eps
        w, x, y, z = start.unbind(-1)
        middle = _unit(total + opposite * torch.stack((-x, w, z, -y), -1), -1)
        early = part < 0.5
        start, end = torch.where(early, start, middle), torch.where(early, middle, end)
        part = torch.where(early, 2 * part, 2 * part - 1)
    angle = _arc(start, end).unsqueeze(-1)
    rest, sinc = 1 - part, _sinc(angle)
    start_weight = rest * (_sinc(rest * angle) / sinc)
    end_weight = part * (_sinc(part * angle) / sinc)
    return (start_weight * start + end_weight * end).to(dtype)


def _check(function: str, layout: str | None, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise QuatcapsError(f"{function}: {name} has dtype {tensor.dtype}: convert it to a floating dtype")
        if layout is not None and tensor.shape[-1:] != (len(layout),):
            need = f"the last dimension must be {len(layout)} ({', '.join(layout)})"
            raise QuatcapsError(f"{function}: {name} has shape {tuple(tensor.shape)}: {need}")


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def _scaled(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x / size, its squared length, size (the largest magnitude, a constant to autograd), where x is zero.

    Where x is zero, the size and the squared length are the constant 1.
    """
    largest = x.detach().abs().amax(dim, keepdim=True)
    null = largest < torch.finfo(x.dtype).tiny
    size = largest.masked_fill(null, 1.0)
    scaled = x / size
    return scaled, scaled.square().sum(dim, keepdim=True).masked_fill(null, 1.0), size, null


def _unit(x: Tensor, dim: int) -> Tensor:
    scaled, square, _, _ = _scaled(x, dim)
    return scaled / square.sqrt()


def _unit_or_first(x: Tensor) -> Tensor:
    """x / ‖x‖ along the last dimension; zero gives (1, 0, …)."""
    scaled, square, _, null = _scaled(x, -1)
    return scaled / square.sqrt() + F.pad(null.to(x.dtype), (0, x.shape[-1] - 1))


def _length(x: Tensor) -> Tensor:
    return (x * _unit(x, -1)).sum(-1)


def _matrix(rows: int, *entries: Tensor) -> Tensor:
    return torch.stack(entries, -1).reshape(*entries[0].shape, rows, rows)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    ax, ay, az = a.unbind(-1)
    bx, by, bz = b.unbind(-1)
    return torch.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), -1)


def _on_side_of(q: Tensor, p: Tensor) -> Tensor:
    """p or −p, whichever lies nearer to q."""
    return torch.where((q * p).sum(-1, keepdim=True) < 0, -p, p)


def _arc(q: Tensor, p: Tensor) -> Tensor:
    """The angle in [0, π] between q and p as 4-vectors; p − q spares nearly equal ones the cancellation."""
    return torch.atan2(_length(product(conjugate(q), p - q)[..., 1:]), (q * p).sum(-1))


def _sinc(x: Tensor) -> Tensor:
    """sin x / x, with an exact derivative at and near zero, where the quotient rule cancels."""
    small = x.abs() < 5e-3
    divisor = x.masked_fill(small, 1.0)
    square = x * x
    return torch.where(small, 1 - square / 6 + square * square / 120, divisor.sin() / divisor)

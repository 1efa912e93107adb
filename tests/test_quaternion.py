"""The algebra by its laws, against SciPy, and at the points where a naive formula breaks."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from quatcaps import quaternion
from quatcaps.errors import QuatcapsError
from quatcaps.quaternion import (
    conjugate,
    geodesic_distance,
    inverse,
    left_embedding,
    matrix_to_rotor,
    norm,
    normalise,
    product,
    pure,
    right_embedding,
    rotate,
    rotor,
    rotor_to_matrix,
    safe_unit,
    scalar_first_to_last,
    scalar_last_to_first,
    slerp,
    unit_axis,
)

settings.register_profile("quaternion", deadline=None, max_examples=60)
LAWS = settings.get_profile("quaternion")


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tensors(size: int, limit: float = 4.0) -> st.SearchStrategy[Tensor]:
    numbers = st.floats(-limit, limit)
    return st.lists(numbers, min_size=size, max_size=size).map(lambda values: tensor(*values))


def unit_tensors(size: int) -> st.SearchStrategy[Tensor]:
    long_enough = tensors(size).filter(lambda x: float(x.norm()) > 1e-3)
    return long_enough.map(lambda x: x / x.norm())


QUATERNIONS = tensors(4)
ROTORS = unit_tensors(4)
VECTORS = tensors(3)
ANGLES = st.floats(-2 * math.pi, 2 * math.pi).map(lambda value: torch.tensor(value, dtype=torch.float64))
FRACTIONS = st.floats(0, 1)


def close(a: Tensor, b: Tensor | np.ndarray, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b), rtol=tolerance, atol=tolerance)


def same_rotation(q: Tensor, p: Tensor, tolerance: float = 1e-12) -> None:
    gaps = torch.minimum((q - p).abs().amax(-1), (q + p).abs().amax(-1))
    assert gaps.max() <= tolerance, (q, p)


def to_scipy(q: Tensor) -> Rotation:
    return Rotation.from_quat(np.roll(q.numpy(), -1, -1))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_rotors(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(random(*shape, 4, seed=seed), dim=-1)


ONE, I, J, K = torch.eye(4, dtype=torch.float64)  # noqa: E741


# Laws of the algebra


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(I, I, -ONE), (J, J, -ONE), (K, K, -ONE), (I, J, K), (J, K, I), (K, I, J), (J, I, -K), (K, J, -I), (I, K, -J)],
)
def test_units_multiply_as_equations_3_and_4_say(left: Tensor, right: Tensor, expected: Tensor) -> None:
    assert torch.equal(product(left, right), expected)
    assert torch.equal(product(product(I, J), K), -ONE)


@LAWS
@given(QUATERNIONS, QUATERNIONS)
def test_product_is_equation_7(q: Tensor, p: Tensor) -> None:
    sq, vq, sp, vp = q[0].numpy(), q[1:].numpy(), p[0].numpy(), p[1:].numpy()
    expected = np.concatenate(([sq * sp - vq @ vp], sq * vp + sp * vq + np.cross(vq, vp)))
    close(product(q, p), expected)


@LAWS
@given(QUATERNIONS, QUATERNIONS, QUATERNIONS)
def test_product_is_associative_and_distributes(q: Tensor, p: Tensor, r: Tensor) -> None:
    close(product(product(q, p), r), product(q, product(p, r)))
    close(product(q, p + r), product(q, p) + product(q, r))
    close(product(ONE, q), q)
    close(product(q, ONE), q)


@LAWS
@given(QUATERNIONS, QUATERNIONS)
def test_conjugate_reverses_products_and_norm_multiplies(q: Tensor, p: Tensor) -> None:
    close(conjugate(product(q, p)), product(conjugate(p), conjugate(q)))
    assert torch.equal(conjugate(conjugate(q)), q)
    close(product(q, conjugate(q)), norm(q) ** 2 * ONE)
    close(norm(product(q, p)), norm(q) * norm(p))
    close(norm(q), np.linalg.norm(q.numpy()))


@LAWS
@given(tensors(4, limit=1e3).filter(lambda q: float(q.norm()) > 1e-3))
def test_inverse_and_normalise(q: Tensor) -> None:
    close(product(q, inverse(q)), ONE)
    close(product(inverse(q), q), ONE)
    close(norm(normalise(q)), np.float64(1))
    close(normalise(q) * norm(q), q)


@LAWS
@given(QUATERNIONS, QUATERNIONS)
def test_embeddings_multiply_from_their_side(q: Tensor, p: Tensor) -> None:
    close(left_embedding(q) @ p, product(q, p))
    close(right_embedding(q) @ p, product(p, q))


def test_embeddings_are_the_matrices_of_equation_14() -> None:
    q = tensor(1, 2, 3, 4)
    paper_r = torch.tensor([[1, -2, -3, -4], [2, 1, -4, 3], [3, 4, 1, -2], [4, -3, 2, 1]], dtype=q.dtype)
    paper_l = torch.tensor([[1, -2, -3, -4], [2, 1, 4, -3], [3, -4, 1, 2], [4, 3, -2, 1]], dtype=q.dtype)
    assert torch.equal(left_embedding(q), paper_r)
    assert torch.equal(right_embedding(q), paper_l)


@LAWS
@given(ROTORS, VECTORS)
def test_votes_by_embeddings_equation_15_are_equation_11(w: Tensor, vector: Tensor) -> None:
    u = pure(vector)
    by_embeddings = right_embedding(conjugate(w)) @ left_embedding(w) @ u
    close(by_embeddings, product(product(w, u), conjugate(w)))
    close(by_embeddings, pure(rotate(w, vector)))


# Rotations


@LAWS
@given(ROTORS, ROTORS, VECTORS)
def test_rotate_is_a_rotation_and_composes(w: Tensor, other: Tensor, vector: Tensor) -> None:
    turned = rotate(w, vector)
    close(turned, to_scipy(w).apply(vector.numpy()))
    close(turned.norm(), vector.norm())
    close(rotate(-w, vector), turned)
    close(rotate(conjugate(w), turned), vector)
    close(rotate(product(other, w), vector), rotate(other, turned))


@LAWS
@given(ANGLES, unit_tensors(3), st.floats(1e-6, 1e6))
def test_rotor_turns_by_twice_its_angle_about_its_axis(angle: Tensor, axis: Tensor, length: float) -> None:
    w = rotor(angle, axis * length)
    close(w, np.concatenate(([math.cos(angle)], math.sin(angle) * axis.numpy())))
    close(rotor_to_matrix(w), Rotation.from_rotvec(2 * angle.item() * axis.numpy()).as_matrix())
    close(rotor(angle + math.pi, axis), -w)
    close(rotor(-angle, axis), conjugate(w))
    close(rotate(w, axis), axis)


@LAWS
@given(ROTORS, ROTORS)
def test_rotor_to_matrix_is_scipys_and_a_homomorphism(w: Tensor, other: Tensor) -> None:
    matrix = rotor_to_matrix(w)
    close(matrix, to_scipy(w).as_matrix())
    close(matrix @ matrix.mT, np.eye(3))
    close(torch.linalg.det(matrix), np.float64(1))
    close(rotor_to_matrix(product(w, other)), matrix @ rotor_to_matrix(other))
    assert torch.equal(rotor_to_matrix(-w), matrix)


@LAWS
@given(ROTORS)
def test_matrix_to_rotor_undoes_rotor_to_matrix(w: Tensor) -> None:
    back = matrix_to_rotor(rotor_to_matrix(w))
    same_rotation(back, w)
    assert back[0] >= 0


def test_matrix_to_rotor_against_scipy() -> None:
    matrices = Rotation.random(500, rng=np.random.default_rng(1))
    expected = torch.as_tensor(np.roll(matrices.as_quat(canonical=True), 1, -1).copy())
    close(matrix_to_rotor(torch.as_tensor(matrices.as_matrix())), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("excess", [0.0, 1e-12, -1e-12, 1e-6, -1e-6, 1e-3])
def test_matrix_to_rotor_at_and_near_half_turns(dtype: torch.dtype, excess: float) -> None:
    axes = torch.cat((torch.eye(3), -torch.eye(3), tensor(1, 1, 0)[None], random(50, 3))).double()
    w = rotor(torch.tensor(math.pi / 2 + excess, dtype=torch.float64), axes)
    back = matrix_to_rotor(rotor_to_matrix(w).to(dtype))
    same_rotation(back.double(), w, tolerance=8 * torch.finfo(dtype).eps)
    assert (back[:, 0] >= 0).all()


def test_exact_half_turns() -> None:
    diagonals = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert torch.equal(matrix_to_rotor(torch.diag_embed(diagonals)), torch.eye(4, dtype=torch.float64))


@LAWS
@given(QUATERNIONS)
def test_orders_of_the_components(q: Tensor) -> None:
    w, x, y, z = q.tolist()
    assert scalar_first_to_last(q).tolist() == [x, y, z, w]
    assert torch.equal(scalar_last_to_first(scalar_first_to_last(q)), q)
    assert scalar_last_to_first(tensor(1, 2, 3, 4)).tolist() == [4, 1, 2, 3]


# Distance and interpolation


@LAWS
@given(ROTORS, ROTORS, ROTORS)
def test_distance_is_a_metric_on_rotations(q: Tensor, p: Tensor, r: Tensor) -> None:
    distance = geodesic_distance(q, p)
    close(distance, np.float64((to_scipy(q).inv() * to_scipy(p)).magnitude()), 1e-7)
    close(geodesic_distance(p, q), distance)
    close(geodesic_distance(-q, p), distance)
    close(geodesic_distance(product(r, q), product(r, p)), distance)
    close(geodesic_distance(product(q, r), product(p, r)), distance)
    assert 0 <= distance <= math.pi
    assert distance <= geodesic_distance(q, r) + geodesic_distance(r, p) + 1e-12
    assert geodesic_distance(q, q) == 0
    assert geodesic_distance(q, -q) == 0


@pytest.mark.parametrize("angle", [1e-300, 1e-30, 1e-12, 1e-8, 1e-3, 1.0, 3.0])
def test_distance_keeps_the_precision_of_every_angle(angle: float) -> None:
    axes = unit_axis(random(20, 3))
    turned = rotor(torch.tensor(angle / 2, dtype=torch.float64), axes)
    expected = torch.full((20,), angle, dtype=torch.float64)
    torch.testing.assert_close(geodesic_distance(ONE, turned), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(geodesic_distance(turned, -ONE), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-10, 1e-6])
def test_distance_near_a_half_turn(gap: float) -> None:
    start, axes = random_rotors(20), unit_axis(random(20, 3))
    turned = product(start, rotor(torch.tensor((math.pi - gap) / 2, dtype=torch.float64), axes))
    assert ((math.pi - geodesic_distance(start, turned)) - gap).abs().max() < 4e-15


def test_distance_of_nearly_equal_rotors_in_float32() -> None:
    q = random_rotors(200)
    p = product(q, rotor(torch.full((200,), 1e-6, dtype=torch.float64), random(200, 3)))
    q32, p32 = q.float(), p.float()
    exact = 2 * torch.asin(product(conjugate(q32.double()), p32.double())[:, 1:].norm(dim=-1))
    torch.testing.assert_close(geodesic_distance(q32, p32).double(), exact, rtol=1e-6, atol=0)


@LAWS
@given(ROTORS, ROTORS, FRACTIONS)
def test_slerp_is_scipys_and_runs_at_constant_speed(q: Tensor, p: Tensor, t: float) -> None:
    at = slerp(q, p, t)
    distance = geodesic_distance(q, p)
    close(norm(at), np.float64(1))
    close(geodesic_distance(q, at), t * distance, 1e-10)
    close(geodesic_distance(at, p), (1 - t) * distance, 1e-10)
    if distance < math.pi - 1e-3:
        expected = Slerp([0, 1], Rotation.concatenate([to_scipy(q), to_scipy(p)]))(t).as_matrix()
        close(rotor_to_matrix(at), expected, 1e-9)


@LAWS
@given(ROTORS, ROTORS, FRACTIONS, st.booleans())
def test_slerp_ends_and_reverses(q: Tensor, p: Tensor, t: float, shortest: bool) -> None:
    end = -p if shortest and float(q @ p) < 0 else p
    assert torch.equal(slerp(q, p, 0.0, shortest=shortest), q)
    assert torch.equal(slerp(q, p, 1.0, shortest=shortest), end)
    if abs(float(q @ p)) > 1e-9 and float((q + p).norm()) > 1e-6:
        back = slerp(p, q, 1 - t, shortest=shortest)
        same_rotation(slerp(q, p, t, shortest=shortest), back, 1e-8)


def test_slerp_can_go_the_long_way_round() -> None:
    axis = tensor(0, 0, 1)
    start, end = rotor(tensor(0.1)[0], axis), rotor(tensor(2.9)[0], axis)
    t = torch.linspace(-0.5, 1.5, 21, dtype=torch.float64)
    close(slerp(start, end, t, shortest=False), rotor(0.1 + 2.8 * t, axis))
    close(slerp(start, end, t), rotor(0.1 + (2.8 - math.pi) * t, axis))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slerp_between_opposite_rotors_stays_on_the_sphere(dtype: torch.dtype) -> None:
    start = random_rotors(100)
    nearly = normalise(-start + 3 * torch.finfo(dtype).eps * random(100, 4, seed=1))
    for end in (-start, nearly):
        half = slerp(start.to(dtype), end.to(dtype), 0.5, shortest=False).double()
        assert (half.norm(dim=-1) - 1).abs().max() < 1e-5
        assert (half * start).sum(-1).abs().max() < 0.5
    close(slerp(ONE, -ONE, 0.5, shortest=False), I)


# Zero, huge and tiny


def grads(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    assert output.isfinite().all()
    weights = torch.arange(1, output.numel() + 1, dtype=output.dtype).reshape(output.shape)
    found = torch.autograd.grad((output * weights).sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in found), found
    return found


def test_zero_axis_gives_a_rotor_and_a_gradient() -> None:
    angle, axis = tensor(0.7), torch.zeros(1, 3, dtype=torch.float64)
    close(rotor(angle, axis), rotor(angle, tensor(1, 0, 0)[None]))
    angle_gradient, axis_gradient = grads(rotor, angle, axis)
    close(angle_gradient, tensor(-math.sin(0.7) + 2 * math.cos(0.7)))
    close(axis_gradient, math.sin(0.7) * tensor(2, 3, 4)[None])
    assert gradcheck(lambda theta: rotor(theta, axis), angle.requires_grad_())


def test_zero_vectors() -> None:
    zero = torch.zeros(4, dtype=torch.float64)
    assert torch.equal(normalise(zero), ONE)
    assert torch.equal(inverse(zero), zero)
    assert torch.equal(safe_unit(zero, 0), zero)
    assert norm(zero) == 0
    assert torch.equal(unit_axis(zero[1:]), tensor(1, 0, 0))
    (gradient,) = grads(norm, zero)
    assert torch.equal(gradient, zero)
    for function in (normalise, lambda x: safe_unit(x, -1)):
        (gradient,) = grads(function, zero)
        assert torch.equal(gradient, tensor(1, 2, 3, 4))
    grads(inverse, zero)
    grads(unit_axis, zero[1:])
    grads(geodesic_distance, zero, zero)


def test_a_zero_beside_other_rows_leaves_them_alone() -> None:
    rows = random(3, 3)
    rows[1] = 0
    (gradient,) = grads(lambda x: unit_axis(x)[::2], rows)
    (expected,) = grads(unit_axis, rows[::2])
    close(gradient[::2], expected)
    assert torch.equal(gradient[1], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e-20, 1.0, 1e20, 1e30, 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lengths_neither_overflow_nor_underflow(scale: float, dtype: torch.dtype) -> None:
    q = (random(50, 4).clamp(-1.5, 1.5) * scale).to(dtype)
    exact, tolerance = q.double(), 8 * torch.finfo(dtype).eps
    length = exact.norm(dim=-1)

    def near(result: Tensor, expected: Tensor) -> None:
        assert result.dtype == dtype
        error = (result.double() - expected).abs() / expected.norm(dim=-1, keepdim=True)
        assert error.max() < tolerance

    near(norm(q)[:, None], length[:, None])
    near(normalise(q), exact / length[:, None])
    near(safe_unit(q.T, 0).T, exact / length[:, None])
    near(unit_axis(q[:, 1:]), F.normalize(exact[:, 1:], dim=-1, eps=0))
    if scale < 1e37:
        inverses = conjugate(exact) / length[:, None].square()
        near(inverse(q), inverses)
    near(grads(lambda x: norm(x) / 64, q)[0], exact / length[:, None] * torch.arange(1, 51)[:, None] / 64)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_of_directions_are_right_at_any_scale(scale: float) -> None:
    q = random(20, 4).float()
    for function, size in ((normalise, 4), (unit_axis, 3), (lambda x: safe_unit(x, -1), 4)):
        (ordinary,) = grads(function, q[:, :size])
        (scaled,) = grads(function, q[:, :size] * scale)
        torch.testing.assert_close(scaled * scale, ordinary, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [0.0, 1e-45, 1e-40, 1e-30, 1e30, 3e38])
@pytest.mark.parametrize("theta", [0.0, 1e-45, 1e-30, math.pi / 2, 1e30])
def test_rotor_is_unit_and_finite_for_any_finite_input(length: float, theta: float) -> None:
    axis = torch.tensor([[1.0, 0, 0], [0, -1.0, 0], [0, 1.0, -1.0]]) * length
    angle = torch.full((3,), theta)
    grads(rotor, angle, axis)
    grads(lambda a, b: rotor_to_matrix(rotor(a, b)), angle, axis)
    assert (rotor(angle, axis).norm(dim=-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shortest", [True, False])
@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_equal_and_opposite_rotors_have_finite_gradients(dtype: torch.dtype, shortest: bool, t: float) -> None:
    q = random_rotors(20).to(dtype)
    part = torch.full((20,), t, dtype=dtype)
    for p in (q, -q, q.flip(-1) * torch.tensor([1, -1, 1, -1]), normalise(q + 1e-7)):
        grads(geodesic_distance, q, p)
        grads(lambda a, b, c: slerp(a, b, c, shortest=shortest), q, p, part)


def test_slerp_gradient_near_equal_rotors_is_precise() -> None:
    q = random_rotors(50)
    step = random(50, 4, seed=1)
    for size in (0.0, 1e-6, 1e-4, 3e-3, 1e-2):
        p = normalise(q + size * step)
        exact = grads(lambda a, b: slerp(a, b, 0.3), q, p)
        single = grads(lambda a, b: slerp(a, b, 0.3), q.float(), p.float())
        for a, b in zip(exact, single, strict=True):
            torch.testing.assert_close(b.double(), a, rtol=1e-3, atol=1e-2)


# Gradients


GRADIENTS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "pure": (pure, (random(2, 3),)),
    "scalar_first_to_last": (scalar_first_to_last, (random(2, 4),)),
    "scalar_last_to_first": (scalar_last_to_first, (random(2, 4),)),
    "conjugate": (conjugate, (random(2, 4),)),
    "product": (product, (random(2, 1, 4), random(3, 4, seed=1))),
    "norm": (norm, (random(3, 4),)),
    "normalise": (normalise, (random(3, 4),)),
    "inverse": (inverse, (random(3, 4),)),
    "safe_unit": (lambda x: safe_unit(x, 1), (random(2, 5, 2),)),
    "unit_axis": (unit_axis, (torch.cat((random(3, 3), tensor(0, 0, 2)[None])),)),
    "rotor": (rotor, (tensor(0.0, 0.4, math.pi / 2, -3.0), random(4, 3))),
    "rotate": (rotate, (random_rotors(3), random(2, 1, 3))),
    "rotor_to_matrix": (rotor_to_matrix, (torch.cat((random_rotors(3), ONE[None], J[None])),)),
    "left_embedding": (left_embedding, (random(2, 4),)),
    "right_embedding": (right_embedding, (random(2, 4),)),
    "geodesic_distance": (geodesic_distance, (random_rotors(5), random_rotors(5, seed=1))),
    "slerp": (slerp, (random_rotors(4), random_rotors(4, seed=1), tensor(0.0, 0.3, 1.0, 1.4))),
    "slerp, equal": (slerp, (random_rotors(2), random_rotors(2), tensor(0.3, 0.8))),
    "slerp, opposite": (slerp, (random_rotors(2), -random_rotors(2), tensor(0.3, 0.8))),
    "slerp, long": (
        lambda q, p, t: slerp(q, p, t, shortest=False),
        (random_rotors(2), -normalise(random_rotors(2) + 0.3 * random(2, 4, seed=1)), tensor(0.3, 0.8)),
    ),
    "matrix_to_rotor": (
        matrix_to_rotor,
        (rotor_to_matrix(normalise(torch.eye(4, dtype=torch.float64) + 0.1 * ONE + 0.05)),),
    ),
    "half turns there and back": (
        lambda x: rotor_to_matrix(matrix_to_rotor(x)),
        (rotor_to_matrix(torch.stack((I, J, K, normalise(I + 2 * K)))),),
    ),
    "rotor there and back": (
        lambda angle, axis: matrix_to_rotor(rotor_to_matrix(rotor(angle, axis))),
        (tensor(0.0, 0.1, 1.5, -1.2), random(4, 3)),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradcheck(name: str) -> None:
    function, inputs = GRADIENTS[name]
    assert gradcheck(function, [x.clone().requires_grad_() for x in inputs])


@pytest.mark.parametrize("name", ["norm", "normalise", "inverse", "safe_unit", "rotor", "geodesic_distance", "slerp"])
def test_second_derivatives(name: str) -> None:
    function, inputs = GRADIENTS[name]
    assert gradgradcheck(function, [x.clone().requires_grad_() for x in inputs])


def test_gradient_through_the_matrix_is_that_of_the_rotation() -> None:
    angle, axis, vector = random(6), random(6, 3), random(6, 3)
    by_rotor = grads(lambda a, b: rotate(rotor(a, b), vector), angle, axis)
    by_matrix = grads(lambda a, b: (rotor_to_matrix(rotor(a, b)) @ vector[..., None]).squeeze(-1), angle, axis)
    for a, b in zip(by_rotor, by_matrix, strict=True):
        close(a, b)


# Shapes, dtypes, tracing, errors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", GRADIENTS)
def test_every_function_keeps_its_dtype(name: str, dtype: torch.dtype) -> None:
    function, inputs = GRADIENTS[name]
    rounded = [x.to(dtype) for x in inputs]
    result = function(*rounded)
    assert result.dtype == dtype
    expected = function(*(x.double() for x in rounded))
    torch.testing.assert_close(
        result.double(), expected, rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps
    )
    assert all(g.dtype == dtype for g in grads(function, *rounded))


def test_leading_dimensions_broadcast() -> None:
    q, p, v = random_rotors(5, 1), random_rotors(3, seed=1), random(2, 1, 1, 3)
    assert product(q, p).shape == (5, 3, 4)
    close(product(q, p)[4, 2], product(q[4, 0], p[2]))
    assert rotate(q, v).shape == (2, 5, 1, 3)
    close(rotate(q, v)[1, 4, 0], rotate(q[4, 0], v[1, 0, 0]))
    assert geodesic_distance(q, p).shape == (5, 3)
    close(geodesic_distance(q, p)[4, 2], geodesic_distance(q[4, 0], p[2]))
    t = random(7, 1, 1)
    for shortest in (True, False):
        path = slerp(q, p, t, shortest=shortest)
        assert path.shape == (7, 5, 3, 4)
        close(path[6, 4, 2], slerp(q[4, 0], p[2], t[6, 0, 0], shortest=shortest))
    angle, axis = random(5, 1), random(3, 3)
    assert rotor(angle, axis).shape == (5, 3, 4)
    close(rotor(angle, axis)[4, 2], rotor(angle[4, 0], axis[2]))
    assert rotor(angle[0, 0], axis).shape == (3, 4)
    assert matrix_to_rotor(rotor_to_matrix(product(q, p))).shape == (5, 3, 4)
    assert rotor_to_matrix(q[:0]).shape == (0, 1, 3, 3)
    assert matrix_to_rotor(rotor_to_matrix(q[:0])).shape == (0, 1, 4)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_safe_unit_along_any_dimension(dim: int) -> None:
    x = random(3, 4, 5)
    close(safe_unit(x, dim), F.normalize(x, dim=dim))


@pytest.mark.parametrize("name", GRADIENTS)
def test_no_function_looks_at_the_data_to_choose_its_path(name: str) -> None:
    function, inputs = GRADIENTS[name]
    graph = make_fx(lambda *args: function(*args), tracing_mode="fake")(*inputs)
    constants = [node for node in graph.graph.nodes if node.op == "get_attr"]
    assert not constants, "a constant copied from the host cannot be captured in a CUDA graph"
    others = [x.flip(0) for x in inputs]
    close(graph(*others), function(*others))


WXYZ = "the last dimension must be 4 (w, x, y, z)"
XYZ = "the last dimension must be 3 (x, y, z)"
NO_FLOAT = "convert it to a floating dtype"
ones = torch.ones


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: product(ones(2, 4), ones(2, 3)), f"product: p has shape (2, 3): {WXYZ}"),
        (lambda: conjugate(torch.tensor(1.0)), f"conjugate: q has shape (): {WXYZ}"),
        (lambda: rotate(ones(4), ones(4)), f"rotate: vector has shape (4,): {XYZ}"),
        (lambda: rotate(ones(3), ones(3)), f"rotate: rotor has shape (3,): {WXYZ}"),
        (lambda: rotor(ones(2), ones(2, 4)), f"rotor: axis has shape (2, 4): {XYZ}"),
        (lambda: rotor(ones(2).int(), ones(2, 3)), f"rotor: angle has dtype torch.int32: {NO_FLOAT}"),
        (lambda: geodesic_distance(ones(4), ones(5)), f"geodesic_distance: p has shape (5,): {WXYZ}"),
        (lambda: slerp(ones(5), ones(4), 0.5), f"slerp: q has shape (5,): {WXYZ}"),
        (lambda: slerp(ones(4), ones(4), torch.tensor(1)), f"slerp: t has dtype torch.int64: {NO_FLOAT}"),
        (lambda: inverse(ones(4).cfloat()), f"inverse: q has dtype torch.complex64: {NO_FLOAT}"),
        (
            lambda: scalar_last_to_first(ones(3)),
            "scalar_last_to_first: q has shape (3,): the last dimension must be 4 (x, y, z, w)",
        ),
        (
            lambda: matrix_to_rotor(ones(3, 4)),
            "matrix_to_rotor: matrix has shape (3, 4): the last two dimensions must be 3",
        ),
        (
            lambda: matrix_to_rotor(ones(9)),
            "matrix_to_rotor: matrix has shape (9,): the last two dimensions must be 3",
        ),
        (lambda: safe_unit(ones(2, 3), 2), "safe_unit: x has shape (2, 3): nothing lies along dimension 2"),
        (lambda: safe_unit(ones(2, 0), 1), "safe_unit: x has shape (2, 0): nothing lies along dimension 1"),
    ],
)
def test_errors_name_the_argument_and_what_it_needs(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(QuatcapsError) as caught:
        call()
    assert str(caught.value) == message


ONE_ARGUMENT = {
    4: [scalar_first_to_last, conjugate, norm, normalise, inverse, rotor_to_matrix, left_embedding, right_embedding],
    3: [pure, unit_axis],
}


@pytest.mark.parametrize(("size", "function"), [(s, f) for s, all_ in ONE_ARGUMENT.items() for f in all_])
def test_functions_of_one_argument_check_it(size: int, function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(QuatcapsError, match=rf"^{function.__name__}: .* must be {size} \("):
        function(torch.ones(2, 7 - size))
    with pytest.raises(QuatcapsError, match=rf"^{function.__name__}: .* torch.int64"):
        function(torch.ones(2, size).long())


def test_the_examples_in_the_docstrings() -> None:
    results = doctest.testmod(quaternion)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("angle", [1e-6, 1e-4, 2e-3, 4.9e-3, 6e-3, 0.03, 0.049, 0.3, 1.2])
def test_slerp_about_one_axis_is_exact(angle: float) -> None:
    """A part of the arc is the rotor of that part of the angle, to the last digits of float64 at every size."""
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    start, end = (quaternion.rotor(torch.tensor(each, dtype=torch.float64), axis) for each in (0.0, angle))
    for part in (0.1, 0.35, 0.8):
        wanted = quaternion.rotor(torch.tensor(part * angle, dtype=torch.float64), axis)
        torch.testing.assert_close(quaternion.slerp(start, end, part), wanted, rtol=1e-14, atol=0)

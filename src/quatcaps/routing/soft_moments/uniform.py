"""Moments under uniform assignments, as matrix products: the first iteration needs no vote.

With r_ij = 1/J the sums over children are linear in the weighted poses and in their products. With f = a u and
ff = a u_c u_d for c ≤ d, and the filters F = A/J and FF = A_c A_d/J (twice that for c < d):

    S0 = Σ_i a_i / J        T1 = Σ_ic F f        T2 = Σ_i,c≤d FF ff
    m = T1/S0               S1 = T1 − m S0       S2 = T2 − m (2 T1 − m S0)

T2/S0 − m² cancels where votes agree: of votes of size 20 with a variance of 1e-4 float32 leaves nothing. So where
m² exceeds the variance by more than `CANCELS`, all of this is done in float64, which takes twice as long.

Letters of shapes: B children in a window, P points (images × positions), J parents, R × C rows and columns of a pose
(D = R·C numbers), Q = C (C + 1)/2 products of two columns.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.threads import in_threads, shares

CANCELS = 30.0
"""Largest m²/σ² for float32: it costs five of its bits, and leaves the variance right to about 2e-6."""
BLOCK = 2**17
"""Numbers in a block of features: more leave the cache, fewer do not repay the call."""


def uniform_moments(
    poses: Float[Tensor, "B D P"], activations: Float[Tensor, "B 1 P"], maps: Float[Tensor, "B C J C"]
) -> tuple[Float[Tensor, "D J P"], Float[Tensor, "J P"], Float[Tensor, "D J P"], Float[Tensor, "D J P"]]:
    """m, S0, S1, S2: the mean and the moments about it when every parent at a point gets the same share of a child."""
    parents, columns = maps.shape[2:]
    one, other = zip(*pairs(columns), strict=True)
    precise = maps.double().movedim(0, 2)  # (C, J, B, C)
    filters = (precise / parents).flatten(2).flatten(0, 1)
    squares = precise[..., one] * precise[..., other]
    squares = torch.cat([squares[..., q, None] * ((2 - (c == d)) / parents) for q, (c, d) in enumerate(pairs(columns))], -1)
    mean, mass, first, second = lean_uniform(poses, activations, filters, squares.flatten(2).flatten(0, 1))
    return mean, mass.expand(parents, -1), first, second


def pairs(columns: int) -> list[tuple[int, int]]:
    """All c ≤ d."""
    return [(c, d) for c in range(columns) for d in range(c, columns)]


@torch.library.custom_op("quatcaps::lean_uniform", mutates_args=())
def lean_uniform(
    poses: Tensor, activations: Tensor, filters: Tensor, squares: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    columns = filters.shape[1] // len(poses)
    parents = len(filters) // columns
    mass = activations.double().sum(0) / parents
    for dtype in dict.fromkeys((poses.dtype, torch.float64)):
        first, second = sums_about_zero(poses, activations, filters.to(dtype), squares.to(dtype))
        weight = mass.to(dtype)
        mean = (first / weight.clamp(min=torch.finfo(dtype).tiny)).to(poses.dtype)
        about_mean = second - mean * (2 * first - mean * weight)
        if not cancels(mean, weight, about_mean):
            break
    mass, first, second = (moment.to(poses.dtype) for moment in (mass, first - mean * weight, about_mean))
    return mean, mass, first, second


def cancels(mean: Tensor, mass: Tensor, second: Tensor) -> bool:
    """Whether m² exceeds the variance by too much for float32."""
    return bool((mean.square() * mass > CANCELS * second).any())


@lean_uniform.register_fake
def _(poses: Tensor, activations: Tensor, filters: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    parents = filters.shape[0] * len(poses) // filters.shape[1]
    mean, first, second = (poses.new_empty(poses.shape[1], parents, poses.shape[2]) for _ in range(3))
    return mean, poses.new_empty(1, poses.shape[2]), first, second


def sums_about_zero(poses: Tensor, activations: Tensor, filters: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """T1 and T2, each (D, J, P), in the precision of the filters."""
    children, dims, points = poses.shape
    columns, products = filters.shape[1] // children, squares.shape[1] // children
    ranges = shares(children, poses.numel() * products)
    totals = filters.new_zeros(2, len(ranges), len(filters), dims // columns * points)

    def work(k: int, share: slice) -> None:
        for block in blocks(share, poses):
            f, ff, _ = features(poses[block], activations[block], columns, filters.dtype)
            totals[0, k].addmm_(filters[:, block.start * columns : block.stop * columns], f)
            totals[1, k].addmm_(squares[:, block.start * products : block.stop * products], ff)

    in_threads(work, ranges)
    first, second = totals.sum(1).view(2, columns, -1, dims // columns, points).movedim(3, 1).flatten(1, 2)
    return first, second


def blocks(share: slice, poses: Tensor) -> list[slice]:
    """The children of a share, some at a time."""
    size = max(1, BLOCK // poses[0].numel())
    return [slice(start, min(start + size, share.stop)) for start in range(share.start, share.stop, size)]


def features(
    poses: Tensor, activations: Tensor, columns: int, dtype: torch.dtype
) -> tuple[Float[Tensor, "bC RP"], Float[Tensor, "bQ RP"], Float[Tensor, "b C R P"]]:
    """f = a u, ff = a u_c u_d, and u itself with its columns first."""
    u = poses.unflatten(1, (-1, columns)).transpose(1, 2).to(dtype)
    f = activations[:, None] * u
    ff = torch.stack([f[:, c] * u[:, d] for c, d in pairs(columns)], 1)
    return f.flatten(0, 1).flatten(1), ff.flatten(0, 1).flatten(1), u


@torch.library.custom_op("quatcaps::lean_uniform_backward", mutates_args=())
def lean_uniform_backward(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    filters: Tensor,
    squares: Tensor,
    mean: Tensor,
    mass: Tensor,
    second: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """With G0, G1, G2 the gradients of S0, T1, T2:

        df = Fᵀ G1      dff = FFᵀ G2      dF = G1 fᵀ      dFF = G2 ffᵀ
        du_c = a (df_c + Σ_d dff_cd u_d [twice for d = c])      da = u·df + Σ_c≤d dff_cd u_c u_d + G0/J
    """
    children, dims, points = poses.shape
    columns, products = filters.shape[1] // children, squares.shape[1] // children
    parents = len(filters) // columns
    dtype = torch.float64 if cancels(mean, mass, second) else poses.dtype
    precise = [grad.to(dtype) for grad in (grad_first, grad_second)]
    first = precise[0] - 2 * mean * precise[1]
    from_mass = (grad_mass.to(dtype) + ((mean * precise[1] - precise[0]) * mean).sum((0, 1))) / parents
    first, second = (
        grad.unflatten(0, (-1, columns)).movedim(0, 2).reshape(len(filters), -1) for grad in (first, precise[1])
    )
    f32, ff32 = filters.to(dtype), squares.to(dtype)
    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    grad_filters, grad_squares = torch.empty_like(filters), torch.empty_like(squares)

    def work(k: int, share: slice) -> None:
        for block in blocks(share, poses):
            one = slice(block.start * columns, block.stop * columns)
            two = slice(block.start * products, block.stop * products)
            f, ff, u = features(poses[block], activations[block], columns, dtype)
            grad_filters[:, one] = first @ f.T
            grad_squares[:, two] = second @ ff.T
            df = (f32[:, one].T @ first).view_as(u)
            dff = (ff32[:, two].T @ second).view(len(u), products, *u.shape[2:])
            du = df.clone()
            for q, (c, d) in enumerate(pairs(columns)):
                du[:, c].addcmul_(dff[:, q], u[:, d])
                du[:, d].addcmul_(dff[:, q], u[:, c])
            # u·du counts the products twice, u·df not at all
            grad_activations[block] = (0.5 * (df + du) * u).sum((1, 2))[:, None] + from_mass
            du *= activations[block, None]
            grad_poses[block] = du.transpose(1, 2).flatten(1, 2)

    in_threads(work, shares(children, poses.numel() * products))
    return grad_poses, grad_activations, grad_filters, grad_squares


@lean_uniform_backward.register_fake
def _(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    filters: Tensor,
    squares: Tensor,
    mean: Tensor,
    mass: Tensor,
    second: Tensor,
) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(given) for given in (poses, activations, filters, squares))


def keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    mean, mass, _, second = output
    ctx.mark_non_differentiable(mean)
    ctx.save_for_backward(*inputs, mean, mass, second)


def differentiate(ctx: Any, _: Tensor, *grads: Tensor) -> tuple[Tensor, ...]:
    return lean_uniform_backward(*(grad.contiguous() for grad in grads), *ctx.saved_tensors)


lean_uniform.register_autograd(differentiate, setup_context=keep)

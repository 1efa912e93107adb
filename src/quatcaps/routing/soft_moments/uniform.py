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

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.threads import blocks, in_threads, shares

CANCELS = 30.0
"""Largest m²/σ² for float32: it costs five of its bits, and leaves the variance right to about 2e-6."""


@torch.library.custom_op(
    "quatcaps::lean_uniform",
    mutates_args=(),
    schema="(Tensor poses, Tensor activations, Tensor maps) -> (Tensor, Tensor, Tensor, Tensor)",
)
def uniform_moments(poses: Tensor, activations: Tensor, maps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """poses (B, D, P), activations (B, 1, P), maps (B, C, J, C) → m (D, J, P), S0 (1, P), S1 and S2 (D, J, P):
    the mean and the moments about it when every parent at a point gets the same share of a child."""
    mass = activations.sum(0, dtype=torch.float64) / maps.shape[2]
    for dtype in dict.fromkeys((poses.dtype, torch.float64)):
        weight = mass.to(dtype)
        first, second = sums_about_zero(poses, activations, filters(maps, dtype))
        mean = (first / weight.clamp(min=torch.finfo(dtype).tiny)).to(poses.dtype)
        second = second - mean * (2 * first - mean * weight)
        if not cancels(mean, weight, second):
            break
    mass, first, second = (moment.to(poses.dtype) for moment in (mass, first - mean * weight, second))
    return mean, mass, first, second


@uniform_moments.register_fake
def _(poses: Tensor, activations: Tensor, maps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, dims, points = poses.shape
    mean, first, second = (poses.new_empty(dims, maps.shape[2], points) for _ in range(3))
    return mean, poses.new_empty(1, points), first, second


def cancels(mean: Tensor, mass: Tensor, second: Tensor) -> bool:
    """Whether m² exceeds the variance by too much for float32."""
    return bool((mean.square() * mass > CANCELS * second).any())


def pairs(columns: int) -> list[tuple[int, int, float]]:
    """All c ≤ d, and how often a product of columns c and d counts."""
    return [(c, d, 1.0 if c == d else 2.0) for c in range(columns) for d in range(c, columns)]


class Filters(NamedTuple):
    single: Float[Tensor, "CJ B C"]  # F
    double: Float[Tensor, "CJ B Q"]  # FF


def filters(maps: Float[Tensor, "B C J C"], dtype: torch.dtype) -> Filters:
    """F and FF, children and columns last."""
    columns, parents = maps.shape[-1], maps.shape[2]
    single = maps.to(dtype).movedim(0, 2).flatten(0, 1).contiguous()
    one = single.unbind(-1)
    double = torch.stack([one[c] * one[d] * (times / parents) for c, d, times in pairs(columns)], -1)
    return Filters(single / parents, double)


def sums_about_zero(
    poses: Tensor, activations: Tensor, weights: Filters
) -> tuple[Float[Tensor, "D J P"], Float[Tensor, "D J P"]]:
    """T1 and T2, in the precision of the filters."""
    children, dims, points = poses.shape
    columns, rows = weights.single.shape[-1], dims // weights.single.shape[-1]
    ranges = shares(children, poses.numel() * columns, poses.device)
    totals = weights.single.new_zeros(2, len(ranges), len(weights.single), rows * points)

    def work(k: int, share: slice) -> None:
        features = Features(share, poses, columns, weights.single.dtype)
        for block in features.blocks:
            _, f, ff = features(poses[block], activations[block])
            totals[0, k].addmm_(weights.single[:, block].flatten(1), f)
            totals[1, k].addmm_(weights.double[:, block].flatten(1), ff)

    in_threads(work, ranges)
    first, second = totals.sum(1).view(2, columns, -1, rows, points).movedim(3, 1).flatten(1, 2)
    return first, second


class Features:
    """f = a u and ff = a u_c u_d of some children at a time, in memory that is used again."""

    def __init__(self, share: slice, poses: Tensor, columns: int, dtype: torch.dtype) -> None:
        dims, points = poses.shape[1:]
        self.pairs = pairs(columns)
        size, self.blocks = blocks(share, dims * points)
        shape = (dims // columns, points)
        self.u, self.f = (poses.new_empty(size, columns, *shape, dtype=dtype) for _ in range(2))
        self.ff = poses.new_empty(size, len(self.pairs), *shape, dtype=dtype)

    def __call__(
        self, poses: Tensor, activations: Tensor
    ) -> tuple[Float[Tensor, "b C R P"], Float[Tensor, "bC RP"], Float[Tensor, "bQ RP"]]:
        """u with its columns first, f, ff."""
        u, f, ff = (buffer[: len(poses)] for buffer in (self.u, self.f, self.ff))
        u.copy_(poses.view(len(u), -1, u.shape[1], u.shape[3]).transpose(1, 2))
        torch.mul(u, activations[:, None], out=f)
        for q, (c, d, _) in enumerate(self.pairs):
            torch.mul(f[:, c], u[:, d], out=ff[:, q])
        return u, f.flatten(0, 1).flatten(1), ff.flatten(0, 1).flatten(1)


@torch.library.custom_op(
    "quatcaps::lean_uniform_backward",
    mutates_args=(),
    schema="(Tensor g0, Tensor g1, Tensor g2, Tensor poses, Tensor activations, Tensor maps, Tensor mean, Tensor mass, "
    "Tensor second) -> (Tensor, Tensor, Tensor)",
)
def uniform_backward(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    mean: Tensor,
    mass: Tensor,
    second: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradients of S0, S1, S2 follow those of Σ_i a_i/J, T1 and T2: G0, G1, G2. Then

    df = Fᵀ G1      dff = FFᵀ G2      dF = G1 fᵀ      dFF = G2 ffᵀ
    du_c = a (df_c + Σ_d≠c dff_cd u_d + 2 dff_cc u_c)        da = Σ_c df_c u_c + Σ_c≤d dff_cd u_c u_d + G0/J
    """
    dtype = torch.float64 if cancels(mean, mass, second) else poses.dtype
    columns, parents = maps.shape[-1], maps.shape[2]
    weights = filters(maps, dtype)
    g0, g1, g2 = (grad.to(dtype) for grad in (grad_mass, grad_first, grad_second))
    from_mass = (g0 + ((mean * g2 - g1) * mean).sum((0, 1))) / parents
    first, twice = (by_filter(grad, columns) for grad in (g1 - 2 * mean * g2, g2))
    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    grads = Filters(*(torch.empty_like(weight) for weight in weights))

    def work(k: int, share: slice) -> None:
        features = Features(share, poses, columns, dtype)
        df_all, dff_all, du_all = (torch.empty_like(like) for like in (features.f, features.ff, features.u))
        for block in features.blocks:
            u, f, ff = features(poses[block], activations[block])
            df, dff, du = (buffer[: len(u)] for buffer in (df_all, dff_all, du_all))
            torch.mm(weights.single[:, block].flatten(1).T, first, out=df.view_as(f))
            torch.mm(weights.double[:, block].flatten(1).T, twice, out=dff.view_as(ff))
            grads.single[:, block] = (first @ f.T).view(-1, len(u), columns)
            grads.double[:, block] = (twice @ ff.T).view(-1, *dff.shape[:2])
            du.copy_(df)
            for q, (c, d, _) in enumerate(features.pairs):
                du[:, c].addcmul_(dff[:, q], u[:, d])
                du[:, d].addcmul_(dff[:, q], u[:, c])
            # u·df counts what is linear in u, u·du also counts the products, twice
            grad_activations[block] = df.add_(du).mul_(u).sum((1, 2))[:, None].mul_(0.5).add_(from_mass)
            grad_poses[block] = du.mul_(activations[block, None]).transpose(1, 2).flatten(1, 2)

    in_threads(work, shares(len(poses), poses.numel() * columns, poses.device))
    return grad_poses, grad_activations, grad_of_maps(grads, maps)


def by_filter(grad: Float[Tensor, "D J P"], columns: int) -> Float[Tensor, "CJ RP"]:
    """The layout of T1 and T2 as products of matrices."""
    dims, parents, points = grad.shape
    return grad.view(dims // columns, columns, parents, points).movedim(0, 2).flatten(2).flatten(0, 1)


def grad_of_maps(grads: Filters, maps: Float[Tensor, "B C J C"]) -> Float[Tensor, "B C J C"]:
    """dA from dF and dFF."""
    columns, parents = maps.shape[-1], maps.shape[2]
    one = maps.movedim(0, 2).flatten(0, 1).unbind(-1)
    total = grads.single / parents
    for q, (c, d, times) in enumerate(pairs(columns)):
        scaled = grads.double[..., q] * (times / parents)
        total[..., c] += scaled * one[d]
        total[..., d] += scaled * one[c]
    return total.view(columns, parents, -1, columns).movedim(2, 0).to(maps.dtype).contiguous()


@uniform_backward.register_fake
def _(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    mean: Tensor,
    mass: Tensor,
    second: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return poses.new_empty(poses.shape), poses.new_empty(activations.shape), maps.new_empty(maps.shape)


def keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    mean, mass, _, second = output
    ctx.mark_non_differentiable(mean)
    ctx.save_for_backward(*inputs, mean, mass, second)


def differentiate(ctx: Any, _: Tensor, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    poses, activations, maps = uniform_backward(*(grad.contiguous() for grad in grads), *ctx.saved_tensors)
    return poses, activations, maps


uniform_moments.register_autograd(differentiate, setup_context=keep)

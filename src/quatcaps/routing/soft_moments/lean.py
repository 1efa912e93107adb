"""Moments without votes in memory, in plain PyTorch: a few children's votes at a time, formed again for the backward.

The symbols are those of `soft_moments`: votes v = A u, deviations d = v − m, assignments r = softmax_j of the logits
c − ½ Σ_h p d², ρ = a r, and S0, S1, S2 the sums over children of ρ, ρ d, ρ d². With g0, g1, g2 the gradients of these:

    x  = g0 + Σ_h d (g1 + g2 d) − da      with da = Σ_j r (g0 + Σ_h d (g1 + g2 d))
    dl = ρ x                  the gradient of the logit: dc = Σ_i dl, dp = −½ Σ_i dl d²
    dd = ρ (g1 + d (2 g2 − p x))          dm = −Σ_i dd, du = Aᵀ dd, dA = dd uᵀ

Only r is kept from the forward pass, one number per vote: the softmax takes longer than all that is formed again.

Letters of shapes: N images, P points (images × positions), B children in a window (places × child types), b children
in a block, J parent types, R × C a pose's rows and columns (D = R·C numbers). Everything lies with its points last:
votes as (b, D, J, P), where sums over children, pose dimensions and parents all run along contiguous memory.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.soft_moments.reference import windows
from quatcaps.routing.soft_moments.threads import blocks, in_threads, shares
from quatcaps.routing.soft_moments.uniform import uniform_moments
from quatcaps.routing.window import Window

LOG2_E = math.log2(math.e)
"""Logits are to base 2: exp2 takes two thirds of exp's time."""
LEAST_TOTAL = 2.0**-100
"""A child whose Σ_j exp(logit) falls below this is too far from all parents for its softmax to be taken as it is."""


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    if poses.shape[0] == 0:
        return "works on one image or more, not on none"
    return None


def bind(
    poses: Float[Tensor, "N I D height width"],
    activations: Float[Tensor, "N I height width"],
    maps: Float[Tensor, "offsets I J C C"],
    window: Window,
    *,
    competition: str,
) -> UnformedVotes:
    """Lays out children and maps; no vote is formed yet."""
    images, children, dims, height, width = poses.shape
    parents, columns = maps.shape[2:4]
    places, grid = window.places, window.positions(height, width)
    points = images * grid[0] * grid[1]
    poses_in_windows = windows(poses.flatten(1, 2), window).view(images, children, dims, places, grid[0] * grid[1])
    activations_in_windows = windows(activations, window).view(images, children, places, grid[0] * grid[1])
    maps_bcjc = maps.transpose(2, 3).expand(places, -1, -1, -1, -1)
    return UnformedVotes(
        poses_in_windows.permute(3, 1, 2, 0, 4).reshape(places * children, dims, points),
        activations_in_windows.permute(2, 1, 0, 3).reshape(places * children, 1, points),
        maps_bcjc.reshape(places * children, columns, parents, columns),
        (images, *grid),
    )


class UnformedVotes:
    """Children and maps, and the moments of their votes under given parents."""

    def __init__(
        self,
        poses: Float[Tensor, "B D P"],
        activations: Float[Tensor, "B 1 P"],
        maps: Float[Tensor, "B C J C"],
        points: tuple[int, int, int],
    ) -> None:
        self.children, self.inside = (poses, activations, maps), len(poses)
        self.points = points

    def __call__(self, parents: Parents | None) -> Moments:
        if parents is None:
            centre, mass, first, second = uniform_moments(*self.children)
            mass = mass.expand(self.children[2].shape[2], -1)
            return Moments(*(self.put_back(moment) for moment in (centre, mass, first, second)))
        inputs = (*self.children, *(self.lay_out(values) for values in parents))
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        mass, first, second, _ = lean_moments(*inputs, keep)
        return Moments(parents.centre, *(self.put_back(moment) for moment in (mass, first, second)))

    def lay_out(self, parents: Tensor) -> Tensor:
        """(N, J, H, W) → (J, P), or (N, J, D, H, W) → (D, J, P)."""
        laid = parents.transpose(0, 1) if parents.ndim == 4 else parents.permute(2, 1, 0, 3, 4)
        return laid.flatten(-3).contiguous()

    def put_back(self, sums: Tensor) -> Tensor:
        """The inverse of `lay_out`."""
        sums = sums.view(*sums.shape[:-1], *self.points)
        return sums.transpose(0, 1) if sums.ndim == 4 else sums.permute(2, 1, 0, 3, 4)


def form_deviations(d: Float[Tensor, "b D J P"], poses: Tensor, maps: Tensor, minus_centre: Tensor) -> None:
    """d = A u − m."""
    u, a = by_row(poses, maps)
    by_map = d.view(len(u), -1, d.shape[-1])
    if len(u) == len(d):
        torch.baddbmm(minus_centre.flatten(0, 1)[None], a, u, out=by_map)
    else:
        torch.bmm(a, u, out=by_map)
        d.add_(minus_centre)


def by_row(poses: Float[Tensor, "b D P"], maps: Float[Tensor, "b C J C"]) -> tuple[Tensor, Tensor]:
    """Factors of matrix products, (b·R, C, P) and (b·R, C·J, C): a map acts on each row of a pose by itself."""
    columns = maps.shape[-1]
    rows = poses.shape[1] // columns
    laid = maps.flatten(1, 2)
    return poses.reshape(-1, columns, poses.shape[-1]), laid if rows == 1 else laid.repeat_interleave(rows, 0)


def weigh(
    r: Float[Tensor, "b J P"],
    squares: Float[Tensor, "b D J P"],
    factors: Float[Tensor, "D J P"],
    logit: Float[Tensor, "J P"],
) -> Float[Tensor, "b 1 P"]:
    """Leaves in r the exponentials of the logits, relative to one another, and returns their sums over parents.

    The largest c_j is 0, so no exponential overflows, and the largest logit need be found only if all are tiny.
    """
    write_logits(r, squares, factors, logit)
    total = r.exp2_().sum(1, keepdim=True)
    if total.amin().item() < LEAST_TOTAL:
        write_logits(r, squares, factors, logit)
        total = r.sub_(r.amax(1, keepdim=True)).exp2_().sum(1, keepdim=True)
    return total


def write_logits(out: Tensor, squares: Tensor, factors: Tensor, logit: Tensor) -> None:
    """c − ½ Σ_h p d²; the factors are −½ p."""
    torch.addcmul(logit, squares[:, 0], factors[0], out=out)
    for h in range(1, len(factors)):
        out.addcmul_(squares[:, h], factors[h])


@torch.library.custom_op(
    "quatcaps::lean_moments",
    mutates_args=(),
    schema="(Tensor poses, Tensor activations, Tensor maps, Tensor centre, Tensor precision, Tensor logit, bool keep)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def lean_moments(
    poses: Tensor, activations: Tensor, maps: Tensor, centre: Tensor, precision: Tensor, logit: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """S0 (J, P), S1 and S2 (D, J, P), and for the backward pass, if it is to `keep` them, the assignments (B, J, P)."""
    dims, parents, points = centre.shape
    minus_centre, factors = -centre, precision * (-0.5 * LOG2_E)
    relative = (logit - logit.amax(0)) * LOG2_E
    assignments = poses.new_empty((len(poses), parents, points) if keep else 0)
    ranges = shares(len(poses), len(poses) * logit.numel(), poses.device)
    totals = tuple(poses.new_empty(len(ranges), *like.shape) for like in (logit, centre, centre))

    def work(k: int, share: slice) -> None:
        size, all_blocks = blocks(share, logit.numel())
        wide = [poses.new_zeros(size, dims, parents, points) for _ in range(4)]
        narrow = [poses.new_zeros(size, parents, points) for _ in range(2)]
        for block in all_blocks:
            d, squares, s1, s2 = (buffer[: block.stop - block.start] for buffer in wide)
            rho, s0 = (buffer[: len(d)] for buffer in narrow)
            form_deviations(d, poses[block], maps[block], minus_centre)
            torch.mul(d, d, out=squares)
            total = weigh(rho, squares, factors, relative)
            if keep:
                torch.div(rho, total, out=assignments[block])
                torch.mul(assignments[block], activations[block], out=rho)
            else:
                rho.mul_(activations[block] / total)
            s0.add_(rho)
            s1.addcmul_(d, rho[:, None])
            s2.addcmul_(squares, rho[:, None])
        for into, sums in zip(totals, (narrow[1], wide[2], wide[3]), strict=True):
            torch.sum(sums, 0, out=into[k])

    in_threads(work, ranges)
    mass, first, second = (partial.sum(0) for partial in totals)
    return mass, first, second, assignments


@lean_moments.register_fake
def _(
    poses: Tensor, activations: Tensor, maps: Tensor, centre: Tensor, precision: Tensor, logit: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mass, first, second = (poses.new_empty(like.shape) for like in (logit, centre, centre))
    return mass, first, second, poses.new_empty((len(poses), *logit.shape) if keep else 0)


@torch.library.custom_op(
    "quatcaps::lean_moments_backward",
    mutates_args=(),
    schema="(Tensor g0, Tensor g1, Tensor g2, Tensor poses, Tensor activations, Tensor maps, Tensor centre, "
    "Tensor precision, Tensor assignments) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def lean_moments_backward(
    g0: Tensor,
    g1: Tensor,
    g2: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor,
    assignments: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the six differentiable inputs."""
    (dims, parents, points), columns = centre.shape, maps.shape[-1]
    minus_centre, minus_precision, twice_g2 = -centre, -precision, 2 * g2
    grad_poses, grad_activations, grad_maps = (given.new_empty(given.shape) for given in (poses, activations, maps))
    ranges = shares(len(poses), len(poses) * g0.numel(), poses.device)
    totals = tuple(poses.new_empty(len(ranges), *like.shape) for like in (g0, centre, centre))

    def work(k: int, share: slice) -> None:
        size, all_blocks = blocks(share, g0.numel())
        wide = [poses.new_zeros(size, dims, parents, points) for _ in range(4)]
        narrow = [poses.new_zeros(size, parents, points) for _ in range(3)]
        for block in all_blocks:
            d, dd, sum_dd, sum_squares = (buffer[: block.stop - block.start] for buffer in wide)
            x, rho, sum_dl = (buffer[: len(d)] for buffer in narrow)
            r = assignments[block]
            form_deviations(d, poses[block], maps[block], minus_centre)
            torch.addcmul(g1, g2, d, out=dd)
            torch.addcmul(g0, dd[:, 0], d[:, 0], out=x)
            for h in range(1, dims):
                x.addcmul_(dd[:, h], d[:, h])
            da = torch.mul(x, r, out=rho).sum(1, keepdim=True)
            grad_activations[block] = da
            x.sub_(da)
            torch.mul(r, activations[block], out=rho)
            torch.addcmul(twice_g2, minus_precision, x[:, None], out=dd)
            torch.addcmul(g1, dd, d, out=dd).mul_(rho[:, None])
            sum_dd.add_(dd)
            dl = x.mul_(rho)
            sum_dl.add_(dl)
            sum_squares.addcmul_(d.mul_(d), dl[:, None])

            u, a = by_row(poses[block], maps[block])
            by_map = dd.view(len(u), -1, points)
            torch.bmm(a.mT, by_map, out=grad_poses[block].view_as(u))
            grad_by_row = torch.bmm(u, by_map.mT).view(len(d), -1, columns, columns * parents)
            grad_maps[block] = grad_by_row.sum(1).mT.reshape(maps[block].shape)
        for into, sums in zip(totals, (narrow[2], wide[2], wide[3]), strict=True):
            torch.sum(sums, 0, out=into[k])

    in_threads(work, ranges)
    grad_logit, minus_grad_centre, squares = (partial.sum(0) for partial in totals)
    return grad_poses, grad_activations, grad_maps, -minus_grad_centre, -0.5 * squares, grad_logit


@lean_moments_backward.register_fake
def _(
    g0: Tensor,
    g1: Tensor,
    g2: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor,
    assignments: Tensor,
) -> tuple[Tensor, ...]:
    return tuple(given.new_empty(given.shape) for given in (poses, activations, maps, centre, precision, g0))


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    assignments = output[3]
    ctx.mark_non_differentiable(assignments)
    ctx.set_materialize_grads(False)  # or it would make zeros as large as the assignments
    ctx.save_for_backward(*inputs[:5], assignments)


def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    centre = ctx.saved_tensors[3]
    shapes = (centre.shape[1:], centre.shape, centre.shape)
    given = [
        centre.new_zeros(shape) if grad is None else grad.contiguous()
        for grad, shape in zip(grads[:3], shapes, strict=True)
    ]
    return *lean_moments_backward(*given, *ctx.saved_tensors), None


lean_moments.register_autograd(differentiate, setup_context=save)

"""Moments without votes in memory, in plain PyTorch."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments, Parents, SoftMoments
from quatcaps.routing.soft_moments.threads import in_threads, shares
from quatcaps.routing.soft_moments.uniform import uniform_moments
from quatcaps.routing.window import Window

BLOCK = int(os.environ.get("LEAN_BLOCK", 2**17))
LOG2_E = math.log2(math.e)
LEAST_TOTAL = 2.0**-100


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    return None


def bind(poses: Tensor, activations: Tensor, maps: Tensor, window: Window, *, competition: str) -> SoftMoments:
    images, children, dims, height, width = poses.shape
    parents, columns = maps.shape[2], maps.shape[-1]
    places, inside = window.places, window.places * children
    u = windows(poses.flatten(1, 2), window).view(images, children, dims, places, -1)
    u = u.permute(3, 1, 2, 0, 4).reshape(inside, dims, -1)
    a = windows(activations, window).view(images, children, places, -1).permute(2, 1, 0, 3).reshape(inside, 1, -1)
    A = maps.transpose(2, 3).expand(places, -1, -1, -1, -1).reshape(inside, columns, parents, columns)
    return LeanVotes(u, a, A, images, window.positions(height, width))


class LeanVotes:
    def __init__(self, poses, activations, maps, images, grid):
        self.poses, self.activations, self.maps, self.images, self.grid = poses, activations, maps, images, grid

    def __call__(self, parents: Parents | None) -> Moments:
        children = (self.poses, self.activations, self.maps)
        if parents is None:
            centre, mass, first, second = uniform_moments(*children)
            mass = mass.expand(self.maps.shape[2], -1)
            return Moments(*(self.put_back(x) for x in (centre, mass, first, second)))
        needs = torch.is_grad_enabled() and any(t.requires_grad for t in (*children, *parents))
        moments = lean_moments(*children, *(self.lay_out(x) for x in parents), needs)
        return Moments(parents.centre, *(self.put_back(x) for x in moments[:3]))

    def lay_out(self, values: Tensor) -> Tensor:
        if values.ndim == 4:
            return values.transpose(0, 1).reshape(values.shape[1], -1)
        return values.permute(2, 1, 0, 3, 4).reshape(values.shape[2], values.shape[1], -1)

    def put_back(self, sums: Tensor) -> Tensor:
        sums = sums.unflatten(-1, (self.images, *self.grid))
        return sums.transpose(0, 1) if sums.ndim == 4 else sums.permute(2, 1, 0, 3, 4)


def windows(grid: Tensor, window: Window) -> Tensor:
    return F.unfold(grid, (window.height, window.width), stride=window.stride)


def logits(e, qs, c, hp):
    torch.addcmul(c, qs[0], hp[0], out=e)
    for q, p in zip(qs[1:], hp[1:]): e.addcmul_(q, p)

def assign(e, qs, c, hp):
    logits(e, qs, c, hp)
    e.exp2_()
    total = e.sum(1, keepdim=True)
    if total.amin().item() < LEAST_TOTAL:
        logits(e, qs, c, hp)
        e.sub_(e.amax(1, keepdim=True)); e.exp2_()
        total = e.sum(1, keepdim=True)
    return total

def deviations(d, nm, A, u):
    k, D, J, P = d.shape
    C = A.shape[-1]; R = D // C
    if R == 1:
        torch.baddbmm(nm.view(1, D * J, P), A, u, out=d.view(k, D * J, P))
    else:
        torch.bmm(A.repeat_interleave(R, 0), u.reshape(k * R, C, P), out=d.view(k * R, C * J, P))
        d.add_(nm)


@torch.library.custom_op("quatcaps::lean_moments", mutates_args=())
def lean_moments(u: Tensor, a: Tensor, A: Tensor, m: Tensor, p: Tensor, c: Tensor, keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, D, NP = u.shape; J = m.shape[1]
    A = A.flatten(1, 2)
    nm, hp = -m, p * (-0.5 * LOG2_E)
    c = LOG2_E * (c - c.amax(0))
    r = u.new_empty(B, J, NP) if keep else u.new_empty(0)
    ranges = shares(B, B * J * NP)
    n = len(ranges)
    S0, S1, S2 = u.new_zeros(n, J, NP), u.new_zeros(n, D, J, NP), u.new_zeros(n, D, J, NP)
    PTS = max(64, BLOCK // J)
    def work(k, share):
        lo, hi = share.start, share.stop
        for q0 in range(0, NP, PTS):
            pts = slice(q0, min(q0 + PTS, NP))
            nm_, hp_, c_ = nm[..., pts].contiguous(), hp[..., pts].contiguous(), c[..., pts].contiguous()
            P = c_.shape[1]
            b = max(1, min(hi - lo, BLOCK // (J * P)))
            full = [u.new_empty(b, D, J, P) for _ in range(2)] + [u.new_empty(b, J, P)]
            sums = [u.new_zeros(b, J, P), u.new_zeros(b, D, J, P), u.new_zeros(b, D, J, P)]
            hps = hp_.unbind(0)
            us, as_, As = u[lo:hi, :, pts].split(b), a[lo:hi, :, pts].split(b), A[lo:hi].split(b)
            rs = r[lo:hi, :, pts].split(b) if keep else us
            kk = 0
            for ui, ai, Ai, ri in zip(us, as_, As, rs):
                if len(ui) != kk:
                    kk = len(ui)
                    d, q, e = (x[:kk] for x in full); s0, s1, s2 = (x[:kk] for x in sums)
                    e1 = e[:, None]; qs = q.unbind(1)
                deviations(d, nm_, Ai, ui)
                torch.mul(d, d, out=q)
                total = assign(e, qs, c_, hps)
                if keep:
                    torch.div(e, total, out=ri); torch.mul(ri, ai, out=e)
                else:
                    e.mul_(ai / total)
                s0.add_(e)
                s1.addcmul_(d, e1)
                s2.addcmul_(q, e1)
            for S, s in zip((S0, S1, S2), sums): S[k][..., pts].copy_(s.sum(0))
    in_threads(work, ranges)
    return S0.sum(0), S1.sum(0), S2.sum(0), r


@lean_moments.register_fake
def _(u, a, A, m, p, c, keep):
    r = (u.shape[0], m.shape[1], m.shape[2]) if keep else (0,)
    return u.new_empty(c.shape), u.new_empty(m.shape), u.new_empty(m.shape), u.new_empty(r)


@torch.library.custom_op("quatcaps::lean_moments_backward", mutates_args=())
def lean_moments_backward(g0: Tensor, g1: Tensor, g2: Tensor, u: Tensor, a: Tensor, A_: Tensor, m: Tensor, p: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, D, NP = u.shape; J = m.shape[1]; C = A_.shape[-1]; R = D // C
    A = A_.flatten(1, 2)
    nm, np_, g2d = -m, -p, 2 * g2
    du, da, dA = torch.empty_like(u), torch.empty_like(a), torch.zeros_like(A)
    ranges = shares(B, B * J * NP)
    n = len(ranges)
    Sc, Sm, Sp = u.new_zeros(n, J, NP), u.new_zeros(n, D, J, NP), u.new_zeros(n, D, J, NP)
    PTS = max(64, BLOCK // J)
    def work(k, share):
        lo, hi = share.start, share.stop
        for q0 in range(0, NP, PTS):
            pts = slice(q0, min(q0 + PTS, NP))
            nm_, p_, g0_, g1_, g2_, g2d_ = (x[..., pts].contiguous() for x in (nm, np_, g0, g1, g2, g2d))
            P = g0_.shape[1]
            b = max(1, min(hi - lo, BLOCK // (J * P)))
            full = [u.new_empty(b, D, J, P) for _ in range(2)] + [u.new_empty(b, J, P) for _ in range(2)]
            sums = [u.new_zeros(b, J, P), u.new_zeros(b, D, J, P), u.new_zeros(b, D, J, P)]
            kk = 0
            us, as_, As, rs = u[lo:hi, :, pts].split(b), a[lo:hi, :, pts].split(b), A[lo:hi].split(b), r[lo:hi, :, pts].split(b)
            dus, das, dAs = du[lo:hi, :, pts].split(b), da[lo:hi, :, pts].split(b), dA[lo:hi].split(b)
            for ui, ai, Ai, ri, dui, dai, dAi in zip(us, as_, As, rs, dus, das, dAs):
                if len(ui) != kk:
                    kk = len(ui)
                    d, f, x, y = (t[:kk] for t in full); sc, sm, sp = (t[:kk] for t in sums)
                    fm = f.view(kk * R, C*J, P); fT = fm.transpose(1, 2)
                    ds, fs = d.unbind(1), f.unbind(1); y1 = y[:, None]; x1 = x[:, None]
                deviations(d, nm_, Ai, ui)
                torch.addcmul(g1_, g2_, d, out=f)
                torch.addcmul(g0_, fs[0], ds[0], out=x)
                for fh, dh in zip(fs[1:], ds[1:]): x.addcmul_(fh, dh)
                torch.mul(x, ri, out=y)
                dai.copy_(y.sum(1, keepdim=True))
                x.sub_(dai)                          # x - da
                torch.mul(ri, ai, out=y)             # rho
                torch.addcmul(g2d_, p_, x1, out=f)   # 2 g2 - p (x - da)
                torch.addcmul(g1_, f, d, out=f)
                f.mul_(y1)                           # dd
                sm.add_(f)
                x.mul_(y)                            # dl
                sc.add_(x)
                d.mul_(d)
                sp.addcmul_(d, x1)
                if R == 1:
                    torch.bmm(Ai.transpose(1, 2), fm, out=dui)
                    dAi.add_(torch.bmm(ui, fT).transpose(1, 2))
                else:
                    dui.copy_(torch.bmm(Ai.repeat_interleave(R, 0).transpose(1, 2), fm).view_as(dui))
                    dAi.add_(torch.bmm(ui.reshape(kk * R, C, P), fT).view(kk, R, C, C * J).sum(1).transpose(1, 2))
            for S, s in zip((Sc, Sm, Sp), sums): S[k][..., pts].copy_(s.sum(0))
    in_threads(work, ranges)
    return du, da, dA.view(A_.shape), -Sm.sum(0), -0.5 * Sp.sum(0), Sc.sum(0)


@lean_moments_backward.register_fake
def _(g0, g1, g2, u, a, A, m, p, r):
    return torch.empty_like(u), torch.empty_like(a), torch.empty_like(A), torch.empty_like(m), torch.empty_like(m), torch.empty_like(g0)


def keep_(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, a, A, m, p, _, _ = inputs
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(u, a, A, m, p, output[3])


def differentiate(ctx: Any, *grads: Tensor):
    m = ctx.saved_tensors[3]
    shapes = (m.shape[1:], m.shape, m.shape)
    full = (m.new_zeros(shape) if g is None else g.contiguous() for g, shape in zip(grads, shapes))
    return *lean_moments_backward(*full, *ctx.saved_tensors), None


lean_moments.register_autograd(differentiate, setup_context=keep_)

"""Variational Bayes from moments to what is expected of the parents, as one kernel forward and one backward;
`vb.estimate_of` is the formula."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quatcaps.operators import operator
from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.triton.em import cut
from quatcaps.routing.triton.layout import empty_parents, parents_first, positions_first

if TYPE_CHECKING:
    from quatcaps.routing.vb import VB, Estimate

PRIOR = "float concentration, float prior_mean, float mean_weight, float scale, float freedom"
MOMENTS = "Tensor centre, Tensor mass, Tensor first, Tensor second"
GRADS = "Tensor? grad_mean, Tensor? grad_precision, Tensor? grad_logit, Tensor? grad_share, Tensor? grad_determinant"
NAMES = ("MEAN", "PRECISION", "LOGIT", "SHARE", "DETERMINANT")


def estimate_of(moments: Moments, prior: VB) -> Estimate:
    """From moments to parents."""
    from quatcaps.routing.vb import Estimate

    mean, precision, logit, share, determinant = vb_step(
        *moments,
        prior.prior_concentration,
        prior.prior_mean,
        prior.prior_mean_weight,
        prior.prior_scale,
        prior.prior_freedom,
    )
    return Estimate(Parents(mean, precision, logit), share, determinant)


def forward(centre: Tensor, mass: Tensor, first: Tensor, second: Tensor, *prior: float) -> tuple[Tensor, ...]:
    from quatcaps.routing.triton.kernels import vb

    c, s0, s1, s2 = (positions_first(values) for values in (centre, mass, first, second))
    results = [torch.empty_like(values) for values in (c, c, s0, s0, s0)]
    positions, tiling = cut(s0, c)
    vb.vb_step[(math.ceil(positions / tiling["TILE"]),)](c, s0, s1, s2, *results, positions, *prior, **tiling)
    return tuple(parents_first(values) for values in results)


def backward(*arguments: Any) -> tuple[Tensor, ...]:
    from quatcaps.routing.triton.kernels import vb

    given, moments, prior = arguments[:5], arguments[5:9], arguments[9:]
    c, s0, s1, s2 = (positions_first(values) for values in moments)
    grads = [
        like if grad is None else positions_first(grad) for grad, like in zip(given, (c, c, s0, s0, s0), strict=True)
    ]
    results = [torch.empty_like(values) for values in (c, s0, s1, s2)]
    positions, tiling = cut(s0, c)
    vb.vb_step_backward[(math.ceil(positions / tiling["TILE"]),)](
        *grads,
        c,
        s0,
        s1,
        s2,
        *results,
        positions,
        *prior,
        **{f"HAS_{name}": grad is not None for name, grad in zip(NAMES, given, strict=True)},
        **tiling,
    )
    return tuple(parents_first(values) for values in results)


def empty(centre: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return (*(empty_parents(centre) for _ in range(2)), *(empty_parents(centre, 1) for _ in range(3)))


def empty_backward(*arguments: Any) -> tuple[Tensor, ...]:
    centre = arguments[5]
    return empty_parents(centre), empty_parents(centre, 1), empty_parents(centre), empty_parents(centre)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.prior = inputs[4:]
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return *vb_step_backward(*grads, *ctx.saved_tensors, *ctx.prior), *(None for _ in ctx.prior)


vb_step_backward = operator(
    "vb_step_backward", f"({GRADS}, {MOMENTS}, {PRIOR}) -> (Tensor, Tensor, Tensor, Tensor)", backward, empty_backward
)
vb_step = operator(
    "vb_step",
    f"({MOMENTS}, {PRIOR}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    forward,
    empty,
    save=save,
    differentiate=differentiate,
)

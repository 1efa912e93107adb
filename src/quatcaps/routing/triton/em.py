"""The M-step of EM routing as one kernel forward and one backward; `em.m_step` is the formula."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from quatcaps.operators import operator
from quatcaps.routing.m_step import GRADS, MOMENTS, SETTINGS, by_operator
from quatcaps.routing.moments import LEAST_MASS
from quatcaps.routing.triton.launch import add_rows
from quatcaps.routing.triton.layout import empty_parents, parents_first, positions_first
from quatcaps.routing.triton.plan import power_of_two

NAMES = ("MEAN", "PRECISION", "LOGIT", "ACTIVATION")


def flags(
    inverse_temperature: float,
    variance_floor: float,
    contrast: float,
    mass_factor: float,
    kind: int,
    damped: bool,
    isotropic: bool,
) -> tuple[tuple[float, ...], dict[str, Any]]:
    """The settings as the kernels take them: numbers, and what they are compiled for."""
    from quatcaps.routing.em import DAMPING, LEAST_VARIANCE

    numbers = (inverse_temperature, variance_floor, LEAST_MASS, contrast, LEAST_VARIANCE, mass_factor, DAMPING)
    return numbers, {"ACTIVATION": kind, "DAMPED": damped, "ISOTROPIC": isotropic}


def compute(*arguments: Any) -> tuple[Tensor, ...]:
    from quatcaps.routing.triton.kernels import em

    m, s0, s1, s2 = (positions_first(values) for values in arguments[:4])
    numbers, compiled = flags(*arguments[6:])
    found = [torch.empty_like(values) for values in (m, m, s0, s0)]
    positions, tiling = cut(s0, m)
    em.m_step[(math.ceil(positions / tiling["TILE"]),)](
        m, s0, s1, s2, *(beta.contiguous() for beta in arguments[4:6]), *found, positions, numbers, **compiled, **tiling
    )
    return tuple(parents_first(values) for values in found)


def compute_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Gradients of the centre, where damped (else it is that of the mean), mass, first, second, and of both betas."""
    from quatcaps.routing.triton.kernels import em

    given, moments = arguments[:4], arguments[4:8]
    m, s0, s1, s2 = (positions_first(values) for values in moments)
    numbers, compiled = flags(*arguments[10:])
    likes = zip(given, (s1, s1, s0, s0), strict=True)
    grads = [like if grad is None else positions_first(grad) for grad, like in likes]
    grad_centre = torch.empty_like(m) if compiled["DAMPED"] else m.new_empty(0)
    found = [torch.empty_like(values) for values in (s0, s1, s2)]
    positions, tiling = cut(s0, s1)
    programs = math.ceil(positions / tiling["TILE"])
    grad_betas = s0.new_empty(programs, 2, s0.shape[-1])
    em.m_step_backward[(programs,)](
        *grads,
        *(m, s0, s1, s2),
        *(beta.contiguous() for beta in arguments[8:10]),
        grad_centre,
        *found,
        grad_betas,
        positions,
        numbers,
        **compiled,
        **{f"HAS_{name}": grad is not None for name, grad in zip(NAMES, given, strict=True)},
        **tiling,
    )
    by_centre = parents_first(grad_centre) if compiled["DAMPED"] else grad_centre
    return by_centre, *(parents_first(values) for values in found), add_rows(grad_betas, s0.new_empty(2, s0.shape[-1]))


def cut(by_parent: Tensor, by_dim: Tensor) -> tuple[int, dict[str, int]]:
    """How many positions there are, and the tiles they are cut into."""
    parents, dims = by_parent.shape[-1], by_dim.shape[-2]
    tile_parents = max(4, power_of_two(parents))
    warps = 4 if tile_parents <= 128 else 8
    tile = max(1, 32 * warps * (2 if dims <= 4 else 1) // tile_parents)
    sizes = {"PARENTS": parents, "DIMS": dims, "TILE": tile, "TILE_PARENTS": tile_parents, "num_warps": warps}
    return by_parent.numel() // parents, sizes


def empty(centre: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return (*(empty_parents(centre) for _ in range(2)), *(empty_parents(centre, 1) for _ in range(2)))


def empty_backward(*arguments: Any) -> tuple[Tensor, ...]:
    centre, beta, damped = arguments[4], arguments[8], arguments[-2]
    by_centre = empty_parents(centre) if damped else centre.new_empty(0)
    moments = empty_parents(centre, 1), empty_parents(centre), empty_parents(centre)
    return by_centre, *moments, beta.new_empty(2, *beta.shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.settings = inputs[6:]
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    centre, *moments, betas = em_step_backward(*grads, *ctx.saved_tensors, *ctx.settings)
    damped = ctx.settings[-2]
    return centre if damped else grads[0], *moments, betas[0], betas[1], *(None for _ in ctx.settings)


em_step_backward = operator(
    "em_step_backward",
    f"({GRADS}, {MOMENTS}, {SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute_backward,
    empty_backward,
)
em_step = operator(
    "em_step",
    f"({MOMENTS}, {SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
    compute,
    empty,
    save=save,
    differentiate=differentiate,
)
m_step = partial(by_operator, em_step)
"""From moments to parents."""

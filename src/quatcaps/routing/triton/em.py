"""The M-step of EM routing as one kernel forward and one backward; `em.m_step` is the formula."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quatcaps.routing.moments import LEAST_MASS, Moments, Parents
from quatcaps.routing.triton.layout import empty_parents, parents_first, positions_first

if TYPE_CHECKING:
    from quatcaps.routing.em import EM, Estimate

SETTINGS = "float inverse_temperature, float variance_floor, int kind, float contrast"


def m_step(
    moments: Moments, beta_u: Tensor, beta_a: Tensor, settings: EM, inverse_temperature: float, mass_factor: float = 1.0
) -> Estimate:
    """From moments to parents."""
    from quatcaps.routing.em import ACTIVATIONS, Estimate

    kind = ACTIVATIONS.index(settings.activation)
    mean, precision, logit, activation = em_step(
        *moments, beta_u, beta_a, inverse_temperature, settings.variance_floor, kind, settings.contrast
    )
    return Estimate(Parents(mean, precision, logit), activation)


def forward(
    centre: Tensor,
    mass: Tensor,
    first: Tensor,
    second: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    inverse_temperature: float,
    variance_floor: float,
    kind: int,
    contrast: float,
) -> tuple[Tensor, ...]:
    from quatcaps.routing.em import LEAST_VARIANCE
    from quatcaps.routing.triton.kernels import em

    m, s0, s1, s2 = (positions_first(values) for values in (centre, mass, first, second))
    mean, precision, logit, activation = (torch.empty_like(values) for values in (m, m, s0, s0))
    positions, tiling = cut(s0, m)
    em.m_step[(math.ceil(positions / tiling["TILE"]),)](
        m,
        s0,
        s1,
        s2,
        beta_u.contiguous(),
        beta_a.contiguous(),
        mean,
        precision,
        logit,
        activation,
        positions,
        inverse_temperature,
        variance_floor,
        LEAST_MASS,
        contrast,
        LEAST_VARIANCE,
        ACTIVATION=kind,
        **tiling,
    )
    return tuple(parents_first(values) for values in (mean, precision, logit, activation))


def backward(
    grad_mean: Tensor | None,
    grad_precision: Tensor | None,
    grad_logit: Tensor | None,
    grad_activation: Tensor | None,
    mass: Tensor,
    first: Tensor,
    second: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    inverse_temperature: float,
    variance_floor: float,
    kind: int,
    contrast: float,
) -> tuple[Tensor, ...]:
    from quatcaps.routing.em import LEAST_VARIANCE
    from quatcaps.routing.triton.kernels import em

    s0, s1, s2 = (positions_first(values) for values in (mass, first, second))
    grads = [
        like if grad is None else positions_first(grad)
        for grad, like in ((grad_mean, s1), (grad_precision, s1), (grad_logit, s0), (grad_activation, s0))
    ]
    grad_mass, grad_first, grad_second = torch.empty_like(s0), torch.empty_like(s1), torch.empty_like(s2)
    positions, tiling = cut(s0, s1)
    programs = math.ceil(positions / tiling["TILE"])
    grad_betas = s0.new_empty(programs, 2, s0.shape[-1])
    em.m_step_backward[(programs,)](
        *grads,
        s0,
        s1,
        s2,
        beta_u.contiguous(),
        beta_a.contiguous(),
        grad_mass,
        grad_first,
        grad_second,
        grad_betas,
        positions,
        inverse_temperature,
        variance_floor,
        LEAST_MASS,
        contrast,
        LEAST_VARIANCE,
        ACTIVATION=kind,
        HAS_MEAN=grad_mean is not None,
        HAS_PRECISION=grad_precision is not None,
        HAS_LOGIT=grad_logit is not None,
        HAS_ACTIVATION=grad_activation is not None,
        **tiling,
    )
    return *(parents_first(values) for values in (grad_mass, grad_first, grad_second)), grad_betas.sum(0)


def cut(by_parent: Tensor, by_dim: Tensor) -> tuple[int, dict[str, int]]:
    """How many positions there are, and the tiles they are cut into."""
    parents, dims = by_parent.shape[-1], by_dim.shape[-2]
    tile_parents = max(4, 1 << (parents - 1).bit_length())
    warps = 4 if tile_parents <= 128 else 8
    tile = max(1, 32 * warps * (2 if dims <= 4 else 1) // tile_parents)
    sizes = {"PARENTS": parents, "DIMS": dims, "TILE": tile, "TILE_PARENTS": tile_parents, "num_warps": warps}
    return by_parent.numel() // parents, sizes


em_step = torch.library.custom_op(
    "quatcaps::em_step",
    forward,
    mutates_args=(),
    schema="(Tensor centre, Tensor mass, Tensor first, Tensor second, Tensor beta_u, Tensor beta_a, "
    f"{SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
em_step_backward = torch.library.custom_op(
    "quatcaps::em_step_backward",
    backward,
    mutates_args=(),
    schema="(Tensor? grad_mean, Tensor? grad_precision, Tensor? grad_logit, Tensor? grad_activation, Tensor mass, "
    f"Tensor first, Tensor second, Tensor beta_u, Tensor beta_a, {SETTINGS}) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)


@em_step.register_fake
def _(centre: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return (*(empty_parents(centre) for _ in range(2)), *(empty_parents(centre, 1) for _ in range(2)))


@em_step_backward.register_fake
def _(mean: Any, precision: Any, logit: Any, activation: Any, mass: Tensor, first: Tensor, *rest: Any) -> Any:
    betas = rest[1].new_empty(2, *rest[1].shape)
    return empty_parents(first, 1), empty_parents(first), empty_parents(first), betas


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, *moments_and_betas, ctx.inverse_temperature, ctx.variance_floor, ctx.kind, ctx.contrast = inputs
    ctx.save_for_backward(*moments_and_betas)
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    settings = (ctx.inverse_temperature, ctx.variance_floor, ctx.kind, ctx.contrast)
    # The mean is the centre plus S1/S0: what reaches it reaches the centre.
    *moments, betas = em_step_backward(*grads, *ctx.saved_tensors, *settings)
    return grads[0], *moments, betas[0], betas[1], None, None, None, None


em_step.register_autograd(differentiate, setup_context=setup_context)

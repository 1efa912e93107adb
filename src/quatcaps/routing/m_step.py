"""The M-step of EM routing as an operator, what those of fast backends have in common; `em.m_step` is the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.routing.moments import Moments, Parents

if TYPE_CHECKING:
    from quatcaps.routing.em import EM, Estimate

SETTINGS = (
    "float inverse_temperature, float variance_floor, float contrast, float mass_factor, int kind, bool damped, "
    "bool isotropic"
)
MOMENTS = "Tensor centre, Tensor mass, Tensor first, Tensor second, Tensor beta_u, Tensor beta_a"
GRADS = "Tensor? grad_mean, Tensor? grad_precision, Tensor? grad_logit, Tensor? grad_activation"


def numbers_of(settings: EM, inverse_temperature: float, mass_factor: float) -> tuple[Any, ...]:
    """What `SETTINGS` names."""
    from quatcaps.routing.em import ACTIVATIONS

    return (
        inverse_temperature,
        settings.variance_floor,
        settings.contrast,
        mass_factor,
        ACTIVATIONS.index(settings.activation),
        settings.one_child == "damped",
        settings.variance == "isotropic",
    )


def check_betas(parents: int, *betas: Tensor) -> None:
    """Raises unless there is one number for each parent type: the library and the kernels would read beside others."""
    for beta in betas:
        if tuple(beta.shape) != (parents,):
            raise QuatcapsError(f"betas have shape {tuple(beta.shape)}: {parents} parent types need ({parents},)")


def by_operator(
    step: Callable[..., Any],
    moments: Moments,
    beta_u: Tensor,
    beta_a: Tensor,
    settings: EM,
    inverse_temperature: float,
    mass_factor: float = 1.0,
) -> Estimate:
    """From moments to parents, by an operator of these arguments."""
    from quatcaps.routing.em import Estimate

    check_betas(moments.mass.shape[1], beta_u, beta_a)
    betas = (beta.to(moments.mass.dtype) for beta in (beta_u, beta_a))
    mean, precision, logit, activation = step(*moments, *betas, *numbers_of(settings, inverse_temperature, mass_factor))
    return Estimate(Parents(mean, precision, logit), activation)

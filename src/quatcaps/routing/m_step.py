"""The M-step of EM routing as an operator, what those of fast backends have in common; `em.m_step` is the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from quatcaps.routing.moments import Moments, Parents

if TYPE_CHECKING:
    from quatcaps.routing.em import EM, Estimate

SETTINGS = (
    "float inverse_temperature, float variance_floor, float contrast, float mass_factor, int kind, bool damped, "
    "bool isotropic"
)
MOMENTS = "Tensor centre, Tensor mass, Tensor first, Tensor second, Tensor beta_u, Tensor beta_a"
GRADS = "Tensor? grad_mean, Tensor? grad_precision, Tensor? grad_logit, Tensor? grad_activation"


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
    from quatcaps.routing.em import ACTIVATIONS, Estimate

    mean, precision, logit, activation = step(
        *moments,
        *(beta.to(moments.mass.dtype) for beta in (beta_u, beta_a)),
        inverse_temperature,
        settings.variance_floor,
        settings.contrast,
        mass_factor,
        ACTIVATIONS.index(settings.activation),
        settings.one_child == "damped",
        settings.variance == "isotropic",
    )
    return Estimate(Parents(mean, precision, logit), activation)

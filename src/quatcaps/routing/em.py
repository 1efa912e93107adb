"""EM routing (Hinton et al. 2018): what turns the moments of the votes into parents.

The letters of the equations: a_i a child's activation, r_ij its assignment to parent j, ρ_ij = a_i r_ij, v_ij its
vote, μ_j and σ²_j the parent's Gaussian, λ the inverse temperature, h the pose dimensions.

    M-step   μ_jh = Σ_i ρ_ij v_ijh / Σ_i ρ_ij              σ²_jh = Σ_i ρ_ij (v_ijh − μ_jh)² / Σ_i ρ_ij
             cost_jh = (β_u + log σ_jh) Σ_i ρ_ij            a_j = σ(λ (β_a − Σ_h cost_jh))
    E-step   r_ij = a_j p_j(v_ij) / Σ_k a_k p_k(v_ik)       p_j = Π_h exp(−(v_ijh − μ_jh)² / 2σ²_jh) / √(2πσ²_jh)

All of it happens in log space. `soft_moments` does the E-step's softmax and the M-step's sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.quaternion import safe_unit
from quatcaps.routing import em_fused
from quatcaps.routing.soft_moments import COMPETITIONS, Moments, Parents, SoftMoments

ACTIVATIONS = ("logistic", "normalized")
LEAST_MASS = em_fused.LEAST_MASS
"""A parent to which children give less than this keeps its centre as its mean."""
LEAST_FLOOR = 1e-12
"""Below this the gradients of a floored variance overflow in float32."""


@dataclass(frozen=True)
class EM:
    """Settings of EM routing.

    `activation`: `logistic` is the equation above; `normalized` divides λ(β_a − cost) by its L2 norm over the
    parent types at a position before the sigmoid, as the authors' public code does. `competition`: a child's
    assignments sum to 1 over the parent types at one `position`, or over `all` parents that see it.
    `variance_floor` is added to every variance, so that no logarithm or quotient can diverge and the gradient
    never vanishes.
    """

    iterations: int = 2
    activation: str = "normalized"
    competition: str = "position"
    variance_floor: float = 1e-4

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise QuatcapsError(f"{self.iterations} routing iterations: at least 1 is needed")
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if self.competition not in COMPETITIONS:
            raise unknown_name("competition", self.competition, COMPETITIONS)
        if not LEAST_FLOOR <= self.variance_floor < math.inf:
            raise QuatcapsError(
                f"a variance floor of {self.variance_floor}: it must be at least {LEAST_FLOOR} and finite"
            )

    def module(self, parents: int) -> EMRouting:
        """The routing of one layer with that many parent types."""
        return EMRouting(parents, self)


class EMRouting(nn.Module):
    """Owns β_u and β_a, one of each per parent type, both starting at 0."""

    def __init__(self, parents: int, settings: EM) -> None:
        super().__init__()
        self.settings = settings
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))

    def forward(self, soft_moments: SoftMoments) -> Capsules:
        return em_routing(soft_moments, self.beta_u, self.beta_a, self.settings)

    def extra_repr(self) -> str:
        return repr(self.settings)


class Estimate(NamedTuple):
    """The parents after one iteration: what the children look at next, and the activation."""

    parents: Parents
    activation: Float[Tensor, "N J H W"]


def em_routing(
    soft_moments: SoftMoments, beta_u: Float[Tensor, " J"], beta_a: Float[Tensor, " J"], settings: EM
) -> Capsules:
    """Parents of the votes behind `soft_moments`; the gradient flows through every iteration."""
    estimate = em_fused.m_step if getattr(soft_moments, "fused", False) else m_step
    parents, activation = estimate(soft_moments(None), beta_u, beta_a, settings, inverse_temperature(1))
    for iteration in range(2, settings.iterations + 1):
        moments = soft_moments(parents)
        parents, activation = estimate(moments, beta_u, beta_a, settings, inverse_temperature(iteration))
    return Capsules(parents.centre, activation)


def m_step(
    moments: Moments,
    beta_u: Float[Tensor, " J"],
    beta_a: Float[Tensor, " J"],
    settings: EM,
    inverse_temperature: float,
) -> Estimate:
    """From moments to parents; `em_fused.m_step` is the same in one kernel."""
    mean, variance = gaussian(moments, settings.variance_floor)
    logit = activation_logit(moments.mass, variance, beta_u, beta_a, inverse_temperature)
    if settings.activation == "normalized":
        logit = safe_unit(logit, 1)
    parents = Parents(mean, variance.reciprocal(), F.logsigmoid(logit) + log_normaliser(variance))
    return Estimate(parents, logit.sigmoid())


def inverse_temperature(iteration: int) -> float:
    """λ at iteration t = 1, 2, …: 0.01 · (1 − 0.95^t)."""
    return 0.01 * (1 - 0.95**iteration)


def gaussian(moments: Moments, variance_floor: float) -> tuple[Float[Tensor, "N J D H W"], Float[Tensor, "N J D H W"]]:
    """μ and σ² of each parent: the M-step."""
    mass = moments.mass.clamp(min=LEAST_MASS)[:, :, None]
    shift = moments.first / mass
    variance = (moments.second / mass - shift.square()).clamp(min=0) + variance_floor
    return moments.centre + shift, variance


def activation_logit(
    mass: Float[Tensor, "N J H W"],
    variance: Float[Tensor, "N J D H W"],
    beta_u: Float[Tensor, " J"],
    beta_a: Float[Tensor, " J"],
    inverse_temperature: float,
) -> Float[Tensor, "N J H W"]:
    """λ (β_a − Σ_h (β_u + log σ_h) Σ_i ρ_i)."""
    log_deviation = 0.5 * variance.log()
    cost = (beta_u[:, None, None, None] + log_deviation).sum(2) * mass
    return inverse_temperature * (beta_a[:, None, None] - cost)


def log_normaliser(variance: Float[Tensor, "N J D H W"]) -> Float[Tensor, "N J H W"]:
    """−½ Σ_h log 2πσ²_h, the constant of a Gaussian's log density."""
    return -0.5 * (2 * math.pi * variance).log().sum(2)

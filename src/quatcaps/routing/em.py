"""EM routing (Hinton et al. 2018): what turns the moments of the votes into parents.

The letters of the equations: a_i a child's activation, r_ij its assignment to parent j, ρ_ij = a_i r_ij, v_ij its
vote, μ_j and σ²_j the parent's Gaussian, λ the inverse temperature, h the pose dimensions.

    M-step   μ_jh = Σ_i ρ_ij v_ijh / Σ_i ρ_ij              σ²_jh = Σ_i ρ_ij (v_ijh − μ_jh)² / Σ_i ρ_ij
             cost_jh = (β_u + log σ_jh) Σ_i ρ_ij            a_j = σ(λ (β_a − Σ_h cost_jh))
    E-step   r_ij = a_j p_j(v_ij) / Σ_k a_k p_k(v_ik)       p_j = Π_h exp(−(v_ijh − μ_jh)² / 2σ²_jh) / √(2πσ²_jh)

All of it happens in log space. `Votes` does the E-step's softmax and the M-step's sums.

`EM_IBM` is this routing as Gritzman 2019 published it (arXiv 1907.00652, IBM/matrix-capsules-with-em-routing). Where
it differs it is stated after that code:

    one child   Σ_i ρ_ij + ε under μ_jh and σ²_jh, and a_j + ε for a_j in the E-step, with ε = 1e-9
    mass        cost_jh = (β_u + log σ_jh) · 100 J/B · Σ_i ρ_ij, for J parent types that each see B children
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.quaternion import safe_unit
from quatcaps.routing.moments import Moments, Parents, SummedVotes, not_negative
from quatcaps.routing.shapes import COMPETITIONS

ACTIVATIONS = ("logistic", "normalized", "standardized")
MASSES = ("summed", "normalised")
ONE_CHILD = ("floored", "damped")
BETAS = ("zero", "drawn", "uniform", "lowered")
VARIANCES = ("diagonal", "isotropic")
LEAST_VARIANCE = 1e-8
"""ε of `standardized`."""
LEAST_FLOOR = 1e-12
"""Below this the gradients of a floored variance overflow in float32."""
LOWERED = -8.0
"""Where β_u starts if `betas="lowered"`."""
DAMPING = 1e-9
"""ε of `one_child="damped"`."""
NORMALISED_MASS = 100.0
"""What a parent receives under `mass="normalised"` if all children are active and each is shared out evenly among the
parent types at one position."""


@dataclass(frozen=True)
class EM:
    """Settings of EM routing.

    `activation`: `logistic` is the equation above; `normalized` divides λ(β_a − cost) by its L2 norm over the
    parent types at a position before the sigmoid, as the authors' public code does; `standardized` takes their mean
    from the logits and divides by their deviation over those parent types, so that they are told apart however many
    they are. `contrast` is a factor on the logits of the last two. `competition`: a child's assignments sum to 1 over
    the parent types at one `position`, or over `all` parents that see it; or, as `all-later`, at first over the one and
    then over the other.
    `variance`: one σ²_jh for each pose dimension, `diagonal`, or their mean for all, `isotropic`: then turning all
    votes turns the means and changes no assignment and no activation.
    `variance_floor` is added to every variance, so that no logarithm or quotient can diverge and the gradient
    never vanishes.

    The rest, where not the default, is Gritzman's. `mass`: the cost counts what a parent receives as `summed`,
    or `normalised` by the layer's ratio of children to parents, B/J, so that λ, β_u and β_a mean the same in every
    layer; means and variances are as they were. `one_child`: a parent to which one child gives everything has no
    variance of its own. `floored`, its mean is that child's vote and the floor its variance; `damped`, ε draws the mean
    towards 0, by next to nothing unless the child gives next to nothing. A parent that receives nothing keeps the mean
    it had if `floored`, and has the mean 0 if `damped`. `betas` start at `zero`, or are `drawn`: β_a from a normal
    distribution of mean −1000 and deviation 500, cut at two deviations, β_u uniformly from ±√(6/(J + 1)).

    Two more starts of `betas` are those of the QCN authors' public code: `uniform`, both from 0 to 1, in their matrix
    capsules; `lowered`, β_a at 0 and β_u at −8, does what a fourth number does in their quaternion capsules, whose
    variance of about 1e-21 is rounding: it lowers the cost of a parent of three numbers by 24 Σ_i ρ_ij.
    """

    iterations: int = 2
    activation: str = "normalized"
    competition: str = "position"
    variance_floor: float = 1e-4
    mass: str = "summed"
    one_child: str = "floored"
    betas: str = "zero"
    contrast: float = 1.0
    variance: str = "diagonal"

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise QuatcapsError(f"{self.iterations} routing iterations: at least 1 is needed")
        for kind, name, known in (
            ("activation", self.activation, ACTIVATIONS),
            ("competition", self.competition, COMPETITIONS),
            ("mass", self.mass, MASSES),
            ("treatment of one child", self.one_child, ONE_CHILD),
            ("start of the betas", self.betas, BETAS),
            ("variance", self.variance, VARIANCES),
        ):
            if name not in known:
                raise unknown_name(kind, name, known)
        if not 0 < self.contrast < math.inf:
            raise QuatcapsError(f"contrast = {self.contrast}: it must be above 0 and finite")
        if self.activation == "logistic" and self.contrast != 1:
            raise QuatcapsError(
                f"contrast = {self.contrast} with logistic activations: it is for normalized and standardized ones"
            )
        if not LEAST_FLOOR <= self.variance_floor < math.inf:
            raise QuatcapsError(
                f"a variance floor of {self.variance_floor}: it must be at least {LEAST_FLOOR} and finite"
            )

    def module(self, parents: int) -> EMRouting:
        """The routing of one layer with that many parent types."""
        return EMRouting(parents, self)


EM_IBM = EM(
    iterations=2,
    activation="logistic",
    competition="all",
    variance_floor=1e-9,
    mass="normalised",
    one_child="damped",
    betas="drawn",
)
"""EM-IBM's routing (Gritzman 2019). Its three fixes are (1) `variance_floor` with `one_child`, (2) `mass`,
(3) `competition`."""


class EMRouting(nn.Module):
    """Owns β_u and β_a, one of each per parent type."""

    def __init__(self, parents: int, settings: EM) -> None:
        super().__init__()
        self.settings = settings
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))
        if settings.betas == "drawn":
            limit = math.sqrt(6 / (parents + 1))
            nn.init.uniform_(self.beta_u, -limit, limit)
            nn.init.trunc_normal_(self.beta_a, mean=-1000, std=500, a=-2000, b=0)
        elif settings.betas == "uniform":
            nn.init.uniform_(self.beta_u)
            nn.init.uniform_(self.beta_a)
        elif settings.betas == "lowered":
            nn.init.constant_(self.beta_u, LOWERED)

    def forward(self, votes: SummedVotes) -> Capsules:
        return em_routing(votes, self.beta_u, self.beta_a, self.settings)

    def extra_repr(self) -> str:
        return repr(self.settings)


class Estimate(NamedTuple):
    """The parents after one iteration: what the children look at next, and the activation."""

    parents: Parents
    activation: Float[Tensor, "N J H W"]


def em_routing(votes: SummedVotes, beta_u: Float[Tensor, " J"], beta_a: Float[Tensor, " J"], settings: EM) -> Capsules:
    """The parents that the votes speak for; the gradient flows through every iteration."""
    step: Callable[..., Estimate] = m_step
    mass_factor = NORMALISED_MASS * len(beta_u) / votes.inside if settings.mass == "normalised" else 1.0
    if votes.backend == "triton":
        from quatcaps.routing.triton.em import m_step as step
    elif votes.backend == "native":
        from quatcaps.routing.native.em import all_iterations
        from quatcaps.routing.native.em import m_step as step

        if found := all_iterations(votes, (beta_u, beta_a), settings, mass_factor):
            return Capsules(*found)
    parents, activation = step(votes.uniform(), beta_u, beta_a, settings, inverse_temperature(1), mass_factor)
    for iteration in range(2, settings.iterations + 1):
        moments = votes.under(parents)
        parents, activation = step(moments, beta_u, beta_a, settings, inverse_temperature(iteration), mass_factor)
    return Capsules(parents.centre, activation)


def m_step(
    moments: Moments,
    beta_u: Float[Tensor, " J"],
    beta_a: Float[Tensor, " J"],
    settings: EM,
    inverse_temperature: float,
    mass_factor: float = 1.0,
) -> Estimate:
    """From moments to parents; `triton.em.m_step` is the same in one kernel, `native.em.m_step` in C.

    The cost counts `mass_factor` times what a parent receives.
    """
    damped = settings.one_child == "damped"
    mean, variance = (damped_gaussian if damped else gaussian)(moments)
    if settings.variance == "isotropic":
        variance = variance.mean(2, keepdim=True).expand_as(variance)
    variance = variance + settings.variance_floor
    logit = activation_logit(mass_factor * moments.mass, variance, beta_u, beta_a, inverse_temperature)
    if settings.activation != "logistic":
        logit = told_apart(logit, settings)
    log_activation = F.logsigmoid(logit)
    if damped:
        log_activation = torch.logaddexp(log_activation, torch.full_like(log_activation, math.log(DAMPING)))
    parents = Parents(mean, variance.reciprocal(), log_activation + log_normaliser(variance))
    return Estimate(parents, logit.sigmoid())


def told_apart(logit: Float[Tensor, "N J H W"], settings: EM) -> Float[Tensor, "N J H W"]:
    """Logits over the parent types at a position, `normalized` or `standardized`, times the contrast."""
    if settings.activation == "normalized":
        return settings.contrast * safe_unit(logit, 1)
    return settings.contrast * standardized(logit)


def standardized(logit: Float[Tensor, "N J H W"]) -> Float[Tensor, "N J H W"]:
    """Less the mean over the parent types, divided by √(variance + ε): what differs by less than √ε does not differ."""
    centred = logit - logit.mean(1, keepdim=True)
    size = centred.detach().abs().amax(1, keepdim=True).clamp(min=1)  # squares of large numbers would overflow
    scaled = centred / size
    return scaled * (scaled.square().mean(1, keepdim=True) + LEAST_VARIANCE / size.square()).rsqrt()


def inverse_temperature(iteration: int) -> float:
    """λ at iteration t = 1, 2, …: 0.01 · (1 − 0.95^t)."""
    return 0.01 * (1 - 0.95**iteration)


def gaussian(moments: Moments) -> tuple[Float[Tensor, "N J D H W"], Float[Tensor, "N J D H W"]]:
    """μ and σ² of each parent: the M-step."""
    return moments.mean, moments.variance


def damped_gaussian(moments: Moments) -> tuple[Float[Tensor, "N J D H W"], Float[Tensor, "N J D H W"]]:
    """μ = Σ_i ρ_i v_i / (Σ_i ρ_i + ε) and σ² = Σ_i ρ_i (v_i − μ)² / (Σ_i ρ_i + ε): the M-step, `damped`.

    About the centre m, μ = m + d with d = (S1 − ε m) / (S0 + ε), and the sum of squares is S2 − 2 d S1 + d² S0.
    """
    mass = moments.mass[:, :, None]
    damped = mass + DAMPING
    shift = (moments.first - DAMPING * moments.centre) / damped
    squares = moments.second - shift * (2 * moments.first - shift * mass)
    return moments.centre + shift, not_negative(squares / damped)


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

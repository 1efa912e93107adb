"""Routing via variational Bayes (De Sousa Ribeiro et al. 2020): what turns the moments of the votes into parents.

The votes at a position are drawn from a mixture of Gaussians, one per parent; instead of one best Gaussian (EM) each
parent holds a distribution over Gaussians, and routing updates the parameters of that distribution.

The letters of the equations: a_i a child's activation, r_ij its assignment to parent j, ρ_ij = a_i r_ij, v_ij its vote,
h the D pose dimensions. π_j is a parent's share of the children, μ_j its mean, Λ_j its diagonal precision:

    prior        π ~ Dirichlet(α₀)      μ_j | Λ_j ~ Normal(m₀, (κ₀ Λ_j)⁻¹)      Λ_j ~ Wishart(Ψ₀, ν₀),  Ψ₀ = I / ψ₀
    posterior    R_j = Σ_i ρ_ij         α_j = α₀ + R_j       κ_j = κ₀ + R_j      ν_j = ν₀ + R_j
                 m_jh = (κ₀ m₀ + Σ_i ρ_ij v_ijh) / κ_j
                 ψ_jh = ψ₀ + Σ_i ρ_ij (v_ijh − m_jh)² + κ₀ (m_jh − m₀)²           (the diagonal of Ψ_j⁻¹)
    expected     E[ln π_j] = ϝ(α_j) − ϝ(Σ_k α_k)                                  (ϝ the digamma function)
                 E[ln|Λ_j|] = Σ_{d=0}^{D−1} ϝ((ν_j − d) / 2) + D ln 2 − Σ_h ln ψ_jh
    assignments  ln r_ij = E[ln π_j] + ½ E[ln|Λ_j|] − D / 2κ_j − ½ Σ_h (ν_j / ψ_jh) (v_ijh − m_jh)²  + constant
    activation   H_j = ½ D ln 2πe − ½ E[ln|Λ_j|]
                 mixing   logit_j = β_a − (β_u + exp(E[ln π_j]) H_j)
                 mass     logit_j = β_a − (β_u + H_j) R_j                         a_j = σ(logit_j), the pose is m_j

ψ_jh is the usual ψ₀ + Σ_i ρ_ij (v_ijh − v̄_jh)² + (κ₀ R_j / κ_j)(v̄_jh − m₀)², written about m_j, not about the mean v̄_j
of the votes, so that nothing is divided by R_j, which may be 0. The Wishart's digamma terms stay although Λ_j is
diagonal.

One iteration updates the posterior under the assignments, uniform at first, which `Votes` works out from the
posterior before. E[ln π_j] sums over the parent types at one position, also where all positions compete for a child.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.routing.moments import Moments, Parents, SummedVotes, not_negative
from quatcaps.routing.shapes import COMPETITIONS
from quatcaps.routing.votes import POSE_LIMIT

ACTIVATIONS = ("mixing", "mass")
LEAST_PRIOR, GREATEST_PRIOR = 1e-4, 1e6
"""Within these the prior keeps every logarithm, quotient and gradient finite in float32."""


@dataclass(frozen=True)
class VB:
    """Settings of routing via variational Bayes; but for `competition`, those of the authors' public code.

    `competition`: a child's assignments sum to 1 over the parent types at one `position`, as in the first version of
    the public code, or over `all` parents that see it. Under `all-later`, which is what its last version does, they
    begin as 1/J for each of J parent types at every position, and sum to 1 over all parents after that. `activation`
    is one of the two equations above: the public code computes `mixing`, and weighs by R_j, as `mass` does, only in a
    comment. `batch_norm` standardises, for each parent type, the logits before the sigmoid, over images and positions,
    and the poses that are returned, over pose dimensions too, with nothing learned, as the public code does: without
    it the logits lie where the sigmoid is flat. With it whatever shifts all logits of a parent type, such as β_a, is
    taken out again.

    The prior: `prior_concentration` is α₀, `prior_mean` m₀, `prior_mean_weight` κ₀, `prior_scale` ψ₀, and
    `prior_freedom` is what ν₀ has beyond the D − 1 that a Wishart distribution of D dimensions needs: 2 is ν₀ = D + 1.

    `least_density`: in the public code a child that no parent explains is not given out whole: its expected densities
    p_ij are divided by their sum, but by no less than 1e-11. 0, the default: by their sum. Not on the native backend.
    """

    iterations: int = 3
    activation: str = "mixing"
    competition: str = "position"
    batch_norm: bool = True
    prior_concentration: float = 1.0
    prior_mean: float = 0.0
    prior_mean_weight: float = 1.0
    prior_scale: float = 1.0
    prior_freedom: float = 2.0
    least_density: float = 0.0

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise QuatcapsError(f"{self.iterations} routing iterations: at least 1 is needed")
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if self.competition not in COMPETITIONS:
            raise unknown_name("competition", self.competition, COMPETITIONS)
        if not 0 <= self.least_density <= 1:
            raise QuatcapsError(f"a least density of {self.least_density}: give one from 0, which is none, to 1")
        if not abs(self.prior_mean) <= POSE_LIMIT:
            raise QuatcapsError(f"a prior mean of {self.prior_mean}: give one within ±{POSE_LIMIT:g}, as poses are")
        for name in ("prior_concentration", "prior_mean_weight", "prior_scale", "prior_freedom"):
            value = getattr(self, name)
            if not LEAST_PRIOR <= value <= GREATEST_PRIOR:
                words = name.replace("_", " ")
                raise QuatcapsError(f"a {words} of {value}: give one between {LEAST_PRIOR:g} and {GREATEST_PRIOR:g}")

    def log_floor(self, dims: int) -> float:
        """ln of the least density for logits that leave out −½ D ln 2π, as those of `estimate_of` do."""
        return math.log(self.least_density) + 0.5 * dims * math.log(2 * math.pi) if self.least_density else -math.inf

    def module(self, parents: int) -> VBRouting:
        """The routing of one layer with that many parent types."""
        return VBRouting(parents, self)


class VBRouting(nn.Module):
    """Owns β_u and β_a, one of each per parent type, both starting at 0, and the running means and variances."""

    def __init__(self, parents: int, settings: VB) -> None:
        super().__init__()
        self.settings = settings
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))
        self.pose_norm = nn.BatchNorm3d(parents, affine=False) if settings.batch_norm else nn.Identity()
        self.logit_norm = nn.BatchNorm2d(parents, affine=False) if settings.batch_norm else nn.Identity()

    def forward(self, votes: SummedVotes) -> Capsules:
        poses, logit = vb_routing(votes, self.beta_u, self.beta_a, self.settings)
        if self.settings.batch_norm and self.training and logit[:, 0].numel() == 1:
            raise QuatcapsError(
                "1 capsule of each parent type in the batch: batch normalisation trains on at least 2; give more "
                "images, or use VB(batch_norm=False)"
            )
        return Capsules(self.pose_norm(poses), self.logit_norm(logit).sigmoid())

    def extra_repr(self) -> str:
        return repr(self.settings)


class Posterior(NamedTuple):
    """The parameters of the distribution over each parent's share, mean and precision."""

    alpha: Float[Tensor, "N J H W"]
    kappa: Float[Tensor, "N J H W"]
    nu: Float[Tensor, "N J H W"]
    mean: Float[Tensor, "N J D H W"]  # m
    psi: Float[Tensor, "N J D H W"]


def vb_routing(
    votes: SummedVotes, beta_u: Float[Tensor, " J"], beta_a: Float[Tensor, " J"], settings: VB
) -> tuple[Float[Tensor, "N J D H W"], Float[Tensor, "N J H W"]]:
    """Poses and activation logits of the parents; the gradient flows through every iteration."""
    estimate: Callable[..., Estimate] = estimate_of
    if votes.backend == "triton":
        from quatcaps.routing.triton.vb import estimate_of as estimate
    moments = votes.uniform()
    parents, log_share, log_determinant = estimate(moments, settings)
    for _ in range(1, settings.iterations):
        moments = votes.under(parents)
        parents, log_share, log_determinant = estimate(moments, settings)
    mean = parents.centre
    entropy = expected_entropy(log_determinant, mean.shape[2])
    return mean, activation_logit(moments.mass, log_share, entropy, beta_u, beta_a, settings.activation)


class Estimate(NamedTuple):
    """What one iteration finds: the parents as the children look at them next, E[ln π] and E[ln|Λ|]."""

    parents: Parents
    log_share: Float[Tensor, "N J H W"]
    log_determinant: Float[Tensor, "N J H W"]


def estimate_of(moments: Moments, prior: VB) -> Estimate:
    """From moments to parents: the expected log density of a vote, less what all parents share; `triton.vb.estimate_of`
    is the same in one kernel."""
    posterior = posterior_of(moments, prior)
    log_share, log_determinant = expected_log_share(posterior), expected_log_determinant(posterior)
    logit = log_share + 0.5 * log_determinant - 0.5 * posterior.mean.shape[2] / posterior.kappa
    parents = Parents(posterior.mean, posterior.nu[:, :, None] / posterior.psi, logit)
    return Estimate(parents, log_share, log_determinant)


def posterior_of(moments: Moments, prior: VB) -> Posterior:
    """The posterior under the assignments that made the moments."""
    mass, dims = moments.mass, moments.first.shape[2]
    kappa = prior.prior_mean_weight + mass
    # From the moments' centre c: Σ ρ v = Σ ρ (v − c) + R c, and Σ ρ (v − m)² = Σ ρ (v − c)² − 2 s Σ ρ (v − c) + R s².
    pull = prior.prior_mean_weight * (prior.prior_mean - moments.centre)
    shift = (moments.first + pull) / kappa[:, :, None]  # s = m − c
    mean = moments.centre + shift
    scatter = moments.second - 2 * shift * moments.first + mass[:, :, None] * shift.square()
    offset = prior.prior_mean_weight * (mean - prior.prior_mean).square()
    return Posterior(
        alpha=prior.prior_concentration + mass,
        kappa=kappa,
        nu=dims - 1 + prior.prior_freedom + mass,
        mean=mean,
        psi=prior.prior_scale + not_negative(scatter) + offset,
    )


def expected_log_share(posterior: Posterior) -> Float[Tensor, "N J H W"]:
    """E[ln π_j]."""
    return torch.digamma(posterior.alpha) - torch.digamma(posterior.alpha.sum(1, keepdim=True))


def expected_log_determinant(posterior: Posterior) -> Float[Tensor, "N J H W"]:
    """E[ln|Λ_j|]."""
    dims = posterior.mean.shape[2]
    below = torch.arange(dims, dtype=posterior.nu.dtype, device=posterior.nu.device)[:, None, None]  # d
    digammas = torch.digamma(0.5 * (posterior.nu[:, :, None] - below))
    return (digammas - posterior.psi.log()).sum(2) + dims * math.log(2)


def expected_entropy(log_determinant: Float[Tensor, "N J H W"], dims: int) -> Float[Tensor, "N J H W"]:
    """H."""
    return 0.5 * (dims * math.log(2 * math.pi * math.e) - log_determinant)


def activation_logit(
    mass: Float[Tensor, "N J H W"],
    log_share: Float[Tensor, "N J H W"],
    entropy: Float[Tensor, "N J H W"],
    beta_u: Float[Tensor, " J"],
    beta_a: Float[Tensor, " J"],
    activation: str,
) -> Float[Tensor, "N J H W"]:
    """How active a parent is: the more, the less entropy its Gaussian is expected to have."""
    cost, gain = beta_u[:, None, None], beta_a[:, None, None]
    if activation == "mixing":
        return gain - (cost + log_share.exp() * entropy)
    return gain - (cost + entropy) * mass

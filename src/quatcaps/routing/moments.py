"""What a routing gives to the votes, and what it gets from them.

Shapes here and in the routings: N images, J parent types, D pose dimensions, H × W parent positions.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

LEAST_MASS = 1e-12
"""A parent to which children give less than this keeps its centre as its mean."""


class Parents(NamedTuple):
    """What the parents look like to a child: it belongs to parent j by softmax_j(c_j − ½ Σ_h p_jh (v_h − m_jh)²)."""

    centre: Float[Tensor, "N J D H W"]  # m
    precision: Float[Tensor, "N J D H W"]  # p ≥ 0
    logit: Float[Tensor, "N J H W"]  # c


class Moments(NamedTuple):
    """Sums over the children of what each gives to each parent, ρ_ij = a_i r_ij, about a centre m.

    The centre is a number to subtract, chosen for accuracy: `mean` and `variance` do not depend on it.
    """

    centre: Float[Tensor, "N J D H W"]  # m
    mass: Float[Tensor, "N J H W"]  # S0 = Σ_i ρ_ij
    first: Float[Tensor, "N J D H W"]  # S1 = Σ_i ρ_ij (v_ij − m_j)
    second: Float[Tensor, "N J D H W"]  # S2 = Σ_i ρ_ij (v_ij − m_j)²

    @property
    def mean(self) -> Float[Tensor, "N J D H W"]:
        """Σ_i ρ_ij v_ij / Σ_i ρ_ij = m + S1/S0; of a parent that receives nothing, its centre."""
        return self.centre + self.first / self._divisor

    @property
    def variance(self) -> Float[Tensor, "N J D H W"]:
        """Σ_i ρ_ij (v_ij − mean)² / Σ_i ρ_ij = S2/S0 − (S1/S0)², 0 or more."""
        return not_negative(self.second / self._divisor - (self.first / self._divisor).square())

    @property
    def _divisor(self) -> Float[Tensor, "N J 1 H W"]:
        return self.mass.clamp(min=LEAST_MASS)[:, :, None]


@runtime_checkable
class SummedVotes(Protocol):
    """The votes of one layer as a routing sees them: all it may ask for is sums over children.

    `Votes` is the public one; each backend has a class that computes it.
    """

    @property
    def backend(self) -> str:
        """Who computes."""
        ...

    @property
    def inside(self) -> int:
        """How many children each parent sees: the places of its window times the child types."""
        ...

    def uniform(self) -> Moments:
        """Moments under uniform assignments: every parent that competes for a child gets the same share of it."""
        ...

    def under(self, parents: Parents) -> Moments:
        """Moments under the assignments that these parents make."""
        ...


def limited(poses: Tensor, activations: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Poses beyond ±limit as that, and activations as they are."""
    return F.hardtanh(poses, -limit, limit), activations  # one gradient kernel, not five


def not_negative(values: Tensor) -> Tensor:
    """What rounding has left below 0 as 0; the gradient is that of `values`.

    A variance is never negative, so below 0 there is only rounding. A gradient cut off there would depend on the last
    bit: if one child alone is active its votes have no variance, and what another child would change if it woke is
    either all there or not, by chance.
    """
    return values + (values.clamp(min=0) - values).detach()

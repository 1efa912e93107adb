"""The values that go into and come out of `soft_moments`.

Shapes here and in the routings: N images, J parent types, D pose dimensions, H × W parent positions.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


class Parents(NamedTuple):
    """What the parents look like to a child: it belongs to parent j by softmax_j(c_j − ½ Σ_h p_jh (v_h − m_jh)²)."""

    centre: Float[Tensor, "N J D H W"]  # m
    precision: Float[Tensor, "N J D H W"]  # p ≥ 0
    logit: Float[Tensor, "N J H W"]  # c


class Moments(NamedTuple):
    """Sums over the children of what each gives to each parent, ρ_ij = a_i r_ij, about a centre m.

    The centre is a number to subtract, chosen for accuracy: the mean m + S1/S0 and the variance
    S2/S0 − (S1/S0)² do not depend on it, and no gradient needs to flow through it.
    """

    centre: Float[Tensor, "N J D H W"]  # m
    mass: Float[Tensor, "N J H W"]  # S0 = Σ_i ρ_ij
    first: Float[Tensor, "N J D H W"]  # S1 = Σ_i ρ_ij (v_ij − m_j)
    second: Float[Tensor, "N J D H W"]  # S2 = Σ_i ρ_ij (v_ij − m_j)²


@runtime_checkable
class SoftMoments(Protocol):
    """The votes of one layer, however they are held: moments under given parents, or, given none, under
    uniform assignments (every parent that sees a child gets the same share of it)."""

    @property
    def inside(self) -> int:
        """How many children each parent sees: the places of its window times the child types."""
        ...

    def __call__(self, parents: Parents | None) -> Moments: ...

"""What flows between layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.utils import _pytree


class Capsules(NamedTuple):
    """Poses and activations of a layer's capsules.

    On a grid: poses (N, capsules, dims, height, width), activations (N, capsules, height, width) in [0, 1].
    Class capsules have no grid: poses (N, classes, dims), activations (N, classes).
    """

    poses: Tensor
    activations: Tensor

    @property
    def scores(self) -> Tensor:
        """What a loss on unbounded scores reads: the activations."""
        return self.activations


# torch.export stores what a program returns; PyTorch has no public function for named tuples.
_pytree._register_namedtuple(Capsules, serialized_type_name="quatcaps.Capsules")

"""The output of classifiers without capsules."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.utils import _pytree


class Logits(NamedTuple):
    """What a classifier without capsules returns: unbounded scores (N, classes), and poses (N, classes, 4)
    if it has any."""

    scores: Tensor
    poses: Tensor | None = None

    @property
    def activations(self) -> Tensor:
        """Probabilities (N, classes)."""
        return self.scores.softmax(1)


_pytree._register_namedtuple(Logits, serialized_type_name="quatcaps.Logits")  # as of `Capsules`

"""Random numbers of attacks, which do not depend on how many images are attacked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Chance:
    """Draws for images that stand in groups one after the other, each with a generator of its own."""

    def __init__(self, generators: Sequence[torch.Generator], counts: Sequence[int]) -> None:
        self.generators, self.counts = tuple(generators), tuple(counts)

    @staticmethod
    def of(source: Randomness | None, count: int) -> Chance:
        """For `count` images; a generator draws for all of them, none is one with the seed 0."""
        if isinstance(source, Chance):
            return source
        return Chance([source or torch.Generator().manual_seed(0)], [count])

    def at(self, chosen: Tensor) -> Chance:
        """For some of the images, given by their numbers in ascending order; the generators stay the same ones."""
        groups = torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))
        return Chance(self.generators, torch.bincount(groups[chosen.cpu()], minlength=len(self.counts)).tolist())

    def drawn(self, draw: Callable[[int, torch.Generator], Tensor], dim: int = 0) -> Tensor:
        """What `draw` makes of every group's number of images and generator, together, on the CPU."""
        pairs = zip(self.counts, self.generators, strict=True)
        return torch.cat([draw(count, generator) for count, generator in pairs], dim)

    def uniform(self, *shape: int) -> Tensor:
        """(N, *shape) in [0, 1)."""
        return self.drawn(lambda count, generator: torch.rand(count, *shape, generator=generator))

    def signs(self, *shape: int) -> Tensor:
        """(N, *shape) of −1 and 1."""
        return self.drawn(lambda count, generator: 2 * torch.randint(2, (count, *shape), generator=generator) - 1)


Randomness = torch.Generator | Chance
"""Where attacks draw from."""

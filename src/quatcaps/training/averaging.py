"""A running average of a network's weights: steadier than those of any one step. It is what is measured and kept."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Average(Generic[Module]):
    """An average of `network` in another one of the same kind, by `average ← average + (1 − decay)(weights − average)`.

    In its first steps the decay is t/(t + 10), so that where the network began is soon forgotten. Buffers, such as the
    statistics of batch normalisation, are averaged too; those of whole numbers are copied.
    """

    def __init__(self, network: nn.Module, average: Module, decay: float) -> None:
        self.network, self.decay = average.eval().requires_grad_(False), decay
        self.rate = torch.ones((), device=next(network.parameters()).device)
        pairs = list(zip(average.state_dict().values(), network.state_dict().values(), strict=True))
        self.averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self.copied = [pair for pair in pairs if not pair[0].is_floating_point()]
        self.scratch: list[Tensor] = [torch.empty_like(average) for average, _ in self.averaged]

    def follow(self, step: int) -> None:
        """Says which step is next, counted from 0; what it decides stays on the device."""
        self.rate.fill_(1 - min(self.decay, step / (step + 10)))

    @torch.no_grad()
    def update(self) -> None:
        """Takes the network's weights into the average."""
        averages, weights = columns(self.averaged)
        torch._foreach_copy_(self.scratch, weights)
        torch._foreach_sub_(self.scratch, averages)
        torch._foreach_mul_(self.scratch, self.rate)
        torch._foreach_add_(averages, self.scratch)
        if self.copied:
            torch._foreach_copy_(*columns(self.copied))


def columns(pairs: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """The first of each pair, and the second."""
    return [first for first, _ in pairs], [second for _, second in pairs]

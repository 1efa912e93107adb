"""Dropout whose chance is part of the network: the same on every device, in a CUDA graph, and after a resumed run."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from quatcaps.counter_based import STEP, mixed, uniform
from quatcaps.errors import QuatcapsError


class Dropout(nn.Module):
    """In training, each number is 0 with probability `part`, and divided by 1 − `part` otherwise.

    Which ones follows from a seed, drawn when the module is made, and from how often it was called in training: both
    are buffers, and so in every checkpoint. Where several processes share a batch, `part_of_batch` says which part this
    one has: together they leave out what one process would.

    Under `torch.utils.checkpoint`, reentrant or not, a call that is recomputed in the backward pass leaves out what it
    did in the forward pass; the last call is the one that can be recomputed. Do not combine checkpoints with
    `torch.compile` here: compiled code cannot tell that it is recomputed.
    """

    seed: Tensor
    calls: Tensor
    not_recomputed = 0
    """Calls in training since the last one that was recomputed, or since `train`."""

    def __init__(self, part: float = 0.5) -> None:
        super().__init__()
        if not 0 <= part < 1:
            raise QuatcapsError(f"dropout of {part}: it must be 0 or more and below 1")
        self.part = part
        self.part_of_batch = 0
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or not self.part:
            return values
        if torch.compiler.is_compiling():
            self.calls.add_(1)
        elif torch._C._current_graph_task_id() == -1:  # outside any backward pass
            self.calls.add_(1)
            self.not_recomputed += 1
        else:
            self.recomputed()
        first = self.part_of_batch * values.numel()
        places = torch.arange(first, first + values.numel(), device=values.device).view(values.shape)
        kept = uniform(mixed(self.seed + self.calls * STEP) + places * STEP) >= self.part
        return values * kept / (1 - self.part)

    def recomputed(self) -> None:
        """Raises unless there is one call that a backward pass can be recomputing."""
        if self.not_recomputed > 1:
            raise QuatcapsError(
                f"a checkpointed segment is recomputed after {self.not_recomputed} calls of one Dropout, and which of "
                "them it was cannot be told: give every call in a forward pass a Dropout of its own, and run backward "
                "after every forward; after a forward without a backward, call train() on the network first"
            )
        self.not_recomputed = 0

    def train(self, mode: bool = True) -> Dropout:
        """As of any module; calls before it will not be recomputed."""
        self.not_recomputed = 0
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{self.part}"

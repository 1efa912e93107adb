"""A routing of one's own: every parent is the plain average of its votes, the more active the more they agree.

    python examples/own_routing.py
    quatcaps --plugin examples/own_routing.py train --recipe small --dataset toys-mini \\
        --model-setting routing=averaging --model-setting routing.sharpness=10

A routing is two classes: a frozen dataclass with its settings, which can be given to any network or layer, and the
module that turns votes into parents. A routing never sees a vote. It asks for sums over the children, weighted by their
activations: here once, under uniform assignments. `votes.under(parents)` would ask again, under the assignments that
some parents make.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import quatcaps
from quatcaps.routing import Votes


@dataclass(frozen=True)
class Averaging:
    """`sharpness`: how fast the activation falls as the votes disagree."""

    sharpness: float = 1.0
    iterations: int = 1
    competition: str = "position"

    def module(self, parents: int) -> AveragingRouting:
        return AveragingRouting(parents, self)


class AveragingRouting(nn.Module):
    """Learns, for each parent type, how much disagreement it accepts."""

    def __init__(self, parents: int, settings: Averaging) -> None:
        super().__init__()
        self.settings = settings
        self.accepted = nn.Parameter(torch.zeros(parents))

    def forward(self, votes: Votes) -> quatcaps.Capsules:
        moments = votes.uniform()
        disagreement: Tensor = moments.variance.mean(2)  # over the pose's numbers: (N, parents, height, width)
        logit = self.settings.sharpness * (self.accepted[:, None, None] - disagreement)
        return quatcaps.Capsules(moments.mean, logit.sigmoid())


quatcaps.register_routing("averaging", Averaging)  # now files and the command line know it too


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(16, 1, 28, 28), torch.arange(16) % 4
    network = quatcaps.build("qcn-small", channels=1, classes=4, routing=Averaging(sharpness=10.0))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(60):
        loss = quatcaps.losses.cross_entropy(network(images).scores, labels, 10.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    wrong = int((network(images).activations.argmax(1) != labels).sum())
    print(f"{wrong} of {len(labels)} images are wrong after {step + 1} steps")


if __name__ == "__main__":
    main()

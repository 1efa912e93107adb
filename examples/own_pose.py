"""A pose of one's own: points of the plane, turned and scaled into votes, as complex numbers are by a product.

    python examples/own_pose.py
    quatcaps --plugin examples/own_pose.py train --recipe small --dataset toys-mini --model-setting pose=complex

A pose is `rows` × `columns` numbers. The vote of a child for a parent is a learned columns × columns matrix times each
row; a module makes those matrices from what it learns, one for each place in the window, child type and parent type.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import quatcaps
from quatcaps.poses import PoseType


class ComplexMaps(nn.Module):
    """(offsets, children, parents, 2, 2): a complex number a + bi as the matrix of multiplication by it."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(offsets, children, parents, 2))

    def forward(self) -> Tensor:
        a, b = self.weight.unbind(-1)
        return torch.stack((a, -b, b, a), -1).unflatten(-1, (2, 2))


COMPLEX = PoseType("complex", rows=1, columns=2, maps=ComplexMaps)

quatcaps.register_pose(COMPLEX)  # now files and the command line know it too


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(16, 1, 28, 28), torch.arange(16) % 4
    network = quatcaps.build("qcn-small", channels=1, classes=4, pose=COMPLEX)  # or pose="complex"
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(20):
        capsules = network(images)
        loss = quatcaps.losses.cross_entropy(capsules.scores, labels, 10.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    print(f"poses {tuple(capsules.poses.shape)}: one complex number for each image and class")


if __name__ == "__main__":
    main()

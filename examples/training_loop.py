"""A training loop of your own, in plain PyTorch.

    python examples/training_loop.py

`quatcaps.build` returns an ordinary module: images in, `Capsules` out. Activations go into a loss, poses are there to
be used. What `quatcaps train` adds (checkpoints, resuming, augmentation on the device, CUDA graphs, several processes)
is not needed to train one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import quatcaps
from quatcaps import losses


def stripes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 28, 28) of rows, columns or a chequerboard under noise, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    line = (torch.arange(28) // 3 % 2).float()
    patterns = torch.stack((line[:, None].expand(28, 28), line.expand(28, 28), (line[:, None] + line) % 2))
    noise = torch.randn(count, 28, 28, generator=generator)
    return (patterns[labels] + 0.3 * noise)[:, None], labels


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batches = DataLoader(TensorDataset(*stripes(96, seed=0)), batch_size=24, shuffle=True)
    network = quatcaps.build("qcn-small", channels=1, classes=3).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2, weight_decay=0.05)

    epochs, step = 6, 0
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * len(batches))
    for epoch in range(epochs):
        total = 0.0
        for images, labels in batches:
            capsules = network(images.to(device))
            # The true class should be ahead of the others by a margin, which grows over hundreds of thousands of steps.
            loss = losses.spread_loss(capsules.activations, labels.to(device), losses.margin(step))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
            step += 1
            total += loss.item() / len(batches)
        print(f"epoch {epoch + 1}: loss {total:.4f}")

    images, labels = stripes(60, seed=1)
    network.eval()
    with torch.no_grad():
        capsules = network(images.to(device))
    wrong = int((capsules.activations.argmax(1).cpu() != labels).sum())
    print(f"{wrong} of {len(labels)} new images are wrong; poses {tuple(capsules.poses.shape)}")


if __name__ == "__main__":
    main()

"""Several GPUs, or several processes on a CPU, in a loop of your own.

    torchrun --standalone --nproc-per-node 2 examples/several_processes.py
    python examples/several_processes.py

The second command runs it in one process. Capsule networks are ordinary modules, and `DistributedDataParallel` wraps
them as it does others. To train a run with a folder, checkpoints and the same result for any number of processes, you
need no loop: `torchrun --standalone --nproc-per-node 2 -m quatcaps train …`.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import quatcaps
from quatcaps import losses


def join() -> torch.device:
    """Meets the other processes that torchrun has started, each on a GPU of its own where there are GPUs."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        backend = "nccl"
    else:
        device, backend = torch.device("cpu"), "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def main() -> None:
    device = join()
    # The same images in every process; the sampler gives each process its own part of every epoch.
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(32) % 4
    images = 0.3 * torch.randn(32, 1, 28, 28, generator=generator)
    for label in range(4):
        images[labels == label, :, 7 * label : 7 * label + 7] += 1
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset)
    batches = DataLoader(dataset, batch_size=16 // dist.get_world_size(), sampler=sampler)

    # With a seed, all processes begin with the same weights; gradients are averaged after every backward pass.
    network = quatcaps.build("qcn-small", channels=1, classes=4, seed=0).to(device)
    if device.type == "cuda":
        network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)  # means over the batches of all processes
    parallel = DistributedDataParallel(network)
    optimiser = torch.optim.Adam(parallel.parameters(), lr=1e-2)
    for epoch in range(5):
        sampler.set_epoch(epoch)  # another order
        total = torch.zeros((), device=device)
        for some, wanted in batches:
            loss = losses.cross_entropy(parallel(some.to(device)).scores, wanted.to(device), scale=10.0)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach() / len(batches) / dist.get_world_size()
        dist.all_reduce(total)
        if dist.get_rank() == 0:  # one process speaks
            print(f"epoch {epoch + 1}: loss {total.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Normalisations and training steps on a batch, whole or shared.

As a program it becomes two processes, as torchrun would start them but importing everything once. FOLDER alone: each
writes what it has of the batch. FOLDER ARGUMENT…: each is `quatcaps ARGUMENT…`, and writes there what it says; with
STOP="RANK STEP" in the environment one of them is sent a signal after a step.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # as optimisers do: once, before it becomes two
from safetensors.torch import save_file
from torch import Tensor, nn

from quatcaps import cli
from quatcaps.capsules import Capsules
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.layers.dropout import Dropout
from quatcaps.models import build
from quatcaps.training.config import TrainingConfig
from quatcaps.training.processes import ALONE, Processes, joined
from quatcaps.training.progress import TrainingProgress
from quatcaps.training.step import TrainingStep

CPU = torch.device("cpu")
IMAGES = 4
NORMS = {
    "1d": (partial(nn.BatchNorm1d, 3), (3,)),
    "2d": (partial(nn.BatchNorm2d, 3), (3, 5, 4)),
    "plain 3d": (partial(nn.BatchNorm3d, 3, affine=False), (3, 2, 3, 2)),
    "means of all": (partial(nn.BatchNorm2d, 3, momentum=None), (3, 2, 2)),
}
NETWORKS = {
    "qcn-small": {},
    "vb": {"stem": (4, 5, 4), "primary": 2, "capsules": ((3, 3, 1),)},
    "cnn": {"widths": (4, 4), "hidden": 8},
}


class Apart(Processes):
    """Processes that average gradients, and normalise their own part of the batch."""

    def synchronise(self, network: nn.Module) -> None: ...


class PoisonedPart(nn.Module):
    """Passes capsules on, one of them not finite."""

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        return Capsules(poses, activations / 0 - math.inf)


def normalisations(processes: Processes) -> dict[str, Tensor]:
    """Outputs, gradients and running values of each normalisation after two batches, in float64."""
    found = {}
    for name, (norm, shape) in NORMS.items():
        generator = torch.Generator().manual_seed(1)
        network = nn.Sequential(norm()).double()
        processes.synchronise(network)
        for _ in range(2):
            whole, weights = (torch.randn(IMAGES, *shape, generator=generator, dtype=torch.float64) for _ in range(2))
            own = processes.share.of(IMAGES)
            features = (3 + 2 * whole)[own].clone().requires_grad_()
            network.zero_grad()
            output = network(features)
            (output.exp() * weights[own]).sum().backward()
        assert features.grad is not None
        found |= {f"{name}/part/output": output.detach(), f"{name}/part/gradient": features.grad}
        found |= {f"{name}/sum/{key}": p.grad for key, p in network.named_parameters() if p.grad is not None}
        found |= {f"{name}/same/{key}": value.double() for key, value in network.named_buffers()}
    return found


def training_step(name: str, processes: Processes) -> TrainingStep:
    """With the process's part of a fixed batch in it, in float64."""
    config = TrainingConfig(model=name, loss="cross-entropy", score_scale=10.0, device="cpu")
    network = build(name, channels=1, classes=3, seed=0, **NETWORKS[name]).double().train()
    step = TrainingStep(use_backend(network, "reference"), config, CPU, processes)
    generator = torch.Generator().manual_seed(2)
    own = processes.share.of(IMAGES)
    step.images = torch.randn(IMAGES, 1, 32, 32, generator=generator, dtype=torch.float64)[own]
    step.labels = (torch.arange(IMAGES) % 3)[own]
    return step


def gradients(name: str, processes: Processes) -> dict[str, Tensor]:
    """The loss, the errors, gradients and running values of one training step."""
    step = training_step(name, processes)
    loss, wrong = step.gradients()
    found = {f"{name}/same/loss": loss.double(), f"{name}/same/wrong": wrong.double()}
    found |= {f"{name}/same/{key}": p.grad for key, p in step.network.named_parameters() if p.grad is not None}
    return found | {f"{name}/same/{key}": value.double() for key, value in step.network.named_buffers()}


def left_out(processes: Processes) -> Tensor:
    """A batch of ones after dropout."""
    torch.manual_seed(3)
    network = nn.Sequential(Dropout(0.5))
    processes.synchronise(network)
    return network(torch.ones(IMAGES, 50)[processes.share.of(IMAGES)])


def failure(processes: Processes) -> str:
    """What is said of a number that is not finite in the last process alone."""
    step = training_step("qcn-small", processes)
    if processes.share.rank == processes.share.processes - 1:
        step.network.layers[1].register_forward_hook(lambda module, inputs, output: PoisonedPart()(*output))
    try:
        step.compute()
    except QuatcapsError as error:
        return str(error)
    return "nothing"


def unequal(processes: Processes) -> str:
    try:
        processes.check_equal("rank", [str(processes.share.rank), torch.zeros(2)])
    except QuatcapsError as error:
        return str(error)
    return "nothing"


def measured_parts(processes: Processes) -> list[list[int]]:
    """Which of 1, 2, … 5 images this process counts."""
    found = []
    for count in range(1, 6):
        stored = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1)
        part, own = processes.part(ImageSet("numbers", stored, torch.zeros(count, dtype=torch.int64), ("one",)))
        found.append(part.images.flatten()[own].tolist())
    return found


def main(folder: Path) -> None:
    with joined() as processes:
        processes, _ = processes.on(CPU)
        tensors = normalisations(processes)
        for name in NETWORKS:
            tensors |= gradients(name, processes)
        apart = Apart(processes.share, group=processes.group)
        tensors |= {f"apart {key}": value for key, value in gradients("qcn-small", apart).items()}
        tensors["dropout/part/kept"] = left_out(processes)
        rank = processes.share.rank
        said = {
            "failure": failure(processes),
            "unequal": unequal(processes),
            "any": [processes.any(False), processes.any(rank == 1)],
            "sum": processes.sum(10 + rank),
            "parts": measured_parts(processes),
        }
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{rank}.safetensors")
        (folder / f"{rank}.json").write_text(json.dumps(said))


def alone() -> dict[str, Tensor]:
    """What one process has of the whole batch."""
    tensors = normalisations(ALONE)
    for name in NETWORKS:
        tensors |= gradients(name, ALONE)
    return tensors | {"dropout/part/kept": left_out(ALONE)}


def become(rank: int, port: int, log: Path) -> None:
    """This process, as torchrun would have started it, with its output in a file."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    handle = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def stopping(rank: int, chosen: int, at: int) -> None:
    """Has the chosen process tell itself to stop after a step."""
    report = TrainingProgress.step

    def step(progress: TrainingProgress, number: int, *state: int) -> None:
        report(progress, number, *state)
        if number == at and rank == chosen:
            os.kill(os.getpid(), signal.SIGTERM)

    TrainingProgress.step = step  # type: ignore[method-assign,assignment]


def two(folder: Path, *arguments: str) -> int:
    """Both processes; when one has failed the other is ended, as by torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = set()
    for rank in (0, 1):
        process = os.fork()
        if process == 0:
            become(rank, port, folder / f"{rank}.log")
            if not arguments:
                main(folder)
                sys.exit(0)
            sys.argv = ["quatcaps", *arguments]
            stopping(rank, *map(int, os.environ.get("STOP", "-1 0").split()))
            cli.main()
        running.add(process)
    failed = 0
    while running:
        process, status = os.wait()
        running.remove(process)
        if status and not failed:
            failed = os.waitstatus_to_exitcode(status)
            for other in running:
                os.kill(other, signal.SIGTERM)
    return failed


if __name__ == "__main__":
    sys.exit(two(Path(sys.argv[1]), *sys.argv[2:]))

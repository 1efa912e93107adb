"""Several processes that train one run, as torchrun starts them.

Each has the whole network and an equal part of every batch. They tell each other the sums of batch normalisation
(layers/synchronised.py), gradients once a step, and short words, such as that one was asked to stop. The first leads:
it alone writes the run's folder and speaks to the user. One process alone sends nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from rich.console import Console
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from quatcaps.data.batches import Share
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.layers.synchronised import synchronise

PATIENCE = timedelta(hours=6)
"""How long a process waits for another, which may be downloading a dataset."""
LONGEST_WORDS = 300
SECONDS_TO_SPEAK = 3.0
"""For the process that failed first; when any has ended, torchrun ends all."""


class LostProcessError(QuatcapsError):
    """Another process of the run has ended without a word."""


@dataclass(frozen=True)
class Processes:
    """Which one of the processes of a run this is."""

    share: Share = field(default_factory=Share)
    local_rank: int = 0  # on its machine
    local_count: int = 1
    group: dist.ProcessGroup | None = None  # for tensors on the device; the words go by the default group

    @property
    def several(self) -> bool:
        return self.share.processes > 1

    @property
    def leads(self) -> bool:
        return self.share.rank == 0

    @property
    def in_graphs(self) -> bool:
        """Whether a CUDA graph can have what the processes tell each other in a step: by NCCL, or nothing."""
        return self.group is None or dist.get_backend(self.group) == dist.Backend.NCCL

    def on(self, device: torch.device) -> tuple[Processes, torch.device]:
        """With a group for tensors on the device, and the device of this process: for `cuda` a GPU of its own, by NCCL;
        else, where all use one, by gloo."""
        if not self.several:
            return self, device
        own = device.type == "cuda" and (device.index is None or self.local_count == 1)
        if device.type == "cuda":
            device = torch.device("cuda", self.local_rank if device.index is None else device.index)
            gpus = torch.cuda.device_count()
            if device.index >= gpus:
                raise QuatcapsError(
                    f"{self.local_count} processes on a machine of {gpus} GPU(s): give torchrun --nproc-per-node "
                    f"{gpus}, or have them share one with --device cuda:0"
                )
            torch.cuda.set_device(device)
        return replace(self, group=dist.new_group(timeout=PATIENCE, backend="nccl" if own else "gloo")), device

    def console(self, console: Console) -> Console:
        """The user's, or, of a process that does not lead, one that nobody sees."""
        return console if self.leads else Console(quiet=True, force_terminal=False)

    def synchronise(self, network: nn.Module) -> None:
        """Has the network take its batches as parts of a whole."""
        if self.group is not None:
            synchronise(network, self.group)

    def average(self, network: nn.Module, loss: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
        """Puts the means over all processes in the place of the gradients; the mean loss, and all misclassified."""
        if self.group is None:
            return loss, wrong
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        parts = [gradient.flatten() for gradient in gradients]
        together = torch.cat([*parts, loss.reshape(1), wrong.reshape(1).to(loss)])
        work = dist.all_reduce(together, group=self.group, async_op=True)
        assert work is not None
        work.wait()
        means = together[:-1].div_(self.share.processes)
        for gradient, mean in zip(gradients, means[:-1].split([len(part) for part in parts]), strict=True):
            gradient.copy_(mean.view_as(gradient))  # which keeps the way it lies in memory
        return means[-1], together[-1]

    def told(self, own: bytes) -> list[bytes]:
        """What all processes say, in the order of their ranks; they must say as much."""
        if not self.several:
            return [own]
        words = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        everyone = [torch.empty_like(words) for _ in range(self.share.processes)]
        dist.all_gather(everyone, words)
        return [bytes(each.tolist()) for each in everyone]

    def wait(self) -> None:
        """Until all are here."""
        self.told(b".")

    def any(self, own: bool) -> bool:
        """Whether it is so in any process."""
        return b"y" in self.told(b"y" if own else b"n")

    def sum(self, own: int) -> int:
        """Over all processes."""
        return sum(int.from_bytes(each, "big") for each in self.told(own.to_bytes(8, "big")))

    def earliest(self, place: int, words: str) -> str:
        """The words of the process that gives the lowest place."""
        if not self.several:
            return words
        own = f"{place:08d}{words}".encode()[:LONGEST_WORDS]
        return min(self.told(own.ljust(LONGEST_WORDS, b"\0"))).rstrip(b"\0")[8:].decode(errors="ignore")

    def check_equal(self, what: str, contents: Iterable[Tensor | str]) -> None:
        """Raises, in all processes, unless all have the same."""
        if not self.several:
            return
        digest = hashlib.sha256()
        for each in contents:
            raw = each.encode() if isinstance(each, str) else each.detach().cpu().contiguous().view(-1).numpy().data
            digest.update(raw)
        first, *others = self.told(digest.digest())
        for rank, other in enumerate(others, 1):
            if other != first:
                raise QuatcapsError(
                    f"process {rank} of {self.share.processes} has another {what} than process 0: start all with the "
                    "same command, version and data, and a run's folder that all of them can read"
                )

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """What is done inside is done by one process on each machine before the others there do it."""
        if self.local_rank:
            self.wait()
        yield
        if not self.local_rank:
            self.wait()

    def part(self, images: ImageSet) -> tuple[ImageSet, slice]:
        """The images that this process measures, and which of them are its own: all parts are of one size, so that the
        processes stay in step, and so the last may begin with images of another's."""
        if not self.several:
            return images, slice(None)
        size = -(-len(images) // self.share.processes)
        begin = self.share.rank * size
        start = min(begin, len(images) - size)
        return images.part(start, start + size, images.name), slice(begin - start, None)

    def gathered(self, values: Tensor, count: int) -> Tensor:
        """(count, d): of the float32 values (n, d) that each process has for its `part`, all, in the images' order."""
        if not self.several:
            return values
        everyone = [
            torch.frombuffer(bytearray(said), dtype=torch.float32).view_as(values)
            for said in self.told(values.contiguous().numpy().tobytes())
        ]
        size = len(values)
        parts = [each[rank * size - min(rank * size, count - size) :] for rank, each in enumerate(everyone)]
        return torch.cat(parts)


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """This process among those that torchrun started; `ALONE` where it started no others.

    Of the processes that fail, the first says why; the others end without a word.
    """
    share = Share.of_this_process()
    if share.processes == 1:
        yield ALONE
        return
    local_rank, local_count = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    processes = Processes(share, local_rank, max(1, local_count))
    count_failure = meet(share)
    try:
        yield processes
        processes.wait()
    except BaseException as error:
        if not first_to_fail(count_failure):
            time.sleep(SECONDS_TO_SPEAK)
            raise SystemExit(1) from error
        if isinstance(error, RuntimeError) and is_loss(error):
            raise LostProcessError(
                f"process {share.rank} of {share.processes} lost another one, which was killed or cannot be reached: "
                "see what torchrun says of it, then go on with quatcaps train --resume"
            ) from error
        raise
    dist.destroy_process_group()


def check_alone(command: str, instead: str) -> None:
    """Raises in one of several processes that torchrun started, where each would do everything. instead: words in
    which {count} is how many there are."""
    share = Share.of_this_process()
    if share.processes > 1:
        raise QuatcapsError(
            f"this is process {share.rank} of {share.processes}: start quatcaps {command} without torchrun; "
            + instead.format(count=share.processes)
        )


def meet(share: Share) -> Callable[[], int]:
    """Finds the other processes; gives what counts the failed ones of all, called by each that fails."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise QuatcapsError(
            f"this is process {share.rank} of {share.processes}, and {' and '.join(missing)} should say where the "
            "others are: start all with torchrun, or one alone without RANK and WORLD_SIZE"
        )
    try:
        store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
        store.set_timeout(PATIENCE)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise QuatcapsError(
            f"process {share.rank} of {share.processes} cannot reach the others: {str(error).splitlines()[0]}"
        ) from error
    return lambda: int(store.add("failures", 1))


def first_to_fail(count_failure: Callable[[], int]) -> bool:
    try:
        with unseen_errors():
            return count_failure() == 1
    except RuntimeError:  # its host has ended, and so was first
        return False


@contextmanager
def unseen_errors() -> Iterator[None]:
    """Nothing that is written meanwhile to the standard error is seen: where the host of a store ends when it is asked,
    torch prints a stack of C++ calls beside raising its error."""
    sys.stderr.flush()
    seen, unseen = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(unseen, 2)
        yield
    finally:
        os.dup2(seen, 2)
        os.close(seen)
        os.close(unseen)


def is_loss(error: RuntimeError) -> bool:
    """Whether an error is that of a connection to another process."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)

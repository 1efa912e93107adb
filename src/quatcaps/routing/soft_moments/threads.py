"""Work on ranges of children, one thread per core, some children at a time.

The operations of one block are too short for PyTorch's own threads: starting and ending a parallel region costs as
much as the work, and products of small matrices run on one core only. So each thread takes a range of children and
computes alone; PyTorch releases the interpreter's lock while it does.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

BLOCK = 2**17
"""Numbers in a block's tensors, about. With fewer the threads wait for the interpreter's lock more than they compute;
more use memory for nothing."""
WORTH_A_THREAD = 2**16
"""Numbers for which waking a thread repays."""


def shares(children: int, numbers: int, device: torch.device) -> list[slice]:
    """Splits children with so many numbers in all into one range per thread worth waking: on a GPU, which has threads
    of its own and a stream that belongs to this one, a single range."""
    most = torch.get_num_threads() if device.type == "cpu" else 1
    threads = max(1, min(most, children, numbers // WORTH_A_THREAD))
    return [slice(children * k // threads, children * (k + 1) // threads) for k in range(threads)]


def blocks(share: slice, numbers: int) -> tuple[int, list[slice]]:
    """Splits a range of children with so many numbers each: the size of a block, and all blocks."""
    size = min(max(1, BLOCK // max(1, numbers)), share.stop - share.start)
    return size, [slice(first, min(first + size, share.stop)) for first in range(share.start, share.stop, size)]


def in_threads(work: Callable[[int, slice], None], ranges: list[slice]) -> None:
    """Calls work(k, ranges[k]) for all k, each in a thread; results go into tensors made before.

    In inference mode, which makes a short operation a quarter shorter.
    """

    def run(k: int) -> None:
        with torch.inference_mode():
            work(k, ranges[k])

    if len(ranges) == 1:
        run(0)
    else:
        for _ in pool(torch.get_num_threads()).map(run, range(len(ranges))):
            pass


@functools.cache
def pool(count: int) -> ThreadPoolExecutor:
    """That many threads, in each of which PyTorch's operations stay on one core.

    `set_num_threads` holds for the thread that calls it and for threads started later; the last line undoes the latter.
    """
    all_started = threading.Barrier(count)

    def stay_on_one_core() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread's first look at the number would otherwise reset it to the process's

    executor = ThreadPoolExecutor(count, "quatcaps", stay_on_one_core)
    for _ in executor.map(lambda _: all_started.wait(), range(count)):
        pass
    torch.set_num_threads(count)
    return executor


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has none of its parent's threads

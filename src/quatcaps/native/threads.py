"""Threads for the library's functions, one per core.

Not those of `concurrent.futures`: some of its locks are written in Python, and an interrupt at the wrong moment leaves
one locked for ever. A `SimpleQueue` is written in C, and an interrupt finds it before or after a step.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

import torch

Jobs = SimpleQueue[Callable[[], object]]


@functools.cache
def pool(count: int) -> Jobs:
    """Where to put work for that many threads, in each of which PyTorch's operations stay on one core.

    `set_num_threads` holds for the thread that calls it and for threads started later; the last line undoes the latter.
    """
    jobs: Jobs = SimpleQueue()
    ready: SimpleQueue[None] = SimpleQueue()
    try:
        for number in range(count):
            Thread(target=serve, args=(jobs, ready), name=f"quatcaps-{number}", daemon=True).start()
        for _ in range(count):
            ready.get()
    finally:
        torch.set_num_threads(count)
    return jobs


def serve(jobs: Jobs, ready: SimpleQueue[None]) -> None:
    """Does one job after the other, and holds none that is done."""
    torch.set_num_threads(1)
    torch.get_num_threads()  # a thread's first look at the number would otherwise reset it to the process's
    ready.put(None)
    while True:
        job = jobs.get()
        job()
        del job


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has none of its parent's threads

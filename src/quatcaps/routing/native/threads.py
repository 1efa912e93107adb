"""Threads for the library's functions, one per core."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch


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

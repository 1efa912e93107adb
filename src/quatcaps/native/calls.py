"""How a function of a library is called: a task that all threads share, and who owns what they write to."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.native import threads


class Call(NamedTuple):
    """A call of a library's function, for one thread or several.

    It holds all that the function reads and writes. Nothing of it is freed while a thread works on it, whatever
    happens to the frame that asked for it. `done` is told about each thread of the pool, 0 or 1 for a failure.
    """

    function: Any
    task: ctypes.Structure
    tensors: Mapping[str, Tensor]
    done: SimpleQueue[int]

    def run(self) -> int:
        failed: int = self.function(ctypes.byref(self.task))
        return failed

    def run_in_pool(self) -> None:
        failed = 1
        try:
            failed = self.run()
        finally:
            self.done.put(failed)


def share(function: Any, task: ctypes.Structure, tensors: Mapping[str, Tensor], worth: int) -> None:
    """Calls a function of a library in as many threads as the work is worth; results go into tensors made before.

    All threads are done when this returns, also by an interrupt.
    """
    call = Call(function, task, tensors, SimpleQueue())
    count = max(1, min(torch.get_num_threads(), worth))
    others = failures = 0
    try:
        for _ in range(count - 1):
            threads.pool(torch.get_num_threads()).put(call.run_in_pool)
            others += 1
        failures += call.run()
    finally:
        failures += wait(call.done, others)
    if failures:
        raise MemoryError("no memory for the scratch of a function in C")


def wait(done: SimpleQueue[int], others: int) -> int:
    """Returns when so many threads are done: how many of them failed."""
    return sum(done.get() for _ in range(others))

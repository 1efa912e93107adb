"""Kernels that a computation will launch, compiled ahead by several processes: a first step has dozens of them, and one
process compiles one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

FEWEST = 4
"""Kernels that are worth a process."""
SECONDS_FROM_CACHE = 0.1
"""A kernel that Triton has on disk takes less."""
SECONDS_AT_MOST = 120.0
"""Then this process compiles what is left, as it would have."""
MOST_PROCESSES = 16


class Kernel(NamedTuple):
    """A kernel as Triton compiles it for arguments of certain types."""

    function: Any
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]

    def compile(self, target: Any) -> None:
        """Into Triton's cache on disk."""
        from triton.compiler import ASTSource, compile

        source = ASTSource(self.function, self.signature, self.constants, self.attributes)
        compile(source, target=target, options=self.options)


@contextlib.contextmanager
def rehearsing() -> Iterator[list[Kernel]]:
    """Inside, no kernel is launched that is not compiled yet; the list gets what it is. Whatever is computed inside
    means nothing."""
    from triton import knobs

    found: list[Kernel] = []

    def note(*, fn: Any, compile: dict[str, Any], **rest: Any) -> bool:
        told = json.loads(compile["specialization_data"])["options"]
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
        function, signature, constants = fn.jit_function, compile["signature"], compile["constants"]
        found.append(Kernel(function, signature, constants, compile["configs"][0], options))
        return True

    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, note
    try:
        yield found
    finally:
        knobs.runtime.jit_cache_hook = before


def compile_ahead(rehearse: Callable[[], object]) -> None:
    """Calls what will launch kernels, without launching them, and compiles them. Where that cannot be done, nothing is:
    each is compiled when it is launched."""
    if not hasattr(os, "fork"):
        return
    from triton.runtime.driver import driver

    with rehearsing() as found, contextlib.suppress(Exception):  # what is wrong, the real one will say
        rehearse()
    kernels = list({repr(kernel[1:]) + kernel.function.__name__: kernel for kernel in found}.values())
    if len(kernels) < FEWEST:
        return
    target, begun = driver.active.get_current_target(), time.monotonic()
    kernels[0].compile(target)
    if time.monotonic() - begun > SECONDS_FROM_CACHE:
        compile_side_by_side(kernels[1:], target, min(MOST_PROCESSES, len(os.sched_getaffinity(0))))


def compile_side_by_side(kernels: Sequence[Kernel], target: Any, processes: int) -> None:
    """Fills Triton's cache on disk by several processes, which are copies of this one and leave the GPU alone."""
    parts = [kernels[part::processes] for part in range(processes) if part < len(kernels)]
    children = [forked(partial(compile_each, part, target)) for part in parts]
    deadline = time.monotonic() + SECONDS_AT_MOST
    for child in children:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)


def compile_each(kernels: Sequence[Kernel], target: Any) -> None:
    for kernel in kernels:
        kernel.compile(target)


def forked(work: Callable[[], None]) -> int:
    """The number of a process that does some work and ends; what becomes of it is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads may hold locks: see the deadline above
        child = os.fork()
    if child:
        return child
    try:
        with contextlib.suppress(BaseException):
            work()
    finally:
        os._exit(0)

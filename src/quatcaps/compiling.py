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
from pathlib import Path
from typing import Any, NamedTuple

from quatcaps.errors import QuatcapsError
from quatcaps.files import locked

FEWEST = 4
"""Kernels that are worth a process."""
SECONDS_FROM_CACHE = 0.1
"""A kernel that Triton has on disk takes less."""
SECONDS_AT_MOST = 120.0
"""Then this process compiles what is left, as it would have."""
MOST_PROCESSES = 16
LOCK = "quatcaps.lock"
"""In Triton's cache: who holds it compiles."""
PLACE, MOST_KERNELS = 4, 4096
"""Bytes of a number that processes read from a pipe, and how many of these a pipe takes at once."""


class Kernel(NamedTuple):
    """A kernel as Triton compiles it for arguments of certain types."""

    function: Any
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]
    launcher: bool = True

    def compile(self, target: Any) -> None:
        """Into Triton's cache on disk; launcher: with the function in C by which some versions of Triton launch it, one
        for every signature. Made one after the other, these take longer than the kernels."""
        from triton.compiler import ASTSource, compile
        from triton.runtime.driver import driver

        source = ASTSource(self.function, self.signature, self.constants, self.attributes)
        compiled = compile(source, target=target, options=self.options)
        if self.launcher:
            driver.active.launcher_cls(compiled.src, compiled.metadata)

    @property
    def effort(self) -> int:
        """What takes longer to compile has a higher one, as a rule."""
        return len(self.function.src)


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
    settle_keys(kernels)
    with alone():
        compile_missing(kernels, driver.active.get_current_target())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Of processes that share Triton's cache one at a time, as each of many that begin together would compile what all
    need. One that waits too long, or cannot wait, goes on."""
    from triton import knobs

    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, QuatcapsError):  # a timeout is an OSError
            folder = Path(knobs.cache.dir)
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder / LOCK, SECONDS_AT_MOST))
        yield


def compile_missing(kernels: Sequence[Kernel], target: Any) -> None:
    """Tries one after the other, the shortest first; after the first that was not on disk, the rest side by side. The
    very first says nothing: for that Triton reads itself, too, to have a key of its own version."""
    shortest_first = launchers_once(sorted(kernels, key=lambda kernel: kernel.effort))
    for place, kernel in enumerate(shortest_first, 1):
        begun = time.monotonic()
        with contextlib.suppress(Exception):
            kernel.compile(target)
        if place > 1 and time.monotonic() - begun > SECONDS_FROM_CACHE:
            compile_side_by_side(shortest_first[place:], target, min(MOST_PROCESSES, len(os.sched_getaffinity(0))))
            return


def settle_keys(kernels: Sequence[Kernel]) -> None:
    """Has Triton give every kernel its key, in the order in which they are launched. A key tells the constants that a
    kernel reads, and of functions that it calls only if another kernel called them before (Triton 3.6, 3.7): processes
    that come to kernels in another order would keep them under keys that this one does not look for."""
    for kernel in kernels:
        _ = kernel.function.cache_key


def launchers_once(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The same, of those with one signature only the first with its launcher, so that no two processes make it."""
    signatures = [repr(list(kernel.signature.values())) for kernel in kernels]
    return [
        kernel._replace(launcher=signatures.index(signature) == place)
        for place, (kernel, signature) in enumerate(zip(kernels, signatures, strict=True))
    ]


def compile_side_by_side(kernels: Sequence[Kernel], target: Any, processes: int) -> None:
    """Fills Triton's cache on disk by several processes, copies of this one that leave the GPU alone. Each takes
    the next kernel when it is done with one; the longest come first."""
    longest_first = launchers_once(sorted(kernels, key=lambda kernel: -kernel.effort))
    places, given = os.pipe()
    try:
        os.write(given, b"".join(place.to_bytes(PLACE) for place in range(len(kernels))[:MOST_KERNELS]))
    finally:
        os.close(given)
    children = [
        forked(partial(compile_next, longest_first, places, target)) for _ in range(min(processes, len(kernels)))
    ]
    os.close(places)
    deadline = time.monotonic() + SECONDS_AT_MOST
    for child in children:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)


def compile_next(kernels: Sequence[Kernel], places: int, target: Any) -> None:
    """Compiles those whose places it reads, until there are no more. One that fails is left to the process that will
    launch it, which says what is wrong."""
    while place := os.read(places, PLACE):
        with contextlib.suppress(Exception):
            kernels[int.from_bytes(place)].compile(target)


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

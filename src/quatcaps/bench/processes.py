"""Time and memory on a CPU: each variant in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from quatcaps.bench.cases import CLASSES, SIDE, Case
from quatcaps.bench.failures import OUT_OF_MEMORY, reason
from quatcaps.bench.rows import Row, Timing
from quatcaps.bench.steps import Step, network_step

STEP, STOP = "step", "stop"
COMPILED = "the peak includes the compiler's own memory"
STATUS = Path("/proc/self/status")


def take_turns(cases: Sequence[Case], steps: int, doing: Callable[[str], None]) -> list[Row]:
    """All cases, a step of each in turn, so that whatever else the machine does falls on all of them; the first
    step of each is not counted."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(case)) for case in cases]
        for turn in range(steps + 1):
            for worker in workers:
                doing(f"{worker.case.words}, {f'step {turn} of {steps}' if turn else 'warming up'}")
                worker.step()
        return [worker.finish() for worker in workers]


class Worker:
    """The process of one case, seen from outside."""

    def __init__(self, case: Case) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.case, self.times, self.note = case, list[float](), ""
        self.connection, self.theirs = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(self.theirs, case), daemon=True)

    def __enter__(self) -> Worker:
        with deaf():
            self.process.start()
        self.theirs.close()
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()
        if exception != (None, None, None):
            self.process.terminate()
        self.process.join()

    def step(self) -> None:
        if not self.note:
            self.take(self.ask(STEP), self.times.append)

    def finish(self) -> Row:
        peaks: list[int] = []
        if not self.note:
            self.take(self.ask(STOP), peaks.append)
        if self.note:
            return Row(self.case, note=self.note)
        timing = Timing(self.times[0], tuple(self.times[1:]), *peaks)
        return Row(self.case, timing, COMPILED if self.case.variant == "compile" else "")

    def take(self, answer: Any, keep: Callable[[Any], None]) -> None:
        """Keeps a number; words say why there is none, now and from now on."""
        if isinstance(answer, str):
            self.note = answer
        else:
            keep(answer)

    def ask(self, request: str) -> Any:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(request)
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            killed = self.process.exitcode == -getattr(signal, "SIGKILL", 9)  # Windows has no such signal
            how = f"its process was killed, most often for being {OUT_OF_MEMORY}" if killed else "its process ended"
            return f"{how} (exit code {self.process.exitcode})"


def serve(connection: Connection, case: Case) -> None:
    """Builds one case, then answers each request with the seconds of one step, and at the end with the peak memory
    above what stood before the first; or with the words that say why it cannot."""
    warnings.simplefilter("ignore")
    try:
        load_libraries(case)
        step = network_step(case, torch.device("cpu"))
        before = start_of_peak()
        while connection.recv() == STEP:
            connection.send(seconds(step))
        connection.send(max(0, peak() - before))
    except (EOFError, BrokenPipeError):
        pass
    except Exception as error:
        connection.send(reason(error))


def load_libraries(case: Case) -> None:
    """A step of the smallest kind: what it imports is not memory that a step needs. A compiler would take minutes."""
    if case.variant == "compile":
        return
    smallest = replace(case, model="qcn-small", batch=1, side=SIDE, classes=CLASSES)
    network_step(smallest, torch.device("cpu"))()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps what was freed, unless told
        ctypes.CDLL(None).malloc_trim(0)


def seconds(step: Step) -> float:
    """How long one step takes on a CPU."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def start_of_peak() -> int:
    """The process's bytes now; where the system allows it, its peak is counted anew from here."""
    if not STATUS.exists():
        return peak()
    with contextlib.suppress(OSError):
        STATUS.with_name("clear_refs").write_text("5")
    return status("VmRSS")


def peak() -> int:
    """The most bytes that the process has held."""
    if STATUS.exists():
        return status("VmHWM")  # getrusage's would begin at the peak of the process that started this one
    import resource

    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def status(field: str) -> int:
    """A field of Linux's status of this process, in bytes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    return 1024 * int(lines[field].split()[0])


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C: whoever started them does, and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

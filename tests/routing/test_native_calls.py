"""Threads of the native backend: how many there are changes no bit, and an interrupt frees nothing that they use."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import torch
from native_layers import layer, results
from torch import Tensor

from quatcaps.native import calls as any_calls
from quatcaps.native import threads
from quatcaps.routing import Window, native
from quatcaps.routing.native import calls, libraries

pytestmark = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any work is worth a second thread."""
    monkeypatch.setattr(calls, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    threads.pool(2)


@pytest.mark.parametrize("competition", ["position", "all"])
@pytest.mark.parametrize(("rows", "columns", "window"), [(1, 3, Window(3, 3)), (2, 2, Window(3, 2, 2, False, True))])
def test_the_number_of_threads_does_not_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, window: Window, competition: str
) -> None:
    monkeypatch.setattr(calls, "WORTH_A_THREAD", 1)
    before = torch.get_num_threads()
    children, parents = layer(rows, columns, window, 5, 4, size=(11, 9), dtype=torch.float32)
    try:
        by_threads = []
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            by_threads.append(results(native, children, parents, window, competition))
    finally:
        torch.set_num_threads(before)
    for others in by_threads[1:]:
        for one, other in zip(others, by_threads[0], strict=True):
            assert torch.equal(one, other)


class Blocked:
    """A function of the library that, in the pool, waits to be let go; where it is called from, it is interrupted."""

    def __init__(self) -> None:
        self.begun, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.caller = threading.current_thread()

    def __call__(self, task: object) -> int:
        if threading.current_thread() is self.caller:
            assert self.begun.wait(60)
            raise KeyboardInterrupt
        self.begun.set()
        assert self.released.wait(60)
        self.ended.set()
        return 0


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch, two_threads: None) -> Blocked:
    function = Blocked()
    monkeypatch.setattr(libraries, "library", lambda *shape: SimpleNamespace(function=function))
    return function


def interrupted() -> list[weakref.ref[Tensor]]:
    """Calls a function that is interrupted, forgets its tensors, and says how to see whether they are still there."""
    window = Window(2, 2)
    tensors = dict(zip(("poses", "activations", "maps"), layer(1, 3, window)[0], strict=True))
    try:
        calls.run("function", window, tensors)
    except KeyboardInterrupt:
        return [weakref.ref(tensor) for tensor in tensors.values()]
    raise AssertionError("it was not interrupted")


def interrupt(*_: object) -> int:
    raise KeyboardInterrupt


def wait_until(true: Callable[[], bool]) -> None:
    passing = threading.Event()
    for _ in range(6000):
        if true():
            return
        passing.wait(0.01)
    raise AssertionError("a minute has passed")


def test_an_interrupt_waits_for_the_other_threads(blocked: Blocked) -> None:
    timer = threading.Timer(0.2, blocked.released.set)
    timer.start()
    interrupted()
    assert blocked.ended.is_set()
    timer.join()


def test_what_a_thread_writes_to_outlives_a_second_interrupt(blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_calls, "wait", interrupt)
    held = interrupted()
    try:
        assert not blocked.ended.is_set()
        assert all(tensor() is not None for tensor in held)
    finally:
        blocked.released.set()
    wait_until(lambda: all(tensor() is None for tensor in held))


def test_after_an_interrupt_while_threads_start_there_are_threads(
    monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    threads.pool.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(threads.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            threads.pool(2)
    done: SimpleQueue[int] = SimpleQueue()
    threads.pool(2).put(lambda: done.put(1))
    assert done.get(timeout=60) == 1


INTERRUPTED = """
import signal, time, torch
from quatcaps.routing import Parents, Votes, Window
from quatcaps.routing.native import calls

def interrupt(*_):
    raise KeyboardInterrupt

def routed():
    votes = Votes(*children, Window(3, 3), backend="native", competition="all")
    moments = votes.under(parents)
    return [*moments, *torch.autograd.grad(moments.second.sum(), children)]

calls.WORTH_A_THREAD = 1
torch.set_num_threads(3)
torch.manual_seed(0)
shapes = [(2, 8, 3, 12, 12), (2, 8, 12, 12), (9, 8, 8, 3, 3), (2, 8, 3, 10, 10), (2, 8, 3, 10, 10), (2, 8, 10, 10)]
tensors = [torch.rand(shape, requires_grad=True) for shape in shapes]
children, parents = tensors[:3], Parents(*tensors[3:])
expected, caught, end = routed(), 0, time.monotonic() + 1
signal.signal(signal.SIGALRM, interrupt)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.003 * torch.rand(()).item())
        for _ in range(5):
            routed()
        time.sleep(1)
    except KeyboardInterrupt:
        caught += 1
assert caught > 20, caught
for one, other in zip(routed(), expected, strict=True):
    assert torch.equal(one, other)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_interrupts_at_any_moment_do_no_harm() -> None:
    subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, timeout=120)

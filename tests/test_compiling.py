"""Kernels compiled ahead. That other processes' results are found is tested where kernels compile, for sm_90."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quatcaps import compiling
from quatcaps.compiling import Kernel, alone, compile_ahead, compile_side_by_side, forked, launchers_once, rehearsing

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
SM_90 = SimpleNamespace(get_current_target=lambda: "sm_90")
OPTIONS = '{"options": {"num_warps": 2, "supported": ["tf32", "ieee"]}}'


def ask(name: str, function: Any = None) -> bool:
    """What Triton asks before it compiles a kernel."""
    from triton import knobs

    compile = {"specialization_data": OPTIONS, "signature": {}, "constants": {(0,): name}, "configs": [{}]}
    function = function or SimpleNamespace(__name__=name, src=name, cache_key=name)
    return bool(
        knobs.runtime.jit_cache_hook(
            key=name, repr=name, fn=SimpleNamespace(jit_function=function), compile=compile, already_compiled=False
        )
    )


def test_a_rehearsal_launches_nothing_and_tells_what_it_would_have_launched() -> None:
    from triton import knobs

    with rehearsing() as found:
        assert ask("one"), "Triton neither compiles nor launches what it is told so"
        ask("other")
    assert [kernel.function.__name__ for kernel in found] == ["one", "other"]
    assert found[0].options == {"num_warps": 2, "supported": ("tf32", "ieee")}
    assert knobs.runtime.jit_cache_hook is None


class Noted(Kernel):
    """Calls its function, which stands for the compiler."""

    effort = 0

    def compile(self, target: Any) -> None:
        self.function(target)


def leaving(path: Path) -> Kernel:
    """Leaves a file, and takes its time."""

    def leave(target: str) -> None:
        path.write_text(f"{target} {os.getpid()}")
        time.sleep(0.05)

    return Noted(leave, {}, {}, {}, {})


def test_processes_share_the_kernels(tmp_path: Path) -> None:
    kernels = [leaving(tmp_path / str(number)) for number in range(5)]
    compile_side_by_side(kernels, "sm_90", 2)
    told = [path.read_text().split() for path in sorted(tmp_path.iterdir())]
    assert [target for target, _ in told] == ["sm_90"] * 5
    assert len({process for _, process in told}) == 2
    assert str(os.getpid()) not in {process for _, process in told}


def test_the_longest_kernels_come_first(tmp_path: Path) -> None:
    class Timed(Noted):
        @property
        def effort(self) -> int:  # type: ignore[override]
            return int(self.signature["effort"])

    kernels = [Timed(leaving(tmp_path / str(n)).function, {"effort": n}, {}, {}, {}) for n in (1, 3, 2)]
    compile_side_by_side(kernels, "sm_90", 1)
    written = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert [path.name for path in written] == ["3", "2", "1"]


def test_a_process_that_fails_or_hangs_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "SECONDS_AT_MOST", 0.2)
    lost, kept = leaving(tmp_path / "no such folder" / "file"), leaving(tmp_path / "kept")
    hanging = Noted(lambda target: signal.pause(), {}, {}, {}, {})
    children: list[int] = []
    monkeypatch.setattr(compiling, "forked", lambda work: children.append(forked(work)) or children[-1])
    compile_side_by_side([lost, hanging, kept], "sm_90", 3)
    assert (tmp_path / "kept").exists()
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), TypeError("not JSON serializable")])
def test_what_is_wrong_the_real_computation_says(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(compiling, "compile_side_by_side", lambda *arguments: made.append(arguments))

    def fail() -> None:
        ask("one")
        raise error

    compile_ahead(fail)
    compile_ahead(lambda: None)
    assert not made, "one kernel is not worth a process"


@pytest.mark.parametrize("cached", [True, False])
def test_what_is_on_disk_is_not_compiled(cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(compiling, "compile_side_by_side", lambda kernels, *rest: made.extend(kernels))
    monkeypatch.setattr(compiling, "SECONDS_FROM_CACHE", 60.0 if cached else -1.0)
    monkeypatch.setattr(Kernel, "compile", lambda self, target: None)
    monkeypatch.setattr(triton.runtime.driver, "_active", SM_90, raising=False)
    compile_ahead(lambda: [ask(str(number % 6)) for number in range(12)])
    assert [kernel.function.__name__ for kernel in made] == ([] if cached else ["2", "3", "4", "5"])


def test_kernels_after_the_first_that_is_missing_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network's kernels may be on disk, and some of them are this one's."""
    made: list[Any] = []
    monkeypatch.setattr(compiling, "compile_side_by_side", lambda kernels, *rest: made.extend(kernels))
    monkeypatch.setattr(compiling, "SECONDS_FROM_CACHE", 0.05)
    monkeypatch.setattr(Kernel, "compile", lambda self, target: time.sleep(0.1 * (self.constants[(0,)] in slow)))
    monkeypatch.setattr(triton.runtime.driver, "_active", SM_90, raising=False)
    slow = "a"
    compile_ahead(lambda: [ask(name) for name in "abcde"])
    assert not made, "the first takes its time whether it is on disk or not"
    slow = "ac"
    compile_ahead(lambda: [ask(name) for name in "abcde"])
    assert [kernel.function.__name__ for kernel in made] == ["d", "e"]


@pytest.mark.parametrize("released", [True, False])
def test_processes_that_share_a_cache_take_turns(
    released: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none waits for ever for one that is stopped."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "SECONDS_AT_MOST", 60.0 if released else 0.2)
    with alone():
        child = forked(lambda: enter(tmp_path))
        if released:
            time.sleep(0.3)
            assert not (tmp_path / "entered").exists()
        else:
            os.waitpid(child, 0)
            assert (tmp_path / "entered").exists()
    if released:
        os.waitpid(child, 0)
        assert (tmp_path / "entered").exists()


def enter(folder: Path) -> None:
    with alone():
        (folder / "entered").touch()


def test_a_cache_that_cannot_be_locked_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    with alone():
        pass


FACTOR = triton.language.constexpr(2)


@triton.runtime.jit.JITFunction
def scaled(value):  # type: ignore[no-untyped-def]
    return value * FACTOR


@triton.runtime.jit.JITFunction
def first(out):  # type: ignore[no-untyped-def]
    triton.language.store(out, scaled(1))


@triton.runtime.jit.JITFunction
def then_a_longer_one(out):  # type: ignore[no-untyped-def]
    triton.language.store(out, scaled(1 + 1))


def test_kernels_are_found_under_the_keys_that_other_processes_gave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's key of a kernel depends on whether another had its key before, if both call one that reads a constant
    (seen with 3.6 and 3.7)."""

    def note(self: Kernel, target: str) -> None:
        key = getattr(self.function, "cache_key", "")
        (tmp_path / f"{self.function.__name__} {os.getpid()}").write_text(key)

    monkeypatch.setattr(compiling, "SECONDS_FROM_CACHE", -1.0)
    monkeypatch.setattr(Kernel, "compile", note)
    monkeypatch.setattr(compiling, "MOST_PROCESSES", 1)
    monkeypatch.setattr(triton.runtime.driver, "_active", SM_90, raising=False)
    compile_ahead(lambda: [ask("a"), ask("b"), ask("first", first), ask("then", then_a_longer_one)])
    for kernel in (first, then_a_longer_one):
        (written,) = tmp_path.glob(f"{kernel.__name__} *")
        assert str(os.getpid()) not in written.name
        assert written.read_text() == kernel.cache_key, kernel.__name__


def test_what_launches_kernels_of_one_signature_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(name: str, *types: str) -> Kernel:
        return Kernel(SimpleNamespace(__name__=name), dict(zip("abc", types, strict=False)), {}, {}, {})

    kernels = [kernel("m", "*fp32"), kernel("n", "*fp32", "i32"), kernel("o", "*fp32"), kernel("p", "*fp32", "i32")]
    assert [each.function.__name__ for each in launchers_once(kernels) if each.launcher] == ["m", "n"]


def test_a_forked_process_ends() -> None:
    child = forked(lambda: None)
    assert os.waitpid(child, 0) == (child, 0)

"""The program's two ends: Ctrl-C before it has begun, and memory that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch

SLOW_IMPORT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may not hear it
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "quatcaps.cli":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
sys.argv[1:] = ["models"]
from quatcaps.__main__ import main
main()
"""


def test_ctrl_c_while_the_program_is_imported() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert errors.startswith("error: interrupted")
    assert errors.count("\n") == 1


HEARD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may not hear it
install = signal.signal
def noted(*arguments):
    before = install(*arguments)
    print("heard", flush=True)
    return before
signal.signal = noted
sys.argv[1:] = ["models"]
from quatcaps.__main__ import main
main()
"""


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0])
def test_ctrl_c_at_any_moment(delay: float) -> None:
    """From the moment that signals are heard; what is imported then includes torch."""
    process = subprocess.Popen([sys.executable, "-c", HEARD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=120)[1]
    assert "Traceback" not in errors
    assert process.returncode == 130 or (delay > 0.2 and process.returncode == 0)
    assert errors.count("\n") <= 1


SWALLOWED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import quatcaps.cli
from quatcaps.__main__ import main
def swallow():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
    raise ImportError("cannot load module more than once per process")
quatcaps.cli.main = swallow
main()
"""


def test_import_that_swallows_ctrl_c() -> None:
    """As NumPy's does, and ends in an error of its own."""
    finished = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=False)
    assert finished.returncode == 130
    assert finished.stderr.startswith("error: interrupted")
    assert finished.stderr.count("\n") == 1


def test_signal_that_was_ignored_stays_ignored() -> None:
    """As in the background of a shell."""
    code = "import signal, quatcaps.cli, quatcaps.__main__ as program\n"
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "quatcaps.cli.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\nprogram.main()"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.stdout == "True\n", finished.stderr


def test_memory_of_a_cpu_ends(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch raises itself, for more than any address space holds."""
    monkeypatch.setattr("quatcaps.training.start.start_run", lambda *arguments: torch.empty(2**52, dtype=torch.uint8))
    outcome = command("train")
    assert outcome.code == 1
    assert outcome.err.startswith("error: out of memory: choose a smaller --batch, or another --device (")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
)
def test_memory_ends_in_other_words(error: Exception, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("quatcaps.training.start.start_run", exhausted)
    outcome = command("train")
    assert outcome.code == 1
    assert outcome.err.startswith("error: out of memory")


def test_other_errors_are_not_hidden(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("quatcaps.training.start.start_run", wrong)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        command("train")

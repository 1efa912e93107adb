"""Systems that are not POSIX: weights load and predict without what only POSIX has."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

import quatcaps

SOURCES = Path(quatcaps.__file__).parent
POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
ELSEWHERE = """
import os, signal, sys, torch, torch._dynamo  # which is the build for this system
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("getuid", "geteuid", "fork", "register_at_fork", "killpg", "setsid"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
    delattr(signal, name)
import quatcaps.cli.datasets, quatcaps.data.download
sys.argv[1:] = ["predict", "--weights", "qcn-mnist", sys.argv[1], "--device", "cpu"]
from quatcaps.__main__ import main
main()
"""


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports when it is imported itself."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_no_module_needs_posix_to_be_imported() -> None:
    found = {
        (path.relative_to(SOURCES).as_posix(), name)
        for path in SOURCES.rglob("*.py")
        for name in imported_at_once(ast.parse(path.read_text(encoding="utf-8")))
        if name in POSIX
    }
    assert not found


def test_weights_predict_without_posix(tmp_path: Path) -> None:
    Image.new("L", (28, 28), 128).save(tmp_path / "grey.png")
    finished = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "grey.png")], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "grey.png: " in finished.stdout

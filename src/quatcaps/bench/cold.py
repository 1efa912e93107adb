"""First steps as on a machine that has compiled nothing yet."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
"""The variables that say where compilers keep what they compiled, each read when it is needed."""


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Compilers find their caches empty; what they keep here is thrown away, and what they had is left alone."""
    before = {name: os.environ.get(name) for name in CACHES}
    with tempfile.TemporaryDirectory(prefix="quatcaps-bench-") as folder:
        os.environ.update({name: str(Path(folder) / part) for name, part in CACHES.items()})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

"""What Ctrl-C ends in, before there is a command to stop and after."""

from __future__ import annotations

import os
from types import FrameType

INTERRUPTED = "interrupted; what was finished is kept, nothing is half-written"
EXIT_CODE = 130


def stop_at_once(number: int, frame: FrameType | None) -> None:
    """A signal's handler, while nothing has begun: raises nothing, as what is being imported might swallow it."""
    os.write(2, f"error: {INTERRUPTED}\n".encode())
    os._exit(EXIT_CODE)

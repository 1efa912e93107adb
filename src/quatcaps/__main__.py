"""`quatcaps`, `python -m quatcaps`, and so `torchrun -m quatcaps`.

Little is imported before signals are heard: Ctrl-C during the other imports ends in the same line as later.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

from quatcaps.interrupted import stop_at_once


def main() -> None:
    """Runs the command line."""
    hears = threading.current_thread() is threading.main_thread()
    if not hears or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # as in a shell's background
        from quatcaps.cli import main as run

        run()
        return
    heard: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop_at_once)
    from quatcaps.cli import main as run

    try:
        signal.signal(signal.SIGINT, interrupt)
        run()
    except (KeyboardInterrupt, Exception):
        if not heard:
            raise
        stop_at_once(signal.SIGINT, None)  # an import that is interrupted may end in any error


if __name__ == "__main__":
    main()

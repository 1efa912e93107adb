"""Starts and stops the explorer's server."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from quatcaps.errors import QuatcapsError
from quatcaps.explorer.shown import Shown
from quatcaps.training.trained import Trained

NEEDED = "the explorer needs Starlette and uvicorn: pip install 'quatcaps[explore]'"


def serve(networks: Sequence[Trained], host: str, port: int, browser: bool, tell: Callable[[str], None]) -> None:
    """Serves until Ctrl-C. The port is taken before anything is said, so that the address is right."""
    try:
        import uvicorn

        from quatcaps.explorer.server import LOCAL, application
    except ImportError as error:
        raise QuatcapsError(f"{NEEDED} ({error})") from error
    shown = [Shown(each) for each in networks]
    listening = bound(host, port)
    address = address_of(host, listening.getsockname()[1])
    hosts = LOCAL if host in ("127.0.0.1", "localhost", "::1") else ("*",)
    config = uvicorn.Config(application(shown, hosts), log_level="warning", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    names = " and ".join(each.name for each in networks)
    tell(f"{names} at {address} (Ctrl-C stops)")
    if hosts == ("*",):
        tell(f"listening on {host}: every machine that reaches this one can open the page")
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    with listening:
        server.run(sockets=[listening])


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; an error that says what to do where it cannot be had."""
    with ExitStack() as on_failure:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listening = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(128)
        except OSError as error:
            raise QuatcapsError(
                f"cannot listen on {host}, port {port} ({error.strerror or error}): another program may use it; give "
                "another --port, or --port 0 for any that is free"
            ) from error
        on_failure.pop_all()
    return listening


def address_of(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"

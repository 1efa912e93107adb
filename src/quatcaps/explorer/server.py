"""The explorer's server: the page, and what it asks for. Every answer is whole, or says what was wrong."""

from __future__ import annotations

import io
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from quatcaps.data.pictures import open_picture
from quatcaps.errors import QuatcapsError
from quatcaps.explorer.page import FILES, page_file
from quatcaps.explorer.shown import Below, Shown
from quatcaps.explorer.toys import PIXELS, View, catalogue, data_address, drawn
from quatcaps.training.preprocess import as_channels

STEPS = (4, 72)
"""Of a turn of 360°: fewest and most."""
LARGEST_UPLOAD = 10 * 2**20
WAITING = 64
"""Requests that may wait for the network; more are told to come again."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Made = TypeVar("Made")
Handler = Callable[[Request], Awaitable[Response]]


def application(networks: Sequence[Shown], hosts: Sequence[str] = LOCAL) -> Starlette:
    """The web application of one network, or of several side by side. `hosts`: the names that it answers to."""
    return Starlette(
        routes=Explorer(networks).routes(),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
    )


class Explorer:
    """One network at a time computes, and no more than a few requests wait for it."""

    def __init__(self, networks: Sequence[Shown]) -> None:
        self.networks = tuple(networks)
        self.turnstile = anyio.CapacityLimiter(1)

    def routes(self) -> list[Route]:
        return [
            Route("/", answered(self.page)),
            *(Route(f"/{name}", answered(self.file)) for name in FILES),
            Route("/api/about", answered(self.about)),
            Route("/api/look", answered(self.look)),
            Route("/api/turn", answered(self.turn)),
            Route("/api/image", answered(self.image), methods=["POST"]),
        ]

    async def computed(self, work: Callable[[], Made]) -> Made:
        """The result of work that takes the processor, off the loop."""
        if self.turnstile.statistics().tasks_waiting >= WAITING:
            raise BusyError(f"{WAITING} requests are waiting: try again in a moment")
        return await anyio.to_thread.run_sync(work, limiter=self.turnstile)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page_file("index.html"))

    async def file(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response(page_file(name), media_type=FILES[name])

    async def about(self, request: Request) -> Response:
        """What there is: networks and toys."""
        return JSONResponse({"networks": [each.to_json() for each in self.networks], "toys": catalogue()})

    async def look(self, request: Request) -> Response:
        """A toy from somewhere, and what each network makes of it."""
        view, below = view_in(request.query_params), below_in(request.query_params)
        return JSONResponse(await self.computed(lambda: looked(self.networks, view, below)))

    async def turn(self, request: Request) -> Response:
        """A toy from all around."""
        view, steps = view_in(request.query_params), number_in(request.query_params, "steps", 36, int)
        if not STEPS[0] <= steps <= STEPS[1]:
            raise QuatcapsError(f"steps is {steps}: give a number from {STEPS[0]} to {STEPS[1]}")
        return JSONResponse(await self.computed(lambda: turned(self.networks, view, steps)))

    async def image(self, request: Request) -> Response:
        """An image of one's own, in the body of the request."""
        received = bytearray()
        async for piece in request.stream():
            received += piece
            if len(received) > LARGEST_UPLOAD:
                raise QuatcapsError(f"the image has more than {LARGEST_UPLOAD / 2**20:.0f} MB: give a smaller one")
        if not received:
            raise QuatcapsError("no image came: send the bytes of an image file")
        below = below_in(request.query_params)
        return JSONResponse(await self.computed(lambda: looked_at(self.networks, bytes(received), below)))


class BusyError(QuatcapsError):
    """Too much at once."""


def answered(handler: Handler) -> Handler:
    """The same, with errors as answers: the server goes on."""

    async def endpoint(request: Request) -> Response:
        try:
            response = await handler(request)
        except BusyError as error:
            response = JSONResponse({"error": str(error)}, status_code=503, headers={"Retry-After": "1"})
        except QuatcapsError as error:
            response = JSONResponse({"error": str(error)}, status_code=400)
        except MemoryError:
            response = JSONResponse({"error": "out of memory: try a smaller image"}, status_code=500)
        response.headers.update(HEADERS)
        return response

    return endpoint


def number_in(query: Mapping[str, str], name: str, default: Any, kind: type) -> Any:
    """A number that the address names."""
    text = query.get(name)
    if text is None:
        return default
    try:
        return kind(text[:40])
    except ValueError:
        words = "a whole number" if kind is int else "a number"
        raise QuatcapsError(f"{name} is {text[:40]!r}: give {words}") from None


def view_in(query: Mapping[str, str]) -> View:
    """The viewpoint that an address names; what it leaves out is as at the beginning."""
    known = {"category": int, "kind": int, "azimuth": float, "elevation": float, "lighting": int}
    usual = View()
    return View(**{name: number_in(query, name, getattr(usual, name), kind) for name, kind in known.items()})


def below_in(query: Mapping[str, str]) -> dict[int, Below]:
    """Of which capsules an address asks for the parts: by network, NETWORK:LAYER:CAPSULE, with commas between."""
    found = {}
    for text in filter(None, query.get("below", "")[:200].split(",")):
        if not re.fullmatch(r"[0-9]{1,4}:[0-9]{1,4}:[0-9]{1,4}", text, re.ASCII):
            raise QuatcapsError(f"below is {text!r}: give NETWORK:LAYER:CAPSULE, such as 0:2:5")
        network, level, capsule = map(int, text.split(":"))
        found[network] = Below(level, capsule)
    return found


def looked(networks: Sequence[Shown], view: View, below: Mapping[int, Below]) -> dict[str, Any]:
    """What /api/look answers."""
    images = drawn([view], sizes(networks))
    found = [each.look(images[each.side][0], view.rotor, below.get(k)) for k, each in enumerate(networks)]
    return {"view": view.to_json(), "image": pictures(images[PIXELS][0]), "networks": found}


def sizes(networks: Sequence[Shown]) -> list[int]:
    """Of the pictures that people and networks are given."""
    return [PIXELS, *(each.side for each in networks)]


def turned(networks: Sequence[Shown], view: View, steps: int) -> dict[str, Any]:
    """What /api/turn answers: from azimuth 0° on, in equal steps."""
    views = [View(view.category, view.kind, 360 * k / steps, view.elevation, view.lighting) for k in range(steps)]
    images, orientations = drawn(views, sizes(networks)[1:]), [each.rotor for each in views]
    return {
        "azimuths": [each.azimuth for each in views],
        "orientations": orientations,
        "networks": [each.turn(images[each.side], orientations) for each in networks],
    }


def looked_at(networks: Sequence[Shown], received: bytes, below: Mapping[int, Below]) -> dict[str, Any]:
    """What /api/image answers."""
    opened = open_picture(io.BytesIO(received), "the image")
    images = {side: as_channels(opened, 2, side) for side in sizes(networks)}
    found = [each.look(images[each.side], below=below.get(k)) for k, each in enumerate(networks)]
    return {"view": None, "image": pictures(images[PIXELS]), "networks": found}


def pictures(image: Tensor) -> dict[str, str]:
    """Both views as PNG in data addresses."""
    return dict(zip(("left", "right"), map(data_address, image), strict=True))

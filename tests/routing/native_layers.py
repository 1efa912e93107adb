"""A small layer for the tests of the native backend, and all that a backend makes of it."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.routing import Parents, Window
from quatcaps.routing.moments import SummedVotes
from quatcaps.routing.shapes import Shapes


def layer(
    rows: int,
    columns: int,
    window: Window,
    children: int = 2,
    parents: int = 3,
    size: tuple[int, int] = (4, 3),
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Tensor], Parents]:
    """Children on a grid and parents, all of them leaves that require a gradient."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    dims, grid = rows * columns, window.positions(*size)
    inputs = [
        normal(2, children, dims, *size),
        normal(2, children, *size).sigmoid(),
        normal(window.offsets, children, parents, columns, columns),
    ]
    given = [normal(2, parents, dims, *grid), normal(2, parents, dims, *grid).exp(), normal(2, parents, *grid)]
    leaves = [tensor.requires_grad_() for tensor in inputs + given]
    return leaves[:3], Parents(*leaves[3:])


def bound(backend: object, children: list[Tensor], window: Window, competition: str = "position") -> SummedVotes:
    """The votes of these children, computed by that module."""
    return backend.bind(*children, Shapes.of(children[0], children[2], window, competition))  # type: ignore[attr-defined]


def results(
    backend: object, children: list[Tensor], parents: Parents, window: Window, competition: str = "position"
) -> list[Tensor]:
    """Moments under parents and under uniform assignments, and the gradients of their squares' sum."""
    votes = bound(backend, children, window, competition)
    uniform = votes.uniform()
    moments = [*votes.under(parents)[1:], uniform.mass, uniform.mean, uniform.variance + 1e-4]
    return moments + list(torch.autograd.grad([m.square().sum() for m in moments], [*children, *parents]))

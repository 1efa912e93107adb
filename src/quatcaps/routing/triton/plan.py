"""How the work of one layer's routing is cut into programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from torch import Tensor

from quatcaps.routing.shapes import Shapes
from quatcaps.routing.window import COORDINATE_RULES, Window

WARPS_BY_POSITION, WARPS_BY_CHILD = 4608, 12288
"""Warps, running and waiting, that keep a large GPU busy to the end of a launch; more splits than that cost more to
add up than they gain. By position and of wide poses, of whose tiles a warp holds one entry a thread, twice as many."""

REGISTERS = 65536
"""Of a processor, which the threads of a program share."""

Registers = tuple[int | None, int | None]
"""The most that a thread gets, for narrow poses and for wide ones; None: as many as the compiler likes. Left alone it
takes too many for three warps of a quarter of a processor, or spares some that it could use."""


MOST_NARROW = 4
"""Numbers of a pose; more fill a thread's registers by themselves, and have kernels of their own."""


class Sizes(NamedTuple):
    """What the kernels are compiled for. A tuple, because Triton tells hooks about constants in JSON."""

    CHILDREN: int
    PARENTS: int
    ROWS: int
    COLUMNS: int
    HEIGHT: int
    WIDTH: int
    GRID_HEIGHT: int
    GRID_WIDTH: int
    KERNEL_HEIGHT: int
    KERNEL_WIDTH: int
    STRIDE: int
    SHARED: bool
    COORDINATES: bool
    RULE: int  # of the coordinates, as window.py counts them
    EVERYWHERE: bool
    SPREAD: bool  # already under uniform assignments
    FLOORED: bool  # children are given out in part below a floor
    FLOOR: float  # in units of log 2
    DIMS: int
    PLANE: int
    PLACES: int
    INSIDE: int
    WIDE: bool
    COUNT: int  # tiles that a pose is
    STEP: int  # from tile to tile of parents in (p, h, j)
    ROW: int  # a row of all parents
    TILE_COLUMNS: int
    ROTORS: bool  # maps are quaternions that multiply from the right
    CELLS: int  # numbers of a map


SHAPES = tuple(field.name for field in fields(Shapes))


@dataclass(frozen=True)
class Layer(Shapes):
    """The sizes of one layer's routing, as the launches see them."""

    rotors: bool = False

    @staticmethod
    def of(
        poses: Tensor, maps: Tensor, window: Window, competition: str = "position", log_floor: float = -math.inf
    ) -> Layer:
        shapes = Shapes.of(poses, maps, window, competition, log_floor)
        return Layer(**{name: getattr(shapes, name) for name in SHAPES}, rotors=maps.ndim == 4)

    @property
    def wide(self) -> bool:
        return self.dims > MOST_NARROW

    @property
    def floored(self) -> bool:
        return self.log_floor > -math.inf

    @property
    def floor(self) -> float:
        """Under the logarithms of the softmax's sums, in units of log 2."""
        return self.log_floor / math.log(2)

    @property
    def passes(self) -> bool:
        """Whether a child's total must be known before any sum: of all windows, or to hold it against the floor."""
        return self.everywhere or self.floored

    @property
    def pairs(self) -> tuple[int, int]:
        """One number per child in a window and position."""
        return (self.inside, self.positions)

    @property
    def known(self) -> tuple[int, int, int]:
        """All that the pass by child needs of weighted moments: centre, precision, g1, g2, logit, g0."""
        return (self.positions, 4 * self.dims + 2, self.parents)

    @property
    def known_uniform(self) -> tuple[int, int, int]:
        """And of uniform ones: centre, g1, g2, g0."""
        return (self.positions, 3 * self.dims + 1, self.parents)

    def parent_shape(self, *dims: int) -> tuple[int, ...]:
        """How parents lie in memory, with so many numbers each."""
        return (self.images, *self.grid, *dims, self.parents)

    @property
    def sizes(self) -> Sizes:
        window = self.window
        return Sizes(
            CHILDREN=self.children,
            PARENTS=self.parents,
            ROWS=self.rows,
            COLUMNS=self.columns,
            HEIGHT=self.height,
            WIDTH=self.width,
            GRID_HEIGHT=self.grid[0],
            GRID_WIDTH=self.grid[1],
            KERNEL_HEIGHT=window.height,
            KERNEL_WIDTH=window.width,
            STRIDE=window.stride,
            SHARED=window.shared,
            COORDINATES=window.coordinates,
            RULE=COORDINATE_RULES.index(window.coordinate_rule),
            EVERYWHERE=self.everywhere,
            SPREAD=self.spread,
            FLOORED=self.floored,
            FLOOR=self.floor if self.floored else 0.0,
            DIMS=self.dims,
            PLANE=self.height * self.width,
            PLACES=window.places,
            INSIDE=self.inside,
            WIDE=self.wide,
            COUNT=self.rows if self.wide else self.dims,
            STEP=(self.columns if self.wide else 1) * self.parents,
            ROW=self.columns * self.parents,
            TILE_COLUMNS=power_of_two(self.columns),
            ROTORS=self.rotors,
            CELLS=self.columns if self.rotors else self.columns**2,
        )


@dataclass(frozen=True)
class Plan:
    """How a pass is cut: tiles of `tile` × `tile_parents`, `tiles` of them, each split into `splits` programs that
    walk `per_program` steps."""

    tile: int
    tile_parents: int
    warps: int
    tiles: int
    splits: int
    per_program: int
    registers: int | None = None  # most of a thread; None: as many as the compiler likes

    @property
    def launch(self) -> tuple[int, int]:
        return (self.tiles, self.splits)

    def options(self) -> dict[str, int]:
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"TILE": self.tile, "TILE_PARENTS": self.tile_parents, "num_warps": self.warps, **limit}


def plan(
    rows: int,
    steps: int,
    shapes: Layer,
    *,
    per_thread: int,
    least_steps: int,
    warps_wanted: int,
    registers: Registers,
) -> Plan:
    """Cuts `rows` × parents into tiles of `per_thread` entries a thread, and `steps` into equal walks of at least
    `least_steps`, so many that there are `warps_wanted` in all."""
    tile_parents = max(4, power_of_two(shapes.parents))
    # Of wide poses a thread has room for one entry, and sums over up to 32 parents stay within a warp.
    warps = min(16, max(1, tile_parents // (32 if shapes.wide else 16)))
    per_thread, limit = (1, registers[1]) if shapes.wide else (per_thread, registers[0])
    if limit is not None:
        limit = min(limit, REGISTERS // (32 * warps))
    tile = max(1, min(per_thread * 32 * warps // tile_parents, power_of_two(rows)))
    tiles = math.ceil(rows / tile)
    splits = max(1, min(math.ceil(warps_wanted / max(1, tiles * warps)), steps // least_steps))
    per_program = max(1, math.ceil(steps / splits))
    return Plan(tile, tile_parents, warps, tiles, max(1, math.ceil(steps / per_program)), per_program, limit)


def by_position(shapes: Layer, *, per_thread: int, least_steps: int, registers: Registers) -> Plan:
    """For the passes whose tiles are positions and whose steps are children."""
    return plan(
        shapes.positions,
        shapes.inside,
        shapes,
        per_thread=per_thread,
        least_steps=least_steps,
        warps_wanted=WARPS_BY_POSITION * (2 if shapes.wide else 1),
        registers=registers,
    )


def by_child(shapes: Layer, *, per_thread: int, registers: Registers) -> Plan:
    """For the pass whose tiles are children and whose steps are positions."""
    return plan(
        shapes.inside,
        shapes.positions,
        shapes,
        per_thread=per_thread,
        least_steps=16,
        warps_wanted=WARPS_BY_CHILD,
        registers=registers,
    )


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, count - 1).bit_length()

"""Which children a parent sees."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.errors import QuatcapsError


@dataclass(frozen=True)
class Window:
    """A parent at one position sees `height` × `width` positions of children; no padding.

    With `shared`, all places in the window use one map per (child, parent), as the class capsules do; without,
    each place has its own. With `coordinates`, the place of a child is added to its votes: its row and its column, each
    from 0 to 1, to the first and the second number of the last column of the pose.
    """

    height: int
    width: int
    stride: int = 1
    shared: bool = False
    coordinates: bool = False

    def __post_init__(self) -> None:
        if min(self.height, self.width, self.stride) < 1:
            raise QuatcapsError(
                f"a window of {self.height}×{self.width} with stride {self.stride}: all three must be at least 1"
            )

    @property
    def places(self) -> int:
        return self.height * self.width

    @property
    def offsets(self) -> int:
        """How many maps a (child, parent) pair has."""
        return 1 if self.shared else self.places

    def positions(self, height: int, width: int) -> tuple[int, int]:
        """The grid of parent positions over a `height` × `width` grid of children."""
        if height < self.height or width < self.width:
            raise QuatcapsError(
                f"a grid of {height}×{width} capsules is smaller than the {self.height}×{self.width} window: "
                "give a larger input or a smaller kernel"
            )
        return ((height - self.height) // self.stride + 1, (width - self.width) // self.stride + 1)

"""Which children a parent sees."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.errors import QuatcapsError, unknown_name

COORDINATE_RULES = ("middles", "tenths", "constant")


@dataclass(frozen=True)
class Window:
    """A parent at one position sees `height` × `width` positions of children; no padding.

    With `shared`, all places in the window use one map per (child, parent), as the class capsules do; without,
    each place has its own. With `coordinates`, the place of a child is added to its votes: its row and its column, to
    the first and the second number of the last column of the pose. Of n rows or columns the k-th, counted from 0, is at
    (k + ½)/n under the rule `middles`, and at (k + 1)/10n under `tenths`; under `constant` all are at 1/10.
    """

    height: int
    width: int
    stride: int = 1
    shared: bool = False
    coordinates: bool = False
    coordinate_rule: str = "middles"

    def __post_init__(self) -> None:
        if min(self.height, self.width, self.stride) < 1:
            raise QuatcapsError(
                f"a window of {self.height}×{self.width} with stride {self.stride}: all three must be at least 1"
            )
        if self.coordinate_rule not in COORDINATE_RULES:
            raise unknown_name("coordinate rule", self.coordinate_rule, COORDINATE_RULES)

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

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from quatcaps.errors import QuatcapsError
from quatcaps.routing import Window


@settings(deadline=None, derandomize=True)
@given(
    kernel=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    stride=st.integers(1, 4),
    extra=st.tuples(st.integers(0, 7), st.integers(0, 7)),
)
def test_positions_are_those_of_a_convolution(kernel: tuple[int, int], stride: int, extra: tuple[int, int]) -> None:
    height, width = kernel[0] + extra[0], kernel[1] + extra[1]
    convolved = F.conv2d(torch.zeros(1, 1, height, width), torch.zeros(1, 1, *kernel), stride=stride)
    assert Window(*kernel, stride).positions(height, width) == convolved.shape[2:]


def test_maps_per_pair() -> None:
    assert (Window(3, 5).places, Window(3, 5).offsets) == (15, 15)
    assert (Window(3, 5, shared=True).places, Window(3, 5, shared=True).offsets) == (15, 1)


@pytest.mark.parametrize("wrong", [(0, 3, 1), (3, -1, 1), (3, 3, 0)])
def test_a_window_has_a_size_and_a_stride(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(QuatcapsError, match=rf"{wrong[0]}×{wrong[1]} with stride {wrong[2]}.*at least 1"):
        Window(*wrong)


@pytest.mark.parametrize("grid", [(4, 5), (5, 4)])
def test_a_grid_smaller_than_the_window(grid: tuple[int, int]) -> None:
    with pytest.raises(QuatcapsError, match=rf"{grid[0]}×{grid[1]} capsules is smaller than the 5×5 window: give"):
        Window(5, 5).positions(*grid)

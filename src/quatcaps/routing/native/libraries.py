"""The sources beside it as a library, for numbers of one type and poses of one shape."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from quatcaps.accelerator import constant
from quatcaps.native import build

SOURCES = Path(__file__).parent


@constant
def problem(dtype: torch.dtype, rows: int, columns: int) -> str | None:
    """Why there is no library, in words that end a sentence, or None."""
    return build.problem(SOURCES, definitions(dtype, rows, columns))


def library(dtype: torch.dtype, rows: int, columns: int) -> ctypes.CDLL:
    return build.library(SOURCES, definitions(dtype, rows, columns))


def m_step(dtype: torch.dtype, dims: int) -> ctypes.CDLL:
    """The M-step alone, which depends on how many numbers a pose holds and not on their shape."""
    return build.library(SOURCES, (*definitions(dtype, dims, 1), "M_STEP=1"))


def definitions(dtype: torch.dtype, rows: int, columns: int) -> tuple[str, ...]:
    return f"IS_DOUBLE={int(dtype == torch.float64)}", f"ROWS={rows}", f"COLUMNS={columns}"

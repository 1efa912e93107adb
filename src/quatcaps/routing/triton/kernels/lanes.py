"""Sums over the lanes of a warp by trading halves."""

from __future__ import annotations

import triton
import triton.language as tl

EXCHANGE_16, EXCHANGE_8, EXCHANGE_4, EXCHANGE_2, EXCHANGE_1 = (
    tl.constexpr(f"shfl.sync.bfly.b32 $0, $1, {lanes}, 0x1f, 0xffffffff;") for lanes in (16, 8, 4, 2, 1)
)
"""With the lane whose number differs in one bit."""


@triton.jit
def halved(values, upper, EXCHANGE: tl.constexpr, HALF: tl.constexpr):
    """Twice HALF tiles become HALF: a lane gives away one half and gets what its partner has of the other. `upper` says
    which half a lane keeps, EXCHANGE is the instruction that trades with the partner."""
    kept = ()
    for i in tl.static_range(HALF):
        own = tl.where(upper, values[i + HALF], values[i])
        given = tl.where(upper, values[i], values[i + HALF])
        kept += (own + tl.inline_asm_elementwise(EXCHANGE, "=f,f", [given], dtype=tl.float32, is_pure=False, pack=1),)
    return kept


@triton.jit
def sums_by_lane(values, j):
    """Sums over parents of 16 tiles of one warp that has one parent a thread: that of tile number j // 2. 16 exchanges
    between lanes instead of 80."""
    values = halved(values, ((j & 16) != 0)[None, :], EXCHANGE_16, 8)
    values = halved(values, ((j & 8) != 0)[None, :], EXCHANGE_8, 4)
    values = halved(values, ((j & 4) != 0)[None, :], EXCHANGE_4, 2)
    values = halved(values, ((j & 2) != 0)[None, :], EXCHANGE_2, 1)
    last = values[0]
    return last + tl.inline_asm_elementwise(EXCHANGE_1, "=f,f", [last], dtype=tl.float32, is_pure=False, pack=1)

"""Why something could not be measured, in a few words."""

from __future__ import annotations

import torch

from quatcaps.errors import QuatcapsError, is_out_of_memory

OUT_OF_MEMORY = "out of memory"
LONGEST = 160


def reason(error: BaseException) -> str:
    """`out of memory`, or the first line of the message, with the kind of error it is unless it is ours.

    >>> reason(MemoryError())
    'out of memory'
    """
    if out_of_memory(error):
        return OUT_OF_MEMORY
    if "during capture" in str(error) and error.__context__ is not None:
        return reason(error.__context__)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = [] if isinstance(error, QuatcapsError) else [type(error).__name__]
    words = ": ".join([*kind, *lines[:1]])
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out here or in what this error followed: a failed capture hides what made it fail."""
    while error is not None:
        if is_out_of_memory(error) or isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False

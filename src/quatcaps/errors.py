"""Errors that a user can mend: one line that names the value, the limit and the remedy."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class QuatcapsError(ValueError):
    """Something the caller gave does not fit; the message says what, and what to do about it."""

    exit_code = 1


def at_least_one(what: str, count: int) -> None:
    """Raises where there is none of something that a network cannot do without.

    >>> at_least_one("parent capsules", 0)
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: 0 parent capsules: at least 1 is needed
    """
    if count < 1:
        raise QuatcapsError(f"{count} {what}: at least 1 is needed")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> QuatcapsError:
    """An error for `name`, which is no known `kind`, with the nearest known one.

    >>> print(unknown_name("model", "qnc", ["qcn", "cnn-small"]))
    unknown model 'qnc': did you mean 'qcn'? Known: cnn-small, qcn
    """
    names = sorted(known)
    folded = {known_name.casefold(): known_name for known_name in names}
    near = difflib.get_close_matches(name[:100].casefold(), folded, n=1, cutoff=0.4)
    hint = f"did you mean {folded[near[0]]!r}? " if near else ""
    return QuatcapsError(f"unknown {kind} {name[:100]!r}: {hint}Known: {', '.join(names)}")


NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "bad_alloc")
"""Words of the errors that PyTorch raises where memory ends, on a GPU and on a CPU, of several systems."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has ended; only some of PyTorch's have a type of their own.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."))
    True
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        return any(words in str(error).lower() for words in NO_MEMORY)
    return isinstance(error, MemoryError)


def is_failed_gpu(error: BaseException) -> bool:
    """Whether CUDA has failed: this process can compute nothing on its GPU any more.

    >>> is_failed_gpu(RuntimeError("CUDA error: an illegal memory access was encountered"))
    True
    """
    return isinstance(error, RuntimeError) and str(error).startswith("CUDA error:")


class BackendWarning(UserWarning):
    """Another routing backend computes than the one that was asked for, or than the device's fastest."""

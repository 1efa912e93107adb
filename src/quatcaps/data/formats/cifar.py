"""CIFAR-10's batches: the binary version, and the Python version, which is read without being unpickled.

`pickletools.genops` tells what a pickle says, opcode by opcode, and does nothing of it. The labels are the numbers
behind the text `labels`, the pixels the one value of their length. Who reads them verifies what came out: it has the
digest of the binary version.
"""

from __future__ import annotations

import pickletools

import numpy as np

from quatcaps.data.formats.reader import Bytes, Reader, one_of
from quatcaps.errors import QuatcapsError

CLASSES = 10
PIXELS = 3 * 32 * 32
ROW = 1 + PIXELS
ROWS = 10_000
"""In each published file."""
LARGEST_PICKLE = 1 << 26
"""Bytes of a batch of the Python version; the published ones have 31 MB."""
MOST_OPCODES = 100_000
"""Of a pickle; one of CIFAR-10's has at most 60,000."""

_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_NAMES = ("ndarray", "dtype", "_reconstruct", "_frombuffer")
_GLOBALS = frozenset({*(f"{module} {name}" for module in _MODULES for name in _NAMES), "_codecs encode"})
_NUMBERS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"})
_REFUSED = frozenset({"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"})
"""Other opcodes than GLOBAL and STACK_GLOBAL that name what unpickling would import."""


def binary_rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a file of `count` rows: (count, 3073) uint8, a label and then pixels, red, green, blue, each 32×32."""
    values = np.empty((count, ROW), dtype=np.uint8)
    reader.into(values)
    reader.end()
    one_of(values[:, 0], range(CLASSES), "label", reader.name)
    return values


def pickled_rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a batch of the Python version, as the binary version has it: (count, 3073) uint8, the label first."""
    data = reader.rest(LARGEST_PICKLE)
    try:
        labels, pixels = _found(data, count, reader.name)
    except QuatcapsError:
        raise
    except (ValueError, LookupError, TypeError) as error:  # of `pickletools`, about what is damaged
        why = " ".join(str(error).split())[:120]
        raise QuatcapsError(
            f"{reader.name} is no batch of CIFAR-10 ({why}): nothing was executed, download it again"
        ) from error
    if len(labels) != count:
        raise QuatcapsError(f"{reader.name} has {len(labels)} labels: {count} are needed; give a published batch")
    values = np.empty((count, ROW), dtype=np.uint8)
    numbers = np.array([min(max(label, -1), CLASSES) for label in labels])
    one_of(numbers, range(CLASSES), "label", reader.name)
    values[:, 0] = numbers
    values[:, 1:] = np.frombuffer(pixels, dtype=np.uint8).reshape(count, PIXELS)
    return values


def _found(data: bytes, count: int, name: str) -> tuple[list[int], bytes]:
    """The labels and the pixels in a pickle."""
    labels: list[int] = []
    pixels: list[bytes] = []
    texts = ["", ""]  # all that were given; STACK_GLOBAL takes the last two
    memory: list[str] = []  # what MEMOIZE kept, where it is text
    columns_first, given = False, ""
    for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if number >= MOST_OPCODES:
            raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
        if opcode.name == "STOP" and position != len(data) - 1:
            raise ValueError(f"it goes on after its end at byte {position}")
        if opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
            argument = memory[argument] if argument < len(memory) else ""
        if opcode.name in ("GLOBAL", "STACK_GLOBAL"):
            _check_global(argument if opcode.name == "GLOBAL" else " ".join(texts[-2:]), name)
        elif opcode.name in _REFUSED:
            raise ValueError(f"opcode {opcode.name} has no place in a batch")
        elif opcode.name == "MEMOIZE":
            memory.append(given)
        elif opcode.name in ("NEWTRUE", "NEWFALSE") or isinstance(argument, bool):
            columns_first = opcode.name == "NEWTRUE" or argument is True
        elif opcode.name in _NUMBERS and texts[-1] == "labels" and isinstance(argument, int):
            labels.append(argument)
        given = ""
        if isinstance(argument, str | bytes | bytearray) and opcode.name != "GLOBAL":
            if len(argument) == count * PIXELS:
                if columns_first:
                    raise ValueError("its pixels are in Fortran order")
                pixels.append(argument.encode("latin-1") if isinstance(argument, str) else bytes(argument))
            given = argument[:100] if isinstance(argument, str) else argument[:100].decode("latin-1")
            texts.append(given)
    if "F" in texts:
        raise ValueError("its pixels are in Fortran order")
    if len(pixels) != 1 or not {"u1", "|u1"} & set(texts):
        raise QuatcapsError(
            f"{name} holds no array of uint8 of {count} × {PIXELS} pixels: nothing was executed, give a published batch"
        )
    return labels, pixels[0]


def _check_global(found: object, name: str) -> None:
    if found not in _GLOBALS:
        named = str(found).replace(" ", ".")[:100]
        raise QuatcapsError(
            f"{name} asks for {named!r}, which no batch of CIFAR-10 does: nothing was executed; do not unpickle this "
            "file, download it again"
        )

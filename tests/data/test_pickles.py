"""CIFAR-10's Python version: read as it would be unpickled, and never unpickled."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from format_files import batch, bounded, cifar_rows, python2_batch, reader

from quatcaps.data.formats import pickles
from quatcaps.data.formats.opcodes import OPERATIONS
from quatcaps.errors import QuatcapsError

COUNT = 12
ROWS = cifar_rows(COUNT)
PYTHON2 = python2_batch(ROWS)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("module", [b"numpy.core", b"numpy._core"])
def test_every_protocol(protocol: int, module: bytes) -> None:
    data = batch(ROWS, protocol)
    if protocol < 4:  # a later one has the length of the name before it
        data = data.replace(b"numpy._core", module)
    assert np.array_equal(pickles.rows(reader(data), COUNT), ROWS)
    assert np.array_equal(pickles.rows(reader(gzip.compress(data)), COUNT), ROWS)


def test_python_2() -> None:
    assert np.array_equal(pickles.rows(reader(PYTHON2), COUNT), ROWS)
    loaded = pickle.loads(PYTHON2, encoding="bytes")  # the file made by hand is one that unpickles
    assert np.array_equal(loaded[b"data"], ROWS[:, 1:])


def test_python_2_protocol_0() -> None:
    """Strings in quotes, with escapes."""
    text = repr(ROWS[:, 1:].tobytes())[1:].encode()
    state = f"(I1\n(I{COUNT}\nI3072\ntcnumpy\ndtype\n(S'u1'\nI0\nI1\ntRI00\n".encode() + b"S" + text + b"\ntb"
    labels = b"(l" + b"".join(b"I%d\na" % label for label in ROWS[:, 0])
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR" + state
    data = b"(dS'data'\n" + array + b"sS'labels'\n" + labels + b"s."
    assert np.array_equal(pickles.rows(reader(data), COUNT), ROWS)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_fortran_order(protocol: int) -> None:
    held = {"labels": ROWS[:, 0].tolist(), "data": np.asfortranarray(ROWS[:, 1:])}
    assert np.array_equal(pickles.rows(reader(pickle.dumps(held, protocol)), COUNT), ROWS)


def test_published_size() -> None:
    rows = cifar_rows(10_000)
    for data in (python2_batch(rows), batch(rows, 0), batch(rows, 5)):
        assert np.array_equal(pickles.rows(reader(data)), rows)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    data = pickle.dumps({"labels": [Hostile(marker)], "data": ROWS}, protocol)
    with pytest.raises(QuatcapsError, match=r"FILE asks for 'posix.system', which .* nothing was executed"):
        pickles.rows(reader(data), COUNT)
    assert not marker.exists()
    pickle.loads(data)
    assert marker.exists()  # it would have been


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", r"asks for 'builtins.eval'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", r"asks for 'os.system'"),
        (b"cnumpy\nload\n.", r"asks for 'numpy.load'"),
        (b"(i__main__\nA\n.", r"opcode b'i' at byte 1 has no place in a batch"),
        (b"\x82\x01.", r"opcode b'\\x82'"),
        (b"P0\n.", r"opcode b'P'"),
        (b"", "cut off at byte 0"),
        (PYTHON2[:-1], "cut off at byte"),
        (PYTHON2[:1000], "cut off at byte"),
        (PYTHON2 + b"x", "goes on after its end"),
        (b".", "a value is missing before byte 1"),
        (b"(.", "a value is missing"),
        (b"e.", "a mark is missing"),
        (b"N(e.", "what is no list"),
        (b"N(u.", "what is no dict"),
        (b"}(Nu.", "what is no dict"),
        (b"h\x07.", "memory 7 is asked for"),
        (b"N)R.", "a call of what is no function"),
        (b"}Nb.", "a state is given to what has none"),
        (b"NN\x93.", "the name of a global is no text"),
        (b"I1e9\n.", "is no number"),
        (b"L" + b"9" * 5000 + b"L\n.", "is no number"),
        (b"S'abc\n.", "a string without quotes"),
        (b"X\x01\0\0\0\xff.", "text that cannot be decoded"),
        (b"T\xff\xff\xff\xff.", "cut off at byte 6"),
        (b"\x8e" + b"\xff" * 8 + b".", "cut off at byte 10"),
        (b"].", "holds no dict"),
        (b"}.", "labels hold no list: a list of 12 is needed"),
        (batch(ROWS[:5], 2), "labels hold 5 of them"),
        (batch(ROWS, 2).replace(b"K\x0c", b"K\x0d"), r"the shape of data is \(13, 3072\): \(12, 3072\) is needed"),
        (batch(ROWS, 2).replace(b"u1", b"i1"), "data is no array of uint8"),
        (PYTHON2.replace(b"U\x04data", b"U\x04dada"), "data is no numpy array"),
        (PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(N"), "label 0 is no number"),
        (
            PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(K\x0b"),
            "label 11 at position 0 is not one of 0 … 9",
        ),
        (
            PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(\x8a\xff" + b"\x7f" * 255),
            "label 4611686018427387904 at position 0",
        ),
        (pickle.dumps({"labels": [0] * 12, "data": np.zeros((12, 3072))}), "data is no array of uint8"),
        (pickle.dumps({"labels": [0] * 12, "data": [1, 2]}), "data is no numpy array"),
    ],
)
def test_refused(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*{words}"):
        pickles.rows(reader(data), COUNT)


@pytest.mark.parametrize(
    "data",
    [
        b"]" + b"q\x00(h\x00h\x00e" * 30 + b".",  # a list of itself
        b"]q\x00" + b"]q\x01(h\x00h\x00e0h\x01q\x00" * 1000 + b".",  # 2 ** 1000 lists, if written out
        b"(" * OPERATIONS + b".",
        b"}" * OPERATIONS + b".",
        b"N" + b"\x85" * (OPERATIONS - 2) + b".",  # tuples in tuples
        b"r\xff\xff\xff\xff" * 10 + b".",
        b"N" + b"".join(b"r" + struct.pack("<I", 2**32 - 1 - k) for k in range(50_000)) + b".",
    ],
    ids=range(7),
)
def test_tricks_cost_little(data: bytes) -> None:
    before = time.process_time()
    with pytest.raises(QuatcapsError, match="is no batch of CIFAR-10"):
        pickles.rows(reader(data), COUNT)
    assert time.process_time() - before < 30  # the checks of types in tests take most of it


def test_calls_are_not_made() -> None:
    """A text of 1 MB that is to be encoded a thousand times."""
    text = b"X\x00\x00\x10\x00" + b"x" * (1 << 20) + b"X\x06\0\0\0latin1\x86q\x02"
    data = b"c_codecs\nencode\nq\x00" + text + b"h\x00h\x02R" * 1000 + b"."
    with bounded(16), pytest.raises(QuatcapsError, match="is no batch of CIFAR-10"):
        pickles.rows(reader(data), COUNT)

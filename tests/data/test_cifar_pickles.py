"""CIFAR-10's Python version: read as it would be unpickled, and never unpickled."""

from __future__ import annotations

import gzip
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from format_files import batch, bounded, cifar_rows, python2_batch, reader

from quatcaps.data.formats.cifar import MOST_OPCODES, pickled_rows
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
    assert np.array_equal(pickled_rows(reader(data), COUNT), ROWS)
    assert np.array_equal(pickled_rows(reader(gzip.compress(data)), COUNT), ROWS)


def test_python_2() -> None:
    assert np.array_equal(pickled_rows(reader(PYTHON2), COUNT), ROWS)
    loaded = pickle.loads(PYTHON2, encoding="bytes")  # the file made by hand is one that unpickles
    assert np.array_equal(loaded[b"data"], ROWS[:, 1:])


@pytest.mark.parametrize("protocol", range(6))
def test_fortran_order_is_refused(protocol: int) -> None:
    held = {"labels": ROWS[:, 0].tolist(), "data": np.asfortranarray(ROWS[:, 1:])}
    with pytest.raises(QuatcapsError, match="its pixels are in Fortran order"):
        pickled_rows(reader(pickle.dumps(held, protocol)), COUNT)


def test_published_size() -> None:
    rows = cifar_rows(10_000)
    for data in (python2_batch(rows), batch(rows, 0), batch(rows, 5)):
        assert np.array_equal(pickled_rows(reader(data)), rows)


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
        pickled_rows(reader(data), COUNT)
    assert not marker.exists()
    pickle.loads(data)
    assert marker.exists()  # it would have been


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", r"asks for 'builtins.eval'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", r"asks for 'os.system'"),
        (b"cnumpy\nload\n.", r"asks for 'numpy.load'"),
        (b"NN\x93.", "asks for '.'"),
        (b"(i__main__\nA\n.", "opcode INST has no place in a batch"),
        (b"\x82\x01.", "opcode EXT1 has no place"),
        (b"P0\n.", "opcode PERSID has no place"),
        (b"", "pickle exhausted before seeing STOP"),
        (PYTHON2[:-1], "pickle exhausted"),
        (PYTHON2[:1000], "expected 36864 bytes"),
        (PYTHON2 + b"x", "goes on after its end"),
        (b"I1e9\n.", "invalid literal for int"),
        (b"L" + b"9" * 5000 + b"L\n.", "is no batch of CIFAR-10"),
        (b"S'abc\n.", "is no batch of CIFAR-10"),
        (b"X\x01\0\0\0\xff.", "holds no array|is no batch"),
        (b"T\xff\xff\xff\xff.", "is no batch of CIFAR-10"),
        (b"\x8e" + b"\xff" * 8 + b".", "is no batch of CIFAR-10"),
        (b"].", "holds no array of uint8 of 12 × 3072 pixels"),
        (batch(ROWS[:5], 2), "holds no array of uint8 of 12 × 3072 pixels"),
        (batch(ROWS, 2).replace(b"u1", b"i1"), "holds no array of uint8"),
        (PYTHON2.replace(b"U\x06labels", b"U\x06lebals"), "has 0 labels: 12 are needed"),
        (PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(N"), "has 11 labels: 12 are needed"),
        (
            PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(K\x0b"),
            "label 10 at position 0 is not one of 0 … 9",
        ),
        (
            PYTHON2.replace(b"]q\x05(K" + bytes([ROWS[0, 0]]), b"]q\x05(\x8a\xff" + b"\xff" * 255),
            "label -1 at position 0",
        ),
        (pickle.dumps({"labels": [0] * 12, "data": np.zeros((12, 3072))}), "holds no array of uint8"),
        (pickle.dumps({"labels": [0] * 12, "data": [1, 2]}), "holds no array of uint8"),
    ],
)
def test_refused(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*({words})"):
        pickled_rows(reader(data), COUNT)


@pytest.mark.parametrize("data", [b"(" * MOST_OPCODES + b".", b"N" + b"\x85" * (MOST_OPCODES - 2) + b"."], ids=range(2))
def test_tricks_cost_little(data: bytes) -> None:
    before = time.process_time()
    with pytest.raises(QuatcapsError, match=r"is no batch of CIFAR-10|holds no array"):
        pickled_rows(reader(data), COUNT)
    assert time.process_time() - before < 30


def test_calls_are_not_made() -> None:
    """A text of 1 MB that is to be encoded a thousand times."""
    text = b"X\x00\x00\x10\x00" + b"x" * (1 << 20) + b"X\x06\0\0\0latin1\x86q\x02"
    data = b"c_codecs\nencode\nq\x00" + text + b"h\x00h\x02R" * 1000 + b"."
    with bounded(16), pytest.raises(QuatcapsError, match="holds no array of uint8"):
        pickled_rows(reader(data), COUNT)

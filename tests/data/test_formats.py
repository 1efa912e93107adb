"""IDX, NORB, MATLAB 5 and CIFAR files: what was written comes back, and what is wrong is refused."""

from __future__ import annotations

import doctest
import gzip
import io
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.io
from format_files import (
    bounded,
    cifar_rows,
    idx_file,
    mat_array,
    mat_compressed,
    mat_element,
    mat_file,
    noise,
    norb_file,
    reader,
    sha256,
    zeros,
)

from quatcaps.data import imageset
from quatcaps.data.formats import cifar, matrices
from quatcaps.data.formats import reader as reading
from quatcaps.data.formats.matrices import NORB_BYTES, NORB_INTEGERS, idx_array, norb_header, norb_integers
from quatcaps.data.formats.reader import GZIP, ZLIB, Bytes, opened
from quatcaps.data.imageset import Progress, shrink
from quatcaps.data.readers import gather
from quatcaps.errors import QuatcapsError

IMAGES = noise((7, 4, 6))
PAIRS = noise((5, 2, 8, 8))
COLOURS = noise((4, 4, 3, 6))
DIGITS = noise((6, 1), 10) + np.uint8(1)


def norb_images(data: bytes, shape: tuple[int, int, int, int], size: int, progress: Progress | None = None) -> Bytes:
    stream = reader(data)
    norb_header(stream, NORB_BYTES, shape)
    images = gather(stream.blocks(shape[0], shape[1:]), shape[0], shape[1], size, progress)
    stream.end()
    return images


WANTED = {"X": matrices.Wanted((4, 4, 3, 6)), "y": matrices.Wanted((6, 1), ("uint8", "double"))}


def mat_values(data: bytes) -> dict[str, Bytes]:
    """The wanted arrays, in MATLAB's shape."""
    return {
        variable.name: np.concatenate([*variable.blocks()]).T for variable in matrices.variables(reader(data), WANTED)
    }


# The bounded reader


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])])
def test_content_and_digest(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "named.gz"  # the name says nothing
    path.write_bytes(pack(b"abcdefgh"))
    with opened(path) as stream:
        assert stream.exactly(3) == b"abc"
        assert stream.digest == sha256(b"abc")
        buffer = np.zeros(4, dtype=np.uint8)
        stream.into(buffer)
        assert buffer.tobytes() == b"defg"
        with pytest.raises(QuatcapsError, match=r"goes on after the 7 bytes that were expected"):
            stream.end()
    with opened(path) as stream:
        assert stream.rest(8) == b"abcdefgh"
        stream.end()
        assert stream.digest == sha256(b"abcdefgh")
        with pytest.raises(QuatcapsError, match=r"named.gz is cut off after 8 bytes: at least 2 more"):
            stream.exactly(2)
    with opened(path) as stream, pytest.raises(QuatcapsError, match="larger than expected: at most 7 bytes"):
        stream.rest(7)


def test_a_reader_takes_no_more_than_it_is_asked_for() -> None:
    file = io.BytesIO(bytes(1000))
    stream = reader(b"")
    stream._pull = file.read  # type: ignore[assignment]
    stream.exactly(100)
    assert file.tell() == 100
    part = stream.part(50)
    part.exactly(50)
    assert part.some(10) == b""
    assert file.tell() == 150


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-9], "cut off: its compressed data has no end"),
        (lambda data: data[:5], "cut off: its compressed data has no end"),
        (lambda data: data[:-8] + bytes(8), "damaged compressed data .*incorrect data check"),
        (lambda data: data[:2] + b"\xff" + data[3:], "damaged compressed data"),
        (lambda data: data[:12] + b"\xff\xff" + data[14:], "damaged compressed data"),
        (lambda data: data + b"more", "damaged compressed data .*incorrect header"),
    ],
)
def test_damaged_gzip(damage: Callable[[bytes], bytes], words: str) -> None:
    data = noise((500,)).tobytes()
    stream = reader(damage(gzip.compress(data)))
    with pytest.raises(QuatcapsError, match=words):
        stream.rest(10_000)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path, "it is a folder or a device"),
        (tmp_path / "pipe", "it is a folder or a device"),
        (tmp_path / "none", "No such file"),
        (Path("nul\0byte"), "null byte"),
    ):
        with pytest.raises(QuatcapsError, match=words), opened(path):
            pass


def test_errors_of_the_caller_stay_their_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OSError, match="mine"), opened(tmp_path / "file"):
        raise OSError("mine")


def test_gzip_members_without_end() -> None:
    empty = gzip.compress(b"")
    assert reader(empty * 1000).rest(0) == b""
    with pytest.raises(QuatcapsError, match="goes on after the end of its compressed data: at most 100000"):
        reader(empty * 100_001).rest(0)


@pytest.mark.parametrize("module", [reading, imageset])
def test_examples_say_what_happens(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


# IDX


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("values", [IMAGES, IMAGES[:, 0, 0]])
def test_idx(pack: Callable[[bytes], bytes], values: Bytes) -> None:
    stream = reader(pack(idx_file(values)))
    assert np.array_equal(idx_array(stream, values.shape), values)
    assert stream.digest == sha256(idx_file(values))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut off after 0 bytes"),
        (b"\x01" + idx_file(IMAGES)[1:], "is not an IDX file: it begins with 01000803, not with 00000803"),
        (b"\0\0\x0d\x03" + idx_file(IMAGES)[4:], "holds float32"),
        (idx_file(IMAGES)[:-1], "cut off after"),
        (idx_file(IMAGES) + b"\0", "goes on after the 184 bytes"),
        (idx_file(IMAGES[0]), "an array of 2 dimensions: one of 3"),
        (idx_file(IMAGES[1:]), r"shape \(6, 4, 6\): \(7, 4, 6\) is needed"),
        (struct.pack(">HBB3I", 0, 8, 3, 7, 2**32 - 1, 2**32 - 1), "4294967295, 4294967295"),
        (struct.pack(">HBB", 0, 8, 255), "255 dimensions"),
    ],
)
def test_idx_refused(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*{words}"):
        idx_array(reader(data), IMAGES.shape)


def test_idx_bomb() -> None:
    bomb = zeros(1 << 30, GZIP, idx_file(IMAGES))
    with bounded(2), pytest.raises(QuatcapsError, match=r"goes on after|bytes of values"):
        idx_array(reader(bomb), IMAGES.shape)


# NORB


def test_norb() -> None:
    assert np.array_equal(norb_images(gzip.compress(norb_file(PAIRS)), (5, 2, 8, 8), 8), PAIRS)
    for shape in ((7,), (7, 4)):
        numbers = np.random.default_rng(0).integers(-(2**31), 2**31, size=shape)
        assert np.array_equal(norb_integers(reader(norb_file(numbers)), shape), numbers)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_norb_shrinks_by_means_with_halves_rounded_up(size: int) -> None:
    seen: list[tuple[int, int]] = []
    small = norb_images(norb_file(PAIRS), (5, 2, 8, 8), size, lambda *counts: seen.append(counts))
    exact = PAIRS.reshape(5, 2, size, 8 // size, size, 8 // size).mean(axis=(3, 5), dtype=np.float64)
    assert np.array_equal(small, np.floor(exact + 0.5))
    assert seen[-1] == (5, 5)


def test_blocks_are_joined_in_order() -> None:
    many = noise((600, 1, 96, 96))  # more than one block
    seen: list[int] = []
    small = norb_images(norb_file(many), many.shape, 48, lambda done, total: seen.append(done))  # type: ignore[arg-type]
    assert len(seen) > 1
    assert seen[-1] == 600
    assert np.array_equal(small, shrink(many, 48))


@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_shrinks_to_any_size_by_means_over_areas(size: int) -> None:
    """As the block means of images whose pixels were repeated `size` times."""
    large = PAIRS.repeat(size, axis=2).repeat(size, axis=3)
    exact = large.reshape(5, 2, size, 8, size, 8).mean(axis=(3, 5), dtype=np.float64)
    assert np.array_equal(shrink(PAIRS, size), np.floor(exact + 0.5))


def test_shrink_extremes() -> None:
    assert shrink(np.full((1, 1, 96, 96), 255, dtype=np.uint8), 1).item() == 255
    with pytest.raises(QuatcapsError, match="size is 9: images of 8×8 only shrink, to sizes from 1 to 8"):
        shrink(PAIRS, 9)
    with pytest.raises(QuatcapsError, match="size is 0"):
        shrink(PAIRS, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (norb_file(PAIRS)[:7], "cut off after"),
        (b"\0" + norb_file(PAIRS)[1:], "is not a NORB matrix: it begins with 0x1e3d4c00, not with 0x1e3d4c55"),
        (norb_file(PAIRS.astype(np.int32)), "holds int32: bytes are needed; are dat"),
        (norb_file(PAIRS[0]), "3 dimensions: one of 4"),
        (struct.pack("<Ii", NORB_BYTES, -1), "-1 dimensions"),
        (struct.pack("<Ii", NORB_BYTES, 2**31 - 1), "2147483647 dimensions"),
        (struct.pack("<Ii4i", NORB_BYTES, 4, -5, 2, 8, 8), r"shape \(-5, 2, 8, 8\): \(5, 2, 8, 8\)"),
        (struct.pack("<Ii4i", NORB_BYTES, 4, 2**31 - 1, 2, 8, 8), "2147483647"),
        (norb_file(PAIRS)[:-1], "cut off after"),
        (norb_file(PAIRS) + b"\0", "goes on after"),
    ],
)
def test_norb_refused(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*{words}"):
        norb_images(data, (5, 2, 8, 8), 8)


def test_norb_padding_is_checked() -> None:
    with pytest.raises(QuatcapsError, match=r"shape \(3, 1, 9\): \(3, 1, 1\) is needed"):
        norb_integers(reader(struct.pack("<Ii3i3i", NORB_INTEGERS, 1, 3, 1, 9, 0, 0, 0)), (3,))


def test_norb_bomb() -> None:
    bomb = zeros(1 << 30, GZIP, norb_file(PAIRS))
    with bounded(2), pytest.raises(QuatcapsError, match=r"goes on after|bytes of values"):
        norb_images(bomb, (5, 2, 8, 8), 4)


# MATLAB 5


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_mat_by_scipy(compressed: bool, kind: type) -> None:
    buffer = io.BytesIO()
    held = {"note": "text", "X": COLOURS, "more": {"a": 1.5, "b": [1, 2]}, "y": DIGITS.astype(kind)}
    scipy.io.savemat(buffer, held, do_compression=compressed)
    found = mat_values(buffer.getvalue())
    assert np.array_equal(found["X"], COLOURS)
    assert np.array_equal(found["y"], DIGITS)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("stored", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("pack", [lambda element, order: element, mat_compressed])
def test_mat_by_hand(order: str, stored: str, pack: Callable[[bytes, str], bytes]) -> None:
    y = pack(mat_array("y", DIGITS, "double", order, stored), order)
    other = pack(mat_array("a_long_name", DIGITS, "int16", order, "i2"), order)
    small = mat_element(1, b"abc", order)
    data = mat_file(
        [other, y, small, mat_element(14, b"", order), pack(mat_array("X", COLOURS, order=order), order)], order
    )
    found = mat_values(gzip.compress(data))
    assert list(found) == ["y", "X"]
    assert np.array_equal(found["X"], COLOURS)
    assert np.array_equal(found["y"], DIGITS)
    loaded = scipy.io.loadmat(io.BytesIO(mat_file([y], order)))  # our own files are what MATLAB's are
    assert np.array_equal(loaded["y"], DIGITS)


X, Y = mat_array("X", COLOURS), mat_array("y", DIGITS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut off after 0 bytes"),
        (mat_file([X, Y], version=0x0200), r"MATLAB 7.3 \(HDF5\) file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(600), r"MATLAB 7.3 \(HDF5\) file"),
        (struct.pack("<5I", 0, 2, 2, 0, 2) + bytes(200), "as version 4 does"),
        (mat_file([X, Y]).replace(b"IM", b"XX", 1), "its header ends with b'XX'"),
        (mat_file([X, Y], version=7), "MATLAB version 0x0007"),
        (mat_file([X]), "has no variable 'y'"),
        (mat_file([X, Y])[:-1], "cut off after"),
        (mat_file([X, Y, X]), "holds X twice"),
        (mat_file([X, Y, b"\x99\0\0\0\0\0\0\0"]), "unknown type 153"),
        (mat_file([X, struct.pack("<II", 14, 2**32 - 1) + Y[8:]]), "goes on after|cut off after"),
        (mat_file([struct.pack("<II", 1, 2**32 - 1), X, Y]), "cut off after"),
        (mat_file([mat_array("X", COLOURS[:3]), Y]), r"X has shape \(3, 4, 3, 6\): \(4, 4, 3, 6\) is needed"),
        (mat_file([X.replace(struct.pack("<4i", *COLOURS.shape), struct.pack("<4i", 4, 4, -3, 6)), Y]), "4, 4, -3, 6"),
        (
            mat_file([X.replace(struct.pack("<4i", *COLOURS.shape), struct.pack("<4i", 4, 4, 3, 2**31 - 1)), Y]),
            "2147483647",
        ),
        (
            mat_file([X.replace(struct.pack("<II", 2, 288), struct.pack("<II", 2, 2**32 - 1)), Y]),
            "4294967295 bytes of values: 288",
        ),
        (mat_file([mat_array("X", COLOURS, "single", stored="f4"), Y]), "X is single: uint8 is needed"),
        (mat_file([mat_array("X", COLOURS, flags=0x0800), Y]), "X is complex uint8"),
        (mat_file([X, mat_array("y", DIGITS + 0.5, "double", stored="f8")]), r"y holds \d.5: whole numbers"),
        (mat_file([X, mat_array("y", DIGITS * np.nan, "double", stored="f8")]), "y holds nan"),
        (mat_file([X, mat_array("y", DIGITS + 300.0, "double", stored="u2")]), "y holds 30.: whole"),
        (mat_file([X, mat_array("y", DIGITS - 30.0, "double", stored="i1")]), "y holds -2.: whole"),
        (mat_file([mat_compressed(mat_compressed(X)), Y]), "compressed data inside compressed data"),
        (mat_file([mat_compressed(X)[:-9] + bytes(9), Y]), "damaged compressed data"),
        (mat_file([mat_compressed(X + b"more"), Y]), "goes on after"),
        (
            mat_file([mat_element(14, X[8:24] + mat_element(5, bytes(400)) + X[48:]), Y]),
            "dimensions of type 5 and 400 bytes",
        ),
        (mat_file([bytes([5, 0, 1, 0]) * 2] * 1001), "more than 1000 elements"),
    ],
)
def test_mat_refused(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*({words})"):
        mat_values(data)


def test_mat_bombs() -> None:
    """Zeros without end: after a wanted array, as the values of one, and as an array that nobody asked for."""

    def element(front: bytes) -> bytes:
        packed = zeros(1 << 30, ZLIB, front)
        return struct.pack("<II", 15, len(packed)) + packed

    huge = bytearray(X)
    huge[4:8] = struct.pack("<I", 2**32 - 8)
    endless = bytearray(huge)
    endless[endless.index(struct.pack("<II", 2, 288)) + 4 :] = struct.pack("<I", 1 << 30)
    for front in (X, bytes(huge), bytes(endless)):
        data = mat_file([element(front), Y])
        with bounded(4), pytest.raises(QuatcapsError, match=r"goes on after|bytes of values"):
            mat_values(data)
    data = mat_file([element(mat_array("other", DIGITS)), X, Y])
    with bounded(8):
        skipped = mat_values(data)
    assert np.array_equal(skipped["X"], COLOURS)


# CIFAR


def test_cifar() -> None:
    rows = cifar_rows(20)
    stream = reader(gzip.compress(rows.tobytes()))
    assert np.array_equal(cifar.binary_rows(stream, 20), rows)
    assert stream.digest == sha256(rows.tobytes())


def test_cifar_refused() -> None:
    rows = cifar_rows(20)
    with pytest.raises(QuatcapsError, match="cut off after 61459 bytes"):
        cifar.binary_rows(reader(rows.tobytes()[:-1]), 20)
    with pytest.raises(QuatcapsError, match="goes on after the 58387 bytes"):
        cifar.binary_rows(reader(rows.tobytes()), 19)
    rows[7, 0] = 10
    with pytest.raises(QuatcapsError, match="FILE: label 10 at position 7 is not one of 0 … 9"):
        cifar.binary_rows(reader(rows.tobytes()), 20)
    bomb = zeros(1 << 30, GZIP)
    with bounded(2), pytest.raises(QuatcapsError, match=r"goes on after|bytes of values"):
        cifar.binary_rows(reader(bomb), 20)

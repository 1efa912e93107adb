"""Whatever the bytes: every parser gives what it promises or a `QuatcapsError`, in little memory.

QUATCAPS_FUZZ_EXAMPLES sets how many files each test tries.
"""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from format_files import (
    batch,
    bounded,
    cifar_rows,
    idx_file,
    mat_array,
    mat_compressed,
    mat_element,
    mat_file,
    noise,
    norb_file,
    python2_batch,
    reader,
    tar_file,
    zeros,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quatcaps.data.formats import cifar, matrices
from quatcaps.data.formats.matrices import NORB_BYTES, idx_array, norb_header, norb_integers
from quatcaps.data.formats.reader import GZIP
from quatcaps.data.readers import gather
from quatcaps.errors import QuatcapsError

EXAMPLES = int(os.environ.get("QUATCAPS_FUZZ_EXAMPLES", "60"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

COLOURS, DIGITS = noise((2, 2, 3, 4)), noise((4, 1), 10)
ROWS = cifar_rows(2)
ENTRIES = [("folder/readme", b"<p>"), ("folder/one", b"1" * 700), ("folder/" + "long" * 40, b""), ("folder/two", b"2")]


def parse_content(data: bytes) -> None:
    stream = reader(data)
    assert len(stream.rest(100_000)) == stream.position <= 100_000


def parse_idx(data: bytes) -> None:
    values = idx_array(reader(data), (3, 4, 4))
    assert (values.shape, values.dtype) == ((3, 4, 4), np.uint8)


def parse_norb_images(data: bytes) -> None:
    stream = reader(data)
    norb_header(stream, NORB_BYTES, (3, 2, 4, 4))
    values = gather(stream.blocks(3, (2, 4, 4)), 3, 2, 2)
    stream.end()
    assert (values.shape, values.dtype) == ((3, 2, 2, 2), np.uint8)


def parse_norb_integers(data: bytes) -> None:
    values = norb_integers(reader(data), (5, 4))
    assert (values.shape, values.dtype) == ((5, 4), np.int32)


def parse_mat(data: bytes) -> None:
    wanted = {"X": matrices.Wanted((2, 2, 3, 4)), "y": matrices.Wanted((4, 1), ("uint8", "double"))}
    shapes = {}
    for variable in matrices.variables(reader(data), wanted):
        values = np.concatenate([*variable.blocks()])
        assert values.dtype == np.uint8
        shapes[variable.name] = values.shape
    assert shapes == {"X": (4, 3, 2, 2), "y": (1, 4)}


def parse_rows(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    assert (values.shape, values.dtype) == ((2, 3073), np.uint8)
    assert values[:, 0].max() < 10


def parse_archive(data: bytes) -> None:
    found = {}
    for name, member in cifar.members(reader(data), ("one", "two"), largest=1000, count=50, total=1 << 20):
        found[name] = member.rest(1000)
    assert found.keys() == {"one", "two"}


class Parser(NamedTuple):
    parse: Callable[[bytes], None]
    valid: tuple[bytes, ...]


def mat_files() -> tuple[bytes, ...]:
    files = []
    for order in "<>":
        y = mat_array("y", DIGITS, "double", order, "f8")
        x, other = mat_array("X", COLOURS, order=order), mat_array("other", COLOURS, "int16", order, "i2")
        files.append(mat_file([x, other, y], order))
        files.append(mat_file([mat_compressed(part, order) for part in (other, y, x)], order))
    return tuple(files)


PARSERS = {
    "content": Parser(parse_content, (gzip.compress(b"abc" * 900), gzip.compress(b"abc") + gzip.compress(b"def"))),
    "idx": Parser(parse_idx, (idx_file(noise((3, 4, 4))),)),
    "norb images": Parser(parse_norb_images, (norb_file(noise((3, 2, 4, 4))),)),
    "norb integers": Parser(parse_norb_integers, (norb_file(np.arange(20).reshape(5, 4)),)),
    "mat5": Parser(parse_mat, mat_files()),
    "cifar": Parser(lambda data: parse_rows(cifar.binary_rows(reader(data), 2)), (ROWS.tobytes(),)),
    "pickles": Parser(
        lambda data: parse_rows(cifar.pickled_rows(reader(data), 2)),
        (python2_batch(ROWS), *(batch(ROWS, protocol) for protocol in range(6))),
    ),
    "archives": Parser(
        parse_archive,
        tuple(
            tar_file(ENTRIES, form, gzipped)
            for gzipped in (False, True)
            for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        ),
    ),
}

EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1]


def attempt(parse: Callable[[bytes], None], data: bytes) -> None:
    """Any other error fails the test."""
    try:
        parse(data)
    except QuatcapsError as error:
        message = str(error)
        assert "FILE" in message
        assert "\n" not in message
        assert len(message) < 1000


@st.composite
def mutated(draw: st.DrawFn, valid: tuple[bytes, ...]) -> bytes:
    """A valid file with some of it flipped, cut out, inserted, doubled, or overwritten by an extreme number."""
    data = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 4))):
        length = len(data)
        near = [st.integers(0, min(length, 200)), st.integers(max(0, length - 200), length), st.integers(0, length)]
        where, count = draw(st.one_of(near)), draw(st.integers(1, 40))
        kind = draw(st.sampled_from(["flip", "cut", "end", "insert", "double", "number"]))
        if kind == "flip" and where < length:
            data[where] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del data[where : where + count]
        elif kind == "end":
            del data[where:]
        elif kind == "insert":
            data[where:where] = draw(st.binary(min_size=1, max_size=20))
        elif kind == "double":
            data[where:where] = data[where : where + count * draw(st.sampled_from([1, 20]))]
        elif kind == "number":
            size, order = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from(["little", "big"]))
            number = draw(st.sampled_from(EXTREMES)) & (1 << 8 * size) - 1
            data[where : where + size] = number.to_bytes(size, order)  # type: ignore[arg-type]
    return bytes(data)


@pytest.mark.parametrize("name", PARSERS)
def test_valid_files_are_read(name: str) -> None:
    for data in PARSERS[name].valid:
        PARSERS[name].parse(data)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(data=st.binary(max_size=2000))
def test_any_bytes(name: str, data: bytes) -> None:
    for start in (b"", PARSERS[name].valid[0][:130]):
        attempt(PARSERS[name].parse, start + data)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(draw=st.data())
def test_mutated_files(name: str, draw: st.DataObject) -> None:
    parser = PARSERS[name]
    attempt(parser.parse, draw.draw(mutated(parser.valid)))


@pytest.mark.parametrize("name", [name for name in PARSERS if name != "content"])
@FUZZ
@given(draw=st.data())
def test_mutated_files_that_are_compressed_then(name: str, draw: st.DataObject) -> None:
    parser = PARSERS[name]
    attempt(parser.parse, gzip.compress(draw.draw(mutated(parser.valid)), compresslevel=1))


@FUZZ
@given(element=mutated((mat_array("X", COLOURS), mat_array("y", DIGITS, "double", stored="f8"))), packed=st.booleans())
def test_elements_of_mat_files(element: bytes, packed: bool) -> None:
    """What is damaged before it is compressed."""
    parts = [mat_array("X", COLOURS), mat_array("y", DIGITS), mat_element(1, b"text")]
    for place in range(3):
        broken = [*parts[:place], element, *parts[place + 1 :]]
        attempt(parse_mat, mat_file([mat_compressed(part) for part in broken] if packed else broken))


FRAGMENTS = [
    *(bytes([code]) for code in b"(.012NIJKMLSTUBCVX]lae}dsu)tpqrghjcRbiPQ"),
    *(bytes([code]) for code in range(0x80, 0x99)),
    *(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"),
    *(b"U\x04data", b"U\x06labels", b"U\x02u1", b"X\x06\0\0\0latin1", b"]q\x05(K\x01K\x02e", b"K\x02M\x00\x0c\x86"),
    *(b"h\x00", b"q\x00", b"h\x05", b"I1\n", b"V\\u1234\n", b"S'\\x'\n", b"tb", b"u."),
    b"T\x00\x18\x00\x00" + bytes(6144),
]  # fmt: skip


@FUZZ
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=60), front=st.booleans())
def test_opcodes_in_any_order(parts: list[bytes], front: bool) -> None:
    attempt(PARSERS["pickles"].parse, (b"}(U\x04data" if front else b"") + b"".join(parts) + b".")


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """Entries of an archive with fields of any kind and checksums that are right."""
    data = b""
    for _ in range(draw(st.integers(1, 5))):
        block = bytearray(tarfile.TarInfo("folder/one").tobuf(tarfile.GNU_FORMAT))
        block[156] = draw(st.sampled_from(b"0\x0071234567LKxgSMDZ"))
        name = draw(st.one_of(st.binary(max_size=100), st.sampled_from([b"one", b"two", b"a/../one", b"/two"])))
        block[0:100] = name.ljust(100, b"\0")
        held = draw(st.one_of(st.binary(max_size=600), st.sampled_from([b"12 path=one\n", b"9 size=5\n", b"3 =\n"])))
        sizes = st.sampled_from(
            [b"%011o\0" % len(held), b"7" * 12, b"\x80" + b"\xff" * 11, b"\x80" + bytes(10) + b"\x05"]
        )
        block[124:136] = draw(st.one_of(sizes, st.binary(min_size=12, max_size=12)))
        block[257:265] = draw(st.sampled_from([b"ustar\x0000", b"ustar  \0", bytes(8)]))
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        data += bytes(block) + held + bytes(-len(held) % 512)
    return data + draw(st.sampled_from([b"", bytes(512), bytes(1024), bytes(1024) + b"x"]))


@FUZZ
@given(data=entries())
def test_entries_of_archives(data: bytes) -> None:
    attempt(parse_archive, data)


@pytest.mark.parametrize("name", PARSERS)
@settings(FUZZ, max_examples=max(5, EXAMPLES // 20))
@given(draw=st.data())
def test_memory_is_bounded(name: str, draw: st.DataObject) -> None:
    """Also where zeros without end follow."""
    parser = PARSERS[name]
    data = draw.draw(mutated(parser.valid))
    bomb = zeros(1 << 27, GZIP, data)
    for given_data in (data, bomb):
        with bounded(180 if name == "pickles" else 16, 20):
            attempt(parser.parse, given_data)

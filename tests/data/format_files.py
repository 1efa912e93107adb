"""Small files in the datasets' formats, well formed and not, for the tests of what reads them."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import time
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quatcaps.data.formats.matrices import NORB_BYTES, NORB_INTEGERS
from quatcaps.data.formats.reader import Reader, content
from quatcaps.data.imageset import ImageSet

Array = npt.NDArray[np.generic]

MAT_CLASSES = {"double": 6, "single": 7, "int8": 8, "uint8": 9, "int16": 10, "uint16": 11, "int32": 12, "uint32": 13}
MAT_STORED = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}


def reader(data: bytes, name: str = "FILE") -> Reader:
    return content(io.BufferedReader(io.BytesIO(data)), name)


@dataclass(frozen=True)
class Found:
    """What was read of a custom dataset."""

    images: ImageSet
    counts: dict[str, int]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def splits(self) -> dict[str, ImageSet]:
        """The images of each split."""
        if "all" in self.counts:
            return {"all": self.images}
        name, middle = self.images.name, self.counts["train"]
        return {
            "train": self.images.part(0, middle, f"{name} train"),
            "test": self.images.part(middle, len(self.images), f"{name} test"),
        }


@contextlib.contextmanager
def bounded(megabytes: int, seconds: int = 5) -> Iterator[None]:
    """What is done in it takes little memory and time."""
    before = time.process_time()
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
        assert time.process_time() - before < seconds
    finally:
        tracemalloc.stop()


def noise(shape: tuple[int, ...], limit: int = 256, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(limit, size=shape, dtype=np.uint8)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def idx_file(values: npt.NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def norb_file(values: Array) -> bytes:
    integers = values.dtype != np.uint8
    shape = values.shape + (1,) * (3 - values.ndim)
    header = struct.pack(f"<Ii{len(shape)}i", NORB_INTEGERS if integers else NORB_BYTES, values.ndim, *shape)
    return header + values.astype("<i4" if integers else np.uint8).tobytes()


def mat_element(kind: int, data: bytes, order: str = "<") -> bytes:
    """A tag and data, padded; a small element where the data fit in one."""
    if 0 < len(data) <= 4:
        return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def mat_array(
    name: str, values: Array, kind: str = "uint8", order: str = "<", stored: str = "u1", flags: int = 0
) -> bytes:
    """A matrix element of class `kind` whose values are stored as `stored`."""
    parts = (
        (6, struct.pack(f"{order}II", MAT_CLASSES[kind] | flags, 0)),
        (5, struct.pack(f"{order}{values.ndim}i", *values.shape)),
        (1, name.encode()),
        (MAT_STORED[stored], values.astype(np.dtype(stored).newbyteorder(order)).tobytes(order="F")),
    )
    return mat_element(14, b"".join(mat_element(code, data, order) for code, data in parts), order)


def mat_compressed(element: bytes, order: str = "<") -> bytes:
    packed = zlib.compress(element)
    return struct.pack(f"{order}II", 15, len(packed)) + packed


def mat_file(elements: Iterable[bytes], order: str = "<", version: int = 0x0100) -> bytes:
    text = b"MATLAB 5.0 MAT-file".ljust(124)
    return text + struct.pack(f"{order}H", version) + (b"IM" if order == "<" else b"MI") + b"".join(elements)


def cifar_rows(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    rows = noise((count, 3073), seed=seed)
    rows[:, 0] %= 10
    return rows


def batch(rows: npt.NDArray[np.uint8], protocol: int) -> bytes:
    """A batch as Python 3 pickles it."""
    labels = [int(label) for label in rows[:, 0]]
    names = [f"picture_{number}.png" for number in range(len(rows))]
    held = {"batch_label": "batch 1 of 5", "labels": labels, "data": rows[:, 1:].copy(), "filenames": names}
    return pickle.dumps(held, protocol)


def python2_batch(rows: npt.NDArray[np.uint8]) -> bytes:
    """A batch as Python 2 pickles it with protocol 2, as the published ones are: strings are bytes."""

    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    pixels = rows[:, 1:].tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03",
            text(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([label]) for label in rows[:, 0]) + b"e",
            text(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\x09",
            text(b"b") + b"\x87Rq\x0a(K\x01M" + struct.pack("<H", len(rows)) + b"M\x00\x0c\x86",
            b"cnumpy\ndtype\nq\x0b" + text(b"u1") + b"K\x00K\x01\x87Rq\x0c(K\x03" + text(b"|"),
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", len(pixels)) + pixels + b"tb",
            text(b"filenames") + b"q\x0d]q\x0e(" + b"".join(text(b"%d.png" % k) for k in range(len(rows))) + b"eu.",
        ]
    )


def tar_file(
    entries: Iterable[tuple[str, bytes | tarfile.TarInfo]], form: int = tarfile.PAX_FORMAT, gzipped: bool = True
) -> bytes:
    """An archive of files (name, content) and other entries (name, what they are)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, held in entries:
            entry = held if isinstance(held, tarfile.TarInfo) else tarfile.TarInfo(name)
            entry.name = name
            entry.size = 0 if isinstance(held, tarfile.TarInfo) else len(held)
            archive.addfile(entry, None if isinstance(held, tarfile.TarInfo) else io.BytesIO(held))
    return gzip.compress(buffer.getvalue(), mtime=0) if gzipped else buffer.getvalue()


def zeros(size: int, container: int, front: bytes = b"") -> bytes:
    """`front` and then `size` zero bytes, compressed a thousandfold, without ever being inflated here."""
    step = 1 << 24
    packer = zlib.compressobj(9, zlib.DEFLATED, container)
    start = packer.compress(front) + packer.flush(zlib.Z_FULL_FLUSH)
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = raw.compress(bytes(step)) + raw.flush(zlib.Z_FULL_FLUSH)
    return start + piece * (size // step)

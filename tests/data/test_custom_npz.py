"""NumPy archives of images and labels, whole, damaged and hostile."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_files import Found, bounded
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quatcaps.data import store
from quatcaps.data.custom import npz_fingerprint as fingerprint
from quatcaps.data.custom import read_npz
from quatcaps.data.formats import npz as archive
from quatcaps.errors import QuatcapsError

_GENERATOR = np.random.default_rng(0)
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=150)


def noise(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return _GENERATOR.integers(0, 256, shape, dtype=np.uint8)


IMAGES, LABELS = noise(6, 5, 7), np.arange(6) % 3


def read(path: Path, **options: Any) -> Found:
    return Found(*read_npz(path, **options))


def saved(path: Path, compressed: bool = False, **arrays: Any) -> Path:
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flowers.npz"


@pytest.mark.parametrize("compressed", [False, True])
def test_one_set(path: Path, compressed: bool) -> None:
    seen: list[tuple[int, int]] = []
    saved(path, compressed, images=IMAGES, labels=LABELS, unrelated=np.zeros(3))
    found = read(path, progress=lambda done, total: seen.append((done, total)))
    assert found.classes == ("0", "1", "2")
    assert list(found.splits) == ["all"]
    images = found.splits["all"]
    assert images.name == "flowers"
    assert np.array_equal(images.images.numpy(), IMAGES[:, None])
    assert images.labels.tolist() == LABELS.tolist()
    assert images.info == {}
    assert seen == [(6, 6)]


@pytest.mark.parametrize(
    "names", ["train_images train_labels test_images test_labels", "x_train y_train x_test y_test"]
)
def test_train_and_test_with_names_and_viewpoints(path: Path, names: str) -> None:
    arrays = dict(zip(names.split(), (noise(6, 8, 8, 3), LABELS, noise(2, 8, 8, 3), np.array([[4], [0]])), strict=True))
    azimuth = {name.replace("images", "azimuth").replace("x", "azimuth"): array for name, array in arrays.items()}
    azimuth = {name: 2 * np.arange(len(array)) for name, array in azimuth.items() if "azimuth" in name}
    classes = np.array(["oak", "elm", "ash", "fir", "yew", "Ä"])
    found = read(saved(path, **arrays, **azimuth, classes=classes))
    assert found.classes == ("oak", "elm", "ash", "fir", "yew", "Ä")
    assert [images.name for images in found.splits.values()] == ["flowers train", "flowers test"]
    for (_, images), key in zip(found.splits.items(), list(arrays)[::2], strict=True):
        assert np.array_equal(images.images.numpy(), arrays[key].transpose(0, 3, 1, 2))
        assert images.images.is_contiguous()
        assert images.info["azimuth"].tolist() == list(range(0, 2 * len(images), 2))
    assert found.splits["test"].labels.tolist() == [4, 0]
    assert found.splits["test"].labels.dtype == torch.int64
    unnamed = read(saved(path, **arrays))
    assert unnamed.classes == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5, 6, 7), None), ((5, 6, 7, 1), (0, 3, 1, 2)), ((5, 6, 7, 4), (0, 3, 1, 2)), ((5, 2, 6, 7), (0, 1, 2, 3))],
)
@pytest.mark.parametrize("piece", [1, 40, 100, 4 << 20])
def test_every_layout_in_pieces_of_any_size(
    order: str, shape: tuple[int, ...], axes: tuple[int, ...] | None, piece: int, path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(archive, "PIECE", piece)
    images = noise(*shape)
    saved(path, images=np.asarray(images, order=order), labels=np.array([0, 1, 0, 1, 2], dtype=">i2"))
    seen: list[tuple[int, int]] = []
    found = read(path, progress=lambda done, total: seen.append((done, total))).splits["all"]
    expected = images[:, None] if axes is None else images.transpose(axes)
    assert np.array_equal(found.images.numpy(), expected)
    assert found.labels.tolist() == [0, 1, 0, 1, 2]
    assert seen[-1] == (5, 5)
    assert seen == sorted(seen)


GOOD: dict[str, Any] = {"images": IMAGES, "labels": LABELS}
PAIR = {"train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES, "test_labels": LABELS}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"pictures": IMAGES, "labels": LABELS}, "holds no images .'pictures', 'labels'.: store images, labels; or"),
        ({"images": IMAGES}, "has no labels: store images, labels"),
        ({**GOOD, "x_train": IMAGES}, "holds several sets of images"),
        ({"x_train": IMAGES, "y_train": LABELS}, "has no x_test, y_test"),
        ({"x_test": IMAGES, "y_test": LABELS}, "has no x_train, y_train"),
        ({**GOOD, "images": IMAGES / 255}, "float64: store .255 . images..round...astype.'uint8'."),
        ({**GOOD, "images": IMAGES.astype(int)}, r"int64: store bytes from 0 to 255, as images.astype\('uint8'\)"),
        ({**GOOD, "images": noise(6, 3, 9, 3)}, r"channels may be first or last: store \(N, H, W, C\)"),
        ({**GOOD, "images": noise(6, 5, 5, 5)}, "1 to 4 channels"),
        ({**GOOD, "images": noise(6, 35)}, r"has shape \(6, 35\): store \(N, H, W\)"),
        ({**GOOD, "images": noise(0, 5, 5)}, "every dimension must be 1 or more"),
        ({**GOOD, "labels": LABELS[:5]}, r"labels in .* has shape \(5,\): store \(6,\), one for each of images"),
        ({**GOOD, "labels": LABELS.reshape(2, 3)}, r"has shape \(2, 3\)"),
        ({**GOOD, "labels": LABELS * 1.0}, "labels in .* is float64: store integers"),
        ({**GOOD, "labels": LABELS - 1}, "runs from -1 to 1: number classes from 0"),
        ({**GOOD, "labels": LABELS * 5000}, "runs from 0 to 10000: number classes from 0, up to 9999"),
        ({**GOOD, "labels": np.full(6, 2**64 - 1, dtype=np.uint64)}, "runs from 18446744073709551615 to"),
        ({**GOOD, "labels": LABELS * 0}, r"has 1 class\(es\): .* at least 2"),
        ({**GOOD, "labels": np.array([{}] * 6)}, "labels in .* holds Python objects, which are not read"),
        ({**GOOD, "labels": LABELS.astype([("a", "i4")])}, "store integers"),
        ({**GOOD, "classes": np.array(["a", "b"])}, "names 2 classes, but labels run up to 2: name all 3"),
        ({**GOOD, "classes": np.array(["a", "b", "a"])}, "two classes named 'a'"),
        ({**GOOD, "classes": np.array(["a", "b", ""])}, "a class named '': give it 1 to 255 letters"),
        ({**GOOD, "classes": np.array(["a", "b", "\ud800"])}, r"a class named '\\ud800'"),
        ({**GOOD, "classes": np.array(["a", "b", "c" * 300])}, "3 names of up to 300 letters: at most 10,000 of 255"),
        ({**GOOD, "classes": np.array([1, 2, 3])}, r"store numpy.array\(list_of_names\)"),
        ({**GOOD, "classes": np.array([[0x110000]] * 3, dtype="u4").view("U1")[:, 0]}, "characters that do not exist"),
        (
            {**GOOD, "azimuth": 10 * np.arange(6)},
            "azimuth in .* runs from 0 to 50: store tens of degrees, from 0 to 35",
        ),
        ({**GOOD, "elevation": 30 + np.arange(6)}, "store steps of 5° from 30°, from 0 to 12"),
        ({**GOOD, "instance": np.full(6, -1)}, "instance in .* runs from -1 to -1: store numbers, from 0"),
        ({**PAIR, "test_images": noise(6, 5, 8)}, r"train_images has shape \(6, 5, 7\) and test_images \(6, 5, 8\)"),
        ({**PAIR, "train_azimuth": LABELS}, "has azimuth for one of train and test only"),
    ],
)
def test_arrays_that_do_not_fit(path: Path, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words) as caught:
        read(saved(path, **arrays))
    assert "\n" not in str(caught.value)


def npy(array: Any, header: dict[str, Any] | bytes | None = None) -> bytes:
    """The bytes of a .npy file, with its header replaced: by other fields, or by any text."""
    if header is None:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, array, allow_pickle=False)
        return stream.getvalue()
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    text = header if isinstance(header, bytes) else repr({**fields, **header}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()


def zipped(path: Path, files: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as target:
        for name, data in files:
            target.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"shape": (7, 5, 7)}, "shape .7, 5, 7. of uint8 takes 245 bytes, but 210 are stored"),
        ({"shape": (5, 5, 7)}, "takes 175 bytes, but 210 are stored"),
        ({"shape": (-6, -5, 7)}, "every dimension must be 1 or more"),
        ({"shape": (2**70, 5, 7)}, "takes 41,3.* bytes, but 210 are stored"),
        ({"shape": (2**63, 2, 0)}, "every dimension must be 1 or more"),
        ({"shape": ()}, "every dimension must be 1 or more"),
        ({"shape": (6, 5, 7.0)}, "shape is not valid"),
        ({"descr": "|O"}, "holds Python objects"),
        ({"descr": "<U0", "shape": (10**15,)}, "every dimension must be 1 or more"),
        ({"descr": "no"}, "descr is not a valid dtype"),
        ({"descr": [("a", "u1")]}, "store bytes from 0 to 255"),
        ({"descr": ("u1", (5, 7)), "shape": (6,)}, "store bytes from 0 to 255"),
        (b"(" * 3000, "images in .* is damaged"),
        (b"-" * 4000 + b"1", "images in .* is damaged"),
        (b"{'shape': '\\d'}", "does not contain the correct keys"),
        (b"x" * 9000, "images in .* is damaged"),
        (b"1" * 4090, "images in .* is damaged"),
        (b"", "images in .* is damaged"),
        (b"'''", "images in .* is damaged"),
    ],
)
def test_headers_that_lie(path: Path, header: dict[str, Any] | bytes, words: str) -> None:
    zipped(path, [("images.npy", npy(IMAGES, header)), ("labels.npy", npy(LABELS))])
    with pytest.raises(QuatcapsError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_an_old_header_is_read_without_a_warning(path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (6L, 5L, 7L)}\n"
    zipped(path, [("images.npy", npy(IMAGES, header)), ("labels.npy", npy(LABELS))])
    assert len(read(path).splits["all"]) == 6


def directory_field(path: Path, name: bytes, offset: int, form: str, value: int, local: int | None = None) -> None:
    """Overwrites a field of an entry in the central directory of a zip file and, if told, in the entry's own header."""
    data = bytearray(path.read_bytes())
    for signature, length, place in ((b"PK\x01\x02", 46, offset), (b"PK\x03\x04", 30, local)):
        start = data.index(signature)
        while data[start + length :][: len(name)] != name:
            start = data.index(signature, start + 1)
        if place is not None:
            struct.pack_into(form, data, start + place, value)
    path.write_bytes(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_entries_that_are_longer_or_shorter_than_they_say(path: Path, method: int) -> None:
    whole = npy(IMAGES)
    short = npy(noise(100, 5, 7))[:128] + whole[128:]  # the header says 100 images
    zipped(path, [("images.npy", short), ("labels.npy", npy(np.arange(100)))], method)
    directory_field(path, b"images.npy", 24, "<I", 128 + 3500)
    with pytest.raises(QuatcapsError, match=r"images in .* is damaged"):
        read(path)
    long = npy(noise(2, 5, 7))[:128] + bytes(50_000_000)  # the header says 2 images
    zipped(path, [("images.npy", long), ("labels.npy", npy(LABELS[:2]))], method)
    with pytest.raises(QuatcapsError, match=r"takes 70 bytes, but 50,000,000 are stored"):
        read(path)
    directory_field(path, b"images.npy", 24, "<I", 128 + 70)
    with pytest.raises(QuatcapsError, match=r"images in .* is damaged .*CRC"):
        read(path)
    directory_field(path, b"images.npy", 16, "<I", zlib.crc32(long[: 128 + 70]))
    assert read_or_refuse(path)


def read_or_refuse(path: Path) -> bool:
    """Whether a file is read into something valid or refused in one line; the only two outcomes there are."""
    try:
        digits = fingerprint(path)
        found = read(path, limit=1 << 20)
    except QuatcapsError as error:
        return "\n" not in str(error)
    return (
        len(digits) == 64
        and len(found.classes) >= 2
        and all(images.classes == found.classes and images.nbytes <= 1 << 20 for images in found.splits.values())
    )


def test_archives_that_are_damaged_or_locked(path: Path) -> None:
    files = [("images.npy", npy(IMAGES)), ("labels.npy", npy(LABELS))]
    zipped(path, files, zipfile.ZIP_STORED)
    data = path.read_bytes()
    place = data.index(IMAGES.tobytes()) + 100
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(QuatcapsError, match=r"images in .* is damaged .*CRC.*: write the file again with numpy.savez"):
        read(path)
    path.write_bytes(data[:-30])
    with pytest.raises(QuatcapsError, match=r"flowers\.npz is not a \.npz file, or damaged"):
        read(path)
    zipped(path, files)
    directory_field(path, b"images.npy", 8, "<H", 1, local=6)
    with pytest.raises(QuatcapsError, match=r"images in .* is encrypted"):
        read(path)
    zipped(path, files, zipfile.ZIP_LZMA)
    with pytest.raises(QuatcapsError, match="compressed by method 14, which NumPy does not write"):
        read(path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(path, [*files, files[0]])
    with pytest.raises(QuatcapsError, match="two arrays named 'images': store each once"):
        read(path)
    zipped(path, [("images.npy", b"\x93NUMPY\x03\x00" + npy(IMAGES)[8:]), files[1]])
    with pytest.raises(QuatcapsError, match=r"a header of version 3\.0, not 1\.0 or 2\.0"):
        read(path)
    zipped(path, [("images.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(9000)), files[1]])
    with pytest.raises(QuatcapsError, match=r"images in .* is damaged"):
        read(path)


def test_files_that_are_not_there_or_too_large(path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"flowers\.npz: there is no such file"):
        read(path)
    with pytest.raises(QuatcapsError, match=r"cannot be read .*: give a .npz file"):
        read(path.parent)
    saved(path, images=IMAGES, labels=LABELS)
    needed = IMAGES.nbytes + LABELS.nbytes
    assert read(path, limit=needed).classes == ("0", "1", "2")
    with pytest.raises(QuatcapsError, match=r"more than the limit of .* store fewer or smaller images"):
        read(path, limit=needed - 1)


def test_the_limit_follows_the_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(path, images=IMAGES, labels=LABELS)
    assert store.memory() > IMAGES.nbytes
    monkeypatch.setattr(store, "memory", lambda: 3 * (IMAGES.nbytes + LABELS.nbytes))
    assert len(read(path).images) == len(IMAGES)
    monkeypatch.setattr(store, "memory", lambda: 3 * IMAGES.nbytes)
    with pytest.raises(QuatcapsError, match=r"more than the limit of 0\.0 GiB on this machine: store fewer"):
        read(path)


def test_a_small_file_that_fills_the_memory_is_refused(path: Path) -> None:
    blank = np.zeros((300, 1024, 1024), np.uint8)
    labels = np.arange(300) % 2
    saved(path, True, images=blank, labels=labels)
    assert path.stat().st_size < 1 << 20
    del blank
    with bounded(16), pytest.raises(QuatcapsError, match=r"expand to 315 MB, .*-fold, above the limit of 250: .*savez"):
        read(path)


def test_fingerprint_follows_the_arrays(path: Path) -> None:
    first = fingerprint(saved(path, images=IMAGES, labels=LABELS))
    assert fingerprint(saved(path, True, images=IMAGES, labels=LABELS)) == first
    assert fingerprint(saved(path, images=IMAGES, labels=LABELS[::-1])) != first
    assert fingerprint(saved(path, images=IMAGES, numbers=LABELS)) != first
    assert len(first) == 64


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "x.npz"


def _whole(compressed: bool) -> bytes:
    stream = io.BytesIO()
    names = np.array(["oak", "elm", "ash"])
    (np.savez_compressed if compressed else np.savez)(
        stream, images=IMAGES, labels=LABELS, azimuth=LABELS, classes=names
    )
    return stream.getvalue()


WHOLE = {compressed: _whole(compressed) for compressed in (False, True)}


@given(st.binary(max_size=400))
@example(b"PK\x05\x06" + bytes(18))
@EXAMPLES
def test_any_bytes(scratch: Path, data: bytes) -> None:
    scratch.write_bytes(data)
    assert read_or_refuse(scratch)


@given(
    compressed=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=6),
    removed=st.tuples(st.integers(0, 10**4), st.integers(0, 40)),
)
@EXAMPLES
def test_a_damaged_file(
    scratch: Path, compressed: bool, changes: list[tuple[int, int]], removed: tuple[int, int]
) -> None:
    data = bytearray(WHOLE[compressed])
    for place, value in changes:
        data[-1 - place % len(data)] = value
    start = removed[0] % len(data)
    del data[start : start + removed[1]]
    scratch.write_bytes(data)
    assert read_or_refuse(scratch)


_HEADER = "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 5, 7), }"


@given(
    place=st.integers(0, len(_HEADER)),
    removed=st.integers(0, len(_HEADER)),
    added=st.text(st.sampled_from("{}()[]<>|',:-_.0123456789jLuUiOVMTdescrTrueFalse\\\"\n\0é "), max_size=20),
)
@EXAMPLES
def test_any_header(scratch: Path, place: int, removed: int, added: str) -> None:
    header = (_HEADER[:place] + added + _HEADER[place + removed :]).encode("latin1")
    zipped(scratch, [("images.npy", npy(IMAGES, header)), ("labels.npy", npy(LABELS))])
    assert read_or_refuse(scratch)


_SHAPES = st.lists(st.one_of(st.integers(-1, 9), st.sampled_from([2**31, 2**63, 2**64])), max_size=5).map(tuple)
_TYPES = st.sampled_from(["|u1", "<i8", ">u2", "|b1", "<f4", "<U1", ">U3", "|S2", "|O", "|V1", "<U0", "<M8[s]", "<c8"])


@given(
    name=st.sampled_from(["images", "labels", "classes", "azimuth"]),
    descr=_TYPES,
    shape=st.one_of(_SHAPES, st.just((6,)), st.just((6, 5, 7)), st.just((3,))),
    fortran=st.booleans(),
    body=st.one_of(st.binary(max_size=64), st.integers(0, 255).map(lambda value: bytes([value]) * 2)),
    fits=st.booleans(),
)
@example("classes", "<U1", (3,), False, b"\xff", True)
@EXAMPLES
def test_an_array_of_any_type_and_shape(
    scratch: Path, name: str, descr: str, shape: tuple[int, ...], fortran: bool, body: bytes, fits: bool
) -> None:
    """The checksums are right: what is wrong is only what the arrays say and hold."""
    if fits and all(0 < side < 10 for side in shape) and descr != "|O":
        needed = int(np.prod(shape, dtype=int)) * np.dtype(descr).itemsize
        body = (body or b"\0") * (needed // len(body or b"\0") + 1)
        body = body[:needed]
    header = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode()
    arrays = {"images": npy(IMAGES), "labels": npy(LABELS)}
    arrays[name] = npy(np.frombuffer(body, np.uint8), header)
    zipped(scratch, [(f"{key}.npy", value) for key, value in arrays.items()])
    assert read_or_refuse(scratch)

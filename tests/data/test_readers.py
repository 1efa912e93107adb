"""Datasets from their authors' files, made small: every form gives the same images, and what is wrong is refused."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from format_files import (
    batch,
    cifar_rows,
    idx_file,
    mat_array,
    mat_compressed,
    mat_file,
    noise,
    norb_file,
    python2_batch,
    sha256,
    tar_file,
)

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.imageset import Progress, shrink
from quatcaps.data.readers import READERS, Read, read_split
from quatcaps.errors import QuatcapsError

PACKS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress]


def write(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return {name.removesuffix(".gz"): folder / name for name in files}


def read(
    name: str, split: str, files: dict[str, Path], size: int, count: int, progress: Progress | None = None
) -> Read:
    """A split of a dataset that has only `count` images in each."""
    known = replace(DESCRIPTIONS[name], counts={"train": count, "test": count})
    return READERS[name](known, split, files, size, progress)


def counter(seen: list[tuple[int, int]]) -> Progress:
    return lambda done, total: seen.append((done, total))


# MNIST

PICTURES, CLASSES = noise((9, 28, 28)), noise((9,), 10)


def mnist_files(pack: Callable[[bytes], bytes] = bytes) -> dict[str, bytes]:
    parts = (pack(idx_file(PICTURES)), pack(idx_file(CLASSES)))
    return dict(zip(DESCRIPTIONS["mnist"].names("test"), parts, strict=True))


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("size", [28, 14])
def test_mnist(pack: Callable[[bytes], bytes], size: int, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    images, contents = read("mnist", "test", write(tmp_path, mnist_files(pack)), size, 9, counter(seen))
    assert images.images.shape == (9, 1, size, size)
    assert np.array_equal(images.images.numpy(), shrink(PICTURES[:, None], size))
    assert images.labels.dtype == torch.int64
    assert images.labels.tolist() == CLASSES.tolist()
    assert images.info == {}
    assert contents == {name: sha256(data) for name, data in mnist_files().items()}
    assert seen == [(9, 9)]


def test_mnist_refused(tmp_path: Path) -> None:
    files = write(tmp_path, mnist_files())
    with pytest.raises(QuatcapsError, match=r"labels-idx1-ubyte holds an array of shape \(9,\): \(10000,\) is needed"):
        read_split("mnist", "test", files, size=28)
    with pytest.raises(QuatcapsError, match="MNIST train lacks train-images-idx3-ubyte, train-labels-idx1-ubyte"):
        read_split("mnist", "train", files, size=28)
    with pytest.raises(QuatcapsError, match="unknown split of MNIST 'tset': did you mean 'test'"):
        read_split("mnist", "tset", files, size=28)
    with pytest.raises(QuatcapsError, match="size is 30: images of 28×28 only shrink, to sizes from 1 to 28"):
        read("mnist", "test", files, 30, 9)
    labels = CLASSES.copy()
    labels[4] = 77
    files |= write(tmp_path, {DESCRIPTIONS["mnist"].names("test")[1]: idx_file(labels)})
    with pytest.raises(QuatcapsError, match="label 77 at position 4 is not one of 0 … 9"):
        read("mnist", "test", files, 28, 9)


# smallNORB

PAIRS = noise((8, 2, 96, 96))
CATEGORIES = np.arange(8) % 5
CODES = np.stack([np.array((4, 6, 7, 8, 9, 4, 6, 7)), np.arange(8), np.arange(8) * 4, np.arange(8) % 6], axis=1)


def norb_files(codes: np.ndarray = CODES, categories: np.ndarray = CATEGORIES) -> dict[str, bytes]:  # type: ignore[type-arg]
    parts = (norb_file(PAIRS), norb_file(categories), norb_file(codes))
    return dict(zip(DESCRIPTIONS["smallnorb"].names("train"), parts, strict=True))


@pytest.mark.parametrize("pack", PACKS)
def test_smallnorb(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    files = write(tmp_path, {name: pack(data) for name, data in norb_files().items()})
    images, contents = read("smallnorb", "train", files, 48, 8, counter(seen))
    assert np.array_equal(images.images.numpy(), shrink(PAIRS, 48))
    assert images.labels.tolist() == CATEGORIES.tolist()
    assert list(images.info) == ["instance", "elevation", "azimuth", "lighting"]
    for column, values in enumerate(images.info.values()):
        assert values.dtype == torch.int64
        assert values.tolist() == CODES[:, column].tolist()
    assert contents == {name: sha256(data) for name, data in norb_files().items()}
    assert seen[-1] == (8, 8)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, 5, "instance 5 at position 3 is not one of 4, 6, 7, 8, 9"),
        (1, 9, "elevation 9 at position 3 is not one of 0 … 8"),
        (2, 7, "azimuth 7 at position 3 is not one of 0, 2, 4"),
        (2, 36, "azimuth 36 at position 3"),
        (3, -1, "lighting -1 at position 3 is not one of 0 … 5"),
    ],
)
def test_smallnorb_codes_refused(column: int, value: int, words: str, tmp_path: Path) -> None:
    codes = CODES.copy()
    codes[3, column] = value
    with pytest.raises(QuatcapsError, match=f"-info.mat: {words}"):
        read("smallnorb", "train", write(tmp_path, norb_files(codes)), 48, 8)


def test_smallnorb_refused(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"-cat.mat: category 5 at position 7 is not one of 0 … 4"):
        read("smallnorb", "train", write(tmp_path, norb_files(categories=np.array([0] * 7 + [5]))), 48, 8)
    files = write(tmp_path, norb_files())
    with pytest.raises(QuatcapsError, match=r"shape \(8, 1, 1\): \(24300, 1, 1\) is needed"):
        read_split("smallnorb", "train", files, size=48)
    first, second, third = DESCRIPTIONS["smallnorb"].names("train")
    with pytest.raises(QuatcapsError, match="holds bytes: int32 are needed"):
        read("smallnorb", "train", {first: files[second], second: files[first], third: files[third]}, 48, 8)


# SVHN

COLOURS, DIGITS = noise((7, 3, 32, 32)), np.array([1, 9, 10, 3, 10, 5, 6], dtype=np.uint8)
X, Y = COLOURS.transpose(2, 3, 1, 0), DIGITS[:, None]


def by_scipy(compressed: bool, kind: type) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"X": X, "y": Y.astype(kind)}, do_compression=compressed)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        by_scipy(False, np.uint8),
        by_scipy(True, np.uint8),
        by_scipy(True, np.float64),
        mat_file([mat_compressed(mat_array("y", Y, "double")), mat_compressed(mat_array("X", X))]),
        mat_file([mat_array("X", X, order=">"), mat_array("y", Y, order=">")], ">"),
        mat_file([mat_array("X", X), mat_array("y", Y % 10)]),
        gzip.compress(by_scipy(False, np.uint8)),
    ],
)
def test_svhn(data: bytes, tmp_path: Path) -> None:
    images, contents = read("svhn", "test", write(tmp_path, {"test_32x32.mat": data}), 32, 7)
    assert np.array_equal(images.images.numpy(), COLOURS)
    assert images.labels.tolist() == [1, 9, 0, 3, 0, 5, 6]
    assert contents == {"test_32x32.mat": sha256(X.tobytes(order="F") + (DIGITS % 10).tobytes())}


def test_svhn_small(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    files = write(tmp_path, {"test_32x32.mat": by_scipy(True, np.uint8)})
    images, _ = read("svhn", "test", files, 8, 7, counter(seen))
    assert np.array_equal(images.images.numpy(), shrink(COLOURS, 8))
    assert seen == [(7, 7)]


def test_svhn_refused(tmp_path: Path) -> None:
    files = write(tmp_path, {"test_32x32.mat": by_scipy(True, np.uint8)})
    with pytest.raises(QuatcapsError, match=r"X has shape \(32, 32, 3, 7\): \(32, 32, 3, 26032\) is needed"):
        read_split("svhn", "test", files, size=32)
    files = write(tmp_path, {"test_32x32.mat": mat_file([mat_array("X", X), mat_array("y", Y + np.uint8(1))])})
    with pytest.raises(QuatcapsError, match="label 11 at position 2 is not one of 0 … 10"):
        read("svhn", "test", files, 32, 7)


# CIFAR-10

COUNT = 6
BATCHES = {name: cifar_rows(COUNT, seed) for seed, name in enumerate(DESCRIPTIONS["cifar10"].names("train"))}
BINARY = {name: rows.tobytes() for name, rows in BATCHES.items()}
PYTHON2 = {name.removesuffix(".bin"): python2_batch(rows) for name, rows in BATCHES.items()}
PYTHON3 = {name.removesuffix(".bin"): batch(rows, 5) for name, rows in BATCHES.items()}
OTHERS = [("cifar/readme.html", b"<p>"), ("cifar/test_batch.bin", b"x"), ("cifar/test_batch", b"x")]


def archive(files: dict[str, bytes]) -> bytes:
    return tar_file([*OTHERS, *((f"cifar/{name}", data) for name, data in reversed(files.items()))])


def cifar_train(folder: Path, files: dict[str, bytes], size: int = 32) -> Read:
    return read("cifar10", "train", write(folder, files), size, 5 * COUNT)


@pytest.mark.parametrize(
    "files",
    [
        BINARY,
        {name: gzip.compress(data) for name, data in BINARY.items()},
        PYTHON2,
        PYTHON3,
        {"cifar-10-binary.tar.gz": archive(BINARY)},
        {"cifar-10-binary.tar": gzip.decompress(archive(BINARY))},
        {"cifar-10-python.tar": archive(PYTHON2)},
        {"cifar-10-python.tar.gz": archive(PYTHON3)},
        {**BINARY, "data_batch_1": b"no batch", "cifar-10-binary.tar": b"no archive"},  # the first complete set counts
        {**PYTHON2, "data_batch_1.bin": b"alone", "cifar-10-binary.tar": b"no archive"},
        {"cifar-10-binary.tar": archive(BINARY), "cifar-10-python.tar": b"no archive"},
    ],
)
def test_cifar10(files: dict[str, bytes], tmp_path: Path) -> None:
    rows = np.concatenate([*BATCHES.values()])
    images, contents = cifar_train(tmp_path, files)
    assert np.array_equal(images.images.numpy(), rows[:, 1:].reshape(-1, 3, 32, 32))
    assert images.labels.tolist() == rows[:, 0].tolist()
    assert contents == {name: sha256(data) for name, data in BINARY.items()}
    assert list(contents) == list(BINARY)


def test_cifar10_small(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    rows = cifar_rows(COUNT)
    files = write(tmp_path, {"test_batch.bin": rows.tobytes()})
    images, _ = read("cifar10", "test", files, 16, COUNT, counter(seen))
    assert np.array_equal(images.images.numpy(), shrink(rows[:, 1:].reshape(-1, 3, 32, 32), 16))
    assert seen == [(COUNT, COUNT)]


def test_cifar10_refused(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"CIFAR-10 train lacks data_batch_2.bin, .* or cifar-10-binary.tar.gz"):
        cifar_train(tmp_path, {"data_batch_1.bin": b"", "test_batch.bin": b""})
    with pytest.raises(QuatcapsError, match="unknown split of CIFAR-10 'all'"):
        read_split("cifar10", "all", {}, size=32)
    with pytest.raises(QuatcapsError, match=r"test_batch.bin is cut off after 3073 bytes"):
        read_split("cifar10", "test", write(tmp_path, {"test_batch.bin": bytes(3073)}), size=32)
    with pytest.raises(QuatcapsError, match="lacks data_batch_5"):
        cifar_train(tmp_path, {"cifar-10-python.tar": archive(dict(list(PYTHON2.items())[:4]))})
    with pytest.raises(QuatcapsError, match=r"data_batch_5.bin has 18439 bytes: at most 18438 are expected"):
        cifar_train(tmp_path, {"cifar-10-binary.tar": archive({**BINARY, "data_batch_5.bin": bytes(18439)})})
    hostile = {**PYTHON2, "data_batch_3": b"cos\nsystem\n(S'true'\ntR."}
    with pytest.raises(QuatcapsError, match=r"cifar-10-python.tar: data_batch_3 asks for 'os.system'"):
        cifar_train(tmp_path, {"cifar-10-python.tar": archive(hostile)})

"""Folders of images by class, and the image files in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_files import Found
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from quatcaps.data.pictures import folder_fingerprint as fingerprint
from quatcaps.data.pictures import look, natural, open_picture, read_folder, square_pixels
from quatcaps.errors import QuatcapsError
from quatcaps.training.preprocess import as_pixels

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
ORIENTATION = 0x0112
_GENERATOR = np.random.default_rng(0)


def noise(*shape: int) -> Pixels:
    return _GENERATOR.integers(0, 256, shape, dtype=np.uint8)


def read(root: Path, **options: Any) -> Found:
    return Found(*read_folder(root, **options))


def save(path: Path, pixels: Pixels, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def split_folder(tmp_path: Path) -> Path:
    """Two grey images of each of three classes for training, one for testing."""
    root = tmp_path / "flowers"
    for name in ("kind10", "kind2", "Kind1"):
        for number in range(2):
            save(root / "train" / name / f"{number}.png", noise(12, 12))
        save(root / "test" / name / "0.png", noise(12, 12))
    return root


def pixels_of(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path)))


def test_train_and_test(split_folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = read(split_folder, size=0, progress=lambda done, total: seen.append((done, total)))
    assert found.classes == ("Kind1", "kind2", "kind10")
    assert list(found.splits) == ["train", "test"]
    assert [images.name for images in found.splits.values()] == ["flowers train", "flowers test"]
    train, test = found.splits["train"], found.splits["test"]
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.labels.tolist() == [0, 1, 2]
    assert train.images.shape == (6, 1, 12, 12)
    assert torch.equal(train.images[3, 0], pixels_of(split_folder / "train/kind2/1.png"))
    assert torch.equal(test.images[2, 0], pixels_of(split_folder / "test/kind10/0.png"))
    assert train.classes == test.classes == found.classes
    assert seen == [(done, 9) for done in range(1, 10)]


def test_one_set_with_files_at_any_depth_and_of_any_kind(tmp_path: Path) -> None:
    root = tmp_path / "things"
    save(root / "a" / "deep" / "er" / "2.PNG", noise(8, 8))
    save(root / "a" / "1.bmp", noise(8, 8))
    save(root / "b" / "x.gif", noise(8, 8))
    save(root / "b" / "y.jpeg", noise(8, 8))
    save(root / "b" / "z.tiff", noise(8, 8))
    save(root / "b" / "zz.webp", noise(8, 8, 3), lossless=True)
    save(root / "b" / "zzz.ppm", noise(8, 8, 3))
    save(root / "b" / ".hidden.png", noise(9, 9))
    save(root / "b" / ".thumbnails" / "x.png", noise(9, 9))
    save(root / ".git" / "x.png", noise(9, 9))
    (root / "a" / "notes.txt").write_text("no image")
    (root / "read.me").write_text("no class")
    (root / "b" / "folder.png").mkdir()
    found = read(root, size=8)
    assert list(found.splits) == ["all"]
    images = found.splits["all"]
    assert images.name == "things"
    assert images.labels.tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert images.channels == 3
    assert torch.equal(images.images[0], pixels_of(root / "a/1.bmp").expand(3, 8, 8))
    assert torch.equal(images.images[1], pixels_of(root / "a/deep/er/2.PNG").expand(3, 8, 8))
    assert torch.equal(images.images[6], pixels_of(root / "b/zzz.ppm").permute(2, 0, 1))


def test_images_are_scaled_like_those_to_predict(tmp_path: Path) -> None:
    root = tmp_path / "x"
    paths = [save(root / name / "1.png", noise(*shape)) for name, shape in (("a", (31, 20)), ("b", (7, 9)))]
    images = read(root, size=10).splits["all"].images
    for image, path in zip(images, paths, strict=True):
        assert torch.equal(image, as_pixels(path, 1, 10))


def test_images_as_stored_may_be_oblong_but_must_agree(tmp_path: Path) -> None:
    root = tmp_path / "x"
    save(root / "a" / "1.png", noise(6, 9))
    save(root / "b" / "1.png", noise(6, 9))
    assert read(root, size=0).splits["all"].size == (6, 9)
    other = save(root / "b" / "2.png", noise(9, 6))
    with pytest.raises(QuatcapsError, match=f"{root}/a/1.png is 9×6 but {other} is 6×9: give --image-size"):
        read(root, size=0)
    assert read(root, size=6).splits["all"].size == (6, 6)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_images_are_turned_upright(suffix: str, orientation: int, tmp_path: Path) -> None:
    root, stored = tmp_path / "x", noise(16, 24)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    options = {"lossless": True} if suffix == "webp" else {}
    turned = save(root / "a" / f"1.{suffix}", stored, exif=exif, **options)
    # What row 0 and column 0 of the stored pixels show: top, right, bottom or left of what was seen.
    upright = {
        1: stored, 2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1],
        5: stored.T, 6: stored.T[:, ::-1], 7: stored.T[::-1, ::-1], 8: stored.T[::-1],
    }[orientation]  # fmt: skip
    save(root / "b" / "1.png", np.ascontiguousarray(upright))
    assert look(turned).size == open_picture(turned).size == upright.shape[::-1]
    images = read(root, size=0).splits["all"].images
    assert torch.equal(images[0], images[1])


def test_a_photograph_on_its_side(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    stored = np.repeat(np.arange(0, 240, 10, dtype=np.uint8)[:, None], 16, 1)
    photograph = save(tmp_path / "1.jpg", stored, exif=exif)
    assert look(photograph).size == (24, 16)
    assert np.abs(np.asarray(open_picture(photograph)).astype(int) - np.rot90(stored, -1)).max() <= 4


def test_a_png_that_says_behind_its_pixels_which_way_is_up(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    before = save(tmp_path / "x" / "a" / "1.png", noise(6, 9), exif=exif)
    plain = save(tmp_path / "plain.png", noise(6, 9)).read_bytes()
    data = before.read_bytes()
    start = data.index(b"eXIf") - 4
    chunk = data[start : start + 12 + int.from_bytes(data[start : start + 4])]
    save(tmp_path / "x" / "a" / "0.png", noise(6, 9))
    save(tmp_path / "x" / "b" / "1.png", noise(6, 9))
    before.write_bytes(plain[:-12] + chunk + plain[-12:])
    assert look(before).size == (9, 6)
    with pytest.raises(QuatcapsError, match=r"0.png is 9×6 but .*/1.png is 6×9: give --image-size"):
        read(tmp_path / "x", size=0)


def test_sixteen_bits_palettes_and_transparency(tmp_path: Path) -> None:
    deep = tmp_path / "deep.png"
    Image.fromarray((np.arange(256).reshape(16, 16) * 256 + 77).astype(np.uint16)).save(deep)
    assert not look(deep).colour
    assert np.array_equal(np.asarray(open_picture(deep)), np.arange(256).reshape(16, 16))
    palette = tmp_path / "palette.png"
    colours = Image.fromarray(np.kron(noise(4, 4, 3), np.ones((4, 4, 1), dtype=np.uint8)))
    colours.quantize(16).save(palette, transparency=bytes(range(16)))
    assert look(palette).colour
    assert np.abs(np.asarray(open_picture(palette)).astype(int) - np.asarray(colours)).max() <= 8
    glass = save(tmp_path / "glass.png", noise(5, 5, 4))
    assert np.array_equal(np.asarray(open_picture(glass)), np.asarray(Image.open(glass))[..., :3])
    wide = tmp_path / "wide.tif"
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(wide)
    with pytest.raises(QuatcapsError, match=r"wide\.tif holds 32-bit values: save it with 8 or 16 bits"):
        open_picture(wide)


def test_the_middle_square() -> None:
    values = noise(4, 10)
    assert np.array_equal(square_pixels(Image.fromarray(values), 4)[0].numpy(), values[:, 3:7])
    blocks = np.kron(noise(3, 3, 3), np.ones((5, 5, 1), dtype=np.uint8))
    assert np.array_equal(square_pixels(Image.fromarray(blocks), 3).permute(1, 2, 0).numpy(), blocks[::5, ::5])


def _truncated(root: Path) -> None:
    path = save(root / "train" / "kind2" / "0.png", noise(40, 40))
    path.write_bytes(path.read_bytes()[:-700])


def _move(root: Path, source: str, target: str) -> None:
    (root / source).rename(root / target)


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda root: _move(root, "test", "val"),
            "has a folder train but no folder test .*not read: val.*add test/CLASS/",
        ),
        (lambda root: _move(root, "train", "more"), "has a folder test but no folder train .*not read: more"),
        (lambda root: _move(root, "test/kind2", "test/kind3"), "only in train: kind2; only in test: kind3"),
        (lambda root: _empty(root / "train" / "kind2"), "train/kind2 holds no images .*remove the folder"),
        (lambda root: (root / "test" / "kind2" / "0.png").write_bytes(b"no"), "test/kind2/0.png is not an image"),
        (_truncated, "train/kind2/0.png is not an image that can be read"),
        (lambda root: (root / "train" / "a\nb").mkdir(), "holds no images"),
    ],
)
def test_what_is_wrong_with_a_folder(spoil: Callable[[Path], object], words: str, split_folder: Path) -> None:
    spoil(split_folder)
    with pytest.raises(QuatcapsError, match=words):
        read(split_folder, size=8)


def test_folders_that_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="nowhere does not exist: give a folder with images in ROOT/train"):
        read(tmp_path / "nowhere", size=8)
    file = save(tmp_path / "root" / "1.png", noise(8, 8))
    with pytest.raises(QuatcapsError, match="is a file"):
        read(file, size=8)
    with pytest.raises(QuatcapsError, match="root has no class folders"):
        read(tmp_path / "root", size=8)
    save(tmp_path / "root" / "only" / "1.png", noise(8, 8))
    with pytest.raises(QuatcapsError, match=r"has 1 class\(es\): .* at least 2"):
        read(tmp_path / "root", size=8)
    with pytest.raises(QuatcapsError, match="size is -1"):
        read(tmp_path / "root", size=-1)
    save(tmp_path / "root" / "a\nb" / "1.png", noise(8, 8))
    with pytest.raises(QuatcapsError, match=r"a class named 'a\\nb': give it 1 to 255 letters"):
        read(tmp_path / "root", size=8)


def test_too_many_pixels_are_refused_before_any_is_read(split_folder: Path) -> None:
    (split_folder / "test/kind2/0.png").write_bytes((split_folder / "test/kind2/0.png").read_bytes()[:-60])
    with pytest.raises(QuatcapsError, match=r"take 0\.0 GiB, more than the limit .* smaller --image-size"):
        read(split_folder, size=12, limit=9 * 144 - 1)
    with pytest.raises(QuatcapsError, match=r"kind2/0\.png is not an image"):
        read(split_folder, size=12, limit=9 * 144)


def test_enormous_images_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "x.png", noise(60, 60))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    for reader in (look, open_picture):
        with pytest.raises(QuatcapsError, match=r"x\.png is larger than 3,000 pixels"):
            reader(path)
        with pytest.raises(QuatcapsError, match="there is no such file"):
            reader(tmp_path / "y.png")
        with pytest.raises(QuatcapsError, match="is a folder: give image files"):
            reader(tmp_path)


def test_fingerprint_follows_the_files(split_folder: Path) -> None:
    prints = [fingerprint(split_folder, 8)]
    assert fingerprint(split_folder, 8) == prints[0]
    (split_folder / "train" / "kind2" / "notes.txt").write_text("not used")
    assert fingerprint(split_folder, 8) == prints[0]
    prints.append(fingerprint(split_folder, 9))
    first = split_folder / "train" / "kind2" / "0.png"
    state = first.stat()
    os.utime(first, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    prints.append(fingerprint(split_folder, 8))
    first.rename(first.with_name("9.png"))
    prints.append(fingerprint(split_folder, 8))
    first.with_name("9.png").unlink()
    prints.append(fingerprint(split_folder, 8))
    assert len(set(prints)) == 5
    assert all(len(digits) == 64 for digits in prints)


@given(st.lists(st.text("aB019 ", max_size=6), max_size=6))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_natural_order_is_an_order(names: list[str]) -> None:
    assert sorted(dict.fromkeys(sorted(names)), key=natural) == sorted(dict.fromkeys(names), key=natural)
    assert sorted(["b12", "b2", "b", "a9", "a10"], key=natural) == ["a9", "a10", "b", "b2", "b12"]


_SAMPLES: dict[str, bytes] = {}


@pytest.fixture(scope="module", autouse=True)
def samples(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("samples")
    for suffix in ("png", "jpg", "bmp", "gif", "tif", "webp", "pgm"):
        _SAMPLES[suffix] = save(folder / f"x.{suffix}", noise(9, 7)).read_bytes()


@given(
    kind=st.sampled_from(["png", "jpg", "bmp", "gif", "tif", "webp", "pgm"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    kept=st.floats(0, 1),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_a_damaged_image_is_read_or_refused(
    kind: str, changes: list[tuple[float, int]], kept: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(_SAMPLES[kind])
    for place, value in changes:
        data[int(place * len(data))] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(data if kept > 0.5 else data[: int(2 * kept * len(data))])
    for reader in (look, open_picture):
        with contextlib.suppress(QuatcapsError):
            found = reader(path)
            assert min(found.size) >= 1 or reader is look

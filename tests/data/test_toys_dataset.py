from __future__ import annotations

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

from quatcaps import QuatcapsError
from quatcaps.data import store, toys
from quatcaps.data.imageset import ImageSet
from quatcaps.data.toys import dataset, version
from quatcaps.data.toys.dataset import Selection

TINY = {"size": 8, "azimuths": [0, 18], "elevations": [2], "lightings": [0]}


def load(split: str = "test", **settings: object) -> ImageSet:
    return toys.load(split, **(TINY | settings))  # type: ignore[arg-type]


def files(folder: Path) -> list[Path]:
    """What is in a folder beside locks, which stay."""
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


@pytest.fixture(autouse=True)
def quick_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of pictures, bytes that tell the toy and the view they belong to."""

    def views(
        member: tuple[int, int, int], azimuth: float, elevations: list[float], lightings: list[int], size: int
    ) -> torch.Tensor:
        images = torch.zeros(len(elevations), len(lightings), 2, size, size, dtype=torch.uint8)
        for row, elevation in enumerate(elevations):
            for column, lighting in enumerate(lightings):
                told = (*member, int(azimuth / 10), int(elevation), lighting)
                images[row, column, :, 0, : len(told)] = torch.tensor(told, dtype=torch.uint8)
        return images

    monkeypatch.setattr(dataset, "toy", lambda category, instance, seed: (category, instance, seed))
    monkeypatch.setattr(dataset, "scene", lambda member: member)
    monkeypatch.setattr(dataset, "views", views)


@pytest.fixture
def never_render(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse() -> None:
        def views(*_: object) -> None:
            raise AssertionError("rendered what was to come from the cache")

        monkeypatch.setattr(dataset, "views", views)

    return refuse


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_has_every_combination_once(split: str) -> None:
    labels, info = Selection(toys.SPLITS[split]).table()
    assert len(labels) == 24_300
    assert labels.dtype == torch.int64
    assert all(column.dtype == torch.int64 for column in info.values())
    columns = (labels, info["instance"], info["elevation"], info["azimuth"], info["lighting"])
    found = Counter(zip(*(column.tolist() for column in columns), strict=True))
    wanted = itertools.product(range(5), toys.SPLITS[split], range(9), range(0, 36, 2), range(6))
    assert found == Counter(wanted)


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_stand_beside_their_own_labels_and_viewpoints(split: str) -> None:
    whole = toys.load(split, size=8, seed=3)
    assert whole.images.shape == (24_300, 2, 8, 8)
    assert whole.classes == toys.CLASSES == ("animal", "human", "airplane", "truck", "car")
    told = whole.images[:, 0, 0, :6].long().T
    assert torch.equal(told[0], whole.labels)
    assert torch.equal(told[1], whole.info["instance"])
    assert (told[2] == 3).all()
    assert torch.equal(told[3], whole.info["azimuth"])
    assert torch.equal(told[4], 30 + 5 * whole.info["elevation"])
    assert torch.equal(told[5], whole.info["lighting"])


def test_a_subset_is_in_ascending_order_whatever_order_is_asked_for() -> None:
    chosen = load(azimuths=[18, 0], elevations=[8, 1], lightings=[5, 2, 4])
    assert len(chosen) == 25 * 2 * 2 * 3
    assert set(chosen.info["azimuth"].tolist()) == {0, 18}
    assert torch.equal(chosen.images, load(azimuths=[0, 18], elevations=[1, 8], lightings=[2, 4, 5]).images)


def test_progress_counts_pairs_to_the_end() -> None:
    calls: list[tuple[int, int]] = []
    load(progress=lambda done, total: calls.append((done, total)), elevations=[0, 1])
    assert calls[-1] == (100, 100)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert len(calls) == 50


def test_the_cache_gives_the_same_set_without_rendering(tmp_path: Path, never_render: Callable[[], None]) -> None:
    folder = tmp_path / "deep" / "cache"
    first = load(cache=folder)
    never_render()
    second = load(cache=folder)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)
    assert first.info.keys() == second.info.keys()
    assert len(files(folder)) == 1


def test_of_several_processes_one_renders(
    tmp_path: Path, never_render: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toys of another process, which held the lock, are taken."""
    first = load(cache=tmp_path / "theirs")
    (path,) = files(tmp_path / "theirs")
    never_render()

    @contextlib.contextmanager
    def held(lock: Path) -> Iterator[None]:
        shutil.copy(path, lock.parent)
        yield

    monkeypatch.setattr(store, "locked", held)
    assert torch.equal(load(cache=tmp_path / "ours").images, first.images)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"size": 9}, {"azimuths": [0, 20]}, {"elevations": [3]}, {"lightings": [1]}]
)
def test_other_settings_are_other_files(
    tmp_path: Path, never_render: Callable[[], None], change: dict[str, object]
) -> None:
    load(cache=tmp_path)
    never_render()
    with pytest.raises(AssertionError, match="rendered"):
        load(cache=tmp_path, **change)
    with pytest.raises(AssertionError, match="rendered"):
        load("train", cache=tmp_path)


def test_the_digest_follows_renderer_seed_size_and_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = load().digest
    assert load("train").digest == load(cache=tmp_path).digest == load(cache=tmp_path).digest == first
    others = [load(**change).digest for change in ({"seed": 1}, {"size": 9}, {"azimuths": [0]}, {"elevations": [3]})]
    monkeypatch.setattr(dataset, "renderer_version", lambda: "00000000")
    assert len({first, *others, load().digest}) == 6


def test_another_renderer_is_another_file(
    tmp_path: Path, never_render: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(cache=tmp_path)
    never_render()
    monkeypatch.setattr(dataset, "renderer_version", lambda: "00000000")
    with pytest.raises(AssertionError, match="rendered"):
        load(cache=tmp_path)


def test_the_renderer_version_covers_every_source_that_draws() -> None:
    """All modules of the room but those that only store and hand out."""
    folder = Path(version.__file__).parent
    others = {"__init__", "version", "dataset"}
    assert set(version._SOURCES) == {path.stem for path in folder.glob("*.py")} - others


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def flipped(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def foreign(_: bytes) -> bytes:
    return b"not a picture of anything" * 100


@pytest.mark.parametrize("damage", [truncated, emptied, flipped, foreign])
def test_a_damaged_file_is_rendered_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], never_render: Callable[[], None]
) -> None:
    first = load(cache=tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    again = load(cache=tmp_path)
    assert torch.equal(first.images, again.images)
    assert files(tmp_path) == [path]
    never_render()
    assert torch.equal(first.images, load(cache=tmp_path).images)


def test_a_whole_file_of_other_toys_is_not_taken(tmp_path: Path) -> None:
    first = load(cache=tmp_path / "first")
    load(cache=tmp_path / "second", seed=1)
    (path,), (other,) = files(tmp_path / "first"), files(tmp_path / "second")
    path.write_bytes(other.read_bytes())
    assert torch.equal(load(cache=tmp_path / "first").images, first.images)


def test_a_folder_that_cannot_be_written_is_named_before_rendering(
    tmp_path: Path, never_render: Callable[[], None]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    never_render()
    with pytest.raises(QuatcapsError, match=r"cannot .*file.*: .*(choose|folder)"):
        load(cache=blocked / "cache")
    assert blocked.read_text() == "in the way"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(cache=tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(b"old")

    def full(*arguments: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(QuatcapsError, match="disk is full"):
        load(cache=tmp_path)
    assert path.read_bytes() == b"old"
    assert files(tmp_path) == [path]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "trian"}, "unknown split of the toys 'trian': did you mean 'train'"),
        ({"size": 1000}, "size is 1000: give a number of pixels from 8 to 192"),
        ({"azimuths": [1]}, "azimuth code 1 is not one of 0, 2, 4"),
        ({"elevations": [9]}, "elevation code 9 is not one of 0, 1, 2"),
        ({"lightings": []}, "no lighting codes were given"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        toys.load(**({"split": "train"} | settings))  # type: ignore[arg-type]

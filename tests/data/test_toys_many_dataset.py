from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import pytest
import torch

from quatcaps import QuatcapsError, data
from quatcaps.data import toys
from quatcaps.data.imageset import ImageSet
from quatcaps.data.toys import many, version
from quatcaps.data.toys.catalogue import Toy, toy
from quatcaps.data.toys.many import dataset, one_lamp, renderer, tiles
from quatcaps.data.toys.many.renderer import Viewpoint
from quatcaps.pipelines import PIPELINES

EXACT = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="digests were taken on x86-64: elsewhere a sine may differ in its last bit",
)
VIEWS: list[Viewpoint] = [(20.0, 30.0, 0), (20.0, 45.0, 3), (133.7, 71.5, 5), (380.0, 45.0, 3), (260.0, 0.0, 1)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets of a few pairs."""
    monkeypatch.setattr(dataset, "PAIRS", 6)
    monkeypatch.setattr(dataset, "TEST_KINDS", 2)
    monkeypatch.setattr(dataset, "TEST_VIEWPOINTS", 3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, few: None) -> None:
    """Instead of pictures, bytes that tell the kind and the view they belong to."""

    def told(made: Toy, viewpoints: list[Viewpoint], size: int, device: torch.device) -> torch.Tensor:
        images = torch.zeros(len(viewpoints), 2, size, size, dtype=torch.uint8)
        for k, (azimuth, elevation, lighting) in enumerate(viewpoints):
            words = (made.look_at, made.radius, azimuth // 10, elevation, lighting)
            images[k, :, 0, :5] = torch.tensor(words) % 251
        return images

    monkeypatch.setattr(dataset, "kind", lambda category, number, seed: Toy((), float(category), float(number)))
    monkeypatch.setattr(dataset, "draw", told)


def load(split: str = "train", **settings: object) -> ImageSet:
    return many.load(split, **({"size": 12, "kinds": 2, "device": "cpu"} | settings))  # type: ignore[arg-type]


def files(folder: Path) -> list[Path]:
    """What is in a folder beside locks, which stay."""
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


@EXACT
def test_toys_stay_as_they_are_to_the_last_bit() -> None:
    views = torch.tensor([40.0, 221.5]), torch.tensor([35.0, 62.0]), torch.tensor([0, 5])
    digest = hashlib.sha256()
    for category in range(5):
        digest.update(toys.render(category, 2 * category, *views, seed=1).numpy().tobytes())
    assert digest.hexdigest()[:16] == "1bb86011274dfee1"


@EXACT
def test_the_pictures_are_those_that_were_written_down() -> None:
    digest = hashlib.sha256()
    for category in range(5):
        digest.update(renderer.draw(many.kind(category, 11), VIEWS[:3], 20).numpy().tobytes())
    assert digest.hexdigest()[:16] == "963e11b9c16f7718"


def test_a_view_gives_the_same_bytes_alone_and_in_company(monkeypatch: pytest.MonkeyPatch) -> None:
    made = many.kind(3, 4)
    together = renderer.draw(made, VIEWS, 25)
    assert torch.equal(together[1], together[3])  # a full turn changes nothing
    for k, view in enumerate(VIEWS):
        assert torch.equal(renderer.draw(made, [view], 25)[0], together[k])
    monkeypatch.setitem(renderer._AT_ONCE, "cpu", 2)
    monkeypatch.setitem(tiles._AT_ONCE, "cpu", 7)
    assert torch.equal(renderer.draw(made, VIEWS, 25), together)
    assert renderer.draw(made, [], 25).shape == (0, 2, 25, 25)


def test_tiles_leave_out_nothing_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [many.kind(category, 8) for category in range(5)]
    quick = [renderer.draw(each, VIEWS[:3], 24) for each in made]
    monkeypatch.setattr("quatcaps.data.toys.many.renderer.reached", lambda low, high, count: everything(low, count))
    monkeypatch.setattr("quatcaps.data.toys.many.light.reached", lambda low, high, count: everything(low, count))
    for each, images in zip(made, quick, strict=True):
        assert torch.equal(renderer.draw(each, VIEWS[:3], 24), images)


def everything(low: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [torch.arange(low.shape[1] * count * count)] * len(low)


def test_both_renderers_show_the_same() -> None:
    """Up to how finely they sample."""
    views = torch.tensor([110.0, 200.0]), torch.tensor([40.0, 60.0]), torch.tensor([2, 4])
    mine = many.render(toy(2, 3, 0), *views).float()
    change = (mine - toys.render(2, 3, *views).float()).abs()
    assert change.mean() < 1.5
    assert (change > 40).float().mean() < 0.004


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("split", ["train", "test"])
def test_images_stand_beside_their_own_labels_and_viewpoints(split: str) -> None:
    images = load(split)
    assert images.images.shape == (30, 2, 12, 12)
    assert images.classes == toys.CLASSES
    assert images.info.keys() == {"instance", "elevation", "azimuth", "lighting"}
    assert len({image.numpy().tobytes() for image in images.images}) == 30
    for k in (0, 13, 29):
        info = {name: int(column[k]) for name, column in images.info.items()}
        assert info["instance"] in many.numbers(split, 2)
        made = many.kind(int(images.labels[k]), info["instance"])
        angles = torch.tensor([10.0 * info["azimuth"]]), torch.tensor([30.0 + 5.0 * info["elevation"]])
        alone = many.render(made, *angles, torch.tensor([info["lighting"]]), size=12, device="cpu")
        assert torch.equal(alone[0], images.images[k])


def test_viewpoints_are_drawn_for_each_kind_without_repeats() -> None:
    chosen = many.viewpoints_of(2, 7, 0, 200)
    assert len(chosen.unique()) == 200
    assert 0 <= int(chosen.min()) < int(chosen.max()) < 972
    assert torch.isin(many.viewpoints_of(2, 7, 0, 50), chosen).all()
    assert not torch.equal(many.viewpoints_of(2, 8, 0, 200), chosen)
    assert not torch.equal(many.viewpoints_of(2, 7, 1, 200), chosen)
    assert torch.equal(many.viewpoints_of(2, 7, 0, 972), torch.arange(972))


@pytest.mark.usefixtures("quick")
def test_a_kind_does_not_depend_on_how_many_there_are() -> None:
    one, three = load(kinds=1), load(kinds=3)
    shown = three.images[three.info["instance"] == 0]
    assert (len(one), len(three), len(shown)) == (30, 30, 10)
    found = {image.numpy().tobytes() for image in one.images}
    assert all(image.numpy().tobytes() in found for image in shown)


@pytest.mark.usefixtures("few")
def test_threads_give_the_bits_of_one() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = load()
        torch.set_num_threads(3)
        together = load()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone.images, together.images)


@pytest.mark.usefixtures("quick")
def test_progress_counts_pairs_and_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        calls.append((done, total))
        if done >= 15:
            raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        load(cache=tmp_path, progress=stop)
    assert calls == [(3 * k, 30) for k in range(1, 6)]
    assert files(tmp_path) == []
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("quick")
def test_images_are_kept_by_what_decides_over_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(cache=tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("rendered what was to come from the cache")

    monkeypatch.setattr(dataset, "draw", refuse)
    assert torch.equal(load(cache=tmp_path).images, first.images)
    for change in ({"kinds": 3}, {"seed": 1}, {"size": 13}):
        with pytest.raises(AssertionError, match="rendered"):
            load(cache=tmp_path, **change)
    monkeypatch.setattr(dataset, "generator_version", lambda: "00000000")
    with pytest.raises(AssertionError, match="rendered"):
        load(cache=tmp_path)


@pytest.mark.usefixtures("quick")
def test_test_images_do_not_depend_on_the_training_kinds(tmp_path: Path) -> None:
    load("test", cache=tmp_path, kinds=2)
    load("test", cache=tmp_path, kinds=5)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
    ("split", "kinds", "mini", "pairs"),
    [
        ("train", many.KINDS, False, 100_000),
        ("test", many.KINDS, False, 20_000),
        ("train", 3, False, 3 * 972 * 5),
        ("train", many.KINDS, True, 6_000),
        ("test", 3, True, 2_000),
    ],
)
def test_how_many_pairs_there_are(split: str, kinds: int, mini: bool, pairs: int) -> None:
    jobs = dataset._jobs(split, *dataset._extent(split, kinds, mini), 0)
    assert sum(len(job.chosen) for job in jobs) == pairs


@pytest.mark.usefixtures("quick")
def test_the_small_set_is_a_part_of_the_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kinds and viewpoints are those of a larger set, and it has a file and a digest of its own."""
    monkeypatch.setattr(dataset, "MINI", {"train": (2, 3), "test": (1, 2)})
    small = data.load("toys-many-mini", "train", folder=tmp_path, size=8)
    assert len(small) == 5 * 2 * 3
    assert len(data.load("toys-many-mini", "test", folder=tmp_path, size=8)) == 5 * 2
    assert len(data.load("toys-many-mini", "all", folder=tmp_path, size=8)) == 5 * (2 * 3 + 2)
    large = data.load("toys-many-1", "train", folder=tmp_path, size=8)
    assert small.digest != large.digest
    seen = {tuple(values) for values in zip(*(column.tolist() for column in large.info.values()), strict=True)}
    first = small.select(small.info["instance"] == 0)
    assert {tuple(values) for values in zip(*(column.tolist() for column in first.info.values()), strict=True)} < seen


@pytest.mark.usefixtures("quick")
def test_the_name_tells_the_number_of_kinds(tmp_path: Path) -> None:
    assert data.find_dataset("toys-many").pipeline == PIPELINES["toys-many"] == PIPELINES["toys"]
    images = data.load("toys-many-3", "train", folder=tmp_path, size=8)
    assert len(images.info["instance"].unique()) == 3
    everything = data.load("toys-many-3", "all", folder=tmp_path, size=8)
    assert len(everything) == len(images) + 30


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toys-many-0", "kinds is 0: give a number of kinds a category from 1 to 20000"),
        ("toys-many-20001", "kinds is 20001: give"),
        ("toys-many-", "dataset toys-many-: give the number of kinds a category, from 1 to 20000, as in toys-many-300"),
        ("toys-many-ten", "dataset toys-many-ten: give the number"),
        ("toys-many-²", "dataset toys-many-²: give the number"),
        ("toys-may", "unknown dataset 'toys-may': did you mean 'toys-many'"),
    ],
)
def test_bad_names_are_named(name: str, message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        data.find_dataset(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "trian"}, "unknown split of the toys 'trian': did you mean 'train'"),
        ({"kinds": 0}, "kinds is 0: give a number of kinds a category from 1 to 20000"),
        ({"size": 1000}, "size is 1000: give a number of pixels from 8 to 192"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        load(**({"split": "train"} | settings))  # type: ignore[arg-type]


def test_bad_views_are_named() -> None:
    with pytest.raises(QuatcapsError, match=r"elevation of view 0 is 95\.0: give degrees from 0 to 90"):
        many.render(many.kind(0, 0), torch.tensor([0.0]), torch.tensor([95.0]), torch.tensor([0]))


def test_the_generator_version_covers_every_source() -> None:
    folder = Path(many.__file__).parent
    own = {"__init__", "one_lamp"}  # the second has a version of its own
    assert set(version._MANY_SOURCES) == {path.stem for path in folder.glob("*.py")} - own
    assert version.generator_version() != version.renderer_version()


@pytest.mark.usefixtures("quick")
def test_under_one_lamp_stand_the_same_toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_lamp, "EXTENT", {"train": (2, 3), "test": (1, 2)})
    found = {split: data.load("toys-one-lamp", split, folder=tmp_path, size=8) for split in ("train", "test", "all")}
    assert [len(images) for images in found.values()] == [30, 10, 40]
    train, test = found["train"], found["test"]
    assert train.info["lighting"].eq(0).all()
    assert train.aligned
    assert set(train.info["instance"].tolist()).isdisjoint(test.info["instance"].tolist())
    assert train.digest != test.digest
    again = data.load("toys-one-lamp", "train", folder=tmp_path, size=8)
    assert torch.equal(again.images, train.images)


def test_under_one_lamp_training_and_test_kinds_are_as_many_as_said() -> None:
    for split, pairs in (("train", 5_000), ("test", 2_000)):
        kinds, each = one_lamp.EXTENT[split]
        assert 5 * kinds * each == pairs
        assert set(many.numbers("test", 10)) <= set(many.numbers("test", many.TEST_KINDS))

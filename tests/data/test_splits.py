"""The sets of an experiment: their counts, and that nothing crosses them where it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from quatcaps import data
from quatcaps.data import splits
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment, arrange, hold_out
from quatcaps.data.toys.catalogue import SPLITS as TOYS
from quatcaps.data.toys.dataset import Selection
from quatcaps.data.viewpoints import FAMILIAR, degrees
from quatcaps.errors import QuatcapsError
from quatcaps.training.config import HELD_OUT_BY, PROTOCOLS, VIEWPOINTS, TrainingConfig
from quatcaps.training.evaluate import images_of

CLASSES = ("animal", "human", "airplane", "truck", "car")


def pairs(split: str) -> ImageSet:
    """smallNORB's table of a split, every pair with pixels of its own: its number, in 4 bytes."""
    if split == "all":
        return splits_joined()
    labels, info = Selection(TOYS[split]).table()
    numbers = torch.arange(len(labels), dtype=torch.int32) + (len(labels) if split == "test" else 0)
    stored = numbers.view(torch.uint8).view(-1, 1, 2, 2)
    return ImageSet(f"pairs {split}", stored, labels, CLASSES, info)


def splits_joined() -> ImageSet:
    from quatcaps.data.imageset import concatenate

    return concatenate([pairs("train"), pairs("test")], "pairs")


def numbers(images: ImageSet) -> set[int]:
    """Which pairs a set shows."""
    return set(images.images.reshape(-1, 4).view(torch.int32).flatten().tolist())


def toys(images: ImageSet) -> set[tuple[int, int]]:
    return set(zip(images.labels.tolist(), images.info["instance"].tolist(), strict=True))


def seen(images: ImageSet, field: str) -> set[int]:
    return set(images.info[field].tolist())


@pytest.mark.parametrize("viewpoints", FAMILIAR)
def test_validation_is_evaluated_from_novel_viewpoints_too(viewpoints: str) -> None:
    config = TrainingConfig(dataset="smallnorb", viewpoints=viewpoints, validation=0.2, data_seed=3)
    run = arrange(pairs, viewpoints=viewpoints, validation=0.2, seed=3)
    assert run.validation is not None
    found = images_of(config, "validation", pairs)
    assert found.name == "pairs train, validation"
    assert toys(found) == toys(run.validation)
    assert not toys(found) & toys(run.training)
    assert len(found) == 24_300 // 5
    assert numbers(run.validation) < numbers(found)
    assert seen(found, viewpoints) == seen(pairs("train"), viewpoints)
    for test in run.tests.values():
        assert not numbers(found) & numbers(test)
    pooled = images_of(config.changed({"protocol": "pooled"}), "validation", pairs)
    assert seen(pooled, viewpoints) == seen(run.training, viewpoints), "novel images are its test images"


def test_all_viewpoints() -> None:
    found = arrange(pairs)
    assert (len(found.training), {name: len(images) for name, images in found.tests.items()}) == (
        24_300,
        {"test": 24_300},
    )
    assert found.validation is None
    assert not numbers(found.training) & numbers(found.tests["test"])
    assert not toys(found.training) & toys(found.tests["test"])


@pytest.mark.parametrize("experiment", ["azimuth", "elevation"])
def test_strict_protocol(experiment: str) -> None:
    found = arrange(pairs, viewpoints=experiment, protocol="strict")
    familiar, novel = found.tests["test"], found.tests["novel"]
    assert [len(images) for images in (found.training, familiar, novel)] == [8_100, 8_100, 16_200]
    assert seen(found.training, experiment) == seen(familiar, experiment) == set(FAMILIAR[experiment])
    assert not seen(novel, experiment) & set(FAMILIAR[experiment])
    assert not toys(found.training) & (toys(familiar) | toys(novel)), "no toy is on both sides"
    assert len(numbers(found.training) | numbers(familiar) | numbers(novel)) == 8_100 + 8_100 + 16_200


@pytest.mark.parametrize("experiment", ["azimuth", "elevation"])
def test_pooled_protocol(experiment: str) -> None:
    found = arrange(pairs, viewpoints=experiment, protocol="pooled")
    assert list(found.tests) == ["novel"]
    novel = found.tests["novel"]
    assert [len(found.training), len(novel)] == [16_200, 32_400]
    assert seen(found.training, experiment) == set(FAMILIAR[experiment])
    assert not seen(novel, experiment) & set(FAMILIAR[experiment])
    assert toys(found.training) == toys(novel), "the same 50 toys, which is what makes it easier"
    assert not numbers(found.training) & numbers(novel)


def test_the_viewpoints_are_the_papers() -> None:
    assert sorted(degrees("azimuth", code) for code in FAMILIAR["azimuth"]) == [0, 20, 40, 300, 320, 340]
    novel = sorted(degrees("azimuth", code) for code in range(0, 36, 2) if code not in FAMILIAR["azimuth"])
    assert novel == list(range(60, 300, 20))
    assert sorted(degrees("elevation", code) for code in FAMILIAR["elevation"]) == [30, 35, 40]
    novel = sorted(degrees("elevation", code) for code in range(9) if code not in FAMILIAR["elevation"])
    assert novel == [45, 50, 55, 60, 65, 70]


@pytest.mark.parametrize("viewpoints", ["all", "azimuth", "elevation"])
@pytest.mark.parametrize("protocol", ["strict", "pooled"])
def test_validation_holds_out_whole_toys_of_every_class(viewpoints: str, protocol: str) -> None:
    whole = arrange(pairs, viewpoints=viewpoints, protocol=protocol)
    found = arrange(pairs, viewpoints=viewpoints, protocol=protocol, validation=0.2, seed=3)
    assert found.validation is not None
    assert not toys(found.training) & toys(found.validation)
    assert numbers(found.training) | numbers(found.validation) == numbers(whole.training)
    assert 5 * len(found.validation) == len(whole.training)
    for label in range(5):
        held = {instance for of, instance in toys(found.validation) if of == label}
        assert len(held) == (2 if viewpoints != "all" and protocol == "pooled" else 1)
    for name, images in found.tests.items():
        assert numbers(images) == numbers(whole.tests[name]), "tests are as without validation"
    assert list(whole.measured) == list(whole.tests)
    assert list(found.measured) == ["validation", *whole.tests], "in this order they are told"


def test_the_toys_themselves_follow_the_protocols(toys_folder) -> None:
    def load(split: str) -> ImageSet:
        return data.load("toys-mini", split, folder=toys_folder)

    strict = arrange(load, viewpoints="azimuth")
    assert [len(strict.training), len(strict.tests["test"]), len(strict.tests["novel"])] == [300, 300, 600]
    assert not toys(strict.training) & toys(strict.tests["novel"])
    pooled = arrange(load, viewpoints="azimuth", protocol="pooled")
    assert [len(pooled.training), len(pooled.tests["novel"])] == [600, 1200]
    assert toys(pooled.training) == toys(pooled.tests["novel"])
    assert len(toys(pooled.training)) == 50


def plain(count: int = 90) -> ImageSet:
    stored = torch.arange(count, dtype=torch.int32).view(torch.uint8).view(-1, 1, 2, 2)
    return ImageSet("plain", stored, torch.arange(count) % 3 % 2, ("often", "seldom", "never"))


def test_without_instances_every_class_gives_its_part() -> None:
    kept, held = hold_out(plain(), 0.1, 0)
    assert torch.bincount(held.labels).tolist() == [6, 3]
    assert torch.bincount(kept.labels).tolist() == [54, 27]
    assert not numbers(kept) & numbers(held)
    assert len(numbers(kept) | numbers(held)) == 90
    held = hold_out(plain(30), 0.28, 0)[1]
    assert torch.bincount(held.labels).tolist() == [6, 3], "the nearest to 5.6 of 20 and 2.8 of 10"


def test_the_choice_depends_on_the_seed_alone() -> None:
    first, again, other = (numbers(hold_out(plain(), 0.3, seed)[1]) for seed in (1, 1, 2))
    assert first == again != other


def test_the_choice_stays_what_it_was() -> None:
    """Records of runs have the seed alone: who evaluates such a run must hold out the same images."""
    assert numbers(hold_out(plain(30), 0.2, 0)[1]) == {9, 14, 17, 21, 25, 28}
    assert numbers(hold_out(plain(30), 0.2, 3)[1]) == {0, 5, 13, 24, 28, 29}
    held = arrange(pairs, validation=0.2, seed=3).validation
    assert held is not None
    assert toys(held) == {(0, 8), (1, 6), (2, 9), (3, 9), (4, 6)}


@pytest.mark.parametrize(("part", "count"), [(0.001, 1), (0.999, 29)])
def test_every_class_gives_one_and_keeps_one(part: float, count: int) -> None:
    held = hold_out(plain(), part, 0)[1]
    assert int((held.labels == 1).sum()) == count


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hold_out(plain(), 1.0, 0), r"validation = 1.0: the part to hold out must lie between 0 and 1"),
        (lambda: hold_out(plain(), 0.0, 0), r"validation = 0.0: the part to hold out must lie between 0 and 1"),
        (lambda: hold_out(plain(2), 0.5, 0), "one image of class often: none can be held out"),
        (
            lambda: arrange(pairs, viewpoints="azimuth", protocol="pool"),
            "unknown protocol 'pool': did you",
        ),
        (lambda: arrange(lambda split: plain(), viewpoints="azimuth"), "plain has no azimuth info"),
    ],
)
def test_what_cannot_be(make: Callable[[], Experiment], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        make()


def test_images_may_be_held_out_one_by_one() -> None:
    run = arrange(pairs, validation=0.2, by="image", seed=3)
    assert run.validation is not None
    assert len(run.validation) == 24_300 // 5
    assert torch.bincount(run.validation.labels).tolist() == [24_300 // 25] * 5
    assert toys(run.validation) == toys(run.training), "the same toys"
    assert not numbers(run.validation) & numbers(run.training)
    config = TrainingConfig(viewpoints="azimuth", validation=0.2, validation_by="image", data_seed=3)
    found, kept = (
        images_of(config, "validation", pairs),
        arrange(pairs, viewpoints="azimuth", validation=0.2, by="image", seed=3),
    )
    assert not numbers(found) & numbers(kept.training), "its own toys from novel viewpoints would be others"
    with pytest.raises(QuatcapsError, match="unknown way to hold out images 'toy'"):
        arrange(pairs, validation=0.2, by="toy")


def test_settings_know_the_same_names() -> None:
    assert HELD_OUT_BY == splits.HELD_OUT_BY
    assert PROTOCOLS == splits.PROTOCOLS
    assert ("all", *FAMILIAR) == VIEWPOINTS

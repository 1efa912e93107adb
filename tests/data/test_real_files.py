"""The five datasets in their authors' formats, where the environment's QUATCAPS_AUTHORS_FILES says that they lie.

The folder holds mnist, fashionmnist, svhn, cifar10 and smallnorb, each with the published files, gzipped or not. The
digests of SVHN's files and of smallNORB's images are those of copies, which a genuine file does not have.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.readers import INSTANCES, read_split

FOLDER = os.environ.get("QUATCAPS_AUTHORS_FILES")
pytestmark = pytest.mark.skipif(not FOLDER, reason="QUATCAPS_AUTHORS_FILES names no folder with the published files")

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
SVHN_TRAIN = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
SVHN_TEST = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
CATEGORIES = "591ed90c090cb6724593e8de28180bd602095ee8ec82bd1a5ca30b488cd1d06e"


@pytest.mark.parametrize(
    ("name", "split", "size", "balance", "means", "digests"),
    [
        (
            *("mnist", "train", 28, MNIST_TRAIN, [33.318421]),
            [
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ],
        ),
        (
            *("mnist", "test", 28, MNIST_TEST, [33.791224]),
            [
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ],
        ),
        (
            *("fashionmnist", "train", 28, [6000] * 10, [72.940352]),
            [
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ],
        ),
        (
            *("fashionmnist", "test", 28, [1000] * 10, [73.146567]),
            [
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ],
        ),
        (
            *("svhn", "train", 32, SVHN_TRAIN, [111.610485, 113.162195, 120.564855]),
            ["f3dfd848c04991b49502f57db58cbba8f23a11b35518c426c65cb86017a2ac8c"],
        ),
        (
            *("svhn", "test", 32, SVHN_TEST, [115.367955, 115.385923, 119.587999]),
            ["858437eb2fd47b0c9352d41ff446050fd59dce7c72a22673c216114dd7ce4f5d"],
        ),
        (
            *("cifar10", "train", 32, [5000] * 10, [125.306918, 122.950394, 113.865383]),
            [
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ],
        ),
        (
            *("cifar10", "test", 32, [1000] * 10, [126.024641, 123.708504, 114.854319]),
            ["8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"],
        ),
        (
            *("smallnorb", "train", 48, [4860] * 5, [191.873874, 193.147505]),
            [
                "cb630cba1abeea921ddfe5e4fa8db102d5271f157689b7b172786a670bcc2536",
                CATEGORIES,
                "6b4075d3800ba0c6fa8c46a02f672572abe7b93f7ed82fb7668354a99ef03306",
            ],
        ),
        (
            *("smallnorb", "test", 48, [4860] * 5, [191.161507, 192.186932]),
            [
                "bd9d83c1db4b9cc939dccd5f48c1cbb9cc83b7a4e82475c49a32fc020e15dc03",
                CATEGORIES,
                "318f817236b7c97af03cd90e07a9cbb4346e20ef83a1118a61eeb50e3b96db7e",
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_published_files(
    name: str, split: str, size: int, balance: list[int], means: list[float], digests: list[str]
) -> None:
    paths = sorted((Path(FOLDER or "") / name).rglob("*"))
    files = {path.name.removesuffix(".gz"): path for path in paths if path.is_file()}
    seen: list[tuple[int, int]] = []
    images, contents = read_split(name, split, files, size, lambda *counts: seen.append(counts))
    count = sum(balance)
    assert images.images.shape == (count, len(means), size, size)
    assert images.labels.bincount().tolist() == balance
    found = [images.images[:, channel].double().mean().item() for channel in range(len(means))]
    assert found == pytest.approx(means, abs=1e-5)
    assert contents == dict(zip(DESCRIPTIONS[name].names(split), digests, strict=True))
    assert seen[-1] == (count, count)
    assert seen == sorted(seen)
    if name == "smallnorb":
        instances = INSTANCES[split]
        for column, codes in zip(images.info.values(), (instances, range(9), range(0, 36, 2), range(6)), strict=True):
            values, numbers = column.unique(return_counts=True)
            assert values.tolist() == list(codes)
            assert numbers.tolist() == [count // len(codes)] * len(codes)
    else:
        assert images.info == {}

"""What a seed means: numbers that recorded runs, splits and weights were made with. If one of these changes, a seed
gives another run than it did, and records, folds and cards are no longer of what they name.

Whole numbers are exact on every machine; what goes through transcendental functions is compared to rounding.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import quatcaps
from quatcaps.counter_based import STEP, bell, mixed, uniform
from quatcaps.data.batches import TrainingBatches, epoch_generator, epoch_order, mix, others_of_group
from quatcaps.data.imageset import ImageSet
from quatcaps.data.mixing import mix_up
from quatcaps.data.preprocessing import draws
from quatcaps.data.splits import arrange, hold_out
from quatcaps.layers.dropout import Dropout
from quatcaps.pipelines import Pipeline
from quatcaps.training.measuring import sample

KEYS = mixed(torch.tensor(5)) + torch.arange(4) * STEP


def numbered(count: int, classes: int, **info: torch.Tensor) -> ImageSet:
    """Images of one pixel, which is their number, in classes of equal size."""
    pixels = torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1)
    labels = torch.arange(count) // (count // classes)
    return ImageSet("numbered", pixels, labels, tuple(map(str, range(classes))), info)


def numbers(images: ImageSet) -> list[int]:
    return images.images.flatten().tolist()


def test_mixing_is_splitmix64() -> None:
    """Its first numbers from seed 0, as its author publishes them."""
    found = [number % 2**64 for number in mixed(torch.arange(1, 4) * STEP).tolist()]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_counter_based_numbers() -> None:
    assert uniform(KEYS).mul(2**24).long().tolist() == [15_204_244, 6_991_855, 8_998_083, 13_141_891]
    assert bell(KEYS).tolist() == pytest.approx([-0.8092295, 1.1921064, 1.2333093, -0.4850778], abs=1e-6)


def test_streams_of_a_seed() -> None:
    """Order and chance of epoch 0, their like of seed 1, and the streams beside those of the epochs."""
    assert [mix(*each) for each in ((0, 0), (0, 1), (1, 0), (7, -1), (7, -3))] == [
        146_846_928_924_908_304,
        7_792_259_576_135_971_849,
        3_246_858_695_411_730_098,
        3_207_296_026_000_306_913,
        5_853_779_671_177_825_881,
    ]


def test_order_of_an_epoch() -> None:
    assert epoch_order(8, 3, 0).tolist() == [0, 6, 7, 2, 5, 1, 4, 3]
    assert epoch_order(8, 3, 1).tolist() == [3, 2, 0, 4, 5, 7, 6, 1]
    assert epoch_order(8, 4, 0).tolist() == [5, 6, 3, 2, 1, 0, 7, 4]


@pytest.mark.parametrize(
    ("seed", "toys", "images"),
    [
        (0, [4, 1, 3, 0, 4], [2, 4, 6, 7, 13, 14, 15, 17, 20, 24]),
        (1, [3, 3, 4, 1, 1], [3, 4, 7, 8, 12, 14, 16, 17, 21, 23]),
    ],
)
def test_what_is_held_out(seed: int, toys: list[int], images: list[int]) -> None:
    _, held_out = hold_out(numbered(25, 5, instance=torch.arange(25) % 5), 0.2, seed)
    assert held_out.info["instance"].tolist() == toys
    assert numbers(hold_out(numbered(25, 5), 0.4, seed)[1]) == images


def test_an_experiment_holds_out_what_seed_0_does_unless_told() -> None:
    experiment = arrange(lambda split: numbered(25, 5), validation=0.4)
    assert experiment.validation is not None
    assert numbers(experiment.validation) == [2, 4, 6, 7, 13, 14, 15, 17, 20, 24]


def test_the_images_that_are_measured_between_epochs() -> None:
    assert numbers(sample(numbered(20, 2), 5, 3)) == [2, 9, 11, 13, 18]


def test_what_chance_decides_for_an_image() -> None:
    asked = {"rotation": 10.0, "scale": 0.2, "brightness": 0.1, "contrast": 0.3, "stretch": 0.4, "noise": 0.5}
    found = draws(Pipeline(0, 1, flip=True, **asked), 2, (5, 9), epoch_generator(3, 1, 1))
    for name, value in {
        "top": [2, 4],
        "left": [1, 8],
        "mirrored": [False, False],
        "patched": [True, True],
        "grain": [2_320_448_126_383_257_540, 3_477_963_720_635_590_959],
    }.items():
        assert getattr(found, name).tolist() == value, name
    for name, values in {
        "angle": [0.0470128, -0.0915250],
        "zoom": [1.1078683, 0.9071196],
        "brightness": [0.0966735, 0.0135282],
        "contrast": [0.8559577, 1.1544898],
        "stretch": [0.9871195, 0.8307485],
        "blot_top": [0.6727211, 0.0981104],
        "blot_left": [0.2091863, 0.1701116],
        "patch_top": [0.7095325, 0.9156735],
        "patch_left": [0.6634690, 0.5924038],
        "noise": [0.3334198, 0.0645836],
    }.items():
        assert getattr(found, name).tolist() == pytest.approx(values, abs=1e-6), name


def test_the_others_that_images_are_patched_with() -> None:
    groups = torch.tensor([0, 1, 0, 1, 0, 2])
    assert others_of_group(groups, torch.Generator().manual_seed(2)).tolist() == [4, 1, 4, 3, 4, 5]


def test_the_parts_that_others_have_in_mixed_images() -> None:
    keys = torch.tensor([5, 2**61 + 9, 1_234_567_890_123])
    _, mixed = mix_up(torch.zeros(3, 1, 1, 1), torch.zeros(3, dtype=torch.int64), keys, 0.5)
    assert mixed.parts.tolist() == pytest.approx([0.2982, 0.3002, 0.1474], abs=1e-4)


EVERYTHING: dict[str, Any] = {
    "flip": True,
    "rotation": 10.0,
    "scale": 0.2,
    "stretch": 0.2,
    "elastic": 0.05,
    "erase": 0.25,
    "patch": 0.5,
    "noise": 0.3,
    "brightness": 0.1,
    "contrast": 0.1,
}


@pytest.mark.parametrize(
    ("settings", "labels", "pixels", "size"),
    [
        ({}, [[0, 2, 2, 1, 0], [2, 0, 1, 1, 1]], [1.48862, -0.36224, -1.38664, -0.36025, -1.67457, 0.28541], 1093.837),
        (
            EVERYTHING,
            [[0, 2, 2, 1, 0], [2, 0, 1, 1, 1]],
            [1.5197, 0.23054, -0.19512, 1.14864, 0.29038, -1.2247],
            1011.417,
        ),
        (
            {**EVERYTHING, "patch_from": "viewpoint"},
            [[0, 2, 2, 1, 0], [2, 0, 1, 1, 1]],
            [1.5197, 0.23054, -0.19512, 1.14864, 0.29038, -1.2247],
            1010.496,
        ),
    ],
    ids=["crops", "everything", "patches of the viewpoint"],
)
def test_batches_of_the_second_epoch(
    settings: dict[str, Any], labels: list[list[int]], pixels: list[float], size: float
) -> None:
    """Labels, and of the pixels the first few in the middle of the last batch, and the sum of all magnitudes."""
    count, none = 12, torch.zeros(12, dtype=torch.int64)
    stored = torch.randint(256, (count, 2, 10, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    viewpoints = {"instance": torch.arange(count) % 2, "elevation": torch.arange(count) % 2}
    info = {**viewpoints, "azimuth": none, "lighting": none}
    images = ImageSet("noise", stored, torch.arange(count) % 3, ("a", "b", "c"), info)
    pipeline = Pipeline(0, 8, **settings)
    batches = list(TrainingBatches(images, 5, pipeline, 3, torch.device("cpu")).epoch(1))
    assert [batch.labels.tolist() for batch in batches] == labels
    assert batches[-1].images[:3, :, 3, 4].flatten().tolist() == pytest.approx(pixels, abs=1e-4)
    assert sum(float(batch.images.abs().sum()) for batch in batches) == pytest.approx(size, rel=1e-5)


def test_what_dropout_leaves_out() -> None:
    """By call, and by the part of the batch."""
    dropout = Dropout(0.5)
    dropout.seed.fill_(12_345)
    found = ["".join("x" if kept else "." for kept in dropout(torch.ones(16))) for _ in range(2)]
    assert found == ["..x.x..xxxx.xxx.", "..x....x.xxxx.xx"]
    dropout.part_of_batch = 1
    assert "".join("x" if kept else "." for kept in dropout(torch.ones(16))) == "...x...x...x.xx."


def test_the_seed_of_dropout() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        assert int(Dropout().seed) == 937_055_941_807_507_096


@pytest.mark.parametrize(
    ("name", "settings", "weighed", "size"),
    [
        ("qcn-small", {}, 13.653547, 9155.11738),
        ("qcn-small", {"pose": "rotor"}, 33.977604, 9163.89580),
        ("qcn-free", {}, 68.433093, 119113.36769),
        ("qcn-fixed-axis", {}, -189.429796, 46841.79476),
        ("em", {}, -14.823500, 93496.16241),
        ("vb", {}, -0.902949, 4412.68077),
        ("cnn-small", {}, 1.278053, 1019.40147),
        ("resnet-20", {}, 42.122458, 17336.20991),
    ],
)
def test_weights_that_a_network_begins_with(name: str, settings: dict[str, Any], weighed: float, size: float) -> None:
    """Two sums over all parameters: of the magnitudes, and weighed by where a number stands in its tensor."""
    network = quatcaps.build(name, channels=2, classes=5, seed=3, **settings)
    assert fingerprint(network) == (pytest.approx(weighed, abs=1e-6 * size), pytest.approx(size, rel=1e-6))


def fingerprint(network: torch.nn.Module) -> tuple[float, float]:
    tensors = [parameter.detach().double().flatten() for parameter in network.parameters()]
    places = [torch.linspace(-1, 1, len(tensor), dtype=torch.float64) for tensor in tensors]
    weighed = sum(float(tensor @ place) for tensor, place in zip(tensors, places, strict=True))
    return weighed, sum(float(tensor.abs().sum()) for tensor in tensors)


@pytest.mark.parametrize(
    ("name", "settings", "activations"),
    [
        ("qcn-small", {}, [0.60759, 0.5857, 0.5962, 0.63952, 0.6122]),
        ("qcn-small", {"pose": "rotor"}, [0.5875, 0.57624, 0.61897, 0.59057, 0.65497]),
        ("qcn-fixed-axis", {}, [0.61006, 0.61002, 0.60998, 0.60991, 0.60991]),
        ("em", {}, [0.987, 0.97047, 0.98003, 0.95406, 0.97239]),
        ("vb", {}, [0.69664, 0.69664, 0.69664, 0.69664, 0.69664]),
        ("cnn-small", {}, [0.20136, 0.21277, 0.19563, 0.18736, 0.20288]),
        ("cnn", {}, [0.20385, 0.19355, 0.20216, 0.20056, 0.19988]),
        ("resnet-20", {}, [0.00148, 0.0467, 0.04051, 0.01492, 0.89638]),
    ],
)
def test_what_a_new_network_answers(name: str, settings: dict[str, Any], activations: list[float]) -> None:
    """The activations of an image of waves: weights as above, and what layers do with them."""
    images = torch.linspace(0, 60, 2 * 2 * 32 * 32).sin().view(2, 2, 32, 32)
    network = quatcaps.build(name, channels=2, classes=5, seed=3, **settings).eval()
    with torch.no_grad():
        found = network(images).activations[1].tolist()
    assert found == pytest.approx(activations, abs=1e-4)

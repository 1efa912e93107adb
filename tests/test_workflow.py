"""Training, evaluating and predicting from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

import quatcaps
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.training.preprocess import Preprocessing
from quatcaps.training.run import Run
from quatcaps.workflow import as_images, given_experiment

SHAPES = ("stripes", "bars", "spots")
TINY = {"epochs": 2, "batch": 12, "learning_rate": 1e-2, "log_every": 1, "device": "cpu", "loss": "cross-entropy"}


class Shapes(Dataset[tuple[Any, int]]):
    """Three classes of 28×28 images, as torchvision has its datasets."""

    classes = SHAPES

    def __init__(self, each: int, seed: int, kind: str = "pillow") -> None:
        noise = np.random.default_rng(seed).integers(0, 60, (3 * each, 28, 28), dtype=np.uint8)
        noise[0::3, ::4] += 180
        noise[1::3, :, ::4] += 180
        noise[2::3, ::4, ::4] += 180
        self.pixels, self.kind = noise, kind

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        image = self.pixels[number]
        found = {"pillow": Image.fromarray, "array": np.asarray, "tensor": lambda each: torch.from_numpy(each)[None]}
        return found[self.kind](image), number % 3


class Noted(quatcaps.Callback):
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.epochs: list[dict[str, float]] = []
        self.ended: Run | None = None

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        assert 0 < step <= steps
        self.steps.append(step)

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        assert epoch == len(self.epochs)
        self.epochs.append(measured)

    def end(self, run: Run) -> None:
        self.ended = run


@pytest.fixture(scope="module")
def noted() -> Noted:
    return Noted()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, noted: Noted) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    data = (Shapes(16, 0), Shapes(6, 1))
    return quatcaps.train("cnn-small", data, {**TINY, "epochs": 6}, output=folder, callbacks=[noted], quiet=True)


def test_callbacks_are_told(run: Run, noted: Noted) -> None:
    assert noted.steps == list(range(1, 25))
    assert [sorted(measured) for measured in noted.epochs] == [["test"]] * 6
    assert noted.ended is run


def test_what_was_trained_is_used(run: Run) -> None:
    assert run.classes == SHAPES
    test = Shapes(6, 1)
    evaluation = quatcaps.evaluate(run, test, device="cpu")
    assert evaluation.total.images == 18
    assert evaluation.total.errors == 0, "stripes are told from bars"
    network = quatcaps.load(run.folder)
    assert quatcaps.evaluate(network, test, device="cpu") == evaluation
    found = quatcaps.predict(network, [test[0][0], test[1][0], np.asarray(test[2][0])], device="cpu")
    assert [each.name for each in found] == list(SHAPES)
    assert found[0].activation == max(found[0].activations.values())
    (single,) = quatcaps.predict(run.folder, test[1][0], device="cpu")
    assert single.activations == pytest.approx(found[1].activations, abs=1e-6)
    with torch.no_grad():
        activations = network(network.preprocess(test[1][0])).activations[0]
    assert activations.tolist() == pytest.approx(list(single.activations.values()), abs=1e-6)
    assert network.class_names == SHAPES


def test_images_that_are_stored_nowhere_must_be_given_again(run: Run, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="give the images to measure it on"):
        quatcaps.evaluate(run)
    with pytest.raises(QuatcapsError, match=r"give them to quatcaps\.train again"):
        quatcaps.train("cnn-small", "given", TINY, output=tmp_path / "new", quiet=True)


def test_a_run_goes_on_with_its_own_images_alone(tmp_path: Path) -> None:
    class Stop(quatcaps.Callback):
        def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
            if step == 5:
                raise RuntimeError("enough")

    data, settings = (Shapes(8, 0), Shapes(4, 1)), {**TINY, "checkpoint_every": 3, "epochs": 3}
    with pytest.raises(RuntimeError, match="enough"):
        quatcaps.train("cnn-small", data, settings, output=tmp_path / "part", callbacks=[Stop()], quiet=True)
    with pytest.raises(QuatcapsError, match="was made with other training images"):
        quatcaps.train("cnn-small", (Shapes(8, 5), data[1]), output=tmp_path / "part", resume=True, quiet=True)
    quatcaps.train("cnn-small", data, output=tmp_path / "part", resume=True, quiet=True)
    quatcaps.train("cnn-small", data, settings, output=tmp_path / "whole", quiet=True)
    part, whole = (quatcaps.load(tmp_path / name).state_dict() for name in ("part", "whole"))
    assert all(torch.equal(part[name], whole[name]) for name in whole)
    with pytest.raises(QuatcapsError, match="without output"):
        quatcaps.train("cnn-small", data, resume=True)


def test_weights_are_tuned_to_other_classes(run: Run, tmp_path: Path) -> None:
    network = quatcaps.load(run.folder, classes=["up", "down"])
    before = quatcaps.load(run.folder).state_dict()
    fresh = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert fresh
    assert all(name.startswith(("classify.", "pose.")) for name in fresh)
    assert network.class_names == ("up", "down")
    assert network(network.preprocess(np.zeros((50, 60), np.uint8))).activations.shape == (1, 2)
    two = as_images(Shapes(8, 3))
    two = ImageSet("two", two.images[two.labels < 2], two.labels[two.labels < 2], ("up", "down"))
    tuned = quatcaps.train(
        network,
        (two, two),
        {**TINY, "epochs": 1, "batch": 8, "learning_rate": 1e-9},
        output=tmp_path / "tuned",
        quiet=True,
    )
    assert "the network that was given" in tuned.initial
    after = quatcaps.load(tuned.folder).state_dict()
    assert all(torch.allclose(value, after[name], atol=1e-6) for name, value in network.named_parameters())
    with pytest.raises(QuatcapsError, match="at least two"):
        quatcaps.load(run.folder, classes=1)
    with pytest.raises(QuatcapsError, match="a name of its own"):
        quatcaps.load(run.folder, classes=["a", "a"])


def test_a_part_can_be_held_out_of_one_set(tmp_path: Path) -> None:
    made = quatcaps.train(
        "cnn-small", Shapes(8, 0), {**TINY, "validation": 0.25, "test": False}, output=tmp_path / "v", quiet=True
    )
    assert made.config.validation == 0.25
    with pytest.raises(QuatcapsError, match="nothing to measure on"):
        quatcaps.train("cnn-small", Shapes(8, 0), TINY, output=tmp_path / "w", quiet=True)
    assert not (tmp_path / "w").exists()


def test_viewpoints_of_given_images_are_kept_apart(noise_images: ImageSet) -> None:
    for protocol, names in (("strict", ["novel", "test"]), ("pooled", ["novel"])):
        config = quatcaps.TrainingConfig(viewpoints="azimuth", protocol=protocol)
        found = given_experiment((noise_images, noise_images), config)
        assert found is not None
        assert sorted(found.tests) == names
        assert set(found.training.info["azimuth"].tolist()).isdisjoint(found.tests["novel"].info["azimuth"].tolist())


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_datasets_of_arrays_and_tensors_are_the_same_images(kind: str) -> None:
    wanted, found = as_images(Shapes(2, 0)), as_images(Shapes(2, 0, kind))
    assert torch.equal(found.images, wanted.images)
    assert torch.equal(found.labels, wanted.labels)
    assert found.digest == wanted.digest != as_images(Shapes(2, 1)).digest
    assert found.classes == SHAPES


def test_labels_come_in_all_kinds_of_numbers() -> None:
    pixels = np.zeros((4, 4), np.uint8)
    given = [0, 1.0, True, np.int64(2), np.uint8(1), torch.tensor(2), np.array(1)]
    assert as_images([(pixels, label) for label in given]).labels.tolist() == [0, 1, 1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "no image"),
        ([torch.zeros(1, 4, 4)], r"item 0 of the dataset is a Tensor: give \(image, class\)"),
        ([(torch.zeros(1, 4, 4), 0)], "item 0 is torch.float32 of shape .*: give a Pillow image, or bytes"),
        ([(b"x", 0)], "item 0 is a bytes"),
        ([(np.zeros((4, 4), np.uint8), 0), (np.zeros((4, 5), np.uint8), 1)], "item 1 .* give images of one size"),
        ([(np.zeros((4, 4), np.uint8), "cat")], "class of item 0 of the dataset is 'cat': give its number, from 0"),
        ([(np.zeros((4, 4), np.uint8), "1")], "class of item 0 of the dataset is '1'"),
        ([(np.zeros((4, 4), np.uint8), 0.5)], r"class of item 0 of the dataset is 0\.5"),
        ([(np.zeros((4, 4), np.uint8), -1)], "class of item 0 of the dataset is -1"),
        ([(np.zeros((4, 4), np.uint8), float("nan"))], "class of item 0 of the dataset is nan"),
        ([(np.zeros((4, 4), np.uint8), None)], "class of item 0 of the dataset is None"),
        ([(np.zeros((4, 4), np.uint8), 10**9)], "at most 10,000"),
        ([(np.zeros((4, 4), np.uint8), np.eye(2))], "class of item 0 of the dataset is array"),
        ([(np.zeros((4, 4), np.uint8), torch.eye(2)[0])], "class of item 0 of the dataset is tensor"),
    ],
)
def test_datasets_that_cannot_be_used_are_named(items: list[Any], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        as_images(items)


@pytest.mark.parametrize(
    ("network", "data", "config", "words"),
    [
        (torch.nn.Linear(2, 2), "toys", {}, "a Linear that quatcaps.build did not make"),
        ("cnn-small", "toys", {"dataset": "mnist"}, "'dataset', which is an argument of its own"),
        ("no-such", "toys", {}, "no-such"),
        ("cnn-small", (Shapes(2, 0), Shapes(2, 0), Shapes(2, 0)), {}, "3 sets of images"),
    ],
)
def test_what_cannot_be_trained_is_said(
    network: Any, data: Any, config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(QuatcapsError, match=words):
        quatcaps.train(network, data, config, output=tmp_path / "x", quiet=True)
    assert not (tmp_path / "x").exists()


def test_networks_without_preprocessing_say_so() -> None:
    network = quatcaps.build("qcn-small", channels=1, classes=2)
    with pytest.raises(QuatcapsError, match="built, not loaded"):
        network.preprocess(np.zeros((5, 5), np.uint8))
    with pytest.raises(QuatcapsError, match="built, not loaded"):
        quatcaps.predict(network, np.zeros((5, 5), np.uint8))


def test_preprocessing_takes_what_pictures_come_as(tmp_path: Path) -> None:
    network = quatcaps.load("qcn-cifar10")
    assert isinstance(network.preprocessing, Preprocessing)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 52, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    wanted = network.preprocess(tmp_path / "x.png")
    assert wanted.shape == (1, 3, 32, 32)
    for picture in (str(tmp_path / "x.png"), Image.fromarray(pixels), pixels):
        assert torch.equal(network.preprocess(picture), wanted)
    tensor = torch.from_numpy(pixels).movedim(-1, 0)
    assert torch.equal(network.preprocess(tensor[:, :, 6:46]), network.preprocess(pixels[:, 6:46]))
    assert network.preprocess([pixels, pixels]).shape == (2, 3, 32, 32)
    stereo = quatcaps.load("qcn-toys")
    pair = torch.randint(0, 256, (2, 36, 36), dtype=torch.uint8)
    assert stereo.preprocess(pair).shape == (1, 2, 32, 32)
    assert not torch.equal(*stereo.preprocess(pair)[0])


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (np.zeros((4, 4)), r"float64 of shape \(4, 4\): give uint8"),
        (np.zeros((4, 4, 2), np.uint8), r"\(4, 4, 2\)"),
        (np.zeros((0, 4), np.uint8), "no pixel"),
        (torch.zeros(1, 4, 4, dtype=torch.uint8), r"give uint8 of shape \(3, height"),
        ([], "no picture was given"),
        ("no-such.png", "no-such.png"),
    ],
)
def test_pictures_that_are_none_are_named(picture: Any, words: str) -> None:
    network = quatcaps.load("qcn-cifar10")
    with pytest.raises(QuatcapsError, match=words):
        network.preprocess(picture)


def test_the_command_line_does_the_same(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from quatcaps.cli.predict import predict

    path = tmp_path / "x.png"
    Shapes(1, 9)[1][0].resize((90, 90)).save(path)
    predict([run.folder, path], device="cpu")
    (found,) = quatcaps.predict(run, path, device="cpu")
    assert f"{found.name}, activation {found.activation:.3f}" in " ".join(capsys.readouterr().out.split())


def test_evaluating_published_weights_by_name(toys_folder: Path) -> None:
    images = quatcaps.data.load("toys-mini", "test", folder=toys_folder, size=48)
    few = images.select(torch.arange(0, len(images), 90))
    evaluation = quatcaps.evaluate("qcn-smallnorb", few_of(few), device="cpu")
    assert evaluation.total.images == len(few)


def few_of(images: ImageSet) -> ImageSet:
    """The same under smallNORB's names of the classes."""
    return ImageSet("few", images.images, images.labels, ("animal", "human", "airplane", "truck", "car"))


def test_tensors_are_not_changed_by_training(run: Run) -> None:
    network = quatcaps.load(run.folder)
    before: dict[str, Tensor] = {name: value.clone() for name, value in network.state_dict().items()}
    quatcaps.evaluate(network, Shapes(2, 0), device="cpu")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())

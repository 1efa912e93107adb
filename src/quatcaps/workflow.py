"""What the command line does, as functions: train, evaluate, predict."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

from quatcaps.console import standard_output
from quatcaps.data import GIVEN
from quatcaps.data.imageset import MOST_CLASSES, ImageSet, concatenate
from quatcaps.data.splits import Experiment
from quatcaps.data.store import data_folder
from quatcaps.errors import QuatcapsError
from quatcaps.models import Network
from quatcaps.paper.recipes import configured
from quatcaps.settings import shortened
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import evaluate_trained, images_of
from quatcaps.training.measure import Evaluation
from quatcaps.training.predict import predict as activations_of
from quatcaps.training.preprocess import Picture, Preprocessing, as_list
from quatcaps.training.run import Run, choose_device, load_experiment, load_images, open_run, with_views
from quatcaps.training.start import resume_run, start_run
from quatcaps.training.trained import Trained, trained_run
from quatcaps.weights.zoo import trained as trained_by_name


@runtime_checkable
class Items(Protocol):
    """A map-style dataset of PyTorch, or a list: each item is an image of bytes and the number of its class."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


Images = ImageSet | Items
Data = str | Path | Images | tuple[Images, ...]
"""A dataset by its name or path, or images for training and for testing."""
GIVEN_NETWORK = "the network that was given"


class Callback:
    """Told how a run gets on; override what you need.

    `step` is called where the numbers are looked at: after every step on a CPU, about five times a second on a GPU.
    Losses and errors are means of the epoch so far. `epoch` counts from 0, as in log.jsonl: what is printed as epoch 1
    is epoch 0 here. `measured` has the errors on the test or validation images by name, and `degrees` the median errors
    of poses under a pose objective, where this epoch measured them. An exception stops the run.
    """

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None: ...

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None: ...

    def end(self, run: Run) -> None: ...


class Prediction(NamedTuple):
    """The class that a network names, and the activation of every class."""

    name: str
    activations: dict[str, float]

    @property
    def activation(self) -> float:
        return self.activations[self.name]


def train(
    network: str | nn.Module,
    data: Data,
    config: TrainingConfig | Mapping[str, Any] | None = None,
    *,
    recipe: str = "paper",
    output: str | Path | None = None,
    resume: bool = False,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> Run:
    """Trains a network as `quatcaps train` does, and returns its run, whose folder `load` takes.

    network: a model's name, or a network that `build` or `load` made, whose weights training begins with; it is not
    changed itself. data: a dataset's name or path; a pair of image sets or PyTorch datasets, for training and testing;
    or one of them, if `validation` is set in the configuration, which then holds out a part. config: a configuration,
    or changes to that of the `recipe`. output: the run's folder (default: runs/DATASET-MODEL-SEED, or, where that
    exists, the next of …-2, …-3). resume: go on with the run in `output`, with its own configuration; more `epochs` in
    `config` than it has let it go on for so many.
    """
    console = Console(quiet=True) if quiet else standard_output()
    place = None if data_dir is None else Path(data_dir)
    if resume:
        if output is None:
            raise QuatcapsError("resume = True without output: give the folder of the run to go on with")
        experiment = given_experiment(data, open_run(Path(output)).config)
        epochs = more_epochs(config)
        run = resume_run(Path(output), place, console, None, experiment, callbacks, epochs)
    else:
        configuration = configuration_of(network, data, config, recipe)
        folder = Path(output) if output is not None else None
        experiment = given_experiment(data, configuration)
        run = start_run(configuration, folder, place, console, initial_of(network), experiment, callbacks)
    for callback in callbacks:
        callback.end(run)
    return run


def more_epochs(config: TrainingConfig | Mapping[str, Any] | None) -> int | None:
    """How many epochs a run shall have that is resumed, where its caller says so; all else is the run's own."""
    if config is None or isinstance(config, TrainingConfig) or "epochs" not in config:
        return None
    return TrainingConfig().changed({"epochs": config["epochs"]}).epochs


def configuration_of(
    network: str | nn.Module, data: Data, config: TrainingConfig | Mapping[str, Any] | None, recipe: str
) -> TrainingConfig:
    """The whole configuration of a run."""
    dataset = str(data) if isinstance(data, str | Path) else GIVEN
    chosen: dict[str, Any] = {"dataset": dataset}
    if not isinstance(network, str):
        if not isinstance(network, Network) or not network.model:
            raise QuatcapsError(
                f"a {type(network).__name__} that quatcaps.build did not make: a run's folder must say how its network "
                "is built; register it with quatcaps.register_model, and give its name"
            )
        chosen |= {"model": network.model, "model_settings": dict(network.changes)}
    else:
        chosen |= {"model": network}
    if isinstance(config, TrainingConfig):
        kept = config.model_settings if config.model == chosen["model"] else {}
        return config.changed({"model_settings": kept, **chosen})
    changes = dict(config or {})
    for name in chosen:
        if name in changes and name != "model_settings":
            raise QuatcapsError(f"config has {name!r}, which is an argument of its own: leave it out there")
    settings = {**chosen.get("model_settings", {}), **changes.pop("model_settings", {})}
    return configured(recipe, {**chosen, **changes, **({"model_settings": settings} if settings else {})})


def initial_of(network: str | nn.Module) -> Trained | None:
    """The weights that training begins with, where a network was given."""
    if not isinstance(network, Network):
        return None
    names = network.class_names or tuple(f"class {number}" for number in range(network.classes))
    return Trained(GIVEN_NETWORK, copy.copy(network), TrainingConfig(model=network.model), network.channels, names)


def given_experiment(data: Data, config: TrainingConfig) -> Experiment | None:
    """What a run learns from and is measured on, where the images were given; None: those of the dataset."""
    if isinstance(data, str | Path):
        return None
    parts = data if isinstance(data, tuple) else (data,)
    if len(parts) == 1 and not config.validation:
        raise QuatcapsError(
            "one set of images, and nothing to measure on: give a pair, for training and for testing, or hold out a "
            "part with validation=0.2"
        )
    if len(parts) > 2:
        raise QuatcapsError(f"{len(parts)} sets of images: give those for training and those for testing")
    sets = dict(zip(("train", "test"), map(as_images, parts), strict=False))
    if len(sets) == 1:
        sets["test"] = sets["train"].select(torch.arange(0))
    if sets["train"].classes != sets["test"].classes:
        raise QuatcapsError(
            f"the classes of the training images are {', '.join(sets['train'].classes)}, and those of the test images "
            f"{', '.join(sets['test'].classes)}: they must be the same, in the same order"
        )

    def load(split: str) -> ImageSet:
        return sets[split] if split in sets else concatenate(list(sets.values()), GIVEN)

    found = load_experiment(config, load)
    return replace(found, tests={}) if len(parts) == 1 else found


def as_images(data: Images, name: str = "given") -> ImageSet:
    """An image set from any map-style dataset of PyTorch.

    Its items are an image and the number of its class. Images are Pillow's, arrays (height, width) or (height, width,
    channels), or tensors (channels, height, width), of bytes and all of one size. Names of the classes come from an
    attribute `classes`, as datasets of torchvision have it.
    """
    if isinstance(data, ImageSet):
        return data
    if not len(data):
        raise QuatcapsError("the dataset has no image")
    images, labels = [], []
    for number in range(len(data)):
        item = data[number]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise QuatcapsError(f"item {number} of the dataset is a {type(item).__name__}: give (image, class)")
        images.append(as_bytes(item[0], number))
        labels.append(as_label(item[1], number))
        if images[-1].shape != images[0].shape:
            raise QuatcapsError(
                f"item {number} of the dataset has shape {tuple(images[-1].shape)}, the first one "
                f"{tuple(images[0].shape)}: give images of one size"
            )
    names = getattr(data, "classes", None)
    classes = tuple(map(str, names)) if names else tuple(f"class {number}" for number in range(max(labels) + 1))
    stored, numbers = torch.stack(images), torch.tensor(labels)
    digest = hashlib.sha256(stored.numpy().tobytes() + numbers.numpy().tobytes()).hexdigest()
    return ImageSet(name, stored, numbers, classes, source="given in Python", digest=digest)


def as_label(label: Any, number: int) -> int:
    """The number of an item's class."""
    try:
        found = int(label)
        whole = bool(found == label)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        whole = False
    if not whole or isinstance(label, str) or not 0 <= found < MOST_CLASSES:
        raise QuatcapsError(
            f"the class of item {number} of the dataset is {shortened(label)}: give its number, from 0 to one below "
            f"the number of classes (at most {MOST_CLASSES:,}); their names go into the dataset's attribute `classes`"
        )
    return found


def as_bytes(image: Any, number: int) -> Tensor:
    """(channels, height, width) uint8."""
    if isinstance(image, Image.Image):
        image = np.asarray(image.convert("RGB" if image.mode not in ("1", "L", "I", "F") else "L"))
    if isinstance(image, np.ndarray):
        whole = torch.from_numpy(image.copy())
        image = whole[None] if whole.ndim == 2 else whole.movedim(-1, 0)
    if not isinstance(image, Tensor) or image.dtype != torch.uint8 or image.ndim != 3:
        what = (
            f"{image.dtype} of shape {tuple(image.shape)}" if isinstance(image, Tensor) else f"a {type(image).__name__}"
        )
        raise QuatcapsError(
            f"the image of item {number} is {what}: give a Pillow image, or bytes (uint8) of shape (channels, height, "
            "width); leave standardising and augmentation to the configuration"
        )
    return image.contiguous()


def evaluate(
    network: str | Path | Run | Network,
    data: Images | None = None,
    *,
    split: str = "test",
    device: str = "auto",
    data_dir: str | Path | None = None,
) -> Evaluation:
    """The errors of a trained network, as `quatcaps evaluate` has them: in total, by class and viewpoint, with the
    confusion matrix.

    network: as `load` takes it, a run, or a network that `load` made. data: images of its classes; without, the `split`
    (test, train or validation) of the dataset that it was trained on. A network of single views is measured on the
    single views of stereo pairs.
    """
    trained = as_trained(network)
    if data is None:
        if trained.config.dataset == GIVEN or isinstance(network, Network):
            raise QuatcapsError("its images are stored nowhere: give the images to measure it on")
        place = data_folder(None if data_dir is None else Path(data_dir))
        images = images_of(trained.config, split, lambda part: load_images(trained.config, part, place))
    else:
        images = with_views(trained.config, as_images(data))
    return evaluate_trained(trained, images, choose_device(device))["all"]


def predict(
    network: str | Path | Run | Network, pictures: Picture | Sequence[Picture], *, device: str = "auto"
) -> list[Prediction]:
    """What a trained network names on pictures: paths, Pillow images, or arrays of bytes, of any size."""
    trained = as_trained(network)
    found = activations_of(trained, as_list(pictures), choose_device(device))
    return [
        Prediction(trained.classes[int(each.argmax())], dict(zip(trained.classes, each.tolist(), strict=True)))
        for each in found
    ]


def as_trained(network: str | Path | Run | Network) -> Trained:
    """A trained network and what it takes."""
    if isinstance(network, Run):
        return trained_run(network)
    if isinstance(network, Network):
        if not isinstance(network.preprocessing, Preprocessing):
            raise QuatcapsError(
                "this network was built, not loaded, and has no preprocessing: train it with quatcaps.train, or load a "
                "trained one with quatcaps.load"
            )
        made = network.preprocessing
        return Trained(GIVEN_NETWORK, network, made.config, made.channels, network.class_names, made.size)
    return trained_by_name(network)

"""A network that is trained on single views: what it is measured on, what it takes, and that it goes on as it began."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import quatcaps
from quatcaps.data.imageset import ImageSet, single_views
from quatcaps.errors import QuatcapsError
from quatcaps.paper.recording import make_record
from quatcaps.training.evaluate import evaluate_trained
from quatcaps.training.run import Run, load_experiment
from quatcaps.training.trained import trained_run

pytestmark = pytest.mark.usefixtures("unchecked")
TINY = {"stem": (4, 5, 4), "primary": 2, "capsules": ((3, 3, 2), (3, 3, 1)), "routing.iterations": 1}
CONFIG = {
    "model_settings": TINY,
    "stereo_views": "single",
    "standardise_from": "whole",
    "image_size": 32,
    "crop": 28,
    "batch": 16,
    "validation": 0.3,
    "epochs": 2,
    "device": "cpu",
    "schedule": "exponential",
}


def trained(folder: Path, images: ImageSet, resume: bool = False, **changes: object) -> Run:
    config = {"epochs": changes["epochs"]} if resume else {**CONFIG, **changes}
    data = (images, images)
    return quatcaps.train("em-ibm-published", data, config, output=folder, resume=resume, quiet=True)


@pytest.fixture(scope="module")
def run(noise_images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("runs") / "views", noise_images)


def test_errors_are_counted_over_single_views(run: Run, noise_images: ImageSet) -> None:
    assert (run.channels, run.size) == (1, (32, 32))
    assert run.network().primary.image_norm is not None
    found = quatcaps.evaluate(run, noise_images, device="cpu")
    assert found.total.images == 120
    assert found == quatcaps.evaluate(run, single_views(noise_images), device="cpu")
    experiment = load_experiment(run.config, lambda split: noise_images)
    record = make_record("key", "recipe", run, experiment, "cpu", renormalised=True)
    assert record.final["test"].images == record.renormalised["test"].images == 120
    assert sum(rate.images for rate in record.by_toy["test"].values()) == 120
    assert record.final["validation"].images == sum(rate.images for rate in record.toys.values()) == 36
    with pytest.raises(QuatcapsError, match=r"noise has 2 channels and 3 classes, the network of .* 1 and 3"):
        evaluate_trained(trained_run(run), noise_images, torch.device("cpu"))


def test_a_run_goes_on_as_it_began(run: Run, noise_images: ImageSet, tmp_path: Path) -> None:
    first = trained(tmp_path / "run", noise_images, epochs=1)
    whole = trained(first.folder, noise_images, resume=True, epochs=2)
    found, wanted = (each.trained_network().state_dict() for each in (whole, run))
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


def test_one_view_is_predicted_and_a_pair_refused(run: Run, noise_images: ImageSet, tmp_path: Path) -> None:
    views = noise_images.at(slice(0, 1))[0].numpy()
    Image.fromarray(np.concatenate(list(views), 1)).save(tmp_path / "pair.png")
    with pytest.raises(QuatcapsError, match=r"a picture of 64×32, .* takes single views; give one"):
        quatcaps.predict(run, tmp_path / "pair.png", device="cpu")
    with pytest.raises(QuatcapsError, match=r"of shape \(2, 32, 32\): give uint8 of shape \(1, height, width\)"):
        quatcaps.predict(run, torch.from_numpy(views), device="cpu")
    (left,) = quatcaps.predict(run, views[0], device="cpu")
    network = quatcaps.load(run.folder)
    saved = quatcaps.load(network.save(tmp_path / "saved.safetensors"))
    assert quatcaps.predict(saved, views[0], device="cpu") == [left]
    assert quatcaps.evaluate(saved, noise_images, device="cpu").total.images == 120

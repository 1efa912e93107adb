"""A trained network measured as a whole and by its parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import arrange
from quatcaps.errors import QuatcapsError
from quatcaps.models import build
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import errors_on, evaluate_trained
from quatcaps.training.trained import Trained

CPU = torch.device("cpu")


@pytest.fixture
def trained(noise_images: ImageSet) -> Trained:
    config = TrainingConfig(model="qcn-small", image_size=32, crop=28, viewpoints="azimuth")
    network = build("qcn-small", channels=2, classes=3, seed=0).eval()
    return Trained("noise", network, config, 2, noise_images.classes, noise_images.size)


def test_parts_of_an_evaluation_are_the_errors_on_the_parts(trained: Trained, noise_images: ImageSet) -> None:
    whole = evaluate_trained(trained, noise_images, CPU)
    parts = errors_on(trained, arrange(lambda split: noise_images, viewpoints="azimuth").tests, CPU)
    assert parts == {"test": whole["familiar"].total, "novel": whole["novel"].total}
    assert whole["all"].total.errors == sum(rate.errors for rate in parts.values())
    assert 0 < whole["all"].total.errors < 60


def test_images_that_do_not_fit(trained: Trained, noise_images: ImageSet) -> None:
    named_otherwise = replace(noise_images, classes=("a", "b", "c", "d"))
    grey = replace(noise_images, stored=noise_images.stored[:, :1])
    for images, words in ((named_otherwise, "2 channels and 4 classes"), (grey, "1 channels and 3 classes")):
        with pytest.raises(QuatcapsError, match=f"noise has {words}, the network of noise 2 and 3"):
            evaluate_trained(trained, images, CPU)
        with pytest.raises(QuatcapsError, match=words):
            errors_on(trained, {"test": images}, CPU)

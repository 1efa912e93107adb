"""Attacks on a GPU: gradients, several of one graph too, and counts are those of a CPU but for rounding."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from quatcaps.data.imageset import ImageSet
from quatcaps.models import build
from quatcaps.robustness import Effort, Victim, attack, under_attack
from quatcaps.robustness.minimal import differences
from quatcaps.robustness.objectives import with_gradient
from quatcaps.robustness.trials import pixels_of
from quatcaps.training.config import TrainingConfig
from quatcaps.training.trained import Trained

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU, GPU = torch.device("cpu"), torch.device("cuda")
NETWORKS = ("qcn-small", "qcn-rotor-small", "resnet-20", "cnn")


def trained(model: str) -> Trained:
    settings = {"cnn": {"size": (28, 28)}, "resnet-20": {"widths": (4, 8, 16)}}.get(model, {})
    network = build(model, channels=2, classes=3, seed=0, **settings)
    config = TrainingConfig(model=model, score_scale=10.0, standardise="view", image_size=32, crop=28)
    return Trained(model, network.eval(), config, 2, ("one", "two", "three"), (32, 32))


@pytest.mark.parametrize("model", NETWORKS)
def test_gradients_are_those_of_a_cpu(model: str, noise_images: ImageSet) -> None:
    here = Victim(trained(model))
    there = Victim(replace(here.trained, network=deepcopy(here.trained.network).to(GPU)))
    pixels, labels = pixels_of(noise_images, [here], CPU)[:5], noise_images.labels[:5]
    with under_attack(here, there):
        wanted = differences(here, pixels, labels)
        found = differences(there, pixels.to(GPU), labels.to(GPU))
        assert_alike(found[0], wanted[0])
        order = [each[2].cpu().argsort(1) for each in (found, wanted)]
        for k in range(len(pixels)):
            assert_alike(found[1][k].cpu()[order[0][k]], wanted[1][k][order[1][k]])
        if there.has_votes:
            given = (pixels.to(GPU), labels.to(GPU))
            assert_alike(with_gradient(there.votes(), *given)[1], with_gradient(here.votes(), pixels, labels)[1])


def assert_alike(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """In direction and length, as TF32 and other orders of summation allow."""
    found, wanted = found.cpu().flatten(), wanted.flatten()
    assert functional.cosine_similarity(found, wanted, 0) > 0.999
    assert 0.97 < found.norm() / wanted.norm() < 1.03


@pytest.mark.parametrize("model", NETWORKS)
def test_scores_with_and_without_gradients_have_the_same_bits(model: str, noise_images: ImageSet) -> None:
    here = Victim(trained(model))
    there = Victim(replace(here.trained, network=here.trained.network.to(GPU)))
    pixels = pixels_of(noise_images, [there], GPU)[:64]
    with under_attack(there):
        alone = there(pixels)
        with torch.enable_grad():
            assert torch.equal(there(pixels.requires_grad_()).detach(), alone)


@pytest.mark.parametrize("model", NETWORKS)
def test_as_many_are_broken_as_on_a_cpu(model: str, noise_images: ImageSet) -> None:
    chosen, some = trained(model), noise_images.select(torch.arange(24), "noise")
    with torch.no_grad():
        labels = Victim(chosen)(pixels_of(some, [Victim(chosen)], CPU)).argmax(1)
    images, names = replace(some, labels=labels), ["fgsm", "pgd", "ensemble", "autoattack", "deepfool", "cw"]
    names += ["vote"] if Victim(chosen).has_votes else []
    options = {"attacks": names, "epsilons": (0.01, 0.1), "effort": Effort(3, 2, 10), "masking": False}
    found, wanted = (
        attack(replace(chosen, network=deepcopy(chosen.network)), images, device, **options)  # type: ignore[arg-type]
        for device in (GPU, CPU)
    )
    few = max(2, 0.1 * len(images))
    assert found.clean.errors <= few
    for name, rates in wanted.within.items():
        for here, there in zip(found.within[name], rates, strict=True):
            assert abs(here.errors - there.errors) <= few, name
    for name, distances in wanted.nearest.items():
        assert abs(found.nearest[name].found - distances.found) <= few
        if distances.median:
            assert found.nearest[name].median == pytest.approx(distances.median, rel=0.1)

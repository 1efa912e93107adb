"""Padding of a stem, batch normalisation of images, and how convolutions start."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from quatcaps.errors import QuatcapsError
from quatcaps.layers import PrimaryCapsules
from quatcaps.models import build, parameter_count
from quatcaps.models.capsule_network import CapsuleNetwork

STEM = (6, 5, 2)


def primary(channels: int = 2, **settings: object) -> PrimaryCapsules:
    torch.manual_seed(0)
    return PrimaryCapsules(channels, 4, pose="matrix", stem=STEM, head_norm=False, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "stem", "pads"),  # left, right, top, bottom
    [
        ((32, 32), (6, 5, 2), (1, 2, 1, 2)),
        ((9, 12), (6, 5, 2), (1, 2, 2, 2)),
        ((10, 7), (6, 3, 1), (1, 1, 1, 1)),
        ((9, 8), (6, 2, 3), (0, 0, 0, 0)),
    ],
)
@pytest.mark.parametrize("gradients", [True, False])
def test_a_padded_stem_has_the_odd_zero_behind(
    size: tuple[int, int], stem: tuple[int, int, int], pads: tuple[int, ...], gradients: bool
) -> None:
    torch.manual_seed(0)
    made = PrimaryCapsules(2, 4, stem=stem, stem_padding="same", convolutions="pytorch")
    state, images = made.state_dict(), torch.randn(3, 2, *size)
    weight, bias = state["pose_trunk.0.weight"], state["pose_trunk.0.bias"]
    with torch.set_grad_enabled(gradients):
        found = made.pose_trunk(images)
        wanted = F.conv2d(F.pad(images, pads), weight, bias, stride=stem[2]).relu()
        torch.testing.assert_close(found, wanted)
        grid = tuple(-(-side // stem[2]) for side in size)
        assert found.shape[2:] == made(images).activations.shape[2:] == made.grid(*size) == grid


def test_padding_changes_no_name_and_no_size_of_weights() -> None:
    shapes = [
        {name: tensor.shape for name, tensor in made.state_dict().items()}
        for made in (primary(), primary(stem_padding="same"))
    ]
    assert shapes[0] == shapes[1]


def test_images_are_normalised_before_zeros_are_put_around_them() -> None:
    made = primary(stem_padding="same", image_norm=True)
    images = 3 * torch.randn(4, 2, 12, 12) + torch.tensor([1.0, -5.0])[:, None, None]
    plain = primary(stem_padding="same")
    variance, mean = torch.var_mean(images, (0, 2, 3), correction=0)

    def shown(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return (images - mean[:, None, None]) / (variance + 1e-3).sqrt()[:, None, None]

    for found, wanted in zip(made(images), plain(shown(mean, variance)), strict=True):
        torch.testing.assert_close(found, wanted)
    made(images)
    kept = 0.999**2
    running = (1 - kept) * mean, kept + (1 - kept) * images.var((0, 2, 3))
    made.eval()
    for found, wanted in zip(made(images), plain(shown(*running)), strict=True):
        torch.testing.assert_close(found, wanted)
    assert parameter_count(made) == parameter_count(plain), "no scale and no shift is learned"


def test_both_branches_see_normalised_images() -> None:
    torch.manual_seed(0)
    made = PrimaryCapsules(1, 4, image_norm=True).train()
    torch.manual_seed(0)
    plain = PrimaryCapsules(1, 4).train()
    images = 50 * torch.randn(4, 1, 8, 8) + 200
    variance, mean = torch.var_mean(images, correction=0)
    for found, wanted in zip(made(images), plain((images - mean) / (variance + 1e-3).sqrt()), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_convolutions_start_xavier_with_small_biases() -> None:
    torch.manual_seed(0)
    made = PrimaryCapsules(1, 64, pose="matrix", stem=(256, 5, 2), head_norm=False, convolutions="xavier")
    fans = {"pose_trunk": 25 * (1 + 256), "pose_head": 256 + 1024, "activation_head": 256 + 64}
    for name, fan in fans.items():
        weight, bias = (made.state_dict()[f"{name}.0.{kind}"] for kind in ("weight", "bias"))
        limit = math.sqrt(6 / fan)
        assert 0.98 * limit < weight.abs().max() <= limit
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.03)
        assert 0.01 < bias.abs().max() <= 0.02
        assert bias.std().item() == pytest.approx(0.0088, rel=0.25), "of a normal cut at two deviations"


def test_the_published_em_ibm_is_made_of_them() -> None:
    network = build("em-ibm-published", channels=1, classes=5, seed=0)
    assert isinstance(network, CapsuleNetwork)
    assert parameter_count(network) == 67_154, "as its public code counts, on single views"
    assert network.primary.grid(32, 32) == (16, 16)
    assert network.votes_by_layer(32, 32) == [49 * 9 * 8 * 16, 25 * 9 * 16 * 16, 25 * 16 * 5]
    assert network.least_size == 13
    assert network.eval()(torch.randn(1, 1, 13, 13)).activations.shape == (1, 5)
    settings = network.settings
    assert (settings.stem_padding, settings.image_norm, settings.convolutions) == ("same", True, "xavier")
    assert network.primary.pose_trunk[0].weight.abs().max() < 0.061, "√(6 / (25 · 65))"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stem_padding": "same"}, "stem_padding without a stem"),
        ({"stem": (4, 5, 2), "stem_padding": "sane"}, "unknown stem_padding 'sane': did you mean 'same'"),
        ({"convolutions": "glorot"}, "unknown convolutions 'glorot'"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        build("qcn-small", channels=1, classes=2, **settings)

"""Attacks against classifiers whose worst case is known in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.robustness import (
    Ball,
    apgd,
    bim,
    carlini_wagner,
    cross_entropy,
    deepfool,
    distances,
    dlr,
    fgsm,
    margin,
    pgd,
    square,
)
from quatcaps.robustness.adaptive import ENOUGH, checkpoints
from quatcaps.robustness.objectives import misclassified, of_scores, with_gradient
from quatcaps.robustness.squares import share_at, squares

SHAPE = (1, 4, 4)
EPSILON = 0.05


def linear(classes: int = 2, seed: int = 0, scale: float = 1.0) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A linear classifier without bias about grey, and its weights (classes, C, H, W)."""
    weights = torch.randn(classes, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda images: scale * (images - 0.5).flatten(1) @ weights.flatten(1).T, weights


def near_grey(classifier: Callable[[Tensor], Tensor], count: int = 40) -> tuple[Tensor, Tensor]:
    """Images that are far from black and white, and the classes that they have."""
    generator = torch.Generator().manual_seed(1)
    images = 0.5 + 0.2 * (2 * torch.rand(count, *SHAPE, generator=generator, dtype=torch.float64) - 1)
    return images, classifier(images).argmax(1)


ATTACKS: dict[str, Callable[..., Tensor]] = {
    "fgsm": fgsm,
    "bim": lambda *given: bim(*given, steps=5),
    "pgd": lambda *given: pgd(*given, steps=10, restarts=2),
    "apgd-ce": lambda *given: apgd(*given, steps=20),
    "apgd-margin": lambda *given: apgd(*given, steps=20, loss=margin),
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("epsilon", [0.01, 0.03, EPSILON])
def test_a_linear_classifier_breaks_where_it_can(name: str, epsilon: float) -> None:
    """Within ε, w · x changes by at most ε ‖w‖₁: exactly the images of smaller margin break."""
    classifier, weights = linear()
    images, labels = near_grey(classifier)
    reach = epsilon * (weights[0] - weights[1]).abs().sum()
    breakable = -margin(classifier(images), labels) < reach
    assert 0 < breakable.sum() < len(images)
    found = ATTACKS[name](classifier, images, labels, epsilon)
    assert torch.equal(misclassified(classifier(found), labels), breakable)


def test_one_step_on_a_linear_classifier_is_the_corner() -> None:
    classifier, weights = linear()
    images, labels = near_grey(classifier)
    towards = torch.where(labels[:, None, None, None] == 0, weights[1] - weights[0], weights[0] - weights[1]).sign()
    torch.testing.assert_close(fgsm(classifier, images, labels, EPSILON), images + EPSILON * towards)


def short_search(*given: Any) -> Tensor:
    return carlini_wagner(*given, steps=60, searches=5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("attack", "classes"), [(deepfool, 4), (short_search, 2)])
def test_the_nearest_image_of_a_linear_classifier(attack: Callable[..., Tensor], classes: int) -> None:
    """‖x' − x‖ = margin / ‖w₁ − w₀‖; with several classes the least over the others."""
    classifier, weights = linear(classes)
    images, labels = near_grey(classifier, 8)
    scores = classifier(images)
    rows = torch.arange(len(images))
    gaps = scores[rows, labels][:, None] - scores
    norms = (weights[labels][:, None] - weights).flatten(2).norm(dim=2)
    exact = (gaps / norms.clamp(min=1e-9)).scatter(1, labels[:, None], torch.inf).amin(1)
    found = attack(classifier, images, labels)
    assert misclassified(classifier(found), labels).all()
    measured = distances(images, found)
    assert (measured >= exact - 1e-9).all()
    torch.testing.assert_close(measured, exact, rtol=0.03, atol=6e-3 if attack is short_search else 1e-5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("attack", [deepfool, carlini_wagner])
@pytest.mark.parametrize("ground", [0.0, 1.0])
def test_black_and_white_pixels_move(attack: Callable[..., Tensor], ground: float) -> None:
    """Where the change of variables by tanh is flat. Each of 64 pixels must move by 0.1."""

    def brighter(images: Tensor) -> Tensor:
        mean = (images - ground).mean((1, 2, 3)) * (1 - 2 * ground)
        return 100 * torch.stack([torch.full_like(mean, 0.1), mean], 1)

    images = torch.full((1, 1, 8, 8), ground)
    found = attack(brighter, images, torch.tensor([0]))
    assert distances(images, found).item() == pytest.approx(0.8, rel=0.02)


def test_what_is_misclassified_stays_as_it_is() -> None:
    classifier, _ = linear()
    images, labels = near_grey(classifier)
    assert torch.equal(deepfool(classifier, images, 1 - labels), images)
    random = pgd(classifier, images, 1 - labels, 1e-6, steps=3)
    torch.testing.assert_close(random, images, atol=2e-6, rtol=0)


@pytest.mark.parametrize("epsilon", [0.02, 0.9])
@pytest.mark.parametrize("name", [*ATTACKS, "square"])
def test_perturbations_stay_in_the_ball_and_in_the_image(name: str, epsilon: float) -> None:
    """Also where the radius differs by image and channel."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    images, labels = torch.rand(10, 3, 4, 4).round(decimals=1), torch.arange(10) % 3
    attack = ATTACKS.get(name) or (lambda *given: square(*given, queries=30))
    for radius in (torch.tensor(epsilon), epsilon * torch.rand(10, 3, 1, 1), epsilon * torch.rand(1, 3, 1, 1)):
        found = attack(network, images, labels, radius if radius.ndim else float(radius))
        assert not found.requires_grad
        assert ((found - images).abs() <= radius + 1e-6).all()
        assert found.min() >= 0
        assert found.max() <= 1
        assert not torch.equal(found, images)


def test_squares_find_their_way_without_gradients() -> None:
    """Also where the scores have no gradient at all."""
    classifier, _ = linear()
    images, labels = near_grey(classifier)

    def stepped(pixels: Tensor) -> Tensor:
        return (8 * classifier(pixels)).round()

    found = square(stepped, images, labels, 0.1, queries=200)
    assert misclassified(stepped(found), labels).float().mean() > 0.5
    assert misclassified(stepped(pgd(stepped_with_gradient(stepped), images, labels, 0.1)), labels).float().mean() < 0.5
    sides = [round((share_at(query, 1000) * 100) ** 0.5) for query in (1, 10, 100, 999)]
    assert sides == sorted(sides, reverse=True)
    window = squares(torch.tensor([[0.0, 0.999], [0.0, 0.999]]), 2, 5, 4)[:, 0]
    assert window.sum((1, 2)).tolist() == [4, 4]
    assert window[0, :2, :2].all()
    assert window[1, 3:, 2:].all()


def stepped_with_gradient(classifier: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same scores, with a gradient of 0."""
    return lambda pixels: classifier(pixels) + 0 * pixels.sum((1, 2, 3))[:, None]


def test_auto_pgd_halves_its_steps_where_they_are_of_no_use() -> None:
    """A narrow ridge that steps of 2 ε jump over: PGD's last image is on one side of it, Auto-PGD's is near its top."""

    def ridge(images: Tensor) -> Tensor:
        high = -((images - 0.511).abs()).sum((1, 2, 3))
        return torch.stack([torch.ones_like(high), high], 1)

    images, labels = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.tensor([0])
    found = apgd(ridge, images, labels, 0.1, steps=100)
    assert float((found - 0.511).abs().max()) < 1e-3
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert 0 < ENOUGH < 1


def test_losses_of_single_images() -> None:
    scores, labels = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 0])
    assert margin(scores, labels).tolist() == [-2.0, 2.0]
    torch.testing.assert_close(dlr(scores, labels), torch.tensor([-2 / 3, 1.0]))
    torch.testing.assert_close(dlr(7 * scores + 3, labels), dlr(scores, labels))
    torch.testing.assert_close(cross_entropy(scores, labels), -scores.log_softmax(1)[:, 0])
    with pytest.raises(QuatcapsError, match="the DLR loss of 2 classes: it needs at least 3"):
        dlr(scores[:, :2], labels)


def test_a_gradient_that_is_not_finite_is_none() -> None:
    def flat(images: Tensor) -> Tensor:
        spread = images.var((1, 2, 3), correction=0).sqrt()
        return torch.stack([spread, -spread], 1)

    _, gradient = with_gradient(of_scores(flat), torch.full((1, 1, 2, 2), 0.5), torch.tensor([0]))
    assert gradient.eq(0).all()


def test_the_same_seed_draws_the_same_starts() -> None:
    classifier, _ = linear(3)
    images, labels = near_grey(classifier)
    runs = [
        attack(classifier, images, labels, EPSILON, 3, generator=torch.Generator().manual_seed(seed))
        for attack in (pgd, apgd, square)
        for seed in (0, 0, 1)
    ]
    for first in range(0, 9, 3):
        assert torch.equal(runs[first], runs[first + 1])
        assert not torch.equal(runs[first], runs[first + 2])


def test_more_starts_break_no_less() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    images = torch.rand(60, *SHAPE)
    labels = network(images).argmax(1)
    once, often = (pgd(network, images, labels, 0.05, 4, restarts) for restarts in (1, 6))
    broken = [misclassified(network(found), labels) for found in (once, often)]
    assert (broken[0] <= broken[1]).all()


@pytest.mark.parametrize("epsilon", [0, -0.1, 1.5, float("nan"), float("inf")])
def test_epsilon_has_bounds(epsilon: float) -> None:
    with pytest.raises(QuatcapsError, match=r"ε = .*: pixels lie in \[0, 1\], it must be above 0 and at most 1"):
        Ball.around(torch.zeros(1, *SHAPE), epsilon)
    with pytest.raises(QuatcapsError, match=r"for 8/255 give 0\.0314"):
        Ball.around(torch.zeros(1, *SHAPE), 8.0)


ALL = {**ATTACKS, "square": square, "deepfool": deepfool, "cw": carlini_wagner}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("pixel", "words"),
    [
        (torch.tensor(200.0), "from 0 to 200"),
        (torch.tensor(-0.1), "from -0.1 to 0"),
        (torch.tensor(float("nan")), "nan"),
    ],
)
def test_pixels_have_bounds(name: str, pixel: Tensor, words: str) -> None:
    """Others would be clipped to [0, 1], which is no small change."""
    images = torch.zeros(1, *SHAPE)
    images[0, 0, 1, 1] = pixel
    given = () if name in ("deepfool", "cw") else (EPSILON,)
    with pytest.raises(QuatcapsError, match=rf"images .*{words}.*pixels in \[0, 1\]"):
        ALL[name](linear()[0], images, torch.zeros(1, dtype=torch.long), *given)
    with pytest.raises(QuatcapsError, match="divide bytes by 255"):
        ALL[name](linear()[0], images.to(torch.uint8), torch.zeros(1, dtype=torch.long), *given)


@pytest.mark.parametrize("attack", [bim, pgd, apgd])
def test_an_attack_takes_a_step_at_least(attack: Callable[..., Tensor]) -> None:
    with pytest.raises(QuatcapsError, match="0 steps: at least 1 is needed"):
        attack(linear()[0], torch.zeros(1, *SHAPE, dtype=torch.float64), torch.tensor([0]), EPSILON, steps=0)

"""Attacks that go to one other class after the other, against worst cases that are known: Auto-PGD, and FAB with the
projection that it walks by."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.robustness import Ball, apgd, targeted_apgd, targeted_dlr, targeted_fab
from quatcaps.robustness.boundary import lengths, nearest, projection, step
from quatcaps.robustness.chance import Chance
from quatcaps.robustness.objectives import misclassified, other_classes

SHAPE = (2, 3, 4)
CLASSES = 5
ATTACKS: dict[str, Callable[..., Tensor]] = {
    "apgd-t": lambda *given: targeted_apgd(*given, steps=20),
    "fab-t": lambda *given: targeted_fab(*given, steps=10),
}


def linear(dtype: torch.dtype = torch.float64) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A linear classifier about grey, and its weights (classes, C, H, W)."""
    weights = torch.randn(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    return lambda images: (images - 0.5).flatten(1) @ weights.flatten(1).T, weights


def images_of(classifier: Callable[[Tensor], Tensor], reach: float = 0.2, dtype: torch.dtype = torch.float64):
    """40 images up to `reach` from grey, and the classes that they have."""
    shares = torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    images = 0.5 + reach * (2 * shares - 1)
    return images, classifier(images).argmax(1)


def least(points: Tensor, weights: Tensor, rise: Tensor, radius: Tensor) -> Tensor:
    """(N,) the least λ with |δ| ≤ λ `radius`, points + δ in [0, 1] and weights · δ = rise, by bisection: the changes
    that λ allows are a box, whose weights · δ are all between the least and the largest. Infinite where none does."""
    weights = weights * rise.sign()[:, None, None, None]
    low, high = torch.zeros_like(rise), torch.full_like(rise, 1e6)

    def reaches(times: Tensor) -> Tensor:
        far = times[:, None, None, None] * radius
        ends = weights * torch.maximum(-far, -points), weights * torch.minimum(far, 1 - points)
        return torch.maximum(*ends).flatten(1).sum(1) >= rise.abs() - 1e-12

    possible = reaches(high)
    for _ in range(60):
        middle = (low + high) / 2
        enough = reaches(middle)
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(possible, high, torch.inf)


@settings(max_examples=40, deadline=None)
@given(
    pixels=st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8, 1.0]), min_size=5, max_size=5),
    normal=st.lists(st.sampled_from([-2.0, -0.3, 0.0, 0.0, 1e-3, 0.7, 3.0]), min_size=5, max_size=5),
    radius=st.lists(st.sampled_from([0.01, 0.1, 0.3]), min_size=5, max_size=5),
    rise=st.floats(-3, 3),
)
def test_projections_are_the_smallest_changes(
    pixels: list[float], normal: list[float], radius: list[float], rise: float
) -> None:
    """On a hyperplane that the box does not reach, the nearest point of it to that is a corner."""
    points, weights, unit = (
        torch.tensor(each, dtype=torch.float64).view(1, 5, 1, 1) for each in (pixels, normal, radius)
    )
    goal = torch.tensor([rise], dtype=torch.float64)
    wanted, change = least(points, weights, goal, unit), projection(points, weights, goal, unit)
    assert ((points + change >= 0) & (points + change <= 1)).all()
    if wanted.isfinite():
        torch.testing.assert_close((weights * change).sum().view(1), goal)
        torch.testing.assert_close(lengths(change, unit), wanted)
    else:
        towards = weights * goal.sign()
        corner = torch.where(towards > 0, 1 - points, torch.where(towards < 0, -points, 0))
        torch.testing.assert_close(change, corner)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_projections_are_finite(dtype: torch.dtype, scale: float) -> None:
    """Also without a gradient, on the hyperplane, and where a channel may not change."""
    points = torch.rand(6, *SHAPE, dtype=dtype).round(decimals=1)
    weights = scale * torch.randn(6, *SHAPE, dtype=dtype)
    radius = torch.tensor([0.1, 0.0], dtype=dtype).view(1, 2, 1, 1).expand(6, -1, 1, 1)
    rise = torch.tensor([-1.0, -1e-30, 0.0, 1e-30, 1.0, 1e30], dtype=dtype)
    change = projection(points, weights, rise, radius)
    assert change.isfinite().all()
    assert change[:, 1].eq(0).all()
    assert ((points + change >= 0) & (points + change <= 1)).all()
    assert lengths(change, radius).isfinite().all()
    assert change.eq(0).all() or scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fab_finds_the_nearest_image_of_a_linear_classifier(dtype: torch.dtype) -> None:
    """To every class, in units of an ε that differs by image and channel, where some pixels come to 0 or 1."""
    classifier, weights = linear(dtype)
    images, labels = (each[:6] for each in images_of(classifier, 0.5, dtype))
    radius = (1e-4 * (0.5 + torch.rand(6, 2, 1, 1))).to(dtype)
    scores, exact, measured = classifier(images), [], []
    for targets in other_classes(scores, labels).unbind(1):
        normal, gap = weights[targets] - weights[labels], scores.gather(1, labels[:, None]) - scores
        exact.append(
            least(*(each.double() for each in (images, normal, gap.gather(1, targets[:, None])[:, 0], radius)))
        )
        measured.append(
            lengths(nearest(classifier, labels, targets, Ball(images, radius), 20) - images, radius).double()
        )
    wanted = torch.stack(exact).amin(0)
    assert (torch.stack(measured).amin(0) >= 0.9999 * wanted).all()
    torch.testing.assert_close(torch.stack(measured).amin(0), wanted, rtol=5e-3, atol=0)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_linear_classifier_breaks_where_it_can(name: str) -> None:
    """Exactly the images whose nearest boundary is within ε, at an ε for each image and channel."""
    classifier, weights = linear()
    images, labels = images_of(classifier)
    radius = 0.005 + 0.02 * torch.rand(40, 2, 1, 1, dtype=torch.float64)
    reach = (radius.view(40, 1, 2) * (weights[labels][:, None] - weights).abs().sum((3, 4))).sum(2)
    scores = classifier(images)
    gaps = scores.gather(1, labels[:, None]) - scores
    breakable = ((gaps < reach) & (gaps > 0)).any(1)
    assert 10 < breakable.sum() < 30
    found = ATTACKS[name](classifier, images, labels, radius)
    assert torch.equal(misclassified(classifier(found), labels), breakable)
    assert ((found - images).abs() <= radius + 1e-12).all()


@pytest.mark.parametrize(("u", "v", "place"), [(0.2, 0.5, (0.53, 0.48)), (0.3, 0.6, (0.58, 0.47))])
def test_fab_walks_along_a_curved_boundary(u: float, v: float, place: tuple[float, float]) -> None:
    """Out of an oval, of which the gradient on the image shows to a farther side: to the nearest point of many."""

    def oval(images: Tensor) -> Tensor:
        left, right = (images - 0.5).flatten(1).unbind(1)
        beyond = ((left + right) / u) ** 2 + ((left - right) / v) ** 2 - 1
        return torch.stack([torch.zeros_like(beyond), beyond], 1)

    image = torch.tensor(place, dtype=torch.float64).view(1, 1, 1, 2)
    turn = torch.linspace(0, 2 * torch.pi, 10_001, dtype=torch.float64)
    edge = 0.5 + torch.stack([u * turn.cos() + v * turn.sin(), u * turn.cos() - v * turn.sin()], 1) / 2
    found = nearest(oval, torch.tensor([0]), torch.tensor([1]), Ball.around(image, 1e-4), 100)
    wanted = (edge - image.view(1, 2)).abs().amax(1).min()
    torch.testing.assert_close((found - image).abs().max(), wanted, rtol=2e-3, atol=0)


def test_large_gradients_have_finite_products() -> None:
    """The sum over the pixels of the gradient times the way from the image is 0, and its parts are infinite."""
    original, moved = torch.full((1, *SHAPE), 0.9), torch.full((1, *SHAPE), 0.1)
    signs = torch.tensor([1.0, -1.0]).repeat_interleave(12).view(SHAPE)

    def steep(images: Tensor, slope: float) -> Tensor:
        rise = (slope * signs * (images - images.detach())).sum((1, 2, 3))
        return torch.stack([torch.full_like(rise, 0.1 * slope), rise], 1)

    labels, targets, ball = torch.tensor([0]), torch.tensor([1]), Ball.around(original, 0.1)
    large, small = (step(lambda images, k=k: steep(images, k), moved, labels, targets, ball) for k in (3e38, 1.0))
    torch.testing.assert_close(large, small)


def test_targets_come_in_the_order_of_their_scores() -> None:
    scores = torch.tensor([[3.0, 1.0, 0.0, 2.0], [0.0, 2.0, 1.0, 3.0]])
    assert other_classes(scores, torch.tensor([0, 1])).tolist() == [[3, 1, 2], [3, 2, 0]]
    assert other_classes(torch.rand(2, 20), torch.tensor([0, 1])).shape == (2, 9)


def test_every_class_is_a_target() -> None:
    """The class of the second-largest score on the image is nowhere the largest, another one is at one corner."""

    def slopes(images: Tensor) -> Tensor:
        bright = images.mean((1, 2, 3)) - 0.5
        other = [0.9 - 0.2 * bright, 20 * bright - 1, -1 + 0 * bright, -2 + 0 * bright]
        return torch.stack([torch.ones_like(bright), *other], 1)

    images, labels = torch.full((3, *SHAPE), 0.5, dtype=torch.float64), torch.zeros(3, dtype=torch.long)
    for attack in ATTACKS.values():
        assert misclassified(slopes(attack(slopes, images, labels, 0.2)), labels).all()
    assert not misclassified(slopes(apgd(slopes, images, labels, 0.2, 20, loss=first_target)), labels).any()


@pytest.mark.parametrize("name", ATTACKS)
def test_groups_together_are_attacked_as_alone(name: str) -> None:
    """Whichever other images stand beside them, of another ε too; in float32."""
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(24, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES)
    )
    images, radius = torch.rand(12, *SHAPE), torch.tensor([0.05, 0.15, 0.1]).repeat_interleave(4).view(12, 1, 1, 1)
    labels = network(images).argmax(1)

    def attacked(part: slice, seeds: list[int]) -> Tensor:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        given = (network, images[part], labels[part], radius[part], 3)
        if name == "fab-t":
            return targeted_fab(*given)
        return targeted_apgd(*given, 2, Chance(generators, [4] * len(seeds)))

    together = attacked(slice(0, 12), [0, 1, 2])
    alone = torch.cat([attacked(slice(4 * k, 4 * k + 4), [k]) for k in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    assert 0 < misclassified(network(together), labels).sum() < 12


def first_target(scores: Tensor, labels: Tensor) -> Tensor:
    return targeted_dlr(scores, labels, torch.ones_like(labels))


def test_the_targeted_ratio() -> None:
    scores, labels = torch.tensor([[5.0, 1.0, 0.0, 2.0, -7.0]]), torch.tensor([0])
    assert targeted_dlr(scores, labels, torch.tensor([3])).item() == pytest.approx(-3 / 4.5)
    assert targeted_dlr(scores, torch.tensor([3]), torch.tensor([4])).item() == pytest.approx(-9 / 4.5)
    torch.testing.assert_close(
        targeted_dlr(7 * scores + 3, labels, labels + 1), targeted_dlr(scores, labels, labels + 1)
    )
    with pytest.raises(QuatcapsError, match="the targeted DLR loss of 3 classes: it needs at least 4"):
        targeted_dlr(scores[:, :3], labels, labels)


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_gradient_nothing_is_found_and_nothing_is_nan(name: str) -> None:
    def flat(images: Tensor) -> Tensor:
        spread = images.var((1, 2, 3), correction=0).sqrt()
        return torch.stack([1 + 0 * spread, spread, -spread, 0 * spread], 1)

    images, labels = torch.full((2, *SHAPE), 0.5), torch.zeros(2, dtype=torch.long)
    found = ATTACKS[name](flat, images, labels, 0.1)
    assert torch.equal(found, images) or name != "fab-t"
    assert ((found - images).abs() <= 0.1 + 1e-6).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_refused(name: str) -> None:
    classifier, _ = linear()
    images, labels = images_of(classifier)
    with pytest.raises(QuatcapsError, match=r"pixels in \[0, 1\]"):
        ATTACKS[name](classifier, 255 * images, labels, 0.1)
    with pytest.raises(QuatcapsError, match="at most 1; for 8/255 give"):
        ATTACKS[name](classifier, images, labels, 8)
    with pytest.raises(QuatcapsError, match="0 steps: at least 1 is needed"):
        (targeted_apgd if name == "apgd-t" else targeted_fab)(classifier, images, labels, 0.1, steps=0)

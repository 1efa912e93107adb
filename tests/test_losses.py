from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quatcaps.losses import balanced_weights, cross_entropy, margin, mixed_cross_entropy, quick_spread_loss, spread_loss
from quatcaps.losses.fused import spread_and_gradient


def spread_by_loops(activations: list[list[float]], labels: list[int], m: float) -> float:
    total = 0.0
    for row, true in zip(activations, labels, strict=True):
        for i, activation in enumerate(row):
            if i != true and m - (row[true] - activation) > 0:
                total += (m - (row[true] - activation)) ** 2
    return total / len(labels)


def test_equation_13_by_hand() -> None:
    activations = torch.tensor([[0.9, 0.6, 0.1, 0.95]], dtype=torch.float64)
    expected = (0.5 - 0.3) ** 2 + 0 + (0.5 + 0.05) ** 2
    assert spread_loss(activations, torch.tensor([0]), 0.5).item() == pytest.approx(expected)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 5), classes=st.integers(2, 6), m=st.floats(0.0, 1.0))
def test_spread_loss_by_loops(seed: int, images: int, classes: int, m: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    activations = torch.rand(images, classes, dtype=torch.float64, generator=generator)
    labels = torch.randint(classes, (images,), generator=generator)
    expected = spread_by_loops(activations.tolist(), labels.tolist(), m)
    for given_margin in (m, torch.tensor(m, dtype=torch.float64)):
        found = spread_loss(activations, labels, given_margin).item()
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("images", "classes"), [(1, 2), (5, 3), (64, 5), (300, 10), (7, 1000)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernel_has_the_loss_and_its_gradient(images: int, classes: int, weighted: bool) -> None:
    pytest.importorskip("triton")
    activations = torch.rand(images, classes, device=DEVICE)
    labels = torch.randint(classes, (images,), device=DEVICE)
    weights = torch.rand(classes, device=DEVICE) + 0.5 if weighted else None
    found, wanted = activations.clone().requires_grad_(), activations.double().requires_grad_()
    loss, _ = spread_and_gradient(found, labels, torch.tensor(0.6, device=DEVICE), weights)
    other = spread_loss(wanted, labels, 0.6, None if weights is None else weights.double())
    (3 * loss).backward()
    (3 * other).backward()
    torch.testing.assert_close(loss.double(), other, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("place", [(1, 0), (1, 2)], ids=["another class", "the true one"])
def test_the_kernel_hides_no_nan(place: tuple[int, int]) -> None:
    pytest.importorskip("triton")
    activations = torch.rand(4, 3, device=DEVICE)
    activations[place] = float("nan")
    labels = torch.full((4,), 2, device=DEVICE)
    assert spread_and_gradient(activations, labels, torch.tensor(0.6, device=DEVICE), None)[0].isnan()


def test_the_quick_loss_is_the_loss() -> None:
    """By the formula on a CPU, and wherever the kernel cannot."""
    for images in (0, 4):
        activations, labels = (
            torch.rand(images, 3, device=DEVICE),
            torch.zeros(images, dtype=torch.int32, device=DEVICE),
        )
        for wanted_margin in (0.5, torch.tensor(0.5, device=DEVICE)):
            found, wanted = (each(activations, labels, wanted_margin) for each in (quick_spread_loss, spread_loss))
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_spread_loss_is_zero_beyond_the_margin() -> None:
    activations = torch.tensor([[0.1, 0.95, 0.0]], requires_grad=True)
    loss = spread_loss(activations, torch.tensor([1]), 0.8)
    loss.backward()
    assert loss.item() == 0
    assert not activations.grad.any()


def test_spread_loss_gradient() -> None:
    activations = torch.tensor([[0.2, 0.7, 0.4], [0.9, 0.05, 0.3]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 2])
    assert torch.autograd.gradcheck(lambda values: spread_loss(values, labels, 0.3), activations)
    assert torch.autograd.gradgradcheck(lambda values: spread_loss(values, labels, 0.3), activations)


@pytest.mark.parametrize("smoothing", [None, 0.0, 0.2])
def test_class_weights_multiply_the_loss_of_each_image(smoothing: float | None) -> None:
    """`smoothing`: of cross-entropy; None: the spread loss."""
    scores, labels = torch.rand(6, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 2, 2, 2])
    weights = torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64)

    def loss(values: torch.Tensor, names: torch.Tensor, given: torch.Tensor | None = None) -> torch.Tensor:
        if smoothing is None:
            return spread_loss(values, names, 0.8, given)
        return cross_entropy(values, names, 3.0, smoothing, given)

    one_by_one = [loss(scores[number, None], labels[number, None]) for number in range(6)]
    wanted = sum(weights[label] * each for label, each in zip(labels, one_by_one, strict=True)) / 6
    assert loss(scores, labels, weights).item() == pytest.approx(wanted.item(), rel=1e-12)
    halves = (loss(scores[part], labels[part], weights) for part in (slice(3), slice(3, 6)))
    assert sum(halves).item() / 2 == pytest.approx(wanted.item(), rel=1e-12), "parts of a batch add up"
    ones = torch.ones(3, dtype=torch.float64)
    assert loss(scores, labels, ones).item() == pytest.approx(loss(scores, labels).item(), rel=1e-12)


def test_balanced_weights_give_every_class_as_much() -> None:
    labels = torch.tensor([0] * 8 + [1] * 2 + [3])
    weights = balanced_weights(labels, 4)
    by_class = [weights[labels[labels == label]].sum().item() for label in (0, 1, 3)]
    assert by_class == pytest.approx([11 / 3] * 3)
    assert weights[labels].mean().item() == pytest.approx(1)
    assert weights[2] == 1, "no image has it"


def test_equation_16() -> None:
    assert margin(0) == pytest.approx(0.2 + 0.79 / (1 + math.e**4))
    assert margin(100_000) == pytest.approx(0.2 + 0.79 / (1 + math.e**2))
    assert margin(200_000) == pytest.approx(0.595)
    assert margin(300_000) == pytest.approx(0.2 + 0.79 / (1 + math.e**-2))
    assert margin(400, scale=100.0) == pytest.approx(0.595)


def test_the_margin_rises_to_nine_tenths_and_stays() -> None:
    steps = [margin(step) for step in range(0, 1_000_000, 5_000)]
    reached = next(index for index, value in enumerate(steps) if value == 0.9)
    assert all(before < after for before, after in pairwise(steps[:reached]))
    assert set(steps[reached:]) == {0.9}
    # 0.2 + 0.79 σ(x) = 0.9 at x = log(70/9)
    assert (reached - 1) * 5_000 < 50_000 * (4 + math.log(70 / 9)) <= reached * 5_000
    assert margin(10**15) == 0.9


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_cross_entropy_by_loops(scale: float) -> None:
    torch.manual_seed(0)
    scores, labels = torch.rand(4, 3, dtype=torch.float64), torch.tensor([2, 0, 1, 1])
    expected = 0.0
    for row, true in zip(scores.tolist(), labels.tolist(), strict=True):
        expected -= math.log(math.exp(scale * row[true]) / sum(math.exp(scale * score) for score in row)) / 4
    assert cross_entropy(scores, labels, scale).item() == pytest.approx(expected)
    logs = (scale * scores).log_softmax(1)
    smoothed = -(0.7 * logs[range(len(labels)), labels] + 0.3 * logs.mean(1)).mean()
    assert cross_entropy(scores, labels, scale, 0.3).item() == pytest.approx(smoothed.item())
    assert torch.autograd.gradcheck(lambda values: cross_entropy(values, labels, scale), scores.requires_grad_())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_mixed_images_want_two_classes(smoothing: float, weighted: bool) -> None:
    """One by one, by the probabilities that are wanted; without another part it is the cross-entropy."""
    scores = torch.rand(5, 3, dtype=torch.float64)
    labels, others = torch.tensor([0, 1, 2, 2, 1]), torch.tensor([1, 0, 2, 1, 1])
    parts = torch.tensor([0.1, 0.5, 0.3, 0.0, 0.2], dtype=torch.float64)
    weights = torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64) if weighted else None
    wanted = 0.0
    for row, label, other, part in zip(scores, labels, others, parts, strict=True):
        logs = (4 * row).log_softmax(0)
        for name, share in ((label, 1 - part), (other, part)):
            smoothed = -((1 - smoothing) * logs[name] + smoothing * logs.mean())
            wanted += share * smoothed * (1 if weights is None else weights[name]) / len(labels)
    how = (4.0, smoothing, weights)
    assert mixed_cross_entropy(scores, labels, others, parts, *how).item() == pytest.approx(wanted.item(), rel=1e-12)
    alone = mixed_cross_entropy(scores, labels, others, torch.zeros(5), *how)
    assert alone.item() == pytest.approx(cross_entropy(scores, labels, *how).item(), rel=1e-12)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: mixed_cross_entropy(s, labels, others, parts, *how), scores)


def test_cross_entropy_takes_extreme_scores() -> None:
    scores = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = cross_entropy(scores, torch.tensor([1]), 10.0)
    loss.backward()
    assert loss.item() == pytest.approx(2e5)
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_labels_of_other_integer_types(dtype: torch.dtype) -> None:
    scores = torch.tensor([[0.2, 0.7, 0.4], [0.9, 0.05, 0.3]])
    labels = torch.tensor([0, 2])
    for loss in (cross_entropy, lambda a, b: spread_loss(a, b, 0.9)):
        torch.testing.assert_close(loss(scores, labels.to(dtype)), loss(scores, labels))

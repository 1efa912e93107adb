"""Intervals over seeds and toys: closed forms where there are any, coverage where there are none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_up import made_up
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from quatcaps.paper.evidence_statistics import (
    WHOLE,
    Estimate,
    Sample,
    difference_of,
    difference_of_means,
    drawn_counts,
    estimate,
    freedom,
    mean_of,
    of_percents,
    sample_of,
    toy_weights,
)
from quatcaps.paper.rows import ROWS
from quatcaps.report.intervals import of_mean, quantile
from quatcaps.training.measure import Rate

TOYS = tuple(f"{name} {number}" for name in ("animal", "car", "human", "plane", "truck") for number in range(5))
IMAGES = np.full(25, 400.0)


def sample(percents: NDArray[np.float64]) -> Sample:
    """Of errors in % by seed and toy."""
    return Sample(percents / 100 * IMAGES, IMAGES, TOYS)


def width(found: Estimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def drawn_effects(random: np.random.Generator, seeds: int, deviations: tuple[float, float, float]) -> Sample:
    """Errors whose seeds, toys and single cells deviate from 20% so much."""
    of_seed, of_toy, of_cell = deviations
    cells = random.normal(0, of_cell, (seeds, 25))
    return sample(20 + random.normal(0, of_seed, (seeds, 1)) + random.normal(0, of_toy, 25) + cells)


def test_without_an_effect_of_toys_the_interval_is_that_of_seeds() -> None:
    """Student's, up to the chance of the draws."""
    values = np.random.default_rng(1).normal(10, 1, 10)
    same = mean_of(sample(np.repeat(values[:, None], 25, 1)))
    alone = mean_of(of_percents(values.tolist()))
    assert (same.mean, same.low, same.high) == pytest.approx((alone.mean, alone.low, alone.high))
    student = of_mean(values.tolist())
    assert student is not None
    assert width(alone) == pytest.approx(student.high - student.low, rel=0.02)
    assert (same.toys, alone.toys) == (25, 0)


def test_without_an_effect_of_seeds_the_variance_is_that_of_toys_within_their_classes() -> None:
    """Σ s²/n over classes: what lies between classes is no chance, as every class keeps its share."""
    toys = np.random.default_rng(2).normal(10, 2, (5, 5)) + np.array([[-6.0], [-3], [0], [3], [6]])
    found = mean_of(sample(np.tile(toys.reshape(1, 25), (10, 1))))
    error = math.sqrt((toys.var(1, ddof=1) / 5).sum()) / 5
    assert width(found) == pytest.approx(2 * 2.0860 * error, rel=0.02), "20 degrees of freedom"
    assert found.mean == pytest.approx(toys.mean())


def test_the_difference_of_seeds_alone_is_welchs() -> None:
    random = np.random.default_rng(6)
    first, second = random.normal(10, 2, 10), random.normal(9, 0.5, 5)
    found = difference_of(of_percents(first.tolist()), of_percents(second.tolist()))
    welch = ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high), rel=0.03, abs=0.03)


def test_draws_are_one_fewer_than_there_are() -> None:
    """Then the variance of their mean is s²/n."""
    counts = drawn_counts(6, np.random.PCG64(0))
    assert np.array_equal(counts.sum(1), np.full(len(counts), 5.0))
    values = np.array([1.0, 4, 2, 8, 5, 7])
    assert (counts @ values / 5).var() == pytest.approx(values.var(ddof=1) / 6, rel=0.04)
    assert np.array_equal(drawn_counts(1, np.random.PCG64(0)), np.ones((len(counts), 1)))


def test_every_class_keeps_its_share() -> None:
    weights = toy_weights((*TOYS, "whale 1"))
    by_class = np.concatenate([weights[:, :25].reshape(-1, 5, 5).sum(2), weights[:, 25:]], axis=1)
    assert np.allclose(by_class, [5, 5, 5, 5, 5, 1])


@pytest.mark.parametrize("deviations", [(1.0, 0.0, 0.5), (0.6, 5.0, 2.0)], ids=["seeds", "toys"])
def test_coverage(deviations: tuple[float, float, float]) -> None:
    """Of 95%, of the mean that other seeds and other toys would have; 160 trials deviate by 1.7%."""
    random = np.random.default_rng(3)
    found = [mean_of(drawn_effects(random, 10, deviations)) for _ in range(160)]
    covered = [each.low <= 20 <= each.high for each in found if each.low is not None and each.high is not None]
    assert 0.9 <= sum(covered) / 160 <= 0.995


def test_what_changes_with_seed_and_toy_at_once_is_counted_once() -> None:
    """Of cells alone: σ²/(seeds · toys) is the variance of a mean, and twice that of a difference; a resample of both
    has three times as much."""
    random = np.random.default_rng(8)
    found = [[drawn_effects(random, 10, (0.0, 0.0, 3.0)) for _ in range(2)] for _ in range(40)]
    error = 3.0 / math.sqrt(10 * 25)
    means = [width(mean_of(first)) for first, _ in found]
    assert np.mean(means) == pytest.approx(2 * 2.1 * error, rel=0.15)
    differences = [width(difference_of(first, second)) for first, second in found]
    assert np.mean(differences) == pytest.approx(2 * 2.05 * math.sqrt(2) * error, rel=0.15)


def test_toys_that_both_systems_find_hard_do_not_blur_their_difference() -> None:
    random = np.random.default_rng(4)
    hard = random.exponential(8, 25)
    first, second = (sample(5 + more + hard + random.normal(0, 0.3, (10, 25))) for more in (1.0, 0.0))
    found = difference_of(first, second)
    assert found.sign == 1
    assert width(found) < 0.5 < 2 < width(mean_of(first))
    back = difference_of(second, first)
    assert back.mean == pytest.approx(-found.mean)
    assert (found.toys, back.sign) == (25, -1)


def test_the_mean_of_two_experiments_draws_toys_once_and_seeds_apart() -> None:
    """What a system does on a toy in both does not average out; what its seeds do there does."""
    random = np.random.default_rng(11)
    own, hard = random.normal(0, 3, 25), random.exponential(8, 25)
    ones, others = (
        [sample(20 + hard + more + random.normal(0, 0.5, (10, 25))) for _ in range(2)] for more in (own, 0.0)
    )
    both, first = difference_of_means(ones, others), difference_of(ones[0], others[0])
    second = difference_of(ones[1], others[1])
    assert both.mean == pytest.approx((first.mean + second.mean) / 2)
    assert width(both) == pytest.approx(width(first), rel=0.05), "it is of toys"
    ones, others = ([drawn_effects(random, 10, (1.0, 0.0, 0.0)) for _ in range(2)] for _ in range(2))
    both, first = difference_of_means(ones, others), difference_of(ones[0], others[0])
    assert width(both) == pytest.approx(width(first) / math.sqrt(2), rel=0.3), "it is of seeds"
    assert both.toys == 25
    elsewhere = Sample(ones[0].errors, ones[0].images, tuple(f"boat {number}" for number in range(25)))
    assert difference_of_means([ones[0], elsewhere], others).toys == 0


def test_systems_on_other_toys_are_compared_by_their_seeds() -> None:
    random = np.random.default_rng(5)
    first = drawn_effects(random, 10, (1.0, 3.0, 0.0))
    second = Sample(first.errors, first.images, tuple(f"boat {number}" for number in range(25)))
    found = difference_of(first, second)
    by_hand = difference_of(of_percents(first.percents.tolist()), of_percents(second.percents.tolist()))
    assert found == by_hand
    assert found.toys == 0
    assert found.sign == 0


def images(random: np.random.Generator, seeds: int, chances: NDArray[np.float64]) -> Sample:
    """Of networks that misclassify each image with some probability."""
    return Sample(
        (random.random((seeds, len(chances))) < chances).astype(float),
        np.ones(len(chances)),
        ("digest",),
        by_image=True,
    )


def test_the_variance_over_seeds_and_images_is_that_of_a_crossed_design() -> None:
    """By loops: σ²/n of seeds, σ²/m of images, and σ²/(n·m) of single cells, each estimated from mean squares."""
    found, (seeds, count) = images(np.random.default_rng(20), 4, np.linspace(0, 0.5, 60)), (4, 60)
    errors, mean = found.errors, found.errors.mean()
    between = sum(count * (errors[s].mean() - mean) ** 2 for s in range(seeds)) / (seeds - 1)
    among = sum(seeds * (errors[:, i].mean() - mean) ** 2 for i in range(count)) / (count - 1)
    left = sum(
        (errors[s, i] - errors[s].mean() - errors[:, i].mean() + mean) ** 2 for s in range(seeds) for i in range(count)
    ) / ((seeds - 1) * (count - 1))
    of_seeds, of_images = (between - left) / count, (among - left) / seeds
    variance = of_seeds / seeds + of_images / count + left / (seeds * count)
    both = mean_of(found)
    free = freedom([between / seeds / count, of_images / count], [seeds - 1, count - 1])
    assert width(both) == pytest.approx(2 * 100 * quantile(free) * math.sqrt(variance))
    assert (both.mean, both.toys) == (pytest.approx(100 * mean), 0)


def two_systems(random: np.random.Generator, seeds: int, count: int, apart: float) -> tuple[Sample, Sample]:
    """That find the same images hard, and each some others; equally good over all images that there could be."""
    hard, own = random.beta(0.3, 0.7, count), random.normal(0, apart, count)
    first, second = (images(random, seeds, np.clip(hard + each, 0, 1)) for each in (own, -own))
    return first, second


def by_seeds_alone(first: Sample, second: Sample) -> Estimate:
    return difference_of(*(of_percents(each.percents.tolist()) for each in (first, second)))


def test_images_that_both_systems_find_hard_do_not_blur_their_difference() -> None:
    """Nor is it as sure as over seeds alone; systems of other images are compared by their seeds."""
    first, second = two_systems(np.random.default_rng(21), 5, 4000, 0.2)
    paired, apart = difference_of(first, second), [mean_of(first), mean_of(second)]
    assert width(by_seeds_alone(first, second)) < width(paired) < 0.75 * math.hypot(*map(width, apart))
    assert difference_of(second, first).mean == pytest.approx(-paired.mean)
    elsewhere = replace(second, toys=("another digest",))
    assert difference_of(first, elsewhere) == by_seeds_alone(first, second)


def by_loops(found: Sample) -> tuple[float, float, float]:
    """The variance of the mean by seeds, by images, and by what changes with both, from mean squares; in points²."""
    errors, (seeds, count), mean = 100 * found.errors, found.errors.shape, 100 * found.errors.mean()
    rows, columns = errors.mean(1), errors.mean(0)
    left = ((errors - rows[:, None] - columns + mean) ** 2).sum() / ((seeds - 1) * (count - 1))
    return rows.var(ddof=1) / seeds, columns.var(ddof=1) / count, left / (seeds * count)


def test_differences_of_unequal_numbers_of_seeds_and_of_two_experiments() -> None:
    """Each system's cells count once, with the square of its weight."""
    random = np.random.default_rng(23)
    first, second = images(random, 3, np.linspace(0, 0.5, 80)), images(random, 5, np.linspace(0, 0.5, 80))
    of_seeds, _, cells = zip(by_loops(first), by_loops(second), strict=True)
    apart = 100 * (first.errors.mean(0) - second.errors.mean(0))
    of_images = apart.var(ddof=1) / 80 - sum(cells)
    assert of_images > 0
    free = freedom([*of_seeds, of_images], [2, 4, 79])
    expected = 2 * quantile(free) * math.sqrt(sum(of_seeds) + of_images)
    assert width(difference_of(first, second)) == pytest.approx(expected)
    once, twice = difference_of(first, second), difference_of_means([first, first], [second, second])
    drawn = zip(*(by_loops(each) for each in (first, first, second, second)), strict=True)
    halved = [sum(each) / 4 for each in drawn]
    of_images = max(0.0, apart.var(ddof=1) / 80 - halved[2])
    free = freedom(
        [*(each / 4 for each in (of_seeds[0], of_seeds[0], of_seeds[1], of_seeds[1])), of_images], [2, 2, 4, 4, 79]
    )
    assert twice.mean == pytest.approx(once.mean)
    assert width(twice) == pytest.approx(2 * quantile(free) * math.sqrt(halved[0] + of_images))


def test_what_images_add_is_never_less_than_nothing() -> None:
    """Where cells happen to explain more than there is, seeds are what is left."""
    found = Sample(np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1.0]]), np.ones(4), ("digest",), by_image=True)
    of_seeds, of_images, cells = by_loops(found)
    assert of_images < cells
    assert width(replace(mean_of(found), low=estimate([found]).low)) == pytest.approx(
        2 * quantile(2) * math.sqrt(of_seeds)
    )


@pytest.mark.parametrize("seeds", [3, 5])
def test_coverage_of_other_images(seeds: int) -> None:
    """Of 95%, of the difference that other seeds have on other images; 400 trials deviate by 1.1%."""
    random = np.random.default_rng(22)
    trials = [two_systems(random, seeds, 1000, 0.3) for _ in range(400)]
    assert 0.92 <= sum(difference_of(*each).sign == 0 for each in trials) / 400 <= 0.98
    assert sum(by_seeds_alone(*each).sign == 0 for each in trials) / 400 < 0.87


def test_samples_of_records_by_image() -> None:
    """Where every record has the same images, and says which were misclassified."""
    bare = [replace(made_up(ROWS["evidence-mnist/cnn"], seed), by_toy={}, digests={"test": "one"}) for seed in range(3)]
    told = [
        replace(each, missed={"test": tuple(range(seed, each.final["test"].errors + seed))})
        for seed, each in enumerate(bare)
    ]
    found = sample_of(told, "test")
    assert found is not None
    assert found.by_image
    assert not found.has_toys
    assert found.errors.shape == (3, 10_000)
    assert found.errors[2, :3].tolist() == [0, 0, 1]
    assert found.percents.tolist() == pytest.approx([each.final["test"].percent for each in bare])
    none = replace(told[0], final={"test": Rate(0, 10_000)}, missed={})
    assert sample_of([none, *told[1:]], "test").by_image, "no errors are of no images"  # type: ignore[union-attr]
    fewer = replace(told[0], final={"test": Rate(told[0].final["test"].errors, 9_999)})
    for other in (bare[0], replace(told[0], digests={"test": "another"}), replace(told[0], digests={}), fewer):
        fallen = sample_of([other, *told[1:]], "test")
        assert fallen is not None
        assert fallen.toys == (WHOLE,)


def test_few_seeds_have_no_interval() -> None:
    assert mean_of(of_percents([1.0, 3.0])) == Estimate(2.0, None, None, seeds_alone=True)
    assert difference_of(of_percents([1.0, 3.0]), of_percents([1.0, 1.5, 2.0])).low is None
    assert Estimate(2.0, None, None).sign == 0
    assert mean_of(of_percents([1.0, 2.0, 3.0])).low is not None


def test_the_same_records_have_the_same_interval() -> None:
    """To the last digit, in every version of NumPy: the first draws are written here."""
    assert np.random.PCG64(0).random_raw(2).tolist() == [11749869230777074271, 4976686463289251617]
    values = [10.0, 11.0, 9.5, 10.2]
    assert mean_of(of_percents(values)) == mean_of(of_percents(values))


def test_samples_of_records() -> None:
    row = ROWS["evidence-azimuth-strict/qcn/best"]
    records = [made_up(row, seed) for seed in range(3)]
    found = sample_of(records, "novel")
    assert found is not None
    assert found.errors.shape == (3, 25)
    assert found.errors[1, 2] == list(records[1].by_toy["novel"].values())[2].errors
    assert found.has_toys
    bare = [made_up(ROWS["evidence-mnist/cnn"], seed) for seed in range(3)]
    for record in bare:
        record.by_toy.clear()
    images = sample_of(bare, "test")
    assert images is not None
    assert not images.has_toys
    assert images.percents.tolist() == pytest.approx([record.final["test"].percent for record in bare])
    assert sample_of(bare, "novel") is None
    records[0].by_toy["novel"].popitem()
    fewer = sample_of(records, "novel")
    assert fewer is not None
    assert not fewer.has_toys, "toys count where every seed has the same"


def test_rounding_is_no_difference() -> None:
    """The same errors in every seed of both: means that differ in their last bits."""
    found = difference_of(of_percents([0.3] * 3), of_percents([0.3] * 10))
    assert (found.mean, found.sign, found.chance) == (0.0, 0, 1.0)


def test_nothing_follows_from_seeds_that_happen_to_have_as_many_errors() -> None:
    found = difference_of(of_percents([0.4] * 3), of_percents([0.3] * 10))
    assert found == Estimate(found.mean, None, None, seeds_alone=True)
    assert found.sign == 0
    errors = np.zeros((3, 100))
    assert mean_of(Sample(errors, np.ones(100), ("digest",), by_image=True)).low is None, "or none at all"
    errors[:, :4] = 1
    assert mean_of(Sample(errors, np.ones(100), ("digest",), by_image=True)).low is not None, "other images have others"

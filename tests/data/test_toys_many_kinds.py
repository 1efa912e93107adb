from __future__ import annotations

import hashlib
import itertools

import pytest
import torch
from torch import Tensor

from quatcaps import QuatcapsError
from quatcaps.data import toys
from quatcaps.data.toys import camera, many
from quatcaps.data.toys.catalogue import CLASSES, Toy, fitted, toy
from quatcaps.data.toys.many import renderer, tiles
from quatcaps.data.toys.many.draws import Draw

SOME = [*range(14), *range(1_000_000, 1_000_004)]


@pytest.fixture(scope="module")
def some() -> dict[tuple[int, int], Toy]:
    return {(category, number): many.kind(category, number) for category in range(5) for number in SOME}


def surface(made: Toy) -> Tensor:
    """Points (n, 3) on the toy's solids."""
    return torch.cat([solid.outline for solid in made.solids])


def numbers_of(made: Toy) -> Tensor:
    return torch.cat([solid.rows for solid in made.solids])


def test_a_kind_is_a_pure_function_of_category_number_and_seed() -> None:
    """These digests were written down once: a kind is the same whatever else was drawn, and in any release."""
    digest = hashlib.sha256()
    for category, number in [(0, 3), (1, 19_999), (2, 1_000_000), (3, 77), (4, 5)]:
        # Rounded, as other platforms' sines may differ in the last place.
        digest.update((surface(many.kind(category, number, seed=2)) * 1e6).round().long().numpy().tobytes())
    assert digest.hexdigest()[:16] == "25e2d716f2ca9f18"


def test_draws_depend_on_their_names_alone() -> None:
    one, other = Draw(0, "car", 5), Draw(0, "car", 5)
    first = [one.share("length"), one.share("width")]
    assert first == [other.share("width"), other.share("length")][::-1]
    assert len({Draw(0, "car", 6).share("length"), Draw(1, "car", 5).share("length"), first[0]}) == 3
    assert Draw(0, "truck", 5).share("length") != first[0]
    shares = [Draw(0, "car", k).share("length") for k in range(400)]
    assert 0.0 <= min(shares) < 0.02
    assert 0.98 < max(shares) < 1.0
    assert abs(sum(shares) / 400 - 0.5) < 0.05


def test_a_few_kinds_show_every_plan() -> None:
    for category in CLASSES:
        plans = [Draw(3, category, number).plan(range(14)) for number in many.numbers("test", 28)]
        assert set(plans) == set(range(14))
        assert max(plans.count(plan) for plan in range(14)) <= 4


def test_training_and_test_kinds_share_nothing(some: dict[tuple[int, int], Toy]) -> None:
    assert not set(many.numbers("train", many.MOST)) & set(many.numbers("test", many.MOST))
    for category in range(5):
        shapes = {numbers_of(some[category, number]).numpy().tobytes() for number in SOME}
        assert len(shapes) == len(SOME)


def test_every_kind_stands_on_the_ground_in_the_middle(some: dict[tuple[int, int], Toy]) -> None:
    for made in some.values():
        low, high = surface(made).amin(0), surface(made).amax(0)
        assert low[2].abs() < 1e-9
        assert ((low + high)[:2].abs() < 1e-9).all()
        assert made.look_at == pytest.approx(float(high[2]) / 2)
        assert len(made.solids) <= tiles.TAGS
        assert numbers_of(made).isfinite().all()


def test_kinds_fill_the_frame_as_toys_do(some: dict[tuple[int, int], Toy]) -> None:
    for member in [(0, 1), (1, 2), (2, 3), (3, 1_000_000), (4, 5)]:
        assert fitted(some[member].solids).look_at == pytest.approx(some[member].look_at, rel=1e-3)


def test_no_part_hangs_in_the_air(some: dict[tuple[int, int], Toy]) -> None:
    """From the first solid one comes to every other one, each overlapping the next."""
    for member, made in some.items():
        clouds = []
        for solid in made.solids:
            middle = solid.outline.mean(0)
            clouds.append(torch.cat([middle + (solid.outline - middle) * share for share in (0.0, 0.4, 0.7, 0.9, 1.0)]))
        everything = torch.cat(clouds).T
        owner = torch.cat([torch.full((len(cloud),), k) for k, cloud in enumerate(clouds)])
        touching = torch.zeros(len(clouds), len(clouds), dtype=torch.bool)
        for k, solid in enumerate(made.solids):
            touching[k, owner[solid.excess(solid.features(everything)) <= 1e-6]] = True
        touching |= touching.T.clone()
        reached = touching[0]
        for _ in range(8):
            reached = touching[reached].any(0)
        assert reached.all(), f"{member}: solids {(~reached).nonzero().flatten().tolist()} hang in the air"


@pytest.mark.parametrize("category", [0, 2, 3, 4])
def test_all_but_people_are_as_wide_to_the_left_as_to_the_right(
    some: dict[tuple[int, int], Toy], category: int
) -> None:
    """So the x axis is the one they look along; nearly, as cargo and legs in mid-stride need not match."""
    for number in SOME:
        points = surface(some[category, number])
        assert points[:, 1].mean().abs() < 0.05
        away = points[points[:, 1].abs() > 0.3]
        if len(away) > 40:
            assert ((away[:, 1] > 0).double().mean() - 0.5).abs() < 0.15


def test_kinds_look_along_x(some: dict[tuple[int, int], Toy]) -> None:
    """What tells front from back: the feet of people, the fins of airplanes."""
    for number in SOME:
        person = some[1, number]
        for ankle, toes in ((1, 3), (5, 7)):  # the lower end of the shin, and the foot
            foot = person.solids[ankle].outline[12:].mean(0)
            assert person.solids[toes].sphere[0][0] > foot[0]
        airplane = surface(some[2, number])
        highest = airplane[airplane[:, 2] > airplane[:, 2].max() - 0.02]
        widest = airplane[airplane[:, 1].abs() > airplane[:, 1].max() - 0.02]
        assert highest[:, 0].mean() < widest[:, 0].mean() + 0.3
        assert airplane[airplane[:, 0] > 0].shape != airplane.shape


def test_animals_have_their_heads_and_trucks_their_cabs_in_front(some: dict[tuple[int, int], Toy]) -> None:
    """So that from the front a toy does not look as it does from behind."""
    views = torch.tensor([0.0, 180.0]), torch.tensor([30.0, 30.0]), torch.tensor([4, 4])
    for category in (0, 3, 4):
        for number in SOME[:2]:
            front, back = many.render(some[category, number], *views, size=24)[:, 0].float()
            assert (front - back).abs().mean() > 1.5


def test_kinds_differ_as_much_as_toys_do() -> None:
    """The part of the samples that one of two silhouettes covers and the other does not, in the mean over pairs."""

    def silhouette(made: Toy) -> Tensor:
        body = tiles.body(made, torch.device("cpu"))
        views = renderer._arranged([(50.0, 40.0, 0), (140.0, 30.0, 0)], body)
        covered = torch.zeros(4 * 48**2)
        covered[renderer._surface(body, views, 24)[0]] = 1.0
        return covered

    def apart(members: list[Toy]) -> float:
        pairs = itertools.combinations([silhouette(made) for made in members], 2)
        return sum(float((one - other).abs().mean()) for one, other in pairs)

    for category in range(5):
        drawn = apart([many.kind(category, number) for number in range(7)])
        assert drawn > 0.9 * apart([toy(category, instance, seed=0) for instance in range(7)])


@pytest.mark.parametrize(
    ("category", "number", "message"),
    [
        (5, 0, "category is 5: give a number from 0 to 4"),
        (0, -1, r"kind number is -1: give 0 … 19999 \(train\) or 1000000 … 1019999 \(test\)"),
        (0, 20_000, "kind number is 20000: give"),
        (0, 1_020_000, "kind number is 1020000: give"),
    ],
)
def test_kinds_that_there_are_not_are_named(category: int, number: int, message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        many.kind(category, number)


def test_the_shared_zero_of_azimuth_is_that_of_toys() -> None:
    """A toy drawn by either renderer at azimuth 70° is the same picture."""
    views = torch.tensor([70.0]), torch.tensor([35.0]), torch.tensor([1])
    assert camera.stereo(0.0, [0.0], 0.0).position[:, 0].min() > 5.9  # at azimuth 0° the cameras stand on the x axis
    for category in (0, 4):
        mine = many.render(toy(category, 6, seed=0), *views).float()
        assert (mine - toys.render(category, 6, *views).float()).abs().mean() < 2.0

"""The pose objective: its losses, its errors, and runs that have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from quatcaps import quaternion
from quatcaps.data import load
from quatcaps.data.batches import TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.toys.camera import stereo
from quatcaps.data.viewpoints import Views, as_seen, orientation, views_of
from quatcaps.errors import QuatcapsError
from quatcaps.losses import orientation_loss, relative_orientation_loss
from quatcaps.models import build
from quatcaps.paper.recipes import paper
from quatcaps.pipelines import Pipeline
from quatcaps.testing import assert_equivariant
from quatcaps.training.log import read_log
from quatcaps.training.poses import orientation_degrees, partners, pose_errors
from quatcaps.training.start import start_run
from quatcaps.training.step import TrainingStep

CPU = torch.device("cpu")


def rotors(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return quaternion.normalise(torch.randn(count, 4, generator=generator, dtype=torch.float64))


def toys(count: int = 24, aligned: bool = True) -> ImageSet:
    generator = torch.Generator().manual_seed(3)
    return ImageSet(
        "views",
        torch.randint(256, (count, 1, 12, 12), generator=generator, dtype=torch.uint8),
        torch.arange(count) % 2,
        ("one", "other"),
        {
            "azimuth": torch.arange(count) % 36,
            "elevation": torch.arange(count) % 9,
            "instance": torch.arange(count) // 8,
        },
        aligned=aligned,
    )


@pytest.mark.parametrize(("azimuth", "elevation"), [(0.0, 0.0), (90.0, 0.0), (0.0, 40.0), (250.0, 65.0)])
def test_an_orientation_is_what_the_camera_sees(azimuth: float, elevation: float) -> None:
    cameras = stereo(azimuth, [elevation], 0.0)
    # The cameras stand to either side of the viewpoint.
    axes = torch.stack([-cameras.forward.mean(0), cameras.right.mean(0), cameras.up.mean(0)])
    axes = axes / axes.norm(dim=1, keepdim=True)
    found = orientation(*(torch.tensor(angle, dtype=torch.float64) for angle in (azimuth, elevation)))
    torch.testing.assert_close(quaternion.rotor_to_matrix(found), axes, atol=1e-6, rtol=0)


def test_mirrored_and_turned_images_show_mirrored_and_turned_toys() -> None:
    views = Views(rotors(5, 1), torch.arange(5))
    angle, mirrored = torch.linspace(-1, 1, 5, dtype=torch.float64), torch.tensor([True, False, True, False, True])
    seen = as_seen(views, angle, mirrored)
    mirror = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))
    for number in range(5):
        roll = torch.linalg.matrix_exp(
            angle[number] * torch.tensor([[0, 0, 0], [0, 0, -1], [0, 1, 0]], dtype=torch.float64)
        )
        wanted = roll @ quaternion.rotor_to_matrix(views.orientations[number])
        wanted = mirror @ wanted @ mirror if mirrored[number] else wanted
        torch.testing.assert_close(quaternion.rotor_to_matrix(seen.orientations[number]), wanted)
    assert len(seen.toys.unique()) == 5
    assert not torch.isin(seen.toys[mirrored], as_seen(views, angle, ~mirrored).toys[mirrored]).any()


def test_batches_tell_the_views_of_mirrored_images() -> None:
    """An image of one lit pixel, whose place tells its number and whether it is mirrored."""
    stored = torch.zeros(24, 1, 2, 48, dtype=torch.uint8)
    stored[torch.arange(24), 0, 0, torch.arange(24)] = 255
    images = replace(toys(), stored=stored)
    batches = TrainingBatches(images, 8, Pipeline(crop=0, flip=True, standardise="none"), 5, CPU, views=True)
    flips = 0
    for batch in batches.epoch(0):
        assert batch.views is not None
        places = batch.images[:, 0, 0].argmax(1)
        mirrored = places >= 24
        numbers = torch.where(mirrored, 47 - places, places)
        plain = Views(*(values[numbers] for values in views_of(images)))
        wanted = as_seen(plain, torch.zeros(8), mirrored)
        torch.testing.assert_close(batch.views.orientations, wanted.orientations)
        assert batch.views.toys.equal(wanted.toys)
        flips += int(mirrored.sum())
    assert 0 < flips < 24


def test_losses_do_not_tell_a_pose_from_its_negative_and_forget_the_zero_of_a_toy() -> None:
    q, signs = rotors(12, 1), torch.tensor([1.0, -1.0] * 6, dtype=torch.float64)[:, None]
    assert orientation_loss(3 * signs * q, q) < 1e-12
    own, toy = rotors(3, 2), torch.arange(12) // 4
    assert relative_orientation_loss(signs * quaternion.product(q, own[toy]), q, toy) < 1e-12
    assert orientation_loss(quaternion.product(q, own[toy]), q) > 0.1
    assert relative_orientation_loss(rotors(12, 4), q, toy) > 0.1
    assert relative_orientation_loss(q, rotors(12, 4), torch.arange(12)) == 0  # no two views of one toy


def test_the_relative_loss_is_that_of_its_definition() -> None:
    p, q, toy = rotors(7, 1), rotors(7, 2), torch.tensor([0, 0, 1, 1, 1, 2, 0])
    star = quaternion.conjugate
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j and toy[i] == toy[j]]
    found = [1 - (quaternion.product(p[i], star(p[j])) @ quaternion.product(q[i], star(q[j]))) ** 2 for i, j in pairs]
    torch.testing.assert_close(relative_orientation_loss(p, q, toy), torch.stack(found).mean())


def of_two_toys(poses: Tensor, orientations: Tensor) -> Tensor:
    return relative_orientation_loss(poses, orientations, torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("loss", [orientation_loss, of_two_toys])
def test_gradients_of_pose_losses(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    poses, orientations = rotors(4, 1) * torch.tensor([[0.3], [1.0], [2.0], [0.5]]), rotors(4, 2)
    assert torch.autograd.gradcheck(lambda p: loss(p, orientations), poses.requires_grad_())
    zero = torch.zeros(4, 4, requires_grad=True)
    loss(zero, orientations.float()).backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


def test_degrees() -> None:
    q, turn = rotors(50, 1), orientation(*torch.tensor([24.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(orientation_degrees(-quaternion.product(turn, q), q), torch.full((50,), 24.0).double())
    toy = torch.arange(50) % 5
    own = quaternion.product(q, rotors(5, 3)[toy])
    assert orientation_degrees(own, q, toy).max() < 1e-5
    assert (partners(toy) != torch.arange(50)).all()
    assert (toy[partners(toy)] == toy).all()


def test_errors_of_poses() -> None:
    images = toys()
    exact = views_of(images).orientations
    found = pose_errors(images, exact)
    assert found is not None
    assert found.median < 0.1
    assert found.within == (1.0, 1.0)
    assert not found.relative
    other = replace(images, aligned=False)
    own = quaternion.product(exact, rotors(6, 2).float()[images.labels * 3 + images.info["instance"]])
    relative, absolute = pose_errors(other, own), pose_errors(images, own)
    assert relative is not None
    assert absolute is not None
    assert relative.median < 0.1
    assert absolute.median > 30


def test_images_that_are_alone_of_their_toy_do_not_count() -> None:
    """They would be right whatever their poses are."""
    images = replace(toys(), aligned=False)
    alone = images.select(torch.tensor([0, 2, 4, 1, 9, 17]))  # three of one toy, and three of three others
    wrong = quaternion.normalise(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    found = pose_errors(alone, wrong)
    three = pose_errors(images.select(torch.tensor([0, 2, 4])), wrong[:3])
    assert found is not None
    assert three is not None
    assert found.median == three.median > 10
    assert found.by_class[1] is None
    assert pose_errors(alone.part(3, 6, "alone"), wrong[3:]) is None


@pytest.mark.parametrize("name", ["qcn-rotor", "qcn-rotor-deep"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_of_rotors_are_equivariant(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = build(name, channels=2, classes=3, seed=0, primary=4, capsules=((3, 3, 2), (4, 3, 1))).to(dtype).eval()
    assert_equivariant(network)


def test_primary_poses_of_rotors_have_unit_length() -> None:
    network = build("qcn-rotor", channels=1, classes=2, seed=0, primary=4)
    poses, _ = network.primary(torch.rand(2, 1, 32, 32))
    torch.testing.assert_close(poses.norm(dim=2), torch.ones_like(poses[:, :, 0]))


@pytest.mark.parametrize("aligned", [True, False])
def test_a_step_with_the_objective_is_the_sum_of_both_losses(aligned: bool) -> None:
    images = toys(aligned=aligned)
    config = paper("toys").changed({"model": "qcn-rotor", "pose_weight": 2.0, "crop": 0, "image_size": 12})
    network = build("qcn-rotor", channels=1, classes=2, seed=0, primary=2, capsules=((2, 3, 1),))
    views, pixels = views_of(images), images.stored.float() / 255
    configs = (config, config.changed({"pose_weight": 0.0}))
    steps = [TrainingStep(network, each, CPU, relative_poses=not aligned) for each in configs]
    for step in steps:
        step.images, step.labels, step.views = pixels, images.labels, views
    both, alone = (step.gradients()[0] for step in steps)
    poses = network(pixels).poses[torch.arange(24), images.labels]
    if aligned:
        wanted = orientation_loss(poses, views.orientations)
    else:
        wanted = relative_orientation_loss(poses, views.orientations, views.toys)
    torch.testing.assert_close(both - alone, 2 * wanted.detach(), atol=1e-5, rtol=1e-4)


def test_a_run_with_the_objective_logs_its_degrees(toys_folder: Path, tmp_path: Path) -> None:
    config = paper("toys-mini").changed(
        {
            "model": "resnet-20",
            "model_settings": {"widths": (4, 8), "blocks": 1, "poses": True},
            "loss": "cross-entropy",
            "pose_weight": 1.0,
            "epochs": 1,
            "evaluate_images": 100,
        }
    )
    run = start_run(config, tmp_path / "run", toys_folder, Console(quiet=True))
    entry = read_log(run.folder / "log.jsonl")[-1]
    assert 0 < entry["test_degrees"] < 180


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"model": "qcn"}, "qcn-rotor"), ({"model": "cnn-small"}, "qcn-rotor")],
)
def test_networks_without_quaternions_are_refused(
    toys_folder: Path, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    config = paper("toys-mini").changed({"pose_weight": 1.0, **changes})
    with pytest.raises(QuatcapsError, match=words):
        start_run(config, tmp_path / "run", toys_folder, Console(quiet=True))
    assert not (tmp_path / "run").exists()


def test_images_without_viewpoints_are_refused() -> None:
    plain = replace(toys(), info={})
    with pytest.raises(QuatcapsError, match="no azimuth and no elevation"):
        views_of(plain)
    info = {name: column for name, column in toys().info.items() if name != "instance"}
    with pytest.raises(QuatcapsError, match="which images show one toy"):
        views_of(replace(toys(), info=info, aligned=False))


def test_the_toys_are_aligned(toys_folder: Path) -> None:
    assert load("toys-mini", "test", folder=toys_folder).aligned

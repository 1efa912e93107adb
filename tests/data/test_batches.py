"""Batches: every image once in every pass, the same for any number of processes and wherever the pixels are."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import pytest
import torch

from quatcaps.data.batches import (
    Batch,
    Share,
    TrainingBatches,
    epoch_order,
    evaluation_batches,
    groups_for_patches,
    mix,
    others_of_group,
)
from quatcaps.data.imageset import ImageSet
from quatcaps.data.placement import PLACEMENTS, OnDevice, OnHost, hold
from quatcaps.data.splits import hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import PATCH_FROM, Pipeline
from quatcaps.training.config import PLACEMENTS as KNOWN_PLACEMENTS

CPU = torch.device("cpu")
WHOLE = Pipeline(32, 32, standardise="none")


def batches_of(images: ImageSet, batch: int, pipeline: Pipeline = WHOLE, **options: object) -> TrainingBatches:
    return TrainingBatches(images, batch, pipeline, 0, CPU, **options)  # type: ignore[arg-type]


def shown(images: ImageSet, batches: list[Batch]) -> list[int]:
    """Which images whole batches show."""
    number = {image.numpy().tobytes(): k for k, image in enumerate(images.images.float() / 255)}
    return [number[image.numpy().tobytes()] for batch in batches for image in batch.images]


def test_epoch_order_is_a_permutation_of_its_own() -> None:
    orders = [epoch_order(100, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert all(sorted(order.tolist()) == list(range(100)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 6


def test_streams_of_chance_do_not_meet() -> None:
    assert len({mix(seed, stream) for seed in range(50) for stream in range(-3, 600)}) == 50 * 603


@pytest.mark.parametrize("batch", [1, 7, 8, 20, 59, 60])
def test_every_image_comes_once_in_every_pass(noise_images: ImageSet, batch: int) -> None:
    batches = batches_of(noise_images, batch)
    stream = shown(noise_images, [each for epoch in range(3) for each in batches.epoch(epoch)])
    for epoch in range(3):
        part = stream[60 * epoch : 60 * (epoch + 1)]
        assert sorted(part) == list(range(60))
        assert part == epoch_order(60, 0, epoch).tolist()
    assert 0 <= len(stream) - 180 < batch, "an epoch ends with the batch in which its last image is"
    assert [batches.first(epoch + 1) - batches.first(epoch) for epoch in range(3)] == [
        sum(1 for _ in batches.epoch(epoch)) for epoch in range(3)
    ]


def test_labels_belong_to_their_images(noise_images: ImageSet) -> None:
    for batch in batches_of(noise_images, 9).epoch(1):
        assert batch.labels.tolist() == noise_images.labels[shown(noise_images, [batch])].tolist()


@pytest.mark.parametrize("processes", [2, 3, 4, 6, 12])
def test_processes_share_every_batch(noise_images: ImageSet, processes: int) -> None:
    pipeline = Pipeline(32, 24, flip=True, rotation=5.0, patch=0.5, noise=0.2)
    alone = [batch for epoch in range(2) for batch in batches_of(noise_images, 12 * 2, pipeline).epoch(epoch)]
    parts = [
        [
            batch
            for epoch in range(2)
            for batch in batches_of(noise_images, 24, pipeline, share=Share(rank, processes)).epoch(epoch)
        ]
        for rank in range(processes)
    ]
    for number, whole in enumerate(alone):
        assert torch.equal(torch.cat([part[number].images for part in parts]), whole.images)
        assert torch.equal(torch.cat([part[number].labels for part in parts]), whole.labels)


def test_others_are_any_of_the_same_group() -> None:
    labels = torch.tensor([2, 0, 2, 2, 4, 0])  # of class 1 and 3 there are none
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([others_of_group(labels, generator) for _ in range(200)])
    assert torch.equal(labels[drawn], labels.expand(200, -1))
    assert [sorted(column.unique().tolist()) for column in drawn.T] == [
        [0, 2, 3],
        [1, 5],
        [0, 2, 3],
        [0, 2, 3],
        [4],
        [1, 5],
    ]


def test_patches_come_from_images_of_the_same_class(noise_images: ImageSet) -> None:
    """A patch of the whole window: every other image is another one, and the labels stay true."""
    whole, patched = (
        [batch for epoch in range(2) for batch in batches_of(noise_images, 20, pipeline).epoch(epoch)]
        for pipeline in (WHOLE, replace(WHOLE, patch=1.0))
    )
    before, after = shown(noise_images, whole), shown(noise_images, patched)
    assert torch.equal(noise_images.labels[before], noise_images.labels[after])
    assert torch.equal(torch.cat([batch.labels for batch in patched]), noise_images.labels[after])
    changed = sum(one != other for one, other in zip(before, after, strict=True)) / len(before)
    assert 0.3 < changed < 0.6
    assert after[:60] != after[60:]


def test_patches_of_the_same_viewpoint_show_the_same_window() -> None:
    """Images whose pixels say which toy they show, and where: 20 of each class, from 4 elevations in 2 lights."""
    number = torch.arange(60 * 8)
    toy, elevation, lighting = number % 60, number // 60 % 4, number // 240
    rows = torch.stack([toy[:, None].expand(-1, 24), (10 * torch.arange(24)).expand(len(number), -1)], 1)
    images = ImageSet(
        name="marked",
        stored=rows[:, :, None].repeat(1, 1, 24, 1).to(torch.uint8),
        labels=toy % 3,
        classes=("one", "two", "three"),
        info={"instance": toy, "elevation": elevation, "lighting": lighting},
    )
    seen = Pipeline(24, 12, standardise="none", patch=0.5, patch_from="viewpoint")
    groups = groups_for_patches(seen, images)
    for one in range(0, 480, 7):
        together = (groups == groups[one]).nonzero()[:, 0]
        assert len(together) == 20
        for column in (images.labels, elevation, lighting):
            assert len(column[together].unique()) == 1
    batches = [batch for epoch in range(2) for batch in batches_of(images, 48, seen).epoch(epoch)]
    pixels = (255 * torch.cat([batch.images for batch in batches])).round().long()
    labels = torch.cat([batch.labels for batch in batches])
    mixed = torch.tensor([len(image[0].unique()) == 2 for image in pixels])
    assert 0.4 < mixed.float().mean() < 0.55
    assert torch.equal(pixels[:, 0] % 3, labels[:, None, None].expand(-1, 12, 12))
    assert (pixels[:, 1].diff(dim=2) == 10).all(), "a patch has the columns of the window that it is put in"
    anywhere = replace(seen, patch_from="class")
    torn = [(255 * batch.images[:, 1]).round().diff(dim=2) for batch in batches_of(images, 48, anywhere).epoch(0)]
    assert any((each != 10).any() for each in torn), "from any image of the class, it has its own"


@pytest.mark.parametrize("known", [(), ("instance",), ("instance", "lighting")])
def test_patches_by_viewpoint_need_viewpoints(noise_images: ImageSet, known: tuple[str, ...]) -> None:
    pipeline = Pipeline(32, 32, patch=0.5, patch_from="viewpoint")
    images = replace(noise_images, info={name: noise_images.info[name] for name in known})
    with pytest.raises(QuatcapsError, match="nothing says from where these images were taken; give --patch-from class"):
        batches_of(images, 10, pipeline)
    batches_of(images, 10, replace(pipeline, patch=0.0))


def test_batch_that_cannot_be_shared(noise_images: ImageSet) -> None:
    with pytest.raises(QuatcapsError, match="a batch of 10 cannot be shared by 4 processes: give a multiple"):
        batches_of(noise_images, 10, share=Share(0, 4))


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_an_epoch_can_begin_in_the_middle(noise_images: ImageSet, epoch: int) -> None:
    pipeline = Pipeline(32, 20, patch=0.5, noise=0.2)
    whole = list(batches_of(noise_images, 8, pipeline).epoch(epoch))
    rest = list(batches_of(noise_images, 8, pipeline).epoch(epoch, 3))
    assert len(rest) == len(whole) - 3
    for one, other in zip(rest, whole[3:], strict=True):
        assert torch.equal(one.images, other.images)


@pytest.mark.parametrize("together", [2, 5, 100])
@pytest.mark.parametrize("share", [None, Share(1, 2)])
@pytest.mark.parametrize("source", PATCH_FROM)
def test_batches_made_together_are_the_same(
    noise_images: ImageSet, together: int, share: Share | None, source: str
) -> None:
    pipeline = Pipeline(32, 20, flip=True, patch=0.5, patch_from=source, noise=0.2)
    alone, grouped = (batches_of(noise_images, 8, pipeline, share=share, together=count) for count in (1, together))
    for epoch in range(3):
        one_by_one = list(alone.epoch(epoch))
        for position in (0, 1, 5, len(one_by_one) - 1):
            found = list(grouped.epoch(epoch, position))
            assert len(found) == len(one_by_one) - position
            for one, other in zip(one_by_one[position:], found, strict=True):
                assert torch.equal(one.images, other.images)
                assert torch.equal(one.labels, other.labels)


def test_chance_differs_from_pass_to_pass_and_seed_to_seed(noise_images: ImageSet) -> None:
    pipeline = Pipeline(32, 20)

    def first(seed: int, epoch: int) -> torch.Tensor:
        return next(TrainingBatches(noise_images, 8, pipeline, seed, CPU).epoch(epoch)).images

    assert torch.equal(first(0, 1), first(0, 1))
    assert not torch.equal(first(0, 0), first(0, 1))
    assert not torch.equal(first(0, 0), first(1, 0))


@pytest.mark.parametrize("part", [False, True])
def test_images_on_the_host_give_the_same_batches(noise_images: ImageSet, part: bool) -> None:
    images = hold_out(noise_images, 0.3, 0)[0] if part else noise_images
    pipeline = Pipeline(32, 24, flip=True, patch=0.5, noise=0.2)
    here, there = (batches_of(images, 8, pipeline, placement=place) for place in ("device", "host"))
    assert isinstance(there.pixels, OnHost)
    for epoch in range(3):
        pairs = list(zip(here.epoch(epoch), there.epoch(epoch), strict=True))
        assert len(pairs) == here.first(epoch + 1) - here.first(epoch)
        for one, other in pairs:
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.labels, other.labels)


def test_fetching_ahead_ends_with_its_reader(noise_images: ImageSet) -> None:
    stream = batches_of(noise_images, 8, placement="host").epoch(0)
    assert len(list(islice(stream, 2))) == 2
    stream.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("quatcaps-images")]


def test_a_failed_fetch_is_not_lost(noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("the disk is gone")

    batches = batches_of(noise_images, 8, placement="host")
    monkeypatch.setattr(batches.pixels, "fetch", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches.epoch(0))


def test_a_cpu_reads_pixels_where_they_are_stored(noise_images: ImageSet) -> None:
    part = hold_out(noise_images, 0.3, 0)[0]
    assert part.stored.data_ptr() == noise_images.stored.data_ptr()
    held = hold(part, CPU, "auto")
    assert isinstance(held, OnDevice)
    assert held.pixels is None
    assert held.images is part


def test_unknown_placement(noise_images: ImageSet) -> None:
    with pytest.raises(QuatcapsError, match="unknown placement 'hots': did you mean 'host'"):
        hold(noise_images, CPU, "hots")
    assert KNOWN_PLACEMENTS == PLACEMENTS


def test_evaluation_shows_all_images_in_order(noise_images: ImageSet) -> None:
    batches = list(evaluation_batches(noise_images, 16, Pipeline(32, 28, standardise="none"), CPU))
    expected = noise_images.images[:, :, 2:30, 2:30].float() / 255
    assert torch.equal(torch.cat([view for (view,) in batches]), expected)


def test_evaluation_shows_windows_from_border_to_border(noise_images: ImageSet) -> None:
    pipeline = Pipeline(32, 28, standardise="none", test_crops=3)
    views = next(iter(evaluation_batches(noise_images, 60, pipeline, CPU)))
    images = noise_images.images.float() / 255
    assert len(views) == 9
    for number, view in enumerate(views):
        top, left = 2 * (number // 3), 2 * (number % 3)
        assert torch.equal(view, images[:, :, top : top + 28, left : left + 28])


def test_evaluation_shows_windows_of_padded_images(noise_images: ImageSet) -> None:
    pipeline = Pipeline(32, 32, pad=3, standardise="channel", mean=(0.5,), deviation=(0.25,), test_crops=3)
    views = next(iter(evaluation_batches(noise_images, 60, pipeline, CPU)))
    padded = torch.zeros(60, 2, 38, 38)
    padded[:, :, 3:35, 3:35] = noise_images.images.float() / 255
    assert len(views) == 9
    for number, view in enumerate(views):
        top, left = 3 * (number // 3), 3 * (number % 3)
        assert torch.allclose(view, (padded[:, :, top : top + 32, left : left + 32] - 0.5) / 0.25, atol=1e-6)
    middle = next(iter(evaluation_batches(noise_images, 60, replace(pipeline, test_crops=1), CPU)))
    assert torch.equal(views[4], middle[0])


@pytest.mark.parametrize("crops", [1, 2])
def test_evaluation_shows_mirror_images_last(crops: int, noise_images: ImageSet) -> None:
    pipeline = Pipeline(32, 28, flip=True, standardise="none", test_crops=crops, test_mirrored=True)
    views = next(iter(evaluation_batches(noise_images, 60, pipeline, CPU)))
    plain = next(iter(evaluation_batches(noise_images, 60, replace(pipeline, test_mirrored=False), CPU)))
    assert len(views) == pipeline.looks == 2 * len(plain) == 2 * crops**2
    for view, other, mirrored in zip(plain, views, views[len(plain) :], strict=False):
        assert torch.equal(view, other)
        assert torch.equal(mirrored, view.flip(3)[:, [1, 0]]), "the views of a stereo pair change places"


@pytest.mark.parametrize("batch", [0, 61])
def test_batch_that_does_not_fit(noise_images: ImageSet, batch: int) -> None:
    with pytest.raises(QuatcapsError, match=f"a batch of {batch} from 60"):
        batches_of(noise_images, batch)


def test_processes_of_torchrun_share_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two processes show, this one and another, is, put together, what this one shows alone."""
    script = str(Path(__file__).with_name("share_batches.py"))
    shown = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        monkeypatch.setattr(sys, "argv", [script, str(folder)])
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        monkeypatch.setenv("RANK", "0")
        runpy.run_path(script)
        if processes == 2:
            second = os.environ | {"RANK": "1"}
            started = subprocess.run(
                [sys.executable, *sys.argv], capture_output=True, text=True, check=False, env=second
            )
            assert started.returncode == 0, started.stderr
        parts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]
        shown[processes] = [[*chain(*together)] for together in zip(*parts, strict=True)]
    assert shown[1] == shown[2]
    stream = [*chain(*shown[1])]
    assert all(sorted(stream[50 * epoch : 50 * (epoch + 1)]) == list(range(50)) for epoch in range(3))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, Share(0, 1)), ({"RANK": "2", "WORLD_SIZE": "4"}, Share(2, 4))],
)
def test_the_share_of_this_process(
    environment: dict[str, str], expected: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Share.of_this_process() == expected


def test_shares_that_cannot_be(monkeypatch: pytest.MonkeyPatch, command: Callable, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="process 4 of 4: ranks run from 0"):
        Share(4, 4)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(QuatcapsError, match="RANK = 'first'"):
        Share.of_this_process()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = command("train", "--dataset", "toys-mini", "--output", tmp_path / "run")
    assert outcome.code == 1
    assert "process 1 of 2" in outcome.err

"""The views of stereo pairs as images of their own: what they show, and on which side they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from quatcaps.data.batches import groups_for_patches
from quatcaps.data.imageset import ImageSet, single_views
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.inspection.turns import pairs_of
from quatcaps.pipelines import Pipeline
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import images_of
from quatcaps.training.run import load_experiment


def test_views_of_a_pair_follow_each_other(noise_images: ImageSet) -> None:
    views = single_views(noise_images)
    assert (len(views), views.channels, views.size) == (120, 1, (32, 32))
    for number in (0, 7, 59):
        assert torch.equal(views.images[2 * number, 0], noise_images.images[number, 0])
        assert torch.equal(views.images[2 * number + 1, 0], noise_images.images[number, 1])
    assert views.labels[:8].tolist() == [0, 0, 1, 1, 2, 2, 0, 0]
    for name, column in noise_images.info.items():
        assert torch.equal(views.info[name][0::2], column)
        assert torch.equal(views.info[name][1::2], column)
    assert views.info["view"].tolist() == 60 * [0, 1]
    assert views.name == "noise, single views"
    assert views.stored.data_ptr() == noise_images.stored.data_ptr(), "no pixel is copied"


def test_views_of_a_part_are_its_own(noise_images: ImageSet) -> None:
    chosen = torch.tensor([41, 3, 3])
    for part in (noise_images.select(chosen), noise_images.part(10, 50, "part").select(torch.tensor([31, 2]))):
        views = single_views(part)
        assert torch.equal(views.images[:, 0], part.images.flatten(0, 1))
        assert torch.equal(views.labels, part.labels.repeat_interleave(2))
        assert views.stored.data_ptr() == part.stored.data_ptr()
    assert len(single_views(noise_images.select(torch.arange(0)))) == 0
    digested = replace(noise_images, digest="a" * 64)
    assert single_views(digested).digest == "a" * 64


def test_single_views_stay_and_colours_are_refused(noise_images: ImageSet) -> None:
    views = single_views(noise_images)
    assert single_views(views) is views
    colours = replace(noise_images, stored=torch.zeros(60, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(QuatcapsError, match="images of 3 channels: single views are those of stereo pairs, 2; leave"):
        single_views(colours)


def numbers(views: ImageSet | None) -> torch.Tensor:
    """Of the pairs that the views come from, one for each view."""
    assert views is not None
    assert views.rows is not None
    assert views.channels == 1
    assert views.rows[0::2].eq(views.rows[1::2] - 1).all(), "both views of every pair"
    return views.rows // 2


@pytest.mark.parametrize("by", ["instance", "image"])
def test_both_views_are_on_one_side(by: str, noise_images: ImageSet) -> None:
    config = TrainingConfig(stereo_views="single", validation=0.3, validation_by=by)
    together = load_experiment(config.changed({"stereo_views": "together"}), lambda split: noise_images)
    found = load_experiment(config, lambda split: noise_images)
    assert together.validation is not None
    for views, pairs in ((found.training, together.training), (found.validation, together.validation)):
        assert pairs.rows is not None
        assert torch.equal(numbers(views), pairs.rows.repeat_interleave(2)), "the same pairs as together"
    held_out = images_of(config, "validation", lambda split: noise_images)
    assert torch.equal(numbers(held_out), numbers(found.validation))
    kept, held = (
        set(zip(s.labels.tolist(), s.info["instance"].tolist(), strict=True)) for s in (found.training, held_out)
    )
    assert kept.isdisjoint(held) == (by == "instance")
    assert len(found.tests["test"]) == 120


def test_every_set_has_single_views(noise_images: ImageSet) -> None:
    config = TrainingConfig(stereo_views="single", viewpoints="elevation", validation=0.2)
    found = load_experiment(config, lambda split: noise_images)
    assert {images.channels for images in (found.training, *found.measured.values())} == {1}
    assert found.measured.keys() == {"validation", "test", "novel"}
    pooled = config.changed({"protocol": "pooled", "validation": 0.0})
    assert load_experiment(pooled, lambda split: noise_images).tests["novel"].channels == 1
    for split in ("test", "train", "validation"):
        assert images_of(config, split, lambda part: noise_images).channels == 1
    assert images_of(pooled, "test", lambda part: noise_images).channels == 1
    together = TrainingConfig()
    assert images_of(together, "test", lambda part: noise_images) is noise_images
    assert load_experiment(together, lambda part: noise_images) == Experiment(noise_images, {"test": noise_images})
    assert load_experiment(config.changed({"test": False}), lambda part: noise_images).tests == {}


def test_patches_and_turns_stay_within_a_view(noise_images: ImageSet) -> None:
    many = noise_images.select(torch.arange(60).repeat(2))
    groups = groups_for_patches(Pipeline(32, 32, patch=0.5, patch_from="viewpoint"), single_views(many))
    assert torch.equal(groups[0::2] == groups[1::2], torch.zeros(120, dtype=torch.bool))
    assert len(groups.unique()) == 2 * len(
        groups_for_patches(Pipeline(32, 32, patch=0.5, patch_from="viewpoint"), many).unique()
    )
    one = many.select(torch.zeros(18, dtype=torch.int64))
    around = single_views(replace(one, info={**one.info, "azimuth": 2 * torch.arange(18)}))
    pairs = pairs_of(around, 40)
    assert len(pairs.before) == 36
    assert torch.equal(around.info["view"][pairs.before], around.info["view"][pairs.after])


def test_the_setting_is_written_only_where_it_is_chosen() -> None:
    chosen = {"stereo_views": "single", "standardise_from": "whole"}
    assert not TrainingConfig().to_json().keys() & chosen.keys()
    config = TrainingConfig(**chosen)  # type: ignore[arg-type]
    assert chosen.items() <= config.to_json().items()
    assert TrainingConfig.from_json(config.to_json()) == config
    with pytest.raises(QuatcapsError, match="unknown stereo_views 'singel': did you mean 'single'"):
        TrainingConfig(stereo_views="singel")

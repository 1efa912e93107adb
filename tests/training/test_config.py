"""Configurations as values."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.paper.recipes import RECIPES, paper
from quatcaps.routing import BACKENDS
from quatcaps.training.config import BACKENDS as KNOWN_BACKENDS
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import create_run, open_run


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_recipes_survive_json(recipe) -> None:
    config = recipe()
    assert TrainingConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_paper_recipe_is_the_papers() -> None:
    config = paper()
    assert (config.model, config.loss, config.batch, config.epochs) == ("qcn", "spread", 64, 300)
    assert (config.learning_rate, config.decay, config.decay_steps) == (3e-3, 0.96, 20_000)
    assert (config.schedule, config.margin_scale, config.crop, config.image_size) == ("staircase", 50_000, 32, 48)


def test_the_backends_are_those_of_the_routing() -> None:
    assert ("auto", *BACKENDS) == KNOWN_BACKENDS


def test_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        paper().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "spred"}, "unknown loss 'spred': did you mean 'spread'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"viewpoints": "azimut"}, "did you mean 'azimuth'"),
        ({"epochs": 0}, "epochs = 0: it must be above 0"),
        ({"batch": -4}, "batch = -4"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"learning_rate": float("inf")}, "learning_rate = inf"),
        ({"weight_decay": -1.0}, "weight_decay = -1.0: it must be 0 or more"),
        ({"averaging": 1.0}, "averaging = 1.0: it must be 0 or more and below 1"),
        ({"averaging_beside": 1.0}, "averaging_beside = 1.0: it must be 0 or more and below 1"),
        (
            {"averaging": 0.9, "averaging_beside": 0.99},
            "averaging = 0.9 with averaging_beside = 0.99: .*; leave one of them at 0",
        ),
        ({"label_smoothing": -0.1}, "label_smoothing = -0.1"),
        ({"evaluate_at": -1.0}, "evaluate_at = -1.0: it must be 0 or more"),
        ({"evaluate_at": 101.0}, "evaluate_at = 101.0: it is an error in %, so at most 100"),
        ({"mixup": 0.6, "loss": "cross-entropy"}, "mixup = 0.6: it must be from 0 to 0.5"),
        ({"mixup": math.nan, "loss": "cross-entropy"}, "mixup = nan: it must be from 0 to 0.5"),
        ({"mixup": 0.2}, "mixup = 0.2 with loss = spread: mixed images have two classes; give --loss cross-entropy"),
        ({"mixup": 0.2, "loss": "cross-entropy", "pose_weight": 1.0}, "a mixture of two images has no pose"),
        ({"warmup": -1}, "warmup = -1"),
        ({"test_crops": 0}, "test_crops = 0: it must be from 1 to 16"),
        ({"test_crops": 2, "crop": 0}, "test_crops = 2 without a crop"),
        ({"test_mirrored": True}, "test_mirrored without mirrored training images: give --flip too"),
        ({"test": False}, "nothing would be measured; hold out some images, --validation 0.2"),
        ({"erase": 1.5}, "erase = 1.5: it must be from 0 to 1"),
        ({"crop": 49}, "crop = 49: it must be at most the image size, 48"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**63}, "below 2\\^63"),
        ({"epochs": "many"}, "epochs = 'many': it must be a whole number"),
        ({"epoch": 3}, "unknown setting 'epoch': did you mean 'epochs'"),
        ({"class_weights": "balance"}, "class_weights = 'balance': give none, balanced, or a number for each"),
        ({"class_weights": "1,-2"}, "they must be 0 or more and finite"),
        ({"class_weights": [0, 0]}, "one above 0"),
        ({"class_weights": "1,nan"}, "they must be 0 or more and finite"),
    ],
)
def test_bad_settings(changes: dict[str, object], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        paper().changed(changes)


def test_settings_that_came_later_are_written_where_they_are_used() -> None:
    """So that what is made of a configuration by default is as in earlier versions."""
    later = {"class_weights": "1.0,2.0", "patience": 3, "keep_best": True, "wandb": "toys", "mixup": 0.2}
    assert not later.keys() & paper().to_json().keys()
    assert later.keys() < paper().whole().keys()
    used = paper().changed({**later, "class_weights": [1.0, 2.0], "validation": 0.1, "loss": "cross-entropy"})
    assert later.items() <= used.to_json().items()
    assert TrainingConfig.from_json(used.to_json()) == used


def test_run_round_trip(noise_images: ImageSet, tmp_path: Path) -> None:
    config = paper().changed({"model_settings": {"iterations": 3}, "seed": 5})
    created = create_run(tmp_path / "run", config, noise_images)
    assert open_run(tmp_path / "run") == created


def test_a_backend_that_is_gone_is_read_as_the_fastest(noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, paper(), noise_images)
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"backend": "auto"', '"backend": "lean"'))
    assert '"lean"' in (tmp_path / "run.json").read_text()
    assert open_run(tmp_path).config.backend == "auto"
    with pytest.raises(QuatcapsError, match=r"unknown backend 'lean'.*Known: auto, native, reference, triton"):
        paper().changed({"backend": "lean"})


def test_a_setting_that_was_renamed_is_read_by_its_old_name(noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, paper().changed({"placement": "host"}), noise_images)
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"placement"', '"residence"'))
    assert open_run(tmp_path).config.placement == "host"
    (tmp_path / "run.json").write_text(text.replace('"placement"', '"residence": "host", "placement"'))
    with pytest.raises(QuatcapsError, match="residence and placement are the same setting"):
        open_run(tmp_path)
    with pytest.raises(QuatcapsError, match="unknown setting 'residence'"):
        paper().changed({"residence": "host"})


def test_folder_with_something_in_it_is_left_alone(noise_images: ImageSet, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(QuatcapsError, match="is not empty: give another --output"):
        create_run(tmp_path, paper(), noise_images)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_run_is_not_overwritten(noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, paper(), noise_images)
    with pytest.raises(QuatcapsError, match="continue it with --resume"):
        create_run(tmp_path, paper(), noise_images)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 2, "config": 3, "channels": 1, "classes": []}']
)
def test_folder_that_is_no_run(text: str, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="there is no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(QuatcapsError, match=r"is not a run: it has no run\.json"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(QuatcapsError, match=r"run\.json is not a run's description"):
        open_run(tmp_path)


def test_run_of_another_format(noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, paper(), noise_images)
    text = (tmp_path / "run.json").read_text().replace('"format": 2', '"format": 1')
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(QuatcapsError, match="another format"):
        open_run(tmp_path)

"""The rows of the tables: whole configurations, the paper's numbers, the same in miniature."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.models import build, parameter_count
from quatcaps.paper.ablation import HELD_OUT, OTHERS, STEPS
from quatcaps.paper.miniature import quick
from quatcaps.paper.public_code import VARIANTS
from quatcaps.paper.recipes import RECIPES, best, configured, paper
from quatcaps.paper.row import Row, whole
from quatcaps.paper.rows import DATASETS, IN_SYSTEMS, PUBLISHED, ROWS, SYSTEMS
from quatcaps.training.config import TrainingConfig
from quatcaps.training.start import checked

TOYS = torch.tensor([4, 6, 7, 8, 9])
"""The numbers of smallNORB's training toys."""


def parameters(config: TrainingConfig, channels: int, classes: int) -> int:
    return parameter_count(build(config.model, channels=channels, classes=classes, **config.model_settings))


def test_tables_have_their_rows() -> None:
    counted = Counter(table for row in ROWS.values() for table in row.tables)
    of_ablation = len(STEPS) + sum(map(len, OTHERS.values()))
    as_published = sum(each.in_table_2 for each in VARIANTS.values())
    assert counted == {
        "table1": 4 * 6,
        "table2": 5 * 7 + as_published,
        "table3": 6,
        "systems": len(IN_SYSTEMS) + len(VARIANTS),
        "ablation": of_ablation,
        "poses": 5 + 3 + 6,
        "evidence": 252,
        "settings": 2 * 15 + 2 * 15,
    }
    shared = [row.key for row in ROWS.values() if {"table2", "table3"} <= set(row.tables)]
    assert shared == ["smallnorb/qcn/paper", "smallnorb/qcn/best"]
    by_name = {f"smallnorb/{name}" for name in VARIANTS} | {f"{dataset}/em-ibm" for dataset in DATASETS}
    of_tables = [row for row in ROWS.values() if not {"evidence", "settings"} & set(row.tables)]
    assert {row.key for row in of_tables if not row.default} == by_name
    assert all(key == row.key for key, row in ROWS.items())


def test_every_published_number_has_a_row() -> None:
    with_number = [row for row in ROWS.values() if row.published is not None and not row.quiet]
    shown = {(row.key.split("/")[0], row.config(0).model) for row in with_number}
    assert shown == set(PUBLISHED)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("smallnorb/qcn/paper", 2.29),
        ("smallnorb/qcn/best", 2.29),
        ("smallnorb/qcn-joint/paper", 3.72),
        ("cifar10/em", 17.76),
        ("azimuth-pooled/qcn/paper", 7.5),
        ("azimuth-strict/cnn", 20.0),
    ],
)
def test_rows_stand_beside_the_papers_numbers(key: str, error: float) -> None:
    published = ROWS[key].published
    assert published is not None
    assert published.error == error


def test_rows_of_public_code_are_what_that_code_does() -> None:
    vb, em = ROWS["smallnorb/vb/published"].config(0), ROWS["smallnorb/em/published"].config(0)
    assert parameters(vb, 2, 5) == 169_642, "as its public code counts"
    assert parameters(em, 2, 5) == 317_194
    assert vb.model_settings == {"routing.least_density": 1e-11}
    assert (vb.schedule, vb.learning_rate, vb.batch, vb.epochs, vb.weight_decay) == ("constant", 1e-3, 128, 300, 0)
    assert (vb.validation, vb.validation_by, vb.keep_best) == (0.2, "image", True)
    assert (em.schedule, em.weight_decay, em.weight_decay_as) == ("exponential", 2e-7, "gradient")
    assert (em.batch, em.epochs, em.evaluate_every, em.evaluate_images) == (32, 350, 1, 0)
    ibm = ROWS["smallnorb/em-ibm/published"].config(0)
    assert parameters(ibm, 1, 5) == 67_154, "on single views"
    assert (ibm.stereo_views, ibm.standardise_from, ibm.lighting) == ("single", "whole", "standardised")
    assert (ibm.brightness, ibm.contrast, ibm.weight_decay, ibm.batch, ibm.loss) == (2.0, 0.5, 0.0, 64, "spread")
    assert (ibm.learning_rate, ibm.schedule, ibm.decay, ibm.decay_steps) == (3e-3, "exponential", 0.96, 20_000)
    assert abs(ibm.epochs * 48_600 / 64 - 500 * 731) < 48_600 / 64, "the steps of its picture, to an epoch"
    assert quick(ROWS["smallnorb/em-ibm/published"]).config(0).stereo_views == "single"
    for key in ("vb", "em", "em-ibm", "qcn"):
        row = ROWS[f"smallnorb/{key}/published"]
        assert row.quiet
        assert row.published is not None


def test_the_papers_viewpoint_numbers_stand_under_its_own_protocol_alone() -> None:
    assert ROWS["azimuth-strict/qcn/paper"].published is None
    assert ROWS["elevation-strict/em"].published is None


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_configurations_are_whole(row: Row) -> None:
    config = row.config(7)
    assert config.seed == 7
    assert config.dataset == row.dataset
    assert TrainingConfig.from_json(config.to_json()) == config
    assert config.viewpoints == row.viewpoints
    if "table1" in row.tables:
        assert (config.protocol, config.evaluate_every, config.evaluate_images) == (row.protocol, 1, 0)


@pytest.mark.parametrize("key", ["mnist/cnn", "cifar10/em", "smallnorb/qcn/best", "azimuth-pooled/vb"])
def test_a_run_keeps_the_rows_configuration_as_it_is(key: str) -> None:
    assert checked(ROWS[key].config(0)) == ROWS[key].config(0)


def test_rows_of_poses_differ_in_their_poses_alone() -> None:
    """Images, batches and epochs are those of `best`; a pose objective has its weight."""
    for experiment, dataset in (("toys", "toys-many"), ("smallnorb", "smallnorb")):
        given = best(dataset)
        for system in ("qcn/best", "qcn-rotor/best", "qcn-rotor/poses"):
            config = ROWS[f"poses-{experiment}/{system}"].config(0)
            own = ("model", "model_settings", "evaluate_every", "test_crops", "pose_weight")
            assert config.changed({name: getattr(given, name) for name in own}) == given
            assert (config.pose_weight > 0) == system.endswith("poses")
    rotor, resnet = (ROWS[f"poses-toys/{system}/poses"].config(0) for system in ("qcn-rotor", "resnet"))
    own = ("model", "model_settings", "pose_weight", "learning_rate", "score_scale")
    assert resnet.changed({name: getattr(rotor, name) for name in own}) == rotor
    counts = [parameter_count(build(c.model, channels=2, classes=5, **c.model_settings)) for c in (rotor, resnet)]
    assert counts == [163_234, 154_249]


def test_paper_rows_follow_the_paper() -> None:
    row = ROWS["smallnorb/qcn/paper"].config(0)
    own = {
        "evaluate_every": 3,
        "evaluate_images": 0,
        "averaging_beside": 0.998,
    }  # none of which changes what is learned
    assert row == paper("smallnorb").changed(own)
    assert ROWS["svhn/em"].config(0).weight_decay == 2e-7
    assert ROWS["smallnorb/em-joint"].config(0).weight_decay == 2e-7
    assert ROWS["azimuth-strict/cnn"].config(0).loss == "cross-entropy"


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", ["cnn", "resnet-20"])
def test_controls_are_given_what_best_has(dataset: str, model: str) -> None:
    given, row = ROWS[f"{dataset}/qcn/best"].config(3), ROWS[f"{dataset}/{model}"].config(3)
    own = ("model", "model_settings", "loss", "score_scale", "learning_rate")
    assert row.changed({name: getattr(given, name) for name in own}) == given
    assert (row.model, row.loss, row.score_scale) == (model, "cross-entropy", 1.0)
    assert row.learning_rate == pytest.approx(1e-3 if row.batch == 64 else 2e-3)


def test_best_rows_measure_the_test_images_once_and_are_no_larger() -> None:
    assert RECIPES["best"] is best
    for dataset, channels, classes in (("smallnorb", 2, 5), ("mnist", 1, 10), ("svhn", 3, 10), ("cifar10", 3, 10)):
        row, reference = ROWS[f"{dataset}/qcn/best"].config(0), ROWS[f"{dataset}/qcn/paper"].config(0)
        assert row.evaluate_every == 0
        assert row != reference
        assert parameters(row, channels, classes) <= parameters(reference, channels, classes)


def test_parameters_are_the_papers() -> None:
    for key, count in {
        "smallnorb/qcn/paper": 187_762,
        "smallnorb/qcn-joint/paper": 298_478,
        "smallnorb/em": 317_194,
        "smallnorb/em-branched": 410_418,
        "smallnorb/em-joint": 533_358,
        "azimuth-strict/cnn": 4_253_349,
    }.items():
        assert parameters(ROWS[key].config(0), 2, 5) == count, key


def test_changes_to_a_recipe_keep_its_network_unless_they_name_another() -> None:
    shaped = best("cifar10").model_settings
    assert shaped
    assert configured("best", {"dataset": "cifar10"}) == best("cifar10")
    more = configured("best", {"dataset": "cifar10", "model_settings": {"iterations": "3"}})
    assert more.model_settings == {**shaped, "iterations": "3"}
    assert checked(more).model_settings["iterations"] == 3
    assert configured("best", {"model": "qcn", "epochs": 1}).model_settings == best("toys").model_settings
    other = configured("best", {"model": "em", "model_settings": {"iterations": 3}})
    assert other.model_settings == {"iterations": 3}
    with pytest.raises(QuatcapsError, match=r"'bets'.*did you mean 'best'"):
        configured("bets", {})


def test_the_ablation_ends_at_best() -> None:
    first, last = (ROWS[f"ablation/{key}"].config(0) for key in ("paper", "best"))
    same = {"seed", "data_seed", *HELD_OUT}
    for found, recipe in ((first, paper), (last, best)):
        assert {k: v for k, v in vars(found).items() if k not in same} == {
            k: v for k, v in vars(whole(recipe("smallnorb"))).items() if k not in same
        }
    steps = [ROWS[f"ablation/{key}"].config(0).to_json() for key, _, _ in STEPS]
    for (key, _, names), before, after in zip(STEPS[1:], steps, steps[1:], strict=False):
        assert {name for name in after if after[name] != before[name]} == set(names), key
    for step, (key, _, changes) in ((step, other) for step, others in OTHERS.items() for other in others):
        other, beginning = (ROWS[f"ablation/{each}"].config(0).to_json() for each in (key, step))
        assert {name for name in other if other[name] != beginning[name]} == set(changes), key
        assert not other["test"]


def test_the_folds_hold_out_every_toy_once() -> None:
    """By smallNORB's numbers of training toys; and no other runs than those know of folds."""
    labels, instances = (values.flatten() for values in torch.meshgrid(torch.arange(5), TOYS, indexing="ij"))
    images = ImageSet(
        "toys", torch.zeros(25, 1, 1, 1, dtype=torch.uint8), labels, tuple("abcde"), {"instance": instances}
    )
    row = ROWS["ablation/best"]
    configs = [row.config(seed) for seed in range(5)]
    held_out = [hold_out(images, config.validation, config.data_seed)[1] for config in configs]
    toys = [tuple(pair) for part in held_out for pair in torch.stack([part.labels, part.info["instance"]], 1).tolist()]
    assert len(toys) == len(set(toys)) == 25
    assert row.config(7).data_seed == row.config(2).data_seed
    assert ROWS["smallnorb/qcn/best"].config(3).data_seed == 0


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_a_miniature_that_runs(name: str) -> None:
    row = quick(ROWS[f"smallnorb/{name}"])
    config = row.config(2)
    assert (config.dataset, config.seed, config.epochs) == ("toys-mini", 2, 1)
    assert checked(config) == config
    assert parameters(config, 2, 5) < 30_000
    assert row.published is None
    assert config.learning_rate == ROWS[f"smallnorb/{name}"].config(0).learning_rate

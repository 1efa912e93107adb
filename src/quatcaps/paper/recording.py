"""From a finished run to its record: what is measured once more, and what its log says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import torch

from quatcaps.bench.machine import usual_name
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.inspection import inspect
from quatcaps.models import parameter_count
from quatcaps.paper.record import RunRecord, errors_in
from quatcaps.training.evaluate import errors_on, evaluate_trained, predicted
from quatcaps.training.identity import digests_of, images_by_name
from quatcaps.training.log import read_log
from quatcaps.training.measure import Rate
from quatcaps.training.run import Run, choose_device, versions
from quatcaps.training.statistics import is_normalised, renormalised
from quatcaps.training.trained import trained_run


def make_record(
    key: str,
    recipe: str,
    run: Run,
    experiment: Experiment,
    device: str,
    *,
    inspected: bool = False,
    renormalised: bool = False,
) -> RunRecord:
    """The record of a run that is trained to its end; `experiment` is what it was trained and measured on. Toys and
    images are measured here, and, where asked for, poses and what new statistics of batch normalisation would change.
    A machine that rounds otherwise than the one that trained the run may count other errors: then it has none by toy
    or image."""
    log = read_log(run.folder / "log.jsonl")
    epochs = tuple(
        {name: value for name, value in entry.items() if name != "kind"} for entry in log if entry["kind"] == "epoch"
    )
    if len(epochs) != run.config.epochs:
        raise QuatcapsError(
            f"{run.folder} has {len(epochs)} of {run.config.epochs} epochs in its log: it is not trained to its end"
        )
    run.check_images(experiment)
    missing = [name for name in experiment.measured if epochs[-1].get(f"{name}_error") is None]
    if missing:
        raise QuatcapsError(
            f"the last epoch in {run.folder / 'log.jsonl'} has no {missing[0]}_error: the log is damaged, or "
            "of a run on other images; train it again"
        )
    chosen = run.kept_best("best") if run.config.keeps_best else None
    here = versions(choose_device(device))
    final = {
        name: Rate(round(epochs[-1][f"{name}_error"] * len(images)), len(images))
        for name, images in experiment.measured.items()
    }
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):  # as training measured
        by_toy = {name: toys_of(run, images, device) for name, images in experiment.tests.items()}
        missed = {name: missed_of(run, images, device) for name, images in experiment.tests.items()}
    return RunRecord(
        key=key,
        recipe=recipe,
        seed=run.config.seed,
        config=run.config,
        parameters=parameter_count(run.network()),
        data=experiment.training.source,
        machine=usual_name(choose_device(device)) if run.versions == here else run.machine,
        versions=run.versions or here,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        seconds=float(epochs[-1]["seconds"]),
        final=final,
        epochs=epochs,
        toys={} if experiment.validation is None else toys_of(run, experiment.validation, device),
        digests=digests_of(images_by_name(experiment)),
        poses=poses_of(run, experiment, device) if inspected else {},
        by_toy={name: rates for name, rates in by_toy.items() if rates and errors_in(rates) == final[name].errors},
        chosen={} if chosen is None else errors_on(trained_run(run, "best"), experiment.tests, choose_device(device)),
        chosen_epoch=0 if chosen is None else chosen.epochs,
        renormalised=renormalised_errors(run, experiment, device) if renormalised else {},
        averaged=averaged_errors(run, experiment, device) if run.config.averaging_beside else {},
        missed={name: images for name, images in missed.items() if images and len(images) == final[name].errors},
    )


def renormalised_errors(run: Run, experiment: Experiment, device: str) -> dict[str, Rate]:
    """The errors of the last checkpoint with new statistics; none of a network that has no batch normalisation."""
    trained, place = trained_run(run, "last"), choose_device(device)
    if not is_normalised(trained.network):
        return {}
    return errors_on(renormalised(trained, experiment.training, place), experiment.tests, place)


def averaged_errors(run: Run, experiment: Experiment, device: str) -> dict[str, Rate]:
    """The errors of the average beside the last checkpoint's weights."""
    return errors_on(trained_run(run, "average"), experiment.tests, choose_device(device))


def poses_of(run: Run, experiment: Experiment, device: str) -> dict[str, Any]:
    """What the poses of a run know, without the turns that are drawn."""
    found = inspect(trained_run(run, "last"), experiment.tests["test"], choose_device(device)).to_json()
    return {name: value for name, value in found.items() if name not in ("name", "turns")}


def toys_of(run: Run, images: ImageSet, device: str) -> dict[str, Rate]:
    """The errors of a run's last checkpoint by class and instance, where images show instances."""
    if "instance" not in images.info:
        return {}
    return evaluate_trained(trained_run(run, "last"), images, choose_device(device))["all"].by_instance


def missed_of(run: Run, images: ImageSet, device: str) -> tuple[int, ...]:
    """Which images a run's last checkpoint misclassifies, where images show no instances."""
    if "instance" in images.info:
        return ()
    found = predicted(trained_run(run, "last"), images, choose_device(device)).activations
    return tuple((found.argmax(1) != images.labels).nonzero().flatten().tolist())

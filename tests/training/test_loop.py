"""The loop's guards and arithmetic."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment, arrange, hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.layers import CapsuleLayer
from quatcaps.training import checkpoint
from quatcaps.training.config import TrainingConfig
from quatcaps.training.health import NonFiniteError
from quatcaps.training.log import errors_in, read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.measuring import sample
from quatcaps.training.progress import TrainingProgress
from quatcaps.training.run import choose_device, create_run
from quatcaps.training.schedule import learning_rate
from quatcaps.training.step import make_optimiser

CONFIG = TrainingConfig(model="qcn-small", image_size=32, crop=28, epochs=2, batch=16, checkpoint_every=2, device="cpu")


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


def trainer(images: ImageSet, folder: Path, **changes: object) -> Trainer:
    return Trainer(create_run(folder, CONFIG.changed(changes), images), Experiment(images, {"test": images}))


class Poison(nn.Module):
    """Passes capsules on, and from call number `calls` on a NaN with them."""

    def __init__(self, inner: nn.Module, calls: int) -> None:
        super().__init__()
        self.inner, self.left = inner, calls

    def forward(self, *inputs: Tensor) -> object:
        output = self.inner(*inputs)
        self.left -= 1
        return output._replace(activations=output.activations / 0 - math.inf) if self.left <= 0 else output


def test_non_finite_loss_names_step_layer_and_checkpoint(noise_images: ImageSet, tmp_path: Path) -> None:
    run = trainer(noise_images, tmp_path)
    run.network.layers[1] = Poison(run.network.layers[1], calls=4)
    with pytest.raises(NonFiniteError) as stopped:
        run.train(Silent())
    message = str(stopped.value)
    assert "stopped at step 4" in message
    assert "the output of layers.1;" in message
    assert "step-00000002" in message
    assert all(torch.isfinite(p).all() for p in run.network.parameters())


def test_non_finite_weights_are_named(noise_images: ImageSet, tmp_path: Path) -> None:
    run = trainer(noise_images, tmp_path)
    with torch.no_grad():
        run.network.layers[0].maps.angle[0, 0, 0] = math.nan
    with pytest.raises(NonFiniteError, match=r"at step 1: .* the weights of layers\.0\.maps; there is no checkpoint"):
        run.train(Silent())


def test_non_finite_gradient_stops_before_the_weights_take_it(noise_images: ImageSet, tmp_path: Path) -> None:
    run = trainer(noise_images, tmp_path)
    run.network.classify.maps.angle.register_hook(lambda gradient: gradient * math.inf)
    weights = {name: p.clone() for name, p in run.network.named_parameters()}
    with pytest.raises(
        NonFiniteError, match=r"a gradient is not finite; it began in the gradient of classify\.maps\.angle"
    ):
        run.train(Silent())
    assert all(torch.equal(p, weights[name]) for name, p in run.network.named_parameters())


def test_training_lowers_the_loss(noise_images: ImageSet, tmp_path: Path) -> None:
    run = trainer(noise_images, tmp_path, epochs=8, crop=32, evaluate_every=0)
    run.train(Silent())
    losses = [record["loss"] for record in read_log(tmp_path / "log.jsonl") if record["kind"] == "epoch"]
    assert losses[-1] < 0.5 * losses[0]


def test_log_holds_what_happened(noise_images: ImageSet, tmp_path: Path) -> None:
    trainer(noise_images, tmp_path, log_every=1, evaluate_every=0).train(Silent())
    records = read_log(tmp_path / "log.jsonl")
    assert [r["kind"] for r in records] == ["step"] * 4 + ["epoch"] + ["step"] * 4 + ["epoch"]
    mean = sum(r["loss"] for r in records[5:9]) / 4
    assert math.isclose(records[9]["loss"], mean, rel_tol=1e-6)
    assert records[4]["test_error"] is None
    assert 0 <= records[9]["test_error"] <= 1, "the end is always measured"


def test_class_weights_are_those_of_the_training_images(noise_images: ImageSet, tmp_path: Path) -> None:
    few = noise_images.select(noise_images.labels.ne(1) | (torch.arange(60) < 30))
    for given, wanted in (("none", None), ("balanced", [50 / 60, 50 / 30, 50 / 60]), ("1,2,0", [1, 2, 0])):
        found = trainer(few, tmp_path / given, class_weights=given).step.class_weights
        assert (found is None) == (wanted is None)
        assert found is None or found.tolist() == pytest.approx(wanted)
    with pytest.raises(QuatcapsError, match=r"2 numbers for 3 classes \(one, two, three\); give one for each"):
        trainer(few, tmp_path / "two", class_weights="1,2")


def test_mixed_images_reach_the_step(noise_images: ImageSet, tmp_path: Path) -> None:
    """Of all steps, the last batch of the run among them, with the loss of both classes."""
    runs = [trainer(noise_images, tmp_path / str(mixup), loss="cross-entropy", mixup=mixup) for mixup in (0.0, 0.5)]
    for run in runs:
        run.train(Silent())
    (*_, last) = runs[1].batches.epoch(runs[1].config.epochs - 1)
    assert last.mixed is not None
    assert runs[0].step.mixed is None
    assert runs[1].step.mixed is not None
    assert torch.equal(runs[1].step.mixed.parts, last.mixed.parts)
    first = [read_log(run.run.folder / "log.jsonl")[0]["loss"] for run in runs]
    assert abs(first[0] - first[1]) > 1e-6


def test_class_weights_of_zero_leave_a_class_out(noise_images: ImageSet, tmp_path: Path) -> None:
    steps = [
        trainer(noise_images, tmp_path / weights, class_weights=weights, batch=60).step for weights in ("0,0,1", "none")
    ]
    images = torch.randn(60, 2, 28, 28)
    for step in steps:
        step(images, noise_images.labels, 1e-3, 0)
    assert 0 < steps[0].loss.item() < steps[1].loss.item()


def test_cut_last_line_of_a_log_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"kind": "step", "step": 1, "epoch": 0}\n{"kind": "st')
    assert len(read_log(path)) == 1
    path.write_text('{"kind": "st\n{"kind": "step", "step": 1, "epoch": 0}\n')
    with pytest.raises(QuatcapsError, match="line 1"):
        read_log(path)


def test_tensorboard_events_are_written(noise_images: ImageSet, tmp_path: Path) -> None:
    trainer(noise_images, tmp_path, tensorboard=True).train(Silent())
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents*"))


def test_dataset_that_does_not_fit_the_run(noise_images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path, CONFIG, noise_images)
    other = ImageSet("other", noise_images.images[:, :1], noise_images.labels, noise_images.classes)
    with pytest.raises(QuatcapsError, match="other has 1 channels and 3 classes, the run 2 and 3"):
        Trainer(run, Experiment(other, {"test": other}))


def test_schedules() -> None:
    paper = TrainingConfig()
    assert learning_rate(paper, 19_999, 10**6) == 3e-3
    assert math.isclose(learning_rate(paper, 40_000, 10**6), 3e-3 * 0.96**2)
    cosine = paper.changed({"schedule": "cosine"})
    assert learning_rate(cosine, 0, 100) == 3e-3
    assert math.isclose(learning_rate(cosine, 50, 100), 1.5e-3)
    assert learning_rate(cosine, 99, 100) < 1e-5
    assert learning_rate(paper.changed({"schedule": "constant"}), 10**6, 10**6) == 3e-3
    falling = paper.changed({"schedule": "exponential"})
    assert math.isclose(learning_rate(falling, 30_000, 10**6), 3e-3 * 0.96**1.5)
    warming = paper.changed({"warmup": 9})
    assert [learning_rate(warming, step, 100) for step in (0, 4, 9, 10)] == pytest.approx([3e-4, 1.5e-3, 3e-3, 3e-3])
    linear = paper.changed({"schedule": "linear"})
    assert [learning_rate(linear, step, 100) for step in (0, 50, 99)] == pytest.approx([3e-3, 1.5e-3, 3e-5])
    cycle = warming.changed({"schedule": "linear"})
    assert [learning_rate(cycle, step, 109) for step in (0, 4, 9, 59, 108)] == pytest.approx(
        [3e-4, 1.5e-3, 3e-3, 1.5e-3, 3e-5]
    )
    assert learning_rate(cycle, 0, 5) > 0


def test_bf16_is_for_the_convolutions_of_training_alone(noise_images: ImageSet, tmp_path: Path) -> None:
    seen: dict[str, torch.dtype] = {}
    found = trainer(noise_images, tmp_path / "bf16", precision="bf16")
    for module in found.network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda module, given, output: seen.update(convolution=output.dtype))
        elif isinstance(module, CapsuleLayer):
            module.register_forward_hook(lambda module, given, output: seen.update(routing=output.poses.dtype))
    batch = next(found.batches.epoch(0))
    found.step(batch.images, batch.labels, 1e-3, 0)
    assert seen == {"convolution": torch.bfloat16, "routing": torch.float32}
    assert all(parameter.grad.dtype == torch.float32 for parameter in found.network.parameters())
    full = trainer(noise_images, tmp_path / "float32")
    full.step(batch.images, batch.labels, 1e-3, 0)
    assert found.step.loss.item() != full.step.loss.item()
    assert found.step.loss.item() == pytest.approx(full.step.loss.item(), rel=0.1)
    found.measuring.measure(noise_images.select(torch.arange(4)), lambda: None)
    assert seen["convolution"] == torch.float32
    assert "precision" not in full.config.to_json()
    with pytest.raises(QuatcapsError, match="unknown precision 'fp16'"):
        CONFIG.changed({"precision": "fp16"})


def test_ieee_allows_no_tf32_forward_or_backward(noise_images: ImageSet, tmp_path: Path) -> None:
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = convolutions.fp32_precision
    assert before == "tf32", "else the test tells nothing"
    for precision, expected in (("float32", before), ("ieee", "ieee")):
        seen: dict[str, str] = {}
        found = trainer(noise_images, tmp_path / precision, precision=precision)
        first = next(module for module in found.network.modules() if isinstance(module, nn.Conv2d))
        first.register_forward_hook(
            lambda module, given, output, seen=seen: seen.update(forward=convolutions.fp32_precision)
        )
        first.weight.register_hook(lambda grad, seen=seen: seen.update(backward=convolutions.fp32_precision))
        batch = next(found.batches.epoch(0))
        found.step(batch.images, batch.labels, 1e-3, 0)
        assert seen == {"forward": expected, "backward": expected}
        assert convolutions.fp32_precision == before


def test_sample_is_fixed_and_whole_for_zero(noise_images: ImageSet) -> None:
    assert torch.equal(sample(noise_images, 7, 1).images, sample(noise_images, 7, 1).images)
    assert len(sample(noise_images, 7, 1)) == 7
    assert len(sample(noise_images, 0, 1)) == len(sample(noise_images, 999, 1)) == 60


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:99"])
def test_device_that_is_not_here(name: str) -> None:
    with pytest.raises(QuatcapsError, match=f"device '{name}'"):
        choose_device(name)


def test_checkpoints_follow_the_configuration(noise_images: ImageSet, tmp_path: Path) -> None:
    trainer(noise_images, tmp_path, checkpoint_every=4).train(Silent())
    assert [p.name for p in checkpoint.checkpoints(tmp_path / "checkpoints")] == ["step-00000004", "step-00000008"]


def errors_of(folder: Path) -> list[dict[str, object]]:
    """The errors that each epoch's record names."""
    return [
        {key: value for key, value in record.items() if key.endswith("_error")}
        for record in read_log(folder / "log.jsonl")
        if record["kind"] == "epoch"
    ]


def test_validation_keeps_the_test_set_unseen_until_the_end(noise_images: ImageSet, tmp_path: Path) -> None:
    kept, held_out = hold_out(noise_images, 0.3, 0)
    experiment = Experiment(kept, {"test": noise_images}, held_out)
    run = create_run(tmp_path, CONFIG.changed({"validation": 0.3}), kept)
    Trainer(run, experiment).train(Silent())
    first, last = errors_of(tmp_path)
    assert first["test_error"] is None
    assert first["validation_error"] is not None
    assert None not in last.values()


@pytest.mark.parametrize("protocol", ["strict", "pooled"])
def test_validation_keeps_novel_viewpoints_unseen_until_the_end(
    protocol: str, noise_images: ImageSet, tmp_path: Path
) -> None:
    """Neither the log nor what is printed says how an unfinished run does on test images."""
    experiment = arrange(lambda split: noise_images, viewpoints="azimuth", protocol=protocol, validation=0.3)
    changes = {"viewpoints": "azimuth", "protocol": protocol, "validation": 0.3, "batch": 8}
    run = create_run(tmp_path, CONFIG.changed(changes), experiment.training)
    printed = io.StringIO()
    Trainer(run, experiment).train(TrainingProgress(Console(file=printed)))
    first, last = errors_of(tmp_path)
    assert {name for name, error in first.items() if error is not None} == {"validation_error"}
    assert last.keys() == {f"{name}_error" for name in experiment.measured}
    assert None not in last.values()
    lines = printed.getvalue().splitlines()
    assert "validation" in lines[0]
    assert "test" not in lines[0]
    assert "novel" not in lines[0]
    assert "novel" in lines[1]


def test_viewpoints_are_measured_at_every_epoch(noise_images: ImageSet, tmp_path: Path) -> None:
    experiment = arrange(lambda split: noise_images, viewpoints="azimuth")
    run = create_run(tmp_path, CONFIG.changed({"viewpoints": "azimuth"}), noise_images)
    Trainer(run, experiment).train(Silent())
    for found in errors_of(tmp_path):
        assert found.keys() == {"test_error", "novel_error"}
        assert None not in found.values()


def test_all_is_measured_where_the_training_error_first_comes_down(noise_images: ImageSet, tmp_path: Path) -> None:
    """And at the end; a run that is stopped between the two does not measure a second time."""
    rare = {"evaluate_every": 0, "epochs": 4}

    def measured(name: str) -> list[int]:
        return [number for number, found in enumerate(errors_of(tmp_path / name)) if None not in found.values()]

    trainer(noise_images, tmp_path / "never", **rare).train(Silent())
    errors = errors_in(tmp_path / "never", 4)
    assert len(errors) == 4
    assert measured("never") == [3]
    for epoch in (0, errors.index(min(errors))):
        name, low = f"at-{epoch}", {**rare, "evaluate_at": 100 * errors[epoch]}
        trainer(noise_images, tmp_path / name, **low).train(Silent())
        assert measured(name) == sorted({epoch, 3})
    at_once = {**rare, "evaluate_at": 99.9}
    run = trainer(noise_images, tmp_path / "stopped", **at_once).run
    experiment = Experiment(noise_images, {"test": noise_images})
    with pytest.raises(StoppedError):
        Trainer(run, experiment).train(StopAtEpoch(2))
    Trainer(run, experiment).train(Silent())
    assert measured("stopped") == [0, 3]


class StoppedError(Exception):
    pass


class StopAtEpoch(Silent):
    def __init__(self, epoch: int) -> None:
        self.left = epoch

    def epoch(self, *state: object) -> None:
        self.left -= 1
        if not self.left:
            raise StoppedError


def test_images_on_the_host_train_to_the_same_bits(noise_images: ImageSet, tmp_path: Path) -> None:
    weights = []
    for placement in ("device", "host"):
        run = trainer(noise_images, tmp_path / placement, placement=placement)
        run.train(Silent())
        weights.append(torch.cat([p.detach().flatten() for p in run.network.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("way", ["decoupled", "gradient"])
def test_weights_decay_as_they_are_told(way: str) -> None:
    """One step of Adam, by hand: the moments of the first step are the gradient and its square."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    config = TrainingConfig(learning_rate=0.1, weight_decay=0.5, weight_decay_as=way)
    optimiser = make_optimiser(layer, config, torch.device("cpu"))
    before, layer.weight.grad = layer.weight.detach().clone(), torch.randn(2, 3)
    gradient = layer.weight.grad + (0.5 * before if way == "gradient" else 0)
    optimiser.step()
    kept = before * (1 - 0.1 * 0.5) if way == "decoupled" else before
    torch.testing.assert_close(layer.weight.detach(), kept - 0.1 * gradient / (gradient.abs() + 1e-8))

"""`benchmarks/late_epochs.py`: it trains the run of its row, and measures what it says."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import late_epochs
import pictures
from late_epochs import AVERAGE, NEW, NEW_AVERAGE, RUNNING, Followed, Watch, configured, draw, follow, path_of, table_of
from narrow import NARROW
from quatcaps.console import standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.models import build, parameter_count
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import errors_on
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.reporters import Reporters
from quatcaps.training.run import Run, create_run, open_run
from quatcaps.training.statistics import renormalised
from quatcaps.training.trained import trained_run

pytestmark = pytest.mark.usefixtures("unchecked")
CPU = torch.device("cpu")
CONFIG = TrainingConfig(
    model="qcn-small",
    model_settings=NARROW,
    image_size=32,
    crop=28,
    epochs=3,
    batch=8,
    learning_rate=0.03,
    schedule="constant",
    evaluate_images=0,
    device="cpu",
    backend="reference",
)


def begun(folder: Path, images: ImageSet, **changes: object) -> tuple[Run, Experiment]:
    config = CONFIG.changed({"averaging_beside": late_epochs.DECAY, **changes})
    return create_run(folder, config, images, {"test": images}), Experiment(images, {"test": images})


@pytest.fixture(scope="module")
def followed(noise_images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    return follow(*begun(tmp_path_factory.mktemp("followed") / "run", noise_images), 2, standard_output())


def logged(images: ImageSet, folder: Path, **changes: object) -> tuple[float, ...]:
    """The errors of the last two epochs in the log of the same run by the training loop, in %."""
    run, experiment = begun(folder, images, averaging_beside=0.0, **changes)
    Trainer(run, experiment).train(Reporters(()))
    epochs = [record for record in read_log(folder / "log.jsonl") if record["kind"] == "epoch"]
    return tuple(100 * record["test_error"] for record in epochs[-2:])


def test_it_is_the_run_of_its_row(followed: Followed, noise_images: ImageSet, tmp_path: Path) -> None:
    assert followed.epochs == (2, 3)
    assert followed.errors[RUNNING] == pytest.approx(logged(noise_images, tmp_path / "plain"))
    averaged = logged(noise_images, tmp_path / "averaged", averaging=late_epochs.DECAY)
    assert followed.errors[AVERAGE] == pytest.approx(averaged)
    for folder, way in (("plain", NEW), ("averaged", NEW_AVERAGE)):
        trained = renormalised(trained_run(open_run(tmp_path / folder)), noise_images, CPU)
        wanted = errors_on(trained, {"test": noise_images}, CPU)["test"].percent
        assert followed.errors[way][-1] == pytest.approx(wanted)


@pytest.mark.parametrize("measuring", [False, True])
def test_a_run_that_was_stopped_goes_on(
    measuring: bool, followed: Followed, noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the last epoch is trained, steps after a checkpoint, or while it is measured."""
    run, experiment = begun(tmp_path / "run", noise_images, checkpoint_every=5)
    real, measurements = late_epochs.measured, list[int]()

    def killed(trainer: Trainer, epoch: int, tests: ImageSet) -> dict[str, float]:
        measurements.append(epoch)
        if measuring and epoch == 2:
            raise KeyboardInterrupt
        return real(trainer, epoch, tests)

    def step(self: Watch, step: int, *state: object) -> None:
        if not measuring and step == 18:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(late_epochs, "measured", killed)
        patched.setattr(Watch, "step", step)
        with pytest.raises(KeyboardInterrupt):
            follow(run, experiment, 2, standard_output())
    assert measurements == ([1, 2] if measuring else [1])
    found = follow(open_run(run.folder), experiment, 2, standard_output())
    assert found.errors == followed.errors
    assert follow(open_run(run.folder), experiment, 1, standard_output()).errors[NEW] == followed.errors[NEW][-1:]
    with pytest.raises(QuatcapsError, match=r"beyond epoch 1 without measuring it: remove it .*, or give --last 2"):
        follow(open_run(run.folder), experiment, 3, standard_output())


def test_a_command_goes_on_with_its_own_run_alone(
    followed: Followed, noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a signal the same command ends as one that was never stopped; other test images are another run."""
    given, own = Experiment(noise_images, {"test": noise_images}), {"averaging_beside": late_epochs.DECAY}
    results = tmp_path / "results"
    monkeypatch.setattr(late_epochs, "load_run_images", lambda *rest: given)
    monkeypatch.setattr(late_epochs, "configured", lambda key, seed, changes: CONFIG.changed({**own, **changes}))
    monkeypatch.setattr(late_epochs, "path_of", lambda *rest: results / "one.json")

    def command(*more: str) -> None:
        folders = ["--work", str(tmp_path / "work"), "--output", str(results)]
        monkeypatch.setattr("sys.argv", ["late_epochs.py", "smallnorb/qcn/paper", "--last", "1", *folders, *more])
        late_epochs.main(late_epochs.parsed(), standard_output())

    def step(self: Watch, step: int, *state: object) -> None:
        if step == 9:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Watch, "step", step)
        with pytest.raises(QuatcapsError, match=r"interrupted after step 9 of 23; saved .*: the same command goes on"):
            command()
    assert not results.exists()
    with pytest.raises(QuatcapsError, match=r"begun with other settings \(evaluate_images was 0, is 20\): remove it"):
        command("--images", "20")
    command()
    (found,) = late_epochs.recorded(results)
    assert found.errors == {way: errors[-1:] for way, errors in followed.errors.items()}


def test_records_are_read_as_they_were_written(
    followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(followed.to_json()), encoding="utf-8")
    (read,) = late_epochs.recorded(tmp_path)
    assert read == followed
    lines = table_of([read]).rows
    assert [cells[3] for cells in lines] == list(late_epochs.WAYS)
    last = [float(cells[-1]) for cells in lines]
    assert last == pytest.approx([errors[-1] for errors in followed.errors.values()], abs=0.01)
    saved = pictures.recorded(monkeypatch, late_epochs)
    draw([read], tmp_path / "one.png")
    (figure,) = saved
    assert pictures.legend_of(figure) == list(late_epochs.WAYS)
    drawn = [line.get_ydata() for line in figure.axes[0].lines]
    assert [tuple(each) for each in drawn] == list(followed.errors.values())
    assert pictures.smallest_letters(figure) >= 11
    plain = replace(read, errors={way: read.errors[way] for way in (RUNNING, AVERAGE)})
    draw([plain, read, plain], tmp_path / "three.png")
    assert pictures.legend_of(saved[-1]) == list(late_epochs.WAYS), "of all lines"
    path.write_text('{"format": 1, "config": {}}', encoding="utf-8")
    with pytest.raises(QuatcapsError, match=r"one.json has no late epochs of a run: KeyError\('epochs'\)"):
        late_epochs.recorded(tmp_path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(QuatcapsError, match="in format 1: move it out of this folder"):
        late_epochs.recorded(tmp_path)


def test_seeds_share_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = pictures.recorded(monkeypatch, late_epochs)
    config = configured("smallnorb/qcn/paper", 0, {"epochs": "20"})
    parts: dict[str, Any] = {"parameters": 1, "images": 2, "machine": "a machine", "versions": {}, "date": "today"}
    runs = [
        Followed("smallnorb/qcn/paper", config.changed({"seed": seed}), **parts, epochs=(19, 20), errors=errors)
        for seed, errors in enumerate(({RUNNING: (5.0, 4.0)}, {RUNNING: (6.0, 3.0)}))
    ]
    draw([*runs, replace(runs[0], code="someone/something")], tmp_path / "kinds.png")
    ours, theirs = saved[-1].axes
    assert [tuple(line.get_ydata()) for line in ours.lines] == [(5.0, 4.0), (6.0, 3.0)]
    assert [tuple(line.get_ydata()) for line in theirs.lines] == [(5.0, 4.0)]
    assert ours.get_title(loc="left").split() == ["smallnorb/qcn/paper,", "qcn,", "20", "epochs,", "2", "seeds"]
    saved[-1].draw_without_rendering()
    assert all(float(tick) % 1 == 0 for tick in ours.get_xticks()), "no half epochs"


def test_the_documents_have_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs/reproduction.md").read_text(encoding="utf-8")
    rows = table_of(late_epochs.recorded(late_epochs.RESULTS)).rows
    assert rows
    for cells in rows:
        assert "| " + " | ".join(cells) + " |\n" in text


def test_a_record_is_named_by_what_was_changed(tmp_path: Path) -> None:
    row = "smallnorb/qcn/paper"
    assert path_of(tmp_path, row, configured(row, 2, {})).name == "smallnorb-qcn-paper,seed-2.json"
    changed = configured(row, 0, {"model": "qcn-coarse", "epochs": "20", "evaluate_images": 100})
    lit = configured(row, 0, {"lighting": "standardised", "contrast": "0.5", "averaging_beside": 0.5})
    said = Followed(row, lit, 1, 2, "a machine", {}, "today", (1,), {RUNNING: (1.0,)}).name
    assert said == "smallnorb/qcn/paper, qcn, 300 epochs, contrast=0.5, lighting=standardised", "not one of all runs"
    assert path_of(tmp_path, row, changed).name == "smallnorb-qcn-paper,model=qcn-coarse,epochs=20,seed-0.json"
    with pytest.raises(QuatcapsError, match="no row 'smallnorb/qcn': quatcaps reproduce table2 systems --list"):
        configured("smallnorb/qcn", 0, {})


def test_images_are_shrunk_as_pillow_shrinks_them(noise_images: ImageSet) -> None:
    found = late_epochs.bilinear(noise_images).stored
    for image, views in zip(noise_images.stored[:5], found, strict=False):
        for pixels, ours in zip(image.numpy(), views.numpy(), strict=True):
            doubled = Image.fromarray(pixels.repeat(2, axis=0).repeat(2, axis=1))
            theirs = np.asarray(doubled.resize(pixels.shape[::-1], Image.Resampling.BILINEAR))
            assert np.abs(theirs.astype(int) - ours).max() <= 1, "Pillow rounds twice"
    assert not torch.equal(found, noise_images.stored)


def test_bilinear_images_are_trained_on_and_named(
    noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Experiment(noise_images, {"test": noise_images})
    seen = list[Experiment]()

    def no_training(run: Run, experiment: Experiment, *rest: object) -> Followed:
        seen.append(experiment)
        return Followed("", run.config, 1, 2, "a machine", {}, "today", (1,), {RUNNING: (1.0,)})

    monkeypatch.setattr(late_epochs, "load_run_images", lambda *rest: given)
    monkeypatch.setattr(late_epochs, "follow", no_training)
    command = ["late_epochs.py", "smallnorb/qcn/paper", "--set", "epochs=3", "--output", str(tmp_path)]
    command += ["--work", str(tmp_path / "work")]
    for changed in ([], ["--bilinear"]):
        monkeypatch.setattr("sys.argv", [*command, *changed])
        late_epochs.main(late_epochs.parsed(), standard_output())
    assert seen[0] is given
    for images in (seen[1].training, seen[1].tests["test"]):
        assert torch.equal(images.stored, late_epochs.bilinear(noise_images).stored)
    name = "smallnorb-qcn-paper,epochs=3,{}seed-0.json"
    assert {path.name for path in tmp_path.glob("*.json")} == {name.format(""), name.format("bilinear,")}
    assert [run.bilinear for run in late_epochs.recorded(tmp_path)] == [True, False]
    assert "smallnorb/qcn/paper, qcn, 3 epochs, bilinear" in {
        cells[0] for cells in table_of(late_epochs.recorded(tmp_path)).rows
    }


def test_the_example_of_another_code(
    noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: None
) -> None:
    monkeypatch.setenv("QUATCAPS_PLUGINS", late_epochs.__file__.replace("late_epochs", "vb_example"))
    monkeypatch.delitem(sys.modules, "vb_example", raising=False)
    row = "smallnorb/vb/published-whole"
    config = configured(row, 3, {"model": "vb-example", "epochs": "2"})
    assert path_of(tmp_path, row, config).name == "smallnorb-vb-published-whole,model=vb-example,epochs=2,seed-3.json"
    changes = {"model": "vb-example", "model_settings": {}, "crop": 32, "loss": "cross-entropy", "epochs": 1}
    found = follow(*begun(tmp_path / "run", noise_images, **changes), 1, standard_output())
    assert found.errors.keys() == set(late_epochs.WAYS)
    network = build("vb-example", channels=2, classes=5)
    assert parameter_count(network) == 206_154, "as in the public code"
    assert found.parameters == parameter_count(build("vb-example", channels=2, classes=3))
    classes = network(torch.rand(4, 2, 32, 32))
    assert classes.poses.shape == (4, 5, 16)
    assert classes.activations.shape == (4, 5)
    for side, grid in ((28, 5), (48, 10)):
        words = f"grid of {grid}×{grid} primary capsules for images of {side}×{side}, and maps for 6×6"
        with pytest.raises(QuatcapsError, match=words):
            network(torch.rand(2, 2, side, side))


@pytest.mark.parametrize(
    "row", ["evidence-azimuth-strict/qcn-rotor-pretrained", "azimuth-pooled/qcn/paper", "azimuth-strict/qcn/paper"]
)
def test_rows_that_cannot_be_followed_are_refused(row: str) -> None:
    with pytest.raises(QuatcapsError, match=r"cannot be followed: .* give a row of all viewpoints, such as"):
        configured(row, 0, {})

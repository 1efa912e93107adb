"""`benchmarks/late_epochs.py`: it trains the run of its row, and measures what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import late_epochs
import pictures
from late_epochs import AVERAGE, NEW, NEW_AVERAGE, RUNNING, Followed, configured, draw, follow, path_of, table_of
from narrow import NARROW
from quatcaps.console import standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import errors_on
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.run import create_run, open_run
from quatcaps.training.statistics import renormalised
from quatcaps.training.trained import trained_run
from vb_example import Example

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


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


@pytest.fixture(scope="module")
def followed(noise_images: ImageSet) -> Followed:
    (*_, found) = follow(CONFIG, Experiment(noise_images, {"test": noise_images}), CPU, 2)
    return found


def logged(images: ImageSet, folder: Path, **changes: object) -> tuple[float, ...]:
    """The errors of the last two epochs in the log of the same run by the training loop, in %."""
    run = create_run(folder, CONFIG.changed(changes), images, {"test": images})
    Trainer(run, Experiment(images, {"test": images})).train(Silent())
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
    assert pictures.legend_of(saved[-1]) == list(late_epochs.WAYS), "of all panels"
    path.write_text('{"format": 1, "config": {}}', encoding="utf-8")
    with pytest.raises(QuatcapsError, match=r"one.json has no late epochs of a run: KeyError\('epochs'\)"):
        late_epochs.recorded(tmp_path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(QuatcapsError, match="in format 1: move it out of this folder"):
        late_epochs.recorded(tmp_path)


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

    def no_training(config: TrainingConfig, experiment: Experiment, *rest: object) -> list[Followed]:
        seen.append(experiment)
        return [Followed("", config, 1, 2, "a machine", {}, "today", (1,), {RUNNING: (1.0,)})]

    monkeypatch.setattr(late_epochs, "load_run_images", lambda *rest: given)
    monkeypatch.setattr(late_epochs, "follow", no_training)
    command = ["late_epochs.py", "smallnorb/qcn/paper", "--set", "epochs=3", "--output", str(tmp_path)]
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


def test_the_example_is_trained_in_place_of_the_network(noise_images: ImageSet, tmp_path: Path) -> None:
    config = CONFIG.changed({"crop": 32, "epochs": 2, "loss": "cross-entropy", "model_settings": {}, "seed": 3})
    (found,) = follow(config, Experiment(noise_images, {"test": noise_images}), CPU, 1, example=True)
    assert found.parameters == sum(each.numel() for each in Example(2, 3).parameters())
    found = replace(found, key="smallnorb/vb/published-whole")
    assert found.name.startswith("smallnorb/vb/published-whole, example, 2 epochs")
    path = path_of(tmp_path, found.key, found.config, example=found.example)
    assert path.name.endswith(",example,seed-3.json")
    networks = [late_epochs.fresh(config, noise_images, CPU, example=True) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(*(each.parameters() for each in networks), strict=True))
    classes = networks[0](torch.rand(4, 2, 32, 32))
    assert (classes.poses.shape, classes.activations.shape) == ((4, 3, 16), (4, 3))
    assert sum(each.numel() for each in Example(2, 5).parameters()) == 206_154, "as in the public code"


def test_the_example_takes_images_of_its_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["late_epochs.py", "mnist/qcn/paper", "--example", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(QuatcapsError, match="mnist/qcn/paper has images of 28 pixels: the example takes 32"):
        late_epochs.main(late_epochs.parsed(), standard_output())


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        ("poses-toys/resnet/poses", {}),
        ("evidence-azimuth-strict/qcn-rotor-pretrained", {}),
        ("azimuth-pooled/qcn/paper", {}),
        ("smallnorb/qcn/paper", {"class_weights": "balanced"}),
    ],
)
def test_rows_that_it_would_train_otherwise_are_refused(row: str, changes: dict[str, str]) -> None:
    with pytest.raises(QuatcapsError, match="cannot be followed: it begins with other weights, has a pose objective"):
        configured(row, 0, changes)

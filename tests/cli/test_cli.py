"""The command line as its user meets it: what it prints, what it leaves, how it fails."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from quatcaps import data
from quatcaps.cli import main
from quatcaps.errors import QuatcapsError
from quatcaps.explorer.export import export
from quatcaps.paper import recipes
from quatcaps.training import step
from quatcaps.training.run import Run

SMALL = ("--recipe", "small", "--dataset", "toys-mini", "--device", "cpu")


@pytest.fixture(scope="module")
def run_folder(toys_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the small network on familiar azimuths, one epoch."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = [*SMALL, "--viewpoints", "azimuth", "--epochs", "1", "--evaluate-every", "0"]
    arguments += ["--output", str(folder), "--data-dir", str(toys_folder)]
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(io.StringIO()) as out:
        patched.setattr("sys.argv", ["quatcaps", "train", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert not stopped.value.code
    assert "epoch 1/1" in out.getvalue()
    assert f"--resume {folder} --epochs" in " ".join(out.getvalue().split()), "so few images need more epochs"
    return folder


def test_help_does_not_import_torch() -> None:
    code = "import sys, quatcaps.cli as c; sys.argv[1:] = ['train', '--help']\ntry: c.main()\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'numpy', 'matplotlib'} & sys.modules.keys()"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "--learning-rate" in finished.stdout
    assert "--model-setting NAME=VALUE" in finished.stdout


def test_version(command: Callable) -> None:
    assert command("--version").out.startswith("quatcaps 0.")


def test_run_keeps_its_whole_configuration(run_folder: Path) -> None:
    description = json.loads((run_folder / "run.json").read_text())
    assert description["config"]["viewpoints"] == "azimuth"
    assert description["config"]["learning_rate"] == 1e-2
    assert description["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert description["versions"]["torch"] == torch.__version__


def test_evaluate_prints_tables_and_leaves_numbers_and_picture(
    run_folder: Path, toys_folder: Path, tmp_path: Path, command: Callable
) -> None:
    outcome = command("evaluate", run_folder, "--data-dir", toys_folder, "--output", tmp_path, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    found = json.loads((tmp_path / "evaluation-test.json").read_text())
    assert found["all"]["error"]["images"] == 900
    assert found["familiar"]["error"]["images"] == 300
    assert found["novel"]["error"]["images"] == 600
    assert set(found["familiar"]["by_azimuth"]) == {"0", "300"}
    assert list(found["all"]["by_elevation"]) == ["30", "45", "60"]
    assert f"{found['novel']['error']['error_percent']:.2f}% error" in outcome.out
    assert "airplane" in outcome.out
    with Image.open(tmp_path / "evaluation-test.png") as picture:
        assert picture.width > 150
    mistakes, gallery = found["all"]["error"]["errors"], tmp_path / "evaluation-test-mistakes.png"
    assert f"24 of {mistakes} mistakes shown in {gallery}" in outcome.out.replace("\n", "")
    with Image.open(gallery) as picture:
        assert picture.width > 150


def test_predict_names_the_class(run_folder: Path, toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    images = data.load("toys-mini", "test", folder=toys_folder)
    pair, left = tmp_path / "pair.png", tmp_path / "left.png"
    Image.fromarray(torch.cat(list(images.images[7]), 1).numpy()).save(pair)
    Image.fromarray(images.images[7, 0].numpy()).convert("RGB").save(left)
    outcome = command("predict", run_folder, pair, left, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    for path, line in zip((pair, left), lines, strict=True):
        named = re.fullmatch(rf"{path}: (\w+), activation (0\.\d+) \(next: (\w+), (0\.\d+)\)", line)
        assert named, line
        assert {named[1], named[3]} < set(images.classes)
        assert float(named[2]) >= float(named[4])


def test_resume_of_a_finished_run_says_so(run_folder: Path, toys_folder: Path, command: Callable) -> None:
    outcome = command("train", "--resume", run_folder, "--data-dir", toys_folder)
    assert outcome.code == 0
    assert "is trained to its end, 1 epochs" in " ".join(outcome.out.split())


def one_line(text: str, *words: str) -> None:
    assert text.count("\n") == 1, text
    assert text.startswith("error: ")
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dataset", "toyz"), ("unknown dataset 'toyz': did you mean 'toys",)),
        (("--model", "qnc"), ("unknown model 'qnc': did you mean 'qcn'",)),
        (("--recipe", "papr"), ("unknown recipe 'papr': did you mean 'paper'",)),
        (("--loss", "spred"), ("did you mean 'spread'",)),
        (("--epochs", "0"), ("epochs = 0",)),
        (("--crop", "24"), ("input 24×24 is too small", "at least 25×25")),
        (("--crop", "64"), ("crop = 64", "48")),
        (("--image-size", "10", "--crop", "8"), ("input 8×8 is too small",)),
        (("--device", "cuda:7"), ("device 'cuda:7' is not here",)),
        (("--model-setting", "iterations"), ("'iterations': write it as NAME=VALUE",)),
        (("--model-setting", "iteration=2"), ("did you mean 'routing.iterations'",)),
        (("--model-setting", "iterations=two"), ("iterations = 'two': it must be a whole number",)),
        (("--model-setting", "iterations=0"), ("0 routing iterations: at least 1",)),
        (("--model-setting", "activation=logistik"), ("did you mean 'logistic'",)),
        (("--output", "/proc/nowhere/run"), ("cannot make the folder /proc/nowhere/run",)),
        (
            ("--output", "/dev/null/run"),
            ("cannot make the folder /dev/null/run", "a file stands where a folder is needed"),
        ),
    ],
)
def test_bad_settings_are_one_line(
    arguments: tuple[str, ...], words: tuple[str, ...], toys_folder: Path, tmp_path: Path, command: Callable
) -> None:
    output = () if "--output" in arguments else ("--output", tmp_path / "run")
    outcome = command("train", *SMALL, *output, "--data-dir", toys_folder, *arguments)
    assert outcome.code == 1
    one_line(outcome.err, *words)
    assert not (tmp_path / "run").exists(), "nothing is left of a run that never began"


@pytest.mark.parametrize("kept", ["run.json", "thesis.tex"])
def test_used_folder_is_refused_before_any_image_is_made(
    kept: str, tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quatcaps.data.toys.load", lambda *arguments, **more: pytest.fail("rendered"))
    (tmp_path / kept).write_text("{}")
    outcome = command("train", *SMALL, "--output", tmp_path, "--data-dir", tmp_path / "data")
    assert outcome.code == 1
    one_line(outcome.err, f"{tmp_path} is not empty")
    assert [path.name for path in tmp_path.iterdir()] == [kept]


def test_flag_of_the_wrong_type(command: Callable) -> None:
    outcome = command("train", "--epochs", "many")
    assert outcome.code == 2
    assert "--epochs" in outcome.err


def test_unknown_flag(command: Callable) -> None:
    outcome = command("train", "--epoch", "3")
    assert outcome.code == 2
    assert "--epochs" in outcome.err, "the nearest known flag"


def test_resume_takes_no_other_settings(run_folder: Path, command: Callable) -> None:
    for flag, value in (("--learning-rate", "9"), ("--recipe", "small"), ("--config", "run.json")):
        outcome = command("train", "--resume", run_folder, flag, value)
        assert outcome.code == 1
        one_line(outcome.err, f"{flag} cannot change a run that is resumed")


@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_folder_that_is_not_a_run(name: str, tmp_path: Path, command: Callable) -> None:
    picture = (tmp_path / "x.png",) if name == "predict" else ()
    outcome = command(name, tmp_path, *picture)
    assert outcome.code == 1
    one_line(outcome.err, f"{tmp_path} is not a run", "run.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "is not an image"),
        (b"GIF89a nonsense", "is not an image"),
        ("folder", "folder"),
    ],
)
def test_file_that_is_no_image(
    content: bytes | str | None, words: str, run_folder: Path, tmp_path: Path, command: Callable
) -> None:
    path = tmp_path / "picture.png"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    outcome = command("predict", run_folder, path, "--device", "cpu")
    assert outcome.code == 1
    one_line(outcome.err, str(path), words)


def test_truncated_checkpoint(run_folder: Path, toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    weights = next((copy / "checkpoints").glob("*/weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    outcome = command("evaluate", copy, "--data-dir", toys_folder, "--device", "cpu")
    assert outcome.code == 1
    one_line(outcome.err, "weights.safetensors is truncated or not a safetensors file")
    assert not (copy / "evaluation-test.json").exists()


def test_interrupt_is_one_line(
    toys_folder: Path, tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    compute = step.TrainingStep.compute

    def interrupted(self: step.TrainingStep) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        compute(self)

    monkeypatch.setattr(step.TrainingStep, "compute", interrupted)
    outcome = command("train", *SMALL, "--output", tmp_path / "run", "--data-dir", toys_folder)
    assert outcome.code == 130
    one_line(outcome.err, "interrupted after step 1", f"--resume {tmp_path / 'run'}")
    assert (tmp_path / "run" / "checkpoints" / "step-00000001" / "state.json").exists()


def test_interrupt_before_training_is_one_line(
    tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quatcaps.data.toys.load", interrupted)
    outcome = command("train", *SMALL, "--output", tmp_path / "run", "--data-dir", tmp_path / "data")
    assert outcome.code == 130
    one_line(outcome.err, "interrupted")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried to allocate 9 GiB", "can't allocate memory: 9 bytes"])
def test_out_of_memory_names_the_remedy(words: str, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr("quatcaps.training.start.start_run", exhausted)
    outcome = command("train")
    assert outcome.code == 1
    one_line(outcome.err, "choose a smaller --batch")


def test_a_gpu_that_fails_is_told_with_what_to_do(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback stays, as the cause may be ours."""

    def failed(*arguments: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("quatcaps.training.start.start_run", failed)
    with pytest.raises(torch.AcceleratorError) as caught:
        command("train")
    (note,) = caught.value.__notes__
    assert "train --resume RUN, or the same command of reproduce" in note
    assert "MPS" in note


@pytest.mark.usefixtures("unchecked")
def test_demo_leaves_its_page(
    toys_folder: Path, tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quatcaps.paper import demo

    for name in ("demo", "demo_cnn"):
        recipe = getattr(recipes, name)
        changes = {"dataset": "toys-mini", "batch": 128, "image_size": 48, "crop": 32}
        monkeypatch.setattr(demo, name, lambda recipe=recipe, changes=changes: recipe().changed(changes))
    monkeypatch.setattr(demo, "trained_beside", lambda *arguments: nullcontext())
    monkeypatch.setattr(demo, "AZIMUTHS", (0, 180))
    monkeypatch.setattr(demo, "ELEVATIONS", (40,))
    monkeypatch.setattr(demo, "export", partial(export, toys=((0, 0), (4, 0))))
    asked = ("demo", "--output", tmp_path, "--data-dir", toys_folder, "--device", "cpu")
    outcome = command(*asked, "--epochs", 1)
    assert outcome.code == 0, outcome.err
    assert "index.html" in outcome.out
    assert "is trained to its end" not in " ".join(outcome.out.split())
    results = json.loads((tmp_path / "results.json").read_text())
    assert [each["name"] for each in results["networks"]] == ["qcn-rotor-small", "cnn-small"]
    assert all(0 < each["test"]["poses"]["median_degrees"] < 180 for each in results["networks"])
    for name in ("index.html", "explorer.html", "samples.png", "orientation.png", "results.md", "results.csv"):
        assert (tmp_path / name).stat().st_size > 0, name
    outcome = command(*asked, "--epochs", 2)
    assert outcome.code == 1
    one_line(outcome.err, "holds a run with other settings")

    def stop(*arguments: object) -> None:
        raise QuatcapsError("far enough")

    monkeypatch.setattr(demo, "contender", stop)
    outcome = command(*asked, "--epochs", 1)
    assert " ".join(outcome.out.split()).count("is trained to its end") == 2
    one_line(outcome.err, "far enough")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_demo_trains_the_second_network_in_a_process_of_its_own(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quatcaps.paper import demo

    said = tmp_path / "said"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$OMP_NUM_THREADS $@" > {said}\n')
    program.chmod(0o755)
    monkeypatch.setattr(demo.sys, "executable", str(program))
    run = Run(tmp_path / "run", recipes.demo_cnn(), 2, ("a", "b"), (32, 32))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with demo.trained_beside(run, tmp_path / "data", torch.device(device), Console(quiet=True)):
            inside = torch.get_num_threads()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    if device == "cuda":
        assert inside == 2
        assert not said.exists()
        return
    assert inside == 1
    wanted = f"1 -m quatcaps train --resume {run.folder} --device cpu --data-dir {tmp_path / 'data'}"
    assert said.read_text().strip() == wanted


def test_demo_under_torchrun_says_to_start_it_alone(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = command("demo", "--output", tmp_path / "demo")
    assert outcome.code == 1
    assert "process 1 of 2: start quatcaps demo without torchrun" in outcome.err
    assert not (tmp_path / "demo").exists()

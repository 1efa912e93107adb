"""The command line: parses, calls, prints. What needs torch is imported by the commands that need it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from quatcaps import __version__
from quatcaps.errors import QuatcapsError
from quatcaps.flags import DataDir, Device, given, with_flags
from quatcaps.reproduce_cli import reproduce
from quatcaps.training.config import TrainingConfig
from quatcaps.weights_cli import weights_app

app = typer.Typer(
    help="Quaternion Capsule Networks: train, evaluate and look at them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = "interrupted; what was finished is kept, nothing is half-written"

Weights = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="instead of a run: weights as quatcaps weights list shows, or a .safetensors file's path"
    ),
]


def _version(asked: bool | None) -> None:
    if asked:
        typer.echo(f"quatcaps {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Quaternion Capsule Networks: train, evaluate and look at them."""


@app.command()
@with_flags(TrainingConfig)
def train(
    recipe: Annotated[
        str, typer.Option(help="the configuration to start from: paper, best, small, demo or demo-cnn")
    ] = "paper",
    output: Annotated[
        Path | None, typer.Option(help="folder of the new run (default: runs/DATASET-MODEL-SEED)")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="continue the run in this folder, with its own configuration")
    ] = None,
    data_dir: DataDir = None,
    **settings: Any,
) -> None:
    """Train a network; all settings have flags."""
    from rich.console import Console

    from quatcaps.recipes import configured
    from quatcaps.training.commands import resume_run, start_run

    changes = given(settings)
    if resume is not None:
        refused = [name for name in changes if name != "device"] + (["output"] if output else [])
        if refused:
            raise QuatcapsError(
                f"--{refused[0].replace('_', '-')} cannot change a run that is resumed: its own configuration goes on"
            )
        resume_run(resume, data_dir, Console(), changes.get("device"))
        return
    config = configured(recipe, changes)
    folder = output or Path("runs") / f"{Path(config.dataset).stem}-{config.model}-{config.seed}"
    start_run(config, folder, data_dir, Console())


@app.command()
def evaluate(
    run: Annotated[Path | None, typer.Argument(help="folder of a run", metavar="RUN")] = None,
    weights: Weights = None,
    split: Annotated[str, typer.Option(help="test, train, or validation: what the run held out")] = "test",
    output: Annotated[
        Path | None, typer.Option(help="folder for the table and the picture (default: the run's; for weights none)")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Error, per-class errors, confusion matrix, error by azimuth and elevation, as tables and as a picture."""
    from rich.console import Console

    from quatcaps.evaluation.commands import evaluate_command
    from quatcaps.weights.zoo import run_or_weights

    evaluate_command(run_or_weights(run, weights), split, output, device, data_dir, Console())


@app.command()
def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(help="folder of a run, unless there are --weights; then images", metavar="[RUN] IMAGE…"),
    ],
    weights: Weights = None,
    device: Device = "auto",
) -> None:
    """Name the class of image files, with its activation.

    A stereo network takes an image twice as wide as high as the left view beside the right, any other as both views.
    """
    from rich.console import Console

    from quatcaps.evaluation.commands import predict_command
    from quatcaps.weights.zoo import run_or_weights

    run, images = (paths[0], paths[1:]) if weights is None else (None, paths)
    if not images:
        raise QuatcapsError(f"no image was given after the run {run}: quatcaps predict RUN IMAGE…")
    predict_command(run_or_weights(run, weights), images, device, Console())


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="folder for the tables, the pictures and the page")] = Path("demo"),
    device: Device = "auto",
    data_dir: DataDir = None,
    epochs: Annotated[int | None, typer.Option(help="fewer or more passes than the demo's own")] = None,
) -> None:
    """Render the toys, train a small QCN and a small CNN on familiar azimuths, compare them on novel ones."""
    from rich.console import Console

    from quatcaps.demo import demo_command

    demo_command(output, device, data_dir, epochs, Console())


app.command()(reproduce)


@app.command("models")
def list_models() -> None:
    """The networks: parameters by dataset, votes and operations per image."""
    from rich.console import Console

    from quatcaps.models.commands import models_command

    models_command(Console())


@app.command()
def bench(
    model: Annotated[list[str] | None, typer.Option(help="qcn or qcn-small; may be repeated (default: qcn)")] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="reference, native, triton, paper (its 4×4 formulation) or compile (torch.compile of the "
            "reference); may be repeated (default: all that the device has)"
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(help="images in a step; may be repeated (default: 8 on a CPU; 64 on a GPU, up to 512 for triton)"),
    ] = None,
    passing: Annotated[str, typer.Option("--pass", help="train, forward or both")] = "both",
    launch: Annotated[
        str, typer.Option(help="on a GPU: eager (one by one), graph (captured as one CUDA graph) or both")
    ] = "both",
    steps: Annotated[int | None, typer.Option(help="counted steps (default: 7 on a CPU, 30 on a GPU)")] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="also one routing layer, by its children, parents and positions")
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="also a training step with the data path: images on the device, on the host")
    ] = False,
    networks: Annotated[bool, typer.Option(help="whole networks; --no-networks leaves them out")] = True,
    device: Device = "auto",
    machine: Annotated[str, typer.Option(help="the machine's name in the results (default: its GPU or CPU)")] = "",
    output: Annotated[Path, typer.Option(help="folder for the numbers and the pictures")] = Path("bench"),
) -> None:
    """Time and memory of a training step and of a forward pass, by routing backend and batch.

    Beside the backends stand the paper's own 4×4 formulation and torch.compile of the reference.
    """
    from rich.console import Console

    from quatcaps.bench.commands import bench_command
    from quatcaps.bench.plan import Plan

    plan = Plan(
        models=tuple(model or ("qcn",)),
        variants=tuple(backend or ()),
        batches=tuple(batch or ()),
        passing=passing,
        launch=launch,
        steps=steps,
    )
    bench_command(plan, device, machine, output, Console(), networks=networks, scaling=scaling, data=data)


datasets = typer.Typer(
    help="Datasets: what there is, preparing and verifying it, a look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(datasets, name="data")
Source = Annotated[
    Path | None, typer.Option(help="folder with the authors' files (default: NAME in the data folder; else downloads)")
]
Side = Annotated[int | None, typer.Option("--size", help="side of the images in pixels (default: as the paper)")]


@datasets.command("list")
def data_list(data_dir: DataDir = None) -> None:
    """What is known, what of it is here, sizes, licences and citations."""
    from rich.console import Console

    from quatcaps.data.commands import list_command

    list_command(data_dir, Console())


@datasets.command("prepare")
def data_prepare(
    names: Annotated[list[str], typer.Argument(help="names as quatcaps data list shows, or paths", metavar="NAME…")],
    data_dir: DataDir = None,
    source: Source = None,
    size: Side = None,
    mirror: Annotated[list[str] | None, typer.Option(help="address to try first; may be repeated")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="download nothing")] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="take well-formed files whose content is not as published")
    ] = False,
) -> None:
    """Find or download, verify, and convert once to a compact file."""
    from rich.console import Console

    from quatcaps.data.commands import prepare_command

    prepare_command(names, data_dir, source, size, mirror or (), Console(), offline=offline, unverified=unverified)


@datasets.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="datasets (default: all)", metavar="[NAME…]")] = None,
    data_dir: DataDir = None,
    source: Source = None,
) -> None:
    """Check prepared datasets and the authors' files: whole, and as published."""
    from rich.console import Console

    from quatcaps.data.commands import verify_command

    verify_command(names or (), data_dir, source, Console())


@datasets.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="dataset by name, or path", metavar="NAME")],
    split: Annotated[str, typer.Option(help="train or test")] = "train",
    data_dir: DataDir = None,
    size: Side = None,
    output: Annotated[Path | None, typer.Option(help="the picture (default: NAME-SPLIT.png)")] = None,
) -> None:
    """A contact sheet as PNG, by class; where there are viewpoints, another of one toy from all of them."""
    from rich.console import Console

    from quatcaps.data.commands import show_command

    show_command(name, split, data_dir, size, output, Console())


app.add_typer(weights_app, name="weights")


def main() -> None:
    """Runs the command line; an error that a user can mend becomes one line and a non-zero exit."""
    try:
        app()
    except QuatcapsError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail(INTERRUPTED, 130)
    except SystemExit as stop:
        if stop.code == 130:  # typer turns Ctrl-C into this, without a word
            fail(INTERRUPTED, 130)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except MemoryError:
        fail("out of memory: choose a smaller --batch", 1)
    except RuntimeError as error:
        if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        fail(f"out of memory: choose a smaller --batch, or another --device ({str(error).splitlines()[0]})", 1)


def fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

"""`quatcaps bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quatcaps.cli.choices import DATASETS, RECIPES, completing
from quatcaps.cli.flags import DataDir, Device
from quatcaps.console import say, standard_output
from quatcaps.errors import QuatcapsError

if TYPE_CHECKING:
    import torch

    from quatcaps.bench.plan import Plan

TO_ERROR = "To the paper's error"
"""The section of `--help`."""


def bench(
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:SETTING=VALUE[;SETTING=VALUE…]]",
            help="a capsule network as quatcaps models lists them, with changes to its settings, such as "
            "'qcn:pose=free'; may be repeated (default: qcn; for --scaling the shape of the recipe best)",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="also the time of each row as a multiple of this model's; measured too"),
    ] = None,
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
    tf32: Annotated[
        str,
        typer.Option(
            help="on a GPU: on (allowed in convolutions and matrix products), off, both, or default: as PyTorch is set"
        ),
    ] = "default",
    precision: Annotated[
        str, typer.Option(help="of the convolutions: float32, or bf16 as quatcaps train --precision has it")
    ] = "float32",
    steps: Annotated[int | None, typer.Option(help="counted steps (default: 7 on a CPU, 30 on a GPU)")] = None,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="on a GPU: compile all kernels anew, so that first steps count it"),
    ] = False,
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling",
            help="also one routing layer by its children, parents and positions, and training steps of whole networks "
            "by the side of the images and by the number of classes",
        ),
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="also a training step with the data path: images on the device, on the host")
    ] = False,
    networks: Annotated[bool, typer.Option(help="whole networks; --no-networks leaves them out")] = True,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="instead of times: every kernel of one step (on a CPU, every operator) with what it is for, as JSON "
            "in this file, and a picture beside it (default: a training step of the shape of the recipe best)",
        ),
    ] = None,
    device: Device = "auto",
    machine: Annotated[str, typer.Option(help="the machine's name in the results (default: its GPU or CPU)")] = "",
    output: Annotated[Path, typer.Option(help="folder for the numbers and the pictures")] = Path("bench"),
    to_error: Annotated[
        bool,
        typer.Option(
            "--to-error",
            help="instead of steps: train the recipe fast of each dataset to its end, and report its seconds and its "
            "test error against the paper's, over seeds",
            rich_help_panel=TO_ERROR,
        ),
    ] = False,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="smallnorb, mnist, fashionmnist, svhn or cifar10; may be repeated (default: all)",
            autocompletion=completing(DATASETS[:5]),
            rich_help_panel=TO_ERROR,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many: 0, 1, …", rich_help_panel=TO_ERROR)] = 10,
    validation: Annotated[
        float | None,
        typer.Option(
            metavar="PART",
            help="measure on this part of the training images, held out, and look at no test image",
            rich_help_panel=TO_ERROR,
        ),
    ] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME=VALUE,VALUE",
            help="with --validation: train with each value of this setting of quatcaps train, and of several settings "
            "every combination; may be repeated",
            rich_help_panel=TO_ERROR,
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="with --validation: the recipe that is trained, and that --try changes",
            autocompletion=completing(RECIPES),
            rich_help_panel=TO_ERROR,
        ),
    ] = "fast",
    again: Annotated[
        bool, typer.Option("--again", help="train seeds again that are recorded", rich_help_panel=TO_ERROR)
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="a miniature on the small rendered toys, in seconds on a CPU", rich_help_panel=TO_ERROR
        ),
    ] = False,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="stop after so long", rich_help_panel=TO_ERROR)
    ] = None,
    side_by_side: Annotated[
        int,
        typer.Option(
            help="with --validation: how many runs are trained at once; they share a GPU well under NVIDIA's MPS",
            rich_help_panel=TO_ERROR,
        ),
    ] = 1,
    data_dir: DataDir = None,
    work: Annotated[
        Path | None, typer.Option(help="folder for the runs (default: runs)", rich_help_panel=TO_ERROR)
    ] = None,
) -> None:
    """Time and memory of a training step and of a forward pass, by network, routing backend and batch.

    Beside the backends stand the paper's own 4×4 formulation and torch.compile of the reference.
    """
    if to_error:
        beside = {
            "model": model,
            "against": against,
            "backend": backend,
            "batch": batch,
            "scaling": scaling,
            "data": data,
        }
        if refused := next((name for name, value in beside.items() if value), None):
            raise QuatcapsError(
                f"--{refused} does not go with --to-error: settings are tried with --validation and --try"
            )
        from quatcaps.paper.to_error import Request
        from quatcaps.paper.to_error import to_error as carry_out

        request = Request(
            datasets=tuple(dataset or ()),
            seeds=seeds,
            validation=validation,
            tried=tuple(tried or ()),
            recipe=recipe,
            quick=quick,
            again=again,
            budget=budget,
            side_by_side=side_by_side,
            device=device,
            data_dir=data_dir,
            output=output,
            work=work,
        )
        carry_out(request, standard_output())
        return
    if dataset or tried or validation is not None or recipe != "fast" or again or quick or side_by_side != 1:
        raise QuatcapsError(
            "--dataset, --try, --validation, --recipe, --again, --quick and --side-by-side belong to --to-error: add it"
        )
    from quatcaps.bench.plan import Plan
    from quatcaps.bench.run import measure_plan, write_results
    from quatcaps.bench.tables import all_tables, remarks
    from quatcaps.training.run import choose_device

    plan = Plan(
        models=tuple(model or ()),
        variants=tuple(backend or ()),
        batches=tuple(batch or ()),
        passing=passing,
        launch=launch,
        tf32=tf32,
        against=against,
        steps=steps,
        cold=cold,
        precision=precision,
    )
    console, chosen = standard_output(), choose_device(device)
    if timeline is not None:
        draw_timeline(plan, chosen, machine, timeline, console)
        return
    results = measure_plan(plan, chosen, machine, output, console, networks=networks, scaling=scaling, data=data)
    written = write_results(results, output)
    for table in all_tables(results):
        console.print(table.rich(console.width))
    for line in remarks(results):
        say(console, line)
    say(console, f"numbers and pictures in {', '.join(map(str, written))}")


def draw_timeline(plan: Plan, device: torch.device, machine: str, path: Path, console: Console) -> None:
    """`--timeline`."""
    from quatcaps.bench.timeline import measure_timeline, timeline_tables, timeline_words, write_timeline

    if path.suffix == ".png":
        raise QuatcapsError(
            f"--timeline {path}: the picture takes that name; give the file of the numbers, such as "
            f"{path.with_suffix('.json')}"
        )
    plan.check(device)
    found = measure_timeline(plan.one_case(device), device, machine)
    written = write_timeline(found, path)
    for table in timeline_tables(found):
        console.print(table.rich(console.width))
    say(console, timeline_words(found))
    say(console, f"numbers and picture in {', '.join(map(str, written))}")

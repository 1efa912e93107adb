"""`quatcaps bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import Device
from quatcaps.console import say, standard_output


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
    device: Device = "auto",
    machine: Annotated[str, typer.Option(help="the machine's name in the results (default: its GPU or CPU)")] = "",
    output: Annotated[Path, typer.Option(help="folder for the numbers and the pictures")] = Path("bench"),
) -> None:
    """Time and memory of a training step and of a forward pass, by network, routing backend and batch.

    Beside the backends stand the paper's own 4×4 formulation and torch.compile of the reference.
    """
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
    )
    console, chosen = standard_output(), choose_device(device)
    results = measure_plan(plan, chosen, machine, output, console, networks=networks, scaling=scaling, data=data)
    written = write_results(results, output)
    for table in all_tables(results):
        console.print(table.rich(console.width))
    for line in remarks(results):
        say(console, line)
    say(console, f"numbers and pictures in {', '.join(map(str, written))}")

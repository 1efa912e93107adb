"""`quatcaps reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import DataDir, Device, given
from quatcaps.console import standard_output


def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            help="table1, table2, table3; ablation, what mattered on the way from paper to best (five seeds hold out "
            "every toy once); systems, the compared systems as their public code has them (--rows); poses, what they "
            "know; evidence, systems that are given the same images (ten seeds); settings, what was tried for new "
            "viewpoints, on rendered toys first (five seeds); several may be given",
            metavar="TABLE…",
        ),
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="only the rows whose keys match, such as smallnorb/qcn/best or '*/qcn/*'; may be repeated "
            "(--list shows the keys)",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="how many seeds: 0, 1, … (default: 1)")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="exactly this seed; may be repeated")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="stop after so long, with a checkpoint to go on from")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="in minutes on a CPU: narrowed networks on the small rendered toys")
    ] = False,
    render: Annotated[bool, typer.Option("--render", help="train nothing, render the tables from the records")] = False,
    listing: Annotated[
        bool,
        typer.Option("--list", help="show the rows, how far they are, how long they took and what is left will take"),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="train again what was recorded or begun with other settings than now, is damaged, or, in evidence, "
            "does not say which images are misclassified; give --rows for some rows alone",
        ),
    ] = False,
    launcher: Annotated[
        str,
        typer.Option(help="here; slurm or local: one job for each row and seed through submitit (quatcaps[slurm])"),
    ] = "here",
    launcher_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="for submitit, such as slurm_partition=gpu; may be repeated"),
    ] = None,
    processes: Annotated[int, typer.Option(help="that train each run together, by torchrun: one for each GPU")] = 1,
    side_by_side: Annotated[
        int, typer.Option(help="how many runs are trained at once here: small ones share a GPU well under NVIDIA's MPS")
    ] = 1,
    device: Device = "auto",
    data_dir: DataDir = None,
    output: Annotated[
        Path | None, typer.Option(help="folder for records and tables (default: results; results-quick with --quick)")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="folder for the runs (default: runs/reproduce; runs/quick with --quick)")
    ] = None,
) -> None:
    """Reproduce the paper's tables: train what is missing, record every run, render Markdown, CSV and pictures.

    A finished run is not repeated, a stopped one goes on. Several processes that share folders share the work.
    """
    from quatcaps.paper.reproduce import Request, seeds_of
    from quatcaps.paper.reproduce import reproduce as carry_out

    request = Request(
        tables=tuple(dict.fromkeys(tables)),
        rows=tuple(rows or ()),
        seeds=seeds_of(seeds, seed or ()),
        budget=budget,
        quick=quick,
        again=again,
        launcher=launcher,
        launcher_options=given({"launcher_options": launcher_option}).get("launcher_options", {}),
        processes=processes,
        side_by_side=side_by_side,
        device=device,
        data_dir=data_dir,
        output=output,
        work=work,
    )
    carry_out(request, standard_output(), only_render=render, only_list=listing)

"""`quatcaps data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import DataDir
from quatcaps.cli.machine import AsJson, print_json
from quatcaps.console import standard_output

data_app = typer.Typer(
    help="Datasets: what there is, preparing and verifying it, a look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Source = Annotated[
    Path | None,
    typer.Option(help="folder with the authors' files, always read (default: NAME in the data folder; else downloads)"),
]
Side = Annotated[int | None, typer.Option("--size", help="side of the images in pixels (default: as the paper)")]


@data_app.command("list")
def data_list(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What is known, what of it is here, sizes, licences and citations."""
    from quatcaps.cli.datasets import described, list_command

    if as_json:
        print_json(described(data_dir))
        return
    list_command(data_dir, standard_output())


@data_app.command("prepare")
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
    from quatcaps.cli.datasets import prepare_command

    prepare_command(
        names, data_dir, source, size, mirror or (), standard_output(), offline=offline, unverified=unverified
    )


@data_app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="datasets (default: all)", metavar="[NAME…]")] = None,
    data_dir: DataDir = None,
    source: Source = None,
) -> None:
    """Check prepared datasets and the authors' files: whole, and as published."""
    from quatcaps.cli.datasets import verify_command

    verify_command(names or (), data_dir, source, standard_output())


@data_app.command("clean")
def data_clean(
    data_dir: DataDir = None,
    downloads: Annotated[
        bool, typer.Option("--downloads", help="also the authors' files, and interrupted downloads")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="remove what is listed")] = False,
) -> None:
    """List what of the data folder can go, with sizes; --yes removes it.

    That is: toys of other renderers, custom datasets whose source is gone or has changed, damaged files and files of
    other versions, what killed processes left. Nothing that another process is at work on.
    """
    from quatcaps.cli.datasets import clean_command

    clean_command(data_dir, standard_output(), downloads=downloads, yes=yes)


@data_app.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="dataset by name, or path", metavar="NAME")],
    split: Annotated[str, typer.Option(help="train or test")] = "train",
    data_dir: DataDir = None,
    size: Side = None,
    output: Annotated[Path | None, typer.Option(help="the picture (default: NAME-SPLIT.png)")] = None,
) -> None:
    """A contact sheet as PNG, by class; where there are viewpoints, another of one toy from all of them."""
    from quatcaps.cli.datasets import show_command

    show_command(name, split, data_dir, size, output, standard_output())

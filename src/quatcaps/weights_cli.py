"""`quatcaps weights` as the command line parses it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.flags import DataDir, Device

weights_app = typer.Typer(
    help="Trained weights: what there is, their cards, making and verifying them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@weights_app.command("list")
def weights_list() -> None:
    """What there is: network, dataset, parameters, error, size."""
    from rich.console import Console

    from quatcaps.weights.commands import list_command

    list_command(Console())


@weights_app.command("show")
def weights_show(
    name: Annotated[str, typer.Argument(help="a name, or the path of a .safetensors file", metavar="NAME")],
) -> None:
    """The card of some weights, as Markdown."""
    from rich.console import Console

    from quatcaps.weights.commands import show_command

    show_command(name, Console())


@weights_app.command("export")
def weights_export(
    run: Annotated[Path, typer.Argument(help="folder of a run that is trained to its end", metavar="RUN")],
    name: Annotated[str, typer.Option(help="what to call the weights: small letters, digits, - and .")],
    output: Annotated[Path, typer.Option(help="folder for NAME.safetensors and its card, NAME.json")] = Path("weights"),
    note: Annotated[str, typer.Option(help="how this run was chosen among others, for the card")] = "",
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Make weights with a card from a run; measures the test error."""
    from rich.console import Console

    from quatcaps.weights.commands import export_command

    export_command(run, name, output, device, data_dir, note, Console())


@weights_app.command("verify")
def weights_verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="names or paths of .safetensors files (default: all)", metavar="[NAME…]")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Check the files against their cards; measure each card's error again where its data are here."""
    from rich.console import Console

    from quatcaps.weights.commands import verify_command

    verify_command(names or (), device, data_dir, Console())

"""`quatcaps weights`: what there is, the cards, making and verifying them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import DataDir, Device
from quatcaps.cli.machine import AsJson, print_json
from quatcaps.console import counting, say, stages, standard_output
from quatcaps.errors import QuatcapsError

weights_app = typer.Typer(
    help="Trained weights: what there is, their cards, making and verifying them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@weights_app.command("list")
def weights_list(as_json: AsJson = False) -> None:
    """What there is: network, dataset, parameters, error, size, and how each was chosen among several runs."""
    from quatcaps.weights.page import how_chosen, list_table
    from quatcaps.weights.zoo import NONE, card, names

    console, cards = standard_output(), [card(name) for name in names()]
    if as_json:
        print_json({"weights": [each.to_json() for each in cards]})
        return
    if not cards:
        say(console, NONE)
        return
    console.print(list_table(cards).rich(console.width))
    say(console, f"Errors are those of the files. How each was chosen:\n{how_chosen(cards)}")
    say(console, f'Use them with quatcaps evaluate --weights NAME, or quatcaps.load("{cards[0].name}").')


@weights_app.command("show")
def weights_show(
    name: Annotated[str, typer.Argument(help="a name, or the path of a .safetensors file", metavar="NAME")],
) -> None:
    """The card of some weights, as Markdown."""
    from quatcaps.weights.page import page
    from quatcaps.weights.zoo import card

    say(standard_output(), page(card(name)).rstrip("\n"))


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
    from quatcaps.data.store import data_folder
    from quatcaps.training.run import choose_device, load_images, open_run
    from quatcaps.weights.export import export_run
    from quatcaps.weights.verify import in_words
    from quatcaps.weights.zoo import SUFFIX

    console, opened = standard_output(), open_run(run)
    chosen, place = choose_device(device), data_folder(data_dir)
    with stages(console) as stage, counting(console, "measuring the error") as progress:
        made = export_run(
            opened, name, output, lambda split: load_images(opened.config, split, place, stage), chosen, progress, note
        )
    errors = "; ".join(f"{split}: {in_words(rate)}" for split, rate in made.error.items())
    say(console, f"{output / f'{name}{SUFFIX}'} ({made.bytes:,} bytes) and its card {name}.json; {errors}")


@weights_app.command("verify")
def weights_verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="names or paths of .safetensors files (default: all)", metavar="[NAME…]")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Check the files against their cards; measure each card's error again where its data are here."""
    from quatcaps.data.store import data_folder
    from quatcaps.training.run import choose_device, load_images
    from quatcaps.weights import zoo
    from quatcaps.weights.verify import verify

    console, chosen, folder = standard_output(), choose_device(device), data_folder(data_dir)
    sources = [zoo.find(name) for name in names or zoo.names()]
    if not sources:
        say(console, zoo.NONE)
        return
    faults = []
    for source in sources:
        with stages(console) as stage, counting(console, f"measuring {source.stem}") as progress:
            verdict = verify(
                source, folder, lambda config, split: load_images(config, split, folder, stage), chosen, progress
            )
        for words in verdict.found:
            say(console, f"{verdict.name}: {words}")
        faults += [f"{verdict.name}: {fault}" for fault in verdict.faults]
    if faults:
        raise QuatcapsError(f"{len(faults)} not as on the card: {'; '.join(faults)}")

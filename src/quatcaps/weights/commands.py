"""`quatcaps weights`: what there is, the cards, making and verifying them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from quatcaps.data.cache import data_folder
from quatcaps.errors import QuatcapsError
from quatcaps.training.progress import counting, stages
from quatcaps.training.run import choose_device, load_images, open_run
from quatcaps.weights.export import export_run
from quatcaps.weights.page import list_table, page
from quatcaps.weights.verify import in_words, verify
from quatcaps.weights.zoo import HOW_TO_MAKE, SUFFIX, card, find, names

NONE = f"no weights come with this version; {HOW_TO_MAKE}"


def say(console: Console, words: str) -> None:
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def list_command(console: Console) -> None:
    """A table of the weights that come with the package."""
    cards = [card(name) for name in names()]
    if not cards:
        say(console, NONE)
        return
    console.print(list_table(cards).rich(console.width))
    say(console, f'Use them with quatcaps evaluate --weights NAME, or quatcaps.load("{cards[0].name}").')


def show_command(name: str, console: Console) -> None:
    """The card, as Markdown."""
    say(console, page(card(name)).rstrip("\n"))


def export_command(
    folder: Path, name: str, output: Path, device: str, data_dir: Path | None, note: str, console: Console
) -> None:
    """Makes weights with a card from a run."""
    run, chosen, place = open_run(folder), choose_device(device), data_folder(data_dir)
    with stages(console) as stage, counting(console, "measuring the error") as progress:
        made = export_run(
            run, name, output, lambda split: load_images(run.config, split, place, stage), chosen, progress, note
        )
    errors = "; ".join(f"{split}: {in_words(rate)}" for split, rate in made.error.items())
    say(console, f"{output / f'{name}{SUFFIX}'} ({made.bytes:,} bytes) and its card {name}.json; {errors}")


def verify_command(chosen_names: Sequence[str], device: str, data_dir: Path | None, console: Console) -> None:
    """Checks weights against their cards; an error where something differs."""
    chosen, folder = choose_device(device), data_folder(data_dir)
    sources = [find(name) for name in chosen_names or names()]
    if not sources:
        say(console, NONE)
        return
    faults = []
    for source in sources:
        with stages(console) as stage, counting(console, f"measuring {source.stem}") as progress:
            verdict = verify(
                source,
                folder,
                lambda config, split: load_images(config, split, folder, stage),
                chosen,
                progress,
            )
        for words in verdict.found:
            say(console, f"{verdict.name}: {words}")
        faults += [f"{verdict.name}: {fault}" for fault in verdict.faults]
    if faults:
        raise QuatcapsError(f"{len(faults)} not as on the card: {'; '.join(faults)}")

"""`quatcaps attack`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quatcaps.cli.choices import ATTACKS, completing
from quatcaps.cli.flags import DataDir, Device, Weights
from quatcaps.cli.machine import AsJson, console_for, print_json
from quatcaps.cli.networks import Checkpoint, chosen_network, in_words
from quatcaps.console import counting, say, stages
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder
from quatcaps.interrupted import EXIT_CODE

if TYPE_CHECKING:
    from quatcaps.data.imageset import ImageSet
    from quatcaps.training.trained import Trained

IMAGES, EPSILONS, STEPS, QUERIES = 100, "0.004,0.008,0.016,0.031,0.1", 20, 200
"""Where nothing else is asked for."""


def attack(
    run: Annotated[Path | None, typer.Argument(help="folder of a run", metavar="RUN")] = None,
    weights: Weights = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN|NAME", help="another run or weights to attack on the same images; may be repeated"),
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help=f"{', '.join(ATTACKS)} (default: fgsm, bim, pgd, deepfool, and for capsules vote)",
            autocompletion=completing(ATTACKS),
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="ε,…",
            help=f"how far a pixel may change, black being 0 and white 1; 8/255 is one too (default: {EPSILONS})",
        ),
    ] = None,
    normalised: Annotated[
        bool, typer.Option("--normalised", help="ε in units of the network's standardised input instead")
    ] = False,
    images: Annotated[
        int | None,
        typer.Option(help=f"how many test images, as many of each class (default: {IMAGES}; with --affine all)", min=1),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help=f"of bim, pgd, vote, apgd and fab-t; cw takes 30 times as many; AutoAttack has 100 (default: {STEPS})",
            min=1,
        ),
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="random starts of pgd, vote, apgd and apgd-t (default: 1)", min=1)
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help=f"of square; AutoAttack has 5,000 (default: {QUERIES})", min=1)
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RUN|NAME", help="also show adversarial images that were made on this other network"
        ),
    ] = None,
    masking: Annotated[bool, typer.Option(help="look for signs that gradients are masked")] = True,
    affine: Annotated[
        bool, typer.Option("--affine", help="instead: images moved, turned, scaled and sheared as in affNIST")
    ] = False,
    frame: Annotated[
        int | None, typer.Option(help="of --affine: side of the changed images (default: their own; affNIST has 40)")
    ] = None,
    seed: Annotated[int, typer.Option(help="chooses images, random starts and affine changes", min=0)] = 0,
    output: Annotated[
        Path | None, typer.Option(help="folder for the numbers and the picture (default: the run's; for weights none)")
    ] = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """How robust a network is: its error on images that were changed to deceive it, by attack and by how much a pixel
    may change, with a look for masked gradients; or, with --affine, on digits that are moved and turned.

    Writes attack.json and attack.png, or affine.json and affine.png. docs/robustness.md says how to read them.
    """
    from quatcaps.training.run import choose_device
    from quatcaps.weights.zoo import named_or_run

    console, trained = console_for(as_json), chosen_network(run, weights, checkpoint)
    if trained.checkpoint:
        say(console, in_words(trained))
    networks = [trained, *(named_or_run(name) for name in beside or [])]
    for other in networks[1:]:
        if other.config.dataset != trained.config.dataset:
            raise QuatcapsError(
                f"{other.name} was trained on {other.config.dataset}, {trained.name} on {trained.config.dataset}: "
                "robustness is compared on the same images; give networks of one dataset"
            )
    if frame is not None and not affine:
        raise QuatcapsError(f"--frame {frame} is for affine changes: give --affine too")
    of_attacks = {"attacks": attacks, "epsilon": epsilon, "normalised": normalised or None, "steps": steps}
    of_attacks |= {"restarts": restarts, "queries": queries, "from": source, "no-masking": None if masking else True}
    given = [f"--{name}" for name, value in of_attacks.items() if value is not None]
    if affine and given:
        raise QuatcapsError(f"not for affine changes: {', '.join(given)}; leave them out, or leave out --affine")
    for number, other in enumerate(networks):
        if any(is_same(other, one) for one in networks[:number]):
            raise QuatcapsError(f"--beside {other.name} is a network that is attacked already: give another one")
    folder = output or trained.folder
    if folder is None:
        say(console, "weights have no folder of their own: numbers and picture are kept if you give --output FOLDER")
    chosen = choose_device(device)

    def shown(one: Trained, stage: Any) -> ImageSet:
        return test_images(one, images if affine else images or IMAGES, seed, data_dir, console, stage)

    if affine:
        with told_if_lost(folder):
            value = affine_changes(networks, shown, chosen, frame, seed, folder, console)
    else:
        from quatcaps.robustness.attacks import Effort

        options: dict[str, Any] = {
            "epsilons": numbers_of(EPSILONS if epsilon is None else epsilon),
            "normalised": normalised,
            "effort": Effort(steps or STEPS, restarts or 1, queries or QUERIES),
            "source": None if source is None else named_or_run(source),
            "masking": masking,
            "seed": seed,
        }
        names = None if attacks is None else [name.strip() for name in attacks.split(",") if name.strip()]
        with told_if_lost(folder):
            value = attacked(networks, shown, chosen, names, options, folder, console)
    if as_json:
        print_json(value)


class NothingKeptError(QuatcapsError):
    """Ctrl-C, where there was no folder to keep anything in."""

    exit_code = EXIT_CODE


@contextmanager
def told_if_lost(folder: Path | None) -> Iterator[None]:
    """Ctrl-C says so where nothing is kept."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None:
            raise
        raise NothingKeptError(
            "interrupted; nothing is kept, as weights have no folder: give --output FOLDER"
        ) from None


def attacked(
    networks: Sequence[Trained],
    shown: Callable[..., ImageSet],
    device: Any,
    names: list[str] | None,
    options: dict[str, Any],
    folder: Path | None,
    console: Console,
) -> dict[str, Any]:
    """Attacks every network, says and writes what came of it."""
    from quatcaps.files import write_json
    from quatcaps.report.robustness import attack_figure, attack_tables
    from quatcaps.robustness import Attacked, Victim
    from quatcaps.robustness import attack as carry_out
    from quatcaps.robustness.attacks import check_attacks
    from quatcaps.robustness.balls import check_epsilon
    from quatcaps.robustness.masking import in_words as masking_in_words
    from quatcaps.robustness.unfinished import Unfinished

    source = options.pop("source")
    for epsilon in options["epsilons"]:
        check_epsilon(epsilon, normalised=options["normalised"])
    if names is not None:
        check_attacks(names, [Victim(one) for one in networks])
        if voteless := [one.name for one in networks if set(names) == {"vote"} and not Victim(one).has_votes]:
            raise QuatcapsError(f"{voteless[0]} has no votes to attack: give it another attack beside vote")
    if source is not None and all(is_same(source, one) for one in networks):
        raise QuatcapsError(f"--from {source.name} is the network that is attacked: give another one")
    if folder is not None:
        make_folder(folder)  # before hours of attacks, not after
    found, begun = list[Attacked](), list[Unfinished]()
    for one in networks:
        with stages(console) as stage:
            some = shown(one, stage)
        if found and f"{some.name}, {len(some):,} images" != found[0].images:
            raise QuatcapsError(
                f"{one.name} is tested on {some.name}, {found[0].name} on {found[0].images}: robustness is compared on "
                "the same images; give networks of one experiment"
            )
        if folder is not None:
            begun.append(Unfinished(folder))
        own = None if names is None else [name for name in names if name != "vote" or Victim(one).has_votes]
        elsewhere = None if source is None or is_same(source, one) else source
        if source is not None and elsewhere is None:
            say(console, f"{one.name} is where --from takes its images: it is not shown them")
        with counting(console, f"attacking {one.name}") as progress:
            options["unfinished"] = begun[-1] if begun else None
            found.append(carry_out(one, some, device, attacks=own, source=elsewhere, progress=progress, **options))
    for table in attack_tables(found):
        console.print(table.rich(console.width))
    for each in found:
        say(console, f"{each.name}: {masking_in_words(each.signs)}")
    value = {
        "epsilon_unit": "network input" if options["normalised"] else "pixels in [0, 1]",
        "effort": vars(options["effort"]),
        "seed": options["seed"],
        "from": None if source is None else source.name,
        "networks": [each.to_json() for each in found],
    }
    if folder is not None:
        write_json(folder / "attack.json", value)
        attack_figure(found, folder / "attack.png", normalised=options["normalised"])
        for kept in begun:
            kept.finish()
        say(console, f"numbers and picture in {folder / 'attack.json'} and attack.png")
    return value


def is_same(one: Trained, other: Trained) -> bool:
    """Whether two networks are one: the same model and weights."""
    from torch import equal

    first, second = one.network.state_dict(), other.network.state_dict()
    if one.config.model != other.config.model or first.keys() != second.keys():
        return False
    return all(equal(value.cpu(), second[name].cpu()) for name, value in first.items())


def affine_changes(
    networks: Sequence[Trained],
    shown: Callable[..., ImageSet],
    device: Any,
    frame: int | None,
    seed: int,
    folder: Path | None,
    console: Console,
) -> dict[str, Any]:
    """Measures every network on changed images, says and writes what came of it."""
    from quatcaps.files import write_json
    from quatcaps.report.robustness import affine_figure, affine_table
    from quatcaps.robustness import affine as carry_out

    if folder is not None:
        make_folder(folder)
    found = []
    for one in networks:
        with stages(console) as stage:
            some = shown(one, stage)
        with counting(console, f"changing what {one.name} sees") as progress:
            found.append(carry_out(one, some, device, frame=frame, seed=seed, progress=progress))
    console.print(affine_table(found).rich(console.width))
    value = {"seed": seed, "networks": [each.to_json() for each in found]}
    if folder is not None:
        write_json(folder / "affine.json", value)
        affine_figure(found, folder / "affine.png")
        say(console, f"numbers and picture in {folder / 'affine.json'} and affine.png")
    return value


def test_images(
    one: Trained, count: int | None, seed: int, data_dir: Path | None, console: Console, stage: Any
) -> ImageSet:
    """The test images of a network's run, or some of them, as many of each class."""
    from quatcaps.data.store import data_folder
    from quatcaps.robustness import some_images
    from quatcaps.training.evaluate import check_images, images_of
    from quatcaps.training.run import load_images

    place = data_folder(data_dir)
    images = images_of(one.config, "test", lambda part: load_images(one.config, part, place, stage))
    if (notice := check_images(one, images, "test")) is not None:
        say(console, notice)
    if one.config.looked_at:
        say(console, f"{one.name}: the middle of each image alone, not {one.config.looked_at}")
    return images if count is None else some_images(images, count, seed)


def numbers_of(text: str) -> list[float]:
    """Numbers with commas between them; a fraction such as 8/255 is one too.

    >>> numbers_of("0.1, 51/255")
    [0.1, 0.2]
    """
    found = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        above, slash, below = word.partition("/")
        try:
            found.append(float(above) / float(below) if slash else float(word))
        except (ValueError, ZeroDivisionError):
            raise QuatcapsError(f"--epsilon {text!r}: {word!r} is no number; write 0.01,0.031 or 8/255") from None
    return found

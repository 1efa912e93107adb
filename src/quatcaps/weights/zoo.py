"""Weights by name or path: finding them, checking them against their cards, and the networks they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.files import explained
from quatcaps.models import Network, build
from quatcaps.models.stored import check_network
from quatcaps.tensors import load_into
from quatcaps.training.initial import take_weights
from quatcaps.training.run import open_run
from quatcaps.training.trained import Trained, trained_run
from quatcaps.weights import saved
from quatcaps.weights.cards import Card, read_card

PUBLISHED = Path(__file__).with_name("published")
"""What is installed with the package: NAME.safetensors, and NAME.json for its card."""
SUFFIX = ".safetensors"
HOW_TO_MAKE = "make some from a trained run: quatcaps weights export RUN --name NAME"
NONE = f"no weights come with this version; {HOW_TO_MAKE}"


def names() -> list[str]:
    """The names of the weights that are installed with the package.

    >>> import torch
    >>> from quatcaps import weights
    >>> for name in weights.names():
    ...     network, card = weights.load(name), weights.card(name)
    ...     images = torch.zeros(1, card.channels, *card.size, dtype=torch.uint8)
    ...     assert network(card.prepare(images)).activations.shape == (1, len(card.classes))
    """
    return sorted(path.stem for path in PUBLISHED.glob("*.json"))


def load(name: str | Path, classes: int | Sequence[str] | None = None, *, checkpoint: str | None = None) -> Network:
    """The trained network of that name, in evaluation mode on the CPU.

    name: as `quatcaps weights list` shows; or the path of a run's folder, of what `network.save` or
    `network.save_pretrained` wrote, or of a .safetensors file with its card beside it. `network.preprocess` makes what
    it takes from pictures, `network.class_names` says what its classes are.
    classes: how many it shall have instead, or their names; then what belongs to the classes begins anew, for
    fine-tuning. checkpoint: of a run, `best` by its validation images, `last`, or `average`, of the last one's weights;
    without, the best if it keeps one.

    >>> import torch
    >>> network = load("qcn-mnist", classes=["round", "straight"])
    >>> network(network.preprocess(torch.zeros(1, 28, 28, dtype=torch.uint8))).activations.shape
    torch.Size([1, 2])
    """
    kept = None if str(name) in names() else saved.read(Path(name))
    if kept is not None and classes is None and checkpoint is None:
        description, source = kept
        return description.network(source)
    found = trained(name, checkpoint)
    return found.network if classes is None else with_classes(found, classes)


def with_classes(found: Trained, classes: int | Sequence[str]) -> Network:
    """The same network for other classes."""
    names = tuple(f"class {number}" for number in range(classes)) if isinstance(classes, int) else tuple(classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise QuatcapsError(f"classes = {classes!r}: give at least two, each with a name of its own")
    network = build(
        found.config.model, channels=found.channels, classes=len(names), seed=0, **found.config.model_settings
    )
    take_weights(network, found, names)
    return replace(found, network=network.eval(), classes=names).network


def card(name: str | Path) -> Card:
    """The card of some weights: their classes, configuration, data and error; name: as in `load`, but no run."""
    return read_card(find(name).with_suffix(".json"))


def trained(name: str | Path, checkpoint: str | None = None) -> Trained:
    """A trained network and what it takes; name and checkpoint: as in `load`."""
    if str(name) not in names():
        kept = saved.read(Path(name)) if checkpoint is None else None
        if kept is not None:
            return saved.as_trained(Path(name), *kept)
        if Path(name).is_dir():
            return trained_run(open_run(Path(name)), checkpoint)
    if checkpoint is not None:
        raise QuatcapsError(f"checkpoint = {checkpoint!r} is for runs: {name} are weights, and have one")
    source = find(name)
    return trained_by(read_card(source.with_suffix(".json")), source)


def run_or_weights(run: Path | None, weights: str | Path | None) -> Trained:
    """The network of a run's folder or of some weights, whichever was given."""
    if run is not None and weights is not None:
        raise QuatcapsError(f"the run {run} and --weights {weights} were both given: give one of them")
    if run is not None:
        return trained_run(open_run(run))
    if weights is None:
        raise QuatcapsError("nothing was given to use: give the folder of a run, or --weights NAME")
    return trained(weights)


def named_or_run(name: str) -> Trained:
    """The network of a run's folder, or of weights by their name or path."""
    return trained_run(open_run(Path(name))) if (Path(name) / "run.json").exists() else trained(name)


def find(name: str | Path) -> Path:
    """The file of some weights, with its card beside it; an error where there are none."""
    if str(name) in names():
        source = PUBLISHED / f"{name}{SUFFIX}"
    elif is_path(name):
        source = Path(name)
        if source.is_dir():
            raise QuatcapsError(f"{name} is a folder, and weights are a file with a card: {HOW_TO_MAKE}")
        if source.suffix != SUFFIX:
            raise QuatcapsError(f"{name} is not a {SUFFIX} file: give one, with its card beside it")
    elif names():
        raise unknown_name("weights", str(name), names())
    else:
        raise QuatcapsError(f"unknown weights {str(name)!r}: this version has none; {HOW_TO_MAKE}")
    for path in (source, source.with_suffix(".json")):
        if not path.is_file():
            kind = "the weights" if path == source else "the card"
            raise QuatcapsError(f"{path} is missing: {kind} of {source.stem} must lie there")
    return source


def is_path(name: str | Path) -> bool:
    """Whether weights are given by their path."""
    text = str(name)
    return isinstance(name, Path) or "/" in text or "\\" in text or text.endswith(SUFFIX) or Path(text).is_dir()


def trained_by(card: Card, source: Path) -> Trained:
    """The network of a card with the weights in `source`, after checking that they are what the card says."""
    check_file(card, source)
    try:  # no memory is taken before the card's network is known to fit the file
        needed = check_network(card.model, card.channels, len(card.classes), card.config.model_settings)
    except QuatcapsError as error:
        raise QuatcapsError(f"the network on the card of {card.name} cannot be built: {error}") from error
    if needed != card.parameters or 4 * needed > card.bytes:
        raise QuatcapsError(
            f"{source} does not fit its card: the card says {card.parameters:,} parameters in {card.bytes:,} bytes, "
            f"and its network has {needed:,}"
        )
    network = _network(card)
    load_into(network, source)
    return Trained(
        name=card.name,
        network=network.eval(),
        config=card.config,
        channels=card.channels,
        classes=card.classes,
        size=card.size,
        provenance=card.provenance,
        digests=card.digests,
    )


def check_file(card: Card, source: Path) -> None:
    """Raises unless a file is the one that the card describes."""
    with explained(f"read {source}"):
        size = source.stat().st_size
    if size != card.bytes:
        what = "truncated" if size < card.bytes else "another file"
        raise QuatcapsError(
            f"{source} has {size:,} bytes, its card says {card.bytes:,}: it is {what}; install or export it again"
        )
    found = digest(source)
    if found != card.sha256:
        raise QuatcapsError(
            f"{source} has sha256 {found}, its card says {card.sha256}: it is damaged; install or export it again"
        )


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with explained(f"read {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _network(card: Card) -> Network:
    return build(card.model, channels=card.channels, classes=len(card.classes), seed=0, **card.config.model_settings)

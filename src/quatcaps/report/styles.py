"""The colour and marker of every network, and of every way to compute one: the same in all pictures.

A family has a colour; members that stand side by side differ in their markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

# Okabe and Ito's palette without yellow, which is too pale for lines on white.
BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY, BLACK = PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
WINE = "#882255"
"""Of Tol's palette: far from the others in lightness, for readers of any colour vision."""
NEUTRAL = "#5b6f85"
"""What belongs to no network that is known here."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", ">", "<", "p", "h", "d", "8")


class Style(NamedTuple):
    """How one network is drawn."""

    colour: str
    marker: str


QCN, BEST, ROTORS = Style(BLUE, "o"), Style(VERMILLION, "s"), Style(WINE, ">")
EM, VB, EM_IBM = Style(GREEN, "^"), Style(PINK, "D"), Style(SKY, "P")
EM_PUBLISHED, VB_PUBLISHED, EM_IBM_PUBLISHED = Style(GREEN, "p"), Style(PINK, "d"), Style(SKY, "h")
CNN, RESNET = Style(ORANGE, "v"), Style(BLACK, "X")

SYSTEMS: Mapping[tuple[str, str], Style] = {
    ("QCN", "paper"): QCN,
    ("QCN", "best"): BEST,
    ("QCN, rotors", "poses"): ROTORS,
    ("QCN, rotors", "poses-2"): Style(WINE, "<"),
    ("QCN, rotors", "best"): Style(WINE, "s"),
    ("QCN, rotors", "pretrained"): Style(WINE, "p"),
    ("EM*", "paper"): EM,
    ("EM‡", "paper"): EM,
    ("VB", "paper"): VB,
    ("EM-IBM", "paper"): EM_IBM,
    ("EM*", "public code"): EM_PUBLISHED,
    ("EM‡", "public code"): Style(GREEN, ">"),
    ("VB", "public code"): VB_PUBLISHED,
    ("EM-IBM", "public code"): EM_IBM_PUBLISHED,
    ("QCN", "public code"): Style(BLUE, "p"),
    ("EM*", "public code, logistic"): Style(GREEN, "s"),
    ("EM*", "public code, near identity"): Style(GREEN, "v"),
    ("EM*", "public code, 2 iterations"): Style(GREEN, "D"),
    ("VB", "public code, no least density"): Style(PINK, "o"),
    ("VB", "public code, all images"): Style(PINK, "s"),
    ("VB", "public code, its example"): Style(PINK, "^"),
    ("VB", "public code, by position"): Style(PINK, "v"),
    ("VB", "public code, all images, cosine"): Style(PINK, "P"),
    ("VB", "public code, all images, cosine, lit"): Style(PINK, "*"),
    ("QCN", "paper, views together"): Style(BLUE, "s"),
    ("QCN", "paper, low floor"): Style(BLUE, "v"),
    ("QCN", "paper, lowered betas"): Style(BLUE, "^"),
    ("QCN", "paper, PyTorch's start"): Style(BLUE, "D"),
    ("CNN", "control"): CNN,
    ("CNN", "paper"): CNN,
    ("ResNet-20", "control"): RESNET,
    ("ResNet", "poses"): RESNET,
    ("ResNet 153K", "best"): Style(BLACK, "d"),
    ("ResNet 153K, pretrained", "pretrained"): Style(BLACK, "P"),
    ("QCN, rotors, pretrained", "pretrained"): Style(WINE, "P"),
    ("ResNet 272K", "best"): RESNET,
    ("CNN", "best"): CNN,
    ("EM*", "best"): EM,
    ("VB", "best"): VB,
    ("no routing", "part"): Style(BLUE, "X"),
    ("free maps", "part"): Style(BLUE, ">"),
    ("fixed axes", "part"): Style(BLUE, "<"),
    ("one trunk", "part"): Style(BLUE, "8"),
    ("coarse shape", "part"): Style(BLUE, "h"),
}
"""By system and recipe, as tables call them."""

MODELS: Mapping[str, Style] = {
    "qcn": QCN,
    "qcn-deep": BEST,  # the shape that `best` has
    "qcn-rotor": Style(WINE, "D"),
    "qcn-rotor-deep": ROTORS,
    "qcn-rotor-small": Style(WINE, "^"),
    "qcn-small": Style(BLUE, "d"),
    "qcn-coarse": Style(BLUE, "h"),
    "qcn-joint": Style(BLUE, "8"),
    "qcn-fixed-axis": Style(BLUE, "<"),
    "qcn-free": Style(BLUE, ">"),
    "qcn-no-routing": Style(BLUE, "X"),
    "qcn-logistic": Style(BLUE, "P"),
    "em": EM,
    "em-branched": Style(GREEN, "<"),
    "em-joint": Style(GREEN, ">"),
    "em-ibm": EM_IBM,
    "vb": VB,
    "em-published": EM_PUBLISHED,
    "em-ibm-published": EM_IBM_PUBLISHED,
    "vb-published": VB_PUBLISHED,
    "cnn": CNN,
    "cnn-small": Style(ORANGE, "d"),
    "resnet-20": RESNET,
}
WEIGHTS: Mapping[str, Style] = {
    **{f"qcn-{dataset}": BEST for dataset in ("smallnorb", "mnist", "fashionmnist", "svhn", "cifar10", "toys")},
    **{f"qcn-rotor-{dataset}": ROTORS for dataset in ("smallnorb", "toys")},
    "qcn-rotor-paper-toys": MODELS["qcn-rotor"],
}
"""Published weights by name: those of the paper's datasets are of `best`."""

VARIANTS: Mapping[str, Style] = {
    "reference": Style(BLUE, "o"),
    "triton": Style(VERMILLION, "s"),
    "native": Style(GREEN, "^"),
    "paper 4×4": Style(PINK, "D"),
    "reference, torch.compile": Style(ORANGE, "v"),
    "lean": Style(SKY, "P"),
}
"""Ways to compute a network, as benchmarks call them."""

RUNS: Mapping[str, Style] = {"resnet-153k": SYSTEMS["ResNet 153K", "best"]}
"""Systems of `evidence` by key, where that is the name of neither a model nor weights."""

NETWORKS: Mapping[str, Style] = {**MODELS, **WEIGHTS, **RUNS}


def system_style(system: str, recipe: str) -> Style:
    """The style of a system of the tables under a recipe."""
    return SYSTEMS.get((system, recipe), Style(NEUTRAL, "o"))


def network_style(name: str) -> Style:
    """The style of a model or of published weights; neutral where the name is not known."""
    return NETWORKS.get(name, Style(NEUTRAL, "o"))


def tails(names: Iterable[str]) -> dict[str, str]:
    """What runs and networks are called beside each other: the shortest ends of their paths that tell them apart.

    >>> tails(["runs/qcn/seed-0", "qcn-toys"])
    {'runs/qcn/seed-0': 'seed-0', 'qcn-toys': 'qcn-toys'}
    >>> tails(["runs/qcn/seed-0", "runs/cnn/seed-0"])
    {'runs/qcn/seed-0': 'qcn/seed-0', 'runs/cnn/seed-0': 'cnn/seed-0'}
    """
    parts = {name: Path(name).parts or (name,) for name in names}
    for count in range(1, max(map(len, parts.values()), default=0) + 1):
        found = {name: "/".join(each[-count:]) for name, each in parts.items()}
        if len(set(found.values())) == len(found):
            return found
    return {name: name for name in parts}


def styles_for(names: Iterable[str], known: Mapping[str, Style] = NETWORKS) -> dict[str, Style]:
    """A style for every name of one picture, no two alike. A name belongs to the known one that it begins with, up to
    a space, a comma or a colon; others get colours that the picture has not used yet.

    >>> styles_for(["cnn", "cnn:width=3", "mine"])["cnn:width=3"]
    Style(colour='#E69F00', marker='o')
    """
    found: dict[str, Style] = {}
    wanted = {name: known.get(_stem(name, known)) for name in dict.fromkeys(names)}
    free = [colour for colour in PALETTE if colour not in {style.colour for style in wanted.values() if style}]
    for name, style in wanted.items():
        colour = style.colour if style else (free.pop(0) if free else NEUTRAL)
        taken = {each.marker for each in found.values() if each.colour == colour}
        markers = ([style.marker] if style else []) + list(MARKERS)
        found[name] = Style(colour, next((marker for marker in markers if marker not in taken), MARKERS[0]))
    return found


def _stem(name: str, known: Mapping[str, Style]) -> str:
    """The longest known name that `name` is, or begins with."""
    begins = [each for each in known if name == each or name.startswith((f"{each},", f"{each}:", f"{each} "))]
    return max(begins, key=len, default="")

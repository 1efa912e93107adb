"""The card of some weights: what they are, what they were trained on, how well they do, and their file's checksum."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from quatcaps.data.preprocessing import for_evaluation, views_for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json
from quatcaps.models.stored import check_shape
from quatcaps.training.config import TrainingConfig
from quatcaps.training.measure import Rate

FORMAT = 1
LIMIT = 1_000_000
"""Bytes that a file of weights must stay below: it is kept in the repository and comes with every installation."""
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
SHA256 = re.compile(r"[0-9a-f]{64}")
KINDS = {int: "a whole number", float: "a number", str: "text", dict: "an object", list: "a list"}

Kinds = Mapping[str, type]
ENTRIES: Kinds = {
    "format": int,
    "name": str,
    "model": str,
    "parameters": int,
    "channels": int,
    "classes": list,
    "size": list,
    "data": dict,
    "error": dict,
    "measured_on": str,
    "chosen": str,
    "training": dict,
    "file": dict,
    "licence": str,
    "configuration": dict,
}
DATA: dict[str, type] = {"dataset": str, "provenance": str, "images": dict}  # and, since there are some, the digests
ERROR: Kinds = {"percent": float, "errors": int, "images": int}
TRAINING: Kinds = {"command": str, "seconds": float, "machine": str, "versions": dict}
FILE: Kinds = {"sha256": str, "bytes": int}


@dataclass(frozen=True)
class Card:
    """What is known of some weights. The configuration is the whole one, the way of the images included."""

    name: str
    config: TrainingConfig
    channels: int
    classes: tuple[str, ...]
    size: tuple[int, int]  # of the stored images: height, width
    parameters: int
    images: dict[str, int]  # how many were trained on and measured on, by name
    provenance: str  # where the images came from, in a few words
    error: dict[str, Rate]  # of `test` images, and in experiments on viewpoints of `novel` ones
    measured_on: str  # cpu or cuda
    chosen: str  # how these weights were chosen
    command: str  # what trained them
    seconds: float  # that took so long
    machine: str
    versions: dict[str, str]
    sha256: str  # of the file
    bytes: int
    licence: str
    digests: dict[str, str] = field(default_factory=dict)  # of the images, by name; empty: unknown

    def __post_init__(self) -> None:
        checks = {
            f"name {self.name!r}: give small letters, digits, - and ., at most 64": NAME.fullmatch(self.name),
            f"{self.parameters} parameters: at least 1": self.parameters >= 1,
            f"seconds {self.seconds}: 0 or more": 0 <= self.seconds < math.inf,
            f"sha256 {self.sha256!r}: 64 digits of 0-9 and a-f": SHA256.fullmatch(self.sha256),
            f"{self.bytes:,} bytes: from 1 up to, but without, {LIMIT:,}": 1 <= self.bytes < LIMIT,
            "error: at least one set of images": self.error,
            f"measured on {self.measured_on!r}: cpu or cuda": self.measured_on in ("cpu", "cuda"),
        }
        check_shape(self.channels, len(self.classes), self.size)
        for problem, passed in checks.items():
            if not passed:
                raise QuatcapsError(f"a card cannot have {problem}")
        for name, digest in self.digests.items():
            if not SHA256.fullmatch(digest):
                raise QuatcapsError(
                    f"a card cannot have the digest {digest[:80]!r} of {name}: 64 digits of 0-9 and a-f"
                )
        for name, rate in self.error.items():
            if not 0 <= rate.errors <= rate.images or rate.images < 1 or rate.images != self.images.get(name):
                raise QuatcapsError(
                    f"a card cannot have {rate.errors} errors of {rate.images} images in {name}: its data have "
                    f"{self.images.get(name)} of them"
                )

    @property
    def model(self) -> str:
        return self.config.model

    @property
    def dataset(self) -> str:
        return self.config.dataset

    def prepare(self, images: Tensor) -> Tensor:
        """(N, channels, height, width) uint8, of the size that was stored for training → what the network takes."""
        self._check(images)
        return for_evaluation(self.config, images)

    def views(self, images: Tensor) -> list[Tensor]:
        """The same images as the card's error was measured on: by the middle alone, as `prepare` gives it, or by the
        mean activations of several windows (`config.test_crops`), or of mirror images too (`config.test_mirrored`)."""
        self._check(images)
        return views_for_evaluation(self.config, images)

    def _check(self, images: Tensor) -> None:
        wanted = (self.channels, *self.size)
        if images.ndim != 4 or tuple(images.shape[1:]) != wanted or str(images.dtype) != "torch.uint8":
            raise QuatcapsError(
                f"images are {images.dtype} of shape {tuple(images.shape)}: {self.name} takes uint8 of shape "
                f"(N, {', '.join(map(str, wanted))})"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "model": self.model,
            "parameters": self.parameters,
            "channels": self.channels,
            "classes": list(self.classes),
            "size": list(self.size),
            "data": {
                "dataset": self.dataset,
                "provenance": self.provenance,
                "images": dict(self.images),
                **({"digests": dict(self.digests)} if self.digests else {}),
            },
            "error": {name: rate_json(rate) for name, rate in self.error.items()},
            "measured_on": self.measured_on,
            "chosen": self.chosen,
            "training": {
                "command": self.command,
                "seconds": self.seconds,
                "machine": self.machine,
                "versions": dict(self.versions),
            },
            "file": {"sha256": self.sha256, "bytes": self.bytes},
            "licence": self.licence,
            "configuration": self.config.to_json(),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Card:
        """The card that `to_json` gave; an error that names the first entry which is missing, foreign or wrong."""
        check_entries(values, ENTRIES, "a card")
        if values["format"] != FORMAT:
            raise QuatcapsError(f"format {values['format']}: this version reads format {FORMAT}; install a newer one")
        data, training, file = values["data"], values["training"], values["file"]
        check_entries(data, DATA | ({"digests": dict} if "digests" in data else {}), "data")
        check_all(data.get("digests", {}).values(), str, "data.digests")
        check_entries(training, TRAINING, "training")
        check_entries(file, FILE, "file")
        check_all(data["images"].values(), int, "data.images")
        check_all(training["versions"].values(), str, "training.versions")
        check_all(values["classes"], str, "classes")
        check_all(values["size"], int, "size")
        check_all(values["error"].values(), dict, "error")
        for name, entries in values["error"].items():
            check_entries(entries, ERROR, f"error.{name}")
        if len(values["size"]) != 2:
            raise QuatcapsError(f"size has {len(values['size'])} numbers: height and width are needed")
        card = Card(
            name=values["name"],
            config=TrainingConfig.from_json(values["configuration"]),
            channels=values["channels"],
            classes=tuple(values["classes"]),
            size=(values["size"][0], values["size"][1]),
            parameters=values["parameters"],
            images=data["images"],
            provenance=data["provenance"],
            error={name: Rate(entry["errors"], entry["images"]) for name, entry in values["error"].items()},
            measured_on=values["measured_on"],
            chosen=values["chosen"],
            command=training["command"],
            seconds=float(training["seconds"]),
            machine=training["machine"],
            versions=training["versions"],
            sha256=file["sha256"],
            bytes=file["bytes"],
            licence=values["licence"],
            digests=data.get("digests", {}),
        )
        card._check_repeated(values)
        return card

    def _check_repeated(self, values: Mapping[str, Any]) -> None:
        """Raises where what a card says twice, for its readers, is not said the same twice."""
        repeated = {
            "model": (values["model"], self.model),
            "data.dataset": (values["data"]["dataset"], self.dataset),
        }
        for name, rate in self.error.items():
            repeated[f"error.{name}.percent"] = (values["error"][name]["percent"], rate_json(rate)["percent"])
        for name, (said, meant) in repeated.items():
            if said != meant:
                raise QuatcapsError(f"{name} is {said!r}: by the other entries it must be {meant!r}")


def rate_json(rate: Rate) -> dict[str, Any]:
    """An error as a card has it."""
    return {"percent": round(rate.percent, 4), "errors": rate.errors, "images": rate.images}


def check_entries(values: Mapping[str, Any], kinds: Kinds, what: str) -> None:
    """Raises unless the entries of an object are these, each of its kind."""
    for name in sorted(kinds.keys() ^ values.keys()):
        raise QuatcapsError(
            f"{what} has no entry {name!r}" if name in kinds else f"{what} has a foreign entry {name!r}"
        )
    for name, kind in kinds.items():
        value = values[name]
        if type(value) is not kind and not (kind is float and type(value) is int and abs(value) < 2**53):
            raise QuatcapsError(f"{name} of {what} is {value!r}: it must be {KINDS[kind]}")


def check_all(values: Any, kind: type, what: str) -> None:
    """Raises unless all entries are of one kind."""
    for value in values:
        if type(value) is not kind:
            raise QuatcapsError(f"{what} holds {value!r}: each entry must be {KINDS[kind]}")


def read_card(path: Path) -> Card:
    """The card in a file; an error where it is none, or another's."""
    values = read_json(path, "a card of weights")
    try:
        card = Card.from_json(values)
    except QuatcapsError as error:
        raise QuatcapsError(f"{path} is not a card of weights: {error}") from error
    if card.name != path.stem:
        raise QuatcapsError(f"{path} is the card of {card.name}: rename it to {card.name}.json")
    return card

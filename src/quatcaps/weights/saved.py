"""Networks in files, whether trained or not: `network.save(path)`, which `quatcaps.load(path)` reads back.

A description says how the network is built, what its classes are called and how its images are prepared. It stands in
the header of the safetensors file, or in a folder as `config.json` beside `model.safetensors`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

import quatcaps
from quatcaps import strict_json
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, new_file, read_json
from quatcaps.models import Network, build, parameter_count, settings_of
from quatcaps.models.changes import to_store
from quatcaps.models.stored import check_network, check_shape
from quatcaps.tensors import load_into, plain_tensors, save_tensors
from quatcaps.training.config import TrainingConfig
from quatcaps.training.preprocess import Preprocessing
from quatcaps.training.trained import Trained
from quatcaps.weights.cards import check_all, check_entries

FORMAT = 1
SUFFIX = ".safetensors"
HEADER = "quatcaps"
"""The entry of a file's header that holds the description."""
CONFIG, MODEL = "config.json", "model.safetensors"
"""The files of a folder, as the Hugging Face Hub calls them."""
ENTRIES: Mapping[str, type] = {
    "library_name": str,
    "format": int,
    "version": str,
    "model": str,
    "settings": dict,
    "parameters": int,
    "channels": int,
    "classes": int,
    "class_names": list,
    "size": list,
    "configuration": dict,
}


@dataclass(frozen=True)
class Description:
    """How a network is built and used. config: of its training, with the preprocessing; None where it has none."""

    model: str
    settings: dict[str, Any]
    parameters: int
    channels: int
    classes: int
    class_names: tuple[str, ...] = ()
    size: tuple[int, int] | None = None  # of the stored images: height, width
    config: TrainingConfig | None = None

    @staticmethod
    def of(network: Network) -> Description:
        """An error where a file cannot say how the network is built or how its images are prepared."""
        if not network.model:
            raise QuatcapsError(
                f"a {type(network).__name__} that quatcaps.build did not make: a file must say how its network is "
                "built; register it with quatcaps.register_model, and build it by its name"
            )
        made = network.preprocessing
        if made is not None and not isinstance(made, Preprocessing):
            raise QuatcapsError(
                f"the network's preprocessing is a {type(made).__name__} of one's own, which a file cannot hold: set "
                "network.preprocessing = None before saving, and again after loading"
            )
        start = settings_of(network.model, {})
        return Description(
            model=network.model,
            settings=to_store(start, network.changes, f"setting of {network.model}"),
            parameters=parameter_count(network),
            channels=network.channels,
            classes=network.classes,
            class_names=tuple(network.class_names),
            size=made.size if made else None,
            config=made.config if made else None,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "library_name": "quatcaps",
            "format": FORMAT,
            "version": quatcaps.__version__,
            "model": self.model,
            "settings": self.settings,
            "parameters": self.parameters,
            "channels": self.channels,
            "classes": self.classes,
            "class_names": list(self.class_names),
            "size": list(self.size or ()),
            "configuration": self.config.to_json() if self.config else {},
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Description:
        """What `to_json` gave; an error that names the first entry which is missing, foreign or wrong."""
        check_entries(values, ENTRIES, "a saved network")
        if values["library_name"] != "quatcaps":
            raise QuatcapsError(f"library_name is {values['library_name'][:80]!r}: it must be 'quatcaps'")
        if values["format"] != FORMAT:
            raise QuatcapsError(f"format {values['format']}: this version reads format {FORMAT}; install a newer one")
        names, size, configuration = values["class_names"], values["size"], values["configuration"]
        check_all(names, str, "class_names")
        check_all(size, int, "size")
        check_shape(values["channels"], values["classes"], tuple(size) if len(size) == 2 else (1, 1))
        if names and len(names) != values["classes"]:
            raise QuatcapsError(
                f"{len(names)} class_names for {values['classes']} classes: as many are needed, or none"
            )
        if len(size) != (2 if configuration else 0) or (configuration and not names):
            raise QuatcapsError("class_names, size and configuration: all of them are needed to use a trained network")
        return Description(
            model=values["model"],
            settings=values["settings"],
            parameters=values["parameters"],
            channels=values["channels"],
            classes=values["classes"],
            class_names=tuple(names),
            size=(size[0], size[1]) if configuration else None,
            config=TrainingConfig.from_json(configuration) if configuration else None,
        )

    def network(self, source: Path) -> Network:
        """The network with the weights in `source`; no memory is taken before it is known to fit the file."""
        needed = check_network(self.model, self.channels, self.classes, self.settings)
        with explained(f"read {source}"):
            held = source.stat().st_size
        if needed != self.parameters or 4 * needed > held:
            raise QuatcapsError(
                f"{source} does not fit its description: that says {self.parameters:,} parameters, its network has "
                f"{needed:,}, and the file {held:,} bytes"
            )
        network = build(self.model, channels=self.channels, classes=self.classes, seed=0, **self.settings)
        load_into(network, source)
        network.class_names = self.class_names
        if self.config is not None and self.size is not None:
            network.preprocessing = Preprocessing(self.config, self.channels, self.size)
        return network.eval()


def save(network: Network, path: str | Path) -> Path:
    """Writes a network as one .safetensors file, weights in float32, which `load` reads back in evaluation mode: built
    as it was, with its class names and its preprocessing where it has them. A file that is there is replaced."""
    target = Path(path)
    if target.suffix != SUFFIX:
        raise QuatcapsError(f"{target}: a saved network ends in {SUFFIX}; network.save_pretrained makes a folder")
    if target.with_suffix(".json").exists():
        raise QuatcapsError(
            f"{target.with_suffix('.json')} exists, and would be taken for the card of {target.name}: give another path"
        )
    description = json.dumps(Description.of(network).to_json(), ensure_ascii=False, allow_nan=False)
    with new_file(target) as temporary:
        save_tensors(temporary, plain_tensors(network), {"format": "pt", HEADER: description})
    return target


def described_in_file(source: Path) -> Description | None:
    """The description in a file's header; None where it has none."""
    try:
        with explained(f"read {source}"), safe_open(source, framework="pt") as file:
            text = (file.metadata() or {}).get(HEADER)
    except SafetensorError as error:
        raise QuatcapsError(f"{source} is truncated or not a safetensors file ({error})") from error
    if text is None:
        return None
    try:
        values = strict_json.parse(text)
        if not isinstance(values, dict):
            raise QuatcapsError(f"it holds a {type(values).__name__}, not an object")
        return Description.from_json(values)
    except ValueError as error:
        raise QuatcapsError(f"{source} does not describe a saved network: {error}") from error


def described_in_folder(folder: Path) -> Description:
    """The description in a folder's config.json."""
    for name in (CONFIG, MODEL):
        if not (folder / name).is_file():
            raise QuatcapsError(f"{folder / name} is missing: a saved network has {CONFIG} and {MODEL}")
    values = read_json(folder / CONFIG, "a saved network's description")
    try:
        return Description.from_json(values)
    except QuatcapsError as error:
        raise QuatcapsError(f"{folder / CONFIG} does not describe a saved network: {error}") from error


def read(path: Path) -> tuple[Description, Path] | None:
    """What was saved in a file or a folder, and where its weights are; None where it is another kind of file."""
    if path.is_dir():
        return (described_in_folder(path), path / MODEL) if (path / CONFIG).is_file() else None
    if path.suffix != SUFFIX or not path.is_file() or path.with_suffix(".json").exists():
        return None
    found = described_in_file(path)
    return None if found is None else (found, path)


def as_trained(path: Path, description: Description, source: Path) -> Trained:
    """A saved network to predict with and to measure; an error where its images cannot be prepared."""
    if description.config is None or description.size is None:
        raise QuatcapsError(
            f"{path} was saved without preprocessing, from a network that was built, not trained: load it with "
            "quatcaps.load, and train it"
        )
    return Trained(
        name=str(path),
        network=description.network(source),
        config=description.config,
        channels=description.channels,
        classes=description.class_names,
        size=description.size,
    )

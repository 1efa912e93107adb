"""From a network to a file that other programs run, checked against the network before it takes its place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import quatcaps
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.exporting import onnx_file, program
from quatcaps.exporting.portable import Portable, portable
from quatcaps.files import new_file
from quatcaps.models import Network
from quatcaps.training.preprocess import Preprocessing
from quatcaps.training.run import Run
from quatcaps.training.trained import trained_run
from quatcaps.weights.zoo import trained

ENDINGS = {"onnx": ".onnx", "torch-export": ".pt2"}
FORMATS = tuple(ENDINGS)
OPSET = 20
TOLERANCE = 1e-5
"""By how much an output may differ from the network's, of numbers above 1 in relation to them."""
BATCHES = (1, 3)
"""Images of the batches that are compared."""


@dataclass(frozen=True)
class Exported:
    """A file that was written. difference: the largest between its outputs and the network's; None where nothing here
    can run it."""

    path: Path
    format: str
    bytes: int
    images: tuple[int, int, int]  # channels, height, width of what it takes
    outputs: tuple[str, ...]
    difference: float | None


def export(
    network: str | Path | Run | Network,
    path: str | Path,
    format: str | None = None,
    *,
    preprocessing: bool = False,
    size: tuple[int, int] | None = None,
    opset: int = OPSET,
    force: bool = False,
) -> Exported:
    """Writes a network for other programs: an ONNX file, or a program of `torch.export`.

    It takes `images` (batch, channels, height, width), any number of them, and returns `activations` (batch, classes)
    and, where there are poses, `poses` (batch, classes, dims). network: as `load` takes it, a run, or a network. path:
    its ending, .onnx or .pt2, says the format unless `format` does. preprocessing: images are bytes (uint8) of the size
    that was stored for training, and cropping and standardising are part of the file; without, they are float32 as
    `network.preprocess` gives them. size: height and width of the images, for networks that were built, not loaded.
    opset: of ONNX. force: replace what is there.

    The file is compared with the network before it takes its place: an ONNX file by onnxruntime, if it is installed.
    """
    target = Path(path)
    chosen = chosen_format(target, format)
    check_target(target, force)
    if chosen == "onnx":
        onnx_file.check(opset)
    name, loaded = named(network)
    module = wrapped(loaded, preprocessing, size)
    wanted = {count: outputs_of(module, module.example(count)) for count in BATCHES}
    made = program.program_of(module)
    names = tuple(wanted[BATCHES[0]])
    description = metadata(name, loaded, module, preprocessing)
    with new_file(target) as temporary:
        if chosen == "onnx":
            onnx_file.write(onnx_file.model_of(made, names, opset, description), temporary)
        else:
            program.write(made, temporary, description)
        difference = None
        if chosen != "onnx" or onnx_file.runtime() is not None:
            for count, values in wanted.items():
                images = module.example(count)
                found = (
                    onnx_file.outputs(temporary, images)
                    if chosen == "onnx"
                    else program.outputs(made, temporary, images)
                )
                difference = max(difference or 0.0, largest_difference(found, values, target))
        written = temporary.stat().st_size
    return Exported(target, chosen, written, module.shape, names, difference)


def chosen_format(path: Path, format: str | None) -> str:
    """The format that was asked for, by its name or by the ending of the path; an error where they contradict."""
    by_ending = {ending: name for name, ending in ENDINGS.items()}
    if format is not None and format not in ENDINGS:
        raise unknown_name("format", format, ENDINGS)
    found = format or by_ending.get(path.suffix)
    if found is None:
        raise QuatcapsError(f"{path}: an exported file ends in {' or '.join(ENDINGS.values())}, or give a format")
    if path.suffix != ENDINGS[found]:
        raise QuatcapsError(
            f"{path}: a file of the format {found} ends in {ENDINGS[found]}; rename it, or give another format"
        )
    return found


def check_target(path: Path, force: bool) -> None:
    if path.is_dir():
        raise QuatcapsError(f"{path} is a folder: give the path of a file")
    if path.exists() and not force:
        raise QuatcapsError(f"{path} exists: give another path, or --force (force=True) to replace it")


def named(network: str | Path | Run | Network) -> tuple[str, Network]:
    """A network with the name of its weights: that of a published one, of a run's folder, or of the model."""
    if isinstance(network, Network):
        return network.model or type(network).__name__, network
    found = trained_run(network) if isinstance(network, Run) else trained(network)
    return Path(found.name).name.removesuffix(".safetensors"), found.network


def wrapped(network: Network, preprocessing: bool, size: tuple[int, int] | None) -> Portable:
    """The network with the size of images that it takes, and preprocessing where asked for."""
    made = network.preprocessing if isinstance(network.preprocessing, Preprocessing) else None
    if made is None and preprocessing:
        raise QuatcapsError(
            "this network was built, not loaded, and has no preprocessing to export: leave preprocessing out, or load "
            "a trained one with quatcaps.load"
        )
    if made is None and size is None:
        raise QuatcapsError(
            "this network was built, not loaded, and images of several sizes may fit it: give size=(height, width)"
        )
    if made is not None:
        own = made.size if preprocessing else made.config.seen(made.size)
        if size is not None and tuple(size) != own:
            raise QuatcapsError(
                f"size = {tuple(size)}: this network takes images of {own[0]}×{own[1]}; leave the size out"
            )
        size = own
    assert size is not None
    return portable(network, (size[0], size[1]), made if preprocessing else None)


@torch.no_grad()
def outputs_of(module: Portable, images: Tensor) -> dict[str, Tensor]:
    return module(images)


def largest_difference(found: dict[str, Tensor], wanted: dict[str, Tensor], path: Path) -> float:
    """Between outputs; an error where it is more than rounding."""
    largest = 0.0
    for name, values in wanted.items():
        if name not in found or found[name].shape != values.shape:
            raise QuatcapsError(f"{path} was not written: {name} of the exported network is missing or misshapen")
        worst = ((found[name] - values).abs() / values.abs().clamp(min=1)).max().item()
        if not worst <= TOLERANCE:
            raise QuatcapsError(
                f"{path} was not written: {name} of the exported network differs by {worst:.1e} from the network's, "
                f"and at most {TOLERANCE:.0e} is rounding; please report it"
            )
        largest = max(largest, worst)
    return largest


def metadata(name: str, network: Network, module: Portable, preprocessing: bool) -> dict[str, str]:
    """What the file says of itself: text by name."""
    return {
        "name": name,
        "version": quatcaps.__version__,
        "model": network.model,
        "classes": json.dumps(list(network.class_names), ensure_ascii=False),
        "input": json.dumps({"shape": ["batch", *module.shape], "dtype": "uint8" if preprocessing else "float32"}),
        "preprocessing": "inside" if preprocessing else "outside",
    }

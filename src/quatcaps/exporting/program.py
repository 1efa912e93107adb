"""Programs of `torch.export`: `.pt2` files, which PyTorch runs without quatcaps."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.fx.config
from torch import Tensor
from torch.export import Dim, ExportedProgram

from quatcaps.errors import QuatcapsError, is_out_of_memory
from quatcaps.exporting.portable import INPUT, Portable

METADATA = "quatcaps.json"
"""The entry of a .pt2 file that says what the network is; `torch.export.load` gives it in `extra_files`."""
TRACED = 2
"""Images of the batch that is traced; 0 and 1 would be taken for constants."""


def program_of(module: Portable) -> ExportedProgram:
    """The network as a graph of PyTorch's operators, for batches of any size. A named dimension would have PyTorch
    prove how the strides of all votes compare, which 2.11 cannot."""
    with torch.no_grad(), without_stack_traces(), explaining("torch.export"):
        made = torch.export.export(module, (module.example(TRACED),), dynamic_shapes={INPUT: {0: Dim.DYNAMIC}})
    for node in made.graph.nodes:
        node.meta.pop("stack_trace", None)
    return made


@contextlib.contextmanager
def explaining(exporter: str) -> Iterator[None]:
    """What an exporter cannot do with a network, such as one of one's own, in one line."""
    try:
        yield
    except RuntimeError as error:  # PyTorch's own errors of exporting are of this kind
        if is_out_of_memory(error):
            raise
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise QuatcapsError(f"{exporter} cannot export this network: {words[0]}") from error


@contextlib.contextmanager
def without_stack_traces() -> Iterator[None]:
    """PyTorch would note for every operator which lines of which files led to it: a third of the time, and paths of
    this machine in the file. Versions that cannot leave it out lose them afterwards."""
    settings, name = torch.fx.config, "do_not_emit_stack_traces"
    before = getattr(settings, name, None)
    setattr(settings, name, True)
    try:
        yield
    finally:
        if before is None:
            delattr(settings, name)
        else:
            setattr(settings, name, before)


def write(program: ExportedProgram, path: Path, metadata: Mapping[str, str]) -> None:
    with path.open("wb") as file:  # by its name, torch would refuse what is not called .pt2 yet
        torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata, indent=2)})


def outputs(program: ExportedProgram, path: Path, images: Tensor) -> dict[str, Tensor]:
    """What the program in `path` computes. The file is not loaded, as torch unpickles to load it: the archive is read
    to its end, and the program that went into it runs."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile as error:
        raise QuatcapsError(f"{path} was not written whole: {error}") from error
    if damaged is not None:
        raise QuatcapsError(f"{path} was not written whole: {damaged} is damaged")
    return program.module()(images)

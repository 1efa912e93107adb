"""ONNX files, by `torch.onnx`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from quatcaps.errors import QuatcapsError
from quatcaps.exporting.portable import INPUT
from quatcaps.exporting.program import explaining, without_stack_traces

OPSETS = (18, 23)
"""The oldest that `torch.onnx` writes, and the newest that is tried."""
NEEDED = ("onnx", "onnxscript")
LARGEST = 2**31 - 1
"""Bytes of one file, by its format."""


def check(opset: int) -> None:
    """Raises where an ONNX file of that version cannot be written here."""
    first, last = OPSETS
    if not first <= opset <= last:
        raise QuatcapsError(f"opset {opset}: give one from {first} to {last}")
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise QuatcapsError(f"ONNX files need the package {name}: pip install 'quatcaps[export]'")


def model_of(program: ExportedProgram, names: Sequence[str], opset: int, metadata: Mapping[str, str]) -> Any:
    """The `onnx.ModelProto` of a program with outputs of these names; the first dimension is called batch."""
    with quietly(), without_stack_traces(), explaining("torch.onnx"):
        made = torch.onnx.export(
            program,
            (),
            dynamo=True,
            verbose=False,
            opset_version=opset,
            input_names=[INPUT],
            output_names=list(names),
        )
    if made is None:
        raise QuatcapsError("torch.onnx returned no program: torch 2.11 or newer is needed")
    model = made.model_proto
    rename_batch(model.graph)
    for part in (*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]  # what PyTorch notes of the lines and modules that each came from
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value)
    model.producer_name, model.producer_version = "quatcaps", metadata["version"]
    return model


def rename_batch(graph: Any) -> None:
    """The batch by the name of `batch`: PyTorch gives it a number."""
    known = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == known:
                dimension.dim_param = "batch"


def write(model: Any, path: Path) -> None:
    size = model.ByteSize()
    if size > LARGEST:
        raise QuatcapsError(f"the network takes {size:,} bytes: an ONNX file holds at most {LARGEST:,}")
    path.write_bytes(model.SerializeToString())


def runtime() -> Any | None:
    """onnxruntime, where it is installed."""
    return importlib.import_module("onnxruntime") if importlib.util.find_spec("onnxruntime") else None


def outputs(path: Path, images: Tensor) -> dict[str, Tensor]:
    """What the file computes, by onnxruntime."""
    found = runtime()
    assert found is not None
    session = found.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {INPUT: images.numpy()})
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what torch.onnx says of packages that are not needed, and of its own deprecated calls."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

"""`quatcaps export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.console import say, standard_output


def export(
    network: Annotated[str, typer.Argument(help="folder of a run, or weights by name or path", metavar="RUN|NAME")],
    format: Annotated[str | None, typer.Option(help="onnx (default) or torch-export")] = None,
    output: Annotated[
        Path | None, typer.Option(help="the file, .onnx or .pt2 (default: NAME.onnx or NAME.pt2, here)")
    ] = None,
    preprocessing: Annotated[
        bool, typer.Option("--preprocessing", help="take bytes of the stored size; crop and standardise in the file")
    ] = False,
    opset: Annotated[int, typer.Option(help="version of ONNX's operators, 18 to 23")] = 20,
    force: Annotated[bool, typer.Option("--force", help="replace the file if it exists")] = False,
) -> None:
    """Write a network as an ONNX file, or as a program of torch.export, and check it against the network."""
    from quatcaps.exporting.exported import ENDINGS, chosen_format
    from quatcaps.exporting.exported import export as write

    chosen = chosen_format(output, format) if output else format or "onnx"
    target = output or Path(f"{Path(network).absolute().name.removesuffix('.safetensors')}{ENDINGS.get(chosen, '')}")
    made = write(network, target, chosen, preprocessing=preprocessing, opset=opset, force=force)
    channels, height, width = made.images
    kind = "uint8" if preprocessing else "float32"
    console = standard_output()
    say(
        console,
        f"{made.path} ({made.bytes:,} bytes): images (batch, {channels}, {height}, {width}) {kind} → "
        f"{', '.join(made.outputs)}",
    )
    if made.difference is None:
        say(console, "not checked: onnxruntime is not installed; pip install 'quatcaps[export]'")
    else:
        say(console, f"checked: outputs differ from the network's by at most {made.difference:.1e}")

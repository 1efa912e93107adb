"""`quatcaps demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import DataDir, Device
from quatcaps.console import standard_output


def demo(
    output: Annotated[Path, typer.Option(help="folder for the tables, the pictures and the page")] = Path("demo"),
    device: Device = "auto",
    data_dir: DataDir = None,
    epochs: Annotated[int | None, typer.Option(help="fewer or more passes than the demo's own")] = None,
) -> None:
    """Render toys, train a small capsule network and a small CNN to name them and to say how they are turned."""
    from quatcaps.paper.demo import make_demo

    make_demo(output, device, data_dir, epochs, standard_output())

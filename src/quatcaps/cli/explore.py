"""`quatcaps explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import Weights
from quatcaps.console import counting, say, standard_output

USUAL = "qcn-rotor-toys"
"""What is shown where nothing is named: weights that are installed with the package."""


def explore(
    run: Annotated[Path | None, typer.Argument(help="folder of a run", metavar="RUN")] = None,
    weights: Weights = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN|NAME", help="another run or weights, on the same toy; may be repeated"),
    ] = None,
    port: Annotated[int, typer.Option(help="0: any that is free", min=0, max=65535)] = 8765,
    host: Annotated[str, typer.Option(help="address to listen on; other machines reach 0.0.0.0")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="open the page")] = True,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="instead: write some toys from all around as one file, without a server"
        ),
    ] = None,
) -> None:
    """Turn a toy with your hands and watch the capsules: a page in your browser, served from this machine.

    Without a run or weights, qcn-rotor-toys is shown, which is installed with the package.
    """
    from quatcaps.explorer.export import export as exported
    from quatcaps.explorer.serve import serve
    from quatcaps.explorer.shown import Shown
    from quatcaps.weights.zoo import named_or_run, run_or_weights

    console = standard_output()
    if run is None and weights is None:
        weights = USUAL
    networks = [run_or_weights(run, weights), *(named_or_run(name) for name in beside or [])]
    if export is not None:
        shown = [Shown(each) for each in networks]
        with counting(console, "looking at toys") as progress:
            size = exported(shown, export, progress)
        say(console, f"{export} ({size / 1e6:.1f} MB): open it in a browser, from disk or from any web server")
        return
    serve(networks, host, port, browser, lambda line: say(console, line))

"""The command line: one file per command, and what they share. It parses, calls and prints; what needs torch is
imported by the commands that need it, so that `--help` is there at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quatcaps import __version__
from quatcaps.cli.attack import attack
from quatcaps.cli.bench import bench
from quatcaps.cli.data import data_app
from quatcaps.cli.demo import demo
from quatcaps.cli.evaluate import evaluate
from quatcaps.cli.explore import explore
from quatcaps.cli.export import export
from quatcaps.cli.inspect import inspect
from quatcaps.cli.models import models
from quatcaps.cli.panels import Grouped
from quatcaps.cli.predict import predict
from quatcaps.cli.reproduce import reproduce
from quatcaps.cli.train import train
from quatcaps.cli.weights import weights_app
from quatcaps.console import forgive, plain_warnings, printable
from quatcaps.errors import QuatcapsError, is_failed_gpu, is_out_of_memory
from quatcaps.interrupted import EXIT_CODE, INTERRUPTED
from quatcaps.plugins import add_plugins

app = typer.Typer(
    help="Quaternion Capsule Networks: train, evaluate and look at them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LONGEST_MESSAGE = 10_000
"""Characters: a damaged file may hold a value of any length."""
FAILED_GPU = (
    "The GPU failed, and this process cannot use it any more. A run goes on from its last checkpoint: quatcaps train "
    "--resume RUN, or the same command of reproduce. Where processes share the GPU under MPS, one that is killed "
    "(kill -9) takes the others with it; stop them by Ctrl-C or SIGTERM. If it happens to a process alone, with "
    "--backend triton and not with --backend reference, please report it with what stands above."
)


def _version(asked: bool | None) -> None:
    if asked:
        typer.echo(f"quatcaps {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="module or .py file that registers models, poses or routings; may be repeated (also: "
            "QUATCAPS_PLUGINS, and the entry points quatcaps.plugins of installed packages)",
        ),
    ] = None,
) -> None:
    """Quaternion Capsule Networks: train, evaluate and look at them."""
    add_plugins(plugin or [])


for command in (train, evaluate, predict, inspect, attack, explore, export, demo, reproduce, models, bench):
    app.command(cls=Grouped)(command)
app.add_typer(data_app, name="data")
app.add_typer(weights_app, name="weights")


def main() -> None:
    """Runs the command line; an error that a user can mend becomes one line and a non-zero exit."""
    try:
        with plain_warnings():
            app(prog_name="quatcaps")
    except QuatcapsError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail(INTERRUPTED, EXIT_CODE)
    except SystemExit as stop:
        if stop.code == EXIT_CODE:  # typer turns Ctrl-C into this, without a word
            fail(INTERRUPTED, EXIT_CODE)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            if is_failed_gpu(error):
                error.add_note(FAILED_GPU)
            raise
        words = str(error).splitlines()
        fail(f"out of memory: choose a smaller --batch, or another --device{f' ({words[0]})' if words else ''}", 1)


def fail(message: str, code: int) -> None:
    forgive(sys.stderr)
    shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    typer.echo(f"error: {printable(shown)}", err=True)
    sys.exit(code)

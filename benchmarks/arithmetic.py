"""What rounding and settings do to the error: the recipe `fast` on held-out images, in different arithmetic and with
other settings.

    python benchmarks/arithmetic.py [results/arithmetic]

reads the records that these commands wrote on a GPU, and prints their tables:

    quatcaps bench --to-error --dataset smallnorb --validation 0.2 --try precision=float32,ieee,bf16 \\
        --output results/arithmetic/kernels
    python benchmarks/pytorch_blocks.py bench --to-error --dataset smallnorb --validation 0.2 \\
        --output results/arithmetic/pytorch-blocks

the same of cifar10 with --validation 0.1 --try schedule=cosine, and each of schedule=linear, label_smoothing=0.1 and
batch=512 (the latter two with schedule=cosine) by

    quatcaps bench --to-error --dataset cifar10 --validation 0.1 --try schedule=linear \\
        --output results/arithmetic/settings
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from quatcaps.errors import QuatcapsError
from quatcaps.paper.comparison import paired
from quatcaps.paper.record import read_record
from quatcaps.report.tables import NOTHING, Table

RESULTS = Path(__file__).parents[1] / "results/arithmetic"
DATASETS = {"smallnorb": "smallNORB", "cifar10": "CIFAR-10"}
DEFAULT = "kernels, TF32"
COSINE = {"smallnorb": "", "cifar10": "schedule=cosine"}
"""What the recipe had when these runs were made, and no longer has."""
ARITHMETIC: Mapping[str, tuple[str, str]] = {
    DEFAULT: ("kernels", "precision=float32"),
    "kernels, float32": ("kernels", "precision=ieee"),
    "kernels, bf16": ("kernels", "precision=bf16"),
    "PyTorch's blocks, TF32": ("pytorch-blocks", ""),
}
"""Where the records of each lie, and what was changed of the recipe."""
SETTINGS: Mapping[str, tuple[str, str]] = {
    "cosine schedule": ARITHMETIC[DEFAULT],
    "linear schedule": ("settings", "schedule=linear"),
    "label smoothing 0.1": ("settings", "label_smoothing=0.1"),
    "batches of 512": ("settings", "batch=512"),
}
"""The same of settings."""


def folder_of(where: str, changes: str, dataset: str) -> Path:
    """Of some records, in the folder of all.

    >>> folder_of("kernels", "precision=bf16", "cifar10").as_posix()
    'kernels/runs/to-error-held-out/cifar10/precision=bf16,schedule=cosine'
    """
    schedule = "" if "schedule" in changes else COSINE[dataset]
    name = ",".join(each for each in (changes, schedule) if each) or "recipe"
    return Path(where) / "runs/to-error-held-out" / dataset / name


def errors_in(folder: Path) -> dict[int, float]:
    """On the held-out images at the end of training, in %, by seed."""
    records = [read_record(path) for path in sorted(folder.glob("seed-*.json"))]
    return {record.seed: record.final["validation"].percent for record in records}


def rows(results: Path, dataset: str, places: Mapping[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    """Of a dataset, in the order of the places: the mean error, and how much more than that of the first with the same
    seeds."""
    errors = {name: errors_in(results / folder_of(*place, dataset)) for name, place in places.items()}
    default = next(iter(errors.values()))
    cells = []
    for name, found in errors.items():
        mean = f"{statistics.fmean(found.values()):.2f}" if found else NOTHING
        more = None if found is default else paired(found, default)
        cells.append((DATASETS[dataset], name, str(len(found)), mean, NOTHING if more is None else str(more)))
    return cells


def tables(results: Path = RESULTS) -> tuple[Table, Table]:
    """A row for each arithmetic on each dataset, and for each setting on CIFAR-10."""
    arithmetic = tuple(cells for dataset in DATASETS for cells in rows(results, dataset, ARITHMETIC))
    settings = tuple(rows(results, "cifar10", SETTINGS))
    if all(cells[3] == NOTHING for cells in (*arithmetic, *settings)):
        raise QuatcapsError(f"{results} has no record of arithmetic: give the folder that holds kernels/runs")
    columns = ("seeds", "held-out error (%)", "more than the first (points)")
    return (
        Table("Errors and arithmetic", ("dataset", "residual blocks", *columns), arithmetic),
        Table("Errors and settings", ("dataset", "settings", *columns), settings),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS, help="where the records lie")
    console = Console()
    try:
        for table in tables(parser.parse_args().results):
            console.print(table.rich(console.width))
    except QuatcapsError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

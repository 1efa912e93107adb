"""What rounding does to the error: the recipe `fast` on held-out images, its steps computed in different arithmetic.

    python benchmarks/arithmetic.py [results/arithmetic]

reads the records that these commands wrote on a GPU, and prints their table:

    quatcaps bench --to-error --dataset smallnorb --validation 0.2 --try precision=float32,ieee,bf16 \\
        --output results/arithmetic/kernels
    python benchmarks/pytorch_blocks.py bench --to-error --dataset smallnorb --validation 0.2 \\
        --output results/arithmetic/pytorch-blocks

and the same of cifar10 with --validation 0.1.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from quatcaps.errors import QuatcapsError
from quatcaps.paper.record import read_record
from quatcaps.report.tables import NOTHING, Table

RESULTS = Path(__file__).parents[1] / "results/arithmetic"
DATASETS = {"smallnorb": "smallNORB", "cifar10": "CIFAR-10"}
DEFAULT = "kernels, TF32"
ARITHMETIC: Mapping[str, str] = {
    DEFAULT: "kernels/runs/to-error-held-out/{}/precision=float32",
    "kernels, float32": "kernels/runs/to-error-held-out/{}/precision=ieee",
    "kernels, bf16": "kernels/runs/to-error-held-out/{}/precision=bf16",
    "PyTorch's blocks, TF32": "pytorch-blocks/runs/to-error-held-out/{}/recipe",
}
"""Where the records of each lie, by dataset."""


def errors_in(folder: Path) -> dict[int, float]:
    """On the held-out images at the end of training, in %, by seed."""
    records = [read_record(path) for path in sorted(folder.glob("seed-*.json"))]
    return {record.seed: record.final["validation"].percent for record in records}


def row(dataset: str, name: str, found: Mapping[int, float], default: Mapping[int, float]) -> tuple[str, ...]:
    """The mean error, and by how much it differs from the default's with the same seeds."""
    shared = sorted(found.keys() & default.keys())
    differences = [found[seed] - default[seed] for seed in shared]
    against = NOTHING
    if name != DEFAULT and len(shared) > 1:
        wrong_by = statistics.stdev(differences) / math.sqrt(len(shared))
        against = f"{statistics.fmean(differences):+.2f} ± {wrong_by:.2f}"
    mean = f"{statistics.fmean(found.values()):.2f}" if found else NOTHING
    return dataset, name, str(len(found)), mean, against


def table(results: Path = RESULTS) -> Table:
    """A row for each arithmetic on each dataset."""
    rows = []
    for dataset, title in DATASETS.items():
        default = errors_in(results / ARITHMETIC[DEFAULT].format(dataset))
        for name, folder in ARITHMETIC.items():
            rows.append(row(title, name, errors_in(results / folder.format(dataset)), default))
    if all(cells[3] == NOTHING for cells in rows):
        raise QuatcapsError(f"{results} has no record of arithmetic: give the folder that holds kernels/runs")
    columns = ("dataset", "residual blocks", "seeds", "held-out error (%)", "more than the default's (points)")
    return Table("Errors and arithmetic", columns, tuple(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS, help="where the records lie")
    console = Console()
    try:
        console.print(table(parser.parse_args().results).rich(console.width))
    except QuatcapsError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

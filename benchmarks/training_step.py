"""A training step of the small and the full network: votes by 3×3 matrices beside the paper's 4×4 formulation.

    python benchmarks/training_step.py [--device cpu] [--batch 8] [--steps 7] [--output FILE.json]

Each variant runs in a process of its own, so that its peak memory is its own; the variants of a network take turns,
so that whatever else the machine does falls on both. Times are medians.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from quatcaps.files import write_json
from quatcaps.report.tables import Table

NETWORKS = ("qcn-small", "qcn")
VARIANTS = ("reference", "paper 4×4")
MIB = 2**20


def serve(connection: Connection, name: str, variant: str, batch: int, device_name: str) -> None:
    """Builds one variant, then answers each request with the seconds of one training step, and at the end with the
    peak memory above what stood before the first."""
    import torch

    from paper_formulation import as_in_the_paper
    from quatcaps.losses import spread_loss
    from quatcaps.models import build

    device = torch.device(device_name)
    network = build(name, channels=2, classes=5, seed=0)
    network = (as_in_the_paper(network) if variant == "paper 4×4" else network).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 2, 32, 32, generator=generator).to(device)
    labels = torch.randint(5, (batch,), generator=generator).to(device)
    before = memory(device)

    while connection.recv() == "step":
        wait(device)
        started = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        spread_loss(network(images).activations, labels, 0.5).backward()
        optimiser.step()
        wait(device)
        connection.send(time.perf_counter() - started)
    connection.send(memory(device) - before)


def memory(device: Any) -> int:
    """Peak bytes so far: of the process on a CPU, of PyTorch's allocations on a GPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def wait(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def measure(name: str, batch: int, steps: int, device: str) -> list[dict[str, Any]]:
    """All variants of a network, taking turns; the first step of each is not counted."""
    spawn = multiprocessing.get_context("spawn")
    workers = []
    for variant in VARIANTS:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, name, variant, batch, device))
        process.start()
        theirs.close()
        workers.append((variant, ours, process, []))
    for _ in track(range(steps + 1), f"{name}, batch {batch}", transient=True):
        for _, connection, _, times in workers:
            connection.send("step")
            times.append(connection.recv())
    rows = []
    for variant, connection, process, times in workers:
        connection.send("stop")
        peak = connection.recv()
        process.join()
        median = statistics.median(times[1:])
        rows.append({"network": name, "variant": variant, "batch": batch, "seconds": median, "peak_bytes": peak})
    for row in rows:
        row["time_ratio"] = row["seconds"] / rows[0]["seconds"]
        row["memory_ratio"] = row["peak_bytes"] / rows[0]["peak_bytes"]
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    columns = ("network", "votes formed as", "batch", "step (ms)", "images/s", "peak (MiB)", "time", "memory")
    lines = [
        (
            row["network"],
            row["variant"],
            str(row["batch"]),
            f"{1000 * row['seconds']:.0f}",
            f"{row['batch'] / row['seconds']:.1f}",
            f"{row['peak_bytes'] / MIB:.0f}",
            f"{row['time_ratio']:.2f}×",
            f"{row['memory_ratio']:.2f}×",
        )
        for row in rows
    ]
    return Table("training step, forward to optimiser", columns, tuple(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=7, help="counted steps per variant")
    parser.add_argument("--machine", default=platform.machine(), help="the machine's name in the results")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    arguments = parser.parse_args()
    rows = [row for name in NETWORKS for row in measure(name, arguments.batch, arguments.steps, arguments.device)]
    Console().print(table(rows).rich())
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    result = {
        "machine": arguments.machine,
        "threads": torch.get_num_threads(),
        "device": arguments.device,
        "versions": versions,
        "rows": rows,
    }
    if arguments.output:
        write_json(arguments.output, result)
    else:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

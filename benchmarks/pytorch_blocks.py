"""The command line with residual blocks by PyTorch's own convolutions and normalisations, and routing by kernels as
ever: what kernels of blocks are compared with (docs/performance.md, "Errors and arithmetic").

    python benchmarks/pytorch_blocks.py bench --to-error --dataset cifar10 --validation 0.1 --output elsewhere
"""

from __future__ import annotations

from typing import Any

from quatcaps.cli import main
from quatcaps.layers.fused import trunk


def never(*asked: Any) -> bool:
    return False


def run() -> None:
    trunk.can_run = never
    main()


if __name__ == "__main__":
    run()

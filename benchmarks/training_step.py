"""A training step of the small and the full network by every backend: `quatcaps bench` with settings of its own.

    python benchmarks/training_step.py [--device cpu] [--batch 8] [--steps 7] [--output FOLDER]

Takes the options of `quatcaps bench`.
"""

from __future__ import annotations

import sys

from quatcaps.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "--model", "qcn-small", "--model", "qcn", "--pass", "train"]
    main()

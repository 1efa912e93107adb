"""The cost of one routing layer by its children, parents and positions, and of a training step by the side of the
images and by the number of classes: `quatcaps bench --scaling` alone.

    python benchmarks/scaling.py [--device cpu] [--backend native] [--steps 7] [--output FOLDER]

Takes the options of `quatcaps bench`.
"""

from __future__ import annotations

import sys

from quatcaps.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "--scaling", "--no-networks"]
    main()
